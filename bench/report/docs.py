"""Writes the table of a run between two markers of a page, so that no figure is copied by hand."""

from pathlib import Path

from report import table
from run import store, summary
from run.errors import RunError

BEGIN = "<!-- results: begin (written by `make bench-docs`) -->"
END = "<!-- results: end -->"


def write(folder, page):
    """Replace what stands between the markers. Returns a line that says what was done."""
    results = summary.of_folder(folder)
    page = Path(page)
    text = page.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise RunError(f"{page} lacks the two markers, once each and in order")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    body = table.markdown(results, level_one=False).strip()
    store.write_atomically(page, f"{before}{BEGIN}\n\n{body}\n\n{END}{after}")
    return f"wrote the results of {results['run']} into {page}"
