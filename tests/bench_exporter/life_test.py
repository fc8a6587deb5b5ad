#!/usr/bin/env python3
"""Processes that come and go."""
import os
import signal
import subprocess
import tempfile
import time
import unittest

from kit import Case, EXPORTER, Exporter, Helper, PATIENCE_S, servers, value, wait_until


class Folder:
    """A folder with files that change in one step."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, text):
        with open(self.path(name + ".new"), "w", encoding="utf-8") as f:
            f.write(text)
        os.replace(self.path(name + ".new"), self.path(name))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.folder.cleanup()


class Life(Case):
    def test_series_end_with_the_process(self):
        with Helper() as helper, Helper() as other, Exporter(
                "--proc", f"server=gone,pid={helper.pid},run=r", "--proc", f"server=stays,pid={other.pid}") as exporter:
            self.assertEqual(servers(exporter.scrape()), {"gone", "stays"})
            helper.end()
            text = exporter.text()
            self.assertNotIn("gone", text)
            self.assertNotIn("bench_run_active", text)
            self.assertIn('process_threads{server="stays"} 1', text)

    def test_a_zombie_has_ended(self):
        with Helper() as helper, Exporter("--proc", f"server=s,pid={helper.pid}") as exporter:
            self.assertEqual(servers(exporter.scrape()), {"s"})
            os.kill(helper.pid, signal.SIGKILL)  # and nobody waits for it
            wait_until(lambda: not servers(exporter.scrape()), "a zombie is no server")
            with open(f"/proc/{helper.pid}/stat", encoding="ascii") as f:
                self.assertIn(") Z ", f.read())

    def test_procs_file(self):
        with Folder() as folder, Helper() as one, Helper() as two, \
                Exporter("--procs-file", folder.path("procs"), "--run", "default") as exporter:
            self.assertEqual(servers(exporter.scrape()), set(), "a file that is not there names nobody")
            folder.write("procs", f"# a comment\n\nserver=one,pid={one.pid}\n")
            samples = exporter.scrape()
            self.assertEqual(value(samples, "bench_run_active", server="one", run="default"), 1)
            folder.write("procs", f"server=two,pid={two.pid},run=r2\r\nserver=one,pid={one.pid}\n")
            samples = exporter.scrape()
            self.assertEqual(servers(samples), {"one", "two"})
            self.assertEqual(value(samples, "bench_run_active", server="two", run="r2"), 1)
            folder.write("procs", f"server=one,pid={two.pid}\n")
            self.assertEqual(value(exporter.scrape(), "process_start_time_seconds", server="one"),
                             value(samples, "process_start_time_seconds", server="two"))
            folder.write("procs", f"server=one,pid={two.pid}\nnonsense\nserver=x,pid=-1\nserver=one,pid={one.pid}\n")
            samples = exporter.scrape()
            self.assertEqual(servers(samples), {"one"})
            self.assertEqual(value(samples, "bench_exporter_bad_lines"), 3)
            exporter.scrape()
            os.unlink(folder.path("procs"))
            samples = exporter.scrape()
            self.assertEqual(servers(samples), set())
            self.assertEqual(value(samples, "bench_exporter_bad_lines"), 0)
            status, errors = exporter.end()
            self.assertEqual(status, 0)
            self.assertEqual([line.split(":")[2] for line in errors.splitlines() if "procs:" in line],
                             ["2", "3", "4"], "each fault once, with its line")

    def test_procs_file_leaves_the_command_line_alone(self):
        with Folder() as folder, Helper() as one, Helper() as two, Exporter(
                "--procs-file", folder.path("procs"), "--proc", f"server=fixed,pid={one.pid}") as exporter:
            folder.write("procs", f"server=fixed,pid={two.pid}\nserver=two,pid={two.pid}\n")
            samples = exporter.scrape()
            self.assertEqual(servers(samples), {"fixed", "two"})
            self.assertEqual(value(samples, "bench_exporter_bad_lines"), 1)
            folder.write("procs", "")
            self.assertEqual(servers(exporter.scrape()), {"fixed"})

    def test_pidfile(self):
        with Folder() as folder, Exporter("--proc", f"server=s,pidfile={folder.path('pid')}") as exporter:
            self.assertEqual(servers(exporter.scrape()), set())
            folder.write("pid", "not a number\n")
            self.assertEqual(servers(exporter.scrape()), set())
            with Helper(idle=3) as first:
                folder.write("pid", f"{first.pid}\n")
                self.assertEqual(value(exporter.scrape(), "process_threads", server="s"), 4)
                with Helper(idle=5) as second:
                    folder.write("pid", f"{second.pid}")
                    self.assertEqual(value(exporter.scrape(), "process_threads", server="s"), 6)
                self.assertEqual(servers(exporter.scrape()), set())

    def test_pidfile_older_than_its_process_is_stale(self):
        with Folder() as folder, Helper() as helper, \
                Exporter("--proc", f"server=s,pidfile={folder.path('pid')}") as exporter:
            folder.write("pid", f"{helper.pid}\n")
            os.utime(folder.path("pid"), (time.time() - 60, time.time() - 60))
            self.assertEqual(servers(exporter.scrape()), set(), "the number has gone to another process")
            os.utime(folder.path("pid"))
            self.assertEqual(servers(exporter.scrape()), {"s"})

    def test_comm(self):
        name = f"tws-{os.getpid()}"[:15]
        with Exporter("--proc", f"server=s,comm={name}") as exporter:
            self.assertEqual(servers(exporter.scrape()), set())
            with Helper(idle=2, name=name) as first:
                self.assertEqual(value(exporter.scrape(), "process_threads", server="s"), 3)
                with Helper(idle=4, name=name) as second:
                    self.assertEqual(value(exporter.scrape(), "process_threads", server="s"), 3,
                                     "stays with the one it has")
                    first.end()
                    exporter.scrape()
                    self.assertEqual(value(exporter.scrape(), "process_threads", server="s"), 5)
                    second.end()
                    self.assertEqual(servers(exporter.scrape()), set())


class Command(Case):
    def run_exporter(self, *options):
        return subprocess.run([EXPORTER, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=PATIENCE_S, check=False)

    def test_usage_errors(self):
        for options in (["--nonsense"], ["extra"], ["--proc"], ["--proc", "server=x"], ["--proc", "pid=1"],
                        ["--proc", "server=x,pid=0"], ["--proc", "server=x,pid=1x"], ["--proc", "server=,pid=1"],
                        ["--proc", "server=x,pid=1,comm=y"], ["--proc", "server=x,pidfile="],
                        ["--proc", "server=x,pid=1,color=red"], ["--proc", "server=x,pid=99999999999999999999"],
                        ["--proc", "server=x,pid=1", "--proc", "server=x,pid=1"],
                        ["--proc", "server=" + "x" * 65 + ",pid=1"], ["--proc", "server=a\nb,pid=1"],
                        ["--run", "r" * 65], ["--run", "caf\u00e9"]):
            result = self.run_exporter(*options)
            self.assertEqual(result.returncode, 2, options)
            self.assertIn("exporter", result.stderr)
            self.assertEqual(result.stdout, "", options)

    def test_cannot_listen(self):
        with Exporter() as exporter:
            taken = self.run_exporter("--listen", f"127.0.0.1:{exporter.port}")
            self.assertEqual(taken.returncode, 1)
            self.assertIn("in use", taken.stderr)
        elsewhere = self.run_exporter("--listen", "192.0.2.1:0")
        self.assertEqual(elsewhere.returncode, 1)
        self.assertIn("--listen 192.0.2.1:0", elsewhere.stderr)
        for address in ("127.0.0.1", "127.0.0.1:", ":80", "127.0.0.1:http", "127.0.0.1:65536", "127.0.0.1:70000000"):
            self.assertEqual(self.run_exporter("--listen", address).returncode, 2, address)

    def test_pid_that_is_nobodys(self):
        helper = Helper()
        helper.end()
        result = self.run_exporter("--listen", "127.0.0.1:0", "--proc", f"server=s,pid={helper.pid}")
        self.assertEqual(result.returncode, 1)
        self.assertIn(f"no process {helper.pid}", result.stderr)

    def test_help_and_signals(self):
        result = self.run_exporter("--help")
        self.assertEqual(result.returncode, 0)
        self.assertIn("--procs-file", result.stdout)
        for number in (signal.SIGTERM, signal.SIGINT):
            with Exporter() as exporter:
                exporter.process.send_signal(number)
                self.assertEqual(exporter.process.wait(PATIENCE_S), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
