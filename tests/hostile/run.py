#!/usr/bin/env python3
"""Bad peers beside good ones, and whether the good ones notice.

For each kind of thread, plain and over TLS: a server with limits, a hundred good clients that send a hundred messages a
second in all, first alone and then beside PEERS bad ones of every behaviour for SECONDS; newcomers look in meanwhile.
Judged are: every good message came back; the 99th percentile of its round trip is below ten times that of the quiet
run; memory stays below the bound of docs/limits.md; ten seconds after the bad ones have left nothing is left of them.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
import types

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))

from _examples import fetch  # noqa: E402
from _server import Server, Settings  # noqa: E402

GOOD = 100
RECOVERY_SECONDS = 10
KIB, MIB = 1 << 10, 1 << 20
MAX_MESSAGE = 64 * KIB
TIMEOUT_MS = 5000
# With the system's own sizes those who read nothing, thousands, take all the memory it has for TCP, and its packets for
# the good ones are dropped as well.
SOCKET_BUFFER = 64 * KIB
# Below that a percentile of the quiet run says more about the machine than about the server.
QUIET_LEAST_US = 2000
FACTOR = 10

# What one connection may hold, as docs/limits.md adds it up.
PER_PEER = {
    "stack": 64 * KIB,
    "block": 4 * KIB,
    "head": 18 * KIB,
    "buffers": 2 * 16 * KIB,
    "message": 2 * MAX_MESSAGE,
    "inflating": 48 * KIB,
    "held replies": 64 * KIB,
}
PER_PEER_TLS = {"TLS": 64 * KIB, "TLS pending": 256 * KIB}
FIXED = 64 * MIB  # pools that keep what was given back, carriers, allocator


def server_options(peers, certs):
    tls = ("--tls", str(certs / "server.pem"), str(certs / "server.key"), "--trim-memory") if certs else ()
    return ("--metrics", "127.0.0.1:0", "--deflate", "--log", *tls,
            "--max-message", str(MAX_MESSAGE), "--max-connections", str(peers + 4 * GOOD),
            "--max-per-address", str(2 * GOOD), "--address-rate", str(GOOD // 2), "--address-burst", str(2 * GOOD),
            "--max-rate", str(MIB), "--receive-buffer", str(SOCKET_BUFFER), "--send-buffer", str(SOCKET_BUFFER),
            "--handshake-timeout", str(TIMEOUT_MS), "--ping", str(TIMEOUT_MS), "--ping-timeout", str(TIMEOUT_MS),
            "--write-timeout", str(TIMEOUT_MS), "--close-timeout", "2000")


class Watch(threading.Thread):
    """Does something every so often until it is told to stop."""

    def __init__(self, every, work):
        super().__init__(daemon=True)
        self.every, self.work = every, work
        self.over = threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(self.every):
            self.work()

    def stop(self):
        self.over.set()
        self.join()


class Newcomers:
    """Fresh clients, one after the other: connect, one echo, close."""

    def __init__(self, server):
        self.server = server
        self.times, self.faults = [], []

    def one(self):
        begin = time.monotonic()
        try:
            with self.server.open(patience=15) as client:
                client.echo(b"anybody there?")
                client.finish()
            self.times.append(time.monotonic() - begin)
        except (OSError, AssertionError) as fault:
            self.faults.append(repr(fault))


class Trial:
    """One kind of thread, plain or over TLS."""

    def __init__(self, args, kind, way):
        self.args, self.kind, self.secure = args, kind, way == "tls"
        self.name = f"{kind} threads, {way}"
        self.faults = []

    def check(self, holds, what):
        print(f"  {'ok  ' if holds else 'FAIL'} {what}", flush=True)
        if not holds:
            self.faults.append(what)

    def load(self, server, seconds, folder, name):
        """A hundred good clients, running; their report lands in the folder."""
        url = f"{'wss' if self.secure else 'ws'}://{server.address}/"
        return subprocess.Popen(
            [str(self.args.build / "bench" / "load"), "-c", str(GOOD), "-r", "1", "-s", "200", "-d", str(seconds),
             "--warmup", "2", "--connect-rate", "100", "--drain", "15", "--close-timeout", "10", "--connect-timeout",
             "20", "--insecure", "--threads", "1", "-q", "--json", str(folder / name), url],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def hostile(self, server, seconds, out):
        """The bad ones, who let others go first: in earnest they are not on the server's machine."""
        return subprocess.Popen(
            [str(self.args.build / "tests" / "hostile" / "hostile"), "--peers", str(self.args.peers), "--seconds",
             str(seconds), "--spread", "--json", *(("--tls",) if self.secure else ()), server.address],
            stdin=subprocess.DEVNULL, stdout=out, preexec_fn=lambda: os.nice(19))

    def good_report(self, folder, name):
        report = json.loads((folder / name).read_text(encoding="utf-8"))
        messages, connections = report["messages"], report["connections"]
        p99 = report["latency_us"]["p99"] or 0
        print(f"  {name}: {messages['received']} of {messages['scheduled']} came back, p50 "
              f"{report['latency_us']['p50'] or 0:.0f} us, p99 {p99:.0f} us, of these the generator's own "
              f"{report['lag_us']['p99'] or 0:.0f} us, errors {report['errors']}", flush=True)
        self.check(messages["scheduled"] > 0 and messages["received"] == messages["scheduled"]
                   and messages["lost"] == messages["unsent"] == 0 and connections["lost"] == 0
                   and connections["open"] == GOOD and not report["errors"],
                   f"every good message came back ({name})")
        return p99

    def run(self):
        print(f"{self.name}:", flush=True)
        Settings.kind = self.kind
        with contextlib.ExitStack() as stack:
            folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
            owner = types.SimpleNamespace(addCleanup=stack.callback)
            server = Server(owner, *server_options(self.args.peers, self.args.certs if self.secure else None),
                            "--threads", self.kind)
            self.trial(server, folder)
            status = server.end()
            self.check(status == 0, f"the server ended well ({status})")
            print(f"  {len(server.errors)} lines in its log, the last: {(server.errors or [''])[-1][:200]}", flush=True)
        return not self.faults

    def trial(self, server, folder):
        self.load(server, self.args.quiet, folder, "quiet").wait()
        quiet = self.good_report(folder, "quiet")
        level, base = self.settled(server), server.memory()
        peak = [base]
        newcomers = Newcomers(server)
        watches = [Watch(0.2, lambda: peak.append(server.memory())), Watch(0.5, newcomers.one)]
        cpu = server.cpu_seconds()
        begin = time.monotonic()
        good = self.load(server, self.args.seconds, folder, "attacked")
        time.sleep(2)
        with open(folder / "met", "w+", encoding="utf-8") as met:
            bad = self.hostile(server, self.args.seconds + 60, met)
            good.wait()
            share = (server.cpu_seconds() - cpu) / (time.monotonic() - begin)
            bad.terminate()
            self.check(bad.wait() == 0, "the bad ones did what they could")
            left = time.monotonic()
            for watch in watches:
                watch.stop()
            met.seek(0)
            self.tell(json.load(met))
        attacked = self.good_report(folder, "attacked")
        allowed = FACTOR * max(quiet, QUIET_LEAST_US) * self.args.slack
        self.check(attacked < allowed, f"p99 {attacked / 1e3:.1f} ms, {attacked / quiet:.1f} times the quiet one "
                                       f"(allowed: {allowed / 1e3:.0f} ms); the server used {share:.2f} cores")
        self.judge_newcomers(newcomers)
        self.judge_memory(base, max(peak))
        self.recovered(server, level, base, max(peak), left)

    def settled(self, server):
        """The level of a server that nobody is connected to."""
        level = None
        while level != server.level():
            level = server.level()
            time.sleep(0.5)
        return level

    def judge_newcomers(self, newcomers):
        times, faults = sorted(newcomers.times), newcomers.faults
        total = len(times) + len(faults)
        half, last = (times[len(times) // 2], times[-1]) if times else (0, 0)
        self.check(len(times) >= 0.9 * total > 0, f"{len(times)} of {total} newcomers were served, half of them within "
                                                  f"{half * 1e3:.0f} ms, all in {last * 1e3:.0f} ms {faults[:2]}")

    def judge_memory(self, base, peak):
        each = sum(PER_PEER.values()) + (sum(PER_PEER_TLS.values()) if self.secure else 0)
        bound = base + FIXED + (self.args.peers + GOOD) * each
        self.check(peak < bound, f"memory {base / MIB:.0f} MiB before, {peak / MIB:.0f} at most, the bound is "
                                 f"{bound / MIB:.0f}; {(peak - base) / self.args.peers / KIB:.0f} KiB for a bad peer")

    def recovered(self, server, level, base, peak, left):
        allowed = base + max(32 * MIB, (peak - base) // 2)
        if self.kind == "light":  # what had malloc give memory back stays for a while, as helpers do
            level = {**level, "threads": level["threads"] + 1}

        def faults():
            return [what for what, holds in (
                ("threads and descriptors", server.at_level(level)), ("memory", server.memory() <= allowed),
                ("connections", self.counter(server, "tws_connections_open") == 0),
                ("handshakes", self.counter(server, "tws_handshakes_open") == 0)) if not holds]
        missing = faults()
        while missing and time.monotonic() - left < RECOVERY_SECONDS:
            time.sleep(0.1)
            missing = faults()
        seconds = time.monotonic() - left
        self.check(not missing, f"recovered {seconds:.1f} s after they left, memory {server.memory() / MIB:.0f} MiB; "
                                f"missing: {missing}; {server.level()}, before {level}")
        newcomer = Newcomers(server)
        newcomer.one()
        self.check(not newcomer.faults, "and serves on")
        for line in self.page(server).splitlines():
            if re.match(r"tws_(limits_passed|connections_refused|log_lines)\w*\S* [1-9]", line):
                print(f"       {line}", flush=True)

    def page(self, server):
        return fetch(server.line("metrics on "))[2].decode()

    def counter(self, server, name):
        return int(re.search(rf"^{name} (\d+)$", self.page(server), flags=re.M).group(1))

    def tell(self, met):
        for name, m in met.items():
            print(f"    {name:16} {m['connections']} connections, answers {m['status'] or 'none'}, closes "
                  f"{m['close'] or 'none'}, ends {m['ends']}, resets {m['resets']}, sent {m['sent'] / KIB:.0f} KiB, "
                  f"longest {m['longest_ms'] / 1e3:.1f} s", flush=True)
        idle = [name for name, m in met.items() if m["connections"] == 0]
        self.check(not idle, f"every behaviour was played {idle or ''}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True, type=pathlib.Path, help="tree of the release build")
    parser.add_argument("--certs", required=True, type=pathlib.Path, help="folder of server.pem and server.key")
    parser.add_argument("--peers", type=int, default=1000, help="bad peers at once")
    parser.add_argument("--seconds", type=int, default=60, help="for each trial")
    parser.add_argument("--quiet", type=int, default=10, help="seconds of the quiet run")
    parser.add_argument("--trials", default="kernel-plain light-plain kernel-tls light-tls",
                        help="kinds of thread, each plain or tls")
    parser.add_argument("--slack", type=float, default=1, help="the percentile may be so many times more")
    args = parser.parse_args()
    args.build, args.certs = args.build.resolve(), args.certs.resolve()
    os.environ["TWS_BUILD"] = str(args.build)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    trials = [Trial(args, *name.split("-")) for name in args.trials.split()]
    passed = sum(trial.run() for trial in trials)
    print(f"{passed} passed, {len(trials) - passed} failed, 0 skipped")
    return 0 if trials and passed == len(trials) else 1


if __name__ == "__main__":
    sys.exit(main())
