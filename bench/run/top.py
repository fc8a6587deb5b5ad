"""`make top`: one line per server under test, redrawn each second."""

import json
import shutil
import sys
import time
from pathlib import Path

from run import scrape, show, state
from run.errors import Interrupted
from run.procs import Signals

CLEAR = "\x1b[H\x1b[J"
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"
HEADINGS = ("SERVER", "CPU %", "RSS MiB", "THREADS", "CONNS", "MSG/S", "P99 ms")
ROW = "{:<20}{:>8}{:>10}{:>9}{:>9}{:>11}{:>10}"


def add_arguments(parser):
    """Options of `top`."""
    parser.add_argument("--once", action="store_true", help="print one reading and end")
    parser.add_argument("--exporter", action="append", default=[], metavar="HOST:PORT",
                        help="metrics of the exporter (default: what the run in this tree uses)")
    parser.add_argument("--load", action="append", default=[], metavar="HOST:PORT", help="metrics of the generator")
    parser.add_argument("--interval", type=float, default=1.0, metavar="SECONDS")
    parser.set_defaults(state_file=None)


class Reading:
    """What the exporter and the generator said at one moment, by server."""

    def __init__(self, exporters, loads):
        self.at = time.monotonic()
        self.answers = [a for a in map(scrape.fetch, exporters + loads) if a is not None]

    def servers(self):
        """Names of the servers that have a process."""
        return sorted({labels["server"] for a in self.answers for name, labels, _ in a.samples
                       if name == "process_resident_memory_bytes" and "server" in labels})

    def value(self, name, server, **labels):
        """Sum over all answers; None when nobody knows."""
        found = [a.value(name, server=server, **labels) for a in self.answers]
        found = [f for f in found if f is not None]
        return sum(found) if found else None


def _rate(now, before, name, server):
    new, old = now.value(name, server), before.value(name, server)
    if new is None or old is None or now.at <= before.at or new < old:
        return None
    return (new - old) / (now.at - before.at)


def _number(value, digits=0, scale=1.0):
    return "–" if value is None else f"{value / scale:,.{digits}f}"


def lines(now, before):
    """The table's lines."""
    out = [ROW.format(*HEADINGS)]
    for server in now.servers():
        cpu = _rate(now, before, "process_cpu_seconds_total", server)
        out.append(ROW.format(
            server[:19],
            _number(None if cpu is None else cpu * 100.0, 1),
            _number(now.value("process_resident_memory_bytes", server), 1, 1024.0 * 1024.0),
            _number(now.value("process_threads", server)),
            _number(now.value("bench_load_connections", server, state="open")),
            _number(_rate(now, before, "bench_load_messages_received_total", server)),
            _number(now.value("bench_load_latency_quantile_seconds", server, quantile="0.99"), 2, 0.001)))
    return out


class Finished:
    """Cells of the present workload and round that are over, from the run's own results."""

    def __init__(self):
        self._seen = None
        self._cells = []

    def lines(self, facts):
        """One line for each, in the same columns."""
        path = Path(facts.get("folder", "")) / "results.json"
        try:
            written = path.stat().st_mtime_ns
            if written != self._seen:
                self._cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
                self._seen = written
        except (OSError, ValueError, KeyError):
            return []
        return [self._line(c) for c in self._cells
                if c["workload"] == facts.get("workload") and c["round"] == facts.get("round")]

    @staticmethod
    def _line(cell):
        value = cell["measures"].get
        if cell["status"] != "ok":
            return f"{cell['server'][:19]:<20}  {cell['status']}: {cell['error']}"
        return ROW.format(cell["server"][:19], _number(value("cpu_percent"), 1),
                          _number(value("rss"), 1, 1024.0 * 1024.0), _number(value("threads")),
                          _number((cell["load"] or {}).get("connections", {}).get("open")),
                          _number(value("messages_per_s")), _number(value("p99_us"), 2, 1000.0)) + "  done"


def _heading(facts):
    if not facts:
        return "no run is going on in this tree"
    return (f"run {facts.get('run', '')}  cell {facts.get('cell', 0)}/{facts.get('cells', 0)}  "
            f"{facts.get('workload', '')} round {facts.get('round', '')}  {facts.get('phase', '')}\n"
            f"{facts.get('title', '')}")


def _sources(args, facts):
    exporters, loads = list(args.exporter), list(args.load)
    if facts and not exporters:
        exporters = [facts["exporter"]] if facts.get("exporter") else []
        loads = loads or ([facts["load"]] if facts.get("load") else [])
    return exporters, loads


def _draw(args, facts, now, before, finished):
    heading = _heading(facts) if not args.exporter else "servers under test"
    body = lines(now, before) + (finished.lines(facts) if facts and not args.exporter else [])
    if args.once or not sys.stdout.isatty():
        print("\n".join([heading, ""] + body), flush=True)
        return
    width = shutil.get_terminal_size().columns
    body = [f"{BOLD}{body[0][:width]}{PLAIN}"] + [line[:width] for line in body[1:]]
    print(CLEAR + "\n".join([heading, ""] + body + ["", "Ctrl-C ends the view, not the run."]), flush=True)


def main(args):
    """Exit status: 1 when asked once and nobody could be read."""
    path = args.state_file or Path(args.build) / "state.json"
    before, finished = None, Finished()
    with Signals():
        try:
            if not args.once and sys.stdout.isatty():
                print(HIDE_CURSOR, end="")
            while True:
                facts = state.read(path)
                exporters, loads = _sources(args, facts)
                now = Reading(exporters, loads)
                if before is not None:
                    _draw(args, facts, now, before, finished)
                    if args.once:
                        return 0 if now.servers() else 1
                before = now
                time.sleep(args.interval)
        except Interrupted:
            return 0
        finally:
            if not args.once and sys.stdout.isatty():
                show.say(SHOW_CURSOR)
