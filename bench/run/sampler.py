"""The time series of one cell: each second, what Prometheus would have scraped at that moment."""

import time

from run import scrape

# The buckets would be nine tenths of the volume; the quantiles of each second are kept.
SKIPPED = ("bench_load_latency_seconds",)


class Sampler:
    """Collects columns; a series that is missing at some moment is None there."""

    def __init__(self, server, addresses, interval_s=1.0):
        self._server = server
        self._addresses = addresses
        self._interval_s = interval_s
        self._next = time.monotonic()
        self._columns = {}
        self._rows = []
        self._families = {}

    def due_in(self):
        """Seconds until the next sample is due, at least 0."""
        return max(0.0, self._next - time.monotonic())

    def sample(self):
        """Take one sample of every address and plan the next."""
        now = time.monotonic()
        self._next = self._next + self._interval_s if 0 <= now - self._next < self._interval_s else now + self._interval_s
        row = {}
        at = time.time()
        for address in self._addresses:
            answer = scrape.fetch(address)
            if answer is not None:
                self._take(answer, row)
        if row:
            self._rows.append((at, row))

    def _take(self, answer, row):
        for name, labels, value in answer.samples:
            if name.startswith(SKIPPED) or labels.get("server", self._server) != self._server:
                continue
            key = (name, tuple(sorted(labels.items())))
            column = self._columns.setdefault(key, len(self._columns))
            row[column] = value
        for name, facts in answer.families.items():
            if not name.startswith(SKIPPED):
                self._families[name] = facts

    def points(self, name):
        """(unix seconds, value) of the first series of that name."""
        columns = [i for (n, _labels), i in self._columns.items() if n == name]
        return [(at, row[columns[0]]) for at, row in self._rows if columns and columns[0] in row]

    def series(self):
        """All of it, as JSON can hold it."""
        width = len(self._columns)
        return {
            "families": self._families,
            "columns": [{"name": name, "labels": dict(labels)} for name, labels in self._columns],
            "samples": [[round(at, 3)] + [row.get(i) for i in range(width)] for at, row in self._rows],
        }
