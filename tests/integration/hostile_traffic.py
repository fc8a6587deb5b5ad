"""Peers that read too slowly, flood, or come and go too fast; others are served meanwhile, and nothing is left."""

import contextlib
import threading
import time

from _examples import PATIENCE
from _rawclient import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, frame
from _server import ServerCase, main

MIB = 1 << 20


class Healthy(threading.Thread):
    """A client that talks as long as the block of a `with` runs, which fails when it is not served."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.client = server.open()
        self.trips = 0
        self.longest = 0.0
        self.fault = None
        self.stopping = False
        self.start()

    def run(self):
        try:
            while not self.stopping:
                begin = time.monotonic()
                self.client.echo(b"x" * 200)
                self.longest = max(self.longest, time.monotonic() - begin)
                self.trips += 1
            self.client.finish()
        except (OSError, AssertionError) as fault:
            self.fault = fault

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.stopping = True
        self.join()
        self.client.close()
        print(f"beside it: {self.trips} round trips, the longest {self.longest * 1e3:.1f} ms", flush=True)
        if kind is None and (self.fault or not self.trips):
            raise AssertionError(f"the healthy client: {self.fault!r}")


def at_once(work, count=4):
    """Runs a function on so many threads; what goes wrong in one comes out here."""
    faults = []

    def run():
        try:
            work()
        except (OSError, AssertionError) as fault:
            faults.append(fault)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise AssertionError(f"{len(faults)} threads failed") from faults[0]


class Traffic(ServerCase):
    def test_slow_reader_gets_all_of_a_big_echo(self):
        payload = bytes(range(256)) * (MIB // 256)
        with Healthy(self.server), self.server.open(small=True) as client:
            client.send(frame(BINARY, payload))
            got = bytearray()
            while len(got) < len(payload) + 10:
                time.sleep(0.001)
                data = client.socket.recv(16384)
                self.assertTrue(data)
                got += data
            self.assertEqual(got[:10], b"\x82\x7f" + len(payload).to_bytes(8, "big"))
            self.assertEqual(bytes(got[10:]), payload)
            client.echo(b"afterwards")

    def test_reader_that_stops_is_cut_by_the_write_timeout(self):
        server = self.start("--write-timeout", "1000")
        with Healthy(server):
            level = server.level()
            with server.open(small=True) as client:
                client.send(frame(BINARY, bytes(8 * MIB)))
                begin = time.monotonic()
                server.wait_for_level(level)
                seconds = time.monotonic() - begin
                print(f"cut after {seconds:.2f} s", flush=True)
                self.assertGreater(seconds, 0.9)
                taken = client.rest()  # what was on its way; nothing stands behind a torn frame
                self.assertLess(len(taken), 8 * MIB)
                self.assertEqual(taken.strip(b"\0"), b"\x82\x7f\0\0\0\0\0\x80")

    def test_reader_that_takes_a_little_is_cut_by_the_write_timeout(self):
        """The timeout is for the whole write, however it trickles."""
        server = self.start("--write-timeout", "1000")
        with Healthy(server):
            level = server.level()
            with server.open(small=True) as client:
                client.send(frame(BINARY, bytes(8 * MIB)))
                begin, taken = time.monotonic(), 0
                with contextlib.suppress(ConnectionResetError):
                    while not server.at_level(level) and taken < MIB:
                        taken += len(client.socket.recv(1024))
                        time.sleep(0.02)
                server.wait_for_level(level)
                print(f"cut after {time.monotonic() - begin:.2f} s and {taken} bytes", flush=True)
                self.assertLess(taken, MIB)

    def test_idle_peer_is_closed_although_it_pings(self):
        server = self.start("--idle", "1000")
        with Healthy(server), server.open() as client:
            client.echo(b"begin")
            begin = time.monotonic()
            while not client.hung_up() and time.monotonic() - begin < PATIENCE:
                client.send(frame(PING, b"still here"))
                time.sleep(0.1)
            seconds = time.monotonic() - begin
            print(f"closed after {seconds:.2f} s", flush=True)
            self.assertGreater(seconds, 0.9)
            *pongs, last = client.frames()
            self.assertEqual({f.opcode for f in pongs}, {PONG})
            self.assertEqual((last.opcode, last.payload[:2]), (CLOSE, (1001).to_bytes(2, "big")))

    def test_reset_storm(self):
        def storm():
            for n in range(100):
                client = self.server.open(small=n % 2 == 0)
                client.send(frame(BINARY, bytes(100_000)) if n % 3 else frame(TEXT, b"x")[:5])
                client.reset()

        level = self.server.level()
        with Healthy(self.server):
            at_once(storm)
        self.server.wait_for_level(level)

    def test_pongs_that_nobody_reads(self):
        """4,000 long pings: those that found no room are dropped, but for the last, which needs no push."""
        with Healthy(self.server), self.server.open(small=True) as client:
            before = self.server.memory()
            payloads = [b"%08d" % n + b"x" * 117 for n in range(4000)]
            for payload in payloads:
                client.send(frame(PING, payload))
            self.assertLess(self.server.memory() - before, MIB)
            pongs = []
            while not pongs or pongs[-1] != payloads[-1]:
                pong = client.frame()
                self.assertEqual(pong.opcode, PONG)
                pongs.append(pong.payload)
            print(f"{len(pongs)} pongs for {len(payloads)} pings", flush=True)
            self.assertEqual(pongs, sorted(set(pongs)))
            client.echo(b"and on")

    def test_flood_of_pings(self):
        """The rate is low, lest a slow machine keep it."""
        server = self.serve("--control-rate", "50")
        with Healthy(server), server.open() as client:
            client.send(frame(PING) * 50_000)
            *pongs, last = client.frames()
            self.assertEqual({f.opcode for f in pongs}, {PONG})
            self.assertEqual((last.opcode, last.payload[:2]), (CLOSE, (1008).to_bytes(2, "big")))

    def test_flood_of_fragments(self):
        with Healthy(self.server), self.server.open() as client:
            client.send(frame(TEXT, b"x", fin=False) + frame(CONTINUATION, b"x", fin=False) * 65_536)
            self.assert_closed_with(client, 1008)

    def test_B117_churn(self):
        def churn():
            for n in range(500):
                with self.server.client() as client:
                    if n % 4 == 0:
                        continue  # connect and close
                    client.upgrade()
                    client.echo(b"hello")
                    if n % 4 == 2:
                        client.finish()

        level = self.server.level()
        with Healthy(self.server):
            at_once(churn)
        self.server.wait_for_level(level)


if __name__ == "__main__":
    main()
