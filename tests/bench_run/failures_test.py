#!/usr/bin/env python3
"""What a run does when something goes wrong: a clear word, what was measured is kept, nothing is left running."""

import os
import shutil
import signal
import socket
import subprocess
import unittest

import harness

LONG = ("--workloads", "W2", "--window", "30")
SHORT = ("--workloads", "W2", "--window", "1")


class Failures(harness.RunnerTest):
    def test_server_killed_in_the_middle(self):
        runner = self.begin(*self.run_arguments(*LONG))
        state = self.wait_for_phase("steady", server="gws")
        os.kill(state["pid"], signal.SIGKILL)
        # The run goes on with the next server, which is killed before its window begins.
        state = harness.wait_for("the second server", lambda: self.state().get("server") == "gorilla"
                                 and self.state().get("pid") and self.state())
        os.kill(state["pid"], signal.SIGKILL)
        out, _ = runner.communicate(timeout=60)
        self.assertEqual(runner.returncode, 1, out)
        self.assertIn("FAILED: server died during the run (killed by SIGKILL)", out)
        results = self.results()
        self.assertTrue(results["complete"])
        self.assertEqual([c["status"] for c in results["cells"]], ["failed", "failed"])
        self.assertEqual([r["rank"] for r in results["rows"]], [None, None])
        self.assert_nothing_left()

    def test_interrupted_run_keeps_what_it_has(self):
        for signum, window in ((signal.SIGTERM, "4"), (signal.SIGINT, "4")):
            with self.subTest(signum.name):
                shutil.rmtree(self.folder, ignore_errors=True)
                runner = self.begin(*self.run_arguments("--workloads", "W2", "--window", window))
                self.wait_for_phase("steady", server="gorilla")
                runner.send_signal(signum)
                out, err = runner.communicate(timeout=60)
                self.assertEqual(runner.returncode, 128 + signum, out + err)
                self.assertIn("stopped: signal", err)
                results = self.results()
                self.assertFalse(results["complete"])
                self.assertEqual([(c["server"], c["status"]) for c in results["cells"]], [("gws", "ok")])
                self.assertIn("cut short", (self.folder / "results.md").read_text(encoding="utf-8"))
                self.assert_nothing_left()

    def test_killed_runner_leaves_nothing(self):
        runner = self.begin(*self.run_arguments(*LONG))
        self.wait_for_phase("steady", server="gws")
        self.assertGreaterEqual(len(harness.marked_processes(self.mark)), 4)
        runner.kill()
        runner.communicate(timeout=30)
        self.assert_nothing_left()
        self.assertFalse(self.results()["complete"])

    def test_second_run_waits_for_nobody(self):
        self.begin(*self.run_arguments(*LONG))
        self.wait_for_phase("steady", server="gws")
        done = self.finish("run", "--run-id", "second", "--peers", "gws", *harness.TINY, *SHORT)
        self.assertEqual(done.returncode, 1)
        self.assertIn("another comparison run is going on", done.stderr)
        self.assertFalse((self.build / "results" / "second").exists())

    def test_port_that_is_taken(self):
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            done = self.finish(*self.run_arguments(*SHORT, "--port", port))
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"FAILED: port {port} is taken by another program", done.stdout)
        self.assert_nothing_left()

    def test_server_that_does_not_start(self):
        done = self.finish(*self.run_arguments(*SHORT, "--server-prefix", "/bin/false"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("FAILED: server ended before it listened (exit status 1)", done.stdout)
        self.assert_nothing_left()

    def test_generator_that_fails(self):
        done = self.finish(*self.run_arguments(*SHORT, "--load-prefix", "/bin/false"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("FAILED: the load left no result (exit status 1)", done.stdout)
        self.assert_nothing_left()

    def test_results_that_cannot_be_written(self):
        done = self.finish(*self.run_arguments(*SHORT, "--results", "/proc/nowhere"))
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"bench: stopped: cannot make /proc/nowhere/test: ")
        self.assert_nothing_left()

    def test_full_disk(self):
        """Results on a file system of 120 KiB, in a mount namespace of its own; it fills while the run goes on."""
        place = self.build / "small"
        place.mkdir()
        self.folder = self.build / "saved" / "test"
        run = self.command(*self.run_arguments("--workloads", "W2 W4", "--window", "1", "--rounds", "40", "--results",
                                               place))
        script = (f"mount -t tmpfs -o size=120k none {place} && {{ \"$@\"; status=$?; cp -r {place} "
                  f"{self.build}/saved; exit $status; }}")
        unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
        done = subprocess.run([*unshare, "sh", "-c", script, "sh", *run], env=self.environment(), capture_output=True,
                              stdin=subprocess.DEVNULL, text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stderr, r"stopped: cannot write .*: No space left on device; what was written before")
        self.assertGreaterEqual(len(self.results()["cells"]), 1)
        self.assertEqual(list(self.folder.rglob("*.part")), [])
        self.assert_nothing_left()


class Top(harness.RunnerTest):
    def test_one_reading_while_a_run_goes_on(self):
        self.begin(*self.run_arguments(*LONG))
        self.wait_for_phase("steady", server="gws")
        done = self.finish("top", "--once")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("W2 round 1  steady", done.stdout)
        line = next(line.split() for line in done.stdout.splitlines() if line.startswith("gws "))
        self.assertEqual(line[4], "20")
        for field in line[1:4] + line[5:]:
            self.assertGreater(float(field.replace(",", "")), 0, line)

    def test_without_a_run_it_says_so(self):
        done = self.finish("top", "--once")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no run is going on", done.stdout)


if __name__ == "__main__":
    unittest.main()
