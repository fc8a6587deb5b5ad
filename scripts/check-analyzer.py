#!/usr/bin/env python3
"""Runs gcc's static analyzer (-fanalyzer) over the library and the examples; what it finds must be mended, or stand
below with the reason why it is wrong. clang's analyzer is part of `make check-tidy`.

usage: check-analyzer.py COMPILER FILE...    The flags are taken from the environment: ANALYSE_CPP.
"""

import concurrent.futures
import os
import re
import shlex
import subprocess
import sys

# (file, function, warning): why it cannot happen. gcc 12 gives up following values through atomics, through calls
# into other files, and through conditions that depend on each other.
UNREAD = "filled by the callee whenever the condition that leads here holds; the callee is in another file"
ALLOWED = {
    ("src/hub/member.c", "hub_room_unuse_locked", "null-dereference"):
        "the room is NULL only with an error, after which the function leaves before this",
    ("src/server/config.c", "upgrade_config_new", "use-of-uninitialized-value"):
        "without options `parsed` stays NULL in the defaults, and the copy is made only when it is not",
    ("src/server/upgrade_socket.c", "upgrade_socket", "use-of-uninitialized-value"): UNREAD,
    ("src/server/verdict.c", "tws_upgrade_judge", "use-of-uninitialized-value"): UNREAD,
}

FUNCTION = re.compile(r"^(\S+): In function ‘(\w+)’:")
WARNING = re.compile(r"^(\S+?):(\d+):\d+: warning: (.*?) \[.*-Wanalyzer-([\w-]+)\]")


def analyse(compiler, path):
    """(path, function, warning, line, text) of each finding; None and what was said when it does not compile."""
    command = [compiler, "-std=c11", *shlex.split(os.environ.get("ANALYSE_CPP", "")), "-O1", "-fanalyzer",
               "-fdiagnostics-plain-output", "-c", "-o", os.devnull, path]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C.UTF-8"})
    if done.returncode != 0:
        return None, done.stderr
    found = []
    function = "?"
    for line in done.stderr.splitlines():
        match = FUNCTION.match(line)
        if match:
            function = match.group(2)
        match = WARNING.match(line)
        if match:
            found.append((match.group(1), function, match.group(4), match.group(2), match.group(3)))
    return found, done.stderr


def major(compiler):
    return subprocess.run([compiler, "-dumpversion"], capture_output=True, text=True).stdout.split(".")[0].strip()


def main():
    compiler, paths = sys.argv[1], sys.argv[2:]
    faults = []
    used = set()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, (found, said) in zip(paths, pool.map(lambda p: analyse(compiler, p), paths)):
            if found is None:
                faults.append(f"{path} does not compile:\n{said}")
                continue
            for where, function, warning, line, text in found:
                key = (where, function, warning)
                used.add(key)
                if key not in ALLOWED:
                    faults.append(f"{where}:{line}: {function}(): {text} [{warning}]\n{said}")
    # Other versions find other things; the list is kept for this one.
    if major(compiler) == "12":
        faults += [f"{key[0]}: {key[1]}() is allowed a {key[2]} that is no longer found"
                   for key in ALLOWED if key[0] in paths and key not in used]
    print("\n".join(faults) if faults else f"analyzer: {len(paths)} files, {len(used)} findings with a reason")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
