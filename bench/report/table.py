"""Rows as Markdown and CSV."""

import csv
import io
from datetime import datetime, timezone

from run.measures import BY_KEY, MEASURES
from run.summary import RATIO_KEYS

ROW_FACTS = ("run", "workload", "server", "rank", "rounds_done", "rounds_failed", "marks", "notes")


def when(unix):
    """A point of time for people."""
    return datetime.fromtimestamp(unix, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def cell_text(measure, value):
    """Median, with the spread behind it where the rounds differ."""
    if value is None or value["median"] is None:
        return "–"
    middle, low, high = (measure.show(value[k]) for k in ("median", "min", "max"))
    return middle if low == high else f"{middle} ({low}–{high})"


def ratio_text(value):
    """Ratio to the base server."""
    ratio = (value or {}).get("ratio")
    return "–" if ratio is None else f"{ratio:.2f}"


def ratio_keys(workload):
    """The measures of a workload's table that carry a ratio column."""
    keys = [workload["rank_by"]] + [k for k in ("cpu_percent", "rss") if k in workload["table"]]
    return [k for k in dict.fromkeys(keys) if k in RATIO_KEYS]


def heading(measure):
    """Name and unit of a column."""
    return f"{measure.label} {measure.unit}".strip()


def _markdown_workload(results, workload, rows):
    base = results["base"]
    columns = [BY_KEY[k] for k in workload["table"]]
    ratios = [BY_KEY[k] for k in ratio_keys(workload)]
    heads = (["#", "server"] + [heading(m) for m in columns] + [f"{m.label} ÷ {base}" for m in ratios] + ["remarks"])
    lines = [f"### {workload['name']}: {workload['title']}", "",
             "| " + " | ".join(heads) + " |",
             "|" + "|".join(["--:", "---"] + ["--:"] * (len(heads) - 3) + ["---"]) + "|"]
    for row in rows:
        if row["skipped"]:
            continue
        values = row["values"]
        cells = [str(row["rank"] or "–"), row["server"]]
        cells += [cell_text(m, values.get(m.key)) for m in columns]
        cells += [ratio_text(values.get(m.key)) for m in ratios]
        remarks = [f"**{m}**" for m in row["marks"]] + row["notes"]
        lines.append("| " + " | ".join(cells + ["; ".join(remarks).replace("|", "\\|")]) + " |")
    skipped = [f"{r['server']} ({r['marks'][0]})" for r in rows if r["skipped"]]
    if skipped:
        lines += ["", "Not run: " + ", ".join(skipped) + "."]
    return lines + [""]


def machine_lines(results):
    """The machine and the versions, one fact a line."""
    machine, versions = results["machine"], results["versions"]
    changed = ", tree changed" if versions.get("tree_changed") else ""
    lines = [
        f"run {results['run']}, {when(results['started_unix'])}, commit {versions.get('commit')}{changed}",
        f"{machine['cpu']}, {machine['cores']} cores ({machine['cores_allowed']} allowed), "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB, Linux {machine['kernel']}, {machine['system']}",
        "load average before: " + " ".join(f"{x:.2f}" for x in machine["load_average"]),
    ]
    for name, peer in results.get("peers", {}).items():
        lines.append(f"{name}: {peer['version']}")
    for left in results.get("left_out", []):
        lines.append(f"left out: {left['server']} ({left['reason']})")
    return lines


def markdown(results, level_one=True):
    """The whole run as Markdown tables."""
    lines = [f"# Comparison run {results['run']}", ""] if level_one else []
    lines += [f"- {line}" for line in machine_lines(results)]
    if not results.get("complete"):
        lines += ["", "**This run was cut short: what follows is what was measured until then.**"]
    lines += ["", "Median over the rounds, least and greatest in brackets. Ratios are medians of the ratios within "
              f"each round to {results['base']}. A row in which something was lost, refused, wrong or limited by the "
              "generator is marked in bold and not ranked.", ""]
    for workload in results["workloads"]:
        rows = [r for r in results["rows"] if r["workload"] == workload["name"]]
        if rows:
            lines += _markdown_workload(results, workload, rows)
    return "\n".join(lines)


def _aligned(grid):
    """Lines with the first two and the last column to the left, figures to the right."""
    widths = [max(len(line[i]) for line in grid) for i in range(len(grid[0]) - 1)]
    out = []
    for line in grid:
        cells = [text.ljust(w) if i == 1 else text.rjust(w) for i, (text, w) in enumerate(zip(line, widths))]
        out.append("  ".join(cells + [line[-1]]).rstrip())
    return out


def terminal(results):
    """Medians and ratios for a terminal."""
    lines = []
    for workload in results["workloads"]:
        rows = [r for r in results["rows"] if r["workload"] == workload["name"] and not r["skipped"]]
        if not rows:
            continue
        columns = [BY_KEY[k] for k in workload["table"]]
        grid = [["#", "server"] + [heading(m) for m in columns] + [f"÷ {results['base']}", ""]]
        for row in rows:
            values = row["values"]
            grid.append([str(row["rank"] or "–"), row["server"]] +
                        [m.show(values.get(m.key, {}).get("median")) for m in columns] +
                        [ratio_text(values.get(workload["rank_by"])), "; ".join(row["marks"])])
        lines += ["", f"{workload['name']}: {workload['title']}"] + _aligned(grid)
    return "\n".join(lines)


def csv_text(results):
    """One line per row, all figures in base units."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    heads = list(ROW_FACTS)
    for measure in MEASURES:
        heads += [measure.key, f"{measure.key}_min", f"{measure.key}_max"]
    heads += [f"{k}_ratio" for k in RATIO_KEYS]
    writer.writerow(heads)
    for row in results["rows"]:
        facts = dict(row, run=results["run"], marks="; ".join(row["marks"]), notes="; ".join(row["notes"]))
        line = [facts[k] for k in ROW_FACTS]
        for measure in MEASURES:
            value = row["values"].get(measure.key, {})
            line += [value.get(k) for k in ("median", "min", "max")]
        line += [row["values"].get(k, {}).get("ratio") for k in RATIO_KEYS]
        writer.writerow(line)
    return out.getvalue()
