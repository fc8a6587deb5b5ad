"""The examples that carry bytes: tunnel and receiver. Files of TWS_STREAM_BYTES go through the receiver, both ways."""

import hashlib
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import unittest
import zlib

from _examples import PATIENCE, Program, build_path, run, wait_for

LOCAL = "127.0.0.1:0"
THREADS = os.environ.get("TWS_TEST_THREADS", "kernel")
BYTES = int(os.environ.get("TWS_STREAM_BYTES", 96 << 20))
# Of a sanitizer's build, whose freed blocks stay for a while; a whole message would be three times that.
MEMORY_KIB = int(os.environ.get("TWS_STREAM_MEMORY_KIB", 32 << 10))
TRANSFER_S = PATIENCE + BYTES / (20 << 20)


def connect(address):
    host, port = address.rsplit(":", 1)
    link = socket.create_connection((host, int(port)), PATIENCE)
    link.settimeout(PATIENCE)
    return link


def read_all(link):
    data = b""
    while piece := link.recv(1 << 16):
        data += piece
    return data


class Service:
    """A TCP service: what `work` does with each connection, on a thread of its own."""

    def __init__(self, test, work):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.work = work
        self.links = []
        threading.Thread(target=self._accept, daemon=True).start()
        test.addCleanup(self._end)

    def _accept(self):
        while True:
            try:
                link, _ = self.listener.accept()
            except OSError:
                return
            link.settimeout(PATIENCE)
            self.links.append(link)
            threading.Thread(target=self._run, args=(link,), daemon=True).start()

    def _run(self, link):
        try:
            self.work(link)
        except OSError:
            pass  # the tests look at the other end

    def stop(self):
        try:
            self.listener.shutdown(socket.SHUT_RDWR)  # close() would leave it to the thread that accepts
        except OSError:
            pass  # stopped before
        self.listener.close()

    def _end(self):
        self.stop()
        for link in self.links:
            link.close()


class Tunnel(unittest.TestCase):
    def dig(self, work):
        """Both ends in front of a service; leaves the address of the entry."""
        self.service = Service(self, work)
        self.far = self.start("--serve", LOCAL, self.service.address)
        self.near = self.start("--enter", LOCAL, f"ws://{self.far.addresses()[0]}/")
        self.address = self.near.addresses()[0]

    def start(self, *args):
        return Program(self, "tunnel", "--threads", THREADS, *args)

    def end(self):
        for program in (self.near, self.far):
            self.assertEqual(program.end(), 0, program.errors)

    @staticmethod
    def echo(link):
        while data := link.recv(1 << 16):
            link.sendall(data)
        link.close()

    def test_bytes_both_ways_at_once(self):
        self.dig(self.echo)
        data = os.urandom(1 << 20) * 4
        with connect(self.address) as link:
            sender = threading.Thread(target=lambda: (link.sendall(data), link.shutdown(socket.SHUT_WR)))
            sender.start()
            got = read_all(link)
            sender.join(PATIENCE)
        self.assertEqual(hashlib.sha256(got).digest(), hashlib.sha256(data).digest())
        self.end()

    def test_half_close(self):
        """The service answers only when it has read to the end."""
        self.dig(lambda link: (link.sendall(b"%d bytes" % len(read_all(link))), link.close()))
        for size in (0, 5, 100_000):
            with connect(self.address) as link:
                link.sendall(b"x" * size)
                link.shutdown(socket.SHUT_WR)
                self.assertEqual(read_all(link), b"%d bytes" % size)
        self.end()

    def test_the_service_ends_first(self):
        self.dig(lambda link: (link.sendall(b"bye"), link.shutdown(socket.SHUT_WR), read_all(link), link.close()))
        with connect(self.address) as link:
            self.assertEqual(read_all(link), b"bye")
            link.sendall(b"the other direction is still open")
            link.shutdown(socket.SHUT_WR)
        self.end()

    def test_what_breaks_does_not_look_like_an_end(self):
        self.dig(self.echo)
        with connect(self.address) as link:
            link.sendall(b"hello")
            self.assertEqual(link.recv(100), b"hello")
            self.far.end(signal.SIGKILL)
            with self.assertRaises(ConnectionResetError):
                link.recv(100)
        self.assertEqual(self.near.end(), 0)

    def test_no_service(self):
        self.dig(self.echo)
        self.service.stop()
        with connect(self.address) as link:
            with self.assertRaises(ConnectionResetError):
                link.recv(100)
        wait_for("the reason", lambda: any(self.service.address in line for line in self.far.errors))
        self.end()

    def test_many_and_the_end(self):
        self.dig(self.echo)
        links = [connect(self.address) for _ in range(30)]
        for number, link in enumerate(links):
            link.sendall(b"link %d" % number)
        for number, link in enumerate(links):
            self.assertEqual(link.recv(100), b"link %d" % number)
        self.assertEqual(self.near.end(), 0, self.near.errors)  # with all of them open
        for link in links:
            link.close()
        self.assertEqual(self.far.end(), 0, self.far.errors)

    def test_help_and_bad_options(self):
        status, output, errors = run("tunnel", "--help")
        self.assertEqual((status, errors), (0, ""))
        for option in ("--serve", "--enter", "--threads"):
            self.assertIn(option, output)
        for args in ([], ["--serve", LOCAL], ["--enter", LOCAL, "--serve", LOCAL, "x"], ["--threads", "heavy", "x"]):
            self.assertEqual(run("tunnel", *args)[:2], (2, ""))
        self.assertEqual(run("tunnel", "--enter", "nowhere", "ws://127.0.0.1/")[:2], (1, ""))


class Receiver(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.dir = holder.name
        # Sparse, but for some bytes here and there.
        self.file = os.path.join(self.dir, "file")
        with open(self.file, "wb") as file:
            file.truncate(BYTES)
            for place in (0, BYTES // 3, BYTES - 100):
                file.seek(place)
                file.write(os.urandom(100))

    def serve(self, *options):
        self.program = Program(self, "receiver", "--listen", LOCAL, "--threads", THREADS, "--memory", *options)
        return f"ws://{self.program.addresses()[0]}"

    def client(self, *args):
        done = subprocess.run([build_path("examples", "receiver"), "--memory", *args], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=TRANSFER_S, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.splitlines()

    def check_memory(self, lines):
        [used] = [line for line in lines if line.startswith("memory: ")]
        print(used, flush=True)
        self.assertLess(int(re.search(r"at most (\d+) KiB more", used).group(1)), MEMORY_KIB)

    def end(self):
        self.assertEqual(self.program.end(), 0, self.program.errors)
        self.check_memory(self.program.lines)

    def crc(self):
        crc = 0
        with open(self.file, "rb") as file:
            while piece := file.read(1 << 20):
                crc = zlib.crc32(piece, crc)
        return "%08x" % crc

    def test_up(self):
        url = self.serve()
        lines = self.client("--send", self.file, url + "/")
        self.assertEqual(lines[0], f"{BYTES} bytes, crc32 {self.crc()}")
        self.check_memory(lines)
        self.end()
        self.assertIn(lines[0], self.program.lines)

    def test_down(self):
        url = self.serve("--offer", self.file)
        lines = self.client("--fetch", "/dev/null", url + "/get")
        self.assertEqual(lines[0], f"{BYTES} bytes, crc32 {self.crc()}")
        self.check_memory(lines)
        self.end()

    def test_what_is_kept_is_what_was_sent(self):
        data = os.urandom(3_000_001)
        with open(self.file, "wb") as file:
            file.write(data)
        folder = os.path.join(self.dir, "kept")
        os.mkdir(folder)
        url = self.serve("--save", folder, "--offer", self.file)
        with open(self.file, "rb") as pipe, subprocess.Popen(["cat"], stdin=pipe, stdout=subprocess.PIPE) as cat:
            done = subprocess.run([build_path("examples", "receiver"), "--send", "-", url + "/"], stdin=cat.stdout,
                                  capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (0, "%d bytes, crc32 %08x\n" % (len(data), zlib.crc32(data)), ""))
        [name] = os.listdir(folder)
        with open(os.path.join(folder, name), "rb") as file:
            self.assertEqual(file.read(), data)
        got = os.path.join(self.dir, "got")
        self.client("--fetch", got, url + "/get")
        with open(got, "rb") as file:
            self.assertEqual(file.read(), data)
        self.end()

    def test_limits_and_faults(self):
        folder = os.path.join(self.dir, "kept")
        os.mkdir(folder)
        url = self.serve("--save", folder, "--max", "1000", "--offer", self.dir + "/gone")
        status, output, errors = run("receiver", "--send", self.file, url + "/")
        self.assertEqual((status, output), (1, ""))
        self.assertTrue(errors)
        wait_for("the rest of it to go", lambda: not os.listdir(folder))
        status, output, errors = run("receiver", "--fetch", self.dir + "/got", url + "/get")
        self.assertEqual((status, output), (1, ""))
        self.assertIn("1011", errors)
        self.assertEqual(run("receiver", "--send", self.dir + "/gone", url + "/")[0], 1)
        self.end()

    def test_help_and_bad_options(self):
        status, output, errors = run("receiver", "--help")
        self.assertEqual((status, errors), (0, ""))
        for option in ("--listen", "--save", "--offer", "--max", "--threads", "--memory", "--send", "--fetch"):
            self.assertIn(option, output)
        for args in (["--send", "x"], ["stray"], ["--max", "12k"], ["--threads", "heavy"],
                     ["--send", "x", "--fetch", "y", "ws://127.0.0.1/"]):
            self.assertEqual(run("receiver", *args)[:2], (2, ""))


if __name__ == "__main__":
    unittest.main()
