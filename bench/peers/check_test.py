#!/usr/bin/env python3
"""check.py must find every fault that a peer can have: a peer that is right, and the same peer with one fault each."""
import os
import stat
import subprocess
import sys
import tempfile
import textwrap
import unittest

CHECK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "check.py")

PEER = """\
#!/bin/sh
here=$(dirname "$0")
case $1:$# in
check:1) {check} ;;
build:2) {build} ;;
version:1) echo "toy 1.0" ;;
features:1) echo "{features}" ;;
describe:1) echo "a toy" ;;
start:3) case $2 in *[!0-9]*) exit 2 ;; esac; {start} ;;
start:2) case $2 in *[!0-9]*) exit 2 ;; esac; exit 2 ;;
*) exit 2 ;;
esac
"""

SERVER = '''
import base64, hashlib, os, signal, socket, struct, sys, threading
FAULT = "{fault}"
if os.environ.get("TLS_CERT") and FAULT != "plain" or os.environ.get("DEFLATE") and FAULT != "inflated":
    sys.exit("this toy cannot")
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
room = set()

def take(f, n):
    data = f.read(n)
    if len(data) < n:
        raise EOFError
    return data

def frame(opcode, payload):
    size = len(payload)
    if size < 126:
        return struct.pack("!BB", 0x80 | opcode, size) + payload
    if size < 65536:
        return struct.pack("!BBH", 0x80 | opcode, 126, size) + payload
    return struct.pack("!BBQ", 0x80 | opcode, 127, size) + payload

def serve(s):
    f = s.makefile("rb")
    head = b""
    while not head.endswith(b"\\r\\n\\r\\n"):
        head += f.readline()
    path = head.split(b" ")[1]
    key = [l.split(b": ")[1] for l in head.split(b"\\r\\n") if l.lower().startswith(b"sec-websocket-key")][0]
    accept = base64.b64encode(hashlib.sha1(key + (b"x" if FAULT == "accept" else GUID)).digest())
    s.sendall(b"HTTP/1.1 101 x\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: " + accept
              + b"\\r\\n\\r\\n")
    if path == b"/broadcast":
        room.add(s)
    while True:
        first, second = take(f, 2)
        size = second & 127
        if size == 126:
            size, = struct.unpack("!H", take(f, 2))
        elif size == 127:
            size, = struct.unpack("!Q", take(f, 8))
        key = take(f, 4)
        data = take(f, size)
        pad = (key * (size // 4 + 1))[:size]
        data = (int.from_bytes(data, "big") ^ int.from_bytes(pad, "big")).to_bytes(size, "big")
        opcode = first & 15
        if opcode == 2 and FAULT == "opcode":
            opcode = 1
        if FAULT == "byte" and size == 100000:
            data = data[:-1] + bytes([data[-1] ^ 1])
        if FAULT == "big" and size > 1 << 20:
            return s.close()
        targets = list(room) if path == b"/broadcast" and opcode != 8 else [s]
        if FAULT == "sender" and path == b"/broadcast" and data.startswith(b"message"):
            targets = [t for t in targets if t is not s]
        for t in targets:
            t.sendall(frame(opcode, data))
        if opcode == 8:
            room.discard(s)
            return s.close()

def guarded(s):
    try:
        serve(s)
    except (EOFError, OSError):
        room.discard(s)

listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
if FAULT == "shared":
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
listener.bind(("127.0.0.1", int(sys.argv[1])))
listener.listen(64)
if FAULT == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if FAULT == "dies":
    sys.exit("cannot")
print("listening", flush=True)
while True:
    s, _ = listener.accept()
    threading.Thread(target=guarded, args=(s,), daemon=True).start()
'''


class Check(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def peer(self, name, fault="", check="exit 0", build="exit 0", features="echo broadcast", start=None):
        folder = os.path.join(self.folder.name, name)
        os.mkdir(folder)
        run = f'{sys.executable} "$here/server.py" "$2"'
        start = (start or "exec {run}").replace("{run}", run)
        with open(os.path.join(folder, "peer"), "w", encoding="ascii") as f:
            f.write(PEER.format(check=check, build=build, features=features, start=start))
        os.chmod(f.name, os.stat(f.name).st_mode | stat.S_IXUSR)
        with open(os.path.join(folder, "server.py"), "w", encoding="ascii") as f:
            f.write(textwrap.dedent(SERVER).replace("{fault}", fault))

    def check(self, *names):
        result = subprocess.run([sys.executable, CHECK, "--peers", self.folder.name, "--out",
                                 os.path.join(self.folder.name, "out"), *names], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, timeout=170, check=False)
        return result.returncode, result.stdout

    def test_a_right_peer(self):
        self.peer("right")
        status, text = self.check()
        self.assertEqual(status, 0, text)
        self.assertIn("ok       right", text)
        self.assertTrue(text.endswith("1 passed, 0 failed, 0 skipped\n"), text)

    def test_what_cannot_be_built_is_skipped_unless_it_was_named(self):
        self.peer("right")
        self.peer("lacking", check='echo "lacking: needs a wand: apt-get install wand"; exit 1')
        status, text = self.check()
        self.assertEqual(status, 0, text)
        self.assertIn("skipped  lacking          lacking: needs a wand", text)
        status, text = self.check("lacking")
        self.assertEqual(status, 1, text)
        status, text = self.check("nobody")
        self.assertEqual(status, 1, text)

    def test_nothing_to_check_is_no_success(self):
        self.assertEqual(self.check()[0], 1)

    def test_faults(self):
        for fault, what in (("accept", "Sec-WebSocket-Accept"), ("opcode", "opcode"), ("byte", "bytes sent"),
                            ("big", "closed"), ("sender", "missed"), ("deaf", "SIGTERM"),
                            ("dies", "cannot"), ("shared", "second start"), ("plain", "no tls"),
                            ("inflated", "no deflate")):
            with self.subTest(fault):
                self.peer(fault, fault=fault)
                status, text = self.check(fault)
                self.assertEqual(status, 1, text)
                self.assertIn("FAILED   " + fault, text)
                self.assertIn(what, text)

    def test_faults_of_the_script(self):
        for name, options, what in (
                ("child", {"start": "{run}; exit $?"}, "pid"),
                ("unbuilt", {"build": 'echo "no wand" >&2; exit 1'}, "no wand"),
                ("words", {"features": "echo magic"}, "magic"),
                ("nothing", {"features": "any-path"}, "neither"),
                ("tls", {"features": "echo tls"}, "cannot"),
                ("deflate", {"features": "echo deflate"}, "cannot")):
            with self.subTest(name):
                self.peer(name, **options)
                status, text = self.check(name)
                self.assertEqual(status, 1, text)
                self.assertIn(what, text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
