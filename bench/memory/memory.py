#!/usr/bin/env python3
"""What an idle connection costs: resident memory of the server, and kernel memory of the machine.

Starts build/examples/echo, opens idle connections that each echo one small message first, plain and
over TLS 1.3, lets them be idle for three seconds (what traffic needed is given back after two), and reads
VmRSS of the server and KernelStack, Slab and PageTables of the machine before and after. Kernel
figures hold both ends of each connection, since the client's sockets are on the same machine; half
of the socket memory is the server's. With --deflate there are rows for compression besides: each connection first
echoes 40 messages of 1,000 bytes of JSON, compressed both ways, which fills its windows, with the server's defaults
and with context takeover on both sides. With --echoes all of them then echo that many messages at once,
which must come back whole, and the server's memory is read again.
"""
import argparse
import os
import resource
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import zlib

REQUEST = (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
           b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
           b"Origin: http://127.0.0.1\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) memory\r\n"
           b"Accept-Language: en-US,en;q=0.5\r\nCache-Control: no-cache\r\n\r\n")
SIZE = 1000
IDLE = 3
HELLO = b"\x81\x85\x00\x00\x00\x00hello"
OFFER = b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\r\n"


def meminfo():
    with open("/proc/meminfo", encoding="ascii") as f:
        lines = dict(line.split(":", 1) for line in f)
    return {k: int(lines[k].split()[0]) for k in ("KernelStack", "Slab", "PageTables")}


def rss(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        for line in f:
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    raise RuntimeError("no VmRSS")


def receive(s, marker):
    got = b""
    while marker not in got:
        piece = s.recv(4096)
        if not piece:
            raise RuntimeError("the server closed the connection")
        got += piece


def certificate(folder):
    """A certificate that signs itself; the path of certificate and key."""
    path = os.path.join(folder, "both.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-subj", "/CN=memory", "-days", "2", "-keyout", path, "-out", path + ".crt"],
                   check=True, stderr=subprocess.DEVNULL)
    with open(path + ".crt", encoding="ascii") as crt, open(path, "a", encoding="ascii") as both:
        both.write(crt.read())
    return path


def connect(port, n, tls, deflate=None):
    # Several source addresses, so that ports do not run short.
    s = socket.socket()
    s.bind((f"127.0.0.{2 + n % 8}", 0))
    s.connect(("127.0.0.1", port))
    if tls:
        s = tls.wrap_socket(s)
    if deflate is not None:
        return connect_compressed(s, n, deflate)
    s.sendall(REQUEST)
    receive(s, b"\r\n\r\n")
    s.sendall(HELLO)
    receive(s, b"hello")
    return s


def json_text(n):
    item = '{"type":"quote","id":%d,"symbol":"EURUSD","bid":%d.%05d,"ask":%d.%05d,"venue":%d},'
    numbers = [(n * 7919 + i * 104729) % 100003 for i in range(100)]
    text = "".join(item % (a, b % 9, c, d % 9, e, f % 12) for a, b, c, d, e, f in zip(*[iter(numbers)] * 6))
    return text.encode()[:SIZE]


def connect_compressed(s, n, params):
    """A connection that has compressed 40 messages both ways."""
    s.sendall(REQUEST[:-2] + OFFER)
    receive(s, b"\r\n\r\n")
    packer = zlib.compressobj(1, zlib.DEFLATED, -12)
    for i in range(40):
        payload = (packer.compress(json_text(n + i)) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4]
        if "takeover" not in params:
            packer = zlib.compressobj(1, zlib.DEFLATED, -12)
        s.sendall(bytes([0xc1, 0xfe]) + len(payload).to_bytes(2, "big") + bytes(4) + payload
                  if len(payload) > 125 else bytes([0xc1, 0x80 | len(payload)]) + bytes(4) + payload)
        head = s.recv(4, socket.MSG_WAITALL)
        rest = int.from_bytes(head[2:4], "big") if head[1] == 126 else head[1] - 2
        if head[0] != 0xc1 or len(s.recv(rest, socket.MSG_WAITALL)) != rest:
            raise RuntimeError("no compressed echo")
    return s


def settled(pid):
    """Resident memory once it has stopped changing."""
    last, same = rss(pid), 0
    while same < 5:
        time.sleep(0.1)
        now = rss(pid)
        same = same + 1 if now == last else 0
        last = now
    return last


def receive_exactly(s, expected):
    got = b""
    while len(got) < len(expected):
        piece = s.recv(65536)
        if not piece:
            raise RuntimeError("the server closed the connection")
        got += piece
    if got != expected:
        raise RuntimeError("an echo came back changed")


def echo_all(held, times, size):
    """Each connection sends, then each receives, so that all are under way together. Seconds."""
    payload = b"x" * size
    request = b"\x81\xfe" + size.to_bytes(2, "big") + bytes(4) + payload
    reply = b"\x81\x7e" + size.to_bytes(2, "big") + payload
    begin = time.monotonic()
    for _ in range(times):
        for s in held:
            s.sendall(request)
        for s in held:
            receive_exactly(s, reply)
    return time.monotonic() - begin


def measure_busy(server, held, options):
    seconds = echo_all(held, options.echoes, SIZE)
    busy = rss(server.pid)
    time.sleep(IDLE)  # what silence gives back after two seconds
    return (f"\n{len(held)} connections, all open, echoed {options.echoes} messages of {SIZE} B each in "
          f"{seconds:.1f} s (one client thread); nothing lost.\nServer's resident memory: {busy / 1024:.1f} MiB "
          f"right after, {settled(server.pid) / 1024:.1f} MiB after a silence of three seconds.")


def client_context():
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname = False
    tls.verify_mode = ssl.CERT_NONE
    return tls


def measure(options, kind, pem, deflate=None):
    """deflate: parameters for echo, or None without compression."""
    count = options.connections
    command = [options.echo, "--listen", "127.0.0.1:0", "--threads", kind, "--max-connections", "0"]
    tls = client_context() if pem else None
    command += ["--tls-cert", pem] if pem else []
    command += [f"--deflate={deflate}"] if deflate is not None else []
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        port = int(server.stdout.readline().rsplit(":", 1)[1])
        warm = connect(port, 0, tls, deflate)
        before, kernel_before = settled(server.pid), meminfo()
        held = [connect(port, n, tls, deflate) for n in range(count)]
        time.sleep(IDLE)
        after, kernel_after = settled(server.pid), meminfo()
        kernel = {k: kernel_after[k] - kernel_before[k] for k in kernel_before}
        note = measure_busy(server, held, options) if options.echoes else None
        for s in held:
            s.close()
        warm.close()
    finally:
        server.terminate()
        server.wait(timeout=30)
    return before, (after - before) / count, {k: v / count for k, v in kernel.items()}, note


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--echo", default="build/examples/echo")
    parser.add_argument("-n", "--connections", type=int, default=5000)
    parser.add_argument("--threads", choices=("kernel", "light"), help="one kind only")
    parser.add_argument("--echoes", type=int, default=0, metavar="N",
                        help="then all connections echo N messages at once")
    parser.add_argument("--deflate", action="store_true", help="rows for compression in place of those over TLS")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if not os.access(options.echo, os.X_OK):
        sys.exit(f"memory: {options.echo} is not there: make it first")
    print("| threads | process at rest | resident, per connection | kernel stack | "
          "slab (both ends) | page tables |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        ways = [("", None, None)]
        if options.deflate:
            ways += [(", compressed", None, ""), (", compressed with takeover", None, "takeover")]
        else:
            ways += [(", TLS", certificate(folder), None)]
        for name, pem, deflate in ways:
            for kind in [options.threads] if options.threads else ("kernel", "light"):
                base, each, kernel, note = measure(options, kind, pem, deflate)
                print(f"| {kind}{name} | {base / 1024:.1f} MiB | {each:.1f} KiB "
                      f"| {kernel['KernelStack']:.1f} KiB | {kernel['Slab']:.1f} KiB "
                      f"| {kernel['PageTables']:.1f} KiB |", flush=True)
                if note:
                    print(note)


if __name__ == "__main__":
    main()
