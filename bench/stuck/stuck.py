#!/usr/bin/env python3
"""How much a handler that spins, and one that sleeps, for two seconds disturbs the other connections.

Runs the load generator twice against bench/stuck/stuck_server: alone, and with one connection whose
handler spins and one whose handler sleeps all the time. Prints both latency tables.
"""
import argparse
import json
import os
import socket
import subprocess
import sys
import threading

REQUEST = ("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
           "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")
MESSAGE = b"\x81\x82\x00\x00\x00\x00go"


def disturb(port, path, stop):
    """One message after the other on that path; each is answered after two seconds."""
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.sendall(REQUEST.format(path=path).encode())
        s.recv(4096)
        while not stop.is_set():
            s.sendall(MESSAGE)
            if not s.recv(64):
                sys.exit(f"stuck: {path} was closed")


def load(options, port):
    run = subprocess.run([options.load, "-c", str(options.connections), "--connect-rate", "2000",
                          "-r", str(options.rate), "-d", str(options.seconds), "--warmup", "1",
                          "-s", "1000", "--json", "-", f"ws://127.0.0.1:{port}/"],
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return json.loads(run.stdout)


def measure(options, disturbed):
    server = subprocess.Popen([options.server, "127.0.0.1:0", options.threads],
                              stdout=subprocess.PIPE, text=True)
    stop = threading.Event()
    others = []
    try:
        port = int(server.stdout.readline().rsplit(":", 1)[1])
        for path in ("/spin", "/sleep") if disturbed else ():
            others.append(threading.Thread(target=disturb, args=(port, path, stop)))
            others[-1].start()
        result = load(options, port)
    finally:
        stop.set()
        for other in others:
            other.join()
        server.terminate()
        told = server.stdout.read().strip()
        server.wait(timeout=30)
    latency = result["latency_us"]
    print(f"| {'spin and sleep' if disturbed else 'alone'} | {options.threads} | "
          + " | ".join(f"{latency[q] / 1000:.2f}" for q in ("p50", "p90", "p99", "p999", "max"))
          + f" | {result['messages']['lost']} | {told} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--server", default="build/bench/stuck_server")
    parser.add_argument("--load", default="build/bench/load")
    parser.add_argument("--threads", choices=("light", "kernel"), default="light")
    parser.add_argument("-c", "--connections", type=int, default=1000)
    parser.add_argument("-r", "--rate", type=int, default=10)
    parser.add_argument("-d", "--seconds", type=int, default=10)
    options = parser.parse_args()
    for program in (options.server, options.load):
        if not os.access(program, os.X_OK):
            sys.exit(f"stuck: {program} is not there: make bench-stuck builds it")
    print("| others | threads | p50 ms | p90 | p99 | p99.9 | max | lost | server |\n"
          "|---|---|---|---|---|---|---|---|---|")
    measure(options, disturbed=False)
    measure(options, disturbed=True)


if __name__ == "__main__":
    main()
