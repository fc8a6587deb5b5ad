#!/usr/bin/env python3
"""The load generator against servers that count, stop, lie and die.

Needs build/bench/load and build/tests/bench_load/echo_peer (make bench-load-tools). No test asserts a speed.
"""

import hashlib
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.environ.get("TWS_BUILD", os.path.join(ROOT, "build"))
LOAD = os.path.join(BUILD, "bench", "load")
ECHO_PEER = os.path.join(BUILD, "tests", "bench_load", "echo_peer")
PATIENCE = 60


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A server process; `counts` after stop()."""

    def __init__(self, *command, port=None):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("listening"):
            self.kill()
            raise RuntimeError(f"{command[0]} did not start: {line!r}")
        self.port = port or int(line.split()[1])
        self.counts = None

    @property
    def url(self):
        return f"ws://127.0.0.1:{self.port}/connect"

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def stop(self):
        if self.counts is None:
            self.process.terminate()
            text = self.process.communicate(timeout=PATIENCE)[0]
            self.counts = json.loads(text) if text.startswith("{") else {"messages": int(text.split()[1])}
        return self.counts

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()
        self.process.stdout.close()


def raw_peer(mode="echo", **options):
    command = [sys.executable, os.path.join(HERE, "raw_peer.py"), "--mode", mode]
    for name, value in options.items():
        command += ["--" + name, str(value)]
    return Server(*command)


def websockets_peer(*options):
    return Server(sys.executable, os.path.join(HERE, "websockets_peer.py"), *options)


def echo_peer():
    port = free_port()
    return Server(ECHO_PEER, str(port), "2", port=port)


class Run:
    def __init__(self, completed, json_path):
        self.status, self.out, self.err = completed.returncode, completed.stdout, completed.stderr
        self.json = None
        if os.path.exists(json_path):
            with open(json_path, encoding="utf-8") as f:
                self.json = json.load(f)


def load(*arguments, **popen):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "result.json")
        done = subprocess.run([LOAD, "--json", path, *map(str, arguments)], text=True, timeout=PATIENCE,
                              capture_output=True, check=False, **popen)
        return Run(done, path)


def wait_for_steady(events):
    for line in iter(events.readline, ""):
        if json.loads(line)["phase"] == "steady":
            return
    raise RuntimeError("the run ended before its steady window")


def make_certificate(folder):
    """A fresh self-signed certificate for localhost and 127.0.0.1."""
    cert, key = os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                    "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


class Case(unittest.TestCase):
    def assert_clean(self, run, connections=None):
        """A run in which nothing went wrong: every message came back."""
        self.assertEqual(run.status, 0, run.err)
        self.assertEqual(run.json["errors"], {})
        self.assertEqual(run.json["status"], "ok")
        m = run.json["messages"]
        self.assertGreater(m["sent"], 0)
        self.assertEqual(m["received"], m["expected"])
        self.assertEqual((m["lost"], m["unsent"], m["in_flight"]), (0, 0, 0))
        self.assertEqual(run.json["connections"]["lost"], 0)
        if connections is not None:
            self.assertEqual(run.json["connections"]["open"], connections)


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
                        run = load("-c", 2, "-d", 0.1, "--warmup", 0, "-s", size, *kind, server.url)
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
        with echo_peer() as server, tempfile.TemporaryDirectory() as folder:
            fifo, result = os.path.join(folder, "events"), os.path.join(folder, "r.json")
            os.mkfifo(fifo)
            process = subprocess.Popen([LOAD, "-c", "20", "-r", "100", "-d", "4", "--events", fifo, "--json", result,
                                        server.url], stdout=subprocess.DEVNULL)
            with open(fifo, encoding="utf-8") as events:
                wait_for_steady(events)
                time.sleep(1)
                server.process.send_signal(signal.SIGSTOP)
                time.sleep(0.2)
                server.process.send_signal(signal.SIGCONT)
                phases = [json.loads(line)["phase"] for line in events]
            self.assertEqual(process.wait(timeout=PATIENCE), 0)
            self.assertEqual(phases, ["drain", "close", "end"])
            with open(result, encoding="utf-8") as f:
                r = json.load(f)
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
            run = load("-c", 100, "--connect-only", "-d", 0.7, server.url)
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
        """One port in the range: the kernel has none for a second connection from the same address."""
        with raw_peer() as server:
            command = ["unshare", "--net", "sh", "-c", "true"]
            if subprocess.run(command, capture_output=True, check=False).returncode != 0:
                self.fail("this test needs a network namespace (run as root)")
            with tempfile.TemporaryDirectory() as folder:
                result = os.path.join(folder, "r.json")
                inner = (f"ip link set lo up; {sys.executable} {HERE}/raw_peer.py > {folder}/out & peer=$!; "
                         f"while ! grep -q listening {folder}/out; do sleep 0.05; done; "
                         f"port=$(cut -d' ' -f2 {folder}/out); echo '40000 40003' > "
                         "/proc/sys/net/ipv4/ip_local_port_range; "
                         f"{LOAD} -c 20 -d 0.2 --warmup 0 --json {result} ws://127.0.0.1:$port/; rc=$?; "
                         "kill $peer; wait $peer; exit $rc")
                done = subprocess.run(["unshare", "--net", "sh", "-c", inner], capture_output=True, text=True,
                                      timeout=PATIENCE, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                with open(result, encoding="utf-8") as f:
                    self.assertEqual(json.load(f)["connections"]["open"], 20)
                with open(os.path.join(folder, "out"), encoding="utf-8") as f:
                    self.assertGreaterEqual(len(json.loads(f.readlines()[-1])["addresses"]), 5)

    def test_second_address_of_a_name(self):
        """localhost may be ::1 first; the server listens on 127.0.0.1 only."""
        with raw_peer() as server:
            self.assert_clean(load("-c", 3, "-d", 0.2, "--warmup", 0, f"ws://localhost:{server.port}/"))


class FaultTest(Case):
    def fault(self, mode, *arguments, **options):
        with raw_peer(mode, **options) as server:
            return load("-c", 3, "-r", 100, "-d", 1, "--warmup", 0, "--drain", 0.5, *arguments, server.url)

    def test_changed_bodies(self):
        for mode in ("corrupt", "short", "opcode"):
            for size in (1000, 20):
                with self.subTest(mode=mode, size=size):
                    run = self.fault(mode, "-s", size)
                    self.assertEqual(run.json["errors"], {"mismatch": 30})
                    self.assertEqual(run.json["messages"]["lost"], 0)
                    self.assertEqual(run.status, 0)
                    self.assertEqual(self.fault(mode, "-s", size, "--strict").status, 1)

    def test_no_verify_does_not_look_and_says_so(self):
        run = self.fault("corrupt", "--no-verify")
        self.assertEqual(run.json["errors"], {})
        self.assertFalse(run.json["config"]["verify"])
        self.assertIn("NOT compared", run.out)

    def test_order(self):
        for size in (1000, 20):
            with self.subTest(size=size):
                run = self.fault("swap", "-s", size)
                self.assertEqual(run.json["errors"], {"reordered": 150})
                self.assertEqual(run.json["messages"]["received"], 300)

    def test_lost_messages(self):
        for size in (1000, 20):
            with self.subTest(size=size):
                run = self.fault("swallow", "-s", size)
                self.assertEqual(run.json["messages"]["lost"], 30)
                self.assertEqual(run.json["messages"]["received"], 270)

    def test_messages_that_nobody_waits_for(self):
        run = self.fault("twice")
        self.assertEqual(run.json["errors"], {"unexpected": 30})
        self.assertEqual(run.json["messages"]["received"], 300)

    def test_connections_that_end(self):
        for mode, kind in (("close", "closed_1013"), ("eof", "eof"), ("masked", "protocol"), ("rsv", "protocol")):
            with self.subTest(mode=mode):
                run = self.fault(mode)
                self.assertEqual(run.status, 1)
                self.assertEqual(run.json["errors"], {kind: 3})
                self.assertEqual(run.json["connections"]["lost"], 3)
                self.assertEqual(run.json["messages"]["lost"], 3)
                self.assertLess(run.json["elapsed_s"], 0.9)
                self.assertIn("every connection was lost", run.err)
                self.assertIn(kind, run.err)

    def test_fragments_and_pings_are_fine(self):
        for mode in ("fragment", "ping", "slow_tail"):
            with self.subTest(mode=mode), raw_peer(mode) as server:
                run = load("-c", 3, "-r", 50, "-d", 1, "--warmup", 0, server.url)
                counts = server.stop()
                self.assert_clean(run)
                self.assertEqual(counts["pongs"], 0 if mode == "slow_tail" else counts["messages"])

    def test_handshakes_that_fail(self):
        for mode, kind, arguments in (("status", "handshake_status_503", []),
                                      ("bad_accept", "handshake_invalid", []),
                                      ("extension", "handshake_invalid", []),
                                      ("hang", "handshake_timeout", ["--connect-timeout", "0.3"])):
            with self.subTest(mode=mode), raw_peer(mode, code=503) as server:
                run = load("-c", 4, "-d", 1, *arguments, server.url)
                self.assertEqual(run.status, 1)
                self.assertEqual(run.json["errors"], {kind: 4})
                self.assertEqual(run.json["connections"]["failed"], 4)
                self.assertIn("no connection could be opened", run.err)

    def test_server_that_does_not_close(self):
        with raw_peer("deaf_close") as server:
            run = load("-c", 3, "-r", 50, "-d", 0.5, "--warmup", 0, "--close-timeout", 0.3, server.url)
        self.assertEqual(run.status, 0)
        self.assertEqual(run.json["errors"], {"close_timeout": 3})
        self.assertEqual(run.json["connections"]["lost"], 0)

    def test_refused_port(self):
        run = load("-c", 5, "-d", 1, f"ws://127.0.0.1:{free_port()}/")
        self.assertEqual(run.status, 1)
        self.assertEqual(run.json["errors"], {"refused": 5})
        self.assertEqual(run.json["status"], "failed")
        self.assertIn("refused 5", run.err)
        self.assertIn("no connection could be opened", run.json["message"])

    def test_server_killed_in_the_middle(self):
        with echo_peer() as server:
            run = self.with_action(lambda: server.process.kill(), "-c", 10, "-r", 50, "-d", 20, server.url)
        self.assertEqual(run.status, 1)
        self.assertEqual(run.json["connections"]["lost"], 10)
        self.assertGreater(run.json["messages"]["received"], 0)
        self.assertLess(run.json["elapsed_s"], 15)
        self.assertEqual(sum(n for kind, n in run.json["errors"].items() if kind in ("eof", "reset")), 10)
        self.assertGreater(run.json["steady"]["mbps_down"], 0)

    def test_one_server_of_two_killed(self):
        with echo_peer() as one, echo_peer() as two:
            run = self.with_action(lambda: one.process.kill(), "-c", 10, "-r", 50, "-d", 1.5, one.url, two.url)
        self.assertEqual(run.status, 0)
        self.assertEqual(run.json["connections"]["lost"], 5)
        self.assertEqual([u["lost"] for u in run.json["urls"]], [5, 0])
        self.assertGreaterEqual(run.json["urls"][1]["received"], 5 * 50 * 1.5)

    def test_interrupted(self):
        for number, name in ((signal.SIGINT, "SIGINT"), (signal.SIGTERM, "SIGTERM")):
            with self.subTest(name), echo_peer() as server:
                run = self.with_action(None, "-c", 5, "-r", 50, "-d", 60, server.url, signal_number=number)
                self.assertEqual(run.status, 0)
                self.assertEqual(run.json["status"], "interrupted")
                self.assertIn(name, run.json["message"])
                self.assertGreater(run.json["messages"]["received"], 0)
                self.assertEqual(run.json["messages"]["lost"], 0)
                self.assertIn("latency", run.out)

    def with_action(self, action, *arguments, signal_number=None):
        """Runs the generator and does something 0.3 s into the steady window."""
        with tempfile.TemporaryDirectory() as folder:
            fifo, result = os.path.join(folder, "events"), os.path.join(folder, "r.json")
            os.mkfifo(fifo)
            process = subprocess.Popen([LOAD, "--events", fifo, "--json", result, "--warmup", "0.2",
                                        *map(str, arguments)], text=True, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE)
            with open(fifo, encoding="utf-8") as events:
                wait_for_steady(events)
                time.sleep(0.3)
                if action is not None:
                    action()
                if signal_number is not None:
                    process.send_signal(signal_number)
                out, err = process.communicate(timeout=PATIENCE)
            return Run(subprocess.CompletedProcess([], process.returncode, out, err), result)


class DeflateTest(Case):
    def test_against_the_websockets_library(self):
        offers = ["--deflate", "--deflate=", "--deflate=client_max_window_bits=9",
                  "--deflate=server_no_context_takeover;client_no_context_takeover",
                  "--deflate=server_max_window_bits=10; client_max_window_bits"]
        server_settings = ["{}", '{"client_max_window_bits": 10, "server_max_window_bits": 9}',
                           '{"server_no_context_takeover": true, "client_no_context_takeover": true}']
        for settings in server_settings:
            with websockets_peer("--deflate", settings) as server:
                for offer in offers:
                    if "client_max_window_bits\": 10" in settings and "client_max" not in offer:
                        continue  # the library then requires that offer
                    for size in (20, 32, 1000, 100000):
                        with self.subTest(settings=settings, offer=offer, size=size):
                            run = load("-c", 2, "-d", 0.1, "--warmup", 0, "-s", size, offer, server.url)
                            self.assert_clean(run, 2)
                            self.assertEqual(run.json["connections"]["deflate"], 2)

    def test_bytes_are_fewer_and_counts_agree(self):
        with websockets_peer("--deflate", "{}") as server:
            run = load("-c", 4, "-r", 50, "-d", 1, "--warmup", 0, "--deflate", server.url)
            counts = server.stop()
        self.assert_clean(run)
        self.assertEqual(run.json["messages"]["sent"], counts["messages"])
        self.assertEqual(counts["bytes"], counts["messages"] * 1000)
        self.assertLess(run.json["whole"]["mbps_up"], 0.8 * run.json["whole"]["payload_mbps_up"])

    def test_without_comparing(self):
        with websockets_peer("--deflate", "{}") as server:
            run = load("-c", 2, "-r", 50, "-d", 0.5, "--warmup", 0, "--deflate", "--no-verify", server.url)
        self.assert_clean(run)

    def test_server_that_declines(self):
        with websockets_peer() as server:
            run = load("-c", 2, "-r", 50, "-d", 0.5, "--warmup", 0, "--deflate", server.url)
        self.assert_clean(run)
        self.assertEqual(run.json["connections"]["deflate"], 0)


class TlsTest(Case):
    def test_certificates(self):
        with tempfile.TemporaryDirectory() as folder:
            cert, key = make_certificate(folder)
            with websockets_peer("--cert", cert, "--key", key) as server:
                url = f"wss://127.0.0.1:{server.port}/"
                self.assert_clean(load("-c", 5, "-r", 50, "-d", 0.5, "--warmup", 0, "--ca", cert, url), 5)
                by_name = f"wss://localhost:{server.port}/"
                self.assert_clean(load("-c", 2, "-d", 0.2, "--warmup", 0, "--ca", cert, by_name), 2)
                self.assert_clean(load("-c", 2, "-d", 0.2, "--warmup", 0, "--insecure", url), 2)
                refused = load("-c", 3, "-d", 1, url)
                self.assertEqual(refused.status, 1)
                self.assertEqual(refused.json["errors"], {"tls": 3})
                wrong_name = load("-c", 1, "-d", 1, "--ca", cert, f"wss://127.0.0.2:{server.port}/")
                self.assertEqual(wrong_name.status, 1)

    def test_sizes_pipelines_and_deflate_over_tls(self):
        with tempfile.TemporaryDirectory() as folder:
            cert, key = make_certificate(folder)
            with websockets_peer("--cert", cert, "--key", key, "--deflate", "{}") as server:
                url = f"wss://127.0.0.1:{server.port}/"
                for arguments in (["-s", "1000", "--pipeline", "100"], ["-s", "1M"], ["-s", "70000", "--pipeline", "9"],
                                  ["-s", "0"], ["--deflate"], ["--deflate", "-s", "200000", "--binary"]):
                    with self.subTest(arguments=arguments):
                        run = load("-c", 3, "-d", 0.5, "--warmup", 0, "--ca", cert, *arguments, url)
                        self.assert_clean(run, 3)
                        self.assertTrue(run.json["config"]["tls"])

    def test_plain_server_behind_a_tls_address(self):
        with raw_peer() as server:
            run = load("-c", 2, "-d", 1, "--insecure", "--connect-timeout", 2, f"wss://127.0.0.1:{server.port}/")
        self.assertEqual(run.status, 1)
        self.assertEqual(run.json["connections"]["failed"], 2)


class BroadcastTest(Case):
    def test_every_receiver_is_counted(self):
        with raw_peer("broadcast") as server:
            run = load("--broadcast", "-c", 21, "-r", 50, "-d", 1, "--warmup", 0, server.url)
            counts = server.stop()
        self.assert_clean(run, 21)
        m = run.json["messages"]
        self.assertEqual((m["sent"], counts["messages"]), (50, 50))
        self.assertEqual(m["received"], 50 * 21)
        self.assertEqual(run.json["latency_us"]["count"], 50 * 21)

    def test_sender_left_out(self):
        with raw_peer("broadcast_others") as server:
            run = load("--broadcast", "--exclude-sender", "-c", 21, "-r", 50, "-d", 1, "--warmup", 0, server.url)
        self.assert_clean(run)
        self.assertEqual(run.json["messages"]["received"], 50 * 20)

    def test_muted_receivers(self):
        with raw_peer("broadcast") as server:
            run = load("--broadcast", "-c", 21, "--mute-percent", 10, "-r", 50, "-d", 1, "--warmup", 0, server.url)
        self.assert_clean(run)
        self.assertEqual(run.json["config"]["muted"], 2)
        self.assertEqual(run.json["messages"]["received"], 50 * 19)

    def test_several_senders(self):
        with raw_peer("broadcast") as server:
            run = load("--broadcast", "--senders", 3, "-c", 10, "-r", 20, "-d", 1, "--warmup", 0, server.url)
        self.assert_clean(run)
        self.assertEqual(run.json["messages"]["received"], 3 * 20 * 10)

    def test_as_fast_as_they_return(self):
        with websockets_peer("--broadcast") as server:
            run = load("--broadcast", "-c", 10, "-d", 0.5, "--warmup", 0, server.url)
            counts = server.stop()
        self.assert_clean(run)
        self.assertEqual(run.json["messages"]["sent"], counts["messages"])
        self.assertEqual(run.json["messages"]["received"], counts["messages"] * 10)

    def test_deliveries_that_do_not_come(self):
        with raw_peer("echo") as server:  # only the sender gets it
            run = load("--broadcast", "-c", 5, "-r", 50, "-d", 1, "--warmup", 0, "--drain", 0.5, server.url)
        self.assertEqual(run.json["messages"]["lost"], 50 * 4)


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
        with echo_peer() as server, tempfile.TemporaryDirectory() as folder:
            fifo, result = os.path.join(folder, "events"), os.path.join(folder, "r.json")
            os.mkfifo(fifo)
            process = subprocess.Popen([LOAD, "-c", "20", "-r", "100", "-d", "2", "--warmup", "0", "--events", fifo,
                                        "--json", result, server.url], stdout=subprocess.PIPE, text=True)
            with open(fifo, encoding="utf-8") as events:
                wait_for_steady(events)
                time.sleep(0.3)
                process.send_signal(signal.SIGSTOP)
                time.sleep(0.4)
                process.send_signal(signal.SIGCONT)
                out = process.communicate(timeout=PATIENCE)[0]
            with open(result, encoding="utf-8") as f:
                r = json.load(f)
        self.assertEqual(r["messages"]["lost"], 0)
        self.assertEqual(r["latency_us"]["count"], 20 * 100 * 2)  # none was left out of the schedule
        self.assertGreaterEqual(r["lag_us"]["max"], 390e3)
        self.assertTrue(r["bottleneck"])
        self.assertIn("late", r["bottleneck_reason"])
        self.assertIn("the generator itself", out)

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
