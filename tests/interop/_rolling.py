"""Three echoes behind a proxy are ended and started again, one after the other, while clients talk through it to them:
each is told 1001, comes back, and has every message answered in the end.

usage: _rolling.py [--proxy haproxy|nginx|envoy] [--clients N] [--pause MS] [--lame-duck MS]

`make rolling-restart` builds what it needs and runs it.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import types

from _kit import PATIENCE, build_path, wait_for
from _proxies import NAMES, Backend, Proxy

GOING_AWAY = "1001"


class Fleet:
    """The clients; see fleet.c."""

    def __init__(self, owner, url, clients, pause_ms):
        self.process = subprocess.Popen([build_path("tests", "interop", "fleet"), url, str(clients), str(pause_ms)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        owner.addCleanup(self.kill)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def counts(self):
        self.process.stdin.write("?\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def leave(self):
        """All close; what they have seen."""
        self.process.stdin.close()
        counts = json.loads(self.process.stdout.readline())
        if self.process.wait(PATIENCE) != 0:
            raise AssertionError(f"the fleet ended with {self.process.returncode}")
        return counts


def roll(owner, proxy_name, clients, pause_ms, lame_ms, times=(), say=lambda text: None):
    """All of it; what the clients have seen."""
    servers = [Backend(owner, "--lame-duck", str(lame_ms), "--max-connections", "0") for _ in range(3)]
    proxy = Proxy(owner, proxy_name, [server.port for server in servers], times=times)
    for server in servers:
        wait_for("a server that gets clients", lambda server=server: proxy.reaches(server))
    fleet = Fleet(owner, f"ws://127.0.0.1:{proxy.plain}/", clients, pause_ms)
    wait_for("the fleet", lambda: fleet.counts()["open"] == clients)
    for number, server in enumerate(servers):
        before, had = fleet.counts(), server.open()
        server.leave()
        status = server.program.wait()
        if status != 0 or server.program.errors:
            raise AssertionError(f"a server ended with {status}: {server.program.errors}")
        server.start()
        wait_for("all clients", lambda: fleet.counts()["open"] == clients)
        wait_for("clients at the one that is back", lambda server=server: proxy.reaches(server))
        wait_for("messages after that", lambda before=before: fleet.counts()["acknowledged"] > before["acknowledged"])
        say(f"server {number + 1} restarted; it had {had} of {clients} clients")
    return fleet.leave()


def faults(seen, clients):
    """What should not be, in words."""
    ends = seen["ended"]
    if set(ends) != {GOING_AWAY}:
        yield f"connections ended with {ends}"
    if sum(ends.values()) != seen["connections"] - clients:
        yield f"{seen['connections']} connections, {sum(ends.values())} ended"
    if seen["refused"]:
        yield f"{seen['refused']} attempts were refused"
    if seen["wrong"]:
        yield f"{seen['wrong']} answers belonged to other messages"
    if seen["acknowledged"] != seen["sent"]:
        yield f"{seen['sent']} messages, {seen['acknowledged']} answered"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\nusage")[0])
    parser.add_argument("--proxy", choices=NAMES, default="haproxy")
    parser.add_argument("--clients", type=int, default=300)
    parser.add_argument("--pause", type=int, default=100, help="ms between a client's messages")
    parser.add_argument("--lame-duck", type=int, default=5000, help="ms for which a server says that it leaves")
    args = parser.parse_args()
    with contextlib.ExitStack() as stack:
        owner = types.SimpleNamespace(addCleanup=stack.callback)
        seen = roll(owner, args.proxy, args.clients, args.pause, args.lame_duck, say=lambda text: print(text, flush=True))
    print(f"{args.clients} clients, {seen['connections']} connections; {seen['ended'].get(GOING_AWAY, 0)} ended with 1001, "
          f"{sum(seen['ended'].values()) - seen['ended'].get(GOING_AWAY, 0)} otherwise; {seen['refused']} refused")
    print(f"{seen['sent']} messages, {seen['acknowledged']} answered, {seen['again']} of them sent once more; "
          f"longest without a connection {seen['longest_ms']} ms")
    found = list(faults(seen, args.clients))
    print("\n".join(found) or "nothing was lost")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
