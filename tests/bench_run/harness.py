"""What the tests of the runner share: a build folder of their own, and the search for processes left behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parent.parent.parent
TOOLS = ROOT / "build" / "bench"
sys.path.insert(0, str(ROOT / "bench"))

MARK = "BENCH_TEST_MARK"
PEERS = ("gws", "gorilla")
TINY = ("--connections", "20", "--warmup", "0.3", "--rounds", "1", "--exporter-port", "0", "--load-port", "0")


def wait_for(what, condition, timeout_s=60.0):
    """The condition's value once it is true; fails the test when it never is."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"waited {timeout_s:.0f} s for {what}")


def marked_processes(mark):
    """Processes that carry the mark in their environment, as (pid, command)."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            environ = Path(f"/proc/{entry}/environ").read_bytes()
            command = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if f"{MARK}={mark}".encode() in environ.split(b"\0"):
            found.append((int(entry), command))
    return found


class RunnerTest(unittest.TestCase):
    """A test with a folder of its own in which the tools are linked, so that it meets no other run."""

    def setUp(self):
        for tool in ("load", "exporter"):
            self.assertTrue(os.access(TOOLS / tool, os.X_OK), f"{tool} is not built: make bench-tools")
        self.mark = uuid.uuid4().hex
        self.build = Path(tempfile.mkdtemp(prefix="bench-test-"))
        self.addCleanup(shutil.rmtree, self.build, ignore_errors=True)
        (TOOLS / "peers").mkdir(parents=True, exist_ok=True)
        for name in ("load", "exporter", "peers"):
            (self.build / name).symlink_to(TOOLS / name)
        self.folder = self.build / "results" / "test"

    def command(self, *arguments):
        """Command line of the runner with this test's folder."""
        return [sys.executable, str(ROOT / "bench" / "run"), "--build", str(self.build), *map(str, arguments)]

    def run_arguments(self, *more):
        """Arguments of a tiny run."""
        return ("run", "--run-id", "test", "--peers", " ".join(PEERS), *TINY, *more)

    def environment(self):
        """The environment with this test's mark."""
        return dict(os.environ, **{MARK: self.mark})

    def finish(self, *arguments, timeout_s=300):
        """Run to the end."""
        return subprocess.run(self.command(*arguments), env=self.environment(), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=timeout_s, check=False)

    def begin(self, *arguments):
        """Start a run that the test will disturb."""
        child = subprocess.Popen(self.command(*arguments), env=self.environment(), stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

        def end():
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
            child.communicate(timeout=60)
        self.addCleanup(end)
        return child

    def state(self):
        """What the runner says it is doing."""
        try:
            return json.loads((self.build / "state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}

    def wait_for_phase(self, phase, **facts):
        """The state once the generator is in that phase."""
        def reached():
            state = self.state()
            good = state.get("phase") == phase and all(state.get(k) == v for k, v in facts.items())
            return state if good else None
        return wait_for(f"phase {phase}", reached)

    def results(self):
        """results.json of the run."""
        return json.loads((self.folder / "results.json").read_text(encoding="utf-8"))

    def assert_nothing_left(self):
        """No process that this test's run started is alive."""
        wait_for("all children to end", lambda: not marked_processes(self.mark), timeout_s=10)
