#!/usr/bin/env python3
"""Runs test programs, several at once when told, and counts their single test cases.

C programs speak TAP (cmocka does when asked by its environment); Python drivers speak TAP or are unittest
programs. PROGRAM@light runs it with TWS_TEST_THREADS=light, @tls with TWS_TEST_TLS=1, @tls-light with both. A program
that ends badly, runs no case, runs fewer cases than it announced, outlives its time limit or leaves a process behind
counts as failed, whatever it printed. The last line is always "N passed, N failed, N skipped".

With --jobs, programs run side by side, those that --alone names by themselves and first. What they print comes in the
order of the arguments, each program's when it is over. Each has a process group of its own: what is left in it when
the program has ended was left behind by that program, and by no other.
"""

import argparse
import concurrent.futures
import ctypes
import glob
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time

TAP_RESULT = re.compile(r"^(not )?ok +\d+\b")
TAP_PLAN = re.compile(r"^1\.\.(\d+)\s*$")
UNITTEST_RAN = re.compile(r"^Ran (\d+) tests? in ")
UNITTEST_VERDICT = re.compile(r"^(?:OK|FAILED)(?: \((.*)\))?$")
ADDR_NO_RANDOMIZE = 0x0040000


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True, help="build tree; logs go to its test-logs/")
    parser.add_argument("--name", default="test", help="name of the suite")
    parser.add_argument("--timeout", type=float, default=180, help="seconds for one program")
    parser.add_argument("--under", type=shlex.split, default=[], metavar="COMMAND", help="what runs C programs: Valgrind")
    parser.add_argument("--jobs", type=int, default=1, help="programs at once; 0: twice the cores")
    parser.add_argument("--alone", default="", metavar="NAME,...",
                        help="programs with one of these in their name run by themselves")
    parser.add_argument("programs", nargs="*")
    args = parser.parse_args()
    args.jobs = args.jobs or 2 * (os.cpu_count() or 1)
    return args


def environment(build, kinds):
    """The sanitizers' settings come first, so that the user's own can override them."""
    env = dict(os.environ)
    env["TWS_TEST_THREADS"] = "light" if "light" in kinds else "kernel"
    env["TWS_TEST_TLS"] = "1" if "tls" in kinds else ""
    env["CMOCKA_MESSAGE_OUTPUT"] = "TAP"
    env["TWS_BUILD"] = os.path.abspath(build)
    env["PYTHONDONTWRITEBYTECODE"] = env["PYTHONFAULTHANDLER"] = "1"
    # Browsers keep crash reports and caches there whatever their profile directory is.
    env["XDG_CONFIG_HOME"] = env["XDG_CACHE_HOME"] = os.path.join(env["TWS_BUILD"], "test-home")
    for name, value in (
        ("ASAN_OPTIONS", "detect_leaks=1:strict_string_checks=1:check_initialization_order=1"
         # OpenSSL frees its buffers with each record: tests that watch memory would see them all kept back.
         + (":quarantine_size_mb=16" if "tls" in kinds else "")),
        ("UBSAN_OPTIONS", "print_stacktrace=1:halt_on_error=1"),
        ("TSAN_OPTIONS", "second_deadlock_stack=1:history_size=4"),
    ):
        given = env.get(name)
        env[name] = value + ":" + given if given else value
    return env


def prepare_children():
    """Fixed addresses: the sanitizers of gcc 12 and clang 14 cannot map their shadow under every kernel's
    randomisation. Where a sandbox forbids it, programs start as they are. Children inherit both settings."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    libc = ctypes.CDLL(None)
    persona = libc.personality(0xFFFFFFFF)
    if persona >= 0:
        libc.personality(persona | ADDR_NO_RANDOMIZE)


class Count:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.notes = []

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def total(self):
        return self.passed + self.failed + self.skipped

    def fail(self, note):
        self.failed += 1
        self.notes.append(note)

    def line(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def count_unittest(lines, count):
    """Reads the summary of a unittest program; False when there is none."""
    ran = None
    for line in lines:
        match = UNITTEST_RAN.match(line)
        if match:
            ran = int(match.group(1))
            continue
        match = UNITTEST_VERDICT.match(line)
        if match and ran is not None:
            parts = dict(p.split("=") for p in (match.group(1) or "").split(", ") if "=" in p)
            bad = sum(int(parts.get(k, 0)) for k in ("failures", "errors", "unexpected successes"))
            skipped = int(parts.get("skipped", 0))
            count.failed += bad
            count.skipped += skipped
            count.passed += max(0, ran - bad - skipped)
            ran = None
    if ran is not None:
        count.fail("unittest printed no verdict")
    return count.total() > 0


def count_tap(lines, count):
    planned = 0
    for line in lines:
        plan = TAP_PLAN.match(line)
        if plan:
            planned += int(plan.group(1))
            continue
        result = TAP_RESULT.match(line)
        if not result:
            continue
        if re.search(r"# *SKIP", line, re.IGNORECASE):
            count.skipped += 1
            count.notes.append("skipped: " + line.split("SKIP", 1)[-1].strip())
        elif result.group(1):
            count.failed += 1
        else:
            count.passed += 1
    for _ in range(planned - count.total()):
        count.fail("a planned case never reported")


class Running:
    """The programs that run, so that they can be ended together with this one."""

    def __init__(self):
        self.lock = threading.Lock()
        self.children = set()
        self.over = False

    def start(self, command, **how):
        with self.lock:
            if self.over:
                raise KeyboardInterrupt
            child = subprocess.Popen(command, **how)
            self.children.add(child)
            return child

    def ended(self, child):
        with self.lock:
            self.children.discard(child)

    def end_all(self):
        with self.lock:
            self.over = True
            for child in self.children:
                try:
                    os.killpg(child.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass


RUNNING = Running()


def run(program, log_path, env, timeout, under):
    """Runs one program in a session of its own; returns (status or None on time-out, left something behind)."""
    command = [sys.executable, program] if program.endswith(".py") else [*under, os.path.abspath(program)]
    with open(log_path, "wb") as log:
        child = RUNNING.start(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                              env=env, start_new_session=True)
        try:
            status = child.wait(timeout=timeout)
        except subprocess.TimeoutExpired:
            status = None
            show_threads(child, program, log)
        finally:
            left = end_group(child)
            RUNNING.ended(child)
    return status, left


def show_threads(child, program, log):
    """Where every thread stood when the time was over: Python tells by itself, C as far as gdb is here to tell."""
    log.write(b"\nstill running; its threads:\n")
    log.flush()
    try:
        if program.endswith(".py"):
            child.send_signal(signal.SIGABRT)
            child.wait(10)
        elif shutil.which("gdb"):
            subprocess.run(["gdb", "-q", "-batch", "-p", str(child.pid), "-ex", "thread apply all bt 12"],
                           stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.DEVNULL, timeout=60)
    except subprocess.TimeoutExpired:
        pass


def group_lives(number):
    """True when a process of the group runs. Those that have ended and wait for an idle init to notice do not count."""
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path, encoding="utf-8", errors="replace") as f:
                state, _, group = f.read().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(group) == number and state not in "ZX":
            return True
    return False


def end_group(child):
    """Ends whatever is left of the program's process group; True when there was something."""
    running = child.poll() is None
    left = group_lives(child.pid)
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()
    return left and not running


def judge(program, log_path, env, timeout, under):
    count = Count()
    status, left = run(program, log_path, env, timeout, under)
    with open(log_path, encoding="utf-8", errors="replace") as log:
        lines = log.read().splitlines()
    if not (program.endswith(".py") and count_unittest(lines, count)):
        count_tap(lines, count)
    if status is None:
        count.fail(f"still running after {timeout:.0f} s")
    elif status != 0 and count.failed == 0:
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        count.fail(f"ended with {how}")
    elif count.total() == 0:
        count.fail("ran no test case")
    if left:
        count.fail("left a process behind")
    return count, lines


def short_name(program):
    parts = os.path.splitext(program)[0].split(os.sep)
    return os.sep.join(parts[parts.index("tests") + 1:]) if "tests" in parts else program


def show_failure(name, count, lines):
    for note in count.notes:
        print(f"       {note}")
    shown = lines[-200:]
    if len(shown) < len(lines):
        print(f"       ({len(lines) - len(shown)} earlier lines are in the log)")
    for line in shown:
        print(f"    | {line}")


class Suite:
    """The programs with their names, how they are run, and what came of them."""

    def __init__(self, args):
        self.args = args
        self.logs = os.path.join(args.build, "test-logs")
        self.total = Count()
        self.failed = []

    def name(self, asked):
        program, _, kind = asked.partition("@")
        return short_name(program) + ("@" + kind if kind else "")

    def alone(self, asked):
        return any(word in self.name(asked) for word in self.args.alone.split(",") if word)

    def run(self, asked):
        """(count, lines, seconds) of one program."""
        program, _, kind = asked.partition("@")
        log_path = os.path.join(self.logs, f"{self.args.name}-{self.name(asked).replace(os.sep, '-')}.log")
        began = time.monotonic()
        env = environment(self.args.build, kind.split("-"))
        count, lines = judge(program, log_path, env, self.args.timeout, self.args.under)
        return count, lines, time.monotonic() - began

    def show(self, asked, result):
        count, lines, seconds = result
        self.total.add(count)
        print(f"{'FAIL' if count.failed else 'ok':<6} {self.name(asked):<40} {count.line()}  ({seconds:.1f} s)")
        if count.failed:
            self.failed.append(self.name(asked))
            show_failure(self.name(asked), count, lines)
        else:
            for note in count.notes:
                print(f"       {note}")
        sys.stdout.flush()

    def run_all(self):
        os.makedirs(self.logs, exist_ok=True)
        side_by_side = [p for p in self.args.programs if not (self.args.jobs > 1 and self.alone(p))]
        for asked in self.args.programs:
            if asked not in side_by_side:
                self.show(asked, self.run(asked))
        pool = concurrent.futures.ThreadPoolExecutor(self.args.jobs)
        try:
            for asked, result in zip(side_by_side, pool.map(self.run, side_by_side)):
                self.show(asked, result)
        except BaseException:
            RUNNING.end_all()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def main():
    args = arguments()
    if not args.programs:
        print("no test program matches", file=sys.stderr)
        print("0 passed, 1 failed, 0 skipped")
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    prepare_children()
    suite = Suite(args)
    suite.run_all()
    if suite.failed:
        print("failed: " + " ".join(suite.failed))
    print(suite.total.line())
    strict = os.environ.get("CI", "") not in ("", "0", "false")
    if strict and suite.total.skipped:
        print("a skipped test fails here, as CI is set", file=sys.stderr)
        return 1
    return 1 if suite.total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
