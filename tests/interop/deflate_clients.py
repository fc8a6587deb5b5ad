"""Round trips through compression with clients that other people wrote: gorilla, gws and coder for Go, npm's ws. Several
settings of the echo on both kinds of thread."""

import types
import unittest

from _kit import HERE, build, build_peer, out_path, run, tool
from _server import Server

SETTINGS = ("", "takeover", "takeover,level=9,memory=9,threshold=0", "level=6,server-window=9,client-window=9,takeover")


class Trips(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        owner = types.SimpleNamespace(addCleanup=cls.addClassCleanup)
        cls.servers, lines = [], []
        for kind in ("kernel", "light"):
            for setting in SETTINGS:
                server = Server(owner, f"--deflate={setting}", "--threads", kind)
                cls.servers.append(server)
                lines.append(f"{kind}:{setting or 'defaults'} ws://{server.address}/")
        cls.go = build("deflate", tool("go"), "test", "-C", str(HERE / "clients" / "deflate"), "-c", "-o", "OUT", ".")
        cls.env = {"TWS_ECHO": "\n".join(lines)}

    @classmethod
    def tearDownClass(cls):
        for server in cls.servers:
            server.end_well()

    def check_go(self, name):
        status, said = run([self.go, "-test.run", name], **self.env)
        self.assertEqual(status, 0, said)

    def test_gorilla(self):
        self.check_go("^TestGorilla$")

    def test_gws(self):
        self.check_go("^TestGws$")

    def test_coder(self):
        self.check_go("^TestCoder$")

    def test_npm_ws(self):
        build_peer("ws")
        status, said = run([tool("node"), str(HERE / "clients" / "deflate.js")], **self.env,
                           NODE_PATH=out_path("bench", "peers", "ws", "node_modules"))
        self.assertEqual((status, said), (0, "ok\n"))


if __name__ == "__main__":
    unittest.main()
