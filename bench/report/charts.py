"""Bar charts and time charts of a run with gnuplot, as PNG and SVG. The scripts stay beside the pictures."""

import shutil
import subprocess

from report import palette, series
from run import show, store
from run.measures import BY_KEY

FONT = "DejaVu Sans"
PANEL_WIDTH, PANEL_HEIGHT = 620, 330
BAR_KEYS = ("mbps_down", "messages_per_s", "handshakes_per_s", "rss_slope", "cpu_percent", "rss", "kernel_stack",
            "p50_us", "p99_us", "p999_us")


def _quote(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _terminals(width, height):
    return (("png", f"pngcairo size {width},{height} font '{FONT},10' background '#ffffff'"),
            ("svg", f"svg size {width},{height} font '{FONT},13' background '#ffffff' dynamic"))


def _heading(text):
    """A panel's title above its left edge; gnuplot's own would be centred."""
    return f"set label 2 {_quote(text)} at graph 0,1.07 left textcolor rgb '#111111'"


def _bar_panel(rows, measure):
    """One horizontal bar per server, a line from the least to the greatest round; marked rows are pale."""
    shown = [r for r in rows if r["values"].get(measure.key, {}).get("median") is not None]
    if not shown:
        return None
    lines = [f"$d_{measure.key} << EOD"]
    tics, top, bottom = [], 0.0, 0.0
    for place, row in enumerate(reversed(shown)):
        value = row["values"][measure.key]
        middle, low, high = (value[k] / measure.scale for k in ("median", "min", "max"))
        top, bottom = max(top, high), min(bottom, low)
        colour = int(palette.colour(row["server"])[1:], 16) + (0xA0000000 if row["marks"] else 0)
        lines.append(f"{place} {middle:.6g} {low:.6g} {high:.6g} {colour} {_quote(measure.show(value['median']))}")
        name = row["server"] + (" *" if row["marks"] else "")
        tics.append(f"{_quote(name)} {place}")
    better = {"low": "less is better", "high": "more is better"}.get(measure.better, "")
    title = f"{measure.label} {measure.unit}".strip() + (f"  ({better})" if better else "")
    return "\n".join(lines + [
        "EOD", _heading(title), f"set ytics ({', '.join(tics)})",
        f"set yrange [-0.6:{len(shown) - 0.4}]", f"set xrange [{1.1 * bottom:.6g}:{max(top, 1e-9) * 1.18:.6g}]",
        f"plot $d_{measure.key} using (0.5*$2):1:(0.5*abs($2)):(0.36):5 with boxxyerror lc rgb variable, "
        f"'' using 2:1:3:4 with xerrorbars lc rgb '#333333' lw 1.2 pt 0, "
        f"'' using 4:1:6 with labels left offset 0.6,0 font ',9' textcolor rgb '#333333'"])


_STYLE = """set encoding utf8
set tics nomirror out scale 0.5 textcolor rgb '#333333'
set border 3 lc rgb '#888888'
set grid x lc rgb '#dddddd' lt 1
set key off
set style fill solid noborder
set bars 0.6
"""


def _bars(results, workload, rows):
    keys = [k for k in BAR_KEYS if k in workload["table"] or k == workload["rank_by"]][:6]
    panels = [p for p in (_bar_panel(rows, BY_KEY[k]) for k in keys) if p]
    if not panels:
        return None
    across = 2 if len(panels) > 1 else 1
    down = (len(panels) + across - 1) // across
    servers = len([r for r in rows if not r["skipped"]])
    height = down * (90 + max(6, servers) * 24) + 50
    title = f"{workload['name']}: {workload['title']}"
    foot = "bars: median of the rounds, lines: least to greatest"
    if any(r["marks"] and not r["skipped"] for r in rows):
        foot += "; * and pale: marked, not ranked"
    script = _STYLE + "set lmargin 20\nset rmargin 3\nset tmargin 3\n"
    script += f"set multiplot layout {down},{across} title {_quote(title)} font ',12'\n"
    script += f"set label 1 {_quote(foot + '; run ' + results['run'])} at screen 0.01,0.012 left font ',8' "
    script += "textcolor rgb '#666666'\nset bmargin 3.5\n"
    panels[0] += "\nunset label 1"
    return script + "\n".join(panels) + "\nunset multiplot\n", across * PANEL_WIDTH, height


def _time_panel(lines, key, title, scale):
    blocks, plots = [], []
    for number, (server, points) in enumerate(lines):
        if not points:
            continue
        name = f"$t_{key}_{number}"
        blocks.append("\n".join([f"{name} << EOD"] + [f"{t:.3f} {v / scale:.6g}" for t, v in points] + ["EOD"]))
        style = "lines" if len(points) > 2 else "linespoints pt 7 ps 0.6"
        plots.append(f"{name} using 1:2 with {style} lw 2 lc rgb '{palette.colour(server)}' title {_quote(server)}")
    if not plots:
        return None
    return "\n".join(blocks + [_heading(title), "set yrange [0:*]", "plot " + ", ".join(plots)])


def _times(folder, results, workload):
    """CPU and memory of the first round over time, all servers laid over each other."""
    cells = [c for c in results["cells"] if c["workload"] == workload["name"] and c["status"] == "ok"]
    if not cells:
        return None
    first = min(c["round"] for c in cells)
    loaded = [(c["server"], series.Series(store.load_series(folder, c), c)) for c in cells if c["round"] == first]
    times = [t for _, s in loaded for t, _ in s.single("rss")]
    panels = []
    for key, title, scale in (("cpu", "CPU, cores", 1.0), ("rss", "resident memory, MiB", 2.0**20)):
        lines = [(server, s.single(key)) for server, s in loaded]
        panels.append(_time_panel(lines, key, title, scale))
    panels = [p for p in panels if p]
    if not panels:
        return None
    title = f"{workload['name']} over time, round {first}: {workload['title']}"
    script = _STYLE + "set grid y lc rgb '#dddddd' lt 1\nset xlabel 'seconds from the start of the steady window'\n"
    script += "set key outside right top vertical font ',9' samplen 1.5\nset lmargin 9\nset tmargin 3\n"
    script += f"set xrange [{min(times):.2f}:{max(times):.2f}]\n"
    script += f"set multiplot layout {len(panels)},1 title {_quote(title)} font ',12'\n"
    return script + "\n".join(panels) + "\nunset multiplot\n", 1000, PANEL_HEIGHT * len(panels)


def _draw(folder, name, made):
    script, width, height = made
    written = []
    for kind, terminal in _terminals(width, height):
        path = folder / f"{name}.{kind}"
        text = f"set terminal {terminal}\nset output {_quote(path.name)}\n{script}"
        store.write_atomically(folder / f"{name}-{kind}.gp", text)
        done = subprocess.run(["gnuplot", f"{name}-{kind}.gp"], cwd=folder, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False)
        if done.returncode != 0 or not path.exists():
            show.warn(f"gnuplot drew no {path.name}: {done.stderr.strip()[:300]}")
            continue
        written.append(path)
    return written


def make(folder, results):
    """Write charts/ of a run. Returns the paths; none, with a line that says so, without gnuplot."""
    if not shutil.which("gnuplot"):
        show.warn("no charts: gnuplot is missing (apt-get install gnuplot-nox)")
        return []
    target = folder / "charts"
    target.mkdir(exist_ok=True)
    written = []
    for workload in results["workloads"]:
        rows = [r for r in results["rows"] if r["workload"] == workload["name"]]
        for name, made in ((workload["name"], _bars(results, workload, rows)),
                           (f"{workload['name']}-time", _times(folder, results, workload))):
            if made:
                written += _draw(target, name, made)
    return written
