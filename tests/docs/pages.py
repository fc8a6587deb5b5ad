"""The Markdown pages of the project, taken apart: code blocks, inline code, links, headings, tables, commands."""

import os
import pathlib
import re
import shlex
import typing

ROOT = pathlib.Path(__file__).resolve().parents[2]
NO_PAGES = {"build", "node_modules", "venv"}

FENCE = re.compile(r"^ *```(\w*)\s*$")
HEADING = re.compile(r"^#+ +(.*?) *$")
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
SEPARATORS = {"&&", "||", "|", "&", ";"}


class Block(typing.NamedTuple):
    """A fenced block, or one that is indented by four, which counts as `sh`."""
    line: int
    language: str
    text: str


class Page:
    """One page; `path` is relative to the root of the repository."""

    def __init__(self, path, text=None):
        self.path = path
        self.text = text if text is not None else (ROOT / path).read_text(encoding="utf-8")
        self.blocks = []
        self.prose = "\n".join(self._take_apart())
        # In a table, "\|" is a bar; a span may go on in the next line.
        self.spans = [re.sub(r"\s+", " ", s.replace("\\|", "|")) for s in SPAN.findall(self.prose)]

    def _take_apart(self):
        """Collects the blocks and yields the lines that are in none of them."""
        language, begin, lines, blank = None, 0, [], True
        indented = False
        for number, line in enumerate([*self.text.split("\n"), ""], 1):
            fence = FENCE.match(line)
            if language is None and not fence:
                code = line.startswith("    ") and (blank or indented)
                if code and not indented:
                    begin, lines = number, []
                elif indented and not code and line.strip():
                    self.blocks.append(Block(begin, "sh", "\n".join(lines).strip("\n") + "\n"))
                if code or indented and not line.strip():
                    indented = True
                    lines.append(line[4:])
                else:
                    indented = False
                    yield line
            elif language is None:
                language, begin, lines = fence.group(1), number + 1, []
            elif fence:
                self.blocks.append(Block(begin, language, "\n".join(lines) + "\n"))
                language = None
            else:
                lines.append(line)
            blank = not line.strip()
        if language is not None:
            raise AssertionError(f"{self.path}:{begin}: a block without end")
        if indented:
            self.blocks.append(Block(begin, "sh", "\n".join(lines).strip("\n") + "\n"))

    def code(self, language):
        return [b for b in self.blocks if b.language == language]

    def commands(self):
        """Every single command of the `sh` blocks, as words."""
        for block in self.code("sh"):
            for line in block.text.replace("\\\n", " ").split("\n"):
                yield from split_commands(line)

    def links(self):
        return [target for target in LINK.findall(self.prose) if not re.match(r"\w+:", target)]

    def anchors(self):
        """The names by which headings can be linked to, as GitHub makes them."""
        found = set()
        for line in self.prose.split("\n"):
            heading = HEADING.match(line)
            if heading:
                name = re.sub(r"\]\([^)]*\)", "]", heading.group(1)).lower()
                name = re.sub(r"[^\w\- ]", "", name).replace(" ", "-")
                same = len([a for a in found if a == name or re.fullmatch(re.escape(name) + r"-\d+", a)])
                found.add(f"{name}-{same}" if same else name)
        return found

    def section(self, title):
        """The prose under a heading, to the next one."""
        parts = re.split(r"^(#+ .*)$", self.prose, flags=re.M)
        for head, body in zip(parts[1::2], parts[2::2]):
            if head.lstrip("# ") == title:
                return body
        raise AssertionError(f"{self.path} has no section '{title}'")

    def rows(self, title):
        """The body of the section's table, cell by cell."""
        lines = [line for line in self.section(title).split("\n") if line.startswith("|")]
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def split_commands(line):
    """The commands of one line of shell, as lists of words; comments and redirections are no words."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words = []
    for word in [*lexer, ";"]:
        if word not in SEPARATORS:
            words.append(word)
        elif words:
            yield words
            words = []


def all_pages():
    """Every page of the project, that of the API included."""
    for folder, names, files in os.walk(ROOT):
        names[:] = sorted(n for n in names if n not in NO_PAGES and not n.startswith("."))
        for file in sorted(files):
            if file.endswith(".md"):
                yield Page(os.path.relpath(os.path.join(folder, file), ROOT))
