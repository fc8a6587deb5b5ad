"""Clusters on real brokers: nats-server and redis-server, killed and restarted, with TLS and with passwords."""

import asyncio
import contextlib
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import websockets

from _cluster import Node, Run, in_time, nats_brokers, redis_broker
from _kit import cert, wait_for

from _examples import Program, build_path, fetch, quiet_loop, run

PATIENCE = 30


class Brokers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def nats(self, *more):
        broker = nats_brokers(self.folder, 1, more)[0]
        self.addCleanup(broker.kill)
        return broker

    def redis(self, *more):
        broker = redis_broker(self.folder, *more)
        self.addCleanup(broker.kill)
        return broker

    def node(self, kind, where, *more):
        node = Node(f"--{kind}", where, "--beat", 200, *more)
        self.addCleanup(node.end)
        return node.begin()

    def await_up(self, *nodes):
        wait_for("the nodes to be connected", lambda: all(n.is_up() for n in nodes))

    def run_through(self, kind):
        run = Run(kind, self.folder, seconds=7, clients=300, rooms=10, rate=100, every=1.2, away=0.4)
        self.addCleanup(run.end)
        figures = run.go()
        self.assertEqual(figures["faults"], [], figures)
        self.assertGreaterEqual(figures["kills"], 3)
        self.assertGreater(figures["connections_lost"], 2, figures)
        self.assertGreater(figures["node_deliveries"], figures["node_expected"] // 4, figures)

    def test_three_nats_servers_killed_one_at_a_time(self):
        self.run_through("nats")

    def test_one_redis_server_killed(self):
        self.run_through("redis")

    # ---- Who may connect ----

    def test_nats_with_tls_and_a_password(self):
        tls = ("--tls", "--tlscert", cert("server.pem"), "--tlskey", cert("server.key"), "--user", "u", "--pass", "p")
        broker = self.nats(*tls)
        where = f"nats://localhost:{broker.port}"
        good = [self.node("nats", where, "--ca", cert("ca.pem"), "--user", "u", "--password", "p", "--number", i)
                for i in range(2)]
        self.await_up(*good)
        plain = self.node("nats", where, "--user", "u", "--password", "p")
        stranger = self.node("nats", where, "--ca", cert("ca.pem"), "--user", "u", "--password", "q")
        distrustful = self.node("nats", where, "--ca", cert("client.pem"), "--user", "u", "--password", "p")
        for node in (plain, stranger, distrustful):
            wait_for("a refusal", lambda node=node: node.states)
            self.assertTrue(node.states[0].startswith("down "), node.states)
        # The server's mind changes: whoever was refused goes on trying.
        broker.kill()
        broker.command[-1] = "q"
        broker.start()
        self.await_up(stranger)
        wait_for("the others to be refused", lambda: not any(n.is_up() for n in good))
        for node in (*good, plain, stranger, distrustful):
            self.assertEqual(node.quit(), 0)

    def test_nats_asks_for_a_certificate(self):
        broker = self.nats("--tlsverify", "--tlscert", cert("server.pem"), "--tlskey", cert("server.key"),
                           "--tlscacert", cert("ca.pem"))
        where = f"nats://localhost:{broker.port}"
        known = self.node("nats", where, "--ca", cert("ca.pem"), "--cert", cert("client.pem"), "--key",
                          cert("client.key"))
        unknown = self.node("nats", where, "--ca", cert("ca.pem"))
        self.await_up(known)
        wait_for("a refusal", lambda: unknown.states)
        self.assertFalse(unknown.is_up())

    def test_nats_with_a_token(self):
        where = f"nats://127.0.0.1:{self.nats('--auth', 't').port}"
        known = self.node("nats", where, "--token", "t")
        unknown = self.node("nats", where, "--token", "u")
        self.await_up(known)
        wait_for("a refusal", lambda: unknown.states)
        self.assertFalse(unknown.is_up())

    def test_nats_by_a_url_with_a_password(self):
        broker = self.nats("--user", "u", "--pass", "s3cret")
        node = self.node("nats", f"nats://u:s3cret@127.0.0.1:{broker.port}")
        self.await_up(node)
        broker.kill()
        broker.start()
        wait_for("a second connection", lambda: sum(s.startswith("up ") for s in node.states) > 1)
        for state in node.states:
            self.assertNotIn("s3cret", state)
        self.assertIn(f"up nats://127.0.0.1:{broker.port}", node.states)
        # Who asks for TLS tells a server without it nothing, and goes on trying.
        secret = self.node("nats", f"tls://u:s3cret@127.0.0.1:{broker.port}")
        wait_for("attempts", lambda: len(secret.states) > 0)
        self.assertRegex(secret.states[0], "^down .*[Ss]ecure")

    def test_redis_with_a_password(self):
        broker = self.redis("--requirepass", "p")
        where = f"127.0.0.1:{broker.port}"
        good = self.node("redis", where, "--password", "p")
        named = self.node("redis", where, "--user", "default", "--password", "p")
        self.await_up(good, named)
        for more in ((), ("--password", "q")):
            bad = self.node("redis", where, *more)
            wait_for("a refusal", lambda bad=bad: bad.states)
            self.assertRegex(bad.states[0], "^down (NOAUTH|WRONGPASS)")
            self.assertEqual(bad.quit(), 0)

    def test_a_redis_server_that_repeats_what_it_does_not_know(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            node = self.node("redis", f"127.0.0.1:{server.getsockname()[1]}", "--password", "s3cret")
            with server.accept()[0] as s:
                self.assertIn(b"s3cret", s.recv(1000))
                s.sendall(b"-ERR unknown command `AUTH`, with args beginning with: `s3cret`,\r\n+PONG\r\n")
                wait_for("a refusal", lambda: node.states)
        self.assertEqual(node.states[0], "down ERR: AUTH was not accepted")

    def test_a_redis_server_that_announces_too_much(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            node = self.node("redis", f"127.0.0.1:{server.getsockname()[1]}")
            with server.accept()[0] as s:
                self.assertIn(b"PING", s.recv(1000))
                s.sendall(b"*1000000000\r\n")
                wait_for("a refusal", lambda: node.states)
                self.assertEqual(s.recv(1000), b"")
        self.assertTrue(node.states[0].startswith("down "), node.states)
        with open(f"/proc/{node.process.pid}/status", encoding="ascii") as status:
            most = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
        self.assertLess(most, 400 * 1024)

    # ---- Trouble ----

    def test_a_server_that_stands_still(self):
        for kind, broker in (("nats", self.nats()), ("redis", self.redis())):
            where = f"nats://127.0.0.1:{broker.port}" if kind == "nats" else f"127.0.0.1:{broker.port}"
            node = self.node(kind, where)
            self.await_up(node)
            broker.process.send_signal(signal.SIGSTOP)
            node.say("go")
            wait_for("the silence to be noticed", lambda node=node: not node.is_up())
            broker.process.send_signal(signal.SIGCONT)
            self.await_up(node)
            published = node.stop_publishing()
            self.assertEqual(published[0][1], 0)  # none was refused
            self.assertEqual(node.quit(), 0)

    def test_a_process_that_stands_still(self):
        """For longer than a server may be silent: it is not the server that was."""
        node = self.node("redis", f"127.0.0.1:{self.redis().port}")
        self.await_up(node)
        wait_for("a subscription", lambda: node.look()[0]["subscriptions"] == 1)
        node.process.send_signal(signal.SIGSTOP)
        time.sleep(4.5)
        node.process.send_signal(signal.SIGCONT)
        received = node.look()[0]["ups"]
        time.sleep(1)
        self.assertEqual((received, node.look()[0]["ups"], len(node.states)), (1, 1, 1))

    def test_the_end_without_a_server(self):
        for kind in ("nats", "redis"):
            node = self.node(kind, "nats://127.0.0.1:1" if kind == "nats" else "127.0.0.1:1")
            wait_for("a refusal", lambda node=node: node.states)
            node.say("go")
            self.assertEqual(node.quit(), 0)

    def test_jetstream_has_what_was_said(self):
        broker = self.nats("-js", "-sd", self.folder)
        where = f"nats://127.0.0.1:{broker.port}"
        replay = [build_path("tests/interop/cluster_replay"), where]
        subprocess.run([*replay, "keep"], check=True, timeout=PATIENCE)
        node = self.node("nats", where, "--rate", 100)
        self.await_up(node)
        node.say("go")
        self.assertTrue(in_time(PATIENCE, lambda: node.look()[0]["published"] > 20))
        published, _ = node.stop_publishing()[0]
        self.assertEqual(node.quit(), 0)
        done = subprocess.run([*replay, "read", "tws.r.room=200", "1"], check=True, timeout=PATIENCE, capture_output=True,
                              text=True)
        self.assertEqual(done.stdout.splitlines(), published * ["room 0 100"])

    def test_bytes_of_others(self):
        nats, redis = self.nats(), self.redis()
        one = self.node("nats", f"nats://127.0.0.1:{nats.port}")
        other = self.node("redis", f"127.0.0.1:{redis.port}")
        self.await_up(one, other)
        rubbish = b"\x00\xffTWSC\r\nnot a message of ours"
        wait_for("subscriptions", lambda: all(n.look()[0]["subscriptions"] == 1 for n in (one, other)))
        with socket.create_connection(("127.0.0.1", nats.port)) as s:
            s.sendall(b'CONNECT {"verbose":false}\r\nPUB tws.all %d\r\n%s\r\nPING\r\n' % (len(rubbish), rubbish))
            self.assertTrue(in_time(PATIENCE, lambda: one.look()[0]["foreign"] == 1))
        with socket.create_connection(("127.0.0.1", redis.port)) as s:
            s.sendall(b"*3\r\n$7\r\nPUBLISH\r\n$7\r\ntws.all\r\n$%d\r\n%s\r\n" % (len(rubbish), rubbish))
            self.assertTrue(in_time(PATIENCE, lambda: other.look()[0]["foreign"] == 1))


class Example(unittest.IsolatedAsyncioTestCase):
    """examples/cluster: two processes, one broker of each kind."""

    async def asyncSetUp(self):
        quiet_loop()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    async def say(self, sender, receiver, text):
        """Until it comes: the subscription holds a moment after the join."""
        while True:
            await sender.send(text)
            with contextlib.suppress(asyncio.TimeoutError):
                return await asyncio.wait_for(receiver.recv(), 0.5)

    async def pass_on(self, broker, *options):
        self.addCleanup(broker.kill)
        programs = [Program(self, "cluster", *options, "--listen", "127.0.0.1:0") for _ in range(2)]
        addresses = [p.addresses()[0] for p in programs]
        for address in addresses:
            wait_for("the broker", lambda address=address: fetch(f"http://{address}/healthz")[0] == 200)
        async with websockets.connect(f"ws://{addresses[0]}/a%20room") as one, \
                websockets.connect(f"ws://{addresses[1]}/a%20room") as other:
            self.assertEqual(await self.say(one, other, "hello"), "hello")
            page = fetch(f"http://{addresses[1]}/metrics")[2].decode()
            self.assertIn("\ntws_cluster_up 1\n", page)
            self.assertIn("\ntws_hub_rooms 1\n", page)
            broker.kill()
            wait_for("the loss", lambda: fetch(f"http://{addresses[0]}/healthz")[0] == 503)
        for program in programs:
            self.assertEqual(program.end(), 0, program.errors)

    async def test_nats(self):
        broker = nats_brokers(self.folder, 1)[0]
        await self.pass_on(broker, "--nats", f"nats://127.0.0.1:{broker.port}")

    async def test_redis(self):
        broker = redis_broker(self.folder)
        await self.pass_on(broker, "--redis", f"127.0.0.1:{broker.port}", "--threads", "light")

    def test_command_line(self):
        status, output, errors = run("cluster", "--help")
        self.assertEqual((status, errors), (0, ""))
        self.assertIn("--redis", output)
        for options in ((), ("--nats", "x", "--redis", "y"), ("--threads", "heavy"), ("--nats",)):
            status, output, errors = run("cluster", *options)
            self.assertEqual((status, output), (2, ""))
        status, _, errors = run("cluster", "--redis", "redis://127.0.0.1", "--listen", "127.0.0.1:0")
        self.assertEqual(status, 1)
        self.assertIn("there is no TLS", errors)
        status, _, errors = run("cluster", "--nats", "nats://127.0.0.1", "--ca", "/gone", "--listen", "127.0.0.1:0")
        self.assertEqual(status, 1)
        self.assertIn("certificates", errors)


if __name__ == "__main__":
    unittest.main()
