"""Three nodes on a broker that is killed and restarted, thousands of clients over them, and the sum at the end: every
message was delivered once and in order, or its absence has been reported.

usage: _cluster.py [--broker nats|redis] [--seconds N] [--clients N] [--rooms N] [--rate N] [--away S] [--every S]

`make cluster-run` builds what it needs and runs it.
"""

import argparse
import collections
import json
import os
import pathlib
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time

from _kit import answers, build_path, free_port, tool, wait_for

NODES = 3


def in_time(seconds, condition):
    """Whether a condition comes true within that time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True


class Program:
    """A program that is told things and tells things, a line each. `seen` gets every line that it tells."""

    def __init__(self, command, seen=lambda line: None):
        self.name = os.path.basename(command[0])
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.lines = queue.Queue()
        self.seen = seen
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def listen(self):
        for line in self.process.stdout:
            self.seen(line.rstrip("\n"))
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def say(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def until(self, word, patience=60):
        """The lines up to the one that begins with that word, which is the last."""
        lines = []
        while True:
            line = self.lines.get(timeout=patience)
            if line is None:
                raise AssertionError(f"{self.name} ended with {self.process.wait()} before it said '{word}'")
            lines.append(line)
            if line.split(" ")[0] == word:
                return lines

    def end(self):
        self.process.kill()
        self.process.wait()
        self.thread.join()
        self.process.stdin.close()
        self.process.stdout.close()


class Broker:
    """A server on a port of its own that can be killed and started again."""

    def __init__(self, command, port, folder):
        self.command = command
        self.port = port
        self.folder = folder
        self.process = None
        self.start()

    def start(self):
        with open(os.path.join(self.folder, f"{self.port}.log"), "ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            cwd=self.folder)
        wait_for(f"{self.command[0]} on port {self.port}", lambda: answers(self.port))

    def kill(self):
        self.process.kill()
        self.process.wait()


def nats_brokers(folder, count=NODES, more=()):
    """Servers in one NATS cluster, if they are several."""
    ports = [free_port() for _ in range(2 * count)]
    routes = ",".join(f"nats://127.0.0.1:{p}" for p in ports[count:])

    def cluster(i):
        if count == 1:
            return []
        return ["--cluster_name", "tws", "--cluster", f"nats://127.0.0.1:{ports[count + i]}", "--routes", routes]

    return [Broker([tool("nats-server"), "-a", "127.0.0.1", "-p", str(ports[i]), *cluster(i), *more], ports[i], folder)
            for i in range(count)]


def redis_broker(folder, *more):
    port = free_port()
    return Broker([tool("redis-server"), "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no",
                   *more], port, folder)


class Node(Program):
    """A cluster_node; keeps the gaps that it reports, and in which state it is."""

    def __init__(self, *arguments):
        self.gaps = []
        self.states = []
        super().__init__([build_path("tests/interop/cluster_node"), *map(str, arguments)], self.note)

    def note(self, line):
        word, _, rest = line.partition(" ")
        if word == "gap":
            cause, origin, missed, room = rest.split(" ", 3)
            self.gaps.append((cause, origin, int(missed), room))
        elif word == "state":
            self.states.append(rest)

    def begin(self):
        lines = dict(line.split(" ", 1) for line in self.until("listening") if line.startswith(("origin", "listening")))
        self.origin = lines["origin"]
        self.address = lines["listening"]
        return self

    def look(self):
        """Counters by name, and rooms: number to (here, elsewhere, nodes)."""
        self.say("look")
        rows = [line.split(" ") for line in self.until("looked")]
        counters = {row[1]: int(row[2]) for row in rows if row[0] == "counted"}
        rooms = {int(row[1]): tuple(map(int, row[2:])) for row in rows if row[0] == "room"}
        return counters, rooms

    def stop_publishing(self):
        """Room to (published, refused)."""
        self.say("stop")
        rows = [line.split(" ") for line in self.until("stopped")]
        return {int(row[1]): (int(row[2]), int(row[3])) for row in rows if row[0] == "published"}

    def is_up(self):
        return bool(self.states) and self.states[-1].startswith("up")

    def quit(self):
        self.say("quit")
        self.until("ended")
        return self.process.wait(20)


class Run:
    """The whole of it. `brokers` is killed and restarted one at a time."""

    def __init__(self, kind, folder, seconds, clients, rooms, rate, every, away):
        self.seconds, self.rooms, self.rate, self.every, self.away = seconds, rooms, rate, every, away
        self.each = clients // NODES
        self.kills = 0
        self.programs = []
        self.brokers = nats_brokers(folder) if kind == "nats" else [redis_broker(folder)]
        self.nodes = []
        for i in range(NODES):
            port = self.brokers[i % len(self.brokers)].port
            where = f"nats://127.0.0.1:{port}" if kind == "nats" else f"127.0.0.1:{port}"
            share = rate // NODES + (i < rate % NODES)
            self.nodes.append(self.keep(Node(f"--{kind}", where, "--number", i, "--rooms", rooms, "--rate", share)))
        for node in self.nodes:
            node.begin()
        self.crowd = self.keep(Program([build_path("tests/interop/cluster_crowd"), str(rooms), str(self.each),
                                        *(n.address for n in self.nodes)]))
        self.crowd.until("connected")

    def keep(self, program):
        self.programs.append(program)
        return program

    def end(self):
        for program in self.programs:
            program.end()
        for broker in self.brokers:
            broker.kill()

    def together(self):
        """Whether every node counts every client in every room."""
        for node in self.nodes:
            _, rooms = node.look()
            if sum(here + elsewhere for here, elsewhere, _ in rooms.values()) != NODES * self.each:
                return False
        return True

    def trouble(self):
        """Kills brokers and starts them again, until the time is over."""
        end = time.monotonic() + self.seconds
        turn = 0
        while time.monotonic() + self.every + self.away < end:
            time.sleep(self.every)
            broker = self.brokers[turn % len(self.brokers)]
            broker.kill()
            time.sleep(self.away)
            broker.start()
            self.kills += 1
            turn += 1
        time.sleep(max(0.0, end - time.monotonic()))

    def counted(self):
        """What the clients have: by kind of line."""
        self.crowd.say("tell")
        found = collections.defaultdict(list)
        for line in self.crowd.until("told"):
            kind, *rest = line.split(" ")
            found[kind].append(rest)
        return found

    def sums(self):
        """Published, delivered and reported as missing: for each server, room and other node."""
        found = self.counted()
        got = {tuple(map(int, row[:3])): (int(row[3]), int(row[4])) for row in found["got"]}
        names = {node.origin: i for i, node in enumerate(self.nodes)}
        missed, unknown = collections.Counter(), collections.Counter()
        for i, node in enumerate(self.nodes):
            for cause, origin, count, room in list(node.gaps):
                if cause == "unsent":
                    continue
                key = (i, int(re.fullmatch(r"room (\d+)", room).group(1)), names[origin]) if room != "(all)" else None
                if key:
                    missed[key] += count
                    unknown[key] += count == 0
        return found, got, missed, unknown

    def open_ends(self, published):
        """Where published is neither delivered nor reported, or not the same for all clients of a room."""
        _, got, missed, _ = self.sums()
        faults = []
        for i in range(NODES):
            for room in range(self.rooms):
                for j in range(NODES):
                    least, most = got.get((i, room, j), (0, 0))
                    wanted = published[j][room][0] - (0 if i == j else missed[(i, room, j)])
                    if (least, most) != (wanted, wanted):
                        faults.append(f"server {i}, room {room}, node {j}: {least} to {most} of {wanted} "
                                      f"({published[j][room][0]} published)")
        return faults

    def go(self):
        """Runs it. The figures; `faults` is empty when all holds."""
        if not in_time(90, self.together):
            raise AssertionError("the nodes do not know of all clients")
        for node in self.nodes:
            node.say("go")
        began = time.monotonic()
        self.trouble()
        published = [node.stop_publishing() for node in self.nodes]
        took = time.monotonic() - began
        in_time(30, lambda: not self.open_ends(published))
        return self.figures(published, took)

    def figures(self, published, took):
        found, got, missed, unknown = self.sums()
        faults = self.open_ends(published)[:20]
        counters = [node.look()[0] for node in self.nodes]
        for kind in ("wrong", "ended", "twice", "late"):
            faults += [f"{kind}: server {row[0]}: {row[1]}" for row in found[kind] if row[1] != "0"]
        for i, c in enumerate(counters):
            faults += [f"node {i}: {name} {c[name]}" for name in ("foreign", "hub_dropped", "unsent") if c[name]]
        for i, node in enumerate(self.nodes):
            if node.quit() != 0:
                faults.append(f"node {i} ended with {node.process.returncode}")
        total = sum(p for one in published for p, _ in one.values())
        remote = sum(least for (i, _, j), (least, _) in got.items() if i != j)
        return {
            "seconds": round(took, 1), "clients": NODES * self.each, "rooms": self.rooms, "kills": self.kills,
            "published": total, "published_per_second": round(total / took, 1),
            "refused": sum(r for one in published for _, r in one.values()),
            "deliveries": sum(least * len(range(room, self.each, self.rooms)) for (_, room, _), (least, _)
                              in got.items()),
            "node_deliveries": remote, "node_missed": sum(missed.values()),
            "node_expected": (NODES - 1) * total, "gaps_reported": sum(len(n.gaps) for n in self.nodes),
            "gaps_without_a_count": sum(unknown.values()),
            "of_these_silent_nodes": sum(gap[0] == "silent" for n in self.nodes for gap in n.gaps),
            "connections_lost": sum(len([s for s in n.states if s.startswith("down")]) for n in self.nodes),
            "stale_ignored": sum(c["stale"] for c in counters), "echoes_ignored": sum(c["echoes"] for c in counters),
            "times_us": {row[0]: {"p50": int(row[1]), "p99": int(row[2]), "most": int(row[3])} for row in found["time"]},
            "faults": faults,
        }


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    args.add_argument("--broker", choices=("nats", "redis"), default="nats")
    args.add_argument("--seconds", type=int, default=300)
    args.add_argument("--clients", type=int, default=3000)
    args.add_argument("--rooms", type=int, default=30)
    args.add_argument("--rate", type=int, default=100)
    args.add_argument("--every", type=float, default=12)
    args.add_argument("--away", type=float, default=3)
    a = args.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Run(a.broker, folder, a.seconds, a.clients, a.rooms, a.rate, a.every, a.away)
        try:
            figures = run.go()
        finally:
            run.end()
    print(json.dumps({"broker": a.broker, **figures}, indent=2))
    return 1 if figures["faults"] else 0


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    sys.exit(main())
