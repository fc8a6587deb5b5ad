"""From cells to rows: medians, spread, ratio to a base server, marks and ranks.

A cell is one server under one workload in one round. A row is one server under one workload over all rounds.
"""

from statistics import median

from run import store
from run.measures import BY_KEY

CARRIED_ALL = 0.99
RATIO_KEYS = ("cpu_percent", "rss", "mbps_down", "p99_us", "messages_per_s", "handshakes_per_s")


def spread(values):
    """Median, least and greatest of the values that are there."""
    there = [v for v in values if v is not None]
    if not there:
        return {"median": None, "min": None, "max": None, "rounds": 0}
    return {"median": median(there), "min": min(there), "max": max(there), "rounds": len(there)}


def _paired_ratio(cells, base_cells, key):
    """Median over the rounds of this server's value to the base's value in the same round.

    Paired by round, because neighbours in time share the machine's mood and rounds far apart do not.
    """
    base = {c["round"]: c["measures"].get(key) for c in base_cells}
    ratios = []
    for cell in cells:
        mine, other = cell["measures"].get(key), base.get(cell["round"])
        if mine is not None and other:
            ratios.append(mine / other)
    return median(ratios) if ratios else None


def _row(server, workload, cells, base_cells):
    done = [c for c in cells if c["status"] == "ok"]
    marks = sorted({m for c in done for m in c["marks"]} |
                   {c["error"] for c in cells if c["status"] != "ok"})
    keys = [k for k in BY_KEY if any(k in c["measures"] for c in done)]
    values = {k: spread([c["measures"].get(k) for c in done]) for k in keys}
    for key in RATIO_KEYS:
        if key in values:
            values[key]["ratio"] = _paired_ratio(done, base_cells, key)
    return {
        "server": server,
        "workload": workload["name"],
        "rounds_done": len(done),
        "rounds_failed": sum(c["status"] == "failed" for c in cells),
        "skipped": all(c["status"] == "skipped" for c in cells),
        "marks": marks,
        "notes": sorted({n for c in done for n in c["notes"]}),
        "rank": None,
        "values": values,
    }


def _order(row, key):
    """Sort key of a row. Servers that carried all that was offered tie on bandwidth: their CPU orders them."""
    value = row["values"][key]["median"]
    carried = row["values"].get("carried", {}).get("median")
    if key == "mbps_down" and carried is not None and carried >= CARRIED_ALL:
        return (0, row["values"]["cpu_percent"]["median"])
    return (1, value if BY_KEY[key].better == "low" else -value)


def _rank(rows, key):
    """Number the clean rows by the measure; a marked row is never ranked."""
    clean = [r for r in rows if not r["marks"] and r["values"].get(key, {}).get("median") is not None]
    clean.sort(key=lambda r: _order(r, key))
    for place, row in enumerate(clean, 1):
        row["rank"] = place


def rows(results):
    """All rows of a run, workload by workload, ranked ones first."""
    out = []
    for workload in results["workloads"]:
        cells = [c for c in results["cells"] if c["workload"] == workload["name"]]
        base = [c for c in cells if c["server"] == results["base"] and c["status"] == "ok" and not c["marks"]]
        servers = [s for s in results["servers"] if any(c["server"] == s for c in cells)]
        block = [_row(s, workload, [c for c in cells if c["server"] == s], base) for s in servers]
        _rank(block, workload["rank_by"])
        block.sort(key=lambda r: (r["rank"] is None, r["rank"] or 0, r["skipped"], r["server"]))
        out += block
    return out


def of_folder(folder):
    """results.json of a run's folder with its rows made anew."""
    results = store.load(folder)
    results["rows"] = rows(results) if results.get("servers") else []
    return results
