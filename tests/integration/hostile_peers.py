"""500 peers at once that stall on purpose: healthy clients do not notice, and a deadline cuts each of them.

All groups stall at the same time on one server, for a deadline takes long; each is measured when it has come,
against a second server that nobody molests, round trip by round trip.
"""

import resource
import select
import statistics
import threading
import time

from _rawclient import BINARY, CLOSE, PING, frame, request
from _server import ServerCase, main

CROWD = 500
HANDSHAKE_MS = 6000
PING_MS = 3000
GRACE_SECONDS = 30  # before the rate of an incomplete frame is looked at
SLACK = 15          # seconds by which a busy machine may be late
MEASURED_SECONDS = 1.0
RATIO = 4           # of the medians with and without hostile peers


class Watch(threading.Thread):
    """Notes when the server ends a connection, as seconds after a moment that is told with it."""

    def __init__(self):
        super().__init__(daemon=True)
        self.poll = select.epoll()
        self.begins = {}
        self.cut = {}
        self.stopping = False

    def add(self, client):
        self.begins[client.socket.fileno()] = time.monotonic()
        self.poll.register(client.socket, select.EPOLLRDHUP | select.EPOLLONESHOT)

    def run(self):
        while not self.stopping:
            for fd, _ in self.poll.poll(0.25):
                self.cut[fd] = time.monotonic() - self.begins[fd]


class Drip(threading.Thread):
    """Sends one byte a second on each of its connections until they end."""

    def __init__(self, clients, data):
        super().__init__(daemon=True)
        self.clients = list(clients)
        self.data = data
        self.stopping = False

    def run(self):
        for byte in self.data:
            for client in list(self.clients):
                try:
                    client.socket.send(bytes([byte]), 0)
                except OSError:
                    self.clients.remove(client)
            time.sleep(1)
            if self.stopping or not self.clients:
                return


class Group:
    """Peers that stall in the same way, and what has to become of them."""

    def __init__(self, clients, least, last_words):
        self.clients = clients
        self.least = least            # seconds before which none may be cut
        self.last_words = last_words  # opcodes of the frames that come before the end


def median_round_trips(*servers):
    """The medians of round trips on several servers in turn, by 4 clients each; in seconds."""
    clients = [[server.open() for _ in range(4)] for server in servers]
    times = [[] for _ in servers]
    end = time.monotonic() + MEASURED_SECONDS
    while time.monotonic() < end:
        for n in range(4):
            for own, own_times in zip(clients, times):
                begin = time.perf_counter()
                own[n].echo(b"x" * 100)
                own_times.append(time.perf_counter() - begin)
    for own in clients:
        for client in own:
            client.finish()
    return [statistics.median(t) for t in times]


class Stalling(ServerCase):
    OPTIONS = ("--handshake-timeout", str(HANDSHAKE_MS), "--ping", str(PING_MS),
               "--ping-timeout", str(PING_MS))

    @classmethod
    def setUpClass(cls):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8192)), hard))
        cls.addClassCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        super().setUpClass()
        cls.quiet = cls.serve()
        cls.dripped = cls.serve()
        cls.levels = [(server, server.level()) for server in cls.servers]
        cls.groups = {}
        cls.drips = []
        cls.watch = Watch()
        cls.watch.start()

    @classmethod
    def tearDownClass(cls):
        for thread in (cls.watch, *cls.drips):
            thread.stopping = True
            thread.join()
        super().tearDownClass()

    def crowd(self, connect, say):
        clients = []
        for _ in range(CROWD):
            client = connect()
            self.addClassCleanup(client.close)
            if say:
                client.send(say)
            self.watch.add(client)
            clients.append(client)
        return clients

    def compare(self, name, server, group):
        """Healthy clients, now that the group has come, on this server and on the quiet one."""
        self.groups[name] = group
        pair = (server, self.quiet)
        before = [one.cpu_seconds() for one in pair]
        medians = median_round_trips(*pair)
        cpu = [one.cpu_seconds() - start for one, start in zip(pair, before)]
        print(f"{name}: median {medians[0] * 1e6:.0f} us, {medians[1] * 1e6:.0f} us without; "
              f"CPU {cpu[0]:.2f} s, {cpu[1]:.2f} s without", flush=True)
        self.assertLess(medians[0], RATIO * medians[1])
        self.assertLess(cpu[0], RATIO * cpu[1] + 0.4 * MEASURED_SECONDS)

    def test_1_a_byte_a_second_of_a_frame(self):
        clients = self.crowd(self.dripped.open, frame(BINARY, b"x" * 60000)[:8])
        drip = Drip(clients, b"x" * 600)
        self.drips.append(drip)
        drip.start()
        self.compare("a byte a second of a frame", self.dripped,
                     Group(clients, GRACE_SECONDS, [CLOSE]))

    def test_2_nothing_at_all(self):
        clients = self.crowd(self.server.client, b"")
        self.compare("nothing at all", self.server, Group(clients, HANDSHAKE_MS / 1000, []))

    def test_2_half_a_handshake(self):
        clients = self.crowd(self.server.client, request(self.server.address)[:80])
        self.compare("half a handshake", self.server, Group(clients, HANDSHAKE_MS / 1000, []))

    def test_2_a_byte_a_second_of_a_handshake(self):
        clients = self.crowd(self.server.client, b"")
        drip = Drip(clients, request(self.server.address))
        self.drips.append(drip)
        drip.start()
        self.compare("a byte a second of a handshake", self.server,
                     Group(clients, HANDSHAKE_MS / 1000, []))

    def test_2_nothing_after_the_handshake(self):
        clients = self.crowd(self.server.open, b"")
        self.compare("nothing after the handshake", self.server,
                     Group(clients, 2 * PING_MS / 1000, [PING]))

    def test_2_half_a_frame(self):
        clients = self.crowd(self.server.open, frame(BINARY, b"x" * 1000)[:500])
        self.compare("half a frame", self.server, Group(clients, 2 * PING_MS / 1000, [PING]))

    def test_3_each_is_cut_by_its_deadline(self):
        self.assertEqual(len(self.groups), 6)
        for name, group in sorted(self.groups.items(), key=lambda item: item[1].least):
            with self.subTest(name):
                numbers = [client.socket.fileno() for client in group.clients]
                late = max(self.watch.begins[n] for n in numbers) + group.least + SLACK
                while not all(n in self.watch.cut for n in numbers) and time.monotonic() < late:
                    time.sleep(0.05)
                cut = [self.watch.cut.get(n, float("inf")) for n in numbers]
                print(f"{name}: cut after {min(cut):.2f} to {max(cut):.2f} s", flush=True)
                self.assertGreater(min(cut), 0.95 * group.least)
                self.assertLess(max(cut), group.least + SLACK)
                for client in group.clients:
                    frames = client.frames()
                    self.assertEqual([f.opcode for f in frames], group.last_words)
                    if group.last_words == [CLOSE]:
                        self.assertEqual(frames[0].payload[:2], (1008).to_bytes(2, "big"))
        for server, level in self.levels:
            server.wait_for_level(level)


if __name__ == "__main__":
    main()
