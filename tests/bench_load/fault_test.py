#!/usr/bin/env python3
"""The load generator against servers that lie, lose, stop and die; and broadcasts."""

import signal
import time
import unittest

from kit import Case, echo_peer, free_port, load, load_until_steady, raw_peer, websockets_peer


def later(action):
    """The same, when some messages have gone by."""
    def wait_and_act(process):
        time.sleep(0.3)
        action(process)
    return wait_and_act


class FaultTest(Case):
    def fault(self, mode, *arguments, **options):
        with raw_peer(mode, **options) as server:
            return load("-c", 3, "-r", 100, "-d", 1, "--warmup", 0, "--drain", 20, *arguments, server.url)

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
                run = self.fault("swallow", "-s", size, "--drain", 2)
                m = run.json["messages"]
                self.assertEqual(m["received"], 270)
                # The last one of each connection may still be thought to be under way.
                self.assertEqual(m["lost"] + m["in_flight"], 30)
                self.assertGreaterEqual(m["lost"], 27)

    def test_messages_that_nobody_waits_for(self):
        run = self.fault("twice")
        self.assertEqual(run.json["errors"], {"unexpected": 30})
        self.assertEqual(run.json["messages"]["received"], 300)

    def test_connections_that_end(self):
        for mode, kind in (("close", "closed_1013"), ("eof", "eof"), ("masked", "protocol"), ("rsv", "protocol")):
            with self.subTest(mode=mode):
                run = self.fault(mode, "-d", 40)
                self.assertEqual(run.status, 1)
                self.assertEqual(run.json["errors"], {kind: 3})
                self.assertEqual(run.json["connections"]["lost"], 3)
                self.assertGreaterEqual(run.json["messages"]["lost"], 3)
                self.assertEqual(run.json["messages"]["received"], 27)
                self.assertLess(run.json["elapsed_s"], 30)
                self.assertIn("every connection was lost", run.err)
                self.assertIn(kind, run.err)

    def test_garbage(self):
        """Random bytes as frames, and random bytes as deflate: every connection ends as a breach of protocol."""
        for mode, arguments in (("garbage", []), ("deflate_garbage", ["--deflate"])):
            with self.subTest(mode=mode), raw_peer(mode) as server:
                run = load("-c", 60, "-r", 100, "-d", 3, "--warmup", 0, "--drain", 0.5, *arguments, server.url)
                self.assertEqual(run.json["connections"]["open"], 60)
                kinds = set(run.json["errors"])
                self.assertIn("protocol", kinds)
                allowed = {"protocol", "mismatch", "unexpected", "reset", "eof"}
                self.assertEqual({k for k in kinds - allowed if not k.startswith("closed_")}, set())
                self.assertEqual(run.status, 0 if run.json["connections"]["lost"] < 60 else 1)

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
            run = load_until_steady(later(lambda _: server.process.kill()), "-c", 10, "-r", 50, "-d", 20, server.url)
        self.assertEqual(run.status, 1)
        self.assertEqual(run.json["connections"]["lost"], 10)
        self.assertGreater(run.json["messages"]["received"], 0)
        self.assertLess(run.json["elapsed_s"], 15)
        self.assertEqual(sum(n for kind, n in run.json["errors"].items() if kind in ("eof", "reset")), 10)
        self.assertGreater(run.json["steady"]["mbps_down"], 0)

    def test_one_server_of_two_killed(self):
        with echo_peer() as one, echo_peer() as two:
            run = load_until_steady(later(lambda _: one.process.kill()), "-c", 10, "-r", 50, "-d", 1.5, one.url,
                                    two.url)
        self.assertEqual(run.status, 0)
        self.assertEqual(run.json["connections"]["lost"], 5)
        self.assertEqual([u["lost"] for u in run.json["urls"]], [5, 0])
        self.assertGreaterEqual(run.json["urls"][1]["received"], 5 * 50 * 1.5)

    def test_interrupted(self):
        for number, name in ((signal.SIGINT, "SIGINT"), (signal.SIGTERM, "SIGTERM")):
            with self.subTest(name), echo_peer() as server:
                run = load_until_steady(later(lambda load_process, n=number: load_process.send_signal(n)),
                                        "-c", 5, "-r", 50, "-d", 60, server.url)
                self.assertEqual(run.status, 0)
                self.assertEqual(run.json["status"], "interrupted")
                self.assertIn(name, run.json["message"])
                self.assertGreater(run.json["messages"]["received"], 0)
                self.assertEqual(run.json["messages"]["lost"], 0)
                self.assertIn("latency", run.out)


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


if __name__ == "__main__":
    unittest.main(verbosity=1)
