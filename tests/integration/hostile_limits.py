"""A server that has no descriptor or no thread left: it refuses politely, rests, and recovers by itself."""

import os
import resource
import shutil
import tempfile
import time

from _examples import build_path, wait_for
from _rawclient import request
from _server import ServerCase, Settings, main

CROWD = 200
DESCRIPTORS = 64
THREADS = 40
WATCHED_SECONDS = 3


def outcome(client):
    """What became of a handshake: the status, or "closed" for a stream that ended without an answer."""
    try:
        while b"\r\n\r\n" not in client.data:
            if not client.more():
                return "closed" if not client.data else "torn"
    except ConnectionResetError:
        return "closed"
    return client.response().status


def tasks_of(uid):
    """How many threads run under a user id."""
    count = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{pid}").st_uid == uid:
                count += len(os.listdir(f"/proc/{pid}/task"))
        except FileNotFoundError:
            pass
    return count


class Exhaustion(ServerCase):
    def check_alive(self):
        """The servers here are the tests' own."""

    def crowd(self, server):
        """As many handshakes at once; returns the clients by outcome."""
        clients = []
        for _ in range(CROWD):
            client = server.client()
            self.addCleanup(client.close)
            clients.append(client)
        for client in clients:
            try:
                client.send(request(client.host))
            except (BrokenPipeError, ConnectionResetError):
                pass  # refused already
        result = {}
        for client in clients:
            result.setdefault(outcome(client), []).append(client)
        print({key: len(value) for key, value in result.items()}, flush=True)
        return result

    def idle_cpu(self, server):
        """The share of a core that the server uses in some seconds, while 20 more want to come in."""
        more = [server.client() for _ in range(20)]
        time.sleep(0.5)
        begin, cpu = time.monotonic(), server.cpu_seconds()
        time.sleep(WATCHED_SECONDS)
        share = (server.cpu_seconds() - cpu) / (time.monotonic() - begin)
        print(f"{100 * share:.1f} % of a core while exhausted", flush=True)
        for client in more:
            client.close()
        return share

    def exhaust(self, server, most):
        """The whole story, for a server that can serve at most so many."""
        first = [server.open() for _ in range(10)]
        for client in first:
            self.addCleanup(client.close)
        level = server.level()
        result = self.crowd(server)
        self.assertLessEqual(set(result), {101, 503, "closed"})
        self.assertGreater(len(result[101]), most // 2)
        self.assertLess(len(result[101]), most)
        self.assertGreater(len(result.get(503, [])), 0)
        for client in first + result[101]:
            client.echo(b"goes on")
        self.assertLess(self.idle_cpu(server), 0.05)
        for client in first + result[101]:
            client.echo(b"still goes on")
        for client in result[101][:10]:
            client.finish()
        wait_for("a place again", lambda: self.served(server))
        for group in result.values():
            for client in group:
                client.close()
        server.wait_for_level(level)
        for client in first:
            client.echo(b"as before")
            client.finish()
        server.end_well()

    @staticmethod
    def served(server):
        with server.client() as client:
            client.send(request(client.host))
            return outcome(client) == 101

    def test_no_descriptor_left(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
        self.exhaust(self.start(preexec_fn=limit), DESCRIPTORS)

    def test_no_thread_left(self):
        """The limit counts the threads of a user and does not bind root, so root borrows an unused id."""
        uid = os.geteuid() or next(n for n in range(54321, 60000) if tasks_of(n) == 0)
        threads = tasks_of(uid) + THREADS

        def limit():
            resource.setrlimit(resource.RLIMIT_NPROC, (threads, threads))
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)

        with tempfile.TemporaryDirectory() as folder:  # the build tree may be root's alone
            os.chmod(folder, 0o755)
            program = shutil.copy(build_path("examples", "echo"), folder)
            server = self.start(program=program, preexec_fn=limit)
            if Settings.kind == "light":
                self.serve_all(server)
            else:
                self.exhaust(server, THREADS)

    def serve_all(self, server):
        """Light threads need no more of the system's: everybody is served."""
        level = server.level()
        result = self.crowd(server)
        self.assertEqual(set(result), {101})
        for client in result[101]:
            client.echo(b"served")
        for client in result[101]:
            client.close()
        server.wait_for_level(level)
        server.end_well()


if __name__ == "__main__":
    main()
