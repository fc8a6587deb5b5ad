#!/usr/bin/env python3
"""docs/scale.md: the simulation prints its tables, its arithmetic comes out, and it names what the samples say."""

import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "docs"))

from pages import Page  # noqa: E402

PAGE = Page("docs/scale.md")
UNITS = {"GiB": 1 << 20, "cores": 1e6, "Gbit/s": 1e9}  # of what the left sides come to: KiB, microseconds, bits


def value(expression):
    """What "1,000,000 × (5.7 + 3.9) KiB" comes to, without its units."""
    bare = re.sub(r"\b(KiB|s|µs|bit)\b|,(?=\d)", "", expression).replace("×", "*")
    if not re.fullmatch(r"[\d\s.+*/()]+", bare):
        return None
    return eval(bare, {"__builtins__": {}})  # digits and operators only


class Scale(unittest.TestCase):
    def test_simulation_prints_the_tables(self):
        done = subprocess.run([sys.executable, str(ROOT / "bench" / "sim" / "sim.py")], capture_output=True, text=True,
                              check=True, timeout=150)
        tables = done.stdout.strip().split("\n\n")
        self.assertEqual(len(tables), 3)
        for table in tables:
            self.assertIn(table + "\n", PAGE.text)

    def test_arithmetic(self):
        count = 0
        for _, expression, result in PAGE.rows("What a million connections takes"):
            computed = value(expression)
            if computed is None:
                continue
            said, unit = re.match(r"([\d.,]*\d) ?(\S*)", result).groups()
            digits = len(said.partition(".")[2])
            computed /= UNITS.get(unit.rstrip(":,;"), 1)
            self.assertLessEqual(abs(float(said.replace(",", "")) - computed), 0.5000001 * 10 ** -digits + (digits == 0) * 0.5,
                                 (expression, computed, result))
            count += 1
        self.assertGreaterEqual(count, 14)

    def test_figures_of_the_simulation_are_those_of_the_code(self):
        sim = (ROOT / "bench" / "sim" / "sim.py").read_text(encoding="utf-8")
        for words, path, constant in (
                (r"MIN_DELAY, MAX_DELAY = (\w+),", "src/client/reconnect.c", r"o\.min_delay = (\d+)"),
                (r"MIN_DELAY, MAX_DELAY = \w+, (\w+)", "src/client/reconnect.c", r"o\.max_delay = (\d+)")):
            [said] = re.findall(words, sim)
            [meant] = re.findall(constant, (ROOT / path).read_text(encoding="utf-8"))
            self.assertEqual(said.replace("_", ""), meant)


if __name__ == "__main__":
    unittest.main()
