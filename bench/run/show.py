"""What the runner says on the terminal while it works."""

import sys

from run.measures import BY_KEY

BRIEF = ("cpu_percent", "rss", "mbps_down", "messages_per_s", "p50_us", "p99_us", "handshakes_per_s", "open_s")


_line_is_open = False


def _close_line():
    global _line_is_open
    if _line_is_open:
        print(flush=True)
        _line_is_open = False


def say(text):
    """One line of ordinary news."""
    global _line_is_open
    print(text, flush=True)
    _line_is_open = False


def warn(text):
    """One line that somebody should see."""
    _close_line()
    print(f"bench: {text}", file=sys.stderr, flush=True)


def begin(number, total, record):
    """The head of a cell's line."""
    global _line_is_open
    _line_is_open = True
    print(f"[{number:3}/{total}] {record['workload']:<10} round {record['round']}  {record['server']:<18}", end=" ",
          flush=True)


def end(record, workload):
    """The rest of it."""
    if record["status"] != "ok":
        say(f"FAILED: {record['error']}")
        return
    shown = []
    for key in BRIEF:
        value = record["measures"].get(key)
        if value is not None and (key in workload.table or key == workload.rank_by):
            measure = BY_KEY[key]
            shown.append(f"{measure.label} {measure.show(value)} {measure.unit}".strip())
    marks = f"  [{'; '.join(record['marks'])}]" if record["marks"] else ""
    notes = f"  ({'; '.join(record['notes'])})" if record["notes"] else ""
    say(", ".join(shown) + marks + notes)
