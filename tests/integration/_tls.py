"""TLS for the bare client: over a socket, record by record, strict about how the stream ends."""

import os
import pathlib
import socket
import ssl

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECORD = 16384


def cert(name):
    """The path of a file that scripts/certs.sh has made."""
    return os.path.join(os.environ.get("TWS_CERTS", ROOT / "build" / "certs"), name)


def wanted():
    """Whether the tests run over TLS this time."""
    return os.environ.get("TWS_TEST_TLS", "") == "1"


def options():
    """How echo is told to speak TLS."""
    return ("--tls", cert("server.pem"), cert("server.key"))


def client_context():
    """Trusts the tests' CA and verifies the name."""
    return ssl.create_default_context(cafile=cert("ca.pem"))


class Truncated(AssertionError):
    """The peer has ended the connection without close_notify."""


class TlsSocket:
    """As much of a socket as the tests use. The handshake is done with the first bytes either way, so that an
    unused one is a bare TCP connection."""

    def __init__(self, raw, context=None, name="127.0.0.1"):
        self.raw = raw
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = (context or client_context()).wrap_bio(self.incoming, self.outgoing, server_hostname=name)
        self.ciphertext = b""  # that the socket has not taken yet
        self.ready = False

    def __getattr__(self, name):
        return getattr(self.raw, name)

    def flush(self):
        """Sends what TLS has to say; without blocking, as much as the socket takes."""
        self.ciphertext += self.outgoing.read()
        if self.ciphertext and self.raw.gettimeout() != 0:
            self.raw.sendall(self.ciphertext)
            self.ciphertext = b""
        while self.ciphertext:
            try:
                self.ciphertext = self.ciphertext[self.raw.send(self.ciphertext):]
            except BlockingIOError:
                return

    def receive(self):
        data = self.raw.recv(1 << 17)
        if data:
            self.incoming.write(data)
        else:
            self.incoming.write_eof()

    def handshake(self):
        while not self.ready:
            try:
                self.tls.do_handshake()
                self.ready = True
            except ssl.SSLWantReadError:
                self.flush()
                self.receive()
        self.flush()

    def send(self, data, _flags=0):
        """Takes one record at most, or nothing while the one before is still here."""
        self.handshake()
        self.flush()
        if self.ciphertext:
            return 0
        n = self.tls.write(data[:RECORD])
        self.flush()
        return n

    def sendall(self, data):
        self.handshake()
        view = memoryview(data)
        while view:
            view = view[self.tls.write(view):]
        self.flush()

    def recv(self, size):
        self.handshake()
        while True:
            try:
                data = self.tls.read(size)
                self.flush()  # an answer to a key update
                return data
            except ssl.SSLWantReadError:
                self.flush()
                self.receive()
            except ssl.SSLZeroReturnError:
                return b""
            except ssl.SSLEOFError as error:
                raise Truncated("the end came without close_notify") from error

    def quiet(self):
        """Whether nothing is here to be read: no plaintext, no end; tickets and such do not count."""
        before = self.raw.gettimeout()
        self.raw.setblocking(False)
        try:
            self.receive()
        except BlockingIOError:
            pass
        finally:
            self.raw.settimeout(before)
        try:
            if self.ready:
                self.tls.read(1)
            else:
                self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return True
        return False

    def shutdown(self, how):
        """Ends the sending side with close_notify; one can read on."""
        try:
            self.tls.unwrap()
        except (ssl.SSLWantReadError, ssl.SSLSyscallError):
            pass  # the peer's is not here yet
        self.flush()
        self.raw.shutdown(how)

    def close(self):
        self.raw.close()


def connect(address, context=None, name="127.0.0.1"):
    """A TLS connection whose handshake is done."""
    host, port = address.rsplit(":", 1)
    secure = TlsSocket(socket.create_connection((host.strip("[]"), int(port)), 30), context, name)
    try:
        secure.handshake()
    except BaseException:
        secure.close()
        raise
    return secure
