"""Crowds of peers that stall on purpose: healthy clients do not notice, and a deadline cuts each of them.

All groups stall at the same time, for a deadline takes long; each is measured when it has come, against a second server
that nobody molests, round trip by round trip.
"""

import resource
import select
import statistics
import threading
import time

from _server import ServerCase

SLACK = 15  # seconds by which a busy machine may be late
MEASURED_SECONDS = 1.0
RATIO = 4   # of the medians with and without hostile peers


class Watch(threading.Thread):
    """Notes when the server ends a connection, as seconds after a moment that is told with it."""

    def __init__(self):
        super().__init__(daemon=True)
        self.poll = select.epoll()
        self.begins = {}
        self.cut = {}
        self.stopping = False

    def add(self, client, begin):
        self.begins[client.socket.fileno()] = begin
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

    def __init__(self, clients, least, check):
        self.clients = clients
        self.least = least  # seconds before which none may be cut
        self.check = check  # called with each of them in the end: what it has received


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


class StallingCase(ServerCase):
    """Tests named test_1 to test_2 make a crowd each and compare(); test_3 calls check_cuts()."""

    CROWD = 500

    @classmethod
    def setUpClass(cls):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8192)), hard))
        cls.addClassCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        super().setUpClass()
        cls.quiet = cls.serve()
        cls.serve_more()
        cls.levels = [(server, server.level()) for server in cls.servers]
        cls.groups = {}
        cls.drips = []
        cls.watch = Watch()
        cls.watch.start()

    @classmethod
    def serve_more(cls):
        """Servers beside those two."""

    @classmethod
    def tearDownClass(cls):
        for thread in (cls.watch, *cls.drips):
            thread.stopping = True
            thread.join()
        super().tearDownClass()

    def crowd(self, connect, say=None):
        """say: bytes, or a function that says something through a client."""
        clients = []
        for _ in range(self.CROWD):
            begin = time.monotonic()  # the server cannot have begun earlier
            client = connect()
            self.addClassCleanup(client.close)
            if callable(say):
                say(client)
            elif say:
                client.send(say)
            self.watch.add(client, begin)
            clients.append(client)
        return clients

    def drip(self, clients, data):
        """Lets each of them send a byte a second from now on."""
        drip = Drip(clients, data)
        self.drips.append(drip)
        drip.start()

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

    def check_cuts(self, count):
        """Each of the crowd has been cut, not before its time, and nothing of it is left."""
        self.assertEqual(len(self.groups), count)
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
                    group.check(client)
        for server, level in self.levels:
            server.wait_for_level(level)
