"""The workloads, as data. What each is for is told in docs/benchmarks.md."""

from dataclasses import dataclass, replace
from typing import Optional

from run import measures
from run.errors import UsageError


@dataclass(frozen=True)
class Timing:
    """Seconds of warm-up and of the steady window that is measured."""

    warmup_s: float
    window_s: float


@dataclass(frozen=True)
class Companion:
    """A second generator beside the first, whose messages are not in the figures but whose errors are."""

    connections: int
    arguments: tuple


@dataclass(frozen=True)
class Workload:
    """One load, the features it needs of a server, and the figure that orders the servers."""

    name: str
    title: str
    connections: int
    arguments: tuple
    rank_by: str
    path: str = "/connect"
    needs: frozenset = frozenset({"echo"})
    connect_rate: int = 1000
    table: tuple = measures.TABLE
    storm: bool = False
    broadcast: bool = False
    timing: Optional[Timing] = None
    companions: tuple = ()
    sample_s: float = 1.0
    drain_s: float = 10.0

    @property
    def tls(self):
        """The server speaks TLS."""
        return "tls" in self.needs

    @property
    def deflate(self):
        """permessage-deflate is negotiated."""
        return "deflate" in self.needs

    @property
    def deflate_same(self):
        """With the same parameters everywhere instead of each library's own defaults."""
        return "deflate-same" in self.needs

    def capped(self, connections):
        """The same with at most so many connections (for tests and small machines)."""
        if connections >= self.connections:
            return self
        return replace(self, connections=connections, title=f"{self.title} (here: {connections:,} connections)")


QUICK = Timing(1.0, 3.0)
FULL = Timing(3.0, 10.0)

_MEMORY = measures.TABLE[:2] + measures.MEMORY_EXTRA + measures.TABLE[2:]

_BROADCAST = ("cpu_percent", "rss", "messages_per_s", "mbps_down") + measures.TABLE[4:]

_PLAIN = (
    Workload("W1", "bandwidth: 1,000 connections × 500 msg/s × 1,000 B", 1000, ("-r", "500", "-s", "1000"),
             "mbps_down", drain_s=3.0),
    Workload("W2", "CPU and memory: 1,000 connections × 100 msg/s × 1,000 B", 1000, ("-r", "100", "-s", "1000"),
             "cpu_percent", table=_MEMORY),
    Workload("W3", "many connections: 10,000 × 10 msg/s × 1,000 B", 10000, ("-r", "10", "-s", "1000"),
             "cpu_percent", connect_rate=2000, table=_MEMORY),
    Workload("W4", "latency: 64 connections, one 1,000 B message in flight each", 64,
             ("--pipeline", "1", "-s", "1000"), "p99_us",
             table=("cpu_percent", "rss", "messages_per_s") + measures.TABLE[4:]),
    Workload("W5", "connect storm: 10,000 connections as fast as they complete", 10000, ("--connect-only",),
             "handshakes_per_s", connect_rate=0, table=measures.STORM_TABLE, storm=True, timing=Timing(0.0, 1.0)),
    Workload("W6", "broadcast: one sender × 50 msg/s × 1,000 B to 1,000 receivers", 1001,
             ("--broadcast", "--senders", "1", "-r", "50", "-s", "1000"), "cpu_percent", path="/broadcast",
             needs=frozenset({"broadcast"}), broadcast=True, table=_BROADCAST),
    Workload("W6-mute", "the same broadcast, 10 % of the receivers read nothing", 1001,
             ("--broadcast", "--senders", "1", "--mute-percent", "10", "-r", "50", "-s", "1000"), "cpu_percent",
             path="/broadcast", needs=frozenset({"broadcast"}), broadcast=True,
             table=_BROADCAST + ("muted_closed",)),
    Workload("W7", "one 16 MiB message at a time", 1, ("--pipeline", "1", "-s", str(16 * 1024 * 1024)), "mbps_down"),
)


def _variant(workload, feature, title):
    return replace(workload, name=f"{workload.name}-{feature}", title=f"{workload.title}, {title}",
                   needs=workload.needs | {feature})


_VARIANTS = tuple(_variant(w, feature, title) for feature, title in
                  (("tls", "over TLS"), ("deflate", "with permessage-deflate"))
                  for w in _PLAIN if w.name in ("W1", "W2", "W3"))

_SAME = tuple(replace(w, name=f"{w.name}-same", needs=w.needs | {"deflate-same"},
                      title=f"{w.title}, level 1, no context takeover, from 512 bytes on")
              for w in _VARIANTS if w.name == "W2-deflate")

ALL = {w.name: w for w in _PLAIN + _VARIANTS + _SAME}

QUICK_SET = ("W1", "W2", "W4")
FULL_SET = tuple(ALL)


def choose(names):
    """The workloads asked for, in that order."""
    chosen = []
    for name in names:
        found = {k.lower(): w for k, w in ALL.items()}.get(name.lower())
        if found is None:
            raise UsageError(f"no workload named {name}; there are: {' '.join(ALL)}")
        if found not in chosen:
            chosen.append(found)
    return chosen
