"""The library's client against servers that other people wrote, plain and over TLS."""

import asyncio
import ssl
import threading
import unittest

import websockets

from _kit import Service, answers, build_path, cert, free_port, peer, run, tool, wait_for

DIAL = build_path("tests", "interop", "dial")
SECURE = ["--ca", cert("ca.pem")]


class Websockets:
    """Python's, in a thread of its own."""

    def __init__(self, cleanup, name=None):
        """name: of the certificate; None: plain."""
        self.loop = asyncio.new_event_loop()
        self.ready = threading.Event()
        self.context = None
        if name:
            self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self.context.load_cert_chain(cert(name + ".pem"), cert(name + ".key"))
        self.thread = threading.Thread(target=self.loop.run_until_complete, args=(self.serve(),), daemon=True)
        self.thread.start()
        cleanup(self.end)
        self.ready.wait()

    async def serve(self):
        self.stop = asyncio.Event()
        async with websockets.serve(self.echo, "127.0.0.1", 0, ssl=self.context, max_size=None) as server:
            self.port = server.sockets[0].getsockname()[1]
            self.ready.set()
            await self.stop.wait()

    @staticmethod
    async def echo(socket):
        async for message in socket:
            await socket.send(message)

    def end(self):
        self.loop.call_soon_threadsafe(self.stop.set)
        self.thread.join()


class Servers(unittest.TestCase):
    def assert_ok(self, *words):
        status, said = run([DIAL, *words])
        self.assertEqual((status, said), (0, "ok\n"))

    def check(self, name, both=True):
        """both: it can compress over TLS."""
        self.assert_ok(peer(self.addCleanup, name))
        self.assert_ok("--deflate", peer(self.addCleanup, name, deflate=True))
        secure = peer(self.addCleanup, name, secure=True, deflate=both)
        self.assert_ok(*SECURE, secure)
        self.assert_ok(*SECURE, "--light", *(["--deflate"] if both else []), secure)

    def test_gorilla(self):
        self.check("gorilla")

    def test_npm_ws(self):
        self.check("ws")

    def test_libwebsockets(self):
        # 4.1 ends by an assertion of its own when it compresses over TLS, whoever the client is.
        self.check("libwebsockets", both=False)

    def test_websockets(self):
        self.assert_ok(f"ws://127.0.0.1:{Websockets(self.addCleanup).port}/")
        server = Websockets(self.addCleanup, "server")
        self.assert_ok(*SECURE, f"wss://127.0.0.1:{server.port}/")
        self.assert_ok(*SECURE, "--deflate", "--light", "--tls13", f"wss://localhost:{server.port}/")

    def test_openssl_is_refused_what_is_no_websocket(self):
        """A TLS server that answers with a page."""
        port = free_port()
        Service(self.addCleanup, [tool("openssl"), "s_server", "-www", "-accept", str(port), "-cert",
                                  cert("server.pem"), "-key", cert("server.key")])
        wait_for("s_server", lambda: answers(port))
        status, said = run([DIAL, *SECURE, f"wss://127.0.0.1:{port}/"])
        self.assertEqual(status, 1)
        self.assertRegex(said, "TWS_ERR_(REFUSED|HANDSHAKE)")


if __name__ == "__main__":
    unittest.main()
