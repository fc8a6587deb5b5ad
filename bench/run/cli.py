"""Command line of the comparison runs."""

import argparse
import os
import shlex
import sys
from pathlib import Path

from run import machine, peers, show, soak, summary, top, workloads
from run.bench import Bench, hold_lock
from run.errors import Interrupted, RunError, UsageError
from run.procs import Children, Signals

ROOT = Path(__file__).resolve().parent.parent.parent
QUICK_PEERS = "libtws gws gorilla coder gobwas nbio"
EXPORTER_PORT = 9464
LOAD_PORT = 9465


def _words(text):
    return text.replace(",", " ").split()


def _positive(kind):
    def convert(text):
        value = kind(text)
        if not value > 0:
            raise argparse.ArgumentTypeError("must be greater than 0")
        return value
    return convert


def _parser():
    parser = argparse.ArgumentParser(prog="bench", description="Compare WebSocket servers under the same load.")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "bench",
                        help="where the tools are and results go")
    commands = parser.add_subparsers(dest="command_name", required=True)
    _add_run(commands)
    report = commands.add_parser("report", help="make tables, charts and report of a run again")
    report.add_argument("folder", type=Path, help="folder of the run")
    docs = commands.add_parser("docs", help="write the table of a run into docs/benchmarks.md")
    docs.add_argument("folder", type=Path, help="folder of the run")
    docs.add_argument("--page", type=Path, default=ROOT / "docs" / "benchmarks.md")
    commands.add_parser("list", help="list workloads and servers, and what is missing for each")
    top.add_arguments(commands.add_parser("top", help="live view of the servers under test"))
    return parser


def _add_run(commands):
    run = commands.add_parser("run", help="run servers and workloads", formatter_class=argparse.RawTextHelpFormatter)
    run.add_argument("--peers", type=_words, default=None,
                     help=f"servers, or `all`; a group name stands for its members\n(default: {QUICK_PEERS}; "
                          "with --full: all)")
    run.add_argument("--workloads", type=_words, default=None,
                     help=f"(default: {' '.join(workloads.QUICK_SET)}; with --full: all)")
    run.add_argument("--rounds", type=_positive(int), default=3, help="default: %(default)s")
    run.add_argument("--base", default="gws", help="server that the ratios compare with (default: %(default)s)")
    run.add_argument("--full", action="store_true", help="all workloads, all servers, longer windows")
    run.add_argument("--soak", type=_positive(float), metavar="HOURS",
                     help="instead of the workloads: mixed sizes for hours, memory slope reported")
    run.add_argument("--window", type=_positive(float), metavar="SECONDS", help="steady window of each cell")
    run.add_argument("--warmup", type=float, metavar="SECONDS", help="warm-up before it")
    run.add_argument("--connections", type=_positive(int), metavar="N",
                     help="at most so many connections in every workload")
    run.add_argument("--results", type=Path, default=None, help="(default: results/ in the build folder)")
    run.add_argument("--run-id", default=None, help="name of the run's folder (default: date and time)")
    run.add_argument("--port", type=int, default=None, help="port of the servers (default: a free one each time)")
    run.add_argument("--exporter-port", type=int, default=EXPORTER_PORT, help="default: %(default)s")
    run.add_argument("--load-port", type=int, default=LOAD_PORT, help="metrics of the generator, default: %(default)s")
    run.add_argument("--metrics-host", default="127.0.0.1",
                     help="address on which both are served (default: %(default)s; 0.0.0.0 for another machine)")
    run.add_argument("--server-prefix", type=shlex.split, default=[], metavar="COMMAND",
                     help="run each server under it, for example 'taskset -c 0'")
    run.add_argument("--load-prefix", type=shlex.split, default=[], metavar="COMMAND",
                     help="run the generator under it, for example 'taskset -c 1'")
    run.add_argument("--no-report", action="store_true", help="results.json only, no charts and pages")


class Options:
    """The parsed command of a run, with defaults resolved."""

    def __init__(self, args):
        self.root = ROOT
        self.build = args.build.resolve()
        self.results = (args.results or self.build / "results").resolve()
        self.run_id = args.run_id
        self.rounds = args.rounds
        self.base = args.base
        self.port = args.port
        self.exporter_port = args.exporter_port
        self.load_port = args.load_port
        self.metrics_host = args.metrics_host
        self.server_prefix = args.server_prefix
        self.load_prefix = args.load_prefix
        self.command = sys.argv[1:]
        self.full = args.full
        self._window_s = args.window
        self._warmup_s = args.warmup

    def timing_of(self, workload):
        """Timing of a workload: its own, or the profile's, unless the command says otherwise."""
        base = workload.timing or (workloads.FULL if self.full else workloads.QUICK)
        return workloads.Timing(base.warmup_s if self._warmup_s is None else self._warmup_s,
                                base.window_s if self._window_s is None else self._window_s)


def _chosen(args):
    found = peers.discover(ROOT / "bench" / "peers", args.build.resolve() / "peers")
    names = args.peers or (["all"] if args.full else QUICK_PEERS.split())
    if names == ["all"]:
        chosen = list(found.values())
    elif args.peers:
        chosen = peers.choose(found, names)
    else:
        chosen = peers.choose(found, [n for n in names if any(p == n or p.startswith(n + "-") for p in found)])
    if args.soak:
        load = [soak.workload(args.soak, args.build.resolve() / "soak")]
    else:
        load = workloads.choose(args.workloads or (workloads.FULL_SET if args.full else workloads.QUICK_SET))
    if args.connections:
        load = [w.capped(args.connections) for w in load]
    return chosen, load


def _make_report(folder):
    """Everything that is made of results.json; the table on the terminal as well."""
    from report import make, table
    written = make.everything(folder)
    show.say(table.terminal(summary.of_folder(folder)) + "\n")
    pictures = [p for p in written if p.parent.name == "charts"]
    for path in [p for p in written if p not in pictures]:
        show.say(f"wrote {os.path.relpath(path)}")
    if pictures:
        show.say(f"wrote {len(pictures)} charts into {os.path.relpath(pictures[0].parent)}/")


def _run(args):
    chosen, load = _chosen(args)
    options = Options(args)
    options.build.mkdir(parents=True, exist_ok=True)
    machine.raise_descriptor_limit()
    with hold_lock(options.build / "lock"), Signals(), Children() as children:
        bench = Bench(options, children)
        interrupted, good = None, False
        try:
            ready = bench.prepare(chosen, load)
            bench.start_tools()
            good = bench.run(ready, load)
            bench.finish(complete=True)
        except (Interrupted, RunError) as stop:
            interrupted = stop
            children.stop_all()
            show.warn(f"stopped: {stop}")
            _save_what_there_is(bench)
        children.stop_all()
        if bench.store.results["cells"] and not args.no_report:
            _report_or_say(bench.store.folder)
    if isinstance(interrupted, Interrupted):
        return 128 + interrupted.signum
    return 0 if good and interrupted is None else 1


def _save_what_there_is(bench):
    try:
        bench.finish(complete=False)
    except RunError as error:
        show.warn(str(error))


def _report_or_say(folder):
    try:
        _make_report(folder)
    except (RunError, OSError) as error:
        show.warn(f"no report: {error}")


def _list(args):
    show.say("workloads")
    for workload in workloads.ALL.values():
        show.say(f"  {workload.name:<12} {workload.title}")
    show.say("servers")
    for peer in peers.discover(ROOT / "bench" / "peers", args.build / "peers").values():
        missing = peer.check()
        show.say(f"  {peer.name:<20} {'needs: ' + missing if missing else peer.version()}")
    return 0


def main(argv):
    """Returns the exit status: 0 all well, 1 something failed, 2 wrong command, 128+N ended by signal N."""
    args = _parser().parse_args(argv)
    try:
        if args.command_name == "run":
            return _run(args)
        if args.command_name == "list":
            return _list(args)
        if args.command_name == "top":
            return top.main(args)
        if args.command_name == "docs":
            from report import docs
            show.say(docs.write(args.folder, args.page))
            return 0
        _make_report(args.folder)
        return 0
    except UsageError as error:
        show.warn(str(error))
        return 2
    except (RunError, OSError) as error:
        show.warn(str(error))
        return 1
