"""The public cases of kind "compression": what WebSocket software got wrong about permessage-deflate."""

import random
import zlib

from _deflate import HELLO, RSV1, DeflateClient, Deflater, Inflater, cut
from _rawclient import BINARY, CLOSE, PING, PONG, TEXT, Frame, close_frame, frame
from _server import ServerCase, main

OFFER = "client_max_window_bits"
WORDS = b"the quick brown fox jumps over the lazy dog and "


class DeflateCase(ServerCase):
    OPTIONS = ("--deflate",)

    def agreed(self, *offers, **options):
        """A client that has agreed on compression."""
        client = DeflateClient(self.server.address, secure=self.server.secure)
        self.addCleanup(client.close)
        self.assertIsNotNone(client.agree(*(offers or (OFFER,)), **options))
        return client

    def declined(self, *offers):
        """A client whose offers the server turned down; it talks uncompressed, which is tried."""
        client = DeflateClient(self.server.address, secure=self.server.secure)
        self.addCleanup(client.close)
        self.assertIsNone(client.agree(*offers))
        client.echo(WORDS * 100)
        return client

    def assert_fails_in(self, client, codes, *chunks):
        """These bytes end the connection with one of the codes, and nothing is delivered."""
        client.send(*chunks)
        [last] = client.frames()
        self.assertEqual(last.opcode, CLOSE)
        self.assertIn(int.from_bytes(last.payload[:2], "big"), codes)


class Negotiation(DeflateCase):
    def test_B084_client_window_without_a_value(self):
        client = self.agreed("client_max_window_bits")  # agree() is strict about the value in the answer
        client.send(frame(TEXT, HELLO, rsv=RSV1))
        self.assertEqual(client.message()[:2], (TEXT, b"Hello"))
        self.assertTrue(client.swap(WORDS * 20))

    def test_B086_answer_stays_within_the_offered_client_window(self):
        for bits in range(8, 16):
            with self.subTest(bits=bits):
                client = self.agreed(f"client_max_window_bits={bits}")
                self.assertLessEqual(client.terms.get("client_max_window_bits", 15), bits)
                client.send(frame(TEXT, HELLO, rsv=RSV1))
                self.assertEqual(client.message()[:2], (TEXT, b"Hello"))

    def test_B088_server_window_is_honoured(self):
        noise = random.Random(88)
        block = bytes(noise.randrange(256) for _ in range(760))
        for bits in range(9, 13):
            with self.subTest(bits=bits):
                client = self.agreed(f"server_max_window_bits={bits}")
                self.assertLessEqual(client.terms["server_max_window_bits"], bits)
                for data in (block * 3, WORDS * 30 + block * 2, WORDS * 200):
                    client.send(frame(BINARY, data))
                    opcode, echoed, compressed = client.message(exact=True)
                    self.assertEqual((opcode, echoed), (BINARY, data))
                self.assertTrue(compressed)  # the last one is worth it with any window

    def test_B088_window_of_8_bits_is_declined(self):
        self.declined("server_max_window_bits=8")

    def test_B090_unknown_parameters_decline_an_offer(self):
        self.declined("x_unknown")
        self.declined("foo=bar; client_max_window_bits")

    def test_B090_faulty_parameters_decline_an_offer(self):
        for offer in ("server_max_window_bits", "server_max_window_bits=7", "server_max_window_bits=16",
                      "server_max_window_bits=09", "client_max_window_bits=7", "client_max_window_bits=x",
                      "server_no_context_takeover=1", "client_no_context_takeover; client_no_context_takeover",
                      "server_max_window_bits=10; server_max_window_bits=10"):
            with self.subTest(offer=offer):
                self.declined(offer)

    def test_B092_several_offers(self):
        client = self.agreed("server_max_window_bits=7", "")
        self.assertNotIn("server_max_window_bits", client.terms)
        client.swap(b"Hello")
        client = self.agreed("x", "server_max_window_bits=8", "server_max_window_bits=\"10\"", "")
        self.assertEqual(client.terms["server_max_window_bits"], 10)
        client.swap(WORDS * 100)
        with self.server.client() as client:
            response = client.upgrade("Sec-WebSocket-Extensions: x-unknown; a=1, permessage-deflate")
            self.assertTrue(response.one("Sec-WebSocket-Extensions").startswith("permessage-deflate"))

    def test_B110_no_compression_without_an_offer(self):
        with self.server.client() as client:
            self.assertEqual(client.upgrade().all("Sec-WebSocket-Extensions"), [])
            client.echo(WORDS * 80)  # echo() is strict about the reserved bits


class Data(DeflateCase):
    def test_B094_RSV1_on_a_continuation(self):
        self.assert_fails_in(self.agreed(), [1002], frame(TEXT, HELLO[:3], fin=False, rsv=RSV1),
                             frame(0, HELLO[3:], rsv=RSV1))
        self.assert_fails_in(self.agreed(), [1002], frame(TEXT, b"He", fin=False), frame(0, b"llo", rsv=RSV1))

    def test_B094_RSV1_on_control_frames(self):
        for opcode in (PING, PONG, CLOSE):
            self.assert_fails_in(self.agreed(), [1002], frame(opcode, HELLO, rsv=RSV1))

    def test_B094_other_reserved_bits(self):
        for rsv in (1, 2, 3, 5, 6, 7):
            self.assert_fails_in(self.agreed(), [1002], frame(TEXT, HELLO, rsv=rsv))

    def test_B096_ping_between_fragments(self):
        client = self.agreed()
        first, last = cut(TEXT, HELLO, [3])
        client.send(first + frame(PING, b"pp") + last + frame(TEXT, b"plain") + frame(TEXT, HELLO, rsv=RSV1))
        self.assertEqual(client.message(), Frame(PONG, b"pp"))
        self.assertEqual([client.message()[1] for _ in range(3)], [b"Hello", b"plain", b"Hello"])

    def test_B098_empty_payload(self):
        client = self.agreed()
        client.send(frame(TEXT, b"", rsv=RSV1) + frame(TEXT, HELLO, rsv=RSV1))
        self.assertEqual([client.message()[1] for _ in range(2)], [b"", b"Hello"])
        client.swap(b"")
        client.send(b"".join(cut(BINARY, b"", [0, 0, 0])))
        self.assertEqual(client.message()[:2], (BINARY, b""))

    def test_B100_not_deflate(self):
        noise = random.Random(100)
        for payload in ("ffffffff", "0600", "07", "ff" * 200, "000500000048656c6c6f", "05e0ffffffffffff"):
            with self.subTest(payload=payload):
                self.assert_fails_in(self.agreed(), [1007], frame(TEXT, bytes.fromhex(payload), rsv=RSV1))
        for _ in range(40):  # all that matters is that the server survives, and sanitizers are content
            client = self.agreed()
            payload = bytes(noise.randrange(256) for _ in range(noise.randrange(1, 400)))
            client.send(frame(BINARY, payload, rsv=RSV1) + close_frame(1000))
            client.frames()

    def test_B102_bomb(self):
        bomb = Deflater(level=9).pack(bytes(32 << 20))
        self.assert_fails_in(self.agreed(), [1009], frame(BINARY, bomb, rsv=RSV1))

    def test_B104_uncompressed_and_incompressible_between_compressed(self):
        noise = random.Random(104).randbytes(1500)
        client = self.agreed()
        for _ in range(3):
            for data, opcode, compress in ((WORDS, TEXT, True), (b"plain", TEXT, False), (noise, BINARY, False),
                                           (noise, BINARY, True), (b"x", TEXT, True), (WORDS * 30, TEXT, True)):
                client.swap(data, opcode, compress)

    def test_B106_one_byte_fragments(self):
        client = self.agreed()
        payload = client.deflater.pack(WORDS)
        frames = cut(TEXT, payload, [1, 0] * (len(payload) - 1))
        client.send(b"".join(frames))
        self.assertEqual(client.message()[1], WORDS)
        client.swap(b"Hello")

    def test_B108_stored_and_superfluous_blocks(self):
        client = self.agreed()
        for payload in ("000500faff48656c6c6f00", "f248cdc9c907000000ffff00", "f248cdc9c90700"):
            client.send(frame(TEXT, bytes.fromhex(payload), rsv=RSV1))
            self.assertEqual(client.message()[1], b"Hello")

    def test_B108_final_blocks(self):
        client = self.agreed()
        for payload in ("f348cdc9c9070000",  # RFC 7692 7.2.3.4
                        "f348cdc9c90700",    # without the byte that completes the tail
                        "f24805000000ffffcac9c90700"):  # two blocks, 7.2.3.5
            client.send(frame(TEXT, bytes.fromhex(payload), rsv=RSV1))
            self.assertEqual(client.message()[1], b"Hello")

    def test_text_is_checked_as_it_inflates(self):
        bad = Deflater().pack(b"good \xc3\x28 bad")
        self.assert_fails_in(self.agreed(), [1007], frame(TEXT, bad, rsv=RSV1))
        cut_off = Deflater().pack("grüße"[:3].encode()[:-1])
        self.assert_fails_in(self.agreed(), [1007], frame(TEXT, cut_off, rsv=RSV1))
        # At once, in an unfinished message: flushed to the byte, so that what is bad can be seen.
        stream = zlib.compressobj(6, zlib.DEFLATED, -15)
        begun = stream.compress(b"\xff" + WORDS) + stream.flush(zlib.Z_SYNC_FLUSH)
        self.assert_fails_in(self.agreed(), [1007], frame(TEXT, begun, fin=False, rsv=RSV1))

    def test_characters_split_over_fragments(self):
        client = self.agreed()
        text = "grüße, мир, 日本語 🚀".encode()
        payload = client.deflater.pack(text)
        for n in range(len(payload)):
            client.send(b"".join(cut(TEXT, payload, [n])))
            self.assertEqual(client.message()[1], text)
            payload = client.deflater.pack(text)

    def test_inflater_of_the_tests_sees_far_references(self):
        block = random.Random(1).randbytes(600)
        far = Deflater(bits=15, level=9).pack(block * 2)
        with self.assertRaises(zlib.error):
            Inflater(bits=9).unpack(far, exact=True)
        self.assertEqual(Inflater(bits=10).unpack(far, exact=True), block * 2)


if __name__ == "__main__":
    main()
