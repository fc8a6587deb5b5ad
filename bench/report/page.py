"""The report as one HTML file that opens offline: tables, and the dashboard's panels drawn with uPlot."""

import html as escaping
import json
import re
from pathlib import Path

from report import palette, panels, table, uplot
from report.series import Series
from run import show, store
from run.measures import BY_KEY

HERE = Path(__file__).resolve().parent
DIGITS = 5


def _e(text):
    return escaping.escape(str(text), quote=True)


def _dot(server):
    return f'<i class="dot" style="background:{palette.colour(server)}"></i>'


def _value_cell(measure, value, top, with_ratio):
    if not value or value["median"] is None:
        return "<td class=n>–</td>"
    low, high = measure.show(value["min"]), measure.show(value["max"])
    ratio = f"<i>×{table.ratio_text(value)}</i>" if with_ratio and value.get("ratio") is not None else ""
    spread = "" if low == high else f"<small>{low}–{high}</small>"
    share = 100.0 * max(0.0, value["median"]) / top if top else 0.0
    return (f'<td class=n><b>{measure.show(value["median"])}</b>{ratio}{spread}'
            f'<span class=bar><span style="width:{share:.1f}%"></span></span></td>')


def _result_row(workload, row, tops, base):
    remarks = [f"<b class=mark>{_e(m)}</b>" for m in row["marks"]] + [_e(n) for n in row["notes"]]
    said = f"<div class=remarks>{'; '.join(remarks)}</div>" if remarks else ""
    cells = [f'<td class=n>{row["rank"] or "–"}</td>'
             f'<th scope=row>{_dot(row["server"])}{_e(row["server"])}{said}</th>']
    ratios = table.ratio_keys(workload)
    cells += [_value_cell(BY_KEY[k], row["values"].get(k), tops[k], k in ratios) for k in workload["table"]]
    kind = "base" if row["server"] == base else ""
    return f'<tr class="{"marked " if row["marks"] else ""}{kind}">{"".join(cells)}</tr>'


def _result_table(results, workload):
    rows = [r for r in results["rows"] if r["workload"] == workload["name"]]
    run = [r for r in rows if not r["skipped"]]
    tops = {k: max([r["values"][k]["median"] or 0 for r in run if k in r["values"]] or [0]) for k in workload["table"]}
    heads = ["<th>#</th><th>server</th>"]
    heads += [f'<th title="{_e(BY_KEY[k].about)}">{_e(table.heading(BY_KEY[k]))}</th>' for k in workload["table"]]
    body = "".join(_result_row(workload, r, tops, results["base"]) for r in run)
    skipped = ", ".join(f"{_e(r['server'])} ({_e(r['marks'][0])})" for r in rows if r["skipped"])
    after = f"<p class=quiet>Not run: {skipped}.</p>" if skipped else ""
    return (f"<div class=scroll><table class=results><thead><tr>{''.join(heads)}</tr></thead>"
            f"<tbody>{body}</tbody></table></div>{after}")


def _round(value):
    return float(f"{value:.{DIGITS}g}")


def _panel_lines(panel, cell_series):
    out = []
    for line in panel.lines:
        suffix = line.legend.replace("{{server}}", "").strip()
        for key, points in cell_series.read(line).items():
            name = suffix
            for label, value in zip(line.by, key):
                name = name.replace("{{%s}}" % label, value) if line.legend else f"{name} {value}".strip()
            if points and (name in ("", "open") or panel.key != "connections" or any(v for _, v in points)):
                out.append([name, [round(t) for t, _ in points], [_round(v) for _, v in points]])
    return out


def _drawn(folder, results):
    """workload -> round -> server -> panel key -> [[name, seconds, values]]."""
    out = {}
    for cell in results["cells"]:
        stored = store.load_series(folder, cell)
        if not stored["samples"]:
            continue
        cell_series = Series(stored, cell)
        drawn = {p.key: _panel_lines(p, cell_series) for p in panels.PANELS}
        window = cell.get("window")
        drawn["window_s"] = round(window["end"] - window["start"], 1) if window else None
        out.setdefault(cell["workload"], {}).setdefault(str(cell["round"]), {})[cell["server"]] = drawn
    return out


def _json(data):
    """JSON that is safe inside a script element."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("</", "<\\/")


def _workload_section(results, workload):
    window = f"{workload['warmup_s']:g} s warm-up, {workload['window_s']:g} s window"
    return (f'<section class=workload id="{_e(workload["name"])}"><h2>{_e(workload["name"])} '
            f'<span>{_e(workload["title"])}</span></h2><p class=quiet>{window}; ordered by '
            f'{_e(BY_KEY[workload["rank_by"]].label)}.</p>{_result_table(results, workload)}'
            f'<div class=panels data-workload="{_e(workload["name"])}"></div></section>')


def html(folder, results):
    """The page's text."""
    try:
        script, style = uplot.sources()
    except uplot.Missing as missing:
        show.warn(f"the page has no charts over time: {missing}")
        script, style = "", ""
    data = {
        "panels": [{"key": p.key, "row": p.row, "title": p.title, "about": p.description, "unit": p.unit, "log": p.log}
                   for p in panels.PANELS],
        "rows": panels.ROWS,
        "colours": {s: palette.colour(s) for s in results.get("servers", [])},
        "order": results.get("servers", []),
        "series": _drawn(folder, results) if script else {},
    }
    workloads = [w for w in results["workloads"] if any(r["workload"] == w["name"] for r in results["rows"])]
    facts = "".join(f"<li>{_e(line)}</li>" for line in table.machine_lines(results))
    cut = "" if results.get("complete") else ("<p class=cut>This run was cut short: what follows is what was measured "
                                              "until then.</p>")
    parts = {
        "TITLE": f"WebSocket servers compared, run {_e(results['run'])}",
        "STYLE": style + (HERE / "page.css").read_text(encoding="utf-8"),
        "NAV": "".join(f'<a href="#{_e(w["name"])}">{_e(w["name"])}</a>' for w in workloads),
        "FACTS": facts, "CUT": cut, "BASE": _e(results["base"]),
        "SECTIONS": "".join(_workload_section(results, w) for w in workloads),
        "UPLOT": script,
        "DATA": _json(data),
        "SCRIPT": (HERE / "page.js").read_text(encoding="utf-8"),
    }
    text = (HERE / "page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda m: parts[m.group(1)], text)
