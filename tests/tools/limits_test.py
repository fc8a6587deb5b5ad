#!/usr/bin/env python3
"""docs/limits.md has a row for every limit among the options of the headers, with the default of the code."""

import re
import subprocess
import sys
import unittest

from docs_test import HEADERS, PATIENCE, Work, checks
from pages import Page

PAGE = Page("docs/limits.md")
# By struct: what initialises it, and where its members stand then.
STRUCTS = {
    "conn": ("tws_server_options", "upgrade.conn."), "queue": ("tws_queue_options", ""),
    "deflate": ("tws_deflate_options", ""), "upgrade": ("tws_upgrade_options", ""),
    "server": ("tws_server_options", ""), "dial": ("tws_dial_options", ""),
    "reconnect": ("tws_reconnect_options", ""), "hub": ("tws_hub_options", ""),
}
# Have pages of their own, or nothing to limit.
ELSEWHERE = {"cluster", "group", "pair", "publish", "tls_client", "tls_server"}
LIMIT = re.compile(r"(max|min)_(?!version)\w+|\w*timeout|ping_interval|address_burst|wait|(receive|send)_buffer")
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "ms": 1, "s": 1000}


def members():
    """Every member of every option struct of the library itself, as struct and member. Brokers have libraries of
    their own."""
    for header in re.findall(r"<(tws/\w+\.h)>", checks.read("include/tws/tws.h")):
        text = re.sub(r"/\*.*?\*/", "", checks.read(f"include/{header}"), flags=re.S)
        for name, body in re.findall(r"typedef struct tws_(\w+)_options \{(.*?)\n\}", text, flags=re.S):
            for member in re.findall(r"(\w+);", body):
                yield name, member


def rows():
    """Default cells by option, of all tables."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.prose.split("\n")
             if line.startswith("| `")]
    return {first.strip("`"): second for first, second, *_ in cells if re.fullmatch(r"`\w+\.\w+`", first)}


def value(cell):
    """What a default's cell begins with, as a number: "16 MiB", "4,096 in progress", "none", "the system's"."""
    if re.match(r"(none|the system's)\b", cell):
        return 0
    number, unit = re.match(r"([\d,]+)(?: (KiB|MiB|ms|s)\b)?", cell).groups()
    return int(number.replace(",", "")) * UNITS[unit or ""]


class Limits(Work):
    def test_every_limit_has_a_row(self):
        found = list(members())
        self.assertEqual({struct for struct, _ in found} - set(STRUCTS) - ELSEWHERE, set())
        limits = {f"{struct}.{member}" for struct, member in found if struct in STRUCTS and LIMIT.fullmatch(member)}
        self.assertGreater(len(limits), 35)
        self.assertEqual(limits, set(rows()))

    def test_defaults_are_those_of_the_code(self):
        said = rows()
        code = ""
        for name in said:
            struct, _, member = name.partition(".")
            options_type, path = STRUCTS[struct]
            code += f"    {{\n        {options_type} o;\n\n        {options_type}_init(&o);\n" \
                f"        printf(\"%llu\\n\", (unsigned long long)o.{path}{member});\n    }}\n"
        path = self.link(f"{HEADERS}int main(void)\n{{\n{code}    return 0;\n}}\n", "defaults")
        done = subprocess.run([path], capture_output=True, text=True, check=True, timeout=PATIENCE)
        self.assertEqual({name: value(cell) for name, cell in said.items()},
                         dict(zip(said, map(int, done.stdout.split()))))

    def test_limits_are_counted_by_these_names(self):
        passed = set(re.findall(r'"limit", "(\w+)"', checks.read("src/metrics/metrics.c")))
        self.assertEqual(passed - {"queue"} - {name.partition(".")[2] for name in rows()}, set())
        refused = set(re.findall(r'refused, "reason", "(\w+)"', checks.read("src/metrics/metrics.c")))
        said = " ".join(line for line in PAGE.section("Connections").split("\n") if line.startswith("|"))
        self.assertEqual(refused - set(re.findall(r"`(\w+)`", said)), set())


if __name__ == "__main__":
    sys.exit(unittest.main())
