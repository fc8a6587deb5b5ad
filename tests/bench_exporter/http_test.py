#!/usr/bin/env python3
"""The exporter as an HTTP server: what it answers, and that nobody can stall it."""
import socket
import time
import unittest

from kit import Case, Exporter, PATIENCE_S, read_all

CLIENTS = 32  # as many connections as the exporter holds


def head(answer):
    return answer.split(b"\r\n\r\n", 1)[0].decode()


class Http(Case):
    def setUp(self):
        self.exporter = Exporter()

    def tearDown(self):
        self.assertEqual(self.exporter.end()[0], 0)

    def status(self, request):
        answer = self.exporter.ask(request)
        return int(answer.split(b" ", 2)[1])

    def test_get_and_head(self):
        answer = self.exporter.ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        self.assertIn("Content-Type: text/plain; version=0.0.4; charset=utf-8", head(answer))
        body = answer.split(b"\r\n\r\n", 1)[1]
        self.assertIn(f"Content-Length: {len(body)}", head(answer))
        only = self.exporter.ask(b"HEAD /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        self.assertEqual(only.split(b"\r\n\r\n", 1)[1], b"")
        self.assertIn("Content-Length: ", head(only))
        self.assertTrue(only.startswith(b"HTTP/1.1 200 "))

    def test_statuses(self):
        end = b"\r\nHost: x\r\nConnection: close\r\n\r\n"
        for request, status in (
                (b"GET / HTTP/1.1" + end, 200), (b"GET /metrics?x=1 HTTP/1.1" + end, 200),
                (b"GET /metrics HTTP/1.0\r\n\r\n", 200), (b"GET /other HTTP/1.1" + end, 404),
                (b"GET /" + b"x" * 300 + b" HTTP/1.1" + end, 404), (b"POST /metrics HTTP/1.1" + end, 405),
                (b"POST /metrics HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", 405),
                (b"GET /metrics HTTP/2.0" + end, 505), (b"GET /metrics" + end, 400), (b"nonsense\r\n\r\n", 400),
                (b" / HTTP/1.1" + end, 400), (b"GET metrics HTTP/1.1" + end, 400),
                (b"GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", 400), (b"GET /\0 HTTP/1.1" + end, 400),
                (b"GET /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 413),
                (b"GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 413),
                (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 9000, 431)):
            self.assertEqual(self.status(request), status, request[:60])
        self.assertIn(b"Allow: GET, HEAD", self.exporter.ask(b"PUT / HTTP/1.1" + end))

    def test_keep_alive_and_pipelining(self):
        with self.exporter.connect() as s:
            for _ in range(3):
                s.sendall(b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
                answer = b""
                while b"\r\n\r\n" not in answer:
                    answer += s.recv(4096)
                self.assertIn("Connection: keep-alive", head(answer))
            s.sendall(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n" * 5 + b"GET /last HTTP/1.1\r\nConnection: close\r\n\r\n")
            answers = read_all(s)
        self.assertEqual(answers.count(b"HTTP/1.1 200 OK"), 5)
        self.assertEqual(answers.count(b"HTTP/1.1 404 "), 1)

    def test_a_request_in_pieces(self):
        with self.exporter.connect() as s:
            for byte in b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n":
                s.sendall(bytes([byte]))
            self.assertTrue(read_all(s).startswith(b"HTTP/1.1 200 "))

    def test_slow_clients_do_not_stall(self):
        """More idle and dripping clients than there are places; every new request is answered all the same."""
        slow = [self.exporter.connect() for _ in range(3 * CLIENTS)]
        for s in slow[::2]:
            s.sendall(b"GET /metr")
        for _ in range(20):
            self.assertIn("bench_exporter_scrapes_total", self.exporter.text())
        for s in slow:
            s.close()

    def test_a_client_that_does_not_read(self):
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.connect(("127.0.0.1", self.exporter.port))
            s.setblocking(False)
            request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 100
            deadline = time.monotonic() + PATIENCE_S
            while time.monotonic() < deadline:  # until neither side takes any more
                try:
                    s.send(request)
                except BlockingIOError:
                    break
            else:
                self.fail("the exporter reads without end from a client that does not read")
            self.assertIn("bench_exporter_scrapes_total", self.exporter.text())

    def test_half_a_request_ends_in_time(self):
        begin = time.monotonic()
        with self.exporter.connect() as s:
            s.sendall(b"GET /metrics HTTP/1.1\r\n")
            answer = read_all(s)
        self.assertTrue(answer.startswith(b"HTTP/1.1 408 "), answer)
        self.assertGreater(time.monotonic() - begin, 1, "a slow client may still be an honest one")


if __name__ == "__main__":
    unittest.main(verbosity=2)
