"""The chat example without a browser: its pages, its protocol, its limits."""

import asyncio
import json
import os
import re
import signal
import socket
import unittest
from urllib.parse import urlencode

import websockets

from _examples import PATIENCE, ROOT, BareClient, Program, fetch, quiet_loop, run

LOCAL = "127.0.0.1:0"
THREADS = os.environ.get("TWS_TEST_THREADS", "kernel")
HISTORY = 50
MEMBERS = 50
ROOMS = 32
LIMIT = 1000


class Member:
    """Somebody in a room. Keeps everything received in .seen."""

    def __init__(self, client):
        self.client = client
        self.seen = []

    async def next(self):
        line = json.loads(await asyncio.wait_for(self.client.recv(), PATIENCE))
        self.seen.append(line)
        return line

    async def until(self, **wanted):
        """Reads on until a line has these values; returns it."""
        while True:
            line = await self.next()
            if all(line.get(key) == value for key, value in wanted.items()):
                return line

    async def say(self, text):
        await self.client.send(text)

    async def leave(self):
        await self.client.close()

    def texts(self):
        return [line["text"] for line in self.seen if line["type"] == "say"]


class CommandLine(unittest.TestCase):
    def test_help(self):
        status, output, errors = run("chat", "--help")
        self.assertEqual((status, errors), (0, ""))
        for option in ("--listen", "--origin"):
            self.assertIn(option, output)

    def test_bad_options(self):
        for args, word in ((["--nonsense"], "nonsense"), (["stray"], "stray"),
                           (["--listen", LOCAL] * 17, "too many")):
            with self.subTest(args=args[:2]):
                status, output, errors = run("chat", *args)
                self.assertEqual((status, output), (2, ""))
                self.assertIn(word, errors)

    def test_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = "127.0.0.1:%d" % taken.getsockname()[1]
            status, output, errors = run("chat", "--listen", address)
        self.assertEqual((status, output), (1, ""))
        self.assertIn(address, errors)
        self.assertIn("Address already in use", errors)
        self.assertIn("make demo PORT=", errors)

    def test_says_what_to_try(self):
        program = Program(self, "chat", "--listen", LOCAL)
        [address] = program.addresses()
        self.assertEqual(program.end(signal.SIGINT), 0)
        output = "\n".join(program.lines)
        for url in (f"http://{address}/", f"ws://{address}/echo", f"http://{address}/metrics"):
            self.assertIn(url, output)


class ChatCase(unittest.IsolatedAsyncioTestCase):
    ARGS = ()

    async def asyncSetUp(self):
        quiet_loop()
        self.program = Program(self, "chat", "--listen", LOCAL, "--threads", THREADS, *self.ARGS)
        [self.address] = self.program.addresses()
        self.clients = []

    async def asyncTearDown(self):
        for client in self.clients:
            await client.close()

    def url(self, **query):
        return f"ws://{self.address}/chat?{urlencode(query)}"

    async def connect(self, url, **options):
        client = await websockets.connect(url, compression=None, open_timeout=PATIENCE,
                                          max_queue=None, **options)
        self.clients.append(client)
        return client

    async def join(self, name, room="lobby"):
        """Joins and reads up to one's own join notice."""
        member = Member(await self.connect(self.url(room=room, name=name)))
        await member.until(type="join", name=name)
        return member

    async def refused(self, url, **options):
        with self.assertRaises(websockets.InvalidStatusCode) as refused:
            await self.connect(url, **options)
        return refused.exception.status_code

    async def closed(self, client):
        """Waits until a connection is over; returns the close code."""
        await asyncio.wait_for(client.wait_closed(), PATIENCE)
        return client.close_code

    async def fetch(self, path, method="GET"):
        return await asyncio.to_thread(fetch, f"http://{self.address}{path}", method)


class Pages(ChatCase):
    async def test_page(self):
        status, headers, body = await self.fetch("/")
        self.assertEqual(status, 200)
        self.assertEqual(body, (ROOT / "examples" / "chat.html").read_bytes())
        self.assertEqual(headers["Content-Type"], "text/html; charset=utf-8")
        self.assertIn("default-src 'none'", headers["Content-Security-Policy"])

    async def test_page_needs_nothing_from_elsewhere(self):
        _, _, body = await self.fetch("/")
        self.assertEqual(re.findall(rb"(?:src|href)=\"(?!data:)[^\"]*|@import|url\(", body), [])
        for unsafe in (b"innerHTML", b"outerHTML", b"insertAdjacentHTML", b"document.write"):
            self.assertNotIn(unsafe, body)

    async def test_head(self):
        status, headers, body = await self.fetch("/", "HEAD")
        size = (ROOT / "examples" / "chat.html").stat().st_size
        self.assertEqual((status, headers["Content-Length"], body), (200, str(size), b""))

    async def test_others(self):
        self.assertEqual((await self.fetch("/healthz"))[::2], (200, b"ok\n"))
        self.assertEqual((await self.fetch("/nothing"))[0], 404)
        for path in ("/chat?room=a&name=b", "/echo"):
            status, headers, _ = await self.fetch(path)
            self.assertEqual((status, headers["Upgrade"]), (426, "websocket"))

    async def test_metrics(self):
        await self.join("ann")
        status, headers, body = await self.fetch("/metrics")
        self.assertEqual(status, 200)
        self.assertEqual(headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
        self.assertRegex(body.decode(), r"(?m)^tws_\w*open\w* 1$")

    async def test_echo(self):
        client = await self.connect(f"ws://{self.address}/echo")
        for message in ("text", b"\x00binary", "x" * (10 * LIMIT)):
            await client.send(message)
            self.assertEqual(await asyncio.wait_for(client.recv(), PATIENCE), message)

    async def test_no_other_path(self):
        self.assertEqual(await self.refused(f"ws://{self.address}/elsewhere"), 404)

    async def test_same_origin_only(self):
        for url in (self.url(room="a", name="b"), f"ws://{self.address}/echo"):
            self.assertEqual(await self.refused(url, origin="https://elsewhere.example"), 403)
            await self.connect(url, origin=f"http://{self.address}")


class AllowedOrigin(ChatCase):
    ARGS = ("--origin", "https://one.example", "--origin", "https://two.example")

    async def test_listed_origins(self):
        url = f"ws://{self.address}/echo"
        for origin in ("https://one.example", "https://two.example", f"http://{self.address}"):
            await self.connect(url, origin=origin)
        for origin in ("https://three.example", "http://one.example", "null"):
            self.assertEqual(await self.refused(url, origin=origin), 403)


class Rooms(ChatCase):
    async def test_welcome_join_say_leave(self):
        ann = await self.join("ann")
        self.assertEqual([line["type"] for line in ann.seen], ["welcome", "join"])
        self.assertEqual(ann.seen[0], {"type": "welcome", "room": "lobby", "name": "ann",
                                       "limit": LIMIT})
        self.assertEqual(ann.seen[1]["members"], ["ann"])
        bob = await self.join("bob")
        self.assertEqual((await ann.next())["members"], ["ann", "bob"])
        await bob.say("hello")
        for member in (ann, bob):
            line = await member.next()
            self.assertEqual((line["type"], line["from"], line["text"]), ("say", "bob", "hello"))
        await bob.leave()
        line = await ann.next()
        self.assertEqual((line["type"], line["name"], line["members"]), ("leave", "bob", ["ann"]))
        times = [line["at"] for line in ann.seen[1:]]
        self.assertEqual(times, sorted(set(times)))

    async def test_cut_connection_is_a_leave(self):
        ann = await self.join("ann")
        bob = await self.join("bob")
        bob.client.transport.abort()
        await ann.until(type="leave", name="bob")

    async def test_rooms_are_separate(self):
        ann, bob = await self.join("ann", "red"), await self.join("bob", "blue")
        same = await self.join("ann", "blue")  # names belong to a room
        await ann.say("in red")
        await bob.say("in blue")
        await ann.until(type="say")
        await bob.until(type="say")
        await same.until(type="say")
        self.assertEqual((ann.texts(), bob.texts(), same.texts()),
                         (["in red"], ["in blue"], ["in blue"]))
        self.assertEqual(ann.seen[-2]["members"], ["ann"])

    async def test_everything_comes_back_as_it_was(self):
        for name, room in (("Zoë", "日本語"), ("a\"b\\c", "<i>&amp;"), ("x y", "50% + 1")):
            member = await self.join(name, room)
            self.assertEqual((member.seen[0]["name"], member.seen[0]["room"]), (name, room))
            for text in ("<script>alert(1)</script>", "\"quoted\" \\ back\\\"", "two\nlines",
                         "👋 \u2028 \u00e9 \ufeff", "{\"type\":\"leave\"}", "\""):
                await member.say(text)
                self.assertEqual((await member.until(type="say"))["text"], text)
            await member.say("tab\tbell\x07nul\0rubout\x7f.")
            self.assertEqual((await member.until(type="say"))["text"],
                             "tab bell nul rubout .")
            await member.leave()

    async def test_longest_lines(self):
        member = await self.join("\"" * 48, "\\" * 48)
        for text in ("\"" * LIMIT, "\n" * LIMIT, "é" * (LIMIT // 2)):
            await member.say(text)
            self.assertEqual((await member.until(type="say"))["text"], text)

    async def test_longest_member_list(self):
        names = [f"{i:02}".rjust(48, "\"") for i in range(MEMBERS)]
        for name in names:
            member = await self.join(name)
        self.assertEqual(member.seen[-1]["members"], names)

    async def test_history(self):
        ann = await self.join("ann")
        speakers = [await self.join(f"speaker {i}") for i in range(8)]
        for i in range(HISTORY + 14):  # 8 texts each, below the limit for a second
            await speakers[i % 8].say(f"text {i}")
        for _ in range(HISTORY + 14):
            await ann.until(type="say")
        late = await self.join("late")
        self.assertEqual(late.texts(), ann.texts()[-HISTORY:])
        self.assertEqual([line["type"] for line in late.seen],
                         ["welcome"] + ["say"] * HISTORY + ["join"])
        for line in late.seen[1:-1]:
            self.assertIn(line, ann.seen)

    async def test_history_outlives_the_last_member(self):
        ann = await self.join("ann")
        await ann.say("remember me")
        await ann.until(type="say")
        await ann.leave()
        bob = await self.join("bob")
        self.assertEqual(bob.texts(), ["remember me"])

    async def test_newcomers_miss_nothing(self):
        """Members that join while others talk see every text once and in order."""
        speakers = [await self.join(f"speaker {i}") for i in range(4)]
        witness = await self.join("witness")
        talk = asyncio.create_task(self.talk(speakers))
        late = []
        for i in range(12):
            late.append(await self.join(f"late {i}"))
        await talk
        for member in [witness, *late]:
            while len(member.texts()) < 36:  # some have all of them from the history
                await member.next()
        for member in late:
            self.assertEqual(member.texts(), witness.texts())

    @staticmethod
    async def talk(speakers):
        for i in range(9):
            for number, speaker in enumerate(speakers):
                await speaker.say(f"text {i} of {number}")
                await speaker.until(text=f"text {i} of {number}")


class Limits(ChatCase):
    async def test_name_taken(self):
        ann = await self.join("ann")
        second = await self.connect(self.url(room="lobby", name="ann"))
        self.assertEqual(await self.closed(second), 4001)
        self.assertIn("name", second.close_reason)
        await ann.leave()
        while True:  # free as soon as the server has seen the close
            third = Member(await self.connect(self.url(room="lobby", name="ann")))
            try:
                await third.until(type="join", name="ann")
                break
            except websockets.ConnectionClosed:
                self.assertEqual(third.client.close_code, 4001)

    async def test_bad_names(self):
        for query in ("", "room=a", "name=a", "room=&name=a", "room=a&name=", "room=a&name=%20a",
                      "room=a%20&name=a", "room=a&name=a%00", "room=a&name=a%0ab",
                      "room=a&name=%7f", "room=a&name=" + "x" * 49, "room=" + "x" * 49 + "&name=a",
                      "room=a&name=%4", "room=a&name=%ff", "room=%c3&name=x",
                      "room=a&name=%ed%a0%80", "room=a&name=%c0%80"):
            with self.subTest(query=query):
                self.assertEqual(await self.refused(f"ws://{self.address}/chat?{query}"), 400)

    async def test_text_that_is_not_utf8(self):
        ann = await self.join("ann")
        async with BareClient(self.address, "/chat?room=lobby&name=bad") as bad:
            await ann.until(type="join", name="bad")
            bad.send(1, b"\xc3\x28")
            opcode, payload = 0, b""
            while opcode != 8:
                opcode, payload = await bad.next_frame()
            self.assertEqual(int.from_bytes(payload[:2], "big"), 1007)
            await ann.until(type="leave", name="bad")
        self.assertEqual(ann.texts(), [])

    async def test_oversize(self):
        ann, bob = await self.join("ann"), await self.join("bob")
        await ann.say("x" * LIMIT)
        await bob.until(type="say")
        await ann.say("x" * (LIMIT + 1))
        self.assertEqual(await self.closed(ann.client), 1009)
        await bob.until(type="leave", name="ann")
        self.assertEqual(bob.texts(), ["x" * LIMIT])

    async def test_binary(self):
        ann = await self.join("ann")
        await ann.client.send(b"binary")
        self.assertEqual(await self.closed(ann.client), 1003)

    async def test_empty_text_is_nothing(self):
        ann = await self.join("ann")
        await ann.say("")
        await ann.say("something")
        self.assertEqual((await ann.next())["text"], "something")

    async def test_too_many_texts(self):
        ann, bob = await self.join("ann"), await self.join("bob")
        for i in range(40):
            await ann.client.send(f"text {i}")
        self.assertEqual(await self.closed(ann.client), 1008)
        await bob.until(type="leave", name="ann")
        self.assertLess(len(bob.texts()), 40)
        await bob.say("still here")
        await bob.until(text="still here")

    async def test_too_many_texts_in_one_packet(self):
        """What was sent behind the text that broke the rule is skipped, not taken for an error."""
        async with BareClient(self.address, "/chat?room=lobby&name=bad") as bad:
            bad.send(1, b"x" * 20, times=40)
            opcode, payload = 0, b""
            while opcode != 8:
                opcode, payload = await bad.next_frame()
            self.assertEqual(int.from_bytes(payload[:2], "big"), 1008)
            bad.send(8, payload[:2])
            self.assertEqual(await asyncio.wait_for(bad.reader.read(), PATIENCE), b"")
        _, _, metrics = await self.fetch("/metrics")
        self.assertEqual(re.findall(rb'"TWS_ERR_PROTOCOL"} (\d+)', metrics), [b"0"])

    async def test_room_full(self):
        members = [await self.join(f"member {i}") for i in range(MEMBERS)]
        extra = await self.connect(self.url(room="lobby", name="extra"))
        self.assertEqual(await self.closed(extra), 1013)
        await self.join("elsewhere", "another room")
        await members[0].leave()
        await members[1].until(type="leave")
        await self.join("extra")

    async def test_no_room_left(self):
        members = [await self.join("ann", f"room {i}") for i in range(ROOMS)]
        extra = await self.connect(self.url(room="one more", name="ann"))
        self.assertEqual(await self.closed(extra), 1013)
        witness = await self.join("bob", "room 7")
        await members[7].leave()
        await witness.until(type="leave")
        await witness.leave()
        while True:  # an empty room is used again as soon as its last member has left
            client = await self.connect(self.url(room="one more", name="ann"))
            try:
                await Member(client).until(type="join")
                break
            except websockets.ConnectionClosed:
                self.assertEqual(client.close_code, 1013)

    async def test_slow_member_is_dropped(self):
        """One that reads nothing is cut when its socket is full; nobody waits for it."""
        speakers = [await self.join(f"speaker {i}") for i in range(8)]
        path = "/chat?room=lobby&name=slow"
        async with BareClient(self.address, path, small_buffers=True) as slow:
            slow.stop_reading()
            gone = asyncio.create_task(speakers[0].until(type="leave", name="slow"))
            said = 0
            text = "\"" * LIMIT  # two bytes each in JSON
            deadline = asyncio.get_running_loop().time() + PATIENCE
            while not gone.done():
                self.assertLess(asyncio.get_running_loop().time(), deadline)
                # a server that waited for the slow one would wait for its write timeout, 10 s
                await asyncio.wait_for(asyncio.gather(
                    *[self.say_and_hear(s, text) for s in speakers[1:]]), 8)
                said += 1
                await asyncio.sleep(0.12)  # below the limit of texts per second
            self.assertGreater(said, 1)
        self.assertTrue(all(speaker.client.open for speaker in speakers))
        await speakers[0].say("we are all here")
        for speaker in speakers:
            await speaker.until(text="we are all here")

    async def slow(self, policy):
        """A member that pretends to read slowly, after its first pause, when it has a new one before it."""
        member = Member(await self.connect(self.url(room="lobby", name="slow", reads=policy)))
        await member.until(type="join", name="slow")
        await member.until(type="slow")
        member.seen.clear()  # the history
        return member

    async def say_many(self, speakers, texts):
        for number, text in enumerate(texts):
            await self.say_and_hear(speakers[number % len(speakers)], text)

    async def test_slow_reader_and_its_policy(self):
        """Five messages wait for it; what becomes of the others is the policy's to say."""
        speakers = [await self.join(f"speaker {i}") for i in range(3)]
        texts = [f"text {i}" for i in range(12)]
        lost = 0
        for policy, kept in (("drop-oldest", texts[-1]), ("drop-newest", texts[0])):
            member = await self.slow(policy)
            await self.say_many(speakers, texts)
            dropped = 0
            while len(member.texts()) + dropped < len(texts):
                line = await member.next()
                dropped = line["dropped"] if line["type"] == "slow" else dropped
            lost += dropped
            self.assertGreaterEqual(dropped, 1)  # 7, unless saying it all took longer than a pause
            self.assertEqual(member.texts(), sorted(member.texts(), key=texts.index))
            self.assertIn(kept, member.texts())
            await member.leave()
            await speakers[0].until(type="leave", name="slow")
        member = await self.slow("close")
        await self.say_many(speakers, texts)
        self.assertEqual(await self.closed(member.client), 1013)
        self.assertEqual(member.client.close_reason, "send queue full")
        metrics = b""
        while b"tws_hub_members 3\n" not in metrics:
            _, _, metrics = await self.fetch("/metrics")
        dropped = dict(re.findall(rb'tws_queue_dropped_total\{policy="(\w+)"\} (\d+)', metrics))
        self.assertEqual(int(dropped[b"oldest"]) + int(dropped[b"newest"]), lost)
        self.assertEqual(dropped[b"close"], b"1")

    @staticmethod
    async def say_and_hear(speaker, text):
        await speaker.say(text)
        line = None
        while line is None or line.get("from") != speaker.seen[0]["name"]:
            line = await speaker.next()

    async def test_drain_says_going_away(self):
        members = [await self.join(f"member {i}", f"room {i % 5}") for i in range(40)]
        self.program.process.send_signal(signal.SIGINT)
        for member in members:
            self.assertEqual(await self.closed(member.client), 1001)
        self.assertEqual(await asyncio.to_thread(self.program.wait), 0)
        self.assertEqual(self.program.errors, [])


if __name__ == "__main__":
    unittest.main()
