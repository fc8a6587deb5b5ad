"""The panels of the dashboard and of the HTML report: one definition for both.

A panel is a list of lines; a line names a metric, how it is read (a gauge, or the rate of a counter) and by which
labels besides `server` it is split.
"""

from dataclasses import dataclass

GAUGE, RATE = "gauge", "rate"


@dataclass(frozen=True)
class Line:
    """One query of a panel."""

    metric: str
    kind: str
    by: tuple = ()
    where: tuple = ()
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """One chart over time. `unit` is Grafana's name of the unit."""

    key: str
    row: int
    title: str
    description: str
    unit: str
    lines: tuple
    log: bool = False


ROWS = {
    1: "Servers at a glance",
    2: "CPU and memory",
    3: "Threads, descriptors, switches",
    4: "Messages and latency",
    5: "The load generator and the kernel",
}

PANELS = (
    Panel("cpu", 2, "CPU", "CPU seconds per second of each server process: 1 is one core fully used. Cores rather than "
          "percent of the machine, so that no server is hidden by a maximum of 100 %.", "none",
          (Line("process_cpu_seconds_total", RATE),)),
    Panel("rss", 2, "Resident memory", "RSS of each server process. What the kernel holds is not in it: see kernel "
          "memory.", "bytes", (Line("process_resident_memory_bytes", GAUGE),)),
    Panel("threads", 3, "Threads", "Kernel threads of each server process.", "none",
          (Line("process_threads", GAUGE),)),
    Panel("fds", 3, "Open descriptors", "Open file descriptors of each server process: connections and a few more.",
          "none", (Line("process_open_fds", GAUGE),)),
    Panel("switches", 3, "Context switches", "Context switches per second of each server process, by kind.", "cps",
          (Line("process_context_switches_total", RATE, by=("kind",)),)),
    Panel("modes", 3, "User and system CPU", "CPU of each server process in cores, by mode: user is the program and "
          "its libraries, system is the kernel working for it.", "none",
          (Line("process_cpu_mode_seconds_total", RATE, by=("mode",)),)),
    Panel("messages", 4, "Messages received per second", "Whole messages that came back from the server to the load "
          "generator.", "mps", (Line("bench_load_messages_received_total", RATE),)),
    Panel("latency", 4, "Latency", "From the scheduled time of sending until the whole reply was read, over the last "
          "second. A late generator or server cannot hide a pause (no coordinated omission).", "s",
          (Line("bench_load_latency_quantile_seconds", GAUGE, by=("quantile",),
                where=(("quantile", "=~", "0.5|0.99|0.999"),), legend="{{server}} {{quantile}}"),), log=True),
    Panel("bandwidth", 4, "Bandwidth to and from the server", "WebSocket bytes per second: down is from the server to "
          "the generator, up is the other way.", "Bps",
          (Line("bench_load_received_bytes_total", RATE, legend="{{server}} down"),
           Line("bench_load_sent_bytes_total", RATE, legend="{{server}} up"))),
    Panel("connections", 4, "Connections by state", "Connections as the load generator sees them.", "none",
          (Line("bench_load_connections", GAUGE, by=("state",)),)),
    Panel("kernel", 5, "Kernel memory", "What the kernel holds and RSS does not show. cgroup: the server's own control "
          "group. machine_change: growth of the whole machine's kernel stacks and slab since the server was first "
          "seen, with whatever else ran.", "bytes", (Line("bench_kernel_memory_bytes", GAUGE, by=("source",)),)),
    Panel("generator_cpu", 5, "CPU of the load generator", "In cores, while it loads the named server. Near its number "
          "of threads, the generator is the limit.", "none", (Line("bench_load_cpu_seconds_total", RATE),)),
    Panel("generator_lag", 5, "Lag of the load generator", "Worst delay of its own against the schedule in the last "
          "second.", "s", (Line("bench_load_schedule_lag_seconds", GAUGE),)),
)


def legend(line):
    """Grafana's legend format of a line."""
    if line.legend:
        return line.legend
    return " ".join(["{{server}}"] + ["{{%s}}" % label for label in line.by])


def panel(key):
    """A panel by its key."""
    return next(p for p in PANELS if p.key == key)
