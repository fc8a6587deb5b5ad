#!/usr/bin/env python3
"""Lists every exported name of a Go package, as `go doc -all` shows them: functions, variables, constants, types,
methods (Conn.Close) and the fields of structs and methods of interfaces (Dialer.Proxy), one a line.

usage: go-names.py MODULE@VERSION > LIST        fetches the module into a folder of its own; needs go
       go-names.py --text FILE                  reads what go doc has printed
"""

import re
import subprocess
import sys
import tempfile

FUNCTION = re.compile(r"^func (?:\(\w* ?\*?(\w+)(?:\[[^]]*\])?\) )?([A-Z]\w*)[\[(]")
TYPE = re.compile(r"^type ([A-Z]\w*)(?:\[[^]]*\])? ?(.*)$")
SINGLE = re.compile(r"^(?:var|const) ([A-Z]\w*)\b")
MEMBERS = re.compile(r"^\t([A-Z]\w*(?:, [A-Z]\w*)*)\b")


def documentation(module):
    """What go doc says of a module that is fetched for this."""
    path = module.partition("@")[0]
    with tempfile.TemporaryDirectory() as folder:
        def go(*args):
            return subprocess.run(["go", *args], cwd=folder, check=True, text=True, stdout=subprocess.PIPE).stdout
        go("mod", "init", "names")
        go("get", module)
        return go("doc", "-all", path)


def names(text):
    """In the order of the documentation; `inside` is the type whose block this is, "" in a block of constants."""
    inside = None
    for line in text.split("\n"):
        if inside is not None:
            members = MEMBERS.match(line)
            if line.startswith((")", "}")):
                inside = None
            elif members:
                yield from (f"{inside}.{name}".lstrip(".") for name in members.group(1).split(", "))
            continue
        function, kind, single = FUNCTION.match(line), TYPE.match(line), SINGLE.match(line)
        if function:
            yield ".".join(part for part in function.groups() if part)
        elif kind:
            yield kind.group(1)
            if kind.group(2).endswith("{"):
                inside = kind.group(1)
        elif single:
            yield single.group(1)
        elif line in ("const (", "var ("):
            inside = ""


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--text":
        with open(sys.argv[2], encoding="utf-8") as file:
            text = file.read()
    elif len(sys.argv) == 2 and "@" in sys.argv[1]:
        text = documentation(sys.argv[1])
    else:
        sys.exit(__doc__)
    print("\n".join(names(text)))


if __name__ == "__main__":
    main()
