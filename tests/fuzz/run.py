#!/usr/bin/env python3
"""Runs the fuzzers one after the other, each from its committed corpus and from what earlier runs have found.

What is found goes to BUILD/corpus/NAME, inputs that crash to BUILD/crashes. A fuzzer that ends badly counts as failed;
the last line is "N passed, N failed, 0 skipped". Keep what an input taught as a test, or in tests/fuzz/corpus:

    build/fuzz/tests/fuzz/NAME build/fuzz/crashes/NAME-crash-...                         # once more
    build/fuzz/tests/fuzz/NAME -merge=1 tests/fuzz/corpus/NAME build/fuzz/corpus/NAME    # what adds coverage
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
INPUT_SECONDS = 25  # for one input, under sanitizers, on a busy machine


def command(name, build, seconds):
    found = build / "corpus" / name
    crashes = build / "crashes"
    found.mkdir(parents=True, exist_ok=True)
    crashes.mkdir(exist_ok=True)
    line = [str(build / "tests" / "fuzz" / name), f"-max_total_time={seconds}", "-print_final_stats=1", "-max_len=4096",
            f"-timeout={INPUT_SECONDS}", "-rss_limit_mb=1024", f"-artifact_prefix={crashes}/{name}-"]
    if (HERE / f"{name}.dict").exists():
        line.append(f"-dict={HERE / name}.dict")
    # The sanitizers of clang 14 cannot map their shadow under every kernel's randomisation.
    setarch = [shutil.which("setarch"), "-R"] if shutil.which("setarch") else []
    return setarch + line + [str(found), str(HERE / "corpus" / name)]


def fuzz(name, build, seconds):
    log = build / f"{name}.log"
    with open(log, "wb") as file:
        done = subprocess.run(command(name, build, seconds), stdin=subprocess.DEVNULL, stdout=file,
                              stderr=subprocess.STDOUT, check=False)
    text = log.read_text(encoding="utf-8", errors="replace")
    runs = re.findall(r"^stat::number_of_executed_units: (\d+)", text, re.MULTILINE)
    coverage = re.findall(r" cov: (\d+)", text)
    good = done.returncode == 0 and bool(runs) and int(runs[-1]) > 0
    print(f"{'ok' if good else 'FAILED':6} {name:20} {runs[-1] if runs else 0} inputs, "
          f"{coverage[-1] if coverage else 0} places reached", flush=True)
    if not good:
        print("\n".join("    " + line for line in text.splitlines()[-40:]), flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True, type=pathlib.Path, help="build tree of the fuzzers")
    parser.add_argument("--seconds", default=60, type=int, help="for each of them")
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    results = [fuzz(name, args.build.resolve(), args.seconds) for name in args.names]
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed, 0 skipped")
    return 0 if results and all(results) else 1


if __name__ == "__main__":
    os.environ.setdefault("ASAN_OPTIONS", "detect_leaks=1:detect_stack_use_after_return=0")
    sys.exit(main())
