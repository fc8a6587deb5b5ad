"""The figures of one cell and how they are shown. Values are stored in base units (bytes, seconds, microseconds)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Measure:
    """One column: what it is, which way is better, how a person reads it."""

    key: str
    label: str
    unit: str
    better: str  # "low", "high" or "" when neither is better
    scale: float = 1.0
    digits: int = 0
    about: str = ""

    def show(self, value):
        """The value in the unit of the column, without the unit."""
        if value is None:
            return "–"
        shown = value / self.scale
        digits = max(0, self.digits - (abs(shown) >= 10) - (abs(shown) >= 100)) if self.digits > 1 else self.digits
        return f"{shown:,.{digits}f}"


MIB = 1024.0 * 1024.0

MEASURES = (
    Measure("cpu_percent", "CPU", "%", "low", digits=0,
            about="user + system time of the server process over the window, in % of one core"),
    Measure("cpu_us_per_message", "CPU per message", "µs", "low", digits=2,
            about="the same CPU time divided by the messages the server received and sent on"),
    Measure("rss", "RES", "MiB", "low", scale=MIB, digits=1, about="resident memory at the end of the window"),
    Measure("rss_peak", "RES peak", "MiB", "low", scale=MIB, digits=1,
            about="highest resident memory of the process from start to the end of the window"),
    Measure("rss_slope", "RES slope", "MiB/h", "low", scale=MIB, digits=2,
            about="least-squares slope of resident memory over the window"),
    Measure("kernel_stack", "kernel stacks", "MiB", "low", scale=MIB, digits=1,
            about="growth of the machine's kernel stacks since before the server started (whole machine)"),
    Measure("kernel_slab", "kernel slab", "MiB", "low", scale=MIB, digits=1,
            about="growth of the machine's slab since before the server started (whole machine, generator included)"),
    Measure("threads", "threads", "", "", about="threads of the server at the end of the window"),
    Measure("mbps_down", "Mbps down", "", "high", digits=0, about="bits per second from server to generator"),
    Measure("mbps_up", "Mbps up", "", "high", digits=0, about="bits per second from generator to server"),
    Measure("messages_per_s", "messages/s", "", "high", digits=0, about="messages received by the generator, all its "
            "connections together"),
    Measure("carried", "carried", "%", "high", scale=0.01, digits=1,
            about="messages received in the window, of those that the schedule offered"),
    Measure("p50_us", "p50", "ms", "low", scale=1000.0, digits=2, about="median latency"),
    Measure("p99_us", "p99", "ms", "low", scale=1000.0, digits=2, about="99th percentile of latency"),
    Measure("p999_us", "p99.9", "ms", "low", scale=1000.0, digits=2, about="99.9th percentile of latency"),
    Measure("handshakes_per_s", "handshakes/s", "", "high", digits=0, about="connections opened per second"),
    Measure("open_s", "all open after", "s", "low", digits=2, about="time until the last connection was open"),
    Measure("handshake_p50_us", "handshake p50", "ms", "low", scale=1000.0, digits=2,
            about="median time from connect to the end of the opening handshake"),
    Measure("handshake_p99_us", "handshake p99", "ms", "low", scale=1000.0, digits=2,
            about="99th percentile of the same"),
    Measure("lost", "lost", "", "low", digits=0, about="connections that failed to open or were lost"),
    Measure("muted_closed", "mute ones cut off", "", "", about="receivers that read nothing and were closed by the "
            "server"),
    Measure("others_percent", "other programs", "%", "", about="CPU of everything but server and generator, in % of a "
            "core"),
    Measure("messages_lost", "messages lost", "", "low", digits=0, about="messages sent that never came back"),
)

BY_KEY = {m.key: m for m in MEASURES}

# Shown in every table, in the order in which such comparisons are usually published.
TABLE = ("cpu_percent", "rss", "mbps_down", "mbps_up", "p50_us", "p99_us", "p999_us", "lost")
STORM_TABLE = ("cpu_percent", "rss", "handshakes_per_s", "open_s", "handshake_p50_us", "handshake_p99_us", "lost")
MEMORY_EXTRA = ("kernel_stack", "kernel_slab", "threads")
