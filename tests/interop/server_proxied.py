"""nginx and haproxy in front of the echo: ws and wss from the client, plain and TLS to the echo behind."""

import types
import unittest

from _kit import (HERE, Service, build_gorilla, build_peer, cert, folder, free_port, out_path, run, tls_options, tool,
                  wait_for)
from _examples import fetch
from _server import Server

NGINX = """
daemon off;
master_process off;
pid {folder}/pid;
error_log stderr;
events {{ worker_connections 100; }}
http {{
    access_log off;
    client_body_temp_path {folder};
    proxy_temp_path {folder};
    fastcgi_temp_path {folder};
    uwsgi_temp_path {folder};
    scgi_temp_path {folder};
    ssl_certificate {pem};
    ssl_certificate_key {key};
    server {{
        listen 127.0.0.1:{plain};
        listen 127.0.0.1:{secure} ssl;
        location / {{
            proxy_pass {scheme}://{address};
            proxy_http_version 1.1;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection "upgrade";
            proxy_set_header Host $host:$server_port;
            proxy_ssl_trusted_certificate {ca};
            proxy_ssl_verify on;
            proxy_ssl_name localhost;
            proxy_ssl_server_name on;
        }}
    }}
}}
"""

# Its health checks are GET in HTTP/1.0 without a Host; a server that is down gets no connection.
HAPROXY = """
defaults
    mode http
    timeout connect 30s
    timeout client 30s
    timeout server 30s
    timeout tunnel 60s
frontend front
    bind 127.0.0.1:{plain}
    bind 127.0.0.1:{secure} ssl crt {both} alpn http/1.1
    default_backend echo
backend echo
    option httpchk GET /
    http-check expect status 426
    server one {address} check inter 100ms rise 2 fall 1 {tls}
frontend health
    bind 127.0.0.1:{health}
    monitor-uri /alive
    monitor fail if {{ nbsrv(echo) lt 1 }}
"""


class Proxied(unittest.TestCase):
    """Against one echo behind one of them."""

    @classmethod
    def setUpClass(cls):
        owner = types.SimpleNamespace(addCleanup=cls.addClassCleanup)
        cls.server = Server(owner, *(tls_options() if cls.SECURE else ()))
        cls.folder = folder(cls.addClassCleanup)
        cls.plain, cls.secure, cls.health = free_port(), free_port(), free_port()
        both = cls.folder / "both.pem"
        with open(both, "wb") as out:
            for name in ("server.pem", "server.key"):
                with open(cert(name), "rb") as part:
                    out.write(part.read())
        cls.start(dict(folder=cls.folder, plain=cls.plain, secure=cls.secure, health=cls.health, both=both,
                       address=cls.server.address, pem=cert("server.pem"), key=cert("server.key"), ca=cert("ca.pem"),
                       scheme="https" if cls.SECURE else "http",
                       tls=f"ssl verify required ca-file {cert('ca.pem')} verifyhost localhost" if cls.SECURE else ""))

    @classmethod
    def tearDownClass(cls):
        cls.server.end_well()

    @classmethod
    def configure(cls, text, values):
        path = cls.folder / "conf"
        path.write_text(text.format(**values), encoding="ascii")
        return str(path)

    def assert_ok(self, command, **env):
        status, said = run(command, **env)
        self.assertEqual((status, said), (0, "ok\n"))

    def test_gorilla(self):
        self.assert_ok([build_gorilla(), f"ws://127.0.0.1:{self.plain}/"])

    def test_gorilla_over_tls(self):
        self.assert_ok([build_gorilla(), f"wss://127.0.0.1:{self.secure}/", cert("ca.pem")])

    def test_npm_ws_over_tls(self):
        build_peer("ws")
        self.assert_ok([tool("node"), str(HERE / "clients" / "ws.js"), f"wss://127.0.0.1:{self.secure}/",
                        cert("ca.pem")], NODE_PATH=out_path("bench", "peers", "ws", "node_modules"))

    def test_plain_get_is_answered(self):
        self.assertEqual(fetch(f"http://127.0.0.1:{self.plain}/")[0], 426)


class Nginx(Proxied):
    SECURE = False

    @classmethod
    def start(cls, values):
        Service(cls.addClassCleanup, [tool("nginx"), "-p", str(cls.folder), "-c", cls.configure(NGINX, values)],
                cls.plain, cls.secure)


class Haproxy(Proxied):
    SECURE = False

    @classmethod
    def start(cls, values):
        Service(cls.addClassCleanup, [tool("haproxy"), "-db", "-f", cls.configure(HAPROXY, values)],
                cls.plain, cls.secure, cls.health)
        wait_for("a server that passes its health check", cls.healthy)

    @classmethod
    def healthy(cls):
        return fetch(f"http://127.0.0.1:{cls.health}/alive")[0] == 200

    def tearDown(self):
        self.assertTrue(self.healthy())  # checks go on all the time, and one that failed would be seen


class NginxToTls(Nginx):
    SECURE = True


class HaproxyToTls(Haproxy):
    SECURE = True


del Proxied

if __name__ == "__main__":
    unittest.main()
