#!/usr/bin/env python3
"""tests/cases/list.txt and the tests agree: every case is tested where the list says, or says why not."""

import pathlib
import re
import sys

CASES = 100
LATER = {"compression", "tls", "client", "proxy"}
IN_NAME = re.compile(r"\bdef test_(B\d{3})_")
IN_TEXT = re.compile(r"\b(B\d{3})\b|_(b\d{3})(?=_)")


def ids_in(path):
    """The cases that a file of tests is about."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return set(IN_NAME.findall(text))
    return {(upper or lower).upper() for upper, lower in IN_TEXT.findall(text)}


def read_list(path):
    """The cases of the list: id -> places; and what is wrong with its lines."""
    cases, faults = {}, []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        parts = line.split(" | ")
        if len(parts) != 4 or not re.fullmatch(r"B\d{3}", parts[0]) or not all(parts):
            faults.append(f"{path}:{number}: not: id | kind | where | what")
        elif parts[0] in cases:
            faults.append(f"{path}:{number}: {parts[0]} is there twice")
        elif parts[2].startswith("none: "):
            cases[parts[0]] = []
        else:
            cases[parts[0]] = parts[2].split(", ")
    return cases, faults


def check_place(tests, case, place):
    """What is wrong with one place of a case, or None."""
    if place.startswith("later: "):
        return None if place[7:] in LATER else f"{case}: later than what? {place[7:]}"
    path = tests / place
    if not path.is_file():
        return f"{case}: there is no tests/{place}"
    return None if case in ids_in(path) else f"{case}: tests/{place} has no test of it"


def check(tests):
    cases, faults = read_list(tests / "cases" / "list.txt")
    if len(cases) != CASES:
        faults.append(f"the list has {len(cases)} cases instead of {CASES}")
    for case, places in cases.items():
        faults += filter(None, (check_place(tests, case, place) for place in places))
    for path in sorted(tests.glob("integration/*.py")):
        name = str(path.relative_to(tests))
        faults += (f"{case}: tests/{name} has a test that the list does not name"
                   for case in sorted(ids_in(path)) if name not in cases.get(case, ()))
    later = sum(place.startswith("later: ") for places in cases.values() for place in places)
    return faults, f"cases: {len(cases)}, {later} of them wait for a later part"


def main():
    faults, summary = check(pathlib.Path("tests"))
    print("\n".join(faults) if faults else summary)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
