#!/usr/bin/env python3
"""Tells how many lines and branches of each layer the tests have run, and fails where it is fewer lines than the
floor. Reads what a build with --coverage has left behind, with gcovr."""

import argparse
import collections
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Percent of the lines of each folder of src/, as `make coverage` measures them: raise them with the tests. What is
# left is mostly what to do when memory, threads or descriptors run out, which other tests reach (tests/fault).
FLOORS = {
    "base": 96,
    "client": 93,
    "cluster": 87,
    "conn": 93,
    "event": 97,
    "hub": 97,
    "metrics": 97,
    "net": 92,
    "server": 88,
    "task": 92,
    "wire": 98,
}


def measured(build):
    """Of each layer: [lines, run, branches, taken]; and of each file its lines that were not run."""
    command = ["gcovr", "--root", ROOT, "--filter", os.path.join(ROOT, "src") + "/", "--json", "--exclude-throw-branches",
               "--gcov-ignore-parse-errors", "-j", str(os.cpu_count()), os.path.join(build, "obj", "src")]
    report = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    layers = collections.defaultdict(lambda: [0, 0, 0, 0])
    missing = {}
    for file in report["files"]:
        layer = layers[file["file"].split("/")[1]]
        lines = [line for line in file["lines"] if not line.get("gcovr/noncode")]
        branches = [branch for line in lines for branch in line["branches"]]
        layer[0] += len(lines)
        layer[1] += sum(line["count"] > 0 for line in lines)
        layer[2] += len(branches)
        layer[3] += sum(branch["count"] > 0 for branch in branches)
        missing[file["file"]] = [line["line_number"] for line in lines if line["count"] == 0]
    return layers, missing


def share(part, whole):
    return 100.0 * part / whole if whole else 100.0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True, help="tree that was built with VARIANT=coverage, after its tests")
    parser.add_argument("--no-floors", action="store_true", help="only tell")
    parser.add_argument("--missing", action="store_true", help="list the lines of each file that were not run")
    args = parser.parse_args()
    layers, missing = measured(args.build)
    faults = []
    print(f"{'layer':<10} {'lines':>7} {'run':>7} {'floor':>7} {'branches':>9} {'taken':>7}")
    for name, (lines, run, branches, taken) in sorted(layers.items()):
        floor = FLOORS.get(name)
        print(f"{name:<10} {lines:>7} {share(run, lines):>6.1f}% {f'{floor}%' if floor else '-':>7} "
              f"{branches:>9} {share(taken, branches):>6.1f}%")
        if floor is None:
            faults.append(f"src/{name}/ has no floor in tests/coverage.py")
        elif share(run, lines) < floor:
            faults.append(f"src/{name}/: {share(run, lines):.1f} % of its lines are run, the floor is {floor} %")
    faults += [f"src/{name}/ has a floor but is not there" for name in FLOORS if name not in layers]
    if args.missing:
        for path, numbers in sorted(missing.items()):
            print(f"{path}: {' '.join(map(str, numbers)) or '-'}")
    if args.no_floors:
        return 0
    print("\n".join(faults) if faults else "coverage: every layer is above its floor")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
