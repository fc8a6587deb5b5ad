#!/usr/bin/env python3
"""Prints a C file with a variable for each function of the named headers, of that function's type.

usage: abi-types.py all|HEADER...

Compiled with -g, it holds the public interface and nothing else: the library's own debug information cannot be told apart,
since its private headers have the names of public ones.
"""

import sys

import headers

OWN = {"tws/nats.h", "tws/redis.h"}  # of libraries of their own


def main():
    wanted = sys.argv[1:]
    chosen = [h for h in headers.read_headers()
              if (h.include not in OWN if wanted == ["all"] else h.include in wanted)]
    for h in chosen:
        print(f"#include <{h.include}>")
    for name in sorted(fn.name for h in chosen for fn in h.functions):
        print(f"extern __typeof__(&{name}) type_of_{name};\n__typeof__(&{name}) type_of_{name} = 0;")
    return 0 if any(h.functions for h in chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
