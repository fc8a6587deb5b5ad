#!/usr/bin/env python3
"""What a cluster of a million connections does when it cannot be tried: clients that come back after nodes have died, and
messages to members on many nodes. Prints the tables of docs/scale.md, the same ones every time.

Time goes in steps of 10 ms. Clients behave as tws_reconnect() does with its defaults. A node does handshakes one after
the other at the rate that was measured, has at most so many waiting, and refuses the rest, which costs it a quarter.
Clients are spread evenly, so one node stands for all that are left.
"""

import argparse
import collections
import random
import sys

CLIENTS = 1_000_000
NODES = 24
SEED = 6455

# docs/benchmarks.md, W5 and W2, libtws-light on two cores that the generator needed as well: 12,616 handshakes a second;
# 100,000 echoes of 1,000 B a second for 100 % of a core. What a member of a room costs is less than an echo: a write.
HANDSHAKES = 12_616
MEMBER_US = 10
BROKER_MS = 3  # docs/cluster.md: publish to a client elsewhere, median

# The library's defaults: tws_reconnect_options, tws_server_options, tws_conn_options.
MIN_DELAY, MAX_DELAY = 500, 30_000
MAX_HANDSHAKES = 4096
PING_INTERVAL, PING_TIMEOUT = 30_000, 20_000

STEP_MS = 10
REFUSAL = 0.25
PEAK_MS = 100


def pause(failures):
    """Before the next attempt, at most; see reconnect_delay() in src/client/reconnect.c."""
    return min(MAX_DELAY, MIN_DELAY << max(failures - 1, 0))


class Storm:
    """The clients that come to one node."""

    def __init__(self, clients, rate=HANDSHAKES, pings=False, jitter=True):
        self.dice = random.Random(SEED)
        self.per_step = rate * STEP_MS / 1000
        self.jitter = jitter
        self.attempts = collections.defaultdict(collections.Counter)  # by step, by failures so far
        self.peak, self.refused, self.done = 0, 0, []
        for _ in range(clients):
            noticed = PING_TIMEOUT + self.dice.random() * PING_INTERVAL if pings else 0
            self.come(noticed, 0)
        self.run(clients)

    def come(self, now_ms, failures):
        """Another attempt, in a later step."""
        wait = STEP_MS + pause(failures) * (self.dice.random() if self.jitter else 1)
        self.attempts[int((now_ms + wait) // STEP_MS)][failures] += 1

    def run(self, clients):
        waiting, step, power, window = collections.deque(), 0, 0.0, collections.deque()
        while len(self.done) < clients:
            power = min(power + self.per_step, 2 * self.per_step)
            now = self.attempts.pop(step, {})
            window.append(sum(now.values()))
            if len(window) > PEAK_MS // STEP_MS:
                window.popleft()
            self.peak = max(self.peak, sum(window) * 1000 // PEAK_MS)
            for failures, count in now.items():
                room = max(0, min(count, MAX_HANDSHAKES - len(waiting)))
                waiting.extend([failures] * room)
                for _ in range(count - room):
                    self.refused += 1
                    power -= REFUSAL
                    self.come(step * STEP_MS, failures + 1)
            while waiting and power >= 1:
                waiting.popleft()
                power -= 1
                self.done.append(step * STEP_MS)
            step += 1

    def after(self, part):
        return self.done[max(0, int(len(self.done) * part) - 1)] / 1000


def storms():
    each = CLIENTS // NODES
    left = each // (NODES - 1)
    for name, storm in (
            ("one process dies", Storm(left)),
            ("one machine vanishes, found by pings", Storm(left, pings=True)),
            ("three processes die at once", Storm(3 * each // (NODES - 3))),
            ("all lose their connections at once", Storm(each)),
            ("the same, nodes a quarter as fast", Storm(each, HANDSHAKES // 4)),
            ("the same, pauses that are not random", Storm(each, HANDSHAKES // 4, jitter=False))):
        yield (name, f"{len(storm.done):,}", f"{storm.peak:,}", f"{storm.refused:,}",
               *(f"{storm.after(part):.1f}" for part in (0.5, 0.99, 1)))


def fan_out(nodes, rate):
    """One room of all clients: milliseconds until the last member has it, median and the 99th of 100, of publishes
    that come by chance. A hub writes to the members of a room one after the other."""
    dice = random.Random(SEED)
    work = CLIENTS / nodes * MEMBER_US / 1000
    now = free = 0.0
    delays = []
    for _ in range(10_000):
        now += dice.expovariate(rate / 1000)
        free = max(free, now + BROKER_MS) + work
        delays.append(free - now)
    delays.sort()
    return work, delays[len(delays) // 2], delays[len(delays) * 99 // 100]


def fan_outs():
    rate = 1
    for nodes in (12, 24, 48, 96):
        work, half, most = fan_out(nodes, rate)
        yield (f"{nodes}", f"{CLIENTS // nodes:,}", f"{work:,.0f}", f"{1000 / work:.1f}", f"{half:,.0f}", f"{most:,.0f}")


def spreads():
    """On how many nodes the members of a room are, when a proxy has put each anywhere."""
    dice = random.Random(SEED)
    for members in (2, 10, 100, 1000):
        found = [len({dice.randrange(NODES) for _ in range(members)}) for _ in range(2000)]
        mean = sum(found) / len(found)
        yield (f"{members:,}", f"{mean:.1f}", f"{mean / members:.2f}")


def table(head, rows):
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ("---",) * len(head), *rows))


def page():
    return "\n\n".join((
        table(("what ends", "come to each node", "attempts/s there, peak", "refused", "half are back after s", "99 %", "all"),
              storms()),
        table(("nodes", "members at each", "ms of one core for a publish", "publishes/s at most",
               "last member has it after ms, at 1/s: median", "99th of 100"), fan_outs()),
        table(("members of a room", f"nodes of {NODES} that have some", "messages of the broker for each delivery"),
              spreads()))) + "\n"


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    sys.stdout.write(page())


if __name__ == "__main__":
    main()
