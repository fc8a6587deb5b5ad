#!/usr/bin/env python3
"""Checks that peers keep the contract of README.md: builds, starts and asks each over a raw socket, and stops it.

usage: check.py [--no-build] [--out DIR] [--peers DIR] [NAME ...]

Without names: every peer there is; those that cannot be built here are skipped, with the reason. With names: a peer
that cannot be built is a failure. Exits 0 when all that was checked holds, 1 when something does not.
"""
import argparse
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import rawws

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
WORDS = {"echo", "broadcast", "tls", "deflate", "deflate-same", "any-path"}
START_SECONDS = 30
STOP_SECONDS = 10
REFUSE_SECONDS = 10
BIG = 16 << 20


class Failed(Exception):
    pass


def script(name):
    return os.path.join(options.peers, name, "peer")


def expect(condition, text):
    if not condition:
        raise Failed(text)


def call(name, *words, timeout=600):
    return subprocess.run([script(name), *words], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=timeout, check=False)


def one_line(name, word):
    answer = call(name, word)
    expect(answer.returncode == 0, f"{word}: exit {answer.returncode}: {answer.stderr.strip()}")
    lines = answer.stdout.splitlines()
    expect(len(lines) == 1 and lines[0].strip(), f"{word}: one line expected, got {answer.stdout!r}")
    return lines[0]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def listening_inodes(port):
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as lines:
                rows = [line.split() for line in lines]
        except FileNotFoundError:
            continue
        inodes |= {row[9] for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")}
    return inodes


def owns_socket(pid, inodes):
    wanted = {f"socket:[{inode}]" for inode in inodes}
    folder = f"/proc/{pid}/fd"
    for entry in os.listdir(folder):
        try:
            if os.readlink(os.path.join(folder, entry)) in wanted:
                return True
        except FileNotFoundError:
            continue
    return False


class Server:
    """A started peer. Use as a context: it is ended, and what it printed on standard error is kept."""

    def __init__(self, name, out, **environment):
        self.port = free_port()
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [script(name), "start", str(self.port), out], stdout=subprocess.PIPE,
            stderr=self.errors, env={**os.environ, **environment}, start_new_session=True)
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def _wait(self):
        deadline = time.monotonic() + START_SECONDS
        line = b""
        while not line.startswith(b"listening"):
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))
            expect(ready, f"did not say 'listening' within {START_SECONDS} s: {self.said()}")
            line = self.process.stdout.readline()
            expect(line, f"ended before it listened: {self.said()}")

    def said(self):
        self.errors.seek(0)
        return self.errors.read(2000).decode(errors="replace").strip()

    def stop(self):
        """Ends it; true when it went by itself on SIGTERM."""
        polite = True
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                polite = False
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self.process.stdout.close()
        return polite

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def refuses(name, port, out, **environment):
    """Whether a start fails with a word on standard error instead of running."""
    with subprocess.Popen([script(name), "start", str(port), out], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          env={**os.environ, **environment}, start_new_session=True) as process:
        try:
            _, said = process.communicate(timeout=REFUSE_SECONDS)
            return process.returncode != 0 and bool(said.strip())
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return False


def echo(client, opcode, payload, compress=False):
    client.send(opcode, payload, compress)
    got, back = client.receive()
    expect(got == opcode, f"sent opcode {opcode}, got {got}")
    expect(back == payload, f"{len(payload)} bytes sent, {len(back)} came back, or others")


def check_echo(port, path, ca=None):
    client = rawws.Client(port, path, ca=ca)
    echo(client, rawws.TEXT, ("grüße " * 200).encode()[:1000])
    echo(client, rawws.BINARY, os.urandom(100_000))
    for payload in (b"one", b"two", b"three"):
        client.send(rawws.TEXT, payload)
    expect([client.receive()[1] for _ in range(3)] == [b"one", b"two", b"three"], "replies out of order")
    if ca is None:
        echo_big(client)
    client.close()


def echo_big(client):
    """Sends from a thread of its own: a server may echo piece by piece and hold back a client that does not read."""
    client.socket.settimeout(60)
    payload = os.urandom(1 << 20) * (BIG >> 20)
    sender = threading.Thread(target=client.send, args=(rawws.BINARY, payload), daemon=True)
    sender.start()
    expect(client.receive() == (rawws.BINARY, payload), f"{BIG} bytes did not come back as they were sent")
    sender.join()


def check_deflate(port, path):
    client = rawws.Client(port, path, deflate=True)
    for size in (1000, 100_000, 1000):
        echo(client, rawws.TEXT, (b"compressible text, " * (size // 19 + 1))[:size], compress=True)
    expect(client.compressed_replies, "deflate was agreed on and no reply was compressed")
    client.close()


def next_in_room(client):
    """The next message but for greetings, which may reach some later than what came after them."""
    while True:
        opcode, payload = client.receive()
        if not payload.startswith(b"hello"):
            return opcode, payload


def check_broadcast(port):
    clients = [rawws.Client(port, "/broadcast") for _ in range(3)]
    # A server may put a connection into its room after the handshake: it is in once it hears itself.
    for number, client in enumerate(clients):
        greeting = b"hello %d" % number
        client.send(rawws.TEXT, greeting)
        while client.receive() != (rawws.TEXT, greeting):
            pass
    messages = [(rawws.TEXT, b"message %d " % n + b"x" * 1000) for n in range(20)]
    messages.append((rawws.BINARY, os.urandom(5000)))
    for opcode, payload in messages:
        clients[0].send(opcode, payload)
    for number, client in enumerate(clients):
        for wanted in messages:
            expect(next_in_room(client) == wanted, f"member {number} missed a broadcast, or got another first")
    # The next thing each hears is the next message: none comes twice.
    clients[1].send(rawws.TEXT, b"last")
    for client in clients:
        expect(next_in_room(client) == (rawws.TEXT, b"last"), "a broadcast came more than once")
        client.close()


def check_start(name, out, features):
    with Server(name, out) as server:
        inodes = listening_inodes(server.port)
        expect(inodes, f"nothing listens on port {server.port}")
        expect(owns_socket(server.process.pid, inodes), "the pid of 'peer start' is not the server's")
        if "echo" in features:
            check_echo(server.port, "/connect")
        if "any-path" in features:
            check_echo(server.port, "/some/other")
        if "broadcast" in features:
            check_broadcast(server.port)
        expect(refuses(name, server.port, out), "a second start on the same port must fail and say so")
        expect(server.process.poll() is None, f"ended while it was asked: {server.said()}")
        expect(server.stop(), f"SIGTERM did not end it within {STOP_SECONDS} s")


def certificate(folder):
    cert, key = os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return cert, key


def check_options(name, out, features):
    path = "/connect" if "echo" in features else "/broadcast"
    if "tls" in features:
        with tempfile.TemporaryDirectory() as folder:
            cert, key = certificate(folder)
            with Server(name, out, TLS_CERT=cert, TLS_KEY=key) as server:
                check_echo(server.port, path, ca=cert)
    else:
        expect(refuses(name, free_port(), out, TLS_CERT="cert", TLS_KEY="key"),
               "has no tls: a start with TLS_CERT must fail and say so")
    if "deflate" in features:
        with Server(name, out, DEFLATE="1") as server:
            check_deflate(server.port, path)
    else:
        expect(refuses(name, free_port(), out, DEFLATE="1"),
               "has no deflate: a start with DEFLATE=1 must fail and say so")


def check_peer(name):
    features = set(one_line(name, "features").split())
    expect(features <= WORDS, f"unknown feature words {sorted(features - WORDS)}")
    expect(features & {"echo", "broadcast"}, "neither echo nor broadcast")
    one_line(name, "describe")
    version = one_line(name, "version")
    for wrong in ([], ["nonsense"], ["start"], ["start", "port"]):
        expect(call(name, *wrong).returncode == 2, f"usage error {wrong} must exit 2")
    out = os.path.join(options.out, name)
    if not options.no_build:
        built = call(name, "build", out)
        expect(built.returncode == 0, f"build failed: {(built.stderr or built.stdout).strip()[-2000:]}")
    check_start(name, out, features)
    check_options(name, out, features)
    return f"{version}; {' '.join(sorted(features))}"


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-build", action="store_true", help="take what an earlier call built")
    parser.add_argument("--out", default=os.path.join(ROOT, "build", "bench", "peers"), help="where builds go")
    parser.add_argument("--peers", default=HERE, help="the folder of peers")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parsed = parser.parse_args()
    parsed.out = os.path.abspath(parsed.out)
    parsed.peers = os.path.abspath(parsed.peers)
    return parsed


def main():
    names = options.names or sorted(
        entry for entry in os.listdir(options.peers) if os.access(script(entry), os.X_OK))
    counts = {"ok": 0, "FAILED": 0, "skipped": 0}
    for name in names:
        if not os.access(script(name), os.X_OK):
            result, text = "FAILED", f"no such peer; there are: {' '.join(sorted(os.listdir(options.peers)))}"
        else:
            able = call(name, "check")
            if able.returncode != 0:
                result, text = "FAILED" if options.names else "skipped", able.stdout.strip()
            else:
                try:
                    result, text = "ok", check_peer(name)
                except (Failed, rawws.ProtocolError, OSError, subprocess.TimeoutExpired) as error:
                    result, text = "FAILED", str(error)
        counts[result] += 1
        print(f"{result:8} {name:16} {text}", flush=True)
    print(f"{counts['ok']} passed, {counts['FAILED']} failed, {counts['skipped']} skipped")
    return 1 if counts["FAILED"] or not counts["ok"] else 0


if __name__ == "__main__":
    options = parse_options()
    sys.exit(main())
