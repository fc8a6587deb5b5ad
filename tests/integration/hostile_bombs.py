"""Compressed messages that are meant to eat memory: a limit ends each of them, and the release build never holds more
than that limit and a little."""

import socket
import threading

from _deflate import RSV1, DeflateClient, Deflater, cut, zeros
from _rawclient import BINARY, CLOSE, PING, PONG, frame
from _server import ServerCase, main, release_path

MIB = 1 << 20
LIMIT = 16 * MIB  # the default of max_message
# What a message may cost beside the bytes it inflates to: see docs/compression.md.
BESIDE = MIB
FRAGMENTS = 20_000
CROWD = 32
OFFERS = ("client_max_window_bits", "server_no_context_takeover; client_no_context_takeover")


class Bombs(ServerCase):
    NAME = release_path("examples", "echo")
    OPTIONS = ("--deflate",)

    def peak(self, server):
        """The most memory that was resident since calm()."""
        with open(server.proc("status"), encoding="ascii") as file:
            [line] = [line for line in file if line.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024

    def calm(self, server):
        """Forgets the peak so far."""
        with open(server.proc("clear_refs"), "w", encoding="ascii") as file:
            file.write("5")
        return self.peak(server)

    def agreed(self, server, offer=OFFERS[0]):
        client = DeflateClient(server.address)
        self.addCleanup(client.close)
        self.assertIsNotNone(client.agree(offer))
        return client

    def warm(self, server):
        """What any connection brings with it is there already."""
        with DeflateClient(server.address) as client:
            client.agree(OFFERS[0])
            client.swap(b"warm " * 1000)
            client.finish()

    def throw(self, client, data):
        """Sends on a thread of its own, since the server may stop reading before the end."""
        def send():
            try:
                client.socket.sendall(data)
            except OSError:
                pass  # the server has hung up
        client.sender = threading.Thread(target=send, daemon=True)
        client.sender.start()

    def hang_up(self, client):
        """A descriptor may be closed only when no thread waits for it any more."""
        try:
            client.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the server was faster
        client.sender.join()
        client.close()

    def close_code(self, client):
        """The code the connection ends with; nothing but pongs may arrive before."""
        last = client.frame()
        while last.opcode == PONG:
            last = client.frame()
        self.assertEqual(last.opcode, CLOSE)
        return int.from_bytes(last.payload[:2], "big")

    def bombs(self):
        """By name: the bytes of one hostile message each."""
        once = zeros(1 << 30)
        step = len(once) // FRAGMENTS
        yield "one frame", frame(BINARY, once, rsv=RSV1)
        yield "fragments", b"".join(cut(BINARY, once, [step] * (FRAGMENTS - 1)))
        parts = cut(BINARY, once, [step] * (FRAGMENTS - 1))
        yield "pings in between", b"".join(part + frame(PING, b"?") for part in parts[:100]) + b"".join(parts[100:])

    def test_B102_one_gibibyte(self):
        for offer in OFFERS:
            for name, data in self.bombs():
                with self.subTest(offer=offer, bomb=name):
                    server = self.start("--deflate", program=self.NAME)  # malloc keeps some of what is freed
                    self.warm(server)
                    before = self.calm(server)
                    client = self.agreed(server, offer)
                    self.throw(client, data)
                    self.assertEqual(self.close_code(client), 1009)
                    self.hang_up(client)
                    grown = self.peak(server) - before
                    print(f"{name}: {grown / MIB:.2f} MiB more", flush=True)
                    self.assertLess(grown, LIMIT + BESIDE)
                    server.end_well()

    def test_B102_deflated_twice_over(self):
        """What inflates to the bomb is data like any other: as long as it stays below the limit it is echoed, and
        the second layer is never looked into."""
        once = zeros(1 << 30)
        payload = Deflater(level=9).pack(once)
        print(f"{1 << 30} bytes, {len(once)} deflated, {len(payload)} deflated twice", flush=True)
        small = self.start("--deflate", "--max-message", str(64 << 10), program=self.NAME)
        forms = (frame(BINARY, payload, rsv=RSV1),
                 b"".join(cut(BINARY, payload, [1 if i % 4 == 0 and i // 4 < len(payload) - 1 else 0
                                                for i in range(FRAGMENTS - 1)])))
        for data in forms:
            before = self.calm(self.server)
            client = self.agreed(self.server)
            self.throw(client, data)
            self.assertEqual(client.message()[:2], (BINARY, once))
            self.hang_up(client)
            self.assertLess(self.peak(self.server) - before, 4 * len(once) + BESIDE)
            before = self.calm(small)
            client = self.agreed(small)
            self.throw(client, data)
            self.assertEqual(self.close_code(client), 1009)
            self.hang_up(client)
            self.assertLess(self.peak(small) - before, (64 << 10) + BESIDE)
        small.end_well()

    def crowd(self, server, data):
        """32 bombs at once; the most memory that was resident."""
        clients = [self.agreed(server) for _ in range(CROWD)]
        for client in clients:
            self.throw(client, data)
        for client in clients:
            self.assertEqual(self.close_code(client), 1009)
            self.hang_up(client)
        return self.peak(server)

    def test_B102_many_at_once(self):
        """The bombs of a crowd cost what their limits add up to, and the next crowd no more."""
        server = self.start("--deflate", "--max-message", str(MIB), program=self.NAME)
        self.warm(server)
        before = self.calm(server)
        peaks = [self.crowd(server, frame(BINARY, zeros(64 * MIB), rsv=RSV1)) - before for _ in range(6)]
        print([f"{peak / MIB:.1f} MiB" for peak in peaks], flush=True)
        self.assertLess(peaks[-1], CROWD * (MIB + BESIDE // 2))
        server.end_well()

    def test_blocks_of_nothing(self):
        """Compressed bytes without end that inflate to nothing: they count as well."""
        server = self.start("--deflate", "--max-message", str(64 << 10), program=self.NAME)
        nothing = bytes.fromhex("000000ffff") * (8 * MIB // 5)
        for data in (frame(BINARY, nothing, rsv=RSV1),
                     b"".join(cut(BINARY, nothing, [16384] * (len(nothing) // 16384 - 1)))):
            before = self.calm(server)
            client = self.agreed(server)
            self.throw(client, data)
            self.assertEqual(self.close_code(client), 1009)
            self.hang_up(client)
            self.assertLess(self.peak(server) - before, BESIDE)
        server.end_well()


if __name__ == "__main__":
    main()
