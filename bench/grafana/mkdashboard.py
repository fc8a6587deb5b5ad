#!/usr/bin/env python3
"""Writes grafana/dashboards/ws-compare.json from bench/report/panels.py and palette.py.

    mkdashboard.py            write the file
    mkdashboard.py --check    say whether the file is what would be written

Change a panel there, run `make bench-dashboard`, and the HTML report and the dashboard stay the same.
"""

import json
import sys
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from report import palette, panels  # noqa: E402  (the path has to be set first)

OUTPUT = HERE / "grafana" / "dashboards" / "ws-compare.json"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
CHOSEN = 'job=~"$job",server=~"$server"'
# A range around each gauge, because a recorded run has no staleness marks: a plain selector would draw the last value
# of an ended server for five minutes more.
RANGE = "[$__rate_interval]"
ACTIVE = f'last_over_time(bench_run_active{{{CHOSEN},run=~"$run"}}{RANGE})'
COLUMNS = 24
STAT_HEIGHT, PANEL_HEIGHT = 9, 11


def selector(line, extra=""):
    """A metric with the dashboard's variables and the line's own conditions."""
    where = "".join(f',{label}{operator}"{value}"' for label, operator, value in line.where)
    return f"{line.metric}{{{CHOSEN}{where}{extra}}}"


def query(line):
    """PromQL of a line, limited to the chosen runs."""
    by = ", ".join(("server",) + line.by)
    function = "rate" if line.kind == panels.RATE else "max_over_time"
    return f"sum by ({by}) ({function}({selector(line)}{RANGE})) and on (server) {ACTIVE}"


def _gauge(metric, extra=""):
    return f"sum by (server) (max_over_time({metric}{{{CHOSEN}{extra}}}{RANGE}))"


def stat_queries():
    """Row 1: title, description, unit, reducer, PromQL."""
    opened = _gauge("bench_load_connections", ',state="open"')
    asked = _gauge("bench_load_connections_asked")
    rss = _gauge("process_resident_memory_bytes")
    cpu = query(panels.panel("cpu").lines[0])
    return (
        ("Mean CPU in cores", "Mean over the time range while the server's chosen runs last; 1 is one core fully used.",
         "none", "mean", cpu),
        ("Peak resident memory", "Highest RSS in the time range.", "bytes", "max", f"{rss} and on (server) {ACTIVE}"),
        ("Resident memory per connection", "RSS divided by connections, only while all connections asked for are "
         "open.", "bytes", "max", f"{rss} / on (server) ({opened} == {asked}) and on (server) {ACTIVE}"),
        ("Connections", "Most connections open at once, as the load generator sees them.", "none", "max",
         f"{opened} and on (server) {ACTIVE}"),
    )


def target(number, expression, legend):
    """One query of a panel."""
    return {"refId": chr(ord("A") + number), "datasource": DATASOURCE, "editorMode": "code", "expr": expression,
            "legendFormat": legend, "range": True}


def overrides():
    """One fixed colour per known server, for every series whose name begins with it."""
    return [{"matcher": {"id": "byRegexp", "options": f"/^{name}( |$)/"},
             "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}]}
            for name, colour in palette.SERVERS.items()]


def field_config(unit, custom, scheme="palette-classic-by-name"):
    """Unit, lower limit, colours."""
    defaults = {"unit": unit, "min": 0, "color": {"mode": scheme},
                "thresholds": {"mode": "absolute", "steps": [{"value": None, "color": "text"}]}}
    if custom:
        defaults["custom"] = custom
    return {"defaults": defaults, "overrides": overrides()}


def stat(title, about, unit, reducer, expression):
    """A panel of row 1."""
    return {
        "type": "stat", "title": title, "description": about, "datasource": DATASOURCE,
        "targets": [target(0, expression, "{{server}}")],
        "fieldConfig": field_config(unit, None),
        "options": {"graphMode": "none", "colorMode": "value", "justifyMode": "auto", "textMode": "value_and_name",
                    "wideLayout": True, "showPercentChange": False, "percentChangeColorMode": "standard",
                    "orientation": "horizontal",
                    "reduceOptions": {"values": False, "calcs": [reducer], "fields": ""}},
    }


def timeseries(panel):
    """A panel of the other rows."""
    custom = {"drawStyle": "line", "lineInterpolation": "linear", "lineWidth": 1, "fillOpacity": 0,
              "showPoints": "auto", "pointSize": 4, "spanNulls": 3000, "axisPlacement": "auto",
              "scaleDistribution": {"type": "log", "log": 10} if panel.log else {"type": "linear"}}
    return {
        "type": "timeseries", "title": panel.title, "description": panel.description, "datasource": DATASOURCE,
        "targets": [target(n, query(line), panels.legend(line)) for n, line in enumerate(panel.lines)],
        "fieldConfig": field_config(panel.unit, custom),
        "options": {"legend": {"displayMode": "table", "placement": "bottom", "showLegend": True,
                               "calcs": ["mean", "max", "lastNotNull"]},
                    "tooltip": {"mode": "multi", "sort": "desc"}},
    }


def row(title):
    """A heading between panels."""
    return {"type": "row", "title": title, "collapsed": False, "panels": []}


def laid_out():
    """All panels with their places and numbers."""
    out, y = [], 0

    def place(panel, x, width, height):
        out.append(dict(panel, id=len(out) + 1, gridPos={"x": x, "y": y, "w": width, "h": height}))

    place(row(panels.ROWS[1]), 0, COLUMNS, 1)
    y += 1
    for number, facts in enumerate(stat_queries()):
        place(stat(*facts), number * 6, 6, STAT_HEIGHT)
    y += STAT_HEIGHT
    for number in sorted({p.row for p in panels.PANELS}):
        place(row(panels.ROWS[number]), 0, COLUMNS, 1)
        y += 1
        members = [p for p in panels.PANELS if p.row == number]
        for place_in_row, panel in enumerate(members):
            place(timeseries(panel), 12 * (place_in_row % 2), 12, PANEL_HEIGHT)
            if place_in_row % 2 == 1 or place_in_row == len(members) - 1:
                y += PANEL_HEIGHT
    return out


def variable(name, label, definition, about):
    """A variable filled by a query."""
    return {"type": "query", "name": name, "label": label, "description": about, "datasource": DATASOURCE,
            "definition": definition, "query": {"query": definition, "refId": f"variable-{name}"},
            "multi": True, "includeAll": True, "refresh": 2, "sort": 1, "hide": 0, "options": [],
            "current": {"text": ["All"], "value": ["$__all"]}}


def dashboard():
    """The whole dashboard."""
    variables = [
        {"type": "datasource", "name": "datasource", "label": "Prometheus", "query": "prometheus", "hide": 0,
         "description": "The Prometheus that scrapes exporter and load generator.", "multi": False,
         "includeAll": False, "options": [], "refresh": 1, "current": {"text": "default", "value": "default"}},
        variable("job", "Job", "label_values(bench_run_active, job)", "Scrape jobs of comparison runs."),
        variable("server", "Server", 'label_values(bench_run_active{job=~"$job"}, server)', "Servers under test."),
        variable("run", "Run", 'label_values(bench_run_active{job=~"$job",server=~"$server"}, run)',
                 "Run / workload / round."),
    ]
    annotation = {"name": "Runs", "datasource": DATASOURCE, "enable": True, "hide": False, "iconColor": "#8e9aa6",
                  "expr": f'bench_run_active{{{CHOSEN},run=~"$run"}}', "step": "1s",
                  "titleFormat": "{{server}}", "textFormat": "{{run}}", "tagKeys": "server"}
    return {
        "uid": "ws-compare", "title": "WebSocket servers compared",
        "description": "CPU, memory, messages and latency of WebSocket servers under the same load.",
        "tags": ["websocket", "benchmark"], "schemaVersion": 39, "version": 1, "editable": True, "graphTooltip": 1,
        "timezone": "browser", "refresh": "5s", "time": {"from": "now-15m", "to": "now"},
        "timepicker": {"refresh_intervals": ["1s", "5s", "10s", "30s", "1m", "5m"]},
        "templating": {"list": variables}, "annotations": {"list": [annotation]}, "links": [],
        "panels": laid_out(),
    }


def main():
    """Write or check."""
    text = json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n"
    if sys.argv[1:] == ["--check"]:
        if not OUTPUT.exists() or OUTPUT.read_text(encoding="utf-8") != text:
            print(f"{OUTPUT.name} differs from its source: run `make bench-dashboard`", file=sys.stderr)
            return 1
        return 0
    if sys.argv[1:]:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    OUTPUT.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
