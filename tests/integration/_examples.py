"""What the tests of the examples share: starting a built program, waiting for its output, ending it."""

import asyncio
import logging
import os
import pathlib
import signal
import socket
import struct
import subprocess
import threading
import time
import urllib.error
import urllib.request

PATIENCE = 30  # seconds that anything may take on a busy machine before it counts as missing

ROOT = pathlib.Path(__file__).resolve().parents[2]


def build_path(*parts):
    return str(pathlib.Path(os.environ.get("TWS_BUILD", ROOT / "build")).joinpath(*parts))


def wait_for(what, condition):
    """Waits until condition() is true and returns its value."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"waited in vain for {what}")


def quiet_loop():
    """unittest switches asyncio's debugging on, which reports every slow step of a busy machine."""
    asyncio.get_running_loop().set_debug(False)
    logging.getLogger("asyncio").setLevel(logging.ERROR)


class Program:
    """An example that runs. Ends with its test: Program(self, "echo", "--listen", "127.0.0.1:0").
    Options of Popen may follow."""

    def __init__(self, test, name, *args, **popen):
        self.lines = []
        self.errors = []
        self.process = subprocess.Popen(
            [build_path("examples", name), *args],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            **popen)
        self._readers = [threading.Thread(target=self._read, args=pair, daemon=True) for pair in (
            (self.process.stdout, self.lines), (self.process.stderr, self.errors))]
        for reader in self._readers:
            reader.start()
        test.addCleanup(self.kill)

    @staticmethod
    def _read(stream, lines):
        with stream:
            lines.extend(line.rstrip("\n") for line in iter(stream.readline, ""))

    def _matching(self, prefix):
        return [line[len(prefix):] for line in list(self.lines) if line.startswith(prefix)]

    def _line_or_end(self, prefix, count):
        found = self._matching(prefix)
        if len(found) < count and self.process.poll() is not None:
            raise AssertionError(f"ended with {self.process.returncode}: {self.errors}")
        return found if len(found) >= count else None

    def addresses(self, count=1):
        """What stands behind "listening on", once that many lines have come."""
        return wait_for("'listening on'", lambda: self._line_or_end("listening on ", count))

    def line(self, prefix):
        """The rest of the first line with that beginning."""
        return wait_for(f"'{prefix}'", lambda: self._line_or_end(prefix, 1))[0]

    def wait(self):
        """Waits for the end; returns the exit status."""
        status = self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join(PATIENCE)
        return status

    def end(self, signal_number=signal.SIGTERM):
        """Asks it to end; returns the exit status."""
        self.process.send_signal(signal_number)
        return self.wait()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.wait()


def run(name, *args):
    """Runs a program that ends by itself; returns status, output and errors."""
    done = subprocess.run([build_path("examples", name), *args], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=PATIENCE, check=False)
    return done.returncode, done.stdout, done.stderr


def fetch(url, method="GET"):
    """Returns status, headers and body of a plain HTTP request, whatever the status."""
    request = urllib.request.Request(url, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


class BareClient:
    """A client that does nothing by itself: answers no ping and no close frame, reads when told to."""

    def __init__(self, address, path="/", small_buffers=False):
        self.address = address
        self.path = path
        self.small_buffers = small_buffers

    async def __aenter__(self):
        host, port = self.address.rsplit(":", 1)
        link = socket.socket()
        if self.small_buffers:  # a small segment size keeps the server's send buffer small as well
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        link.connect((host, int(port)))
        self.reader, self.writer = await asyncio.open_connection(sock=link, limit=4096)
        self.writer.write((f"GET {self.path} HTTP/1.1\r\nHost: {self.address}\r\n"
                           "Upgrade: websocket\r\nConnection: Upgrade\r\n"
                           "Sec-WebSocket-Version: 13\r\n"
                           "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n").encode())
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), PATIENCE)
        if not head.startswith(b"HTTP/1.1 101 "):
            raise AssertionError(head)
        return self

    async def __aexit__(self, *_):
        self.writer.close()

    def stop_reading(self):
        self.writer.transport.pause_reading()

    def send(self, opcode, payload, times=1):
        """Sends a short frame, masked with zeros; several of them in one packet."""
        if len(payload) > 125:
            raise ValueError("short frames only")
        frame = bytes([0x80 | opcode, 0x80 | len(payload), 0, 0, 0, 0]) + payload
        self.writer.write(frame * times)

    async def next_frame(self):
        """Waits for a frame; returns opcode and payload."""
        return await asyncio.wait_for(self._next_frame(), PATIENCE)

    async def _next_frame(self):
        first, length = await self.reader.readexactly(2)
        if length == 126:
            [length] = struct.unpack("!H", await self.reader.readexactly(2))
        return first & 15, await self.reader.readexactly(length)
