"""Peers that want too much or go away in the wrong moment: each method replays one handed case."""

import select
import signal
import socket
import time

from _examples import PATIENCE
from _rawclient import BINARY, CONTINUATION, PING, PONG, TEXT, Client, Frame, frame
from _server import LOCAL, ServerCase, main

MIB = 1 << 20
UNFINISHED = b"GET / HTTP/1.1\r\nHost: x\r\nX-a:"


def push(client, message, limit):
    """Sends a message again and again until the server takes no more; returns how much it took."""
    sent, rest = 0, b""
    client.socket.setblocking(False)
    while sent < limit and select.select([], [client.socket], [], 1)[1]:
        rest = rest or message
        n = client.socket.send(rest)
        sent, rest = sent + n, rest[n:]
    client.socket.settimeout(client.patience)
    return sent


class Resources(ServerCase):
    def announce(self, server):
        """8 connections announce 1 GiB and send 1,000 bytes."""
        clients = []
        for _ in range(8):
            client = server.open()
            self.addCleanup(client.close)
            clients.append(client)
        before = server.memory()
        for client in clients:
            client.send(bytes.fromhex("82ff000000004000000037fa213d") + bytes.fromhex("76bb607c") * 250)
        return clients, before

    def test_B041_one_gigabyte_announced(self):
        clients, _ = self.announce(self.server)
        for client in clients:
            self.assert_closed_with(client, 1009)

    def test_B041_one_gigabyte_allowed_is_not_committed(self):
        server = self.start("--max-message", "0")
        clients, before = self.announce(server)
        with server.open() as other:
            end = time.monotonic() + 1.5
            while time.monotonic() < end:
                other.echo(b"x" * 1000)
        self.assertLess(server.memory() - before, 32 * MIB)
        for client in clients:  # they all wait
            self.assertTrue(client.quiet())

    def test_B063_pings_whose_pongs_are_not_read(self):
        with self.server.open() as client:
            burst = b"".join(frame(PING, b"%08d" % n) for n in range(3000)) + frame(TEXT, b"done")
            self.assertEqual(len(burst), 42010)
            client.send(burst)
            frames = []
            while not frames or frames[-1].opcode == PONG:
                frames.append(client.frame())
            self.assertEqual(frames[-1], Frame(TEXT, b"done"))
            pongs = [f.payload for f in frames[:-1]]
            self.assertEqual(pongs[-1], b"00002999")
            self.assertEqual(pongs, sorted(set(pongs)))  # in order, none twice

    def test_B111_peer_that_never_reads(self):
        message = frame(BINARY, b"s" * 16384, key=bytes(4))
        with self.server.open(small=True) as client, self.server.open() as other:
            before = self.server.memory()
            sent = push(client, message, 64 * MIB)
            other.send(bytes.fromhex("818537fa213d588e495845"))
            self.assert_echoes(other, TEXT, b"other")
            self.assertLess(sent, 64 * MIB)
            self.assertLess(self.server.memory() - before, 32 * MIB)

    def test_B117_no_threads_or_descriptors_left(self):
        level = self.server.level()
        for _ in range(60):
            client = self.server.open()
            client.send(bytes.fromhex("818137fa213d46"))
            self.assert_echoes(client, TEXT, b"q")
            client.reset()
        for _ in range(30):
            self.server.client().close()
        for _ in range(30):
            with self.server.client() as client:
                client.send(UNFINISHED)
        for _ in range(20):
            with self.server.open() as client:
                client.send(bytes.fromhex("888237fa213d3412"))
                self.assert_closed_with(client, 1000)
        self.server.wait_for_level(level)

    def test_B119_storms_of_connects_and_signals(self):
        for n in range(400):
            self.server.client().reset()
            if n % 20 == 0:
                self.server.process.send_signal(signal.SIGSTOP)
                stopped = [self.server.client() for _ in range(5)]
                for client in stopped:  # reset while they wait to be accepted
                    client.reset()
                self.server.process.send_signal(signal.SIGCONT)
        with self.server.open() as client:
            client.echo(b"served")

    def test_B123_half_open_peer_is_noticed(self):
        server = self.start("--ping", "400", "--ping-timeout", "400")
        level = server.level()
        with server.open() as deaf, server.open() as live:
            begin = time.monotonic()
            while not deaf.hung_up() and time.monotonic() - begin < PATIENCE:
                if select.select([live.socket], [], [], 0.02)[0]:
                    ping = live.frame()
                    self.assertEqual(ping.opcode, PING)
                    live.send(frame(PONG, ping.payload))
            self.assertGreater(time.monotonic() - begin, 0.6)
            self.assertTrue(deaf.hung_up())
            self.assertEqual([f.opcode for f in deaf.frames()], [PING])
            live.echo(b"still open")
        server.wait_for_level(level)

    def test_B141_limit_holds_for_the_sum_of_fragments(self):
        server = self.start("--max-message", str(MIB))
        with server.open() as client:
            part = b"\0" * 300 * 1024
            client.send(frame(BINARY, part, fin=False))
            for _ in range(3):
                client.send(frame(CONTINUATION, part, fin=False))
            self.assert_closed_with(client, 1009)


class Concurrency(ServerCase):
    def test_B074_reset_while_the_server_writes(self):
        message = bytes.fromhex("82fe800000000000") + b"z" * 32768
        with self.server.open() as other:
            for _ in range(4):
                client = self.server.open(small=True)
                push(client, message, 64 * len(message))
                client.reset()
                other.echo(b"unharmed")

    def test_B133_two_servers_in_one_process(self):
        """Echo and counters: the same requests, each server's own hooks and handler."""
        server = self.start("--metrics", LOCAL)
        url = server.line("metrics on ")
        counters = url.removeprefix("http://").removesuffix("/metrics")
        for connect, plain, upgrade in ((server.client, 426, 101), (lambda: Client(counters), 200, 404)):
            with self.subTest(upgrade=upgrade):
                with connect() as client:
                    client.send(f"GET /metrics HTTP/1.1\r\nHost: {client.host}\r\n\r\n".encode())
                    self.assertEqual(client.response().status, plain)
                with connect() as client:
                    self.assertEqual(client.ask().status, upgrade)
                    if upgrade == 101:
                        client.echo(b"echo")
        server.end_well()

    def test_half_closed_peer_still_gets_its_answers(self):
        with self.server.open() as client:
            client.send(frame(TEXT, b"first") + frame(BINARY, bytes(100_000)))
            client.socket.shutdown(socket.SHUT_WR)
            self.assertEqual(client.frames(), [Frame(TEXT, b"first"), Frame(BINARY, bytes(100_000))])

    def test_B113_pause_in_the_middle_of_a_frame(self):
        whole = frame(TEXT, b"abc" * 100)
        with self.server.open() as client:
            client.send(whole[:108])
            time.sleep(1.5)
            client.send(whole[108:] + frame(TEXT, b"second"))
            self.assert_echoes(client, TEXT, b"abc" * 100, b"second")


if __name__ == "__main__":
    main()
