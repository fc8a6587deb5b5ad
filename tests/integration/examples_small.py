"""The smaller examples: ticker and subscriber together, json."""

import asyncio
import json
import os
import signal
import unittest

import websockets

from _examples import PATIENCE, Program, quiet_loop, run, wait_for

LOCAL = "127.0.0.1:0"
THREADS = os.environ.get("TWS_TEST_THREADS", "kernel")


def start(test, name, *args, listen=LOCAL):
    program = Program(test, name, "--listen", listen, "--threads", THREADS, *args)
    [address] = program.addresses()
    return program, address


class CommandLine(unittest.TestCase):
    def test_help(self):
        for name, words in (("ticker", ("--listen", "--origin", "--interval", "--threads")),
                            ("subscriber", ("--count", "--attempts", "--silence", "--pause")),
                            ("json", ("--listen", "--threads"))):
            status, output, errors = run(name, "--help")
            self.assertEqual((status, errors), (0, ""))
            for word in words:
                self.assertIn(word, output)

    def test_bad_options(self):
        for args in (["ticker", "--interval", "0"], ["ticker", "--threads", "heavy"], ["subscriber", "ws://127.0.0.1/"],
                     ["subscriber", "--count", "some", "ws://127.0.0.1/", "A"], ["json", "--threads", "heavy"]):
            with self.subTest(args=args):
                status, output, errors = run(*args)
                self.assertEqual((status, output), (2, ""))
                self.assertTrue(errors)

    def test_what_another_attempt_would_not_mend(self):
        status, output, errors = run("subscriber", "http://127.0.0.1/", "A")
        self.assertEqual((status, output), (1, ""))
        self.assertIn("scheme", errors)


class Ticker(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        quiet_loop()

    async def test_prices_count_up(self):
        ticker, address = start(self, "ticker", "--interval", "5", "A", "B")
        async with websockets.connect(f"ws://{address}/", open_timeout=PATIENCE) as client:
            await client.send("subscribe A")
            numbers = []
            while len(numbers) < 10:
                name, price, number = (await asyncio.wait_for(client.recv(), PATIENCE)).split()
                self.assertEqual(name, "A")
                self.assertGreater(float(price), 0)
                numbers.append(int(number))
            # the last price once more when it changes just then; none is missing
            self.assertEqual(sorted(set(numbers)), list(range(numbers[0], numbers[-1] + 1)))
            self.assertEqual(numbers, sorted(numbers))
            await client.send("subscribe B")
            await client.send("unsubscribe A")
            while (await asyncio.wait_for(client.recv(), PATIENCE)).startswith("A"):
                pass
        self.assertEqual(ticker.end(), 0, ticker.errors)

    async def test_what_it_does_not_understand(self):
        _, address = start(self, "ticker", "A")
        for text in ("subscribe C", "fly A", "subscribe"):
            async with websockets.connect(f"ws://{address}/", open_timeout=PATIENCE) as client:
                await client.send(text)
                with self.assertRaises(websockets.ConnectionClosed):
                    await asyncio.wait_for(client.recv(), PATIENCE)
                self.assertEqual(client.close_code, 1008)

    def subscribe(self, address, *options):
        program = Program(self, "subscriber", *options, f"ws://{address}/", "A")
        wait_for("prices", lambda: program.lines)
        return program

    async def test_subscriber_comes_back(self):
        ticker, address = start(self, "ticker", "--interval", "5", "A")
        follower = self.subscribe(address, "--pause", "10")
        for how in (signal.SIGTERM, signal.SIGKILL):
            ticker.end(how)
            wait_for("the end", lambda: "again in" in follower.errors[-1])
            ticker, _ = start(self, "ticker", "--interval", "5", "A", listen=address)
            before = len(follower.lines)
            wait_for("new prices", lambda n=before: len(follower.lines) > n)
        self.assertEqual(follower.end(signal.SIGINT), 0)
        said = [line for line in follower.errors if line.startswith("subscriber: connected to " + address)]
        self.assertEqual(len(said), 3, follower.errors)
        self.assertTrue(all(line.startswith("A ") for line in follower.lines))
        self.assertEqual(ticker.end(), 0, ticker.errors)

    async def test_subscriber_ends(self):
        ticker, address = start(self, "ticker", "--interval", "5", "A")
        follower = self.subscribe(address, "--count", "5")
        self.assertEqual(follower.wait(), 0, follower.errors)
        self.assertEqual(len(follower.lines), 5)
        ticker.end()
        status, output, errors = run("subscriber", "--attempts", "2", "--pause", "1", f"ws://{address}/", "A")
        self.assertEqual((status, output), (1, ""))
        self.assertIn("refused", errors)
        self.assertIn("again in", errors)


class Json(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        quiet_loop()

    async def test_answers(self):
        program, address = start(self, "json")
        async with websockets.connect(f"ws://{address}/", open_timeout=PATIENCE) as client:
            for question, answer in (
                    ('{"id": 1, "op": "add", "a": 2, "b": 3}', {"id": 1, "result": 5}),
                    ('{"id": "x", "op": "multiply", "a": 2.5, "b": -4}', {"id": "x", "result": -10}),
                    ('{"op": "add", "a": 1, "b": 1}', {"result": 2}),
                    ('{"id": null, "op": "fly", "a": 1, "b": 1}', {"id": None, "error": "no such op"}),
                    ('{"id": 2, "op": "add", "a": "1", "b": 1}', {"id": 2, "error": '"a" and "b" are to be numbers'}),
                    ('[1]', {"error": 'a question is an object with "op"'}),
                    ('no JSON', {"error": 'a question is an object with "op"'}),
                    ('', {"error": 'a question is an object with "op"'})):
                await client.send(question)
                self.assertEqual(json.loads(await asyncio.wait_for(client.recv(), PATIENCE)), answer)
        self.assertEqual(program.end(), 0, program.errors)


if __name__ == "__main__":
    unittest.main()
