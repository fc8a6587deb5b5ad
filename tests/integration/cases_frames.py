"""Frames, texts and closes that servers have got wrong: each method replays the bytes of one handed case."""

import struct

from _rawclient import (BINARY, CLOSE, CONTINUATION, MASK, PING, PONG, TEXT, Frame, close_frame,
                        frame, xor)
from _server import ServerCase, main

HELLO = Frame(TEXT, b"Hello")
NEVER = ("--close-timeout", "600000")


def bits(text):
    """Bytes from hexadecimal digits."""
    return bytes.fromhex(text)


class Frames(ServerCase):
    # A failed connection has to end by itself: not because the closing handshake took too long.
    OPTIONS = NEVER

    def test_B036_unmasked(self):
        self.assert_fails(1002, bits("81026869"))

    def test_B038_length_wraps(self):
        self.assert_fails(1002, bits("82fffffffffffffffffc37fa213d76bb607c76bb607c"))

    def test_B040_length_of_two_to_the_63_less_one(self):
        huge = bits("ff7fffffffffffffff37fa213d") + bits("76bb607c") * 4
        self.assert_fails(1009, b"\x82" + huge)
        self.assert_fails(1009, bits("028537fa213d7f9f4d5158") + b"\x80" + huge)

    def test_B043_long_length_for_a_short_payload(self):
        self.assert_fails(1002, bits("81ff000000000000000537fa213d7f9f4d5158"),
                          bits("818437fa213d599f5949"))

    def test_B043_medium_length_for_a_short_payload(self):
        self.assert_fails(1002, bits("81fe000537fa213d7f9f4d5158"))
        self.assert_fails(1002, bits("82ff000000000000ffff37fa213d") + b"x" * 65535)

    def test_B045_sizes_at_the_borders_of_the_length(self):
        with self.server.open() as client:
            for size, head, start in (
                    (0, "8280", ""), (1, "8281", "fb"), (125, "82fd", "7b272c0864e33f64"),
                    (126, "82fe007e", "7999b3ad09585703"), (127, "82fe007f", "c1f8a3bd542dc973"),
                    (65535, "82feffff", "bbb34ab5398282d2"),
                    (65536, "82ff0000000000010000", "8fe35a376a28ebd8"), (3, "8283", "7dc70c"),
                    (200, "82fe00c8", ""), (0, "8280", "")):
                masked = bits(start)
                masked += bytes(i * 167 + size & 255 for i in range(size - len(masked)))
                client.send(bits(head) + MASK + masked)
                self.assert_echoes(client, BINARY, xor(masked))

    def test_B047_reserved_bit(self):
        self.assert_fails(1002, bits("c18237fa213d5f93"))
        for rsv in range(1, 8):
            with self.subTest(rsv=rsv):
                self.assert_fails(1002, frame(TEXT, b"hi", rsv=rsv))

    def test_B049_reserved_opcodes(self):
        for first in ("8b", "8c", "8d", "8e", "8f", "83", "84", "85", "86", "87"):
            with self.subTest(first=first):
                self.assert_fails(1002, bits(first + "8037fa213d"))

    def test_B051_fragmented_control_frame(self):
        self.assert_fails(1002, bits("098137fa213d56808137fa213d55"))

    def test_B053_pongs_that_nobody_asked_for(self):
        with self.server.open() as client:
            client.send(bits("8a8337fa213d429452018337fa213d7f9f4d8a8037fa213d808237fa213d5b95"))
            client.send(close_frame(1000))
            self.assert_closed_with(client, 1000, before=[HELLO])

    def test_B055_continuation_of_nothing(self):
        self.assert_fails(1002, bits("808237fa213d5b95"))
        self.assert_fails(1002, bits("818237fa213d5891"), bits("008237fa213d5b95"),
                          before=[Frame(TEXT, b"ok")])

    def test_B055_a_message_inside_a_message(self):
        self.assert_fails(1002, frame(TEXT, b"par", fin=False) + frame(TEXT, b"whole"))

    def test_B058_empty_messages(self):
        with self.server.open() as client:
            client.send(bits("818037fa213d"), bits("828037fa213d"), bits("818000000000"))
            self.assert_echoes(client, TEXT, b"")
            self.assert_echoes(client, BINARY, b"")
            self.assert_echoes(client, TEXT, b"")

    def test_B060_many_frames_in_one_segment(self):
        burst, texts, pings = b"", [], []
        for n in range(30):
            texts.append(b"m%d" % n)
            burst += frame(TEXT, texts[-1])
            if n % 10 == 0:
                pings.append(b"k%d" % n)
                burst += frame(PING, pings[-1])
        self.assertEqual(len(burst), 286)
        with self.server.open() as client:
            client.send(burst + close_frame(1000))
            *frames, last = client.frames()
        self.assertEqual([f.payload for f in frames if f.opcode == TEXT], texts)
        self.assertEqual([f.payload for f in frames if f.opcode == PONG], pings)
        self.assertEqual((len(frames), last.opcode), (33, CLOSE))

    def test_B062_ping_payload_comes_back(self):
        with self.server.open() as client:
            for payload in (b"", bits("ff"), bytes(range(0x80, 0xfd))):
                client.send(frame(PING, payload))
                self.assertEqual(client.frame(), Frame(PONG, payload))

    def test_B062_control_frame_that_is_too_long(self):
        for opcode in (PING, PONG, CLOSE):
            with self.subTest(opcode=opcode):
                self.assert_fails(1002, frame(opcode, b"\x03\xe8" + b"x" * 124))


class Closes(ServerCase):
    OPTIONS = NEVER

    def test_B064_body_of_one_byte(self):
        self.assert_fails(1002, bits("888137fa213d34"))

    def test_B066_codes_that_must_not_be_sent(self):
        for body in ("37fa", "341d", "3417", "3414", "340d"):  # 0, 999, 1005, 1006, 1015
            with self.subTest(body=body):
                self.assert_fails(1002, bits("888237fa213d" + body))
        for code in (1, 1004, 1016, 1100, 2000, 2999, 5000, 65535):
            with self.subTest(code=code):
                self.assert_fails(1002, close_frame(code))

    def test_B068_codes_that_may_be_sent(self):
        for code in (1000, 1001, 1003, *range(1007, 1015), 3000, 3999, 4000, 4999):
            reason = b"bye" if code < 4999 else b"r" * 123
            with self.subTest(code=code):
                self.assert_fails(code, close_frame(code, reason))

    def test_B068_no_code(self):
        with self.server.open() as client:
            client.send(frame(CLOSE))
            self.assertEqual(client.frames(), [Frame(CLOSE, b"")])

    def test_B070_close_frame_in_three_segments(self):
        self.assert_fails(1000, bits("8885"), bits("37fa213d"), bits("3412434452"))

    def test_B072_in_the_middle_of_a_message(self):
        self.assert_fails(1000, bits("018337fa213d479b53888237fa213d3412"))

    def test_nothing_is_answered_after_a_close(self):
        self.assert_fails(1000, close_frame(1000) + frame(PING, b"p") + frame(TEXT, b"late"))


class Texts(ServerCase):
    OPTIONS = NEVER

    def test_B076_invalid_in_one_frame(self):
        for stimulus in ("818137fa213db7", "818237fa213df755", "818337fa213dd77a8e",
                         "818237fa213df4d2", "818137fa213dc8", "818337fa213d5698df"):
            with self.subTest(stimulus=stimulus):
                self.assert_fails(1007, bits(stimulus))

    def test_B078_characters_split_over_fragments(self):
        text = "κόσμε€😀".encode()
        parts = [frame(TEXT if i == 0 else CONTINUATION, text[i:i + 1], fin=i == len(text) - 1)
                 for i in range(len(text))]
        self.assertEqual((len(b"".join(parts)), parts[0]), (119, bits("018137fa213df9")))
        with self.server.open() as client:
            client.send(b"".join(parts))
            self.assert_echoes(client, TEXT, text)

    def test_B080_invalid_in_a_continuation(self):
        self.assert_fails(1007, bits("018237fa213d5891808237fa213df4d2"))
        self.assert_fails(1007, bits("018137fa213dd5808137fa213d76"))

    def test_B080_noticed_before_the_message_is_whole(self):
        # a first fragment, half a frame, half a character that can have no good end
        self.assert_fails(1007, frame(TEXT, b"ok\xc3\x28", fin=False))
        self.assert_fails(1007, frame(TEXT, b"ok\xff" + b"x" * 90)[:40])
        self.assert_fails(1007, frame(TEXT, b"\xed\xa0", fin=False))

    def test_B082_ends_inside_a_character(self):
        self.assert_fails(1007, bits("818237fa213dd578"))
        self.assert_fails(1007, bits("018137fa213dd5808137fa213db5"))

    def test_close_reason_that_is_not_utf8(self):
        self.assert_fails(1007, bits("8885") + frame(CLOSE, struct.pack("!H", 1000) + b"a\xc3\x28")[2:])


if __name__ == "__main__":
    main()
