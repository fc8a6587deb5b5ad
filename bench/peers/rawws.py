"""A WebSocket client made of nothing but the standard library, for checking servers.

It is independent of every library under test, and says exactly what came over the wire.
"""
import base64
import hashlib
import os
import socket
import ssl
import struct
import zlib

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
DEFLATE_TAIL = b"\x00\x00\xff\xff"


class ProtocolError(Exception):
    pass


def _mask(payload, key):
    if not payload:
        return b""
    pad = (key * (len(payload) // 4 + 1))[:len(payload)]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(pad, "big")).to_bytes(len(payload), "big")


class Client:
    """One connection. `deflate` offers permessage-deflate and fails when the server does not take it."""

    def __init__(self, port, path="/connect", host="127.0.0.1", ca=None, deflate=False, timeout=10.0):
        self.socket = socket.create_connection((host, port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if ca:
            context = ssl.create_default_context(cafile=ca)
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        self.buffer = b""
        self.inflater = None
        self.compressed_replies = 0
        self._handshake(host, port, path, deflate)

    def _handshake(self, host, port, path, deflate):
        key = base64.b64encode(os.urandom(16))
        lines = [f"GET {path} HTTP/1.1", f"Host: {host}:{port}", "Upgrade: websocket", "Connection: Upgrade",
                 "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: " + key.decode()]
        if deflate:
            lines.append("Sec-WebSocket-Extensions: permessage-deflate")
        self.socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        while b"\r\n\r\n" not in self.buffer:
            self._fill()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        status, *fields = head.decode("latin-1").split("\r\n")
        headers = {}
        for field in fields:
            name, _, value = field.partition(":")
            headers[name.strip().lower()] = value.strip()
        if status.split(" ")[1] != "101":
            raise ProtocolError("handshake refused: " + status)
        accept = base64.b64encode(hashlib.sha1(key + GUID).digest()).decode()
        if headers.get("sec-websocket-accept") != accept:
            raise ProtocolError("wrong Sec-WebSocket-Accept")
        extensions = headers.get("sec-websocket-extensions", "")
        if deflate != ("permessage-deflate" in extensions):
            raise ProtocolError(f"deflate offered: {deflate}, answered: {extensions!r}")
        self.takes_over = "server_no_context_takeover" not in extensions
        if deflate:
            self.inflater = zlib.decompressobj(-15)

    def _fill(self):
        data = self.socket.recv(1 << 18)
        if not data:
            raise ProtocolError("connection closed by the server")
        self.buffer += data

    def _take(self, count):
        if len(self.buffer) < count:
            parts, have = [self.buffer], len(self.buffer)
            while have < count:
                data = self.socket.recv(min(1 << 20, max(count - have, 4096)))
                if not data:
                    raise ProtocolError("connection closed by the server")
                parts.append(data)
                have += len(data)
            self.buffer = b"".join(parts)
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def send(self, opcode, payload, compress=False):
        first = 0x80 | opcode
        if compress:
            deflater = zlib.compressobj(6, zlib.DEFLATED, -15)
            payload = (deflater.compress(payload) + deflater.flush(zlib.Z_SYNC_FLUSH))[:-4]
            first |= 0x40
        size = len(payload)
        if size < 126:
            head = struct.pack("!BB", first, 0x80 | size)
        elif size < 65536:
            head = struct.pack("!BBH", first, 0x80 | 126, size)
        else:
            head = struct.pack("!BBQ", first, 0x80 | 127, size)
        key = os.urandom(4)
        self.socket.sendall(head + key + _mask(payload, key))

    def _frame(self):
        first, second = self._take(2)
        if second & 0x80:
            raise ProtocolError("a server must not mask")
        size = second & 0x7F
        if size == 126:
            size, = struct.unpack("!H", self._take(2))
        elif size == 127:
            size, = struct.unpack("!Q", self._take(8))
        return first, self._take(size)

    def receive(self):
        """The next data message as (opcode, payload). Answers pings on the way."""
        opcode, parts, compressed = None, [], False
        while True:
            first, payload = self._frame()
            code = first & 0x0F
            if code == PING:
                self.send(PONG, payload)
                continue
            if code == PONG:
                continue
            if code == CLOSE:
                raise ProtocolError(f"closed by the server: {payload!r}")
            if (code == 0) != (opcode is not None):
                raise ProtocolError(f"frame with opcode {code} out of turn")
            if opcode is None:
                opcode, compressed = code, bool(first & 0x40)
            parts.append(payload)
            if first & 0x80:
                return opcode, self._inflate(b"".join(parts)) if compressed else b"".join(parts)

    def _inflate(self, payload):
        if self.inflater is None:
            raise ProtocolError("RSV1 without permessage-deflate")
        self.compressed_replies += 1
        if not self.takes_over:
            self.inflater = zlib.decompressobj(-15)
        return self.inflater.decompress(payload + DEFLATE_TAIL)

    def close(self):
        """The closing handshake. Returns the server's close payload."""
        self.send(CLOSE, struct.pack("!H", 1000))
        while True:
            first, payload = self._frame()
            if first & 0x0F == CLOSE:
                self.socket.close()
                return payload

    def abort(self):
        self.socket.close()
