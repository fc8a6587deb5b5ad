"""The client before TLS servers: what it accepts, what it refuses and how it says so, and servers that are hostile."""

import os
import re
import socket
import ssl
import subprocess
import threading
import time
import unittest
import unittest.mock
import warnings

import _tls
from _examples import PATIENCE, Program, build_path
from _server import Server

DIAL = build_path("tests", "interop", "dial")
TLS_PHASE = 9


def dial(*words, trust="ca"):
    """Dials, says hello in all sizes, closes; the exit status and what was said."""
    light = ["--light"] if os.environ.get("TWS_TEST_THREADS") == "light" else []
    ca = ["--ca", _tls.cert(trust + ".pem")] if trust else []
    done = subprocess.run([DIAL, *light, *ca, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=2 * PATIENCE, check=False)
    return done.returncode, done.stdout.decode()


class Listener:
    """Accepts TCP connections one by one and hands each to a function, in a thread of its own."""

    def __init__(self, test, talk, host="127.0.0.1"):
        self.talk = talk
        self.failures = []
        self.listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.port = self.listener.getsockname()[1]
        self.url = f"wss://{'[' + host + ']' if ':' in host else host}:{self.port}/"
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        test.addCleanup(self.end)

    def run(self):
        while True:
            try:
                link, _ = self.listener.accept()
            except OSError:
                return
            with link:
                link.settimeout(PATIENCE)
                try:
                    self.talk(link)
                except (OSError, ValueError) as error:
                    self.failures.append(error)

    def end(self):
        """Once or more often."""
        if self.thread.is_alive():
            self.listener.shutdown(socket.SHUT_RDWR)
            self.thread.join()
        self.listener.close()


def server_context(name="server", **settings):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(_tls.cert(name + ".pem"), _tls.cert(name + ".key"))
    for key, value in settings.items():
        setattr(context, key, value)
    return context


class Verdicts(unittest.TestCase):
    """One echo for each certificate."""

    # certificate, host, what the text has to say; each in words of its own
    REFUSED = (
        ("expired", "127.0.0.1", "expired"),
        ("future", "127.0.0.1", "not valid before"),
        ("wrong-name", "localhost", "localhost"),
        ("wrong-ip", "127.0.0.1", "127.0.0.1"),
        ("no-names", "localhost", "localhost"),
        ("self-signed", "localhost", "self-signed"),
        ("untrusted", "localhost", "nobody trusts"),
        ("truncated", "localhost", "issued by .*intermediate CA.* incomplete"),
    )

    def serve(self, name):
        key = "chain" if name == "truncated" else name
        server = Server(self, "--tls", _tls.cert(name + ".pem"), _tls.cert(key + ".key"))
        return server, server.address.rpartition(":")[2]

    def test_accepted(self):
        _, port = self.serve("server")
        for host in ("127.0.0.1", "localhost", "LOCALHOST"):
            self.assertEqual(dial(f"wss://{host}:{port}/"), (0, "ok\n"))
        [address] = Program(self, "echo", "--listen", "[::1]:0", *_tls.options()).addresses()
        self.assertEqual(dial(f"wss://{address}/"), (0, "ok\n"))

    def test_chain_through_an_intermediate(self):
        _, port = self.serve("chain")
        self.assertEqual(dial(f"wss://localhost:{port}/"), (0, "ok\n"))

    def test_another_name_than_the_host(self):
        _, port = self.serve("name")
        for name in ("name.example", "a.wild.example"):
            self.assertEqual(dial("--server-name", name, f"wss://127.0.0.1:{port}/"), (0, "ok\n"))
        for name in ("wild.example", "a.b.wild.example", "other.example"):
            status, said = dial("--server-name", name, f"wss://127.0.0.1:{port}/")
            self.assertEqual((status, said.split()[0]), (1, "TWS_ERR_CERTIFICATE"))

    def test_B156_refused_in_words_of_their_own(self):
        """Also: nothing is refused that --insecure would not take."""
        texts = {}
        for name, host, wanted in self.REFUSED:
            with self.subTest(name):
                server, port = self.serve(name)
                url = f"wss://{host}:{port}/"
                status, said = dial(url)
                self.assertEqual(status, 1)
                self.assertRegex(said, f"^TWS_ERR_CERTIFICATE phase {TLS_PHASE} ")
                self.assertRegex(said, f"(?i){wanted}")
                print(name, said, end="", flush=True)
                texts[re.sub(r"\d{2,}", "", said).replace("localhost", "").replace("...", "")] = name
                self.assertEqual(dial("--insecure", url), (0, "ok\n"))
                server.end_well()
        self.assertGreaterEqual(len(texts), 6)

    def test_the_systems_trust_is_the_default(self):
        """Which does not have the tests' CA, unless OpenSSL's own variable names it."""
        _, port = self.serve("server")
        url = f"wss://localhost:{port}/"
        status, said = dial(url, trust=None)
        self.assertEqual((status, said.split()[0]), (1, "TWS_ERR_CERTIFICATE"))
        with unittest.mock.patch.dict(os.environ, SSL_CERT_FILE=_tls.cert("ca.pem")):
            self.assertEqual(dial(url, trust=None), (0, "ok\n"))

    def test_B156_nothing_is_sent_to_who_is_not_trusted(self):
        got = []

        def talk(link):
            secure = server_context("wrong-name").wrap_socket(link, server_side=True)
            with secure:
                got.append(secure.recv(1))
        server = Listener(self, talk)
        status, said = dial(f"wss://localhost:{server.port}/")
        self.assertEqual((status, said.split()[0]), (1, "TWS_ERR_CERTIFICATE"))
        server.end()
        self.assertIn(got, ([], [b""]))


class Names(unittest.TestCase):
    """What the client says in its hello."""

    def ask(self, host, *words, family="127.0.0.1"):
        """The name and the protocol that a server sees."""
        seen = []

        def on_name(_socket, name, _context):
            seen.append(name)

        def talk(link):
            context = server_context(sni_callback=on_name)
            context.set_alpn_protocols(["http/1.1"])
            with context.wrap_socket(link, server_side=True) as secure:
                seen.append(secure.selected_alpn_protocol())
        server = Listener(self, talk, family)
        dial(*words, f"wss://{host}:{server.port}/")
        server.end()
        return seen

    def test_B158_no_name_for_an_address(self):
        self.assertEqual(self.ask("127.0.0.1"), [None, "http/1.1"])
        self.assertEqual(self.ask("[::1]", family="::1"), [None, "http/1.1"])

    def test_name_of_a_host(self):
        self.assertEqual(self.ask("localhost"), ["localhost", "http/1.1"])
        self.assertEqual(self.ask("127.0.0.1", "--server-name", "name.example")[0], "name.example")


class Clients(unittest.TestCase):
    """Certificates of clients."""

    def dial(self, *words):
        def talk(link):
            context = server_context(verify_mode=ssl.CERT_REQUIRED)
            context.load_verify_locations(_tls.cert("ca.pem"))
            with context.wrap_socket(link, server_side=True) as secure:
                secure.recv(1000)
                secure.sendall(b"HTTP/1.1 403 Who are you\r\nContent-Length: 0\r\n\r\n")
                secure.unwrap()
        return dial(*words, Listener(self, talk).url)

    def certificate(self, name):
        return ["--cert", _tls.cert(name + ".pem"), "--key", _tls.cert(name + ".key")]

    def test_shown_and_accepted(self):
        status, said = self.dial(*self.certificate("client"))
        self.assertEqual((status, said.split()[0]), (1, "TWS_ERR_REFUSED"))

    def test_missing_or_not_trusted(self):
        """In TLS 1.3 the server says so after the client's handshake is done."""
        for words in ([], self.certificate("untrusted-client")):
            status, said = self.dial(*words)
            self.assertEqual(status, 1)
            self.assertRegex(said, "^TWS_ERR_(TLS|CERTIFICATE) ")

    def test_key_of_another(self):
        status, said = self.dial("--cert", _tls.cert("client.pem"), "--key", _tls.cert("server.key"))
        self.assertEqual(status, 1)
        self.assertRegex(said, "^TWS_ERR_(TLS|CERTIFICATE)")


class Hostile(unittest.TestCase):
    def assert_fails(self, talk, wanted, *words):
        """The client says `wanted` in the end, of whatever the server does."""
        status, said = dial(*words, Listener(self, talk).url)
        self.assertEqual(status, 1)
        self.assertRegex(said, wanted)

    def test_silence_in_place_of_a_handshake(self):
        self.assert_fails(lambda link: link.recv(100_000) and link.recv(1),
                          f"^TWS_ERR_HANDSHAKE_TIMEOUT phase {TLS_PHASE} ", "--timeout", "500")

    def test_half_a_handshake(self):
        def talk(link):
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            secure = server_context().wrap_bio(incoming, outgoing, server_side=True)
            incoming.write(link.recv(100_000))
            try:
                secure.do_handshake()
            except ssl.SSLWantReadError:
                pass
            flight = outgoing.read()
            link.sendall(flight[:len(flight) // 2])
            link.recv(1)
        self.assert_fails(talk, f"^TWS_ERR_HANDSHAKE_TIMEOUT phase {TLS_PHASE} ", "--timeout", "500")

    def test_handshake_in_single_bytes(self):
        """Slow, but in time."""
        def talk(link):
            secure = _tls.TlsSocket(Dripping(link))
            secure.tls = server_context().wrap_bio(secure.incoming, secure.outgoing, server_side=True)
            secure.recv(1000)
            secure.sendall(b"HTTP/1.1 404 Not here\r\nContent-Length: 0\r\n\r\n")
        self.assert_fails(talk, "^TWS_ERR_REFUSED .*404")

    def test_handshake_in_single_bytes_is_cut(self):
        """A byte now and then does not put the deadline off."""
        def talk(link):
            link.recv(100_000)
            for byte in b"\x16\x03\x03\x40\x00" + b"\x02\x00\x3f\xf0" * 4000:
                link.sendall(bytes([byte]))
                time.sleep(0.01)
        self.assert_fails(talk, f"^TWS_ERR_HANDSHAKE_TIMEOUT phase {TLS_PHASE} ", "--timeout", "700")

    def test_plain_http_and_garbage(self):
        for answer in (b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff" * 1000, bytes(1000), b"SSH-2.0-x\r\n"):
            with self.subTest(answer=answer[:8]):
                self.assert_fails(lambda link, answer=answer: link.recv(1) and link.sendall(answer),
                                  f"^TWS_ERR_TLS phase {TLS_PHASE} ")

    def test_end_inside_the_handshake(self):
        self.assert_fails(lambda link: link.recv(100_000), f"^TWS_ERR_[A-Z]+ phase {TLS_PHASE} ")

    def test_old_versions_only(self):
        def talk(link):
            context = server_context()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
            context.set_ciphers("ALL:@SECLEVEL=0")
            context.wrap_socket(link, server_side=True)
        self.assert_fails(talk, f"^TWS_ERR_TLS phase {TLS_PHASE} .*version")

    def test_truncation_is_told_from_an_end(self):
        def answer(link, clean):
            secure = server_context().wrap_socket(link, server_side=True)
            secure.recv(1000)
            if clean:
                try:
                    secure.unwrap()
                except OSError:
                    pass
            else:
                link.close()
            secure.close()
        self.assert_fails(lambda link: answer(link, True), "^TWS_ERR_EOF ")
        self.assert_fails(lambda link: answer(link, False), "^TWS_ERR_(TRUNCATED|NETWORK) ")


class Dripping:
    """A socket that sends byte by byte."""

    def __init__(self, link):
        self.link = link

    def __getattr__(self, name):
        return getattr(self.link, name)

    def sendall(self, data):
        for i in range(len(data)):
            self.link.sendall(data[i:i + 1])


if __name__ == "__main__":
    unittest.main()
