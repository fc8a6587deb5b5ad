"""What the tests of the exporter share: the programs under test, HTTP without a library, the metrics as a dictionary."""
import os
import re
import select
import socket
import subprocess
import time
import unittest

BUILD = os.environ.get("TWS_BUILD", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build"))
EXPORTER = os.path.join(BUILD, "bench", "exporter")
MANY_THREADS = os.path.join(BUILD, "tests", "bench_exporter", "many_threads")
PATIENCE_S = 20
SAMPLE = re.compile(r"^([a-z_]+)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'([a-z]+)="((?:[^"\\]|\\.)*)"')


def read_line(stream, wanted, seconds=PATIENCE_S):
    ready, _, _ = select.select([stream], [], [], seconds)
    line = stream.readline().decode() if ready else ""
    if not line.startswith(wanted):
        raise AssertionError(f"expected a line {wanted!r}, got {line!r}")
    return line.strip()


class Helper:
    """A process to watch."""

    def __init__(self, idle=0, busy=0, name=None):
        command = [MANY_THREADS, str(idle), str(busy)] + ([name] if name else [])
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid = self.process.pid
        read_line(self.process.stdout, "ready", 60)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


class Exporter:
    """The exporter on a port of its own choice."""

    def __init__(self, *options):
        self.process = subprocess.Popen([EXPORTER, "--listen", "127.0.0.1:0", *options], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)
        self.pid = self.process.pid
        self.port = int(read_line(self.process.stdout, "listening on ").rsplit(":", 1)[1])

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)

    def ask(self, request):
        """Sends bytes and returns all that comes until the server closes."""
        with self.connect() as s:
            s.sendall(request)
            return read_all(s)

    def text(self):
        head, body = self.ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").split(b"\r\n\r\n", 1)
        if not head.startswith(b"HTTP/1.1 200 "):
            raise AssertionError(head)
        return body.decode()

    def scrape(self):
        return parse(self.text())

    def end(self):
        """Ends it as a service manager does. Returns its exit status and what it said on standard error."""
        if self.process.poll() is None:
            self.process.terminate()
        _, errors = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, errors.decode()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def read_all(s):
    parts = []
    while True:
        data = s.recv(65536)
        if not data:
            return b"".join(parts)
        parts.append(data)


def parse(text):
    """{(name, frozenset of label pairs): value}; a sample that comes twice is an error."""
    samples = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        match = SAMPLE.match(line)
        if not match:
            raise AssertionError(f"not a sample: {line!r}")
        key = (match[1], frozenset(LABEL.findall(match[2] or "")))
        if key in samples:
            raise AssertionError(f"twice: {line!r}")
        samples[key] = float(match[3])
    return samples


def value(samples, name, **labels):
    key = (name, frozenset(labels.items()))
    if key not in samples:
        raise AssertionError(f"no {name}{labels} among {sorted(name for name, _ in samples)}")
    return samples[key]


def servers(samples):
    return {dict(labels)["server"] for _, labels in samples if "server" in dict(labels)}


def wait_until(condition, what, seconds=PATIENCE_S):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.02)


class Case(unittest.TestCase):
    def near(self, got, wanted, share, what):
        self.assertLessEqual(abs(got - wanted), share * abs(wanted),
                             f"{what}: {got} is not within {share:.0%} of {wanted}")
