#!/usr/bin/env python3
"""The documents are true: their programs run, their commands, names, paths and links exist, their figures are the code's."""

import functools
import glob
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "docs"), str(ROOT / "tests" / "integration")]

import checks  # noqa: E402
from _examples import PATIENCE, Program, build_path, wait_for  # noqa: E402
from _rawclient import CLOSE, TEXT, Client, Frame, close_frame, frame  # noqa: E402
from pages import Page, all_pages, split_commands  # noqa: E402

STRICT = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror", f"-I{ROOT / 'include'}"]
# A fragment may define functions that nobody calls, and names that the function around it has too; nor need it use all.
FRAGMENT = ["-D_GNU_SOURCE", "-Wno-unused-function", "-Wno-unused-parameter", "-Wno-unused-variable", "-Wno-shadow"]
HEADERS = "#include <errno.h>\n#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n" \
    "#include <unistd.h>\n#include <tws/tws.h>\n#include <tws/nats.h>\n#include <tws/redis.h>\n"
# What the header's examples talk of without saying where it comes from.
BODY = "extern tws_message m;\nextern tws_error e;\nextern tws_events events;\nextern tws_handoff *h;\nextern void *arg;\n" \
    "extern tws_err err;\nextern tws_error error;\nextern tws_hub *hub;\nextern tws_broker broker;\n" \
    "extern tws_cluster *cluster;\nextern const char *text;\nextern size_t len;\n" \
    "void echo(tws_conn *c, void *arg);\nvoid message(tws_conn *c, tws_message *m, void *arg);\n" \
    "void fragment(tws_server *server, tws_conn *c, tws_server_options opt);\n" \
    "void fragment(tws_server *server, tws_conn *c, tws_server_options opt)\n{{\n" \
    "(void)server, (void)c, (void)opt;\n{{\n{text}}}\n}}\n"
README = Page("README.md")

# Figures of the text that are constants of the code: page, words with the figure, file, the constant.
FIGURES = [
    ("docs/threads.md", r"looks every (\d+) ms", "src/task/light/watch.c", r"#define WATCH_MS (\d+)"),
    ("docs/threads.md", r"after (\d+) ms another pthread", "src/task/light/light.c", r"DEFAULT_STUCK_MS (\d+)"),
    ("docs/threads.md", r"at most ([\d,]+) in all", "src/task/light/driver.c", r"DRIVERS_MAX (\d+)"),
    ("docs/threads.md", r"kernel thread's stack is (\d+) KiB", "src/task/kernel.c", r"KERNEL_STACK \(\(size_t\)(\d+) \* 1024\)"),
    ("docs/threads.md", r"light thread's (\d+) KiB", "src/task/light/light.c", r"LIGHT_STACK \(\(size_t\)(\d+) \* 1024\)"),
    ("docs/threads.md", r"slabs of (\d+)", "src/task/light/stack.c", r"SLAB_SLOTS (\d+)"),
    ("docs/design.md", r"board every (\d+) ms", "src/conn/hold.c", r"HOLD_TICK_MS (\d+)"),
    ("docs/design.md", r"to deflate up to (\d+) bits", "src/conn/codec.h", r"CODEC_WINDOW_BITS (\d+)"),
    ("docs/design.md", r"rest for (\d+) ms", "src/server/accept.c", r"BACKOFF_MIN_MS (\d+)"),
    ("docs/back-pressure.md", r"1 MiB, ([\d,]+) messages", "src/conn/queue.c", r"o\.max_messages = (\d+)"),
    ("docs/benchmarks.md", r"under (\d+) % of the offered", "bench/run/marks.py", r"CARRIED_LEAST = 0\.(\d+)"),
    ("docs/benchmarks.md", r"over (\d+) % of a core", "bench/run/marks.py", r"BUSY_OTHERS_PERCENT = (\d+)\.0"),
    ("docs/benchmarks.md", r"warms up for (\d+) s", "bench/run/workloads.py", r"QUICK = Timing\((\d+)\.0"),
    ("docs/benchmarks.md", r"measures for (\d+) s", "bench/run/workloads.py", r"QUICK = Timing\(\d+\.0, (\d+)\.0\)"),
]

# The first cells of README's table of defaults, and what makes the second ones.
DEFAULTS = {
    "opening handshake, whole": ("{0:g} s, {1:g} KiB, {2:,} header lines", "upgrade.handshake_timeout / 1e3",
                                 "upgrade.max_head_bytes / 1024.0", "upgrade.max_head_fields"),
    "one write": ("{0:g} s", "upgrade.conn.write_timeout / 1e3"),
    "closing handshake": ("{0:g} s", "upgrade.conn.close_timeout / 1e3"),
    "keepalive": ("a ping after {0:g} s of silence, given up after {1:g} s more", "upgrade.conn.ping_interval / 1e3",
                  "upgrade.conn.ping_timeout / 1e3"),
    "received message": ("{0:g} MiB, {1:,} fragments under 4 KiB", "upgrade.conn.max_message / 1048576.0",
                         "upgrade.conn.max_fragments"),
    "pings and pongs received": ("{0:,} a second", "upgrade.conn.max_control_rate"),
    "a frame that takes over 30 s": ("{0} bytes a second at least", "upgrade.conn.min_rate"),
    "connections": ("{0:,}; more are answered with 503", "max_connections"),
    "connections of one address": ("no limit{0:.0}", "max_per_address"),
    "Origin": ("the server's own, or none; others by an allow-list{0:.0}{1:.0}", "upgrade.any_origin",
               "upgrade.origin_count"),
    "compression": ("off{0:.0}", "upgrade.deflate != NULL"),
    "read and idle timeout": ("none{0:.0}{1:.0}", "upgrade.conn.read_timeout", "upgrade.conn.idle_timeout"),
}


class Work(unittest.TestCase):
    """A folder for each test, and the compiler that made this tree, with what its library needs."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.dir = pathlib.Path(holder.name)
        flags = pathlib.Path(build_path("flags.txt")).read_text(encoding="utf-8").strip().split(" | ")
        self.cc = flags[0].split()
        self.instrument = [flag for flag in " ".join(flags[2:4]).split() if flag.startswith("-fsanitize")]
        libs = re.search(r"^LIBS := (.*)$", checks.read("mk/flags.mk"), flags=re.M).group(1)
        self.libs = re.findall(r"-l\w+", libs)

    def compile(self, text, *options):
        """Compiles one file; returns what the compiler says, "" when nothing."""
        source = self.dir / "snippet.c"
        source.write_text(text, encoding="utf-8")
        done = subprocess.run([*self.cc, *STRICT, str(source), *options], text=True, check=False, timeout=PATIENCE * 4,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.stdout if done.returncode else ""

    def link(self, text, name):
        """Builds a program with the library of this tree, and with its sanitizers. Returns its path."""
        program = self.dir / name
        self.assertEqual(self.compile(text, *self.instrument, "-g", "-pthread", "-o", str(program),
                                      build_path("libtws.a"), *self.libs), "")
        return str(program)

    def serve(self, text, name):
        """Builds and starts a program that listens on 127.0.0.1, on a free port in place of its own. Returns it and
        its address, once it listens."""
        with socket.socket() as keeper:  # keeps the port without listening on it
            keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            keeper.bind(("127.0.0.1", 0))
            address = "127.0.0.1:%d" % keeper.getsockname()[1]
            text, count = re.subn(r'(?<=")127\.0\.0\.1:\d+(?=")', address, text)
            self.assertEqual(count, 1, "the program's address")
            program = Program(self, self.link(text, name))
            wait_for(f"a listener at {address}", lambda: self.listens(program, address))
        return program, address

    def listens(self, program, address):
        self.assertIsNone(program.process.poll(), program.errors)
        host, port = address.split(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0


def squeezed(text):
    return re.sub(r"\s+", " ", text).strip()


@functools.lru_cache(maxsize=None)
def examples():
    """All of them, as one text."""
    return " ".join(squeezed(checks.read(path)) for path in sorted(glob.glob("examples/*.c", root_dir=ROOT)))


def wrapped(block):
    """What is whole, a program or what has its own headers, stays as it is; what defines or declares something at file
    scope gets headers; the rest, which is statements, a function around it as well."""
    if re.search(r"\bmain\(|^#include", block, flags=re.M):
        return block
    if re.search(r"^(\{|static |extern |typedef |struct \w+ \{|TWS_API )", block, flags=re.M):
        return HEADERS + block
    return HEADERS + BODY.format(text=block)


class Snippets(Work):
    def test_every_block_of_c_compiles(self):
        """A declaration of docs/api that is the header's own need not; `make check-man` looks at its layout. What
        stands in an example is compiled there."""
        def bare(text):
            return re.sub(r"/\*.*?\*/|\bTWS_API\b|\\\n|\s", "", text, flags=re.S)

        headers = "".join(bare(checks.read(path)) for path in glob.glob("include/tws/*.h", root_dir=ROOT))
        blocks = [(page, block) for page in all_pages() for block in page.code("c")]
        rest = [(page, block) for page, block in blocks
                if not page.path.startswith("docs/api/") or bare(block.text) not in headers]
        rest = [(page, block) for page, block in rest if squeezed(block.text) not in examples()]
        self.assertGreater(len(blocks) - len(rest), 100)
        self.assertGreaterEqual(len(rest), 4)
        for page, block in rest:
            with self.subTest(page=page.path, line=block.line):
                options = [] if "main(" in block.text else FRAGMENT
                self.assertEqual(self.compile(wrapped(block.text), "-fsyntax-only", *options), "")

    def test_every_block_has_a_language_that_is_tested(self):
        for page in all_pages():
            for block in page.blocks:
                with self.subTest(page=page.path, line=block.line):
                    self.assertIn(block.language, ("", "c", "sh", "cmake"))  # the last: by `make check-install`
                    if block.language == "":  # a picture or a list of folders
                        self.assertRegex(block.text, r"[─▶]|src/wire/ ")

    def test_program_of_the_readme_echoes_and_drains(self):
        [text] = [b.text for b in README.code("c") if "main(" in b.text]
        program, address = self.serve(text, "readme")
        with Client(address) as client:
            client.upgrade()
            client.send(frame(TEXT, b"hello"))
            self.assertEqual(client.frame(), Frame(TEXT, b"hello"))
            program.process.send_signal(signal.SIGINT)
            self.assertEqual(client.frame(), Frame(CLOSE, b"\x03\xe9"))
            client.send(close_frame(1001))
            self.assertEqual(program.wait(), 0, program.errors)


class Pages(unittest.TestCase):
    def holds(self, check):
        pages = list(all_pages())
        self.assertIn("docs/api/conn.md", [page.path for page in pages])
        self.assertEqual([fault for page in pages for fault in check(page)], [])

    def test_links(self):
        self.holds(checks.links)

    def test_names(self):
        self.holds(checks.names)

    def test_options(self):
        self.holds(checks.fields)

    def test_paths(self):
        self.holds(checks.paths)

    def test_commands(self):
        self.holds(checks.commands)

    def test_help_lists_what_it_should(self):
        done = checks.run_make("help")
        self.assertEqual(done.returncode, 0, done.stdout)
        for target in ("demo", "test", "check", "autobahn", "install", "bench"):
            self.assertRegex(done.stdout, rf"(?m)^  {target} ")

    def test_the_layers_are_the_folders(self):
        folders = {f"src/{name}/" for name in os.listdir(ROOT / "src") if (ROOT / "src" / name).is_dir()}
        [layers] = [b.text for b in Page("docs/design.md").blocks if "src/base/" in b.text]
        self.assertEqual(set(re.findall(r"^src/\w+/", layers, flags=re.M)), folders)
        self.assertEqual({row[0].strip("`") for row in Page("CONTRIBUTING.md").rows("Layers")},
                         folders | {"include/tws/"})
        headers = {os.path.basename(path) for path in glob.glob(str(ROOT / "include/tws/*.h"))} - {"tws.h"}
        self.assertEqual(set(re.findall(r"\w+\.h", layers)), headers)

    def test_the_first_page_leads_to_all(self):
        wanted = {os.path.relpath(path, ROOT) for path in glob.glob(str(ROOT / "docs" / "*.md"))}
        wanted |= {f"examples/{name}.c" for name in checks.example_programs()}
        self.assertEqual(wanted - {link.partition("#")[0] for link in README.links()}, set())

    def test_echo_as_the_pages_start_it(self):
        found = [words for page in all_pages() for span in page.spans for words in split_commands(span)
                 if span.startswith("build/examples/echo ")]
        self.assertGreaterEqual(len(found), 1)
        for words in found:
            with self.subTest(words=words):
                program = Program(self, "echo", *words[1:], "--listen", "127.0.0.1:0")
                self.assertRegex(program.addresses()[0], r"^127\.0\.0\.1:\d+$")
                self.assertEqual(program.end(), 0, program.errors)


class Memory(unittest.TestCase):
    def test_the_command_makes_the_table(self):
        script = str(ROOT / "bench" / "memory" / "memory.py")
        echo = build_path("examples", "echo")
        done = subprocess.run([sys.executable, script, "--echo", echo, "-n", "20"], capture_output=True, text=True,
                              check=False, timeout=PATIENCE * 4)
        self.assertEqual(done.returncode, 0, done.stderr)
        table = [line for line in README.section("Memory").split("\n") if line.startswith("|")]
        made = done.stdout.splitlines()
        self.assertEqual(made[:2], table[:2])

        def shape(line):
            return re.sub(r"-?\d+\.\d", "N", line)
        self.assertEqual([shape(line) for line in made[2:]], [shape(line) for line in table[2:]])


class Figures(Work):
    def test_figures_are_those_of_the_code(self):
        for page, words, source, constant in FIGURES:
            with self.subTest(page=page, words=words):
                said = re.findall(words, Page(page).prose.replace("\n", " "))
                meant = re.findall(constant, checks.read(source))
                self.assertEqual(len(meant), 1, source)
                self.assertEqual([s.replace(",", "") for s in said], meant)

    def test_defaults(self):
        rows = README.rows("Defaults that matter")
        fields = [field for _, *fields in DEFAULTS.values() for field in fields]
        prints = "".join(f'    printf("%.17g\\n", (double)(opt.{field}));\n' for field in fields)
        path = self.link(HEADERS + "int main(void)\n{\n    tws_server_options opt;\n\n"
                         f"    tws_server_options_init(&opt);\n{prints}    return 0;\n}}\n", "defaults")
        done = subprocess.run([path], capture_output=True, text=True, check=True, timeout=PATIENCE)
        values = iter([float(line) for line in done.stdout.split()])
        expected = {}
        for row, (form, *names) in DEFAULTS.items():
            of_row = [int(v) if v == int(v) else v for v in (next(values) for _ in names)]
            if ":.0}" in form:  # says that there is none
                self.assertEqual(set(of_row), {0}, row)
                of_row = [""] * len(of_row)
            expected[row] = form.format(*of_row)
        self.assertEqual(dict(rows), expected)
        self.assertRegex(checks.read("src/conn/frame.c"), r"SLOW_GRACE_NS \(30 \* BASE_NS_PER_S\)")
        self.assertRegex(checks.read("src/conn/frame.c"), r"SMALL_FRAME 4096")


class Checkers(unittest.TestCase):
    """A page with one fault of each kind."""

    def finds(self, check, text, *words):
        faults = list(check(Page("docs/sample.md", text)))
        self.assertEqual(len(faults), len(words), faults)
        for fault, word in zip(faults, words):
            self.assertIn(word, fault)

    def test_links(self):
        self.finds(checks.links, "# Top\n[a](design.md) [b](#top) [c](gone.md) [d](#gone) [e](design.md#gone)\n",
                   "gone.md", "#gone", "#gone in docs/design.md")

    def test_names(self):
        self.finds(checks.names, "`tws_close`, `tws_handovers_total`, `tws_never`\n", "tws_never")

    def test_options(self):
        self.finds(checks.fields, "`opt.upgrade.conn.min_rate` and `opt.wishes`\n", "opt.wishes")

    def test_paths(self):
        self.finds(checks.paths, "`src/conn/close.c`, `tests/unit/NAME_test.c`, `src/gone/a.c`, `gone.c`\n",
                   "src/gone/a.c", "gone.c")

    def test_targets_and_variables_of_make(self):
        self.finds(checks.commands, "```sh\nmake -j2 test\nmake gone\nmake test GONE=1\n```\n", "-j2", "gone", "GONE")

    def test_option_that_the_makefiles_set_themselves(self):
        database = "HARD := 1\nEASY = 1\nrun:\n\tprogram $(if $(HARD),-h) $(if $(EASY),-e)\n"
        with unittest.mock.patch.object(checks, "make_database", lambda: database):
            self.finds(checks.commands, "```sh\nmake run EASY=1\nmake run HARD=1\n```\n", "HARD")

    def test_arguments_of_bench(self):
        self.finds(checks.commands, '    make bench PEERS="gws" WORKLOADS=W1\n    make bench PEERS=gone\n'
                   '    make bench BENCH_ARGS="--gone"\n', "gone", "--gone")

    def test_options_of_programs(self):
        self.finds(checks.commands, "    build/examples/echo --threads light # text\n    build/bench/load \\\n"
                   "        -c 3 --gone x\n    gone --now && bench/peers/gws/peer jump\n", "--gone", "gone", "jump")

    def test_number_of_a_subshell(self):
        self.finds(checks.commands, "    mkdir a && docker b &\n    docker $!\n", "$!")


if __name__ == "__main__":
    unittest.main()
