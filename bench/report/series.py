"""The samples of one cell, read the way the panels ask for them. Times are seconds from the start of the window."""

import re

from report import panels

COUNTER_GAP_S = 10.0
CLOSE_S = 0.4


class Series:
    """One cell's time series."""

    def __init__(self, stored, cell):
        window = cell.get("window") or {"start": cell["started_unix"]}
        self._zero = window["start"]
        self._columns = stored.get("columns", [])
        self._samples = stored["samples"]

    def _matching(self, line):
        """Column numbers by the values of the labels the line is split by."""
        found = {}
        for number, column in enumerate(self._columns, 1):
            labels = column["labels"]
            if column["name"] == line.metric and all(_holds(labels.get(k, ""), op, v) for k, op, v in line.where):
                found.setdefault(tuple(labels.get(k, "") for k in line.by), []).append(number)
        return found

    def _points(self, numbers):
        out = []
        for sample in self._samples:
            values = [sample[n] for n in numbers if sample[n] is not None]
            if values:
                out.append((sample[0] - self._zero, sum(values)))
        return out

    def read(self, line):
        """Label values to [(seconds, value)], sums over what the line is not split by."""
        out = {}
        for key, numbers in sorted(self._matching(line).items()):
            points = self._points(numbers)
            out[key] = _rate(points) if line.kind == panels.RATE else points
        return out

    def single(self, key):
        """The points of a panel that has one line and no split."""
        return self.read(panels.panel(key).lines[0]).get((), [])


def _holds(value, operator, wanted):
    if operator == "=~":
        return re.fullmatch(wanted, value) is not None
    return (value == wanted) == (operator == "=")


def _rate(points):
    """Rates between samples; one that follows another closely is passed over, as its rate would be mostly noise."""
    out = []
    if not points:
        return out
    (t0, v0), longest = points[0], COUNTER_GAP_S + 2 * _step(points)
    for t1, v1 in points[1:]:
        if t1 - t0 < CLOSE_S and v1 >= v0:
            continue
        if t1 - t0 <= longest and v1 >= v0:
            out.append((t1, (v1 - v0) / (t1 - t0)))
        t0, v0 = t1, v1
    return out


def _step(points):
    return (points[-1][0] - points[0][0]) / max(1, len(points) - 1)
