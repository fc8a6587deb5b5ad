"""Makes everything that is made from results.json."""

from pathlib import Path

from report import charts, openmetrics, page, table
from run import store, summary


def everything(folder):
    """Write tables, OpenMetrics, charts and the page beside results.json. Returns the paths."""
    folder = Path(folder)
    results = summary.of_folder(folder)
    written = []

    def write(name, text):
        store.write_atomically(folder / name, text)
        written.append(folder / name)

    write("results.md", table.markdown(results) + "\n")
    write("results.csv", table.csv_text(results))
    recorded = openmetrics.text(folder, results)
    if recorded:
        write("run.om", recorded)
    written += charts.make(folder, results)
    write("index.html", page.html(folder, results))
    return written
