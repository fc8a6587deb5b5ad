"""The restart example: peers that go on talking while one process after another takes them over."""

import asyncio
import os
import resource
import signal
import unittest

import websockets

from _examples import PATIENCE, Program, quiet_loop, run, wait_for

THREADS = os.environ.get("TWS_TEST_THREADS", "kernel")


class CommandLine(unittest.TestCase):
    def test_help(self):
        status, output, errors = run("restart", "--help")
        self.assertEqual((status, errors), (0, ""))
        self.assertIn("SIGHUP", output)

    def test_bad_options(self):
        for args, status in ((["--threads", "heavy"], 2), (["--what"], 2), (["--listen", "nowhere"], 1),
                             (["--listen", "fd:0"], 1)):
            with self.subTest(args=args):
                got, output, errors = run("restart", *args)
                self.assertEqual((got, output), (status, ""))
                self.assertTrue(errors)


class Restart(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        quiet_loop()
        self.program = Program(self, "restart", "--listen", "127.0.0.1:0", "--threads", THREADS)
        [self.address] = self.program.addresses()
        self.addCleanup(self.kill_all)

    def pids(self):
        return [int(line.split()[1]) for line in list(self.program.lines) if line.startswith("process ")]

    def kill_all(self):
        for pid in self.pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def took(self):
        return [int(line.split()[2]) for line in list(self.program.lines) if line.startswith("took over ")]

    def gone(self, pid):
        """Ended. The first one is this process's child; the others' parents have ended before them."""
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
                return stat.read().split()[2] == "Z"
        except (FileNotFoundError, ProcessLookupError):  # before it is opened, or while it is read
            return True

    async def restart(self):
        pids, taken = self.pids(), len(self.took())
        os.kill(pids[-1], signal.SIGHUP)
        await asyncio.to_thread(wait_for, "a successor", lambda: len(self.took()) > taken)
        await asyncio.to_thread(wait_for, "the end of the old one", lambda: self.gone(pids[-1]))
        self.assertEqual(len(self.pids()), len(pids) + 1)
        return self.took()[-1]

    async def talk(self, ws, counts, index, stop):
        """Several messages on their way at any time; every answer has its number, in order."""
        said = heard = 0
        while not stop.is_set() or heard < said:
            while said < heard + 5 and not stop.is_set():
                said += 1
                await ws.send(f"message {said}" + "." * (said % 50))
            answer = await asyncio.wait_for(ws.recv(), PATIENCE)
            heard += 1
            self.assertEqual(answer, f"{heard} message {heard}" + "." * (heard % 50))
            counts[index] = heard

    async def test_peers_stay(self):
        clients, restarts = 8, 4
        stop, counts = asyncio.Event(), [0] * clients
        peers = [await websockets.connect(f"ws://{self.address}/", open_timeout=PATIENCE) for _ in range(clients)]
        silent = await websockets.connect(f"ws://{self.address}/", open_timeout=PATIENCE)
        tasks = [asyncio.create_task(self.talk(ws, counts, i, stop)) for i, ws in enumerate(peers)]
        for _ in range(restarts):
            before = list(counts)
            self.assertEqual(await self.restart(), clients + 1)
            # Somebody new gets in, too.
            async with websockets.connect(f"ws://{self.address}/", open_timeout=PATIENCE) as new:
                await new.send("hello")
                self.assertEqual(await asyncio.wait_for(new.recv(), PATIENCE), "1 hello")
            await asyncio.to_thread(wait_for, "more messages", lambda b=before: all(
                now > was for now, was in zip(counts, b)))
        stop.set()
        await asyncio.gather(*tasks)
        await silent.send("still here")
        self.assertEqual(await asyncio.wait_for(silent.recv(), PATIENCE), "1 still here")
        os.kill(self.pids()[-1], signal.SIGTERM)
        for ws in [*peers, silent]:
            await asyncio.wait_for(ws.wait_closed(), PATIENCE)
            self.assertEqual(ws.close_code, 1001)
        self.assertEqual(self.program.errors, [])

    async def test_no_successor(self):
        """A program that cannot be started again goes on by itself."""
        async with websockets.connect(f"ws://{self.address}/", open_timeout=PATIENCE) as ws:
            await ws.send("a")
            self.assertEqual(await ws.recv(), "1 a")
            pid = self.program.process.pid
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (8, 8))  # as many as it has, and less
            os.kill(pid, signal.SIGHUP)
            await asyncio.to_thread(wait_for, "its word", lambda: self.program.errors)
            await ws.send("b")
            self.assertEqual(await asyncio.wait_for(ws.recv(), PATIENCE), "2 b")


if __name__ == "__main__":
    unittest.main()
