"""Opening handshakes that servers have got wrong: each method replays the bytes of one handed case."""


from _rawclient import BINARY, TEXT, Frame, close_frame, frame, request
from _server import ServerCase, main

HI = bytes.fromhex("818237fa213d5f93")
UNFINISHED = b"GET / HTTP/1.1\r\nHost: x\r\nX-a:"


class Handshake(ServerCase):
    def assert_upgraded(self, *more, **parts):
        """101 with neither subprotocol nor extension, and a message comes back."""
        with self.server.client() as client:
            response = client.upgrade(*more, **parts)
            self.assertEqual(response.all("Sec-WebSocket-Protocol"), [])
            self.assertEqual(response.all("Sec-WebSocket-Extensions"), [])
            client.send(HI)
            self.assert_echoes(client, TEXT, b"hi")

    def test_B001_connection_is_a_list(self):
        self.assert_upgraded(connection="keep-alive, Upgrade")

    def test_B003_list_without_blanks_and_with_empty_elements(self):
        self.assert_upgraded(connection="Upgrade,Keep-Alive")
        self.assert_upgraded(connection=",, upgrade")

    def test_B005_values_in_mixed_case(self):
        self.assert_upgraded(upgrade="WebSocket", connection="uPGRADE")

    def test_B007_connection_without_the_token(self):
        for connection in ("keep-alive", "upgrader", None):
            with self.subTest(connection=connection):
                response = self.assert_status(426, connection=connection)
                self.assertEqual(response.one("Upgrade"), "websocket")
                self.assertIn(b"Connection header", response.body)

    def test_B009_two_hosts(self):
        with self.server.client() as client:
            client.send(request(client.host).replace(
                b"\r\nUpgrade", b"\r\nHost: other.example\r\nUpgrade", 1))
            self.assertEqual(client.response().status, 400)
            self.assertEqual(client.frames(), [])

    def test_B011_post(self):
        response = self.assert_status(405, "Content-Length: 0", first="POST / HTTP/1.1")
        self.assertEqual(response.one("Allow"), "GET, HEAD")

    def test_B013_key_of_another_length_or_not_base64(self):
        for key in ("MDEyMzQ1Njc4OWFiY2RlZjEy", "A" * 4000, "dGhlIHN!bXBsZSBub25jZQ=="):
            with self.subTest(key=key[:30]):
                self.assert_status(400, key=key)

    def test_B015_key_twice(self):
        with self.server.client() as client:
            client.send(request(client.host).replace(
                b"\r\nSec-WebSocket-Version",
                b"\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version", 1))
            self.assertEqual(client.response().status, 400)
            self.assertEqual(client.frames(), [])

    def test_B017_no_version(self):
        self.assert_status(400, version=None)

    def test_B019_request_in_small_segments(self):
        whole = request(self.server.address)
        for last in (4, 1):  # before the end of the last header, and inside CR LF CR LF
            with self.subTest(last=last), self.server.client() as client:
                cuts = [0, 2, whole.index(b"Sec-") + 3, whole.index(b"HNhb"), len(whole) - last,
                        len(whole)]
                client.send(*(whole[a:b] for a, b in zip(cuts, cuts[1:])))
                client.response().check_switch()
                client.send(HI)
                self.assert_echoes(client, TEXT, b"hi")

    def test_B021_two_thousand_header_lines(self):
        response = self.assert_status(431, *(f"H{n:04}: x" for n in range(2000)))
        self.assertEqual(response.one("Connection").lower(), "close")

    def test_B025_blank_before_the_colon(self):
        self.assert_status(400, "Sec-WebSocket-Version : 13", version=None)

    def test_B027_body_that_looks_like_a_frame(self):
        body = frame(TEXT, b"SMUGGLED")
        with self.server.client() as client:
            client.send(request(client.host, f"Content-Length: {len(body)}") + body,
                        bytes.fromhex("818437fa213d65bf6071"))
            response = client.response()
            self.assertEqual(response.status, 400)
            self.assertIn(b"body", response.body)
            self.assertEqual(client.data, b"")
            self.assertEqual(client.frames(), [])

    def test_B029_no_subprotocol_without_an_offer(self):
        self.assert_upgraded()

    def test_B031_odd_extension_lists(self):
        for value in ("constructor", "__proto__; a=1", ",,,"):
            with self.subTest(value=value):  # well formed, and unknown
                self.assert_upgraded(f"Sec-WebSocket-Extensions: {value}")
        for value in (";;;", "permessage-deflate; =8", 'permessage-deflate; a="',
                      ", ".join(f"x-e{n}; p={n}" for n in range(200)),
                      "".join(f"x-e{n}; p={n}," for n in range(200))):
            with self.subTest(value=value[:30]):  # malformed, and more than is looked at
                self.assert_status(400, f"Sec-WebSocket-Extensions: {value}")

    def test_B033_control_characters_in_a_value(self):
        for line in ("Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits=\x0f",
                     "X-Nul: a\0b"):
            with self.subTest(line=line):
                self.assert_status(400, line)

    def test_B035_plain_get(self):
        with self.server.client() as client:
            client.send(f"GET / HTTP/1.1\r\nHost: {client.host}\r\n\r\n".encode())
            response = client.response()
            self.assertEqual((response.status, response.one("Upgrade")), (426, "websocket"))
            self.assertEqual(client.frames(), [])

    def test_B090_unknown_parameters_decline_an_offer(self):
        for offer in ("x_unknown", "foo=bar; client_max_window_bits"):
            with self.subTest(offer=offer):
                self.assert_upgraded(f"Sec-WebSocket-Extensions: permessage-deflate; {offer}")

    def test_B092_at_most_one_valid_answer_to_several_offers(self):
        for offers in ("permessage-deflate; server_max_window_bits=7, permessage-deflate",
                       "x-unknown; a=1, permessage-deflate"):
            with self.subTest(offers=offers), self.server.client() as client:
                response = client.upgrade(f"Sec-WebSocket-Extensions: {offers}")
                answers = response.all("Sec-WebSocket-Extensions")
                self.assertIn(answers, ([], ["permessage-deflate"]))
                client.echo(b"hi")

    def test_B110_no_compression_without_an_offer(self):
        with self.server.client() as client:
            self.assertEqual(client.upgrade().all("Sec-WebSocket-Extensions"), [])
            client.echo(b"compressible " * 300)  # echo() is strict about the reserved bits

    def test_frames_right_behind_the_request(self):
        with self.server.client() as client:
            client.send(request(client.host) + HI + frame(BINARY, b"x" * 5000) + close_frame(1000))
            client.response().check_switch()
            self.assert_echoes(client, TEXT, b"hi")
            self.assert_closed_with(client, 1000, before=[Frame(BINARY, b"x" * 5000)])


class Unfinished(ServerCase):
    OPTIONS = ("--handshake-timeout", "3000")

    def test_B023_unfinished_handshakes_hold_nobody_up(self):
        stuck = [self.server.client() for _ in range(20)]
        for client in stuck:
            self.addCleanup(client.close)
            client.send(UNFINISHED)
        with self.server.open() as client:
            client.send(bytes.fromhex("818737fa213d43925352429d49"))
            self.assert_echoes(client, TEXT, b"through")
            for other in stuck:  # they are all still hanging
                self.assertTrue(other.quiet())
            for other in stuck:
                self.assertEqual(other.frames(), [])  # cut at the deadline, with nothing said
            client.echo(b"and again")


class Origins(ServerCase):
    NAME = "chat"  # same origin only, unlike echo

    def check_alive(self):
        self.assertIsNone(self.server.process.poll())

    def ask(self, origin):
        with self.server.client() as client:
            client.send(request("Example.com:8080", f"Origin: {origin}", first="GET /echo HTTP/1.1"))
            return client.response()

    def test_B136_same_origin_is_scheme_host_and_port(self):
        self.ask("http://example.COM:8080").check_switch()
        for origin in ("https://example.com:8080", "http://example.com", "null",
                       "http://exam\u212ale.com:8080".encode().decode("latin-1"),
                       "http://exam\u212ale.com".encode().decode("latin-1")):
            with self.subTest(origin=origin):
                response = self.ask(origin)
                self.assertEqual(response.status, 403)
                self.assertIn(b"Origin", response.body)


if __name__ == "__main__":
    main()
