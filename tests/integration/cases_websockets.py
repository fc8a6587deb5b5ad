"""A client that other people wrote, Python's websockets, against the echo."""

import asyncio
import os
import unittest

import websockets

import _tls
from _examples import PATIENCE, quiet_loop
from _server import Server, kind_options, main

MIB = 1 << 20


class Websockets(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        quiet_loop()
        self.server = Server(self, *kind_options())

    async def asyncTearDown(self):
        await asyncio.to_thread(self.server.end_well)

    def connect(self, **options):
        trust = _tls.client_context() if self.server.secure else None
        return websockets.connect(f"{'wss' if trust else 'ws'}://{self.server.address}/", ssl=trust, open_timeout=PATIENCE,
                                  close_timeout=PATIENCE, max_size=None, **options)

    async def echo(self, client, message, expected=None):
        await client.send(message)
        got = await asyncio.wait_for(client.recv(), PATIENCE)
        self.assertEqual(got, message if expected is None else expected)

    async def test_text_and_binary_of_many_sizes(self):
        async with self.connect() as client:  # offers compression, as it does by default
            for size in (0, 1, 125, 126, 65535, 65536, MIB):
                await self.echo(client, os.urandom(size))
                await self.echo(client, "ü" * (size // 2))

    async def test_fragments(self):
        async with self.connect(compression=None) as client:
            await self.echo(client, ["frag", "", "mön", "ted"], "fragmönted")
            await self.echo(client, [bytes(70_000), b"x" * 5, b""], bytes(70_000) + b"x" * 5)

    async def test_pings_and_pongs(self):
        async with self.connect(compression=None) as client:
            for data in (b"", b"ping", bytes(range(125))):
                await asyncio.wait_for(await client.ping(data), PATIENCE)
            await client.pong(b"nobody asked")
            await self.echo(client, "and on")

    async def test_close_codes_come_back(self):
        for code, reason in ((1000, ""), (1001, "bye"), (1011, "ü" * 61), (3000, "x" * 123), (4999, "")):
            with self.subTest(code=code):
                async with self.connect(compression=None) as client:
                    await self.echo(client, "x")
                    await client.close(code, reason)
                    self.assertEqual((client.close_code, client.close_reason), (code, reason))

    async def test_many_at_once(self):
        async def one(n):
            async with self.connect() as client:
                for i in range(20):
                    await self.echo(client, f"{n}.{i}")
        await asyncio.gather(*(one(n) for n in range(50)))

    async def test_drain_says_going_away(self):
        clients = [await self.connect() for _ in range(5)]
        for client in clients:
            await self.echo(client, "x")
        self.server.process.terminate()
        for client in clients:
            await asyncio.wait_for(client.wait_closed(), PATIENCE)
            self.assertEqual(client.close_code, 1001)
        self.assertEqual(await asyncio.to_thread(self.server.wait), 0)


if __name__ == "__main__":
    main()
