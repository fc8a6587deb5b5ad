#!/usr/bin/env python3
"""Light threads under gdb and Valgrind: the script lists them with their backtraces, memcheck takes their stacks for
what they are."""
import os
import signal
import socket
import subprocess
import tempfile
import unittest

ECHO = os.path.join(os.environ.get("TWS_BUILD", "build"), "examples", "echo")
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "gdb", "tws.py")
REQUEST = (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
           b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")
SIZES = (5, 126, 1000, 60000)


def receive_exactly(s, size):
    got = b""
    while len(got) < size:
        piece = s.recv(65536)
        if not piece:
            raise RuntimeError("the server closed the connection")
        got += piece
    return got


def connect(port):
    s = socket.create_connection(("127.0.0.1", port), timeout=60)
    s.sendall(REQUEST)
    got = b""
    while b"\r\n\r\n" not in got:
        got += receive_exactly(s, 1)
    return s


def echo(s, size):
    payload = b"x" * size
    head = bytes([size]) if size < 126 else b"\x7e" + size.to_bytes(2, "big")
    s.sendall(b"\x81" + bytes([head[0] | 0x80]) + head[1:] + bytes(4) + payload)
    if receive_exactly(s, 1 + len(head) + size) != b"\x81" + head + payload:
        raise RuntimeError("an echo came back changed")


class Debuggers(unittest.TestCase):
    def start(self, *before):
        server = subprocess.Popen([*before, ECHO, "--listen", "127.0.0.1:0", "--threads", "light"],
                                  stdout=subprocess.PIPE, text=True)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.wait, 60)
        self.addCleanup(server.send_signal, signal.SIGTERM)
        return server, int(server.stdout.readline().rsplit(":", 1)[1])

    def connections(self, port, count):
        held = [connect(port) for _ in range(count)]
        for s in held:
            self.addCleanup(s.close)
            echo(s, 5)
        return held

    def test_gdb_lists_light_threads(self):
        server, port = self.start()
        self.connections(port, 3)
        said = subprocess.run(["gdb", "-nx", "-batch", "-p", str(server.pid), "-ex", f"source {SCRIPT}",
                               "-ex", "tws-threads", "-ex", "tws-threads bt"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
                              check=False).stdout
        self.assertEqual(said.count("\n3 light threads"), 2, said)
        # Each backtrace goes from the wait to the example's handler.
        self.assertEqual(said.count(" tws_read_message "), 3, said)
        self.assertEqual(said.count(" in echo "), 3, said)

    def test_valgrind_reports_nothing(self):
        with tempfile.NamedTemporaryFile(suffix=".txt") as log:
            server, port = self.start("valgrind", "--error-exitcode=9", "--leak-check=full", f"--log-file={log.name}")
            for s in self.connections(port, 10):
                for size in SIZES:
                    echo(s, size)
                s.close()
            server.terminate()
            status = server.wait(timeout=120)
            said = log.read().decode()
        self.assertIn("ERROR SUMMARY: 0 errors", said)
        self.assertNotIn("switching stacks", said)
        self.assertEqual(status, 0, said)


if __name__ == "__main__":
    unittest.main()
