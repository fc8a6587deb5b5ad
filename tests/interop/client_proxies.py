"""The library's client through proxies that other people wrote: tinyproxy (CONNECT) and microsocks (SOCKS5)."""

import types
import unittest

from _kit import Service, build_path, cert, folder, free_port, run, tls_options, tool
from _server import Server

DIAL = build_path("tests", "interop", "dial")
SECURE = ["--ca", cert("ca.pem")]
TINYPROXY = """
Port {port}
Listen 127.0.0.1
Timeout 60
MaxClients 20
LogLevel Connect
Allow 127.0.0.1
ConnectPort {plain}
ConnectPort {secure}
{more}
"""


class Proxies(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        owner = types.SimpleNamespace(addCleanup=cls.addClassCleanup)
        cls.servers = [Server(owner), Server(owner, *tls_options())]
        cls.plain, cls.secure = (int(server.address.rpartition(":")[2]) for server in cls.servers)

    @classmethod
    def tearDownClass(cls):
        for server in cls.servers:
            server.end_well()

    def assert_ok(self, *words, **env):
        for url in ([f"ws://127.0.0.1:{self.plain}/"], [*SECURE, f"wss://127.0.0.1:{self.secure}/"],
                    [f"ws://localhost:{self.plain}/"], [*SECURE, f"wss://localhost:{self.secure}/"]):
            with self.subTest(url=url[-1]):
                self.assertEqual(run([DIAL, *words, *url], **env), (0, "ok\n"))

    def assert_refused(self, text, *words, **env):
        status, said = run([DIAL, *words], **env)
        self.assertEqual(status, 1)
        self.assertRegex(said, text)

    def tinyproxy(self, more=""):
        port = free_port()
        path = folder(self.addCleanup) / "conf"
        path.write_text(TINYPROXY.format(port=port, plain=self.plain, secure=self.secure, more=more),
                        encoding="ascii")
        Service(self.addCleanup, [tool("tinyproxy"), "-d", "-c", str(path)], port)
        return port

    def microsocks(self, *options):
        port = free_port()
        Service(self.addCleanup, [tool("microsocks"), "-i", "127.0.0.1", "-p", str(port), *options], port)
        return port

    def test_connect(self):
        proxy = f"http://127.0.0.1:{self.tinyproxy()}"
        self.assert_ok("--proxy", proxy)
        self.assert_ok("--env", all_proxy=proxy, http_proxy="", https_proxy="", no_proxy="")

    def test_connect_with_password(self):
        port = self.tinyproxy("BasicAuth user pass-word")
        self.assert_ok("--proxy", f"http://user:pass%2dword@127.0.0.1:{port}")
        url = f"ws://127.0.0.1:{self.plain}/"
        self.assert_refused("TWS_ERR_PROXY .* 407", "--proxy", f"http://127.0.0.1:{port}", url)
        self.assert_refused("TWS_ERR_PROXY .* 40[17]", "--proxy", f"http://user:wrong@127.0.0.1:{port}", url)
        self.assertEqual(run([DIAL, "--proxy", f"127.0.0.1:{port}", "--proxy-header",
                              "Proxy-Authorization:Basic dXNlcjpwYXNzLXdvcmQ=", url]), (0, "ok\n"))

    def test_connect_that_is_not_allowed(self):
        self.assert_refused("TWS_ERR_PROXY .* 403", "--proxy", f"http://127.0.0.1:{self.tinyproxy()}",
                            f"ws://127.0.0.1:{free_port()}/")

    def test_exceptions(self):
        """What no_proxy lists does not go through a proxy, which is not even there."""
        gone = f"http://127.0.0.1:{free_port()}"
        self.assert_ok("--env", all_proxy=gone, no_proxy="localhost, 127.0.0.0/8", http_proxy="", https_proxy="")
        self.assert_refused("TWS_ERR_CONNECT", "--env", f"ws://127.0.0.1:{self.plain}/", all_proxy=gone,
                            no_proxy="example.com", http_proxy="", https_proxy="")

    def test_socks(self):
        port = self.microsocks()
        for scheme in ("socks5", "socks5h"):
            self.assert_ok("--proxy", f"{scheme}://127.0.0.1:{port}")

    def test_socks_with_password(self):
        port = self.microsocks("-u", "user", "-P", "pass:word")
        self.assert_ok("--proxy", f"socks5h://user:pass%3aword@127.0.0.1:{port}")
        url = f"ws://127.0.0.1:{self.plain}/"
        self.assert_refused("TWS_ERR_PROXY .*authorisation", "--proxy", f"socks5://127.0.0.1:{port}", url)
        self.assert_refused("TWS_ERR_PROXY .*did not accept user and password", "--proxy",
                            f"socks5://user:wrong@127.0.0.1:{port}", url)

    def test_socks_target_that_refuses(self):
        self.assert_refused("TWS_ERR_PROXY .*: connection refused", "--proxy",
                            f"socks5h://127.0.0.1:{self.microsocks()}", f"ws://127.0.0.1:{free_port()}/")


if __name__ == "__main__":
    unittest.main()
