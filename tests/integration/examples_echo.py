"""The echo example as its users meet it: options, addresses, limits, signals."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import tempfile
import unittest

import websockets

from _examples import (PATIENCE, BareClient, Program, build_path, fetch, quiet_loop, run,
                       wait_for)

LOCAL = "127.0.0.1:0"
WRITERS = ("none", "demand", "resident")


def connect(address, path="/", **options):
    return websockets.connect(f"ws://{address}{path}", compression=None, open_timeout=PATIENCE,
                              **options)


async def echoed(client, message):
    await client.send(message)
    return await asyncio.wait_for(client.recv(), PATIENCE)


class CommandLine(unittest.TestCase):
    def test_help(self):
        status, output, errors = run("echo", "--help")
        self.assertEqual((status, errors), (0, ""))
        for option in ("--listen", "--unix", "--max-message", "--max-connections",
                       "--max-per-address", "--style", "--parallel", "--threads", "--carriers", "--stack",
                       "--no-join", "--metrics", "--min-rate", "--control-rate", "--max-rate",
                       "--max-fragments", "--fragment-rate", "--tls-updates", "--max-handshakes",
                       "--address-rate", "--address-burst", "--trim-memory", "--log",
                       "--handshake-timeout", "--ping", "--ping-timeout", "--idle",
                       "--write-timeout", "--close-timeout", "--lame-duck", "--reuse-port", "--writer", "--queue-bytes",
                       "--queue-messages", "--queue-policy", "--queue-wait"):
            self.assertIn(option, output)

    def test_bad_options(self):
        for args, word in (
                (["--nonsense"], "nonsense"),
                (["--listen"], "listen"),
                (["stray"], "stray"),
                (["--max-message", "12k"], "12k"),
                (["--max-message", "-1"], "-1"),
                (["--max-message", ""], "max-message"),
                (["--max-connections", "4294967296"], "4294967296"),
                (["--stack", "99999999999999999999999"], "too large"),
                (["--ping", "1.5"], "1.5"),
                (["--idle", "86400001"], "too large"),
                (["--threads", "heavy"], "heavy"),
                (["--style", "poll"], "poll"),
                (["--writer", "always"], "always"),
                (["--queue-policy", "drop"], "drop"),
                (["--unix", "x" * 400], "too long"),
                (["--listen", LOCAL] * 17, "too many")):
            with self.subTest(args=args[:2]):
                status, output, errors = run("echo", *args)
                self.assertEqual((status, output), (2, ""))
                self.assertIn(word, errors)
                self.assertIn("echo --help", errors)

    def test_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = "127.0.0.1:%d" % taken.getsockname()[1]
            status, output, errors = run("echo", "--listen", address)
        self.assertEqual((status, output), (1, ""))
        self.assertIn(address, errors)
        self.assertIn(os.strerror(98), errors)  # Address already in use

    def test_metrics_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = "127.0.0.1:%d" % taken.getsockname()[1]
            status, _, errors = run("echo", "--listen", LOCAL, "--metrics", address)
        self.assertEqual(status, 1)
        self.assertIn(address, errors)

    def test_default_address(self):
        # another server may have that port: then the error names it
        program = Program(self, "echo")
        try:
            self.assertEqual(program.addresses(), ["127.0.0.1:9001"])
        except AssertionError:
            self.assertIn("127.0.0.1:9001", " ".join(program.errors))

    def test_unix_alone_opens_no_port(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Program(self, "echo", "--unix", folder + "/s")
            self.assertEqual(program.addresses(), [f"unix:{folder}/s"])
            self.assertEqual(program.end(), 0)
            self.assertEqual(program.lines, [f"listening on unix:{folder}/s"])

    def test_output_is_flushed_into_a_file(self):
        with tempfile.NamedTemporaryFile("r") as file:
            with open(file.name, "w", encoding="ascii") as output:
                process = subprocess.Popen([build_path("examples", "echo"), "--listen", LOCAL],
                                           stdin=subprocess.DEVNULL, stdout=output)
            try:
                wait_for("the address in the file", file.read)
            finally:
                process.terminate()
                self.assertEqual(process.wait(PATIENCE), 0)


class Echo(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        quiet_loop()

    def start(self, *args, count=1):
        self.program = Program(self, "echo", *args)
        return self.program.addresses(count)

    async def test_every_address_and_path(self):
        with tempfile.TemporaryDirectory() as folder:
            path = folder + "/socket"
            found = self.start("--listen", LOCAL, "--listen", "[::1]:0", "--unix", path, count=3)
            self.assertEqual(found[2], "unix:" + path)
            self.assertTrue(found[1].startswith("[::1]:"))
            self.assertFalse(found[0].endswith(":0"))
            for address in found[:2]:
                for where in ("/", "/a/b?c=d"):
                    async with connect(address, where) as client:
                        self.assertEqual(await echoed(client, "grüße"), "grüße")
                        self.assertEqual(await echoed(client, b"\x00\xff"), b"\x00\xff")
                        self.assertEqual(await echoed(client, ""), "")
            async with websockets.unix_connect(path, "ws://localhost/") as client:
                self.assertEqual(await echoed(client, "over a file"), "over a file")
            self.assertEqual(self.program.end(), 0)
            self.assertFalse(os.path.exists(path))

    async def test_any_origin(self):
        [address] = self.start("--listen", LOCAL)
        async with connect(address, origin="https://elsewhere.example") as client:
            self.assertEqual(await echoed(client, "x"), "x")

    async def test_fragments_come_back_whole(self):
        [address] = self.start("--listen", LOCAL)
        async with connect(address) as client:
            self.assertEqual(await echoed(client, ["in ", "three ", "pieces"]), "in three pieces")

    async def test_burst_in_order(self):
        for extra in ([], ["--no-join"], *(["--writer", mode] for mode in WRITERS)):
            with self.subTest(extra=extra):
                [address] = self.start("--listen", LOCAL, *extra)
                async with connect(address) as client:
                    sent = [f"message {i} " + "x" * (i % 300) for i in range(2000)]
                    receiver = asyncio.create_task(self.receive(client, len(sent)))
                    for message in sent:
                        await client.send(message)
                    self.assertEqual(await asyncio.wait_for(receiver, PATIENCE), sent)

    @staticmethod
    async def receive(client, count):
        return [await client.recv() for _ in range(count)]

    async def test_max_message(self):
        [address] = self.start("--listen", LOCAL, "--max-message", "1000")
        async with connect(address) as client:
            self.assertEqual(await echoed(client, b"x" * 1000), b"x" * 1000)
            await client.send(b"x" * 1001)
            with self.assertRaises(websockets.ConnectionClosed):
                await asyncio.wait_for(client.recv(), PATIENCE)
            self.assertEqual(client.close_code, 1009)

    async def test_large_message(self):
        big = os.urandom(3_000_000)
        for extra in ([], *(["--writer", mode] for mode in WRITERS)):
            with self.subTest(extra=extra):
                [address] = self.start("--listen", LOCAL, *extra)
                async with connect(address, max_size=None) as client:
                    self.assertEqual(await echoed(client, big), big)

    async def metric(self, name):
        url = self.program.line("metrics on ")
        text = (await asyncio.to_thread(fetch, url))[2].decode()
        return int(dict(line.rsplit(" ", 1) for line in text.splitlines())[name])

    async def overfill(self, policy, counter):
        """A peer that sends and never reads: what its full queue does to it."""
        [address] = self.start("--listen", LOCAL, "--metrics", LOCAL, "--writer", "demand",
                               "--queue-messages", "10", "--queue-wait", "1",
                               "--queue-policy", policy)
        async with BareClient(address, small_buffers=True) as client:
            client.stop_reading()
            while not await self.metric('tws_queue_dropped_total{policy="%s"}' % counter):
                client.send(2, b"x" * 100, 100)
                await asyncio.sleep(0.01)
            async with connect(address) as other:
                self.assertEqual(await echoed(other, "meanwhile"), "meanwhile")
            still_open = await self.metric("tws_connections_open")
            self.assertLessEqual(await self.metric("tws_queue_messages"), 10)
        self.program.kill()
        return still_open

    async def test_policies(self):
        for policy, counter in (("drop-newest", "newest"), ("drop-oldest", "oldest"),
                                ("wait", "wait")):
            with self.subTest(policy=policy):
                self.assertGreaterEqual(await self.overfill(policy, counter), 1)
        await self.overfill("close", "close")

    async def refused_then_served(self, *options):
        """The third connection gets 503; when one of the two has left, the next is served."""
        [address] = self.start("--listen", LOCAL, *options)
        async with connect(address) as first:
            self.assertEqual(await echoed(first, "1"), "1")
            async with connect(address) as second:
                self.assertEqual(await echoed(second, "2"), "2")
                with self.assertRaises(websockets.InvalidStatusCode) as refused:
                    await connect(address)
                self.assertEqual(refused.exception.status_code, 503)
                self.assertEqual(await echoed(first, "1"), "1")
            deadline = asyncio.get_running_loop().time() + PATIENCE
            while True:
                try:
                    async with connect(address) as third:
                        self.assertEqual(await echoed(third, "3"), "3")
                    return
                except websockets.InvalidStatusCode:
                    self.assertLess(asyncio.get_running_loop().time(), deadline)

    async def test_max_connections(self):
        await self.refused_then_served("--max-connections", "2")

    async def test_max_per_address(self):
        await self.refused_then_served("--max-per-address", "2")

    async def test_stack(self):
        [address] = self.start("--listen", LOCAL, "--stack", "131072")
        async with connect(address) as client:
            self.assertEqual(await echoed(client, "x" * 100_000), "x" * 100_000)

    async def test_both_kinds_of_threads(self):
        for args in (["--threads", "kernel"], ["--threads", "light", "--carriers", "1"]):
            with self.subTest(args=args):
                [address] = self.start("--listen", LOCAL, *args)
                clients = [await connect(address) for _ in range(20)]
                for client in clients:
                    self.assertEqual(await echoed(client, "x" * 5000), "x" * 5000)
                self.assertEqual(await asyncio.to_thread(self.program.end), 0)

    async def test_events(self):
        for args in ([], ["--threads", "light"], ["--parallel", "4"], ["--writer", "demand"]):
            with self.subTest(args=args):
                [address] = self.start("--listen", LOCAL, "--style", "events", "--broadcast", "/all", *args)
                async with connect(address) as client, connect(address, "/all") as other:
                    for message in ("x", b"y" * 100_000):
                        self.assertEqual(await echoed(client, message), message)
                    self.assertEqual(await echoed(other, "to all"), "to all")
                self.assertEqual(await asyncio.to_thread(self.program.end), 0)

    async def test_ping(self):
        [address] = self.start("--listen", LOCAL, "--ping", "200")
        async with BareClient(address) as client:
            self.assertEqual((await client.next_frame())[0], 9)

    async def test_no_ping_in_a_quiet_second(self):
        # the first frame on a silent connection is the close frame of the drain, not a ping
        [address] = self.start("--listen", LOCAL, "--ping", "0")
        async with BareClient(address) as client:
            await asyncio.sleep(1.5)
            self.program.process.terminate()
            self.assertEqual((await client.next_frame())[0], 8)

    async def test_metrics(self):
        [address] = self.start("--listen", LOCAL, "--metrics", LOCAL)
        url = self.program.line("metrics on ")
        async with connect(address) as client:
            for _ in range(3):
                await echoed(client, "four")
            status, headers, text = await asyncio.to_thread(fetch, url)
        self.assertEqual(status, 200)
        self.assertEqual(headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
        values = dict(line.rsplit(" ", 1) for line in text.decode().splitlines()
                      if not line.startswith("#"))
        self.assertIn("3", [value for name, value in values.items() if "messages" in name])
        self.assertIn("12", [value for name, value in values.items() if "bytes" in name])
        self.assertEqual((await asyncio.to_thread(fetch, url.replace("/metrics", "/")))[0], 404)
        with self.assertRaises(websockets.InvalidStatusCode) as refused:
            await websockets.connect(url.replace("http:", "ws:"))
        self.assertEqual(refused.exception.status_code, 404)

    async def test_broadcast(self):
        """One path is a room; the others are not, and its counters are on the page."""
        [address] = self.start("--listen", LOCAL, "--broadcast", "/all", "--metrics", LOCAL)
        members = [await connect(address, "/all") for _ in range(5)]
        alone = await connect(address, "/all/")
        page = self.program.line("metrics on ")
        while b"tws_hub_members 5\n" not in (await asyncio.to_thread(fetch, page))[2]:
            await asyncio.sleep(0.01)
        for number, message in enumerate(("text", b"\x00binary", "")):
            await members[number].send(message)
            for member in members:
                self.assertEqual(await asyncio.wait_for(member.recv(), PATIENCE), message)
        self.assertEqual(await echoed(alone, "echo"), "echo")
        self.assertIn(b'tws_hub_deliveries_total{result="sent"} 15\n',
                      (await asyncio.to_thread(fetch, page))[2])
        for client in (alone, *members):
            await client.close()

    async def test_plain_http(self):
        [address] = self.start("--listen", LOCAL)
        status, headers, _ = await asyncio.to_thread(fetch, f"http://{address}/")
        self.assertEqual((status, headers["Upgrade"]), (426, "websocket"))

    async def test_says_first_that_it_leaves(self):
        """--lame-duck: 503 at /healthz, while it goes on as before; then 1001."""
        [address] = self.start("--listen", LOCAL, "--lame-duck", "3000")

        def health():
            return fetch(f"http://{address}/healthz")[::2]

        self.assertEqual(await asyncio.to_thread(health), (200, b"ok\n"))
        async with connect(address) as early:
            self.assertEqual(await echoed(early, "x"), "x")
            self.program.process.send_signal(signal.SIGTERM)
            while (answer := await asyncio.to_thread(health)) == (200, b"ok\n"):
                pass
            self.assertEqual(answer, (503, b"leaving\n"))
            async with connect(address) as late:
                self.assertEqual([await echoed(client, "y") for client in (early, late)], ["y", "y"])
                for client in (early, late):
                    await asyncio.wait_for(client.wait_closed(), PATIENCE)
                    self.assertEqual(client.close_code, 1001)
        self.assertEqual((await asyncio.to_thread(self.program.wait), self.program.errors), (0, []))

    async def test_processes_share_a_port(self):
        """Each gets some of the connections; when one has ended the other gets all."""
        [address] = self.start("--listen", LOCAL, "--reuse-port", "--metrics", LOCAL)
        first = self.program
        self.assertEqual(self.start("--listen", address, "--reuse-port", "--metrics", LOCAL), [address])
        pages = [program.line("metrics on ") for program in (first, self.program)]

        async def counts():
            return [int(re.search(rb"\ntws_connections_upgraded_total (\d+)\n", text).group(1))
                    for text in [(await asyncio.to_thread(fetch, page))[2] for page in pages]]

        while not all(await counts()):  # which one is chance
            async with connect(address) as client:
                self.assertEqual(await echoed(client, "x"), "x")
        self.assertEqual(await asyncio.to_thread(first.end), 0, first.errors)
        pages = pages[1:]
        [before] = await counts()
        for _ in range(10):
            async with connect(address) as client:
                self.assertEqual(await echoed(client, "x"), "x")
        self.assertEqual(await counts(), [before + 10])

    async def test_signals_close_with_1001(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(signal=number):
                [address] = self.start("--listen", LOCAL)
                clients = [await connect(address) for _ in range(20)]
                for client in clients:
                    self.assertEqual(await echoed(client, "x"), "x")
                self.program.process.send_signal(number)
                for client in clients:
                    await asyncio.wait_for(client.wait_closed(), PATIENCE)
                    self.assertEqual(client.close_code, 1001)
                self.assertEqual(await asyncio.to_thread(self.program.wait), 0)
                self.assertEqual(self.program.errors, [])

    async def test_silent_peers_do_not_hold_up_the_end(self):
        """Peers that never answer the close frame are cut: exit 0 after the drain's 5 seconds."""
        [address] = self.start("--listen", LOCAL)
        async with BareClient(address):
            host, port = address.rsplit(":", 1)
            with socket.create_connection((host, int(port))) as half:
                half.sendall(b"GET / HT")  # and one inside its handshake
                self.assertEqual(await asyncio.to_thread(self.program.end), 0)

    async def test_address_is_free_again(self):
        [address] = self.start("--listen", LOCAL)
        async with connect(address) as client:
            await echoed(client, "x")
            self.program.process.terminate()
            await client.wait_closed()
        self.assertEqual(await asyncio.to_thread(self.program.wait), 0)
        self.assertEqual(self.start("--listen", address), [address])


if __name__ == "__main__":
    unittest.main()
