"""500 peers at once that stall on purpose, in six ways; see _stalling.py."""

from _rawclient import BINARY, CLOSE, PING, frame, request
from _server import main
from _stalling import Group, StallingCase

HANDSHAKE_MS = 6000
PING_MS = 3000
GRACE_SECONDS = 30  # before the rate of an incomplete frame is looked at


class Stalling(StallingCase):
    OPTIONS = ("--handshake-timeout", str(HANDSHAKE_MS), "--ping", str(PING_MS),
               "--ping-timeout", str(PING_MS))

    @classmethod
    def serve_more(cls):
        cls.dripped = cls.serve()

    def group(self, clients, least, *last_words, dripping=False):
        """Opcodes of the frames that come before the end."""
        def check(client):
            try:
                frames = client.frames()
            except ConnectionResetError:
                # A byte that left after the server's end is answered with a reset, which overtakes that end.
                if not dripping or last_words:
                    raise
                return
            self.assertEqual([f.opcode for f in frames], list(last_words))
            if last_words == (CLOSE,):
                self.assertEqual(frames[0].payload[:2], (1008).to_bytes(2, "big"))
        return Group(clients, least, check)

    def test_1_a_byte_a_second_of_a_frame(self):
        clients = self.crowd(self.dripped.open, frame(BINARY, b"x" * 60000)[:8])
        self.drip(clients, b"x" * 600)
        self.compare("a byte a second of a frame", self.dripped, self.group(clients, GRACE_SECONDS, CLOSE))

    def test_2_nothing_at_all(self):
        clients = self.crowd(self.server.client)
        self.compare("nothing at all", self.server, self.group(clients, HANDSHAKE_MS / 1000))

    def test_2_half_a_handshake(self):
        clients = self.crowd(self.server.client, request(self.server.address)[:80])
        self.compare("half a handshake", self.server, self.group(clients, HANDSHAKE_MS / 1000))

    def test_2_a_byte_a_second_of_a_handshake(self):
        clients = self.crowd(self.server.client)
        self.drip(clients, request(self.server.address))
        self.compare("a byte a second of a handshake", self.server,
                     self.group(clients, HANDSHAKE_MS / 1000, dripping=True))

    def test_2_nothing_after_the_handshake(self):
        clients = self.crowd(self.server.open)
        self.compare("nothing after the handshake", self.server, self.group(clients, 2 * PING_MS / 1000, PING))

    def test_2_half_a_frame(self):
        clients = self.crowd(self.server.open, frame(BINARY, b"x" * 1000)[:500])
        self.compare("half a frame", self.server, self.group(clients, 2 * PING_MS / 1000, PING))

    def test_3_each_is_cut_by_its_deadline(self):
        self.check_cuts(6)


if __name__ == "__main__":
    main()
