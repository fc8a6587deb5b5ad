#!/usr/bin/env python3
"""The checker of the list of cases finds what it is there to find."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "check-cases.py"
GOOD = "import unittest\n" + "".join(f"def test_B{n}_x(): pass\n" for n in range(100, 150))


class List(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.dir = pathlib.Path(holder.name)
        self.lines = {f"B{n}": f"B{n} | frame | integration/cases_a.py | what" for n in range(100, 150)}
        self.lines |= {f"B{n}": f"B{n} | tls | later: tls | what" for n in range(150, 199)}
        self.lines["B199"] = "B199 | other | none: there is no such thing | what"
        self.put("integration/cases_a.py", GOOD)
        self.put("integration/b_test.c", "/* B198: as it was */\nstatic void test_b197_again(void **state)\n")

    def put(self, path, text):
        full = self.dir / "tests" / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(text, encoding="utf-8")

    def run_script(self):
        self.put("cases/list.txt", "# cases\n" + "".join(line + "\n" for line in self.lines.values()))
        done = subprocess.run([sys.executable, str(SCRIPT)], cwd=self.dir, capture_output=True, text=True,
                              check=False)
        return done.returncode, done.stdout

    def finds(self, *words):
        status, output = self.run_script()
        self.assertEqual(status, 1, output)
        for word in words:
            self.assertIn(word, output)

    def test_good(self):
        self.lines["B198"] = "B198 | tls | integration/b_test.c, later: tls | what"
        self.lines["B197"] = "B197 | tls | integration/b_test.c | what"
        status, output = self.run_script()
        self.assertEqual((status, output), (0, "cases: 100, 48 of them wait for a later part\n"))

    def test_test_that_is_not_there(self):
        self.put("integration/cases_a.py", GOOD.replace("test_B120_x", "test_b120"))
        self.finds("B120: tests/integration/cases_a.py has no test of it")

    def test_file_that_is_not_there(self):
        self.lines["B150"] = "B150 | tls | integration/c_test.c | what"
        self.finds("B150: there is no tests/integration/c_test.c")

    def test_id_in_a_longer_word(self):
        self.put("integration/b_test.c", "/* AB198, B1980, 0xB198F */\n")
        self.lines["B198"] = "B198 | tls | integration/b_test.c | what"
        self.finds("B198: tests/integration/b_test.c has no test of it")

    def test_test_that_the_list_does_not_know(self):
        self.put("integration/cases_a.py", GOOD + "def test_B160_x(): pass\n")
        self.finds("B160: tests/integration/cases_a.py has a test that the list does not name")

    def test_unknown_later(self):
        self.lines["B150"] = "B150 | tls | later: some day | what"
        self.finds("B150: later than what? some day")

    def test_missing_case(self):
        del self.lines["B150"]
        self.finds("99 cases instead of 100")

    def test_twice_and_malformed(self):
        self.lines["more"] = self.lines["B150"]
        self.lines["odd"] = "B001 frame integration/cases_a.py"
        self.finds("B150 is there twice", "list.txt:103: not: id | kind | where | what")


if __name__ == "__main__":
    unittest.main()
