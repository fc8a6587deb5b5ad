"""One whole comparison run: the order of the cells, and what happens when something fails."""

import fcntl
import os
import socket
import subprocess
import time
from datetime import datetime, timezone

from run import machine, show, summary
from run.cell import Cell, Ports
from run.errors import RunError
from run.exporter import Exporter
from run.state import State
from run.store import Store

TLS_DAYS = "30"
BUILD_TIMEOUT_S = 900
OVERHEAD_S = 2.0


def hold_lock(path):
    """Only one run at a time on a machine: two would measure each other."""
    try:
        lock = open(path, "w", encoding="ascii")
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise RunError("another comparison run is going on in this tree") from error
    return lock


def _free_port(host, wanted):
    """The wanted port, or a free one when somebody has it."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                show.warn(f"port {port} is taken: Prometheus will not find this run there")
                continue
            return probe.getsockname()[1]
    raise RunError("no free port")


def make_certificate(folder):
    """A self-signed certificate for the address under test. Returns (certificate, key)."""
    folder.mkdir(parents=True, exist_ok=True)
    certificate, key = folder / "cert.pem", folder / "key.pem"
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-days", TLS_DAYS, "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
            "-keyout", str(key), "-out", str(certificate)]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError as error:
        raise RunError(f"TLS rows need the openssl command: {error.strerror}") from error
    if done.returncode != 0:
        raise RunError(f"openssl made no certificate: {done.stderr.strip().splitlines()[-1]}")
    return certificate, key


class Bench:
    """Everything the cells share."""

    def __init__(self, options, children):
        self.options = options
        self.children = children
        self.host = "127.0.0.1"
        self.run_id = options.run_id or datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
        self.build = options.build
        self.store = Store(options.results / self.run_id)
        self.state = State(self.build / "state.json")
        self.ports = Ports(self.host, options.port)
        self.load_program = self.build / "load"
        self.server_prefix = options.server_prefix
        self.load_prefix = options.load_prefix
        self.load_listen = self.load_address = None
        self.exporter = None
        self.tls = None

    def timing(self, workload):
        """Warm-up and window of a workload in this run."""
        return self.options.timing_of(workload)

    def prepare(self, peers, workloads):
        """Check, build, describe. Returns the peers that can run."""
        for program in (self.load_program, self.build / "exporter"):
            if not os.access(program, os.X_OK):
                raise RunError(f"{program} is not there: run `make bench-tools`")
        self.store.create(run=self.run_id, started_unix=time.time(), base=self.options.base,
                          machine=machine.describe(), versions=machine.versions(self.options.root, self.load_program),
                          command=self.options.command,
                          workloads=[self._workload_facts(w) for w in workloads])
        ready, skipped = [], []
        for peer in peers:
            reason = peer.check() or self._build(peer)
            if reason:
                show.warn(f"{peer.name} is left out: {reason}")
                skipped.append({"server": peer.name, "reason": reason})
            else:
                ready.append(peer)
        if not ready:
            raise RunError("no server can be built here")
        self.store.results.update(
            servers=[p.name for p in ready], left_out=skipped,
            peers={p.name: {"version": p.version(), "about": p.describe(), "features": sorted(p.features())}
                   for p in ready})
        self.store.save()
        if any(w.tls for w in workloads):
            self.tls = make_certificate(self.build / "tls")
        return ready

    def _build(self, peer):
        """None when built, else why not. A child like the servers, so that an interrupted build ends too."""
        peer.outdir.mkdir(parents=True, exist_ok=True)
        child = self.children.start(f"build of {peer.name}", peer.build_argv(),
                                    self.store.logs / f"build-{peer.name}.log")
        in_time = child.wait(BUILD_TIMEOUT_S)
        code = self.children.stop(child)
        if not in_time:
            return f"its build took longer than {BUILD_TIMEOUT_S} s"
        return None if code == 0 else f"build failed: {child.log_tail(1)} (all of it: {child.log_path})"

    def _workload_facts(self, workload):
        timing = self.timing(workload)
        return {"name": workload.name, "title": workload.title, "connections": workload.connections,
                "rank_by": workload.rank_by, "table": list(workload.table), "storm": workload.storm,
                "warmup_s": timing.warmup_s, "window_s": timing.window_s}

    def start_tools(self):
        """The exporter, and the addresses where it and the generator can be read."""
        outside = self.options.metrics_host
        inside = self.host if outside == "0.0.0.0" else outside
        port = _free_port(outside, self.options.exporter_port)
        self.exporter = Exporter(self.build / "exporter", f"{outside}:{port}", f"{inside}:{port}", self.store.logs)
        self.exporter.start(self.children)
        port = _free_port(outside, self.options.load_port)
        self.load_listen, self.load_address = f"{outside}:{port}", f"{inside}:{port}"
        self.state.update(run=self.run_id, folder=str(self.store.folder), exporter=self.exporter.address,
                          load=self.load_address)

    def plan(self, peers, workloads):
        """All cells in order: round by round, and in each round the servers one after the other.

        Rounds begin with another server each time, so that none always follows the same neighbour.
        """
        for number in range(1, self.options.rounds + 1):
            shift = (number - 1) % len(peers)
            for workload in workloads:
                for peer in peers[shift:] + peers[:shift]:
                    yield peer, workload, number

    def run(self, peers, workloads):
        """Run all cells. True when none failed."""
        cells = list(self.plan(peers, workloads))
        features = {p.name: set(self.store.results["peers"][p.name]["features"]) for p in peers}
        good = True
        runnable = [c for c in cells if c[1].needs <= features[c[0].name]]
        minutes = sum(self._expected_s(workload) for _peer, workload, _round in runnable) / 60.0
        show.say(f"run {self.run_id}: {len(runnable)} cells, about {max(1, round(minutes))} min; results in "
                 f"{self.store.folder}")
        for number, (peer, workload, round_number) in enumerate(cells, 1):
            missing = workload.needs - features[peer.name]
            self.state.update(cell=number, cells=len(cells), server=peer.name, workload=workload.name,
                              title=workload.title, round=round_number, pid=None, phase="start")
            cell = Cell(self, peer, workload, round_number)
            if missing:
                record = dict(cell.record, status="skipped", error=f"has no {' or '.join(sorted(missing))}")
                self.store.add(record, {"samples": []})
                continue
            show.begin(number, len(cells), record=cell.record)
            record, series = cell.run()
            self.store.add(record, series)
            show.end(record, workload)
            good = good and record["status"] == "ok"
        return good

    def _expected_s(self, workload):
        """Seconds that a cell takes when nothing is slow."""
        timing = self.timing(workload)
        connect_s = workload.connections / workload.connect_rate if workload.connect_rate else 2.0
        return connect_s + timing.warmup_s + timing.window_s + OVERHEAD_S

    def finish(self, complete):
        """Rows into results.json, complete or not."""
        results = self.store.results
        results["complete"] = complete
        results["ended_unix"] = time.time()
        results["rows"] = summary.rows(results) if results.get("servers") else []
        self.store.save()
        self.state.clear()
