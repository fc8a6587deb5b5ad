"""What the tests of the load generator share: servers to run it against, and its results.

Needs build/bench/load and build/tests/bench_load/echo_peer (make bench-load-tools). No test asserts a speed.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.environ.get("TWS_BUILD", os.path.join(ROOT, "build"))
LOAD = os.path.join(BUILD, "bench", "load")
ECHO_PEER = os.path.join(BUILD, "tests", "bench_load", "echo_peer")
PATIENCE = 60


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A server process; `counts` after stop()."""

    def __init__(self, *command, port=None):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("listening"):
            self.kill()
            raise RuntimeError(f"{command[0]} did not start: {line!r}")
        self.port = port or int(line.split()[1])
        self.counts = None

    @property
    def url(self):
        return f"ws://127.0.0.1:{self.port}/connect"

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def stop(self):
        if self.counts is None:
            self.process.terminate()
            text = self.process.communicate(timeout=PATIENCE)[0]
            self.counts = json.loads(text) if text.startswith("{") else {"messages": int(text.split()[1])}
        return self.counts

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()
        self.process.stdout.close()


def raw_peer(mode="echo", **options):
    command = [sys.executable, os.path.join(HERE, "raw_peer.py"), "--mode", mode]
    for name, value in options.items():
        command += ["--" + name, str(value)]
    return Server(*command)


def websockets_peer(*options):
    return Server(sys.executable, os.path.join(HERE, "websockets_peer.py"), *options)


def echo_peer():
    port = free_port()
    return Server(ECHO_PEER, str(port), "2", port=port)


class Run:
    def __init__(self, completed, json_path):
        self.status, self.out, self.err = completed.returncode, completed.stdout, completed.stderr
        self.json = None
        if os.path.exists(json_path):
            with open(json_path, encoding="utf-8") as f:
                self.json = json.load(f)


def load(*arguments, **popen):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "result.json")
        done = subprocess.run([LOAD, "--json", path, *map(str, arguments)], text=True, timeout=PATIENCE,
                              capture_output=True, check=False, **popen)
        return Run(done, path)


def wait_for_steady(events):
    for line in iter(events.readline, ""):
        if json.loads(line)["phase"] == "steady":
            return
    raise RuntimeError("the run ended before its steady window")


def make_certificate(folder):
    """A fresh self-signed certificate for localhost and 127.0.0.1."""
    cert, key = os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                    "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


def load_until_steady(action, *arguments):
    """Runs the generator; calls action(process) once it is in its steady window."""
    with tempfile.TemporaryDirectory() as folder:
        fifo, result = os.path.join(folder, "events"), os.path.join(folder, "r.json")
        os.mkfifo(fifo)
        process = subprocess.Popen([LOAD, "--events", fifo, "--json", result, *map(str, arguments)], text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with open(fifo, encoding="utf-8") as events:
            wait_for_steady(events)
            action(process)
            out, err = process.communicate(timeout=PATIENCE)
            run = Run(subprocess.CompletedProcess([], process.returncode, out, err), result)
            run.phases = [json.loads(line)["phase"] for line in events]
            return run


class Case(unittest.TestCase):
    def assert_clean(self, run, connections=None):
        """A run in which nothing went wrong: every message came back."""
        self.assertEqual(run.status, 0, run.err)
        self.assertEqual(run.json["errors"], {})
        self.assertEqual(run.json["status"], "ok")
        m = run.json["messages"]
        self.assertGreater(m["sent"], 0)
        self.assertEqual(m["received"], m["expected"])
        self.assertEqual((m["lost"], m["unsent"], m["in_flight"]), (0, 0, 0))
        self.assertEqual(run.json["connections"]["lost"], 0)
        if connections is not None:
            self.assertEqual(run.json["connections"]["open"], connections)
