"""Reads the public headers: functions with their contract comments, types with theirs.

The contract of a function is the /** ... */ comment above it:

    /**
     * One sentence that says what it does.
     *
     * Free text, in paragraphs; lines indented by four are code.
     *
     * @param name text
     * @return text
     * Threads: text
     * Ownership: text
     * RFC: 6455 5.5
     */
    TWS_API tws_err tws_name(tws_conn *c, int name);

Nothing here knows C beyond what such headers use: no declarations split by preprocessor conditions, no attributes
behind the parameters.
"""

import glob
import os
import re

TOKEN = re.compile(r"/\*.*?\*/|TWS_API\b[^;{]*;|^typedef\b|^struct\b|^#define(?:\\\n|[^\n])*", re.S | re.M)
TAG = re.compile(r"^(?:@param\s+(\w+)|@(return)|(Threads|Ownership|RFC):)\s*(.*)$")
ERROR_ROW = re.compile(r'X\((TWS_\w+), (-?\d+), "([^"]*)"\)')


class Function:
    """One TWS_API declaration; `doc` is None when it has no contract comment."""

    def __init__(self, header, line, text, comment):
        self.header = header
        self.line = line
        flat = re.sub(r"\s+", " ", text).removeprefix("TWS_API").rstrip(";").strip()
        match = re.match(r"(.*?)(\w+)\s*\((.*)\)$", flat)
        if not match:
            raise ValueError(f"{header}:{line}: cannot read the declaration '{flat}'")
        self.returns = match.group(1).strip()
        self.name = match.group(2)
        inner = match.group(3).strip()
        self.params = [] if inner in ("", "void") else split_params(inner)
        self.doc = Doc(comment) if comment else None

    def param_names(self):
        """The name is the last word, or stands in (*name) where the parameter is a function."""
        return [(re.search(r"\(\*(\w+)\)", p) or re.search(r"(\w+)(?:\[\w*\])?$", p)).group(1) for p in self.params]

    def prototype(self):
        star = "" if self.returns.endswith("*") else " "
        return f"{self.returns}{star}{self.name}({', '.join(self.params) or 'void'});"


class Doc:
    """A contract comment taken apart. Paragraphs are (is_code, text)."""

    def __init__(self, comment):
        self.params = []
        self.returns = self.threads = self.ownership = self.rfc = ""
        free, tags = [], []
        for line in strip_comment(comment):
            tag = TAG.match(line)
            if tag:
                tags.append([tag.group(1), tag.group(2) or tag.group(3), [tag.group(4)]])
            elif tags and line.strip():
                tags[-1][2].append(line.strip())
            elif not tags:
                free.append(line)
        for name, kind, lines in tags:
            text = " ".join(filter(None, lines))
            if name:
                self.params.append((name, text))
            else:
                setattr(self, {"return": "returns"}.get(kind, kind.lower()), text)
        parts = paragraphs(free)
        self.summary = parts[0][1] if parts else ""
        self.body = parts[1:]


class Type:
    """A typedef or struct with the comment above it, shown as it stands in the header."""

    def __init__(self, header, name, comment, code):
        self.header = header
        self.name = name
        self.body = paragraphs(strip_comment(comment)) if comment else []
        self.code = code


class Header:
    def __init__(self, path):
        self.path = path
        self.include = os.path.join(os.path.basename(os.path.dirname(path)), os.path.basename(path))
        self.functions = []
        self.types = []
        self.errors = []
        self.intro = []
        with open(path, encoding="utf-8") as f:
            self.text = f.read()
        self._parse()

    def _parse(self):
        text, at, comment, comment_end = self.text, 0, None, -1
        while True:
            match = TOKEN.search(text, at)
            if not match:
                break
            at = match.end()
            token = match.group(0)
            near = comment if text[comment_end:match.start()] == "\n" else None
            if token.startswith("/*"):
                if match.start() == 0:
                    self.intro = paragraphs(strip_comment(token))
                    self.intro[0] = (False, re.sub(r"^\w+\.h: (\w)", lambda m: m.group(1).upper(), self.intro[0][1]))
                elif text[:match.start()].rpartition("\n")[2].strip() == "":
                    comment, comment_end = token, at
            elif token.startswith("TWS_API"):
                line = text.count("\n", 0, match.start()) + 1
                self.functions.append(Function(self.path, line, token, near))
                comment = None
            elif token.startswith("#define"):
                self.errors += ERROR_ROW.findall(token)
            else:
                at = self._type(match.start(), near)

    def _type(self, start, comment):
        """A type ends at the first ';' outside braces."""
        depth, end = 0, start
        for end in range(start, len(self.text)):
            char = self.text[end]
            depth += (char == "{") - (char == "}")
            if char == ";" and depth == 0:
                break
        code = self.text[start:end + 1]
        bare = re.sub(r"/\*.*?\*/", "", code, flags=re.S)
        match = re.search(r"\(\*(\w+)\)", bare) if "{" not in bare else None
        match = match or re.search(r"(\w+);$", bare)
        if match:
            self.types.append(Type(self.path, match.group(1), comment, code))
        return end + 1


def split_params(text):
    """Splits at the commas outside of parentheses."""
    parts, depth = [""], 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


def strip_comment(comment):
    lines = comment.removesuffix("*/").removeprefix("/**").removeprefix("/*").split("\n")
    lines = [re.sub(r"^\s*\* ?", "", line).rstrip() if i else line.strip() for i, line in enumerate(lines)]
    while lines and not lines[0]:
        lines.pop(0)
    while lines and not lines[-1]:
        lines.pop()
    return lines


def paragraphs(lines):
    groups, current = [], []
    for line in lines + [""]:
        if line.strip():
            current.append(line)
        elif current:
            groups.append(current)
            current = []
    result = []
    for group in groups:
        code = all(line.startswith("    ") for line in group)
        text = "\n".join(line[4:] for line in group) if code else " ".join(s.strip() for s in group)
        result.append((code, text))
    return result


def read_headers(directory="include/tws"):
    return [Header(path) for path in sorted(glob.glob(os.path.join(directory, "*.h")))]
