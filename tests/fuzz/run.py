#!/usr/bin/env python3
"""Runs the fuzzers, several at a time: first every input of the committed corpora, then each fuzzer for a while, from
its corpus and from what earlier runs have found.

What is found goes to BUILD/corpus/NAME, inputs that crash to BUILD/crashes. A fuzzer that ends badly counts as failed;
the last line is "N passed, N failed, 0 skipped". See docs/fuzzing.md.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
INPUT_SECONDS = 25  # for one input, under sanitizers, on a busy machine
MEMORY_MB = 1024
# Bytes of an input. Frames are long enough for what is received straight into its place.
MAX_LEN = 4096
MAX_LEN_FRAMES = 20000
# How lib/afl_mutator.c is to read an input: settings, masked, compressed.
FORMATS = {"frames_server": "8 1 0", "frames_client": "8 0 0", "frames_deflate_server": "8 1 1",
           "frames_deflate_client": "8 0 1", "frames_wslay": "2 1 0", "stream_read": "3 1 0"}


def fixed_addresses():
    """The sanitizers of clang 14 cannot map their shadow under every kernel's randomisation."""
    return [shutil.which("setarch"), "-R"] if shutil.which("setarch") else []


def max_len(name):
    return MAX_LEN_FRAMES if name in FORMATS else MAX_LEN


def limits(name, build):
    return [f"-max_len={max_len(name)}", f"-timeout={INPUT_SECONDS}", f"-rss_limit_mb={MEMORY_MB}",
            f"-artifact_prefix={build}/crashes/{name}-", "-print_final_stats=1"]


def dictionary(name, option):
    return [option + str(HERE / f"{name}.dict")] if (HERE / f"{name}.dict").exists() else []


def run(line, log, env=None):
    """The exit code and the text; everything is in the log too."""
    with open(log, "wb") as file:
        done = subprocess.run(line, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, check=False,
                              env={**os.environ, **(env or {})})
    return done.returncode, log.read_text(encoding="utf-8", errors="replace")


def last(pattern, text):
    found = re.findall(pattern, text, re.MULTILINE)
    return int(found[-1]) if found else 0


def verdict(good, name, what, text):
    print(f"{'ok' if good else 'FAILED':6} {name:22} {what}", flush=True)
    if not good:
        print("\n".join("    " + line[:400] for line in text.splitlines()[-40:]), flush=True)
    return good


def replay(name, build, _seconds, _seed):
    """Every committed input once."""
    corpus = HERE / "corpus" / name
    inputs = len(list(corpus.iterdir()))
    line = fixed_addresses() + [str(build / "tests" / "fuzz" / name), "-runs=0", *limits(name, build), str(corpus)]
    code, text = run(line, build / f"{name}.replay.log")
    return verdict(code == 0 and inputs > 0, name, f"{inputs} committed inputs", text)


def fuzz(name, build, seconds, seed):
    found = build / "corpus" / name
    found.mkdir(parents=True, exist_ok=True)
    line = fixed_addresses() + [str(build / "tests" / "fuzz" / name), f"-max_total_time={seconds}",
                                f"-seed={seed}", *limits(name, build), *dictionary(name, "-dict="), str(found),
                                str(HERE / "corpus" / name)]
    code, text = run(line, build / f"{name}.log")
    runs = last(r"^stat::number_of_executed_units: (\d+)", text)
    return verdict(code == 0 and runs > 0, name,
                   f"{runs} inputs, {last(r'^stat::average_exec_per_sec: +([0-9]+)', text)}/s, "
                   f"{last(r' cov: ([0-9]+)', text)} places reached", text)


def merge(name, build, _seconds, _seed):
    """The committed corpus becomes what reaches all that is reached by it and by what was found, with few inputs. What
    has a name stays: it has been a fault once."""
    corpus, fresh = HERE / "corpus" / name, build / "merged" / name
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    (build / "corpus" / name).mkdir(parents=True, exist_ok=True)
    line = fixed_addresses() + [str(build / "tests" / "fuzz" / name), "-merge=1", "-use_counters=0",
                                *limits(name, build), str(fresh), str(corpus), str(build / "corpus" / name)]
    code, text = run(line, build / f"{name}.merge.log")
    if code == 0:
        for path in corpus.iterdir():
            if not re.fullmatch(r"[0-9a-f]{40}", path.name):
                shutil.copy(path, fresh)
        shutil.rmtree(corpus)
        shutil.copytree(fresh, corpus)
    files = list(corpus.iterdir())
    return verdict(code == 0, name, f"{len(files)} inputs, {sum(f.stat().st_size for f in files)} bytes", text)


def fuzz_afl(name, build, seconds, seed):
    out = build / "out" / name
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    env = {"AFL_NO_UI": "1", "AFL_SKIP_CPUFREQ": "1", "AFL_NO_AFFINITY": "1",
           "AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES": "1", "ASAN_OPTIONS": "abort_on_error=1:symbolize=0:detect_leaks=0",
           "UBSAN_OPTIONS": "abort_on_error=1:symbolize=0"}
    if name in FORMATS:
        env |= {"AFL_CUSTOM_MUTATOR_LIBRARY": str(build / "afl_mutator.so"), "TWS_FUZZ_FRAMES": FORMATS[name]}
    line = fixed_addresses() + ["afl-fuzz", "-i", str(HERE / "corpus" / name), "-o", str(out), "-V", str(seconds),
                                "-m", "none", "-t", f"{INPUT_SECONDS * 1000}", "-G", str(max_len(name))]
    line += ["-s", str(seed)] if seed else []
    line += ["-x", str(HERE / f"{name}.dict")] if dictionary(name, "") else []
    code, text = run(line + ["--", str(build / "tests" / "fuzz" / name)], build / f"{name}.log", env)
    stats = out / "default" / "fuzzer_stats"
    known = stats.read_text(encoding="utf-8") if stats.exists() else ""
    crashes = last(r"^saved_crashes +: (\d+)", known) + last(r"^saved_hangs +: (\d+)", known)
    for crash in (out / "default" / "crashes").glob("id*"):
        shutil.copy(crash, build / "crashes" / f"{name}-{crash.name.split(',')[0].replace(':', '-')}")
    runs = last(r"^execs_done +: (\d+)", known)
    return verdict(code == 0 and runs > 0 and crashes == 0, name,
                   f"{runs} inputs, {last(r'^execs_per_sec +: ([0-9]+)', known)}/s, {crashes} crashes or hangs", text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":", maxsplit=1)[0])
    parser.add_argument("--build", required=True, type=pathlib.Path, help="build tree of the fuzzers")
    parser.add_argument("--seconds", default=60, type=int, help="for each of them; 0: only the committed inputs")
    parser.add_argument("--seed", default=0, type=int, help="what mutations follow from; 0: others each time")
    parser.add_argument("--jobs", default=2, type=int, help="how many at once")
    parser.add_argument("--afl", action="store_true", help="with AFL++")
    parser.add_argument("--merge", action="store_true", help="put what was found into the committed corpora")
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    build = args.build.resolve()
    (build / "crashes").mkdir(exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        steps = [replay, fuzz] if args.seconds > 0 else [replay]
        if args.merge or args.afl:
            steps = [merge] if args.merge else [fuzz_afl]
        results = []
        for step in steps:
            results += pool.map(lambda name, do=step: do(name, build, args.seconds, args.seed), args.names)
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed, 0 skipped")
    return 0 if results and all(results) else 1


if __name__ == "__main__":
    os.environ.setdefault("ASAN_OPTIONS", "detect_leaks=1:detect_stack_use_after_return=0")
    sys.exit(main())
