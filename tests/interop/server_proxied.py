"""nginx, haproxy and Envoy in front of the echo, as examples/proxies has them: ws and wss from the client, plain and TLS
to the echo behind."""

import types
import unittest

from _kit import HERE, build_gorilla, build_peer, cert, out_path, run, tls_options, tool
from _examples import fetch
from _proxies import Backend, Proxy
from _rawclient import BINARY, CLOSE, PING, PONG, TEXT, Frame, close_frame, frame


class Proxied(unittest.TestCase):
    """Three echoes behind one of them."""

    SECURE = False

    @classmethod
    def setUpClass(cls):
        owner = types.SimpleNamespace(addCleanup=cls.addClassCleanup)
        # A health check is plain HTTP to a server with TLS too: over TLS, as all is.
        cls.servers = [Backend(owner, *(tls_options() if cls.SECURE else ())) for _ in range(3)]
        cls.proxy = Proxy(owner, cls.NAME, [server.port for server in cls.servers], cls.SECURE)
        cls.plain = f"ws://127.0.0.1:{cls.proxy.plain}/"
        cls.secure = f"wss://127.0.0.1:{cls.proxy.secure}/"

    @classmethod
    def tearDownClass(cls):
        for server in cls.servers:
            server.end_well()

    def assert_ok(self, command, **env):
        status, said = run(command, **env)
        self.assertEqual((status, said), (0, "ok\n"))

    def test_gorilla(self):
        self.assert_ok([build_gorilla(), self.plain])

    def test_gorilla_over_tls(self):
        self.assert_ok([build_gorilla(), self.secure, cert("ca.pem")])

    def test_npm_ws_over_tls(self):
        build_peer("ws")
        self.assert_ok([tool("node"), str(HERE / "clients" / "ws.js"), self.secure, cert("ca.pem")],
                       NODE_PATH=out_path("bench", "peers", "ws", "node_modules"))

    def test_plain_get_is_answered(self):
        address = f"http://127.0.0.1:{self.proxy.plain}"
        self.assertEqual(fetch(address + "/")[0], 426)
        self.assertEqual(fetch(address + "/healthz")[::2], (200, b"ok\n"))

    def test_frames_of_every_kind(self):
        with self.proxy.connect() as client:
            for opcode, payload in ((TEXT, "ü".encode()), (BINARY, bytes(range(256)) * 4096), (TEXT, b"")):
                client.send(frame(opcode, payload))
                self.assertEqual(client.frame(), Frame(opcode, payload))
            client.send(frame(PING, b"there?"))
            self.assertEqual(client.frame(), Frame(PONG, b"there?"))
            client.send(frame(TEXT, b"in ", fin=False), frame(PING, b"1"), frame(0, b"parts"))
            self.assertEqual([client.frame(), client.frame()], [Frame(PONG, b"1"), Frame(TEXT, b"in parts")])

    def test_close_codes(self):
        """The client's comes back as it was, and the server's arrives, whatever ends after it."""
        for sent, code in ((close_frame(4001, b"why"), 4001), (close_frame(1000), 1000), (frame(TEXT, b"\xff"), 1007),
                           (frame(3, b""), 1002)):
            with self.subTest(code=code), self.proxy.connect() as client:
                client.send(sent)
                [last] = client.frames()
                self.assertEqual((last.opcode, int.from_bytes(last.payload[:2], "big")), (CLOSE, code))


class Nginx(Proxied):
    NAME = "nginx"


class Haproxy(Proxied):
    NAME = "haproxy"


class Envoy(Proxied):
    NAME = "envoy"


class NginxToTls(Nginx):
    SECURE = True


class HaproxyToTls(Haproxy):
    SECURE = True


class EnvoyToTls(Envoy):
    SECURE = True


del Proxied

if __name__ == "__main__":
    unittest.main()
