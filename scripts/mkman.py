#!/usr/bin/env python3
"""Makes the manual pages and the reference pages from the contract comments of the public headers.

usage: mkman.py man OUTDIR     one page of section 3 per function, libtws(3) and tws_errors(3)
       mkman.py docs OUTDIR    one Markdown page per header, and an index
       mkman.py check OUTDIR   fails when the Markdown pages in OUTDIR are not those of the headers
"""

import datetime
import os
import re
import sys

import headers

FUNCTION = re.compile(r"\b(tws_\w+)\(\)")


# ---- mdoc ----

def roff(text):
    """Escapes text and puts each sentence on its own line, as mdoc wants it."""
    text = text.replace("\\", "\\e")
    lines = re.sub(r"(?<=[A-Za-z0-9)'\"][.!?]) +(?=[A-Z])", "\n", text).split("\n")
    lines = ["\\&" + line if line[:1] in (".", "'") else line for line in lines]
    return FUNCTION.sub(r"\\fB\1\\fR()", "\n".join(lines))


def literal(text):
    lines = text.replace("\\", "\\e").split("\n")
    body = "\n".join("\\&" + line if line[:1] in (".", "'") else line for line in lines)
    return f".Bd -literal -offset indent\n{body}\n.Ed"


def roff_body(body):
    text = "\n.Pp\n".join(literal(text) if code else roff(text) for code, text in body)
    return text.replace("\n.Pp\n.Bd", "\n.Bd")


def page_head(name, summary, version, date):
    summary = summary.rstrip(".")
    summary = summary[:1].lower() + summary[1:] if not summary[:2].isupper() else summary
    return (f".Dd {date.strftime('%B')} {date.day}, {date.year}\n.Dt {name.upper()} 3\n.Os libtws {version}\n"
            f".Sh NAME\n.Nm {name}\n.Nd {roff(summary).replace(chr(10), ' ')}\n")


def see_also(names):
    names = sorted(names)
    rows = [f".Xr {n} 3{' ,' if n != names[-1] else ''}" for n in names]
    return ".Sh SEE ALSO\n" + "\n".join(rows) + "\n"


def rfc_text(rfc):
    number, _, sections = rfc.partition(" ")
    word = "sections" if "," in sections else "section"
    return f"RFC {number}" + (f", {word} {sections}" if sections else "")


def function_page(fn, include, version, date, known):
    doc = fn.doc
    out = page_head(fn.name, doc.summary, version, date)
    out += f".Sh SYNOPSIS\n.In {include}\n.Ft \"{fn.returns}\"\n.Fo {fn.name}\n"
    out += "".join(f'.Fa "{p}"\n' for p in fn.params or ["void"]) + ".Fc\n"
    out += f".Sh DESCRIPTION\n{roff(doc.summary)}\n"
    if doc.body:
        out += ("" if doc.body[0][0] else ".Pp\n") + f"{roff_body(doc.body)}\n"
    if doc.params:
        out += ".Pp\nThe arguments are:\n.Bl -tag -width Ds\n"
        out += "".join(f".It Fa {name}\n{roff(text)}\n" for name, text in doc.params) + ".El\n"
    for title, text in (("RETURN VALUES", doc.returns), ("THREADS", doc.threads), ("OWNERSHIP", doc.ownership)):
        if text:
            first = re.match(r"\w*", text).group(0)
            named = first.startswith("tws_") or first in fn.param_names()
            text = text if named else text[:1].upper() + text[1:]
            out += f".Sh {title}\n{roff(text)}\n"
    words = " ".join([doc.summary, doc.returns, doc.threads, doc.ownership] +
                     [t for _, t in doc.body] + [t for _, t in doc.params])
    linked = (set(FUNCTION.findall(words)) & known) - {fn.name}
    linked |= {"libtws"} | ({"tws_errors"} if "TWS_ERR_" in words or fn.returns == "tws_err" else set())
    out += see_also(linked)
    if doc.rfc:
        out += f".Sh STANDARDS\n{rfc_text(doc.rfc)}.\n"
    return out


def errors_page(rows, version, date):
    out = page_head("tws_errors", "error codes of libtws", version, date)
    out += (".Sh SYNOPSIS\n.In tws/error.h\n.Sh DESCRIPTION\n"
            "Functions that can fail return one of these values of the type\n.Vt tws_err .\n"
            ".Bl -tag -width Ds\n")
    out += "".join(f".It Dv {name} Pq {value}\n{roff(text[:1].upper() + text[1:])}.\n" for name, value, text in rows)
    return out + ".El\n" + see_also({"libtws", "tws_err_name", "tws_err_text", "tws_err_is_final"})


def overview_page(all_headers, version, date):
    out = page_head("libtws", "blocking WebSocket library, one thread per connection", version, date)
    out += (".Sh SYNOPSIS\n.In tws/tws.h\n.Pp\ncc $(pkg-config --cflags tws) file.c $(pkg-config --libs tws)\n"
            ".Sh DESCRIPTION\nEach function has its own page.\nTypes are described in the headers.\n")
    for header in all_headers:
        if not header.functions:
            continue
        out += f".Ss {header.include}\n"
        out += roff_body(header.intro) + "\n" if header.intro else ""
        out += ".Bl -tag -width Ds\n"
        out += "".join(f".It Xr {fn.name} 3\n{roff(fn.doc.summary)}\n" for fn in header.functions) + ".El\n"
    return out + see_also({"tws_errors"}) + ".Sh STANDARDS\nRFC 6455, The WebSocket Protocol.\n"


def man_pages(all_headers):
    version = version_of(all_headers)
    known = {fn.name for h in all_headers for fn in h.functions}
    pages = {}
    for header in all_headers:
        date = page_date(header.path)
        for fn in header.functions:
            pages[f"{fn.name}.3"] = function_page(fn, header.include, version, date, known)
        if header.errors:
            pages["tws_errors.3"] = errors_page(header.errors, version, date)
    pages["libtws.3"] = overview_page(all_headers, version, max(page_date(h.path) for h in all_headers))
    return pages


def page_date(path):
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    when = int(epoch) if epoch else os.stat(path).st_mtime
    return datetime.datetime.fromtimestamp(when, datetime.timezone.utc).date()


def version_of(all_headers):
    text = "\n".join(h.text for h in all_headers)
    return ".".join(re.search(rf"#define TWS_VERSION_{part} (\d+)", text).group(1)
                    for part in ("MAJOR", "MINOR", "PATCH"))


# ---- Markdown ----

def page_of(header):
    return os.path.basename(header.path).replace(".h", ".md")


def link_functions(text, known):
    """Names become links, and what looks like markup stays text."""
    text = re.sub(r"([*<>|])", r"\\\1", text)
    text = re.sub(r"(?<![\w`])(TWS_[A-Z_0-9]+|tws_[a-z_0-9]+)(?![\w(`])", r"`\1`", text)
    return FUNCTION.sub(lambda m: f"[{m.group(1)}()]({known[m.group(1)]}#{m.group(1)})"
                        if m.group(1) in known else f"`{m.group(1)}()`", text)


def markdown_body(body, known):
    return "\n\n".join(f"```c\n{text}\n```" if code else link_functions(text, known) for code, text in body)


def function_section(fn, known):
    doc = fn.doc
    out = f"### {fn.name}\n\n```c\n{fn.prototype()}\n```\n\n{link_functions(doc.summary, known)}\n\n"
    if doc.body:
        out += markdown_body(doc.body, known) + "\n\n"
    if doc.params:
        out += "".join(f"- `{name}`: {link_functions(text, known)}\n" for name, text in doc.params) + "\n"
    for title, text in (("Returns", doc.returns), ("Threads", doc.threads), ("Ownership", doc.ownership)):
        if text:
            out += f"**{title}:** {link_functions(text, known)}\n\n"
    if doc.rfc:
        out += f"**Standard:** {rfc_text(doc.rfc)}\n\n"
    return out


def header_page(header, known):
    out = f"# `<{header.include}>`\n\n<!-- Made by `make docs` from the header; changes belong there. -->\n\n"
    out += markdown_body(header.intro, known) + "\n\n" if header.intro else ""
    if header.errors:
        out += "## Error codes\n\n| name | value | meaning |\n|---|---|---|\n"
        out += "".join(f"| `{name}` | {value} | {text} |\n" for name, value, text in header.errors) + "\n"
    types = [t for t in header.types if "TWS_ERROR_MAP(" not in t.code]
    if types:
        out += "## Types\n\n"
    for item in types:
        out += f"### {item.name}\n\n" + (markdown_body(item.body, known) + "\n\n" if item.body else "")
        out += f"```c\n{item.code}\n```\n\n"
    if header.functions:
        out += "## Functions\n\n" + "".join(function_section(fn, known) for fn in header.functions)
    return out.rstrip("\n") + "\n"


def markdown_pages(all_headers):
    known = {fn.name: page_of(h) for h in all_headers for fn in h.functions}
    pages, index = {}, "# API reference\n\n<!-- Made by `make docs` from the headers; changes belong there. -->\n\n"
    for header in all_headers:
        if not header.functions and not header.types:
            continue
        pages[page_of(header)] = header_page(header, known)
        index += f"## [`<{header.include}>`]({page_of(header)})\n\n"
        index += "".join(f"- [{fn.name}]({page_of(header)}#{fn.name}): {link_functions(fn.doc.summary, known)}\n"
                         for fn in header.functions) + "\n"
    pages["README.md"] = index.rstrip("\n") + "\n"
    return pages


# ---- files ----

def write_pages(pages, directory, suffix):
    """Writes what changed and removes pages of functions that are gone."""
    os.makedirs(directory, exist_ok=True)
    for name in os.listdir(directory):
        if name.endswith(suffix) and name not in pages:
            os.remove(os.path.join(directory, name))
    for name, text in pages.items():
        path = os.path.join(directory, name)
        if read(path) != text:
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)


def read(path):
    try:
        with open(path, encoding="utf-8") as f:
            return f.read()
    except FileNotFoundError:
        return None


def check_pages(pages, directory):
    stale = sorted(name for name, text in pages.items() if read(os.path.join(directory, name)) != text)
    have = set(os.listdir(directory)) if os.path.isdir(directory) else set()
    stale += sorted(name for name in have if name.endswith(".md") and name not in pages)
    for name in stale:
        print(f"{os.path.join(directory, name)}: not what the headers say; run `make docs`")
    return 1 if stale else 0


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("man", "docs", "check"):
        print(__doc__, file=sys.stderr)
        return 2
    what, directory = sys.argv[1:]
    all_headers = headers.read_headers()
    bare = [f"{fn.header}:{fn.line}: {fn.name} has no contract comment"
            for h in all_headers for fn in h.functions if not fn.doc]
    if bare or not all_headers:
        print("\n".join(bare) or "no headers in include/tws", file=sys.stderr)
        return 1
    if what == "man":
        write_pages(man_pages(all_headers), directory, ".3")
        return 0
    pages = markdown_pages(all_headers)
    if what == "check":
        return check_pages(pages, directory)
    write_pages(pages, directory, ".md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
