"""What the release build costs: system calls for each message, memory after many connections."""

import os
import shutil
import signal
import tempfile

from _rawclient import PING, PONG, TEXT, frame
from _server import ServerCase, Settings, main, release_path

ECHO = release_path("examples", "echo")
RECEIVING = {"recv", "recvfrom", "recvmsg", "read", "readv"}
SENDING = {"send", "sendto", "sendmsg", "write", "writev"}


def read_counts(path):
    """Calls by name, from what `strace -c` has written."""
    counts = {}
    with open(path, encoding="ascii") as file:
        for line in file:
            words = line.split()
            if len(words) >= 5 and words[0][0].isdigit() and words[-1] != "total":
                counts[words[-1]] = int(words[3])
    return counts


class Release(ServerCase):
    NAME = ECHO

    @classmethod
    def setUpClass(cls):
        if not os.access(ECHO, os.X_OK):
            raise AssertionError(f"{ECHO} is not there: make VARIANT=release")
        super().setUpClass()

    def count_calls(self, talk, *options):
        """All system calls of a server's life with one connection, on which this is done."""
        strace = shutil.which("strace")
        self.assertTrue(strace, "strace is not installed: make deps")
        with tempfile.NamedTemporaryFile() as table:
            server = self.start(*options, program=(strace, "-c", "-f", "-o", table.name, ECHO))
            with server.open() as client:
                talk(client)
                client.finish()
            with open(server.proc("task", str(server.pid), "children"), encoding="ascii") as file:
                [pid] = file.read().split()
            os.kill(int(pid), signal.SIGTERM)
            self.assertEqual((server.wait(), server.errors), (0, []))
            return read_counts(table.name)

    def two_calls_for_an_echo(self, *options):
        def echoes(count):
            return lambda client: [client.echo(b"x" * 1000, TEXT) for _ in range(count)]

        few, many = 500, 2500
        first, second = self.count_calls(echoes(few), *options), self.count_calls(echoes(many), *options)
        grown = {name: second[name] - first.get(name, 0) for name in second}
        messages = many - few
        print(*options, {name: n for name, n in grown.items() if n}, "for", messages, "messages", flush=True)
        receives = sum(grown.pop(name, 0) for name in RECEIVING)
        sends = sum(grown.pop(name, 0) for name in SENDING)
        if Settings.kind == "light":  # a carrier with nothing else to do waits between the two
            self.assertLessEqual(grown.pop("epoll_wait", 0), 1.02 * messages)
        self.assertGreater(receives, 0.98 * messages)
        self.assertGreater(sends, 0.98 * messages)
        self.assertLessEqual(receives + sends, 2.02 * messages)
        for name, n in grown.items():
            self.assertLess(n, 0.02 * messages, name)

    def test_two_system_calls_for_an_echo(self):
        """One to receive, one to send; the difference of two lives is what the messages cost."""
        for style in ("loop", "events"):
            with self.subTest(style=style):
                self.two_calls_for_an_echo("--style", style)

    def test_a_flood_of_pings_is_answered_in_few_system_calls(self):
        def flood(client):
            pings = [b"%d" % n for n in range(3000)]
            client.send(b"".join(frame(PING, payload) for payload in pings))
            self.assert_echoes(client, PONG, *pings)

        counts = self.count_calls(flood)
        sends = sum(counts.get(name, 0) for name in SENDING)
        print(sends, "sends in all for 3,000 pings", flush=True)
        self.assertLess(sends, 300)

    def churn(self, connections):
        for n in range(connections):
            with self.server.open() as client:
                client.echo(b"x" * (64 << n % 11))
                if n % 3 == 0:
                    client.finish()
                elif n % 3 == 1:
                    client.reset()

    def test_B117_memory_after_churn(self):
        level = self.server.level()
        sizes = []
        for connections in (500, 1500):
            self.churn(connections)
            self.server.wait_for_level(level)
            sizes.append(self.server.memory())
        print(f"resident: {sizes[0] >> 10} KiB after 500 connections, "
              f"{sizes[1] >> 10} KiB after 2,000", flush=True)
        self.assertLess(sizes[1] - sizes[0], 2 << 20)


if __name__ == "__main__":
    main()
