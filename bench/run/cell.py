"""One cell: a fresh server, the load, and what was read while the steady window lasted."""

import os
import signal
import socket
import time

from run import generator, marks, procfs, soak
from run.errors import CellError
from run.procs import exit_reason
from run.sampler import Sampler

READY_TIMEOUT_S = 30.0
SLACK_S = 90.0
LOAD_GRACE_AFTER_DEATH_S = 5.0
LOAD_STOP_S = 20.0
COMPANION_GRACE_S = 30.0
FIRST_PORT = 18000
LAST_PORT = 19999


class Ports:
    """Ports below the ephemeral range, another one each time, so that no old TIME_WAIT pair can be hit."""

    def __init__(self, host, fixed=None):
        self._host = host
        self._fixed = fixed
        self._next = FIRST_PORT + os.getpid() % 1000

    def take(self):
        """A port nobody listens on; the fixed one as it is."""
        if self._fixed:
            return self._fixed
        for _ in range(LAST_PORT - FIRST_PORT):
            port, self._next = self._next, self._next + 1
            if self._next > LAST_PORT:
                self._next = FIRST_PORT
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((self._host, port))
                    return port
                except OSError:
                    continue
        raise CellError(f"no free port between {FIRST_PORT} and {LAST_PORT}")


class Window:
    """Readings at both ends of the measured time."""

    def __init__(self):
        self.start = None
        self.end = None

    @staticmethod
    def read(pid):
        """One end: the server, the machine, the clocks."""
        process = procfs.process(pid)
        if process is None:
            return None
        return {"unix": time.time(), "clock": time.monotonic(), "process": process,
                "machine_s": procfs.machine_busy_s(), "kernel": procfs.kernel_memory(),
                "rss_peak": procfs.peak_rss(pid)}


class Cell:
    """Runs one cell from nothing to nothing."""

    def __init__(self, bench, peer, workload, round_number):
        self.bench = bench
        self.peer = peer
        self.workload = workload
        self.timing = bench.timing(workload)
        self.window = Window()
        self.server = None
        self.load = None
        self.companions = []
        self.sampler = None
        self.record = {
            "server": peer.name, "workload": workload.name, "round": round_number,
            "run": f"{bench.run_id}/{workload.name}/{round_number}",
            "status": "failed", "error": None, "marks": [], "notes": [], "measures": {},
            "started_unix": time.time(), "ended_unix": None, "window": None, "load": None,
        }

    def run(self):
        """(record, series); a failure is in the record, not raised."""
        try:
            self._measure()
            self.record["status"] = "ok"
        except CellError as error:
            self.record["error"] = str(error)
        finally:
            self._end()
        series = self.sampler.series() if self.sampler else {"samples": []}
        return self.record, series

    def _name(self, kind):
        record = self.record
        return self.bench.store.logs / f"{record['workload']}-{record['server']}-r{record['round']}-{kind}"

    def _measure(self):
        self.record["kernel_before"] = kernel_before = procfs.kernel_memory()
        port = self.bench.ports.take()
        self._start_server(port)
        self.bench.exporter.watch(self.peer.name, self.server.pid, self.record["run"])
        self.sampler = Sampler(self.peer.name, (self.bench.exporter.address, self.bench.load_address),
                               self.workload.sample_s)
        self.sampler.sample()
        json_path = self._name("load.json")
        phases = generator.Phases()
        try:
            self._start_load(port, json_path, phases)
            self._follow(phases)
        finally:
            phases.close()
        self._judge(generator.read_json(json_path), kernel_before)

    def _start_server(self, port):
        bench, workload = self.bench, self.workload
        env = self.peer.environment(bench.host, bench.tls if workload.tls else None, workload.deflate,
                                    workload.deflate_same)
        if procfs.tcp_listening(port):
            raise CellError(f"port {port} is taken by another program")
        self.server = bench.children.start(self.peer.name, bench.server_prefix + self.peer.start_argv(port),
                                           self._name("server.log"), env=env)
        bench.state.update(pid=self.server.pid, port=port)
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not self._says_listening():
            if self.server.exited():
                code = bench.children.stop(self.server)
                raise CellError(f"server ended before it listened ({exit_reason(code)}): "
                                f"{self.server.log_tail() or 'no output'}")
            if time.monotonic() > deadline:
                raise CellError(f"server did not say `listening` within {READY_TIMEOUT_S:.0f} s")
            time.sleep(0.02)

    def _says_listening(self):
        with open(self.server.log_path, "rb") as log:
            return any(line.startswith(b"listening") for line in log)

    def _start_load(self, port, json_path, phases):
        bench, workload = self.bench, self.workload
        url = f"{'wss' if workload.tls else 'ws'}://{bench.host}:{port}{workload.path}"
        labels = {"server": self.peer.name, "run": self.record["run"]}
        self.record["command"] = argv = generator.argv(bench.load_program, workload, self.timing, url, json_path)
        argv = bench.load_prefix + argv + generator.reporting(bench.load_listen, labels, phases.write)
        self.load = bench.children.start("load", argv, self._name("load.log"), pass_fds=(phases.write,))
        phases.close_write()
        for number, part in enumerate(workload.companions, 2):
            path = self._name(f"load{number}.json")
            argv = generator.argv(bench.load_program, workload, self.timing, url, path, part)
            child = bench.children.start("load", bench.load_prefix + argv, self._name(f"load{number}.log"))
            self.companions.append((child, path))

    def _follow(self, phases):
        """Sample each second; read the server exactly when the window begins and ends."""
        connect_s = self.workload.connections / self.workload.connect_rate if self.workload.connect_rate else 0
        deadline = time.monotonic() + connect_s + self.timing.warmup_s + self.timing.window_s + SLACK_S
        died_at = None
        begins = "connect" if self.workload.storm else "steady"
        while not self.load.exited():
            for phase in phases.wait(min(0.2, self.sampler.due_in())):
                self._on_phase(phase, begins)
            if self.sampler.due_in() == 0:
                self.sampler.sample()
            now = time.monotonic()
            if died_at is None and self.server.exited():
                died_at = now
            if died_at is not None and now - died_at > LOAD_GRACE_AFTER_DEATH_S:
                self.bench.children.stop(self.load, LOAD_STOP_S, signal.SIGINT)
                break
            if now > deadline:
                self.bench.children.stop(self.load, LOAD_STOP_S, signal.SIGINT)
                raise CellError(f"the load did not end within its time and {SLACK_S:.0f} s more")
        for phase in phases.wait(0):
            self._on_phase(phase, begins)

    def _on_phase(self, phase, begins):
        self.bench.state.update(phase=phase)
        if phase == begins:
            self.window.start = Window.read(self.server.pid)
        elif self.window.start is not None and self.window.end is None:
            self.window.end = Window.read(self.server.pid)
        else:
            return
        # Both ends of the window are in the series too, so that even a short one has a rate.
        self.sampler.sample()

    def _judge(self, load, kernel_before):
        record = self.record
        code = self.bench.children.stop(self.load)
        record["load"] = marks.keep(load)
        if self.server.exited():
            ended = exit_reason(self.bench.children.stop(self.server))
            raise CellError(f"server died during the run ({ended})")
        if load is None:
            raise CellError(f"the load left no result ({exit_reason(code)}): {self.load.log_tail()}")
        if load["status"] != "ok":
            raise CellError(f"load {load['status']}: {load['message'] or self.load.log_tail()}")
        if self.window.start is None or self.window.end is None:
            raise CellError("the load never reached its steady window")
        marks.fill(record, self.workload, load, self.window, kernel_before)
        self._judge_companions()
        if "rss_slope" in self.workload.table:
            record["measures"]["rss_slope"] = soak.slope_per_hour(self._rss_in_window())
            if self.timing.window_s < soak.SHORTEST_S:
                record["notes"].append("too short for a slope that means something")

    def _judge_companions(self):
        for child, path in self.companions:
            child.wait(COMPANION_GRACE_S)
            self.bench.children.stop(child, first=signal.SIGINT)
            load = generator.read_json(path)
            if load is None or load["status"] != "ok":
                raise CellError(f"the second load failed: {(load or {}).get('message') or child.log_tail()}")
            lost = ["lost messages"] if load["messages"]["lost"] else []
            for mark in marks.of_load(load) + lost:
                if mark not in self.record["marks"]:
                    self.record["marks"].append(mark)

    def _rss_in_window(self):
        start, end = self.window.start["unix"], self.window.end["unix"]
        points = self.sampler.points("process_resident_memory_bytes")
        return [(at, value) for at, value in points if start <= at <= end]

    def _end(self):
        children = self.bench.children
        for child in [self.load, *(c for c, _ in self.companions), self.server]:
            if child is not None:
                children.stop(child)
        self.bench.exporter.forget()
        self.record["ended_unix"] = time.time()
        if self.window.start and self.window.end:
            self.record["window"] = {"start": self.window.start["unix"], "end": self.window.end["unix"]}

