#!/usr/bin/env python3
"""What the load generator accepts and what it reports: command line, JSON, table, metrics."""

import json
import os
import re
import resource
import signal
import socket
import stat
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request

from kit import Case, echo_peer, free_port, load, LOAD, load_until_steady, PATIENCE, raw_peer, ROOT


class CommandLineTest(Case):
    def test_mistakes(self):
        url = "ws://127.0.0.1:1/"
        for arguments in ([], ["http://a/"], ["ws://"], ["ws://a:99999/"], ["-c", "0", url], ["-c", "x", url],
                          ["-c", "10x", url], ["-r", "-1", url], ["-r", "nan", url], ["-d", "0", url],
                          ["-s", "-1", url], ["-s", "2G", url], ["-s", "5", "-f", "x", url], ["--pipeline", "0", url],
                          ["-r", "5", "--pipeline", "2", url], ["--burst", "2", url], ["--max-inflight", "2", url],
                          ["--connect-only", "-r", "1", url], ["--binary", "--utf8", url], ["--source", "nowhere", url],
                          ["--label", "1x=2", url], ["--label", "le=2", url], ["--label", "a=1", "--label", "a=2", url],
                          ["--header", "nocolon", url], ["--deflate=nonsense", url],
                          ["--deflate=client_max_window_bits=7", url], ["--mute-percent", "5", url],
                          ["--broadcast", url], ["--broadcast", "-c", "5", "-s", "16", url],
                          ["--broadcast", "-c", "5", "--exclude-sender", url], ["--no-such-option", url],
                          ["--threads", "0", url], ["-c"]):
            with self.subTest(arguments=arguments):
                done = subprocess.run([LOAD, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertEqual(done.stdout, "")
                self.assertRegex(done.stderr, r"load: .{10}")

    def test_help_names_every_option(self):
        text = subprocess.run([LOAD, "--help"], capture_output=True, text=True, check=True).stdout
        with open(os.path.join(ROOT, "bench", "load", "options.c"), encoding="utf-8") as f:
            names = re.findall(r'^    \{"([a-z-]+)", (?:no|required|optional)_argument', f.read(), re.M)
        self.assertGreater(len(names), 35)
        for name in names:
            self.assertIn("--" + name, text)

    def test_no_address_for_the_name(self):
        run = load("-d", 1, "ws://no-such-host.invalid/")
        self.assertEqual(run.status, 1)
        self.assertIn("no-such-host.invalid", run.err)

    def test_json_that_cannot_be_written(self):
        with raw_peer() as server:
            done = subprocess.run([LOAD, "-d", "1", "--json", "/no/such/folder/x.json", server.url],
                                  capture_output=True, text=True, timeout=PATIENCE, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn("/no/such/folder/x.json: No such file", done.stderr)
            self.assertEqual(server.stop()["connections"], 0)  # known before the run

    def test_full_disk(self):
        """The file may not grow: the table is still printed, nothing half-written is left, the status tells."""
        def small():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        with raw_peer() as server, tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([LOAD, "-d", "0.2", "--warmup", "0", "--json", folder + "/x.json", server.url],
                                  capture_output=True, text=True, timeout=PATIENCE, check=False, preexec_fn=small)
            self.assertEqual(done.returncode, 1)
            self.assertIn("File too large", done.stderr)
            self.assertIn("latency", done.stdout)
            self.assertEqual(os.listdir(folder), [])
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([LOAD, "-d", "0.2", "--warmup", "0", server.url], stdout=full,
                                      stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn("No space left", done.stderr)

    def test_json_to_a_device(self):
        """Not a regular file: written to, never replaced."""
        with raw_peer() as server:
            done = subprocess.run([LOAD, "-d", "0.2", "--warmup", "0", "--json", "/dev/full", server.url],
                                  capture_output=True, text=True, timeout=PATIENCE, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn("/dev/full: No space left", done.stderr)
            self.assertTrue(stat.S_ISCHR(os.stat("/dev/full").st_mode))
            done = subprocess.run([LOAD, "-q", "-d", "0.2", "--warmup", "0", "--json", "/dev/stdout", server.url],
                                  capture_output=True, text=True, timeout=PATIENCE, check=True)
            self.assertEqual(json.JSONDecoder().raw_decode(done.stdout)[0]["status"], "ok")

    def test_descriptors(self):
        def limit(soft, hard):
            return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        with raw_peer() as server:
            run = load("-c", 500, "-d", 1, server.url, preexec_fn=limit(100, 200))
            self.assertEqual(run.status, 1)
            self.assertRegex(run.err, "500 connections need .* the limit is 200")
            self.assert_clean(load("-c", 100, "-d", 0.2, "--warmup", 0, server.url, preexec_fn=limit(50, 400)), 100)

    def test_json_on_stdout_alone(self):
        with raw_peer() as server:
            done = subprocess.run([LOAD, "-d", "0.2", "--warmup", "0", "--json", "-", server.url],
                                  capture_output=True, text=True, timeout=PATIENCE, check=True)
        self.assertEqual(json.loads(done.stdout)["status"], "ok")


class ReportTest(Case):
    def documented_keys(self):
        with open(os.path.join(ROOT, "bench", "load", "SCHEMA.md"), encoding="utf-8") as f:
            part = f.read().split("## JSON")[1].split("### Kinds")[0]
        keys = set()
        for row in re.findall(r"^\| (.+?) \|", part, re.M):
            prefix = ""
            for name in re.findall(r"`([^`]+)`", row):
                if name.startswith("."):
                    name = prefix + name
                prefix = name.rsplit(".", 1)[0]
                keys.update(self.expand(name))
        return keys - {"key"}

    def expand(self, name):
        m = re.match(r"(.*?)\{([^}]+)\}(.*)", name)
        if m:
            return {k for part in m.group(2).split(",") for k in self.expand(m.group(1) + part + m.group(3))}
        if name.startswith("*_us."):
            return {h + name[1 + 3:] for h in ("latency_us", "connect_us", "handshake_us", "lag_us")}
        return {name}

    def real_keys(self, value, prefix=""):
        keys = set()
        for name, v in value.items():
            keys.add(prefix + name)
            if isinstance(v, dict) and name not in ("labels", "errors"):
                keys |= self.real_keys(v, prefix + name + ".")
        return keys

    def test_json_and_its_documentation_name_the_same_keys(self):
        with raw_peer() as server:
            run = load("-c", 2, "-r", 50, "-d", 0.5, "--warmup", 0.1, "--label", "server=raw \"x\" \\ü", server.url)
        documented, real = self.documented_keys(), self.real_keys(run.json)
        parents = {k.rsplit(".", 1)[0] for k in real if "." in k}
        self.assertEqual(real - documented - parents, set())
        self.assertEqual(documented - real - {"url", "open", "failed", "lost", "sent", "received"}, set())
        self.assertEqual(run.json["schema"], 1)
        self.assertEqual(run.json["labels"], {"server": "raw \"x\" \\ü"})
        self.assertEqual(set(run.json["urls"][0]), {"url", "open", "failed", "lost", "sent", "received"})
        for name in ("p50", "p90", "p99", "p999", "p9999", "max"):
            self.assertGreater(run.json["latency_us"][name], 0)
        self.assertLessEqual(run.json["start_unix"], run.json["steady"]["start_unix"])
        self.assertLessEqual(run.json["steady"]["end_unix"], run.json["end_unix"])
        self.assertLess(abs(run.json["end_unix"] - time.time()), 60)
        self.assertFalse(run.json["bottleneck"])

    def test_same_keys_when_the_run_failed(self):
        with raw_peer() as server:
            good = load("-c", 1, "-d", 0.2, "--warmup", 0, server.url)
        bad = load("-c", 1, "-d", 0.2, f"ws://127.0.0.1:{free_port()}/")
        self.assertEqual(self.real_keys(good.json), self.real_keys(bad.json))

    def test_own_cpu_agrees_with_the_kernel(self):
        with echo_peer() as server:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            run = load("-c", 20, "-d", 1.5, server.url)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
        mine = run.json["cpu"]["user_s"] + run.json["cpu"]["system_s"]
        kernel = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        self.assertLessEqual(mine, kernel + 0.05)
        self.assertGreaterEqual(mine, 0.9 * kernel - 0.05)

    def test_a_late_generator_says_so(self):
        """The generator itself is stopped for a while: its messages leave late, and it takes the blame."""
        def pause(process):
            time.sleep(0.3)
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.4)
            process.send_signal(signal.SIGCONT)

        with echo_peer() as server:
            run = load_until_steady(pause, "-c", 20, "-r", 100, "-d", 2, "--warmup", 0, server.url)
        r = run.json
        self.assertEqual(r["messages"]["lost"], 0)
        self.assertEqual(r["latency_us"]["count"], 20 * 100 * 2)  # none was left out of the schedule
        self.assertGreaterEqual(r["lag_us"]["max"], 390e3)
        self.assertTrue(r["bottleneck"])
        self.assertIn("late", r["bottleneck_reason"])
        self.assertIn("the generator itself", run.out)

    def test_progress_line(self):
        with raw_peer() as server:
            run = load("-c", 2, "-r", 50, "-d", 2, "--warmup", 0, "--progress", server.url)
            quiet = load("-c", 2, "-r", 50, "-d", 0.2, "--warmup", 0, server.url)
        self.assertRegex(run.err, r"steady .*open 2 .*msg/s .*p99")
        self.assertEqual(quiet.err, "")


class MetricsTest(Case):
    def get(self, url, method="GET"):
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=10) as answer:
            return answer.headers, answer.read().decode()

    def values(self, text):
        return {m.group(1): float(m.group(2)) for m in re.finditer(r"^([^#\s]\S*) (\S+)$", text, re.M)}

    def test_page(self):
        port = free_port()
        base = f"http://127.0.0.1:{port}"
        with raw_peer("corrupt") as server:
            process = subprocess.Popen([LOAD, "-c", "3", "-r", "50", "-d", "30", "--warmup", "0", "--metrics",
                                        f"127.0.0.1:{port}", "--label", "server=raw", "--label", "run=a\"b\\c",
                                        server.url], stdout=subprocess.DEVNULL)
            try:
                text = self.page_with_quantiles(base)
                headers, _ = self.get(base + "/metrics", "HEAD")
                self.assertEqual(headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
                checked = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, capture_output=True,
                                         check=False)
                self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
                self.assertEqual(checked.stderr, "")
                self.check_values(text)
                with self.assertRaises(urllib.error.HTTPError) as caught:
                    self.get(base + "/other")
                self.assertEqual(caught.exception.code, 404)
                with self.assertRaises(urllib.error.HTTPError) as caught:
                    self.get(base + "/metrics", "POST")
                self.assertEqual(caught.exception.code, 405)
                # Clients that say nothing do not hold up the next one.
                silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(10)]
                later = self.get(base + "/metrics")[1]
                for s in silent:
                    s.close()
                sent = 'bench_load_messages_sent_total{server="raw",run="a\\"b\\\\c"}'
                self.assertGreater(self.values(later)[sent], self.values(text)[sent])
            finally:
                process.send_signal(signal.SIGINT)
                self.assertEqual(process.wait(timeout=PATIENCE), 0)

    def page_with_quantiles(self, base):
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                text = self.get(base + "/metrics")[1]
                if 'quantile="0.99"' in text:
                    return text
            except (urllib.error.URLError, ConnectionError):
                pass
            time.sleep(0.1)
        self.fail("no metrics with quantiles")

    def check_values(self, text):
        with open(os.path.join(ROOT, "bench", "load", "SCHEMA.md"), encoding="utf-8") as f:
            names = set(re.findall(r"`(bench_load_[a-z_]+)`", f.read()))
        self.assertEqual(names, set(re.findall(r"^# TYPE (\S+)", text, re.M)))
        v = {re.sub(r'server="raw",run="a\\"b\\\\c",?', "", name): value for name, value in self.values(text).items()}
        self.assertEqual(v['bench_load_connections{state="open"}'], 3)
        self.assertEqual(v['bench_load_phase{phase="steady"}'], 1)
        self.assertGreater(v['bench_load_errors_total{kind="mismatch"}'], 0)
        count = v["bench_load_latency_seconds_count{}"]
        buckets = [value for name, value in v.items() if "_bucket{" in name]
        self.assertEqual(buckets, sorted(buckets))
        self.assertEqual(buckets[-1], count)
        quantiles = [value for name, value in v.items() if 'quantile="' in name]
        self.assertEqual(len(quantiles), 6)
        self.assertEqual(quantiles, sorted(quantiles))

    def test_port_in_use(self):
        with raw_peer() as server:
            run = load("-d", 1, "--metrics", f"127.0.0.1:{server.port}", server.url)
            self.assertEqual(run.status, 1)
            self.assertIn("Address already in use", run.err)
            self.assertEqual(server.stop()["connections"], 0)


if __name__ == "__main__":
    unittest.main(verbosity=1)
