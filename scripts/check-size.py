#!/usr/bin/env python3
"""Files stay under 600 lines and functions under 60: a longer one is a sign that two things live in one room."""

import ast
import re
import subprocess
import sys

MAX_FILE = 600
MAX_FUNCTION = 60
# path, or path:function -> reason. Empty by preference.
ALLOWED = {
}


def tracked():
    """New files count too, before they are added."""
    out = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                         check=True, capture_output=True, text=True).stdout
    return sorted(set(filter(None, out.split("\0"))))


def c_functions(lines):
    """A function's braces stand in the first column; so do no others in this layout."""
    start = name = None
    for number, line in enumerate(lines, 1):
        if line.startswith("{"):
            head = " ".join(lines[max(0, number - 6):number - 1])
            names = re.findall(r"(\w+)\s*\(", head.rpartition(";")[2].rpartition("}")[2])
            start, name = number, names[0] if names else "?"
        elif line.startswith("}") and start:
            yield name, start, number - start - 1
            start = None


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno - node.lineno


def check(path):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    lines = text.splitlines()
    if len(lines) > MAX_FILE and path not in ALLOWED:
        yield f"{path}: {len(lines)} lines"
    functions = python_functions(text) if path.endswith(".py") else c_functions(lines)
    for name, line, length in functions:
        if length > MAX_FUNCTION and f"{path}:{name}" not in ALLOWED:
            yield f"{path}:{line}: {name}() has {length} lines"


def main():
    faults, count = [], 0
    for path in tracked():
        if path.endswith((".c", ".h", ".cpp", ".py")):
            count += 1
            try:
                faults += check(path)
            except FileNotFoundError:  # deleted, not yet committed
                continue
            except SyntaxError as error:
                faults.append(f"{path}: {error}")
    print("\n".join(faults) if faults else f"size: {count} files keep their measure")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
