"""The chat's page in Chromium: two tabs talk, it comes back after a restart, it fits a phone.

Pictures of the page stay in the build folder under screenshots/.
"""

import asyncio
import json
import signal
import unittest

import websockets

from _browser import CHROMIUM, Browser, Chromium
from _examples import Program, build_path, quiet_loop

PHONE = {"width": 390, "height": 844, "phone": True}

# Elements that can be tapped and are smaller than 44 CSS pixels in some direction.
SMALL_TARGETS = """[...document.querySelectorAll("button, input, textarea")]
    .filter(e => e.getClientRects().length)
    .filter(e => { const r = e.getBoundingClientRect(); return r.width < 44 || r.height < 44; })
    .map(e => e.id)"""
# Elements that reach out of the window sideways.
TOO_WIDE = """[...document.querySelectorAll("body *")]
    .filter(e => e.getClientRects().length && !e.closest(".unseen"))
    .filter(e => { const r = e.getBoundingClientRect(); return r.left < -1 || r.right > innerWidth + 1; })
    .map(e => e.tagName + "#" + e.id + "." + e.className)"""


@unittest.skipUnless(CHROMIUM, "no Chromium here")
class ChatPage(unittest.IsolatedAsyncioTestCase):
    @classmethod
    def setUpClass(cls):
        cls.chromium = Chromium()
        cls.addClassCleanup(cls.chromium.close)

    async def asyncSetUp(self):
        quiet_loop()
        self.server = Program(self, "chat", "--listen", "127.0.0.1:0")
        [self.address] = self.server.addresses()
        self.browser = await Browser(self.chromium).__aenter__()

    async def asyncTearDown(self):
        errors = self.browser.errors
        await self.browser.__aexit__()
        self.assertEqual(errors, [])

    async def enter(self, name, room="lobby", **size):
        """Opens a tab and enters a room as a person does: with the keyboard."""
        page = await self.browser.open(f"http://{self.address}/#{room}", **size)
        await page.call("Page.bringToFront")
        await page.value("document.querySelector('#name').value = ''; "
                         "document.querySelector('#name').focus()")
        await page.type(name)
        await page.press_enter()
        await page.until("document.body.dataset.state === 'open'")
        return page

    async def say(self, page, text):
        await page.call("Page.bringToFront")
        await page.value("document.querySelector('#text').focus()")
        await page.type(text)
        await page.press_enter()
        await self.shows(page, text)

    @staticmethod
    async def shows(page, text):
        await page.until("[...document.querySelectorAll('#log .say p')]"
                         f".some(p => p.textContent === {json.dumps(text)})")

    @staticmethod
    async def texts(page):
        return await page.value("[...document.querySelectorAll('#log .say p')]"
                                ".map(p => p.textContent)")

    @staticmethod
    async def members(page):
        return await page.value("[...document.querySelectorAll('#members bdi')]"
                                ".map(e => e.textContent)")

    async def restart(self):
        await asyncio.to_thread(self.server.wait)
        self.server = Program(self, "chat", "--listen", self.address)
        self.assertEqual(self.server.addresses(), [self.address])

    async def test_two_tabs_talk(self):
        ann, bob = await self.enter("Ann"), await self.enter("Bob")
        await ann.until("document.querySelectorAll('#members li').length === 2")
        self.assertEqual(await self.members(ann), ["Ann", "Bob"])
        self.assertEqual(await self.members(bob), ["Ann", "Bob"])
        await self.say(ann, "Hello, is anybody here?")
        await self.shows(bob, "Hello, is anybody here?")
        await self.say(bob, "Yes, in the other tab.")
        await self.shows(ann, "Yes, in the other tab.")
        expected = ["Hello, is anybody here?", "Yes, in the other tab."]
        self.assertEqual((await self.texts(ann), await self.texts(bob)), (expected, expected))
        self.assertEqual(await ann.value("document.querySelectorAll('.say.mine').length"), 1)
        await bob.click("#leave")
        await ann.until("document.querySelectorAll('#members li').length === 1")
        await ann.until("document.querySelector('#log').innerText.includes('Bob left')")

    async def test_markup_stays_text(self):
        name = "<img src=x onerror=alert(1)>"
        page = await self.enter("Ann")
        query = "room=lobby&name=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E"
        async with websockets.connect(f"ws://{self.address}/chat?{query}") as client:
            await client.send(name)
            await client.send("a\n<b>b</b>")
            await self.shows(page, name)
            await self.shows(page, "a\n<b>b</b>")
            self.assertEqual(await self.members(page), ["Ann", name])
            self.assertEqual(await page.value("document.querySelectorAll('img, b').length"), 0)

    async def test_loads_nothing_else(self):
        page = await self.enter("Ann")
        self.assertEqual(await page.value("performance.getEntriesByType('resource')"
                                          ".map(e => e.name).filter(n => !n.startsWith('data:'))"),
                         [])

    async def test_comes_back_after_restart(self):
        ann, bob = await self.enter("Ann"), await self.enter("Bob", **PHONE)
        await self.say(ann, "before")
        await self.shows(bob, "before")
        self.server.process.send_signal(signal.SIGINT)
        for page in (ann, bob):
            await page.until("document.body.dataset.state === 'reconnecting'")
            self.assertEqual(await page.value("document.querySelector('#why').textContent"),
                             "The server is going away.")
            await page.until("/^reconnecting in [0-9]+ s$/.test("
                             "document.querySelector('#state').textContent)")
            self.assertTrue(await page.value("document.querySelector('#send').disabled"))
        self.assertEqual(await bob.value(TOO_WIDE), [])
        await ann.screenshot(build_path("screenshots", "desktop-lost.png"))
        await bob.screenshot(build_path("screenshots", "phone-lost.png"))
        await self.restart()
        await ann.until("document.body.dataset.state === 'open'")  # by itself
        await bob.until("document.body.dataset.state === 'open' || "
                        "!document.querySelector('#bar').hidden")
        await bob.value("document.body.dataset.state === 'reconnecting' && "
                        "document.querySelector('#now').click()")
        await bob.until("document.body.dataset.state === 'open'")
        await self.say(bob, "after")
        await self.shows(ann, "after")
        self.assertEqual(await self.texts(ann), ["before", "after"])
        self.assertEqual(await self.members(ann), await self.members(bob))

    async def test_history_is_not_shown_twice(self):
        """After a lost connection the page shows what it missed, and nothing again."""
        ann, bob = await self.enter("Ann"), await self.enter("Bob")
        await self.say(ann, "one")
        await self.shows(bob, "one")
        # Bob's browser loses the network; the server does not go away
        await bob.call("Network.enable")
        await bob.value("socket.close()")
        await bob.until("document.body.dataset.state !== 'open'")
        await bob.value("clearTimeout(timer)")
        await ann.until("document.querySelectorAll('#members li').length === 1")
        await self.say(ann, "two")
        await bob.value("connect()")
        await self.shows(bob, "two")
        await bob.until("document.body.dataset.state === 'open'")
        await self.say(ann, "three")
        await self.shows(bob, "three")
        self.assertEqual(await self.texts(bob), ["one", "two", "three"])

    async def test_unsent_text_comes_back(self):
        """A text that was lost with its connection is in the field again; a delivered one is not."""
        page = await self.enter("Ann")
        await page.value("socket.send = () => {}")
        await page.value("document.querySelector('#text').value = 'lost words';"
                         "document.querySelector('#write').requestSubmit()")
        self.assertEqual(await page.value("document.querySelector('#text').value"), "")
        await page.value("socket.close()")
        await page.until("document.body.dataset.state !== 'open'")
        await page.until("document.body.dataset.state === 'open'")
        self.assertEqual(await page.value("document.querySelector('#text').value"), "lost words")
        await page.value("document.querySelector('#write').requestSubmit()")
        await self.shows(page, "lost words")
        await page.value("socket.close()")
        await page.until("document.body.dataset.state !== 'open'")
        await page.until("document.body.dataset.state === 'open'")
        self.assertEqual(await page.value("document.querySelector('#text').value"), "")
        self.assertEqual(await self.texts(page), ["lost words"])

    async def test_slow_reading_shows_the_policy(self):
        """The switch makes one's own tab a slow reader; what its queue drops is said and not shown."""
        ann, bob = await self.enter("Ann"), await self.enter("Bob")
        await bob.value("document.querySelector('#reads').value = 'drop-oldest';"
                        "document.querySelector('#reads').dispatchEvent(new Event('change'))")
        await bob.until("document.querySelector('#waits').textContent === '0 waited, 0 dropped'")
        await self.shows_state(bob, "open")
        for i in range(9):  # a person's pace: below the limit of texts per second
            await self.say(ann, f"line {i}")
        await bob.until("document.querySelector('#log').innerText.includes('because you read slowly')")
        await self.shows(bob, "line 8")
        self.assertNotIn("line 0", await self.texts(bob))
        await bob.value("document.querySelector('#reads').value = '';"
                        "document.querySelector('#reads').dispatchEvent(new Event('change'))")
        await bob.until("document.body.dataset.state === 'open' && socket.url.indexOf('reads') < 0")
        await self.say(ann, "at once")
        await self.shows(bob, "at once")

    @staticmethod
    async def shows_state(page, state):
        await page.until(f"document.body.dataset.state === {json.dumps(state)}")

    async def test_name_taken_is_said_at_the_door(self):
        await self.enter("Ann")
        page = await self.browser.open(f"http://{self.address}/?name=Ann#lobby")
        await page.value("document.querySelector('#enter').requestSubmit()")
        await page.until("!document.querySelector('#wrong').hidden")
        self.assertIn("already has that name",
                      await page.value("document.querySelector('#wrong').textContent"))
        self.assertFalse(await page.value("document.querySelector('#door').hidden"))

    async def test_too_long_is_not_sent(self):
        page = await self.enter("Ann")
        await page.type("é" * 501)
        await page.press_enter()
        self.assertEqual(await page.value("document.querySelector('#left').textContent"),
                         "2 too long")
        await page.value("document.querySelector('#text').value = ' '")
        await page.press_enter()  # nothing but a blank is not sent either
        await self.say(page, "short")
        self.assertEqual(await self.texts(page), ["short"])

    async def test_phone(self):
        door = await self.browser.open(f"http://{self.address}/", **PHONE)
        self.assertEqual(await door.value(SMALL_TARGETS), [])
        self.assertEqual(await door.value(TOO_WIDE), [])
        await door.screenshot(build_path("screenshots", "phone-door.png"))
        page, other = await self.enter("Zoë", **PHONE), await self.enter("Ann")
        await self.say(other, "Hello, is anybody here?")
        await self.say(page, "Yes! On the phone. The connection comes and goes, but it finds its "
                             "way back by itself.")
        await self.say(other, "Here is a long line without blanks: " + "x" * 140)
        await self.shows(page, "Here is a long line without blanks: " + "x" * 140)
        for scheme in ("light", "dark"):
            await page.media(prefers_color_scheme=scheme)
            await other.media(prefers_color_scheme=scheme)
            await page.screenshot(build_path("screenshots", f"phone-{scheme}.png"))
            await other.screenshot(build_path("screenshots", f"desktop-{scheme}.png"))
        self.assertEqual(await page.value(SMALL_TARGETS), [])
        self.assertEqual(await page.value(TOO_WIDE), [])
        self.assertTrue(await page.value(
            "document.querySelector('#write').getBoundingClientRect().bottom <= innerHeight"))
        self.assertLessEqual(await page.value("document.documentElement.scrollHeight"), 844)

    async def test_narrowest_phone_with_long_names(self):
        page = await self.enter("W" * 24, "M" * 24, width=320, height=480, phone=True)
        await self.say(page, "W" * 200)
        self.assertEqual(await page.value(TOO_WIDE), [])
        self.server.process.send_signal(signal.SIGTERM)
        await page.until("document.body.dataset.state === 'reconnecting'")
        self.assertEqual(await page.value(TOO_WIDE), [])
        self.assertEqual(await page.value(SMALL_TARGETS), [])

    async def test_accessible(self):
        page = await self.enter("Ann")
        await self.say(page, "hello")
        tree = (await page.call("Accessibility.getFullAXTree"))["nodes"]
        found = {}
        for node in tree:
            role = node.get("role", {}).get("value")
            if not node.get("ignored"):
                found.setdefault(role, []).append(node.get("name", {}).get("value", ""))
        self.assertEqual(found["textbox"], ["Message"])
        self.assertEqual(sorted(found["button"]), ["Leave", "Send"])
        self.assertEqual(found["log"], ["Messages"])
        self.assertIn("1 member", found["list"])
        self.assertEqual(len(found["main"]), 1)
        self.assertEqual(found["heading"][0], "lobby")
        self.assertIn("status", found)
        self.assertEqual(await page.value("document.querySelector('#spoken').textContent"),
                         "connected")
        self.assertEqual(await page.value("document.activeElement.id"), "text")
        self.assertEqual(await page.value("document.documentElement.lang"), "en")

    async def test_newest_line_stays_in_view(self):
        page, other = await self.enter("Ann", width=400, height=400), await self.enter("Bob")
        for i in range(8):
            await self.say(other, f"line {i}")
        await self.shows(page, "line 7")
        end = ("(() => { const l = document.querySelector('#log');"
               "return l.scrollHeight - l.scrollTop - l.clientHeight; })()")
        self.assertLess(await page.value(end), 2)
        await page.call("Page.bringToFront")  # a tab in the background does not scroll
        await page.value("document.querySelector('#log').scrollTop = 0")
        await page.until("!atEnd")
        await self.say(other, "line 8")
        await page.until("!document.querySelector('#newer').hidden")
        self.assertGreater(await page.value(end), 50)
        await page.call("Page.bringToFront")
        await page.click("#newer")
        await page.until(f"{end} < 2 && document.querySelector('#newer').hidden")


if __name__ == "__main__":
    unittest.main()
