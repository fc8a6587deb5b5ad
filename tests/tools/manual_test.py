#!/usr/bin/env python3
"""The manual pages of the tools name the options that the tools have, all of them and no others."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = {"tws-cat": "examples/cat_options.c", "tws-load": "bench/load/options.c", "tws-exporter": "bench/exporter/main.c"}


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


class Options(unittest.TestCase):
    def test_pages_and_getopt_agree(self):
        for tool, source in TOOLS.items():
            with self.subTest(tool):
                has = set(re.findall(r'^ +\{"([a-z0-9-]+)", (?:no|required|optional)_argument', read(source), re.M))
                says = set(re.findall(r"^\.It .*?Fl Fl ([a-z0-9-]+)|, Fl Fl ([a-z0-9-]+)", read(f"packaging/man/{tool}.1"),
                                      re.M))
                says = {name for pair in says for name in pair if name}
                self.assertGreater(len(has), 5)
                self.assertEqual(says, has)

    def test_short_forms_stand_beside_long_ones(self):
        for tool, source in TOOLS.items():
            with self.subTest(tool):
                letters = re.search(r'getopt_long\(argc, argv, "([^"]*)"', read(source)).group(1).replace(":", "")
                page = set(re.findall(r"^\.It Fl ([a-zA-Z0-9]) , Fl Fl", read(f"packaging/man/{tool}.1"), re.M))
                self.assertEqual(page, set(letters))


if __name__ == "__main__":
    unittest.main()
