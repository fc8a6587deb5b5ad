"""A server under test: a built example in a process of its own, what it costs, and how it has to end."""

import os
import pathlib
import sys
import types
import unittest

import _tls
from _examples import Program, build_path, wait_for
from _rawclient import CLOSE, Client, Frame, opened

LOCAL = "127.0.0.1:0"
SPARE_CARRIERS = 4


class Settings:
    """Which kind of thread the server runs its connections on, and whether they speak TLS."""
    kind = "kernel"
    secure = _tls.wanted()


def kind_options():
    """The options of echo for both; the kernel's threads are the default."""
    kind = () if Settings.kind == "kernel" else ("--threads", Settings.kind)
    return [*kind, *(_tls.options() if Settings.secure else ())]


def main():
    """Runs the module's tests for each kind of thread in TWS_TEST_THREADS (words; default: kernel), over TLS when
    TWS_TEST_TLS is 1."""
    good = True
    for kind in os.environ.get("TWS_TEST_THREADS", "kernel").split():
        Settings.kind = kind
        print(f"threads: {kind}", flush=True)
        good = unittest.main(module="__main__", exit=False).result.wasSuccessful() and good
    sys.exit(not good)


def release_path(*parts):
    """A path in the tree of the release build, beside that of the sanitizers."""
    tree = pathlib.Path(build_path())
    return str((tree.parent if tree.name in ("asan", "tsan") else tree).joinpath(*parts))


class Server(Program):
    """A running example; `owner` has addCleanup. `name` is an example, a path, or a whole command."""

    def __init__(self, owner, *options, name="echo", **popen):
        command = (name,) if isinstance(name, str) else name
        super().__init__(owner, *command, "--listen", LOCAL, *options, **popen)
        [self.address] = self.addresses()
        self.secure = any(word.startswith("--tls") for word in options)
        self.pid = self.process.pid

    def proc(self, *parts):
        return os.path.join("/proc", str(self.pid), *parts)

    def stat(self):
        """The fields of /proc/PID/stat behind the name, so that "utime", the 14th, is [11]."""
        with open(self.proc("stat"), encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()

    def threads(self):
        return len(os.listdir(self.proc("task")))

    def descriptors(self):
        """Those that peers may leave behind: not the spare that the server opens and gives up as it likes."""
        count = 0
        for number in os.listdir(self.proc("fd")):
            try:
                count += os.readlink(self.proc("fd", number)) != "/dev/null"
            except FileNotFoundError:
                pass  # closed meanwhile
        return count

    def cpu_seconds(self):
        fields = self.stat()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self):
        """Resident bytes."""
        return int(self.stat()[21]) * os.sysconf("SC_PAGE_SIZE")

    def level(self):
        """What has to be the same again when all peers have gone."""
        return {"threads": self.threads(), "descriptors": self.descriptors()}

    def at_level(self, level):
        """Whether nothing is left that was not there when level() was asked. A few spare pthreads may wait to
        carry light threads; they have nothing to do with connections."""
        spare = 0 if Settings.kind == "kernel" else SPARE_CARRIERS
        return (self.threads() <= level["threads"] + spare
                and self.descriptors() <= level["descriptors"])

    def wait_for_level(self, level):
        wait_for(f"{level}, but have {self.level()}", lambda: self.at_level(level))

    def end_well(self):
        """Ends it as Ctrl-C does; what a sanitizer has found comes out now."""
        status = self.end()
        if status != 0 or self.errors:
            raise AssertionError(f"the server ended with {status}: {self.errors}")

    def client(self, **options):
        """A connection without its handshake."""
        return Client(self.address, secure=self.secure, **options)

    def open(self, **options):
        """A connection with its handshake."""
        return opened(self.address, secure=self.secure, **options)


class ServerCase(unittest.TestCase):
    """Tests that share one server, which has to live on after each of them and to end well."""

    OPTIONS = ()
    NAME = "echo"

    @classmethod
    def setUpClass(cls):
        cls.servers = []
        cls.server = cls.serve(*cls.OPTIONS, program=cls.NAME)

    @classmethod
    def tearDownClass(cls):
        for server in cls.servers:
            server.end_well()

    @classmethod
    def serve(cls, *options, program="echo"):
        """One more server for all tests of the class."""
        kind = () if program == "chat" else kind_options()
        owner = types.SimpleNamespace(addCleanup=cls.addClassCleanup)
        server = Server(owner, *options, *kind, name=program)
        cls.servers.append(server)
        return server

    def setUp(self):
        self.addCleanup(self.check_alive)

    def check_alive(self):
        with self.server.open() as client:
            client.echo(b"still here")
            client.finish()

    def start(self, *options, program="echo", **popen):
        """An echo of this test's own; `program` as Server knows it."""
        return Server(self, *options, *kind_options(), name=program, **popen)

    def assert_status(self, status, *more, **parts):
        """A handshake that is refused, with a status and a reason, and then the end of the stream."""
        with self.server.client() as client:
            response = client.ask(*more, **parts)
            self.assertEqual(response.status, status)
            self.assertTrue(response.body)
            self.assertEqual(client.frames(), [])
            return response

    def assert_closed_with(self, client, code, before=()):
        """The server sends these frames, a close frame with that code, and ends the stream."""
        *frames, last = client.frames() or [None]
        self.assertEqual(frames, list(before))
        self.assertIsNotNone(last)
        self.assertEqual((last.opcode, int.from_bytes(last.payload[:2], "big")), (CLOSE, code))

    def assert_fails(self, code, *chunks, before=()):
        """A connection that sends these bytes is closed with that code, and nothing else arrives."""
        with self.server.open() as client:
            client.send(*chunks)
            self.assert_closed_with(client, code, before)

    def assert_echoes(self, client, opcode, *payloads):
        self.assertEqual([client.frame() for _ in payloads], [Frame(opcode, p) for p in payloads])
