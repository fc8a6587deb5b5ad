#!/usr/bin/env python3
"""A WebSocket server made of the standard library only, with a fault to choose: a second, independent count of what
the load generator says it sent, and a liar where it should notice.

  raw_peer.py [--mode MODE] [--after N] [--code N]

Prints "listening PORT", and one line of JSON with its counts when SIGTERM ends it.
"""

import argparse
import base64
import hashlib
import json
import os
import signal
import socket
import struct
import sys
import threading
import time

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
MODES = """echo corrupt swap swallow twice close eof status bad_accept masked rsv fragment ping hang silent deaf_close
 broadcast broadcast_others batch extension slow_tail short opcode garbage deflate_garbage""".split()


class Counts:
    def __init__(self):
        self.lock = threading.Lock()
        self.values = {"connections": 0, "messages": 0, "bytes": 0, "pongs": 0, "closes": 0, "text": 0, "binary": 0,
                       "zero_masks": 0, "most_unanswered": 0}
        self.addresses = set()
        self.keys = set()
        self.first = None

    def add(self, **amounts):
        with self.lock:
            for name, n in amounts.items():
                self.values[name] += n

    def report(self):
        with self.lock:
            return json.dumps(dict(self.values, addresses=sorted(self.addresses), keys=len(self.keys),
                                   first=self.first))


class Gone(Exception):
    pass


def read_exactly(sock, n):
    data = bytearray()
    while len(data) < n:
        piece = sock.recv(n - len(data))
        if not piece:
            raise Gone
        data += piece
    return bytes(data)


def unmask(key, data):
    n = len(data)
    wide = int.from_bytes((key * (n // 4 + 1))[:n], "big")
    return (int.from_bytes(data, "big") ^ wide).to_bytes(n, "big")


def read_frame(sock):
    """Returns opcode, fin, mask key, payload; clients must mask, and lengths must be minimal."""
    b0, b1 = read_exactly(sock, 2)
    assert b1 & 0x80, "client frame without mask"
    length = b1 & 0x7F
    if length == 126:
        length = struct.unpack(">H", read_exactly(sock, 2))[0]
        assert length > 125
    elif length == 127:
        length = struct.unpack(">Q", read_exactly(sock, 8))[0]
        assert length > 0xFFFF
    key = read_exactly(sock, 4)
    return b0 & 0x0F, bool(b0 & 0x80), key, unmask(key, read_exactly(sock, length))


def frame(opcode, payload, fin=True, first=0):
    n = len(payload)
    head = bytes([(0x80 if fin else 0) | first | opcode])
    if n < 126:
        return head + bytes([n]) + payload
    if n < 65536:
        return head + struct.pack(">BH", 126, n) + payload
    return head + struct.pack(">BQ", 127, n) + payload


class Peer:
    def __init__(self, args, counts):
        self.args, self.counts = args, counts
        self.members, self.lock = [], threading.Lock()

    def upgrade(self, sock):
        head = b""
        while b"\r\n\r\n" not in head:
            piece = sock.recv(4096)
            if not piece:
                raise Gone
            head += piece
        lines = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
        mode = self.args.mode
        if mode == "hang":
            time.sleep(60)
        if mode == "status":
            sock.sendall(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % self.args.code)
            raise Gone
        key = lines[b"Sec-WebSocket-Key"]
        assert len(base64.b64decode(key)) == 16
        with self.counts.lock:
            self.counts.keys.add(key)
        accept = base64.b64encode(hashlib.sha1(key + GUID).digest())
        if mode == "bad_accept":
            accept = accept[::-1]
        deflate = mode in ("extension", "deflate_garbage")
        extra = b"Sec-WebSocket-Extensions: permessage-deflate\r\n" if deflate else b""
        sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: WebSocket\r\nCONNECTION: keep-alive, Upgrade\r\n"
                     + extra + b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")

    def broadcast(self, sock, data):
        with self.lock:
            members = list(self.members)
        for member in members:
            if self.args.mode == "broadcast_others" and member is sock:
                continue
            try:
                member.send(data, socket.MSG_DONTWAIT)
            except OSError:
                pass

    def message(self, sock, state, opcode, payload):
        mode = self.args.mode
        state["n"] += 1
        n = state["n"]
        fault = n % self.args.after == 0
        if mode in ("broadcast", "broadcast_others"):
            self.broadcast(sock, frame(opcode, payload))
        elif mode == "corrupt" and fault:
            changed = bytearray(payload)
            changed[-1] ^= 1
            sock.sendall(frame(opcode, bytes(changed)))
        elif mode == "short" and fault:
            sock.sendall(frame(opcode, payload[:-1]))
        elif mode == "opcode" and fault:
            sock.sendall(frame(3 - opcode, payload))
        elif mode == "swap":
            state["held"].append(frame(opcode, payload))
            if len(state["held"]) == 2:
                sock.sendall(state["held"][1] + state["held"][0])
                state["held"] = []
        elif mode == "batch":
            state["held"].append(frame(opcode, payload))
            with self.counts.lock:
                most = max(self.counts.values["most_unanswered"], len(state["held"]))
                self.counts.values["most_unanswered"] = most
            if len(state["held"]) == self.args.after:
                sock.sendall(b"".join(state["held"]))
                state["held"] = []
        elif mode == "swallow" and fault or mode == "silent":
            pass
        elif mode == "twice" and fault:
            sock.sendall(frame(opcode, payload) * 2)
        elif mode == "close" and fault:
            sock.sendall(frame(8, struct.pack(">H", self.args.code) + b"enough"))
            raise Gone
        elif mode == "eof" and fault:
            raise Gone
        elif mode == "masked" and fault:
            sock.sendall(bytes([0x81, 0x80 | 1]) + b"aaaab")
        elif mode == "garbage":
            sock.sendall(os.urandom(n))
        elif mode == "deflate_garbage":
            sock.sendall(frame(opcode, os.urandom(n * 20), first=0x40))
        elif mode == "rsv" and fault:
            sock.sendall(frame(opcode, payload, first=0x40))
        elif mode == "fragment":
            third = len(payload) // 3
            sock.sendall(frame(opcode, payload[:third], fin=False) + frame(9, b"between")
                         + frame(0, b"", fin=False) + frame(0, payload[third:2 * third], fin=False)
                         + frame(10, b"unasked") + frame(0, payload[2 * third:]))
        elif mode == "ping":
            sock.sendall(frame(9, b"are you there") + frame(opcode, payload))
        elif mode == "slow_tail":
            data = frame(opcode, payload)
            for i in range(0, len(data), 7):
                sock.sendall(data[i:i + 7])
        else:
            sock.sendall(frame(opcode, payload))

    def talk(self, sock):
        self.upgrade(sock)
        with self.lock:
            self.members.append(sock)
        state = {"n": 0, "held": []}
        while True:
            opcode, fin, key, payload = read_frame(sock)
            if key == b"\0\0\0\0":
                self.counts.add(zero_masks=1)
            if opcode in (1, 2):
                assert fin
                if opcode == 1 and self.args.mode != "deflate_garbage":
                    payload.decode("utf-8")
                self.counts.add(messages=1, bytes=len(payload), **{"text" if opcode == 1 else "binary": 1})
                if self.counts.first is None:
                    self.counts.first = hashlib.sha256(payload).hexdigest()
                self.message(sock, state, opcode, payload)
            elif opcode == 8:
                self.counts.add(closes=1)
                if self.args.mode == "deaf_close":
                    time.sleep(60)
                sock.sendall(frame(8, payload[:2]))
                raise Gone
            elif opcode == 10:
                assert payload in (b"between", b"are you there") or self.args.mode == "garbage", payload
                self.counts.add(pongs=1)
            else:
                raise AssertionError(f"opcode {opcode}")

    def serve(self, sock, address):
        self.counts.add(connections=1)
        with self.counts.lock:
            self.counts.addresses.add(address[0])
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.talk(sock)
        except (Gone, OSError):
            pass
        finally:
            with self.lock:
                if sock in self.members:
                    self.members.remove(sock)
            sock.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=MODES, default="echo")
    parser.add_argument("--after", type=int, default=10)
    parser.add_argument("--code", type=int, default=1013)
    args = parser.parse_args()
    counts = Counts()
    peer = Peer(args, counts)

    def stop(*_):
        print(counts.report(), flush=True)
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    print("listening", listener.getsockname()[1], flush=True)
    while True:
        sock, address = listener.accept()
        threading.Thread(target=peer.serve, args=(sock, address), daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
