"""The service example, which the guide is about: rooms, who is let in, counters, certificates, its end."""

import asyncio
import os
import pathlib
import shutil
import signal
import socket
import ssl
import tempfile
import unittest

import websockets

from _examples import PATIENCE, Program, build_path, fetch, quiet_loop, run, wait_for

LOCAL = "127.0.0.1:0"
THREADS = os.environ.get("TWS_TEST_THREADS", "kernel")
CERTS = pathlib.Path(os.environ.get("TWS_CERTS", build_path("certs")))


class CommandLine(unittest.TestCase):
    def test_help(self):
        status, output, errors = run("service", "--help")
        self.assertEqual((status, errors), (0, ""))
        for option in ("--listen", "--origin", "--cert", "--key", "--metrics", "--threads", "--lame-duck", "SIGHUP"):
            self.assertIn(option, output)

    def test_bad_options(self):
        for args, status in ((["--threads", "heavy"], 2), (["stray"], 2), (["--listen", LOCAL] * 9, 2),
                             (["--cert", "/nonexistent"], 1), (["--listen", "nowhere"], 1)):
            with self.subTest(args=args):
                got, output, errors = run("service", *args)
                self.assertEqual((got, output), (status, ""))
                self.assertTrue(errors)


class Service(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        quiet_loop()

    def start(self, *options, listen=LOCAL, **popen):
        self.program = Program(self, "service", "--listen", listen, "--threads", THREADS, *options, **popen)
        [self.address] = self.program.addresses()

    def end(self):
        self.assertEqual(self.program.end(), 0, self.program.errors)

    def connect(self, path, scheme="ws", **options):
        return websockets.connect(f"{scheme}://{self.address}{path}", open_timeout=PATIENCE, **options)

    async def test_rooms(self):
        self.start("--metrics", LOCAL)
        async with self.connect("/a?name=Ann") as ann, self.connect("/a?name=Bob") as bob, \
                self.connect("/b?name=Cid") as cid:
            url = "http://" + self.program.line("metrics on ")

            async def joined():  # a handshake is over before its handler has joined
                text = (await asyncio.to_thread(fetch, url))[2].decode()
                return "\ntws_hub_members 3\n" in text and text

            while not (text := await joined()):
                await asyncio.sleep(0.01)
            self.assertIn("\ntws_connections_open 3\n", text)
            await ann.send("hello")
            self.assertEqual(await asyncio.wait_for(bob.recv(), PATIENCE), "Ann: hello")
            await cid.send(b"binary")
            with self.assertRaises(websockets.ConnectionClosed):
                await asyncio.wait_for(cid.recv(), PATIENCE)
            self.assertEqual(cid.close_code, 1003)
            self.program.process.send_signal(signal.SIGTERM)
            for client in (ann, bob):
                with self.assertRaises(websockets.ConnectionClosed):
                    await asyncio.wait_for(client.recv(), PATIENCE)
                self.assertEqual(client.close_code, 1001)
        self.assertEqual(self.program.wait(), 0, self.program.errors)

    async def test_who_is_let_in(self):
        self.start("--origin", "https://page.example")
        for path in ("/a", "/a?name=", "/a?name=" + "x" * 33, "/a?name=%ff"):
            with self.subTest(path=path):
                with self.assertRaises(websockets.InvalidStatusCode) as refused:
                    async with self.connect(path):
                        pass
                self.assertEqual(refused.exception.status_code, 401)
        with self.assertRaises(websockets.InvalidStatusCode) as refused:
            async with self.connect("/a?name=Ann", origin="https://elsewhere.example"):
                pass
        self.assertEqual(refused.exception.status_code, 403)
        async with self.connect("/a?name=" + "x" * 32, origin="https://page.example"):
            pass
        self.assertEqual(fetch(f"http://{self.address}/healthz")[::2], (200, b"ok\n"))
        self.assertEqual(fetch(f"http://{self.address}/")[0], 426)
        self.end()

    async def test_says_first_that_it_leaves(self):
        self.start("--lame-duck", "3000")
        async with self.connect("/a?name=Ann") as ann:
            self.program.process.send_signal(signal.SIGTERM)
            while (answer := await asyncio.to_thread(fetch, f"http://{self.address}/healthz"))[0] == 200:
                pass
            self.assertEqual(answer[::2], (503, b"leaving\n"))
            await asyncio.wait_for(ann.wait_closed(), PATIENCE)
            self.assertEqual(ann.close_code, 1001)
        self.assertEqual(await asyncio.to_thread(self.program.wait), 0, self.program.errors)

    async def test_certificates_are_read_again(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("pem", "key"):
                shutil.copy(CERTS / f"server.{name}", folder)
            self.start("--cert", f"{folder}/server.pem", "--key", f"{folder}/server.key")
            context = ssl.create_default_context(cafile=str(CERTS / "ca.pem"))
            async with self.connect("/a?name=Ann", "wss", ssl=context):
                pass
            os.truncate(f"{folder}/server.pem", 0)  # no good: the old one stays
            self.program.process.send_signal(signal.SIGHUP)
            wait_for("the complaint", lambda: any("server.pem" in line for line in self.program.errors))
            async with self.connect("/a?name=Ann", "wss", ssl=context):
                pass
        self.end()

    async def test_a_socket_of_the_service_manager(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            def pass_on():  # in the new process, as a service manager does it
                os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
                os.dup2(listener.fileno(), 3)

            self.start(listen="systemd:", preexec_fn=pass_on, pass_fds=(3,))
            self.assertEqual(self.address, "127.0.0.1:%d" % listener.getsockname()[1])
        async with self.connect("/a?name=Ann"):
            pass
        self.end()


if __name__ == "__main__":
    unittest.main()
