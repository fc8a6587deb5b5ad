"""The cat example as its users meet it: lines in and out, options, what it tells, how it ends."""

import base64
import hashlib
import os
import pathlib
import socket
import subprocess
import tempfile
import threading
import unittest

from _examples import PATIENCE, Program, build_path, run

LOCAL = "127.0.0.1:0"
CERTS = pathlib.Path(os.environ.get("TWS_CERTS", build_path("certs")))


def cat(*args, lines="", **popen):
    """Runs cat with that input; returns status, output and errors."""
    done = subprocess.run([build_path("examples", "cat"), *args], input=lines.encode(),
                          capture_output=True, timeout=PATIENCE, check=False, **popen)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


class Scripted:
    """A server that answers one connection after another with what a function makes of its request: bytes, or
    None for a proper 101. Frames follow as they are. Keeps the requests."""

    def __init__(self, test, *answers, behind=b""):
        self.requests = []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = "ws://127.0.0.1:%d" % self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self._serve, args=(answers, behind), daemon=True)
        self.thread.start()
        test.addCleanup(self._end)

    def _serve(self, answers, behind):
        for answer in answers:
            try:
                link, _ = self.socket.accept()
            except OSError:
                return
            with link:
                request = b""
                while b"\r\n\r\n" not in request:
                    request += link.recv(4096)
                self.requests.append(request.decode())
                link.sendall(answer if answer is not None else self._switch(request) + behind)
                link.shutdown(socket.SHUT_WR)
                while link.recv(4096):
                    pass

    @staticmethod
    def _switch(request):
        key = request.split(b"Sec-WebSocket-Key: ")[1].split(b"\r\n")[0]
        accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        return (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")

    def _end(self):
        self.socket.close()
        self.thread.join(PATIENCE)


def close_frame(code, reason=b""):
    return bytes([0x88, 2 + len(reason)]) + code.to_bytes(2, "big") + reason


class CommandLine(unittest.TestCase):
    def test_help(self):
        status, output, errors = run("cat", "--help")
        self.assertEqual((status, errors), (0, ""))
        for option in ("--binary", "--one", "--wait", "--commands", "--ping", "--close", "--reason", "--verbose",
                       "--header", "--subprotocol", "--origin", "--host", "--cookie", "--deflate", "--redirects",
                       "--proxy", "--proxy-env", "--proxy-header", "--source", "--timeout", "--ca", "--cert",
                       "--key", "--insecure"):
            self.assertIn(option, output)

    def test_bad_options(self):
        for args, word in (([], "no URL"), (["ws://a", "ws://b"], "more than one"), (["--nonsense"], "nonsense"),
                           (["-H", "novalue", "ws://a"], "novalue"), (["--timeout", "soon", "ws://a"], "soon"),
                           (["--close", "5000", "ws://a"], "5000"), (["http://a"], "scheme"),
                           (["ws://a/#b"], "fragment"), (["-H", "Host: x", "ws://a"], "Host"),
                           (["--subprotocol", "a b", "ws://a"], "a b"), (["--source", "x", "ws://a"], "source"),
                           (["--proxy", "gopher://x", "ws://a"], "proxy"),
                           (["--ca", "/nonexistent", "ws://a"], "/nonexistent")):
            with self.subTest(args=args):
                status, output, errors = run("cat", *args)
                self.assertEqual((status, output), (2, ""))
                self.assertIn(word, errors)


class WithEcho(unittest.TestCase):
    def setUp(self):
        self.echo = Program(self, "echo", "--listen", LOCAL)
        self.url = "ws://" + self.echo.addresses()[0]

    def test_lines(self):
        lines = "".join(f"line {i}\n" for i in range(500)) + "the last has no end"
        self.assertEqual(cat(self.url, lines=lines), (0, lines + "\n", ""))

    def test_empty_input(self):
        self.assertEqual(cat(self.url), (0, "", ""))

    def test_binary(self):
        self.assertEqual(cat("--binary", self.url, lines="a\nb\n"), (0, "ab", ""))

    def test_bad_text(self):
        done = subprocess.run([build_path("examples", "cat"), self.url], input=b"bad \xff\ngood\n",
                              capture_output=True, timeout=PATIENCE, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, b"good\n"))
        self.assertIn(b"UTF-8", done.stderr)

    def test_one(self):
        with subprocess.Popen([build_path("examples", "cat"), "-1", self.url], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as process:
            process.stdin.write(b"first\nsecond\n")
            process.stdin.flush()  # and stays open
            self.assertEqual(process.stdout.read(), b"first\n")
            self.assertEqual(process.wait(PATIENCE), 0)

    def test_verbose(self):
        status, output, errors = cat("-v", "--deflate", self.url + "/path", lines="x\n")
        self.assertEqual((status, output), (0, "x\n"))
        for line in ("> GET /path HTTP/1.1", "> Sec-WebSocket-Extensions: permessage-deflate",
                     "< HTTP/1.1 101 Switching Protocols", "* connected to 127.0.0.1:",
                     "cat: closed by this side with 1000"):
            self.assertIn(line, errors)

    def test_commands(self):
        status, output, errors = cat("-c", self.url, lines="/ping abc\n/text /ping\n/binary xyz\nplain\n")
        self.assertEqual((status, output), (0, "/ping\nxyzplain\n"))
        self.assertIn("* pong abc", errors)
        status, _, errors = cat("-cv", self.url, lines="/close 4000 tired of it\n")
        self.assertEqual(status, 0)
        self.assertIn("with 4000: tired of it", errors)
        status, output, errors = cat("-c", self.url, lines="/close 1005x\n/close 999\nstill open\n")
        self.assertEqual(status, 0)

    def test_pings(self):
        with subprocess.Popen([build_path("examples", "cat"), "-v", "--ping", "5", self.url],
                              stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            seen = 0
            for line in process.stderr:
                seen += b"pong after" in line
                if seen == 3:
                    break
            self.assertEqual(seen, 3)
            process.stdin.close()
            rest = process.stderr.read()
            self.assertEqual(process.wait(PATIENCE), 0, rest)

    def test_server_goes_away(self):
        with subprocess.Popen([build_path("examples", "cat"), self.url], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            process.stdin.write(b"here\n")
            process.stdin.flush()
            self.assertEqual(process.stdout.readline(), b"here\n")
            self.echo.end()
            self.assertEqual(process.wait(PATIENCE), 0)
            self.assertIn(b"closed by the server with 1001", process.stderr.read())

    def test_unix_socket(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "socket")
            Program(self, "echo", "--unix", path).addresses()
            self.assertEqual(cat(f"ws+unix:{path}:/", lines="x\n"), (0, "x\n", ""))


class WithScript(unittest.TestCase):
    def test_request(self):
        server = Scripted(self, None, behind=b"\x81\x02hi" + close_frame(1000))
        status, output, _ = cat("--wait", "-H", "X-One: 1", "--header", "X-Two:2", "--subprotocol", "a",
                                "--subprotocol", "b", "--origin", "http://o", "--host", "h:81", "--cookie", "c=d",
                                "--source", "127.0.0.1", server.url + "/x?y")
        self.assertEqual((status, output), (0, "hi\n"))
        for line in ("GET /x?y HTTP/1.1", "Host: h:81", "X-One: 1", "X-Two: 2", "Sec-WebSocket-Protocol: a, b",
                     "Origin: http://o", "Cookie: c=d"):
            self.assertIn("\r\n" + line + "\r\n", "\r\n" + server.requests[0])

    def test_close_codes(self):
        for code, reason, status in ((1000, b"", 0), (1001, b"later", 0), (1011, b"broken", 1), (4000, b"own", 1)):
            with self.subTest(code=code):
                server = Scripted(self, None, behind=close_frame(code, reason))
                got, _, errors = cat("--wait", server.url)
                self.assertEqual(got, status)
                self.assertIn(f"closed by the server with {code}", errors)
                self.assertIn(reason.decode(), errors)

    def test_orders_to_the_terminal(self):
        """Only messages are given out as they are."""
        server = Scripted(self, None, b"HTTP/1.1 101 X\r\nA: \x1b[2J\r\n\r\n",
                          b"HTTP/1.1 403 X\r\nContent-Length: 8\r\n\r\n\x1b[2Jbody",
                          behind=b"\x8a\x04\x1b[2J\x81\x04\x1b[2J" + close_frame(1000, b"\x1b[2Jover"))
        status, output, errors = cat("-vcw", server.url)
        self.assertEqual((status, output), (0, "\x1b[2J\n"))
        self.assertIn("* pong ?[2J\n", errors)
        self.assertIn("closed by the server with 1000: ?[2Jover", errors)
        for expected in ("< A: ?[2J\n", "?[2Jbody\n"):
            status, _, more = cat("-v", server.url)
            self.assertEqual(status, 3)
            self.assertIn(expected, more)
            errors += more
        self.assertNotIn("\x1b", errors)

    def test_no_close_frame(self):
        server = Scripted(self, None, behind=b"\x81\x02hi")
        status, output, errors = cat("--wait", server.url)
        self.assertEqual((status, output), (1, "hi\n"))
        self.assertIn("without a close frame", errors)

    def test_refusal(self):
        server = Scripted(self, b"HTTP/1.1 403 No\r\nContent-Length: 10\r\n\r\nnot for us")
        status, output, errors = cat(server.url)
        self.assertEqual((status, output), (3, ""))
        self.assertIn("403", errors)
        self.assertIn("not for us\n", errors)

    def test_redirects(self):
        server = Scripted(self, b"HTTP/1.1 302 X\r\nLocation: /b\r\n\r\n", None, behind=close_frame(1000))
        status, _, errors = cat("-vwL", "1", server.url + "/a")
        self.assertEqual(status, 0)
        self.assertIn("> GET /a ", errors)
        self.assertIn("< Location: /b", errors)
        self.assertIn("> GET /b ", errors)

    def test_nobody_there(self):
        with socket.create_server(("127.0.0.1", 0)) as gone:
            url = "ws://127.0.0.1:%d" % gone.getsockname()[1]
        status, _, errors = cat(url)
        self.assertEqual(status, 3)
        self.assertIn(os.strerror(111), errors)

    def test_timeout(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            status, _, errors = cat("--timeout", "50", "ws://127.0.0.1:%d" % silent.getsockname()[1])
        self.assertEqual(status, 3)
        self.assertIn("in time", errors)


class WithTls(unittest.TestCase):
    def setUp(self):
        self.echo = Program(self, "echo", "--listen", LOCAL, "--tls", CERTS / "server.pem", CERTS / "server.key")
        self.url = "wss://localhost:" + self.echo.addresses()[0].rsplit(":", 1)[1]

    def test_trusted(self):
        status, output, errors = cat("-v", "--ca", CERTS / "ca.pem", self.url, lines="x\n")
        self.assertEqual((status, output), (0, "x\n"))
        self.assertIn("* TLS 1.", errors)
        self.assertNotIn("not verified", errors)

    def test_not_trusted(self):
        status, _, errors = cat(self.url, lines="x\n")
        self.assertEqual(status, 3)
        self.assertIn("certificate", errors)

    def test_insecure(self):
        status, output, errors = cat("-v", "--insecure", self.url, lines="x\n")
        self.assertEqual((status, output), (0, "x\n"))
        self.assertIn("not verified", errors)

    def test_own_certificate(self):
        status, output, _ = cat("--ca", CERTS / "ca.pem", "--cert", CERTS / "client.pem", "--key",
                                CERTS / "client.key", self.url, lines="x\n")
        self.assertEqual((status, output), (0, "x\n"))


if __name__ == "__main__":
    unittest.main()
