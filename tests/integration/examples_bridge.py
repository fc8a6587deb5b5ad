"""The bridge example: a program for each connection, and nothing left of it afterwards."""

import asyncio
import glob
import os
import sys
import unittest

import websockets

from _examples import PATIENCE, Program, quiet_loop, run, wait_for

THREADS = os.environ.get("TWS_TEST_THREADS", "kernel")


def shell(script):
    return ["sh", "-c", script]


class CommandLine(unittest.TestCase):
    def test_help(self):
        status, output, errors = run("bridge", "--help")
        self.assertEqual((status, errors), (0, ""))
        for option in ("--listen", "--origin", "--binary", "--max-programs", "--max-line", "--patience", "--threads"):
            self.assertIn(option, output)

    def test_bad_options(self):
        for args, word in (([], "no program"), (["--nonsense", "cat"], "nonsense"), (["--max-line", "0", "cat"], "'0'"),
                           (["--listen", "nowhere", "cat"], "nowhere")):
            with self.subTest(args=args):
                status, output, errors = run("bridge", *args)
                self.assertNotEqual(status, 0)
                self.assertEqual(output, "")
                self.assertIn(word, errors)


class Bridge(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        quiet_loop()

    def start(self, command, *options):
        self.bridge = Program(self, "bridge", "--listen", "127.0.0.1:0", "--threads", THREADS, "--patience", "300",
                              *options, *command)
        [self.address] = self.bridge.addresses()
        self.addCleanup(self.nothing_left, self.bridge, self.descriptors(self.bridge))

    @staticmethod
    def descriptors(bridge):
        return len(os.listdir(f"/proc/{bridge.process.pid}/fd"))

    @staticmethod
    def children(bridge):
        found = []
        for thread in os.listdir(f"/proc/{bridge.process.pid}/task"):
            try:
                with open(f"/proc/{bridge.process.pid}/task/{thread}/children", encoding="ascii") as file:
                    found += file.read().split()
            except (FileNotFoundError, ProcessLookupError):
                pass  # ended meanwhile
        return found

    def nothing_left(self, bridge, idle):
        """Neither a program, nor a zombie, nor a descriptor (of light threads, a few may stay for later use)."""
        spare = 0 if THREADS == "kernel" else 8
        wait_for("programs to end", lambda: not self.children(bridge))
        wait_for("descriptors to close", lambda: self.descriptors(bridge) <= idle + spare)
        self.assertEqual(bridge.end(), 0, bridge.errors)

    def connect(self, path="/", **options):
        return websockets.connect(f"ws://{self.address}{path}", open_timeout=PATIENCE, **options)

    async def ended(self, client):
        """Reads to the end; returns what came, code and reason."""
        got = []
        try:
            while True:
                got.append(await asyncio.wait_for(client.recv(), PATIENCE))
        except websockets.ConnectionClosed:
            return got, client.close_code, client.close_reason

    async def test_lines_both_ways(self):
        self.start(["cat"])
        async with self.connect() as client:
            lines = [f"line {i} grüße" for i in range(500)] + [""]
            await asyncio.gather(*(client.send(line) for line in lines))
            self.assertEqual([await asyncio.wait_for(client.recv(), PATIENCE) for _ in lines], lines)

    async def test_one_program_each(self):
        self.start(shell("echo $$; exec cat"))
        pids = set()
        for _ in range(20):
            async with self.connect() as client:
                pids.add(await asyncio.wait_for(client.recv(), PATIENCE))
        self.assertEqual(len(pids), 20)

    async def test_the_program_ends(self):
        self.start(shell("echo one; printf two; exit $QUERY_STRING"))
        for status, code in (("0", 1000), ("3", 1011)):
            async with self.connect("/?" + status) as client:
                got, *how = await self.ended(client)
                self.assertEqual(got, ["one", "two"])
                self.assertEqual(how, [code, f"the program ended with status {status}"])

    async def test_the_connection_ends(self):
        """Also for a program that cares neither for the end of its input nor for SIGTERM, and for its children."""
        for script in ("echo up; exec cat", "echo up; exec sleep 1000", "trap '' TERM; echo up; sleep 1000; sleep 1000",
                       "sleep 1000 & echo up; exec cat"):
            with self.subTest(script=script):
                self.start(shell(script))
                async with self.connect() as client:
                    self.assertEqual(await asyncio.wait_for(client.recv(), PATIENCE), "up")
                    [group] = self.children(self.bridge)
                wait_for("the end of the group", lambda g=group: not self.group_lives(g))

    @staticmethod
    def group_lives(group):
        """Zombies do not count: an orphan is reaped by init, when that gets to it."""
        for path in glob.glob("/proc/[0-9]*/stat"):
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    state, _, its_group = file.read().rpartition(")")[2].split()[:3]
            except OSError:
                continue
            if its_group == group and state not in "ZX":
                return True
        return False

    async def test_a_chatty_child_does_not_keep_it_open(self):
        self.start(shell("yes & echo done >&2"))
        async with self.connect() as client:
            _, code, _ = await self.ended(client)
            self.assertEqual(code, 1000)

    async def test_errors_go_to_the_log(self):
        self.start(shell("echo first >&2; printf second >&2"))
        async with self.connect() as client:
            await self.ended(client)
        for word in ("first", "second", "ended with status 0"):
            wait_for(word, lambda w=word: any(w in line for line in self.bridge.errors))

    async def test_what_it_is_told(self):
        self.start(shell("echo $PATH_INFO; echo $QUERY_STRING; echo $REMOTE_ADDR; echo $HTTP_ORIGIN; kill -PIPE $$"),
                   "--origin", "http://page.example")
        async with self.connect("/a/b?c=d", origin="http://page.example") as client:
            got, code, reason = await self.ended(client)
            self.assertEqual(got[:2] + got[3:], ["/a/b", "c=d", "http://page.example"])
            self.assertTrue(got[2].startswith("127.0.0.1:"), got)
            # SIGPIPE, which the bridge itself ignores, ends the program as it should
            self.assertEqual((code, reason), (1011, "the program was ended by signal 13"))

    async def test_no_descriptor_of_the_bridge_is_inherited(self):
        self.start([sys.executable, "-c",
                    "import os; print(*sorted(map(int, os.listdir('/proc/self/fd'))), flush=True); input()"])
        async with self.connect() as first, self.connect() as second:
            for client in (first, second):
                self.assertEqual(await asyncio.wait_for(client.recv(), PATIENCE), "0 1 2 3")  # 3: listdir's own

    async def test_binary(self):
        self.start(["cat"], "--binary")
        async with self.connect() as client:
            data = bytes(range(256)) * 100
            await client.send(data)
            got = b""
            while len(got) < len(data):
                got += await asyncio.wait_for(client.recv(), PATIENCE)
            self.assertEqual(got, data)

    async def test_binary_message_to_lines(self):
        self.start(["cat"])
        async with self.connect() as client:
            await client.send(b"\x00")
            self.assertEqual((await self.ended(client))[1], 1003)

    async def test_bad_text_is_dropped(self):
        self.start(shell(r"printf 'bad \377\ngood\n'"))
        async with self.connect() as client:
            self.assertEqual((await self.ended(client))[0], ["good"])

    async def test_too_long_a_line(self):
        self.start(shell("printf 12345678; cat"), "--max-line", "8")
        async with self.connect() as client:
            self.assertEqual((await self.ended(client))[1:], (1011, "the program printed too long a line"))

    async def test_limits(self):
        self.start(["cat"], "--max-line", "8", "--max-programs", "1")
        async with self.connect() as client:
            with self.assertRaises(websockets.InvalidStatusCode) as refused:
                async with self.connect():
                    pass
            self.assertEqual(refused.exception.status_code, 503)
            await client.send("1234567")
            self.assertEqual(await asyncio.wait_for(client.recv(), PATIENCE), "1234567")
            await client.send("123456789")
            self.assertEqual((await self.ended(client))[1], 1009)

    async def test_a_program_that_does_not_read(self):
        self.start(shell("exec sleep 1000"))
        async with self.connect(compression=None) as client:
            ended = asyncio.create_task(self.ended(client))
            try:
                for _ in range(10):
                    await client.send("x" * 60000)
            except websockets.ConnectionClosed:
                pass
            self.assertEqual((await ended)[1:], (1013, "the program does not read"))

    async def test_no_such_program(self):
        self.start(["/nonexistent/program"])
        async with self.connect() as client:
            self.assertEqual((await self.ended(client))[1:], (1011, "the program cannot be started"))


if __name__ == "__main__":
    unittest.main()
