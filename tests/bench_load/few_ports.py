#!/usr/bin/env python3
"""In a network namespace of its own, where the kernel has four local ports per address: a server, and the load
generator against it.

  few_ports.py LOAD RESULT

Prints what the server counted; ends as the generator does.
"""

import fcntl
import os
import socket
import struct
import subprocess
import sys

SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1


def raise_loopback():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        request = struct.pack("16sh22x", b"lo", 0)
        flags = struct.unpack("16sh22x", fcntl.ioctl(s, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(s, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", flags | IFF_UP))


def main():
    load, result = sys.argv[1:]
    raise_loopback()
    peer = subprocess.Popen([sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "raw_peer.py")],
                            stdout=subprocess.PIPE, text=True)
    port = peer.stdout.readline().split()[1]
    with open("/proc/sys/net/ipv4/ip_local_port_range", "w", encoding="utf-8") as f:
        f.write("40000 40003")
    try:
        done = subprocess.run([load, "-c", "20", "-d", "0.2", "--warmup", "0", "--json", result,
                               f"ws://127.0.0.1:{port}/"], stdout=subprocess.DEVNULL, timeout=40, check=False)
    finally:
        peer.terminate()
        print(peer.communicate()[0], end="")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
