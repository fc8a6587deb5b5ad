"""Round trips through permessage-deflate: random messages, splits, windows, levels and takeovers, against zlib itself
and against Python's websockets."""

import asyncio
import random
import unittest

import websockets
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory

import _tls
from _deflate import RSV1, DeflateClient, cut
from _examples import PATIENCE, quiet_loop
from _rawclient import BINARY, PING, PONG, TEXT, Frame, frame
from _server import Server, ServerCase, kind_options, main

WORDS = ("the", "message", "\"id\":", "room", "{", "}", "null", "grüße", "мир", "日本語", "🚀", "0.25", "true")
MESSAGES = 12


def some_text(rng, size):
    words = []
    while size > 0:
        word = rng.choice(WORDS) if rng.randrange(4) else str(rng.randrange(100_000))
        words.append(word)
        size -= len(word.encode()) + 1
    return " ".join(words)


def some_message(rng):
    """Opcode and bytes: text, noise, zeros, or a piece of noise again and again; mostly small."""
    size = rng.choice((0, 1, 2, 5, 125, 126, 511, 512, 513, 1000, 4096, 16384, 65535, 65536, 200_000))
    kind = rng.randrange(5)
    if kind < 2:
        return TEXT, some_text(rng, size).encode()
    if kind == 2:
        return BINARY, rng.randbytes(size)
    if kind == 3:
        return BINARY, bytes(size)
    piece = rng.randbytes(rng.choice((3, 100, 500, 1000, 5000, 30_000)))
    return BINARY, (piece * (size // len(piece) + 1))[:size]


class Trips(ServerCase):
    OPTIONS = ("--deflate",)
    # The server's own wishes, as `echo --deflate=PARAMS` takes them.
    SERVERS = ("", "takeover", "level=9,memory=9,takeover,threshold=0",
               "level=6,server-window=9,client-window=9,takeover",
               "level=1,memory=1,server-window=12,threshold=0")
    OFFERS = ("", "client_max_window_bits", "server_no_context_takeover", "client_no_context_takeover",
              "client_max_window_bits=9; server_max_window_bits=9", "client_max_window_bits=8",
              "server_max_window_bits=11; server_no_context_takeover; client_no_context_takeover")

    def trip(self, client, rng):
        """One message in random pieces, pings in between, there and back."""
        opcode, data = some_message(rng)
        if rng.randrange(4):
            payload, rsv = client.deflater.pack(data), RSV1
        else:
            payload, rsv = data, 0
        sizes = [rng.randrange(len(payload) // 2 + 1) for _ in range(rng.choice((0, 0, 1, 3, 30)))]
        pings = 0
        for part in cut(opcode, payload, sizes, rsv):
            if rng.randrange(8) == 0:
                part = frame(PING, b"%d" % pings) + part
                pings += 1
            client.send(part)
        answers = [client.message() for _ in range(pings + 1)]
        self.assertEqual([answer for answer in answers if isinstance(answer, Frame)],
                         [Frame(PONG, b"%d" % i) for i in range(pings)])
        [echo] = [answer for answer in answers if not isinstance(answer, Frame)]
        self.assertEqual(echo[:2], (opcode, data))

    def test_random_trips(self):
        rng = random.Random(7692)
        for wishes in self.SERVERS:
            server = self.start(f"--deflate={wishes}")
            for offer in self.OFFERS:
                with self.subTest(server=wishes, offer=offer), DeflateClient(server.address, secure=server.secure) as client:
                    terms = client.agree(offer, level=rng.randrange(10), memory=rng.randrange(1, 10))
                    self.assertIsNotNone(terms)
                    for _ in range(MESSAGES):
                        self.trip(client, rng)
                    client.finish()
            server.end_well()

    def test_final_blocks_among_others(self):
        """A sender may end its stream inside a message: the next begins with a new one."""
        rng = random.Random(1951)
        for offer in ("", "client_no_context_takeover"):
            with DeflateClient(self.server.address, secure=self.server.secure) as client:
                client.agree(offer)
                for _ in range(20):
                    data = some_text(rng, 300).encode()
                    flush = rng.choice((client.deflater.SYNC, client.deflater.FULL, client.deflater.FINISH))
                    client.send(b"".join(cut(TEXT, client.deflater.pack(data, flush), [rng.randrange(20)])))
                    self.assertEqual(client.message()[:2], (TEXT, data))


class Websockets(unittest.IsolatedAsyncioTestCase):
    FACTORIES = (
        {},
        {"client_max_window_bits": True},
        {"server_no_context_takeover": True, "client_no_context_takeover": True},
        {"server_max_window_bits": 10, "client_max_window_bits": 9},
        {"compress_settings": {"level": 9, "memLevel": 9}, "client_max_window_bits": 15},
        {"compress_settings": {"level": 1, "memLevel": 1}, "server_max_window_bits": 9},
    )

    async def asyncSetUp(self):
        quiet_loop()

    async def trips(self, server, factory, rng):
        extensions = [ClientPerMessageDeflateFactory(**factory)]
        trust = _tls.client_context() if server.secure else None
        url = f"{'wss' if trust else 'ws'}://{server.address}/"
        async with websockets.connect(url, ssl=trust, compression=None, extensions=extensions, max_size=None,
                                      open_timeout=PATIENCE, close_timeout=PATIENCE) as client:
            self.assertEqual([extension.name for extension in client.extensions], ["permessage-deflate"])
            for _ in range(MESSAGES):
                opcode, data = some_message(rng)
                message = data.decode() if opcode == TEXT else data
                await client.send(message)
                self.assertEqual(await asyncio.wait_for(client.recv(), PATIENCE), message)
            parts = [some_text(rng, 400) for _ in range(10)]
            await client.send(parts)
            self.assertEqual(await asyncio.wait_for(client.recv(), PATIENCE), "".join(parts))

    async def test_trips(self):
        rng = random.Random(6455)
        for wishes in Trips.SERVERS[:4]:
            server = Server(self, f"--deflate={wishes}", *kind_options())
            await asyncio.gather(*(self.trips(server, factory, random.Random(rng.random()))
                                   for factory in self.FACTORIES))
            await asyncio.to_thread(server.end_well)


if __name__ == "__main__":
    main()
