"""The library inside an HTTP server of somebody else's: examples/microhttpd, which is GNU libmicrohttpd with
WebSocket at /ws, in each kind of thread, plain and over libmicrohttpd's TLS."""

import os
import socket
import ssl
import unittest

import _kit  # first: it knows where the modules behind it are
from _examples import PATIENCE, Program, wait_for
from _rawclient import CLOSE, TEXT, frame, request


class Plain(unittest.TestCase):
    THREADS = "kernel"
    SECURE = False

    def setUp(self):
        options = ("--cert", _kit.cert("server.pem"), "--key", _kit.cert("server.key")) if self.SECURE else ()
        self.program = Program(self, "microhttpd", "--port", "0", "--threads", self.THREADS, *options)
        [self.address] = self.program.addresses()

    def end(self):
        status = self.program.end()
        self.assertEqual((status, "\n".join(self.program.errors)), (0, ""))

    def connect(self):
        host, port = self.address.split(":")
        sock = socket.create_connection((host, int(port)), PATIENCE)
        if self.SECURE:
            context = ssl.create_default_context(cafile=_kit.cert("ca.pem"))
            sock = context.wrap_socket(sock, server_hostname="localhost")
        self.addCleanup(sock.close)
        return sock

    def ask(self, data):
        """Sends bytes and reads the head of the answer, and what has come with it."""
        sock = self.connect()
        sock.sendall(data)
        answer = b""
        while b"\r\n\r\n" not in answer:
            more = sock.recv(65536)
            if not more:
                break
            answer += more
        head, _, rest = answer.partition(b"\r\n\r\n")
        return sock, head.decode("latin-1"), rest

    def expect(self, sock, have, wanted):
        while len(have) < len(wanted):
            more = sock.recv(65536)
            self.assertTrue(more)
            have += more
        self.assertEqual(have, wanted)

    def leave(self, sock):
        """Closes in order: what libmicrohttpd does with TLS when a peer just goes is not this library's affair."""
        sock.sendall(frame(CLOSE, b"\x03\xe8"))
        self.expect(sock, b"", b"\x88\x02\x03\xe8")
        sock.close()

    def test_gorilla(self):
        status, said = _kit.run([_kit.build_gorilla(), f"ws://{self.address}/ws"])
        self.assertEqual((status, said), (0, "ok\n"))
        self.end()

    def test_frames_behind_the_request(self):
        """What libmicrohttpd has read of them already goes along."""
        for size in (0, 5, 125, 700):
            with self.subTest(size=size):
                payload = b"x" * size
                sock, head, rest = self.ask(
                    request(self.address, first="GET /ws?a=b%20c HTTP/1.1") + frame(TEXT, payload) * 3)
                self.assertTrue(head.startswith("HTTP/1.1 101 "), head)
                self.assertEqual(head.lower().count("\r\nconnection:"), 1)
                self.assertIn("\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", head)
                answer = b"\x81" + (bytes([size]) if size < 126 else b"\x7e" + size.to_bytes(2, "big")) + payload
                self.expect(sock, rest, answer * 3)
                self.leave(sock)
        self.end()

    def test_refused(self):
        """Its answers to what is no handshake, or not in order, are the library's."""
        for data, status, text in (
                (request(self.address, first="GET /ws HTTP/1.1", version="12"), 426, "Sec-WebSocket-Version: 13"),
                (request(self.address, first="GET /ws HTTP/1.1", key="short"), 400, ""),
                (request(self.address, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", first="GET /ws HTTP/1.1"), 400, ""),
                (request(self.address, "Origin: http://elsewhere.example", first="GET /ws HTTP/1.1"), 403, ""),
                (request(self.address, *(f"X: {i}" for i in range(120)), first="GET /ws HTTP/1.1"), 431, ""),
                (request(self.address, first="POST /ws HTTP/1.1"), 405, "Allow: GET"),
                (b"GET /ws HTTP/1.1\r\nHost: x\r\n\r\n", 426, "Upgrade: websocket")):
            with self.subTest(status=status, data=data[:60]):
                sock, head, _ = self.ask(data)
                self.assertTrue(head.startswith(f"HTTP/1.1 {status} "), head)
                self.assertIn(text, head)
                sock.close()
        sock, head, _ = self.ask(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertTrue(head.startswith("HTTP/1.1 200 "), head)
        sock.close()
        self.end()

    def test_same_origin(self):
        scheme = "https" if self.SECURE else "http"
        sock, head, rest = self.ask(
            request(self.address, f"Origin: {scheme}://{self.address}", first="GET /ws HTTP/1.1"))
        self.assertTrue(head.startswith("HTTP/1.1 101 "), head)
        sock.sendall(frame(TEXT, b"hi"))
        self.expect(sock, rest, b"\x81\x02hi")
        self.leave(sock)
        self.end()

    def test_end(self):
        """1001 to those who are there, and nothing is left open."""
        before = len(os.listdir(f"/proc/{self.program.process.pid}/fd"))
        for _ in range(20):
            sock, head, _ = self.ask(request(self.address, first="GET /ws HTTP/1.1"))
            self.assertIn(" 101 ", head)
            sock.close()
        wait_for("the descriptors back",
                 lambda: len(os.listdir(f"/proc/{self.program.process.pid}/fd")) <= before)
        sock, head, rest = self.ask(request(self.address, first="GET /ws HTTP/1.1"))
        self.assertIn(" 101 ", head)
        sock.sendall(frame(TEXT, b"hi"))  # its handler runs once that comes back
        self.expect(sock, rest, b"\x81\x02hi")
        self.program.process.terminate()
        self.expect(sock, b"", b"\x88\x02\x03\xe9")
        sock.sendall(frame(CLOSE, b"\x03\xe9"))
        self.assertEqual(sock.recv(1), b"")
        sock.close()
        self.assertEqual((self.program.process.wait(PATIENCE), self.program.errors), (0, []))


class Light(Plain):
    THREADS = "light"


class Secure(Plain):
    """Not all of it: libmicrohttpd 0.9.75 passes on 1 MiB in seconds, and not at all that a peer has just gone."""
    SECURE = True
    test_gorilla = test_end = None


if __name__ == "__main__":
    unittest.main()
