"""permessage-deflate as RFC 7692 has it, made of zlib's raw streams, for clients that say exactly what they send."""

import re
import zlib

from _rawclient import BINARY, CLOSE, CONTINUATION, TEXT, Broken, Client, frame

TAIL = b"\x00\x00\xff\xff"
RSV1 = 4
NAME = "permessage-deflate"
HELLO = bytes.fromhex("f248cdc9c90700")  # RFC 7692 7.2.3.1


class Deflater:
    """A sender's side. Without takeover each message is compressed by itself."""

    SYNC, FULL, FINISH = zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH, zlib.Z_FINISH

    def __init__(self, bits=15, takeover=True, level=6, memory=8, strategy=zlib.Z_DEFAULT_STRATEGY):
        if bits == 8:  # zlib does not write that window; runs of one byte need no more than one byte of it
            bits, strategy = 9, zlib.Z_RLE
        self.arguments = (level, zlib.DEFLATED, -bits, memory, strategy)
        self.takeover = takeover
        self.stream = zlib.compressobj(*self.arguments)

    def pack(self, data, flush=SYNC):
        """The payload of a message. FINISH ends it with a final block (RFC 7692 7.2.3.4)."""
        packed = self.stream.compress(data) + self.stream.flush(flush)
        if flush == self.FINISH or not self.takeover:
            self.stream = zlib.compressobj(*self.arguments)
        if flush == self.FINISH:
            return packed + b"\x00"
        if not packed.endswith(TAIL):
            raise Broken(f"zlib ended a message with {packed[-8:].hex()}")
        return packed[:-4]


class Inflater:
    """A receiver's side, which refuses a reference beyond the window that was agreed on."""

    STEP = 1 << 20

    def __init__(self, bits=15, takeover=True):
        self.bits = max(bits, 9)  # zlib before 1.2.9 cannot be trusted with 8; the tests of 8 count distances
        self.takeover = takeover
        self.stream = zlib.decompressobj(-self.bits)

    def unpack(self, payload, exact=False):
        """exact: byte for byte, since zlib also allows references into what one call gives out."""
        stream, rest, parts = self.stream, payload + TAIL, []
        while rest:
            parts.append(stream.decompress(rest, 1 if exact else self.STEP))
            rest = stream.unconsumed_tail
            if stream.eof:  # a final block: what follows is a new stream, with the same window or none
                rest = stream.unused_data
                stream = self.stream = zlib.decompressobj(-self.bits)
        while exact:
            part = stream.decompress(b"", 1)
            if not part:
                break
            parts.append(part)
        if not self.takeover:
            self.stream = zlib.decompressobj(-self.bits)
        return b"".join(parts)


def terms_of(answer):
    """The parameters of an answer; fails on anything RFC 7692 7.1 does not allow there."""
    name, *parameters = [part.strip() for part in answer.split(";")]
    terms = {}
    for parameter in parameters:
        key, equals, value = parameter.partition("=")
        if key in terms:
            raise Broken(f"{key} twice in {answer!r}")
        if key in ("server_no_context_takeover", "client_no_context_takeover") and not equals:
            terms[key] = True
        elif key in ("server_max_window_bits", "client_max_window_bits") and re.fullmatch("[89]|1[0-5]", value):
            terms[key] = int(value)
        else:
            raise Broken(f"{parameter!r} in {answer!r}")
    if name != NAME:
        raise Broken(f"answered {answer!r}")
    return terms


class DeflateClient(Client):
    """A client that compresses as agreed. `terms` is None until agree(), or when the server declined."""

    terms = None

    def agree(self, *offers, **deflater):
        """Opens the connection with these offers, each the parameters alone; options of Deflater may follow.
        Returns what was agreed, None when the server declined."""
        values = ", ".join(f"{NAME}; {offer}" if offer else NAME for offer in offers)
        answers = self.upgrade(f"Sec-WebSocket-Extensions: {values}").all("Sec-WebSocket-Extensions")
        if not answers:
            return None
        if len(answers) != 1 or "," in answers[0]:
            raise Broken(f"answered {answers}")
        self.terms = terms_of(answers[0])
        self.rsv1 = True
        self.deflater = Deflater(self.terms.get("client_max_window_bits", 15),
                                 "client_no_context_takeover" not in self.terms, **deflater)
        self.inflater = Inflater(self.terms.get("server_max_window_bits", 15),
                                 "server_no_context_takeover" not in self.terms)
        return self.terms

    def pack(self, data, opcode=TEXT):
        """One compressed message in one frame."""
        return frame(opcode, self.deflater.pack(data), rsv=RSV1)

    def message(self, exact=False):
        """The next message as (opcode, data, compressed); a control frame instead stands as it came."""
        first = self.frame()
        if first is None or first.opcode >= CLOSE:
            return first
        parts, last = [first.payload], first
        while not last.fin:
            last = self.frame()
            if last is None or last.opcode != CONTINUATION:
                raise Broken(f"inside a message: {last!r:.200}")
            parts.append(last.payload)
        data = b"".join(parts)
        return first.opcode, self.inflater.unpack(data, exact) if first.rsv1 else data, first.rsv1

    def swap(self, data, opcode=TEXT, compress=True):
        """One message there and back, strictly the same; returns whether the echo came compressed."""
        self.send(self.pack(data, opcode) if compress else frame(opcode, data))
        answer = self.message()
        if answer is None or answer[:2] != (opcode, data):
            raise Broken(f"sent {data[:64]!r}, got {answer!r:.200}")
        return answer[2]


def cut(opcode, payload, sizes, rsv=RSV1):
    """A message in fragments of these sizes, and a last one with the rest; RSV1 on the first."""
    frames, at = [], 0
    for n in sizes:
        frames.append(frame(CONTINUATION if frames else opcode, payload[at:at + n], fin=False,
                            rsv=0 if frames else rsv))
        at += n
    frames.append(frame(CONTINUATION if frames else opcode, payload[at:], rsv=0 if frames else rsv))
    return frames


def zeros(size):
    """So many zero bytes, a multiple of 1 MiB, as a message's payload of a thousandth of that."""
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = stream.compress(bytes(1 << 20)) + stream.flush(zlib.Z_FULL_FLUSH)  # begins at a byte, refers to nothing
    return (piece * (size >> 20))[:-4]


__all__ = ["BINARY", "HELLO", "NAME", "RSV1", "TAIL", "TEXT", "DeflateClient", "Deflater", "Inflater", "cut",
           "terms_of", "zeros"]
