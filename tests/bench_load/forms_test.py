#!/usr/bin/env python3
"""permessage-deflate and TLS against the websockets library."""

import tempfile
import unittest

from kit import Case, load, make_certificate, raw_peer, websockets_peer


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
                    for size in (20, 1000, 100000):
                        with self.subTest(settings=settings, offer=offer, size=size):
                            run = load("-c", 2, "-d", 0.3, "--warmup", 0, "-s", size, offer, server.url)
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


if __name__ == "__main__":
    unittest.main(verbosity=1)
