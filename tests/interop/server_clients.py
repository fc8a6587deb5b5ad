"""Clients that other people wrote against the echo, plain and over TLS, for each kind of thread."""

import asyncio
import os
import ssl
import types
import unittest
import unittest.mock

import websockets

from _kit import (CERTS, HERE, PATIENCE, build_gorilla, build_java, build_lws, build_peer, cert, folder, out_path, run, tls_options,
                  tool)
from _browser import Browser, Chromium
from _server import Server

CLIENTS = HERE / "clients"
SIZES = (0, 1, 125, 126, 65535, 65536, 1 << 20)
PAGE = """
new Promise((done) => {
  const sizes = %s, socket = new WebSocket("%s"), left = [];
  socket.binaryType = "arraybuffer";
  for (const size of sizes) {
    left.push("t".repeat(size), new Uint8Array(size).fill(255));
  }
  const next = () => (left.length ? socket.send(left[0]) : socket.close(1000, "bye"));
  socket.onopen = next;
  socket.onmessage = ({ data }) => {
    const sent = left.shift();
    const same = typeof sent === "string" ? data === sent
      : data.byteLength === sent.length && new Uint8Array(data).every((byte) => byte === 255);
    same ? next() : done("something else came back");
  };
  socket.onclose = ({ code, reason, wasClean }) => done([left.length, code, reason, wasClean].join(" "));
})
"""


class Plain(unittest.TestCase):
    """Against one server, which has to end well."""

    OPTIONS = ()
    SECURE = False

    @classmethod
    def setUpClass(cls):
        owner = types.SimpleNamespace(addCleanup=cls.addClassCleanup)
        cls.server = Server(owner, *(tls_options() if cls.SECURE else ()), *cls.OPTIONS)
        cls.url = f"{'wss' if cls.SECURE else 'ws'}://{cls.server.address}/"
        cls.ca = [cert("ca.pem")] if cls.SECURE else []

    @classmethod
    def tearDownClass(cls):
        cls.server.end_well()

    def assert_ok(self, command, **env):
        status, said = run(command, **env)
        self.assertEqual((status, said), (0, "ok\n"))

    def test_gorilla(self):
        self.assert_ok([build_gorilla(), self.url, *self.ca])

    def test_java(self):
        trust = [f"-Djavax.net.ssl.trustStore={CERTS}/ca.p12", "-Djavax.net.ssl.trustStorePassword=secret"]
        self.assert_ok([tool("java"), *(trust if self.SECURE else ()), "-cp", build_java(), "Java", self.url])

    def test_npm_ws(self):
        build_peer("ws")
        self.assert_ok([tool("node"), str(CLIENTS / "ws.js"), self.url, *self.ca],
                       NODE_PATH=out_path("bench", "peers", "ws", "node_modules"))

    def test_libwebsockets(self):
        port = self.server.address.rpartition(":")[2]
        self.assert_ok([build_lws(), "localhost", port, *self.ca])

    def test_websockets(self):
        async def talk():
            trust = ssl.create_default_context(cafile=self.ca[0]) if self.SECURE else None
            async with websockets.connect(self.url, ssl=trust, max_size=None, open_timeout=PATIENCE) as socket:
                for size in SIZES:
                    for data in ("t" * size, b"\xff" * size):
                        await socket.send(data)
                        self.assertEqual(await socket.recv(), data)
                await asyncio.wait_for(await socket.ping(b"are you there"), PATIENCE)
                await socket.close(1000, "bye")
                self.assertEqual((socket.close_code, socket.close_reason), (1000, "bye"))
        asyncio.run(talk())

    def test_chromium(self):
        async def talk():
            async with Browser(self.chromium()) as browser:
                page = await browser.open("about:blank#test")
                self.assertEqual(await page.value(PAGE % (list(SIZES), self.url)), "0 1000 bye true")
        asyncio.run(talk())

    def chromium(self):
        """A browser whose home has our CA, as a user's would have a company's."""
        home = folder(self.addCleanup)
        store = home / ".pki" / "nssdb"
        store.mkdir(parents=True)
        for words in (("-N", "--empty-password"), ("-A", "-n", "tws", "-t", "C,,", "-i", cert("ca.pem"))):
            status, said = run([tool("certutil"), "-d", f"sql:{store}", *words])
            self.assertEqual(status, 0, said)
        with unittest.mock.patch.dict(os.environ, HOME=str(home)):
            browser = Chromium()
        self.addCleanup(browser.close)
        return browser


class PlainLight(Plain):
    """Compressed too, where the client offers it."""
    OPTIONS = ("--threads", "light", "--deflate")


class Secure(Plain):
    SECURE = True

    def test_untrusted_is_refused_by_them(self):
        """The CA matters: without it, each client refuses; the server lives on."""
        for command in ([build_gorilla(), self.url],
                        [tool("java"), "-cp", build_java(), "Java", self.url]):
            status, said = run(command)
            self.assertEqual(status, 1, said)
            self.assertRegex(said, "(?i)certificate|certification")


class SecureLight(Secure):
    OPTIONS = ("--threads", "light", "--deflate=takeover")


if __name__ == "__main__":
    unittest.main()
