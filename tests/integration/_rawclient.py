"""A WebSocket client on a bare socket: sends exactly the bytes it is told to, believes nothing it reads."""

import base64
import hashlib
import select
import socket
import struct
import time
import typing

import _tls
from _examples import PATIENCE

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10

MASK = bytes.fromhex("37fa213d")
KEY = "dGhlIHNhbXBsZSBub25jZQ=="


class Broken(AssertionError):
    """The server did something that no server may do."""


# ---- What is sent ----

def xor(data, key=MASK):
    """Masks, or unmasks, all of a payload at once."""
    if not data:
        return b""
    stream = (key * (len(data) // 4 + 1))[:len(data)]
    return (int.from_bytes(data, "big") ^ int.from_bytes(stream, "big")).to_bytes(len(data), "big")


def frame(opcode, payload=b"", fin=True, rsv=0, key=MASK):
    """A client's frame, with the shortest length field."""
    first = (0x80 if fin else 0) | rsv << 4 | opcode
    if len(payload) < 126:
        head = struct.pack("!BB", first, 0x80 | len(payload))
    elif len(payload) < 65536:
        head = struct.pack("!BBH", first, 0x80 | 126, len(payload))
    else:
        head = struct.pack("!BBQ", first, 0x80 | 127, len(payload))
    return head + key + xor(payload, key)


def close_frame(code, reason=b""):
    return frame(CLOSE, struct.pack("!H", code) + reason)


def request(host, *more, first="GET / HTTP/1.1", upgrade="websocket", connection="Upgrade",
            key=KEY, version="13"):
    """An opening handshake; None leaves a header out, `more` are whole lines behind them."""
    lines = [first, f"Host: {host}"]
    for name, value in (("Upgrade", upgrade), ("Connection", connection),
                        ("Sec-WebSocket-Key", key), ("Sec-WebSocket-Version", version)):
        if value is not None:
            lines.append(f"{name}: {value}")
    return "\r\n".join([*lines, *more, "", ""]).encode("latin-1")


# ---- What is received ----

class Frame(typing.NamedTuple):
    """A server's frame."""
    opcode: int
    payload: bytes
    fin: bool = True
    rsv1: bool = False


class Response:
    """An HTTP answer."""

    def __init__(self, head, body=b""):
        status_line, *lines = head.decode("latin-1").split("\r\n")
        version, status, *_ = status_line.split(" ")
        if version != "HTTP/1.1":
            raise Broken(f"status line {status_line!r}")
        self.status = int(status)
        self.headers = []
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or name != name.strip():
                raise Broken(f"header line {line!r}")
            self.headers.append((name.lower(), value.strip()))
        self.body = body

    def all(self, name):
        return [value for key, value in self.headers if key == name.lower()]

    def one(self, name):
        """The value of a header that is there exactly once."""
        values = self.all(name)
        if len(values) != 1:
            raise Broken(f"{name}: {values}")
        return values[0]

    def check_switch(self, key=KEY):
        """Holds when this is a right 101 (RFC 6455 4.2.2)."""
        accept = base64.b64encode(hashlib.sha1(
            (key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
        if (self.status != 101 or self.one("Sec-WebSocket-Accept") != accept
                or self.one("Upgrade").lower() != "websocket"
                or "upgrade" not in self.one("Connection").lower().split(", ")):
            raise Broken(f"{self.status} {self.headers}")


def parse_frame(data, rsv1=False):
    """Returns the first frame in data and what is behind it, or None when it is not whole. Strict: final
    bits, reserved bits, opcodes, no mask, shortest lengths, short control frames. rsv1: the first reserved
    bit is allowed on the first frame of a data message."""
    if len(data) < 2:
        return None
    first, second = data[0], data[1]
    opcode, length, start = first & 15, second & 127, 2
    reserved = first & (0x30 if rsv1 and opcode in (TEXT, BINARY) else 0x70)
    if reserved or second & 0x80 or opcode not in (0, 1, 2, 8, 9, 10):
        raise Broken(f"frame header {data[:2].hex()}")
    if opcode >= CLOSE and (length > 125 or not first & 0x80):
        raise Broken(f"control frame header {data[:2].hex()}")
    if length >= 126:
        size, least = ("!H", 126) if length == 126 else ("!Q", 65536)
        start += struct.calcsize(size)
        if len(data) < start:
            return None
        [length] = struct.unpack(size, data[2:start])
        if length < least:
            raise Broken(f"length {length} in a long form")
    if len(data) < start + length:
        return None
    parsed = Frame(opcode, bytes(data[start:start + length]), bool(first & 0x80), bool(first & 0x40))
    return parsed, data[start + length:]


class Client:
    """One connection. Use it in a `with`, or call close()."""

    def __init__(self, address, small=False, patience=PATIENCE, secure=False):
        """small: buffers of a few KiB on both sides, so that the server's writes soon have to wait."""
        self.patience = patience
        self.rsv1 = False  # whether the server may compress
        host, port = address.rsplit(":", 1)
        self.host = address
        self.data = b""
        self.socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        if small:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(patience)
        self.socket.connect((host.strip("[]"), int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if secure:
            self.socket = _tls.TlsSocket(self.socket)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def reset(self):
        """Ends the connection with RST instead of FIN."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    # ---- Sending ----

    def send(self, *chunks):
        """Sends bytes; from several chunks, each in a segment of its own."""
        for i, chunk in enumerate(chunks):
            if i > 0:
                time.sleep(0.04)
            self.socket.sendall(chunk)

    def ask(self, *more, **parts):
        """Sends a request as request() makes it and returns the answer."""
        self.send(request(self.host, *more, **parts))
        return self.response()

    def upgrade(self, *more, **parts):
        """Opens the WebSocket connection; returns the right 101."""
        response = self.ask(*more, **parts)
        response.check_switch()
        return response

    # ---- Receiving ----

    def more(self):
        """Receives some bytes; False at the end of the stream. A reset raises ConnectionResetError."""
        data = self.socket.recv(1 << 18)
        self.data += data
        return bool(data)

    def response(self):
        """The next HTTP answer, with its body when it has a length."""
        while b"\r\n\r\n" not in self.data:
            if not self.more():
                raise Broken(f"no answer, but {self.data!r} and the end")
        head, self.data = self.data.split(b"\r\n\r\n", 1)
        response = Response(head)
        length = int((response.all("Content-Length") or ["0"])[0])
        while len(self.data) < length:
            if not self.more():
                raise Broken("the body is too short")
        response.body, self.data = self.data[:length], self.data[length:]
        return response

    def frame(self):
        """The next frame; None at the end of the stream."""
        while True:
            found = parse_frame(self.data, self.rsv1)
            if found:
                result, self.data = found
                return result
            if not self.more():
                if self.data:
                    raise Broken(f"the stream ends inside a frame: {self.data[:32].hex()}")
                return None

    def frames(self):
        """All frames to the end of the stream."""
        return list(iter(self.frame, None))

    def rest(self):
        """All bytes to the end of the stream, which may be a reset."""
        try:
            while self.more():
                pass
        except ConnectionResetError:
            pass
        data, self.data = self.data, b""
        return data

    def quiet(self):
        """Whether nothing has come that is not read yet."""
        if isinstance(self.socket, _tls.TlsSocket):
            return self.socket.quiet()
        return not select.select([self.socket], [], [], 0)[0]

    def hung_up(self):
        """Whether the server has ended its side, whatever lies unread before that."""
        poll = select.poll()
        poll.register(self.socket, select.POLLRDHUP)
        return bool(poll.poll(0))

    def echo(self, payload, opcode=TEXT):
        """One message there and back, strictly the same. A keepalive ping before it is answered."""
        self.send(frame(opcode, payload))
        answer = self.frame()
        while answer and answer.opcode == PING:
            self.send(frame(PONG, answer.payload))
            answer = self.frame()
        if answer != Frame(opcode, payload):
            raise Broken(f"sent {payload[:64]!r}, got {answer!r:.200}")

    def finish(self, code=1000):
        """The closing handshake, and the end of this side too."""
        self.send(close_frame(code))
        if self.frames() != [Frame(CLOSE, struct.pack("!H", code))]:
            raise Broken("the close frame was not answered with the same code alone")
        self.close()


def opened(address, **options):
    """A client whose handshake is done."""
    client = Client(address, **options)
    try:
        client.upgrade()
    except BaseException:
        client.close()
        raise
    return client
