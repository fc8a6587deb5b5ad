#!/usr/bin/env python3
"""Tracked files name no machine's paths and no registry's host, leave nothing open, and are tidy at line ends."""

import os
import re
import subprocess
import sys

HOME_PATH = re.compile(r"(?<![\w.~$}])/(?:home|Users)/[a-z]\w*|(?<![\w.~$}])/root/\w")
PINNED_HOST = re.compile(r'"resolved": "https?://|--(?:extra-)?index-url|GOPROXY=http|--registry[ =]http')
OPEN_END = re.compile(r"\b(?:TODO|FIXME|XXX)\b")
CODE = (".c", ".h", ".cpp", ".py", ".sh", ".mk", ".go", ".js")
CORPUS = "tests/fuzz/corpus/"  # bytes, whatever they look like
BINARY = (".png", ".ico", ".gz", ".jpg", ".pem", ".der", ".bin")


def git(*args):
    return subprocess.run(["git", *args], check=True, capture_output=True, text=True).stdout


def machine_paths():
    """Where this checkout and this user live: the paths most likely to slip into a file."""
    here = os.path.realpath(git("rev-parse", "--show-toplevel").strip())
    paths = {here, os.path.dirname(here), os.path.realpath(os.path.expanduser("~"))}
    paths -= {"/tmp", "/var/tmp", "/usr", "/opt", "/srv", "/mnt", "/home"}  # every machine has these
    return [re.compile(rf"(?<![\w.~$}}]){re.escape(p)}(?=/\w)") for p in paths if p.count("/") >= 1 and len(p) > 1]


def check(path, local):
    with open(path, "rb") as f:
        data = f.read()
    if b"\0" in data:
        return
    text = data.decode("utf-8", errors="replace")
    own = os.path.basename(path) == "check-text.py"
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        where = f"{path}:{number}"
        if HOME_PATH.search(line) and not own or any(p.search(line) for p in local):
            yield f"{where}: names a path of one machine"
        if PINNED_HOST.search(line) and not own:
            yield f"{where}: names a package registry's host"
        if path.endswith(CODE) and OPEN_END.search(line) and not own:
            yield f"{where}: left open"
        if line != line.rstrip() and not path.endswith((".md", ".patch")):
            yield f"{where}: blanks at the end of the line"
        if "\t" in line and path.endswith((".c", ".h", ".py")):
            yield f"{where}: a tab"
    if text and not text.endswith("\n"):
        yield f"{path}: the last line has no end"


def main():
    local = machine_paths()
    faults, count = [], 0
    for path in filter(None, git("ls-files", "-z").split("\0")):
        if path.endswith(BINARY) or path.startswith(CORPUS) or os.path.islink(path) or not os.path.exists(path):
            continue
        count += 1
        faults += check(path, local)
    print("\n".join(faults) if faults else f"text: {count} files are tidy")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
