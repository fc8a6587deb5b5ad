"""The guide and the pages for people who come from another library: their programs run, no name of that library is
forgotten, and what stands beside it compiles."""

import configparser
import os
import re
import shlex
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import docs_test  # noqa: E402
from docs_test import CLOSE, TEXT, Client, Frame, Program, checks, close_frame, examples, frame, squeezed, \
    wait_for  # noqa: E402
from pages import SPAN, Page  # noqa: E402

PAGES = {"docs/coming-from-gorilla.md": "tests/docs/gorilla-v1.5.3.txt",
         "docs/coming-from-gws.md": "tests/docs/gws-v1.9.1.txt"}
CELL = re.compile(r"(?<!\\)\|")
CHATROOM = "tws_map_new("
NAMES_BLOCK = "The names that the tables use"


def rows(page):
    """Of all tables: cells, with their bars as they are meant."""
    for line in page.prose.split("\n"):
        if line.startswith("| `"):
            yield [cell.strip().replace("\\|", "|") for cell in CELL.split(line.strip())[1:-1]]


def block_under(page, title):
    """The first block of C behind a heading."""
    line = page.text.split("\n").index("## " + title)
    return next(b.text for b in page.code("c") if b.line > line)


class Tables(docs_test.Work):
    def test_every_name_has_a_row(self):
        for path, names in PAGES.items():
            wanted = checks.read(names).split()
            found = [name for row in rows(Page(path)) for name in SPAN.findall(row[0])]
            with self.subTest(page=path):
                self.assertEqual([name for name in wanted if name not in found], [], "no row")
                self.assertEqual([name for name in found if name not in wanted], [], "no such name")
                self.assertEqual(len(found), len(set(found)), "twice")

    def test_every_row_has_an_answer(self):
        for path in PAGES:
            for row in rows(Page(path)):
                with self.subTest(page=path, row=row[0]):
                    self.assertEqual(len(row), 3)
                    self.assertTrue(SPAN.findall(row[1]))
                    for code in SPAN.findall(row[1]):
                        self.assertRegex(code, r"[;}]$")

    def test_what_stands_there_compiles(self):
        """Each span of the middle column, and statements in the others, between braces of its own."""
        for path in PAGES:
            page = Page(path)
            spans = [span for row in rows(page) for cell in row[1:] for span in SPAN.findall(cell)
                     if cell is row[1] or span.endswith(";")]
            text = "#include <stdio.h>\n" + block_under(page, NAMES_BLOCK) + "void rows(void);\nvoid rows(void)\n{\n" + \
                "".join(f"    {{ {span} }}\n" for span in spans) + "}\n"
            self.assertGreater(len(spans), 50)
            with self.subTest(page=path):
                self.assertEqual(self.compile(text, "-fsyntax-only"), "")


class Programs(docs_test.Work):
    """Those of the pages are servers that send every message back, or to everybody."""

    def test_they_run(self):
        for path in ["docs/guide.md", *PAGES]:
            programs = [b for b in Page(path).code("c") if "tws_server_start(" in b.text and CHATROOM not in b.text]
            self.assertTrue(programs)
            for number, block in enumerate(programs):
                with self.subTest(page=path, line=block.line):
                    program, address = self.serve(block.text, f"program-{number}")
                    with Client(address) as client:
                        client.upgrade()
                        client.send(frame(TEXT, b"hello"))
                        self.assertEqual(client.frame(), Frame(TEXT, b"hello"))
                    program.kill()
                    self.assertEqual(program.errors, [])

    def test_the_client(self):
        page = Page("docs/coming-from-gorilla.md")
        [text] = [b.text for b in page.code("c") if "tws_dial(" in b.text and "main(" in b.text]
        _, address = self.serve(block_under(page, "An echo"), "echo")
        client = Program(self, self.link(text, "client"), f"ws://{address}/echo")
        wait_for("an echo", lambda: "recv: tick" in client.errors)
        client.process.send_signal(signal.SIGINT)
        self.assertEqual(client.process.wait(docs_test.PATIENCE), 0)
        wait_for("the last line", lambda: client.errors[-1].endswith("(sent 1000)"))

    def test_the_chatroom(self):
        [block] = [b for b in Page("docs/coming-from-gws.md").code("c") if CHATROOM in b.text]
        program, address = self.serve(block.text, "chatroom")
        with Client(address) as stranger:
            self.assertEqual(stranger.ask().status, 403)
        with Client(address) as ann, Client(address) as bob, Client(address) as other:
            ann.upgrade(first="GET /?name=ann HTTP/1.1")
            bob.upgrade(first="GET /?name=bob HTTP/1.1")
            bob.echo(b"bob: I am here")  # so on_open has run
            ann.send(frame(TEXT, b"bob: hello"))
            self.assertEqual(bob.frame(), Frame(TEXT, b"bob: hello"))
            other.upgrade(first="GET /?name=bob HTTP/1.1")
            self.assertEqual(bob.frame(), Frame(CLOSE, b"\x03\xe8connection is replaced"))
            bob.send(close_frame(1000))
            self.assertEqual(bob.frames(), [])
            ann.send(frame(TEXT, b"bob: again"))
            self.assertEqual(other.frame(), Frame(TEXT, b"bob: again"))
        program.kill()
        self.assertEqual(program.errors, [])


class Guide(docs_test.Work):
    def test_the_test_passes(self):
        [program] = [b.text for b in Page("docs/guide.md").code("c") if "tws_pair(" in b.text]
        done = subprocess.run([self.link(program, "pair")], capture_output=True, text=True, check=False,
                              timeout=docs_test.PATIENCE)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_the_code_is_that_of_the_example(self):
        blocks = [b for b in Page("docs/guide.md").code("c") if "main(" not in b.text]
        self.assertGreater(len(blocks), 8)
        for block in blocks:
            with self.subTest(line=block.line):
                self.assertIn(squeezed(block.text), examples())

    def test_the_unit_fits_the_program(self):
        unit, socket_unit = configparser.ConfigParser(), configparser.ConfigParser()
        for parser, name in ((unit, "service.service"), (socket_unit, "service.socket")):
            parser.optionxform = str
            parser.read_string(checks.read("examples/" + name))
        self.assertEqual(unit["Unit"]["Requires"], "service.socket")
        self.assertEqual(socket_unit["Socket"]["ListenStream"], "9007")
        _, *options = shlex.split(unit["Service"]["ExecStart"])
        self.assertIn("systemd:", options)
        for option in options:
            if option.startswith("--"):
                self.assertIn(option, checks.read("examples/service.c"))
        drain = int(re.search(r"DRAIN_MS = (\d+)", checks.read("examples/service.c")).group(1))
        self.assertGreater(int(unit["Service"]["TimeoutStopSec"]) * 1000, drain)


if __name__ == "__main__":
    unittest.main()
