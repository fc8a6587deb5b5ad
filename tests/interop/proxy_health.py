"""Servers that come, go and die behind nginx, haproxy and Envoy, as examples/proxies has them, and clients that notice
nothing; connections that say nothing for long; the server with the fewest."""

import unittest

from _kit import free_port, wait_for
from _proxies import QUICK_CHECKS, Backend, Proxy
from _rawclient import CLOSE, PING, PONG, TEXT, frame

# The timeouts a thirtieth, and so the ping interval.
IDLE = {"nginx": [("_timeout 90s", "_timeout 3s")], "haproxy": [("tunnel 90s", "tunnel 3s")],
        "envoy": [("stream_idle_timeout: 90s", "stream_idle_timeout: 3s")]}
PING_MS = "1000"
LAME_MS = "4000"


def end(client):
    """How a connection has ended, if it has: "alive", "cut", or the code of its close frame."""
    try:
        client.send(frame(TEXT, b"alive?"))
        last = client.frame()
    except ConnectionError:
        last = None
    if last is None:
        return "cut"
    return str(int.from_bytes(last.payload, "big")) if last.opcode == CLOSE else "alive"


class Health(unittest.TestCase):
    """With one of them."""

    def start(self, *options, times=()):
        self.servers = [Backend(self, *options) for _ in range(3)]
        self.proxy = Proxy(self, self.NAME, [server.port for server in self.servers], times=times)
        if self.NAME == "envoy":
            wait_for("all three", lambda: self.proxy.healthy() == 3)
        elif self.NAME == "haproxy":
            wait_for("all three", lambda: all(self.proxy.reaches(server) for server in self.servers))

    def open(self, count):
        """Connections that work."""
        clients = [self.proxy.connect() for _ in range(count)]
        for client in clients:
            self.addCleanup(client.close)
            client.echo(b"here")
        return clients

    def counts(self):
        return [server.open() for server in self.servers]

    def test_the_fewest_connections(self):
        """Three servers get equal shares; who has lost all of its own gets the next ones."""
        self.start()
        wait_for("no connections", lambda: self.counts() == [0, 0, 0])
        self.open(12)
        self.assertEqual(self.counts(), [4, 4, 4])
        self.servers[1].program.kill()
        self.servers[1].start()
        wait_for("the one that is back", lambda: self.proxy.reaches(self.servers[1]))
        wait_for("that has gone", lambda: self.servers[1].open() == 0)
        self.open(4)
        self.assertEqual(self.counts(), [4, 4, 4])

    def test_a_server_dies_and_comes_back(self):
        self.start(times=QUICK_CHECKS[self.NAME])
        clients = self.open(6)
        dead = self.servers[0]
        dead.program.kill()
        self.open(12)  # none is refused, from the first on
        self.assertEqual(sum(server.open() for server in self.servers[1:]), 4 + 12)
        self.assertEqual(sorted(map(end, clients)), ["alive"] * 4 + ["cut"] * 2)  # those of the dead, and no others
        dead.start()
        wait_for("clients at the one that is back", lambda: self.proxy.reaches(dead))

    def test_a_server_leaves(self):
        """It says so first, goes on for a while, and then sends 1001. Nobody is refused meanwhile."""
        self.start("--lame-duck", LAME_MS, times=QUICK_CHECKS[self.NAME])
        clients = self.open(6)
        leaving = self.servers[2]
        leaving.leave()
        if self.NAME != "nginx":  # which does not ask
            wait_for("it is spared", lambda: not any([self.proxy.reaches(leaving) for _ in range(9)]))
            self.assertIsNone(leaving.program.process.poll())
        while leaving.program.process.poll() is None:
            self.proxy.connect().close()
        self.open(3)
        self.assertEqual((leaving.program.wait(), leaving.program.errors), (0, []))
        self.assertEqual(sorted(map(end, clients)), ["1001"] * 2 + ["alive"] * 4)

    def test_nobody_is_left(self):
        """An answer of the proxy's own, at once, and it is over when servers are back."""
        ports = [free_port() for _ in range(3)]
        servers = [Backend(self, port=port) for port in ports]
        proxy = Proxy(self, self.NAME, ports, times=QUICK_CHECKS[self.NAME])
        for server in servers:
            server.program.kill()

        def answer():
            with proxy.client() as client:
                return client.ask().status
        wait_for("a refusal", lambda: answer() in (502, 503, 504))
        servers[0].start()
        wait_for("an upgrade", lambda: answer() == 101)

    def test_idle_for_long(self):
        """The server's pings keep it alive; without them the proxy ends it."""
        self.start("--ping", PING_MS, times=IDLE[self.NAME])
        silent = Backend(self, "--ping", "0")
        other = Proxy(self, self.NAME, [silent.port] * 3, times=IDLE[self.NAME])
        with self.proxy.connect() as kept, other.connect() as cut:
            cut.echo(b"here")
            pings = 0
            while pings < 5:  # a second each, and the proxy's patience is 3
                got = kept.frame()
                self.assertEqual(got.opcode, PING)
                kept.send(frame(PONG, got.payload))
                pings += 1
            kept.echo(b"still here")
            self.assertEqual(cut.frames(), [])


class Nginx(Health):
    NAME = "nginx"


class Haproxy(Health):
    NAME = "haproxy"


class Envoy(Health):
    NAME = "envoy"


del Health

if __name__ == "__main__":
    unittest.main()
