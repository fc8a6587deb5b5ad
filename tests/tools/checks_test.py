#!/usr/bin/env python3
"""The checkers of `make check` and the test runner find what they are there to find."""

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPTS = os.path.join(ROOT, "scripts")

CONTRACT = """/**
 * Does a thing.
 *
 * @param c the connection
 * @return TWS_OK; TWS_ERR_TIMEOUT when time ran out.
 * Threads: any.
 */
TWS_API tws_err tws_thing(tws_conn *c);
"""
ERRORS = '#define TWS_ERROR_MAP(X) \\\n    X(TWS_OK, 0, "success") \\\n    X(TWS_ERR_TIMEOUT, -6, "time ran out")\n'


class Tree(unittest.TestCase):
    """A small source tree of its own for each test."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.dir = holder.name

    def put(self, path, text, executable=False):
        full = os.path.join(self.dir, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as f:
            f.write(text)
        if executable:
            os.chmod(full, 0o755)
        return full

    def run_script(self, name, *args, **env):
        command = [sys.executable, os.path.join(SCRIPTS, name), *args]
        return subprocess.run(command, cwd=self.dir, capture_output=True, text=True,
                              env={**os.environ, "CI": "", **env})

    def finds(self, name, *words):
        done = self.run_script(name)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        for word in words:
            self.assertIn(word, done.stdout)

    def passes(self, name):
        done = self.run_script(name)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Layers(Tree):
    def test_allowed_includes(self):
        self.put("src/net/a.c", '#include "net/a.h"\n#include "task/t.h"\n#include <tws/tws.h>\n#include <poll.h>\n')
        self.passes("check-layers.py")

    def test_include_of_a_higher_layer(self):
        self.put("src/net/a.c", '\n#include "conn/conn.h"\n')
        self.finds("check-layers.py", "src/net/a.c:2", "may not include conn/conn.h")

    def test_include_without_folder(self):
        self.put("src/net/a.c", '#include "a.h"\n')
        self.finds("check-layers.py", "write the folder")

    def test_unknown_folder(self):
        self.put("src/other/a.c", "int a;\n")
        self.finds("check-layers.py", "src/other/ is no layer")

    def test_wire_touches_nothing(self):
        self.put("src/wire/a.c", "#include <sys/socket.h>\nvoid *f(void)\n{\n    return malloc(3);\n}\n")
        self.finds("check-layers.py", "a.c:1", "<sys/socket.h>", "a.c:4", "malloc()")

    def test_only_task_waits(self):
        code = "int f(int s)\n{\n    return (int)recv(s, 0, 0, 0);\n}\n"
        self.put("src/task/a.c", code)
        self.passes("check-layers.py")
        self.put("src/net/a.c", code)
        self.finds("check-layers.py", "src/net/a.c:3", "recv()")

    def test_members_comments_and_strings_are_no_calls(self):
        self.put("src/net/a.c", 'int f(struct s *s)\n{\n    /* poll() */\n    return s->recv(s) + s->t.send("exit(1)");\n}\n')
        self.passes("check-layers.py")

    def test_banned_everywhere(self):
        self.put("src/task/a.c", "void f(void)\n{\n    if (x)\n        exit(1);\n    strcpy(a, b);\n}\n")
        self.finds("check-layers.py", "a.c:4", "exit()", "a.c:5", "strcpy()")

    def test_public_headers(self):
        self.put("include/tws/a.h", "#include <openssl/ssl.h>\ntypedef struct tws_a tws_a;\nstruct tws_a {\n    int b;\n};\n")
        self.finds("check-layers.py", "openssl/ssl.h", "struct tws_a is a handle")


class Contracts(Tree):
    def header(self, text):
        self.put("include/tws/error.h", ERRORS)
        self.put("include/tws/a.h", "/* a.h: things. */\n\n" + text)

    def test_complete(self):
        self.header(CONTRACT)
        self.passes("check-contracts.py")

    def test_missing(self):
        self.header("TWS_API tws_err tws_thing(tws_conn *c);\n")
        self.finds("check-contracts.py", "tws_thing has no contract comment")

    def test_function_as_parameter(self):
        self.header(CONTRACT.replace("tws_conn *c)", "int (*c)(void *p, int q), int last[2])")
                    .replace(" * @return", " * @param last the rest\n * @return"))
        self.passes("check-contracts.py")

    def test_parts_missing(self):
        self.header(CONTRACT.replace(" * Threads: any.\n", "").replace("@param c", "@param d"))
        self.finds("check-contracts.py", "which threads", "describes (d) but takes (c)")

    def test_unknown_error(self):
        self.header(CONTRACT.replace("TWS_ERR_TIMEOUT", "TWS_ERR_TIME"))
        self.finds("check-contracts.py", "TWS_ERR_TIME, which is no error code")

    def test_pages(self):
        self.header(CONTRACT)
        self.put("include/tws/types.h", "".join(f"#define TWS_VERSION_{n} 1\n" for n in ("MAJOR", "MINOR", "PATCH")))
        for what, name in (("man", "tws_thing.3"), ("docs", "a.md")):
            done = self.run_script("mkman.py", what, what)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(os.path.join(self.dir, what, name), encoding="utf-8") as f:
                page = f.read()
            for word in ("Does a thing", "the connection", "when time ran out"):
                self.assertIn(word, page)
        self.assertEqual(self.run_script("mkman.py", "check", "docs").returncode, 0)
        self.header(CONTRACT.replace("a thing", "another thing"))
        self.assertEqual(self.run_script("mkman.py", "check", "docs").returncode, 1)


class SizeAndText(Tree):
    def setUp(self):
        super().setUp()
        subprocess.run(["git", "init", "-q", self.dir], check=True)

    def tracked(self, path, text):
        self.put(path, text)
        subprocess.run(["git", "-C", self.dir, "add", path], check=True)

    def test_long_function_and_file(self):
        self.tracked("a.c", "int f(int a)\n{\n" + "    a++;\n" * 60 + "}\n")
        self.passes("check-size.py")
        self.tracked("a.c", "int f(int a)\n{\n" + "    a++;\n" * 61 + "}\n")
        self.finds("check-size.py", "a.c:2: f() has 61 lines")
        self.tracked("a.c", "int a;\n" * 601)
        self.finds("check-size.py", "a.c: 601 lines")

    def test_machine_path(self):
        self.tracked("a.txt", "a file in /usr/include is fine, and ~/x too\n")
        self.passes("check-text.py")
        self.tracked("a.txt", f"see {self.dir}/b\n")
        self.finds("check-text.py", "a.txt:1: names a path of one machine")

    def test_line_ends(self):
        self.tracked("a.c", "int a; \nint\tb;")
        self.finds("check-text.py", "a.c:1: blanks", "a.c:2: a tab", "the last line has no end")


class Runner(Tree):
    def suite(self, body, **env):
        self.put("tests/unit/a_test", "#!/bin/sh\n" + body, executable=True)
        done = self.run_script("run-tests.py", "--build", "b", "--timeout", "2", "tests/unit/a_test", **env)
        return done.returncode, done.stdout.splitlines()[-1]

    def test_counts(self):
        self.assertEqual(self.suite("echo 1..2; echo 'ok 1 - a'; echo 'ok 2 - b'"), (0, "2 passed, 0 failed, 0 skipped"))
        self.assertEqual(self.suite("echo 1..2; echo 'ok 1 - a'; echo 'not ok 2 - b'; exit 1"),
                         (1, "1 passed, 1 failed, 0 skipped"))

    def test_skipped_fails_in_ci_only(self):
        body = "echo 1..2; echo 'ok 1 - a'; echo 'not ok 2 # SKIP b'"
        self.assertEqual(self.suite(body), (0, "1 passed, 0 failed, 1 skipped"))
        self.assertEqual(self.suite(body, CI="true"), (1, "1 passed, 0 failed, 1 skipped"))

    def test_silence_is_failure(self):
        self.assertEqual(self.suite("exit 0"), (1, "0 passed, 1 failed, 0 skipped"))

    def test_case_that_never_reports(self):
        self.assertEqual(self.suite("echo 1..3; echo 'ok 1 - a'"), (1, "1 passed, 2 failed, 0 skipped"))

    def test_bad_status_and_signal(self):
        self.assertEqual(self.suite("echo 'ok 1 - a'; exit 3"), (1, "1 passed, 1 failed, 0 skipped"))
        self.assertEqual(self.suite("echo 'ok 1 - a'; kill -SEGV $$"), (1, "1 passed, 1 failed, 0 skipped"))

    def test_time_limit(self):
        self.assertEqual(self.suite("echo 'ok 1 - a'; exec sleep 600"), (1, "1 passed, 1 failed, 0 skipped"))

    def test_python_tells_where_it_stood(self):
        self.put("d.py", "import time\ndef stuck():\n    time.sleep(600)\nstuck()\n")
        done = self.run_script("run-tests.py", "--build", "b", "--timeout", "1", "d.py")
        self.assertIn("in stuck", done.stdout)
        self.assertEqual(done.stdout.splitlines()[-1], "0 passed, 1 failed, 0 skipped")

    def test_process_left_behind(self):
        self.assertEqual(self.suite("echo 'ok 1 - a'; sleep 600 & exit 0"), (1, "1 passed, 1 failed, 0 skipped"))

    def several(self, bodies, *options):
        """Programs a, b, ... side by side; (status, lines of output)."""
        names = [f"tests/unit/{chr(ord('a') + i)}" for i in range(len(bodies))]
        for name, body in zip(names, bodies):
            self.put(name, "#!/bin/sh\necho 1..1\n" + body, executable=True)
        done = self.run_script("run-tests.py", "--build", "b", "--timeout", "20", *options, *names)
        return done.returncode, done.stdout.splitlines()

    def test_side_by_side_and_in_order(self):
        # Each waits for the other; the second is over first.
        first = "touch begun; until test -e over; do sleep 0.05; done; sleep 0.2; echo ok 1"
        second = "until test -e begun; do sleep 0.05; done; echo ok 1; touch over"
        status, lines = self.several([first, second], "--jobs", "2")
        self.assertEqual((status, lines[-1]), (0, "2 passed, 0 failed, 0 skipped"), lines)
        self.assertEqual([line.split()[1] for line in lines[:-1]], ["unit/a", "unit/b"])

    def test_side_by_side_what_is_left_behind_is_the_right_ones(self):
        bodies = ["echo ok 1", "echo ok 1; sleep 600 & exit 0", "echo ok 1; sleep 0.2"]
        status, lines = self.several(bodies, "--jobs", "3")
        self.assertEqual((status, lines[-1]), (1, "3 passed, 1 failed, 0 skipped"), lines)
        self.assertIn("failed: unit/b", lines)

    def test_alone(self):
        # Each of the others would see the marker of the one that has to be alone, and it theirs.
        other = "test ! -e alone && touch other.$$ && sleep 0.3 && rm other.$$ && echo ok 1"
        body = "touch alone; sleep 0.3; ls other.* 2>/dev/null || echo ok 1; rm alone"
        status, lines = self.several([other, other, body], "--jobs", "3", "--alone", "unit/c,unit/x")
        self.assertEqual((status, lines[-1]), (0, "3 passed, 0 failed, 0 skipped"), lines)

    def test_programs_end_with_the_runner(self):
        name = self.put("tests/unit/a", "#!/bin/sh\necho $$ >pid.new; mv pid.new pid; exec sleep 600\n", executable=True)
        runner = subprocess.Popen([sys.executable, os.path.join(SCRIPTS, "run-tests.py"), "--build", "b", "--jobs", "2",
                                   name], cwd=self.dir, stdout=subprocess.DEVNULL)
        pid = os.path.join(self.dir, "pid")
        self.wait_for(lambda: os.path.exists(pid))
        runner.terminate()
        self.assertEqual(runner.wait(20), 143)
        with open(pid, encoding="ascii") as f:
            number = int(f.read())
        self.wait_for(lambda: not os.path.exists(f"/proc/{number}") or self.is_dead(number))

    def wait_for(self, condition):
        deadline = time.monotonic() + 20
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    @staticmethod
    def is_dead(pid):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as f:
                return f.read().rpartition(")")[2].split()[0] in "ZX"
        except OSError:
            return True

    def test_unittest_driver(self):
        self.put("d.py", "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): pass\n"
                         "    def test_b(self): self.fail('x')\n    def test_c(self): self.skipTest('y')\nunittest.main()\n")
        done = self.run_script("run-tests.py", "--build", "b", "d.py")
        self.assertEqual((done.returncode, done.stdout.splitlines()[-1]), (1, "1 passed, 1 failed, 1 skipped"))


class Autobahn(Tree):
    def setUp(self):
        super().setUp()
        spec = importlib.util.spec_from_file_location("run", os.path.join(ROOT, "tests", "autobahn", "run.py"))
        self.reader = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.reader)

    def verdict(self, *rows, expected=None):
        rows = ", ".join(f'"1.{i}": {{"behavior": "{b}", "behaviorClose": "{c}"}}' for i, (b, c) in enumerate(rows))
        path = self.put("index.json", f'{{"agent": {{{rows}}}}}')
        out = sys.stdout
        with open(os.devnull, "w", encoding="utf-8") as sys.stdout:
            try:
                return self.reader.judge(path, expected)
            finally:
                sys.stdout = out

    def test_only_ok_and_informational_pass(self):
        self.assertEqual(self.verdict(("OK", "OK"), ("INFORMATIONAL", "INFORMATIONAL")), (2, 0))
        for bad in (("NON-STRICT", "OK"), ("OK", "UNCLEAN"), ("FAILED", "OK"), ("UNIMPLEMENTED", "OK"),
                    ("OK", "WRONG CODE")):
            self.assertEqual(self.verdict(("OK", "OK"), bad), (1, 1), bad)

    def test_missing_cases_fail(self):
        self.assertEqual(self.verdict(("OK", "OK"), expected=3), (1, 2))


if __name__ == "__main__":
    unittest.main()
