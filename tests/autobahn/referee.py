#!/usr/bin/env python3
"""kosoku with its cases of compression mended: runs in kosoku's own Python, with kosoku's own arguments.

Groups 12 and 13 hash what comes back. kosoku 0.1.0 hands a message that came back uncompressed over as a string instead of
bytes (text decoded, binary as Latin-1), and the case ends in an error before it has compared anything. An endpoint may
send any message uncompressed (RFC 7692 section 6), and ours does so with short ones and those that would grow.
"""

import sys

from kosoku import cases
from kosoku._cli import main


def as_bytes(on_message):
    def call(self, message, binary):
        if isinstance(message, str):
            message = message.encode("latin-1" if binary else "utf-8")
        return on_message(self, message, binary)
    return call


def mend():
    module = next(module for name, module in sys.modules.items() if name.endswith("case12_x_x"))
    for case in module.Case12_X_X + module.Case13_X_X:
        case.onMessage = as_bytes(case.onMessage)


if __name__ == "__main__":
    assert cases.CASES
    mend()
    sys.argv[0] = "kosoku"
    sys.exit(main())
