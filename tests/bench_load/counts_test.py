#!/usr/bin/env python3
"""The load generator counts as its servers do, keeps its schedule and finds its addresses."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from kit import Case, echo_peer, HERE, LOAD, load, load_until_steady, PATIENCE, raw_peer, websockets_peer


class CountsTest(Case):
    def test_counts_agree_with_the_websockets_library(self):
        with websockets_peer() as server:
            run = load("-c", 20, "-r", 50, "-d", 2, "--warmup", 0.5, "-s", 300, server.url)
            counts = server.stop()
        self.assert_clean(run, 20)
        self.assertEqual(run.json["messages"]["sent"], counts["messages"])
        self.assertEqual(run.json["messages"]["sent"] * 300, counts["bytes"])
        self.assertEqual(counts["connections"], 20)
        self.assertEqual(counts["close_codes"], {"1000": 20})
        # The schedule: rate x time, for the whole load and for the steady window.
        self.assertEqual(run.json["messages"]["scheduled"], 20 * 50 * 2.5)
        self.assertEqual(run.json["latency_us"]["count"], 20 * 50 * 2)

    def test_counts_agree_with_the_bare_server(self):
        with echo_peer() as server:
            run = load("-c", 50, "--pipeline", 4, "-d", 1, server.url)
            counts = server.stop()
        self.assert_clean(run, 50)
        self.assertEqual(run.json["messages"]["sent"], counts["messages"])

    def test_bytes_are_payload_and_headers(self):
        with echo_peer() as server:
            run = load("-c", 2, "-r", 50, "-d", 1, "--warmup", 0, "-s", 1000, server.url)
        sent = run.json["whole"]["messages_sent"]
        self.assertEqual(run.json["whole"]["bytes_up"], sent * (1000 + 8))
        whole = run.json["whole"]
        self.assertAlmostEqual(whole["mbps_up"], whole["bytes_up"] * 8 / 1e6 / whole["window_s"], places=3)

    def test_every_size(self):
        sizes = [0, 1, 7, 8, 31, 32, 33, 125, 126, 127, 65535, 65536, 300000]
        matching = {0: "order", 7: "order", 8: "sequence", 31: "sequence", 32: "stamp"}
        with websockets_peer() as server:
            for size in sizes:
                for kind in ([], ["--binary"], ["--utf8"]):
                    with self.subTest(size=size, kind=kind):
                        run = load("-c", 2, "-d", 0.3, "--warmup", 0, "-s", size, *kind, server.url)
                        self.assert_clean(run, 2)
                        self.assertEqual(run.json["config"]["matching"],
                                         matching.get(size, run.json["config"]["matching"]))

    def test_large_messages_one_at_a_time(self):
        with echo_peer() as server:
            run = load("-c", 1, "-d", 1, "-s", "16M", server.url)
            counts = server.stop()
        self.assert_clean(run, 1)
        self.assertEqual(run.json["config"]["size"], 16777216)
        self.assertEqual(run.json["messages"]["sent"], counts["messages"])

    def test_text_is_text_and_binary_is_binary(self):
        for kind, name in (([], "text"), (["--utf8"], "text"), (["--binary"], "binary")):
            with self.subTest(kind=kind), raw_peer() as server:
                run = load("-c", 2, "-r", 50, "-d", 0.5, "--warmup", 0, *kind, server.url)
                counts = server.stop()
                self.assert_clean(run)
                self.assertEqual(counts[name], counts["messages"])

    def test_file_is_sent_as_it_is(self):
        body = "grüße 世界 ".encode() * 700
        with tempfile.NamedTemporaryFile() as f, raw_peer() as server:
            f.write(body)
            f.flush()
            run = load("-c", 2, "--pipeline", 3, "-d", 0.5, "--warmup", 0, "-f", f.name, server.url)
            counts = server.stop()
            self.assert_clean(run)
            self.assertEqual(counts["first"], hashlib.sha256(body).hexdigest())
            self.assertEqual(counts["bytes"], run.json["messages"]["sent"] * len(body))

    def test_file_that_is_not_text(self):
        with tempfile.NamedTemporaryFile() as f, raw_peer() as server:
            f.write(b"\xff\xfe\x00")
            f.flush()
            run = load("-f", f.name, "-d", 0.2, server.url)
            self.assertEqual(run.status, 1)
            self.assertIn("not UTF-8", run.err)
            self.assert_clean(load("-f", f.name, "--binary", "-d", 0.2, "--warmup", 0, server.url))

    def test_keys_are_fresh_and_masks_are_not_zero(self):
        with raw_peer() as server:
            self.assert_clean(load("-c", 30, "-d", 0.2, "--warmup", 0, server.url))
            counts = server.stop()
        self.assertEqual(counts["keys"], 30)
        self.assertEqual(counts["zero_masks"], 0)
        with raw_peer() as server:
            self.assert_clean(load("-c", 3, "-r", 20, "-d", 0.5, "--warmup", 0, "--zero-mask", server.url))
            counts = server.stop()
        self.assertEqual(counts["zero_masks"], counts["messages"])


class PaceTest(Case):
    def test_a_pause_of_the_server_shows_in_the_tail(self):
        """200 ms of SIGSTOP in an open loop: messages due meanwhile waited, and are counted with their wait."""
        def pause(_):
            time.sleep(1)
            server.process.send_signal(signal.SIGSTOP)
            time.sleep(0.2)
            server.process.send_signal(signal.SIGCONT)

        with echo_peer() as server:
            run = load_until_steady(pause, "-c", 20, "-r", 100, "-d", 4, server.url)
        self.assertEqual(run.status, 0, run.err)
        self.assertEqual(run.phases, ["drain", "close", "end"])
        r = run.json
        latency = r["latency_us"]
        self.assertEqual(r["messages"]["lost"], 0)
        self.assertEqual(latency["count"], 20 * 100 * 4)
        self.assertGreaterEqual(latency["p999"], 190e3)
        self.assertGreaterEqual(latency["max"], 195e3)
        # A fortieth of the time stood still for 100 ms on average: a closed loop would show 20 late messages.
        self.assertGreaterEqual(latency["p99"], 100e3)

    def test_unanswered_messages_count_with_their_wait(self):
        with raw_peer("silent") as server:
            run = load("-c", 4, "-r", 50, "-d", 1, "--warmup", 0, "--drain", 0.5, server.url)
        latency = run.json["latency_us"]
        self.assertEqual(run.json["messages"]["lost"], 200)
        self.assertEqual((latency["count"], latency["censored"]), (200, 200))
        self.assertGreaterEqual(latency["p50"], 900e3)

    def test_pipeline_is_the_number_in_flight(self):
        with raw_peer("batch", after=8) as server:  # answers only when eight are there
            run = load("-c", 2, "--pipeline", 8, "-d", 0.5, "--warmup", 0, "--drain", 0.2, server.url)
            counts = server.stop()
        self.assertEqual(counts["most_unanswered"], 8)
        self.assertGreater(run.json["messages"]["received"], 16)

    def test_max_inflight_holds_back(self):
        with raw_peer("silent") as server:
            run = load("-c", 3, "-r", 200, "-d", 1, "--warmup", 0, "--drain", 0.1, "--max-inflight", 5, server.url)
        self.assertEqual(run.json["messages"]["sent"], 15)
        self.assertEqual(run.json["messages"]["unsent"], 3 * 200 - 15)
        with raw_peer() as server:
            run = load("-c", 3, "-r", 100, "-d", 1, "--warmup", 0, "--max-inflight", 5, server.url)
        self.assert_clean(run)

    def test_a_drain_ends_with_the_last_reply(self):
        """Also when the generator comes late to its last messages, here by its own standstill over the end."""
        def pause(process):
            time.sleep(0.4)
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.4)
            process.send_signal(signal.SIGCONT)

        with raw_peer() as server:
            run = load_until_steady(pause, "-c", 4, "-r", 100, "-d", 0.6, "--warmup", 0, "--drain", 40, server.url)
        self.assert_clean(run)
        self.assertEqual(run.json["messages"]["sent"], 4 * 60)
        self.assertLess(run.json["elapsed_s"], 30)

    def test_burst(self):
        with raw_peer() as server:
            run = load("-c", 2, "-r", 100, "--burst", 10, "-d", 1, "--warmup", 0, server.url)
        self.assert_clean(run)
        self.assertEqual(run.json["messages"]["sent"], 200)

    def test_connect_rate(self):
        with raw_peer() as server:
            run = load("-c", 21, "--connect-rate", 40, "--connect-only", server.url)
        self.assertEqual(run.status, 0, run.err)
        self.assertGreaterEqual(run.json["connections"]["all_open_s"], 0.5)
        self.assertIsNone(run.json["latency_us"]["p50"])

    def test_connect_only_holds_connections_open(self):
        with raw_peer() as server:
            run = load("-c", 100, "--connect-only", "-d", 1, server.url)
            counts = server.stop()
        self.assertEqual(run.status, 0, run.err)
        self.assertEqual(counts["connections"], 100)
        self.assertEqual(counts["messages"], 0)
        self.assertEqual(run.json["handshake_us"]["count"], 100)
        self.assertGreaterEqual(run.json["steady"]["window_s"], 0.65)

    def test_early_sends_before_all_are_open(self):
        with raw_peer() as server:
            run = load("-c", 10, "--connect-rate", 10, "--early", "-r", 50, "-d", 0.5, "--warmup", 0, server.url)
        self.assert_clean(run)
        self.assertGreater(run.json["messages"]["sent"], 10 * 50 * 0.5 + 100)


class AddressTest(Case):
    def test_several_addresses_take_turns(self):
        with raw_peer() as one, raw_peer() as two:
            run = load("-c", 7, "-r", 20, "-d", 0.5, "--warmup", 0, one.url, two.url)
            counts = one.stop(), two.stop()
        self.assert_clean(run)
        self.assertEqual([u["open"] for u in run.json["urls"]], [4, 3])
        self.assertEqual([u["received"] for u in run.json["urls"]], [c["messages"] for c in counts])

    def test_source_addresses(self):
        with raw_peer() as server:
            self.assert_clean(load("-c", 9, "-d", 0.2, "--warmup", 0, "--source", "127.0.0.2,127.0.0.3,127.0.0.9",
                                   server.url))
            self.assertEqual(server.stop()["addresses"], ["127.0.0.2", "127.0.0.3", "127.0.0.9"])

    def test_next_address_when_ports_run_short(self):
        """Four local ports for each address, twenty connections: five addresses or more are needed."""
        namespace = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
        if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no network namespace to be had")
        with tempfile.TemporaryDirectory() as folder:
            result = os.path.join(folder, "r.json")
            done = subprocess.run([*namespace, sys.executable, os.path.join(HERE, "few_ports.py"), LOAD, result],
                                  capture_output=True, text=True, timeout=PATIENCE, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(result, encoding="utf-8") as f:
                self.assertEqual(json.load(f)["connections"]["open"], 20)
            self.assertGreaterEqual(len(json.loads(done.stdout)["addresses"]), 5)

    def test_second_address_of_a_name(self):
        """localhost may be ::1 first; the server listens on 127.0.0.1 only."""
        with raw_peer() as server:
            self.assert_clean(load("-c", 3, "-d", 0.2, "--warmup", 0, f"ws://localhost:{server.port}/"))


if __name__ == "__main__":
    unittest.main(verbosity=1)
