"""Chromium without a window, driven by its DevTools protocol over a WebSocket."""

import asyncio
import base64
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile

import websockets

from _examples import PATIENCE, wait_for

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")  # None: not here
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-port=0",
         # background tabs must not be slowed down: both tabs of a test are at work
         "--disable-background-timer-throttling", "--disable-renderer-backgrounding",
         "--disable-backgrounding-occluded-windows"]


class Chromium:
    """The browser's process. Ends with close(), together with all the processes it made."""

    def __init__(self):
        self._profile = tempfile.mkdtemp(prefix="tws-chromium-")
        self._process = subprocess.Popen(
            [CHROMIUM, *FLAGS, "--user-data-dir=" + self._profile, "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True)
        try:
            self.url = wait_for("Chromium's address", self._devtools_url)
        except BaseException:
            self.close()
            raise

    def _devtools_url(self):
        if self._process.poll() is not None:
            raise AssertionError(f"{CHROMIUM} ended with {self._process.returncode}")
        try:
            with open(os.path.join(self._profile, "DevToolsActivePort"), encoding="ascii") as file:
                lines = file.read().split("\n")
        except FileNotFoundError:
            return None
        return f"ws://127.0.0.1:{lines[0]}{lines[1]}" if len(lines) > 1 and lines[1] else None

    def close(self):
        try:
            os.killpg(self._process.pid, signal.SIGKILL)  # a session of its own: all its helpers
        except ProcessLookupError:
            pass
        self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)


class Browser:
    """Tabs that share nothing with those of other tests: async with Browser(chromium) as browser"""

    def __init__(self, chromium):
        self._url = chromium.url
        self._ids = itertools.count(1)
        self._answers = {}
        self.errors = []  # exceptions that no page caught, and breaches of its content policy

    async def __aenter__(self):
        self._socket = await websockets.connect(self._url, max_size=None, ping_interval=None,
                                                compression=None)
        self._receiver = asyncio.create_task(self._receive())
        self._context = (await self.call("Target.createBrowserContext"))["browserContextId"]
        return self

    async def __aexit__(self, *_):
        await self.call("Target.disposeBrowserContext", browserContextId=self._context)
        self._receiver.cancel()
        await self._socket.close()

    async def _receive(self):
        async for text in self._socket:
            message = json.loads(text)
            answer = self._answers.pop(message.get("id"), None)
            if answer is not None and not answer.done():
                answer.set_result(message)
            elif message.get("method") == "Runtime.exceptionThrown":
                self.errors.append(message["params"]["exceptionDetails"])
            elif message.get("method") == "Log.entryAdded":
                if message["params"]["entry"]["source"] == "security":
                    self.errors.append(message["params"]["entry"])

    async def call(self, method, session=None, **params):
        number = next(self._ids)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        await self._socket.send(json.dumps(message))
        result = await asyncio.wait_for(answer, PATIENCE)
        if "error" in result:
            raise AssertionError(f"{method}: {result['error']}")
        return result["result"]

    async def open(self, url, width=1280, height=800, phone=False):
        """Opens a page in a new tab and waits until it is loaded."""
        target = (await self.call("Target.createTarget", url="about:blank",
                                  browserContextId=self._context))["targetId"]
        session = (await self.call("Target.attachToTarget", targetId=target, flatten=True))
        page = Page(self, session["sessionId"])
        await page.call("Runtime.enable")
        await page.call("Log.enable")
        await page.call("Page.enable")
        await page.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                        deviceScaleFactor=2 if phone else 1, mobile=phone)
        await page.call("Page.navigate", url=url)
        await page.until("location.href !== 'about:blank' && document.readyState === 'complete'")
        return page


class Page:
    def __init__(self, browser, session):
        self._browser = browser
        self._session = session

    async def call(self, method, **params):
        return await self._browser.call(method, self._session, **params)

    async def value(self, expression):
        """What a JavaScript expression gives, as a Python value."""
        result = await self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                                 awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    async def until(self, expression):
        """Waits until an expression is true."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE
        while loop.time() < deadline:
            value = await self.value(expression)
            if value:
                return value
            await asyncio.sleep(0.02)
        raise AssertionError(f"waited in vain for {expression}; the page shows: "
                             + await self.value("document.body.innerText"))

    async def type(self, text):
        """Types into the field that has the focus, as a keyboard does."""
        await self.call("Input.insertText", text=text)

    async def press_enter(self):
        key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **key)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key="Enter", code="Enter",
                        windowsVirtualKeyCode=13)

    async def click(self, selector):
        """Clicks into the middle of an element, with the mouse."""
        at = await self.value(
            "(() => { const r = document.querySelector(" + json.dumps(selector) + ")"
            ".getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()")
        for kind in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1],
                            button="left", clickCount=1)

    async def media(self, **features):
        """Emulates media features, for instance prefers_color_scheme="dark"."""
        await self.call("Emulation.setEmulatedMedia", features=[
            {"name": name.replace("_", "-"), "value": value} for name, value in features.items()])

    async def screenshot(self, path):
        await self.call("Page.bringToFront")  # a tab in the background is not painted
        picture = await self.call("Page.captureScreenshot", format="png")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(picture["data"]))
