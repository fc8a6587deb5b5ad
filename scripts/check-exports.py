#!/usr/bin/env python3
"""Both forms of each library export exactly what its headers declare, and there is no global state.

usage: check-exports.py SHARED_LIB STATIC_LIB OBJECTS_LIB [NAME SHARED STATIC]...

OBJECTS_LIB: an archive of the single objects. NAME: of a library for what include/tws/NAME.h declares.
"""

import re
import subprocess
import sys

import headers

# Writable data that has to be one for the whole process: (object, name): why.
ALLOWED_GLOBALS = {
    ("conn.o", "last"): "the number given to the last connection; ids are unique in a process",
}


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def exported(*command):
    """Names of kind 'A' are the version nodes themselves."""
    rows = [line.split() for line in run("nm", "--defined-only", *command).splitlines()]
    return {row[2].split("@")[0] for row in rows if len(row) == 3 and row[1] != "A"}


def writable(objects):
    """Objects in writable sections of the archive; what the linker only relocates is constant afterwards."""
    found, member = [], "?"
    for line in run("objdump", "-t", objects).splitlines():
        match = re.match(r"(\S+\.o):\s", line)
        if match:
            member = match.group(1)
            continue
        match = re.match(r"\S+ (.{7}) (\.data|\.bss|\.tdata|\.tbss|\*COM\*)(\S*)\t\S+ +(?:\.hidden )?(\S+)$", line)
        if match and "O" in match.group(1) and not match.group(3).startswith(".rel.ro"):
            found.append((member, match.group(2), match.group(4)))
    return found


def differences(declared, shared, static):
    for path, have in ((shared, exported("-D", shared)), (static, exported("-g", static))):
        yield from (f"{path}: {name} is declared TWS_API but not exported" for name in sorted(declared - have))
        yield from (f"{path}: {name} is exported but not declared TWS_API" for name in sorted(have - declared))


def main():
    if len(sys.argv) < 4 or len(sys.argv) % 3 != 1:
        print(__doc__, file=sys.stderr)
        return 2
    shared, static, objects = sys.argv[1:4]
    by_header = {h.include: {fn.name for fn in h.functions} for h in headers.read_headers()}
    faults = []
    for name in ("nats", "redis"):  # of libraries of their own, which may not have been built
        own = by_header.pop(f"tws/{name}.h", set())
        at = sys.argv.index(name, 4) if name in sys.argv[4:] else None
        faults += differences(own, *sys.argv[at + 1:at + 3]) if at else []
    declared = set().union(*by_header.values())
    faults += differences(declared, shared, static)
    faults += [f"{objects}({member}): {name} is global state ({section})" for member, section, name
               in writable(objects) if (member, re.sub(r"\.\d+$", "", name)) not in ALLOWED_GLOBALS]
    soname = re.search(r"SONAME\s+(\S+)", run("objdump", "-p", shared))
    major = re.search(r"#define TWS_VERSION_MAJOR (\d+)", open("include/tws/types.h", encoding="utf-8").read())
    if not soname or not major or soname.group(1) != f"libtws.so.{major.group(1)}":
        faults.append(f"{shared}: SONAME is {soname and soname.group(1)}, not libtws.so.MAJOR")
    print("\n".join(faults) if faults else f"exports: {len(declared)} functions, no global state")
    return 1 if faults or not declared else 0


if __name__ == "__main__":
    sys.exit(main())
