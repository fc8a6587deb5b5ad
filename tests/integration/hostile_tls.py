"""Peers that are hostile below the WebSocket: inside TLS, or in place of it."""

import re
import socket
import ssl
import subprocess
import threading
import time
import warnings

import _tls
from _examples import PATIENCE
from _rawclient import BINARY, PING, TEXT, Broken, Client, frame, request
from _server import ServerCase, Settings, main
from _stalling import Group, StallingCase

HANDSHAKE_MS = 6000
PING_MS = 3000


def hello():
    """The first flight of a client's handshake."""
    secure = _tls.TlsSocket(None)
    try:
        secure.tls.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return secure.outgoing.read()


def one_byte_records(client, data):
    """What sends each byte in a record of its own, in one piece on the wire."""
    secure = client.socket
    secure.handshake()
    for i in range(len(data)):
        secure.tls.write(data[i:i + 1])
    secure.flush()


def half_a_record(client, data):
    secure = client.socket
    secure.handshake()
    secure.tls.write(data)
    record = secure.outgoing.read()
    secure.raw.sendall(record[:len(record) // 2])


def to_the_end(client):
    """Reads to the end of the stream, which may come in any way."""
    try:
        return client.rest()
    except _tls.Truncated:
        return b""


class Stalling(StallingCase):
    """200 at once of each kind."""

    CROWD = 200
    OPTIONS = ("--handshake-timeout", str(HANDSHAKE_MS), "--ping", str(PING_MS), "--ping-timeout", str(PING_MS))

    def bare(self):
        """A TCP connection to the port that speaks TLS."""
        return Client(self.server.address)

    def cut(self, clients):
        """They are cut by the handshake's deadline, whatever TLS still has to say."""
        return Group(clients, HANDSHAKE_MS / 1000, to_the_end)

    def silent(self, clients):
        """They get one ping, and then the end."""
        def check(client):
            try:
                self.assertEqual([f.opcode for f in iter(client.frame, None)], [PING])
            except (_tls.Truncated, ConnectionResetError):
                pass
        return Group(clients, 2 * PING_MS / 1000, check)

    def test_1_nothing_at_all(self):
        self.compare("nothing at all", self.server, self.cut(self.crowd(self.bare)))

    def test_2_half_a_hello(self):
        self.compare("half a hello", self.server, self.cut(self.crowd(self.bare, hello()[:100])))

    def test_2_nothing_after_the_hello(self):
        self.compare("nothing after the hello", self.server, self.cut(self.crowd(self.bare, hello())))

    def test_2_a_byte_a_second_of_the_hello(self):
        clients = self.crowd(self.bare)
        self.drip(clients, hello())
        self.compare("a byte a second of the hello", self.server, self.cut(clients))

    def test_2_nothing_after_the_tls_handshake(self):
        clients = self.crowd(self.server.client, lambda client: client.socket.handshake())
        self.compare("nothing after the TLS handshake", self.server, self.cut(clients))

    def test_2_half_a_record_of_the_request(self):
        clients = self.crowd(self.server.client,
                             lambda client: half_a_record(client, request(client.host)))
        self.compare("half a record of the request", self.server, self.cut(clients))

    def test_2_half_a_record_of_a_frame(self):
        clients = self.crowd(self.server.open, lambda client: half_a_record(client, frame(BINARY, b"x" * 1000)))
        self.compare("half a record of a frame", self.server, self.silent(clients))

    def test_3_each_is_cut_by_its_deadline(self):
        self.check_cuts(7)


class Unstarted(ServerCase):
    def test_B122_handshakes_never_started_hold_nobody_up(self):
        silent = [Client(self.server.address) for _ in range(30)]
        for client in silent:
            self.addCleanup(client.close)
        for _ in range(5):
            with self.server.open() as client:
                client.echo(b"served")
                client.finish()
        for client in silent:  # they are all still there, with most of the deadline before them
            self.assertTrue(client.quiet())


class Odd(ServerCase):
    """Each does something that no client should."""

    def assert_turned_away(self, *chunks, answer=rb"\x15\x03.*"):
        """Sends bytes to the port; the end comes at once, without any deadline, after an alert or nothing."""
        server = self.start("--handshake-timeout", "0")  # none at all
        with Client(server.address) as client:
            client.send(*chunks)
            said = client.rest()
            if said:
                self.assertRegex(said, re.compile(rb"\A" + answer + rb"\Z", re.DOTALL))
        with server.open() as client:
            client.echo(b"served")
        server.end_well()

    def test_garbage_instead_of_a_hello(self):
        self.assert_turned_away(b"\xff" * 2000)
        self.assert_turned_away(bytes(2000))

    def test_plain_http_to_the_tls_port(self):
        self.assert_turned_away(request("localhost"), answer=rb"HTTP/1.1 400 .*TLS.*")

    def test_hello_that_is_too_long(self):
        """A record of the largest length there is, announced and not sent; and one beyond."""
        self.assert_turned_away(b"\x16\x03\x01\xff\xff" + b"x" * 100)

    def test_garbage_after_the_hello(self):
        self.assert_turned_away(hello(), b"\x16\x03\x03\x00\x20" + b"g" * 32, answer=rb".*")

    def test_old_versions_are_refused(self):
        context = _tls.client_context()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version = ssl.TLSVersion.TLSv1
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        context.set_ciphers("ALL:@SECLEVEL=0")
        with self.assertRaisesRegex(ssl.SSLError, "alert protocol version"):
            _tls.connect(self.server.address, context)

    def test_records_of_one_byte(self):
        """They cost their sender much and others nothing; the content is intact."""
        message = bytes(range(256)) * 16
        with self.server.client() as client, self.server.open() as other:
            one_byte_records(client, request(client.host))
            client.response().check_switch()
            one_byte_records(client, frame(BINARY, message))
            other.echo(b"unharmed")
            self.assert_echoes(client, BINARY, message)
            client.finish()

    def test_bad_record_ends_the_connection(self):
        """A record that does not decrypt: nothing of it reaches the echo."""
        with self.server.open() as client:
            client.socket.tls.write(frame(TEXT, b"forged"))
            record = bytearray(client.socket.outgoing.read())
            record[-1] ^= 1
            client.socket.raw.sendall(record)
            with self.assertRaises((ssl.SSLError, _tls.Truncated, ConnectionResetError)):
                while client.more():
                    self.assertEqual(client.data, b"")
                raise Broken("the end came as if nothing had happened")

    def test_truncation_leaves_nothing_behind(self):
        """The end of TCP without close_notify, between frames and inside one; and a reset."""
        level = self.server.level()
        for rest in (b"", frame(TEXT, b"cut")[:3], frame(TEXT, b"x" * 70000)[:40000]):
            with self.server.open() as client:
                client.echo(b"x")
                client.send(rest)
                client.socket.raw.shutdown(socket.SHUT_WR)
                to_the_end(client)
        self.server.open().reset()
        self.server.wait_for_level(level)

    def test_storm_of_handshakes_that_are_abandoned(self):
        level = self.server.level()
        first = hello()
        for n in range(100):
            with Client(self.server.address) as client:
                client.send(first[:n * 5])
        for _ in range(100):
            with Client(self.server.address) as client:
                client.send(first)
                client.reset()
        self.server.wait_for_level(level)


class Renegotiation(ServerCase):
    def test_is_refused_without_harm(self):
        """openssl s_client asks for it when told "R"; with TLS 1.2, since 1.3 has none."""
        with self.server.open() as other:
            host = self.server.address
            client = subprocess.Popen(
                ["openssl", "s_client", "-connect", host, "-tls1_2", "-CAfile", _tls.cert("ca.pem")],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            said = []
            reader = threading.Thread(target=lambda: said.extend(client.stdout), daemon=True)
            reader.start()
            end = time.monotonic() + PATIENCE
            while not any(b"Verify return code" in line for line in said) and time.monotonic() < end:
                time.sleep(0.01)
            client.stdin.write(b"R\n")
            client.stdin.flush()
            status = client.wait(PATIENCE)
            reader.join()
            client.stdin.close()
            client.stdout.close()
            other.echo(b"unharmed")
            self.assertIn(b"RENEGOTIATING\n", said)
            self.assertTrue(status != 0 or any(b"no renegotiation" in line for line in said), said)


if __name__ == "__main__":
    Settings.secure = True
    main()
