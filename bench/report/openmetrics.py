"""A run as OpenMetrics text, so that `promtool tsdb create-blocks-from openmetrics` makes it open in the dashboard.

Prometheus adds `job` and `instance` when it scrapes; here they are written as prometheus.yml would have them.
"""

from run import store

JOB = "ws-compare"
TYPES = ("counter", "gauge")


def _escape(text):
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _instance(name):
    return "load" if name.startswith("bench_load_") else "exporter"


def _labels(name, labels):
    pairs = dict(labels, job=JOB, instance=_instance(name))
    return "{" + ",".join(f'{k}="{_escape(v)}"' for k, v in sorted(pairs.items())) + "}"


def _number(value):
    return repr(int(value)) if value == int(value) and abs(value) < 2**53 else repr(value)


class Run:
    """All samples of a run by metric and series, in the order of time."""

    def __init__(self):
        self.families = {}
        self.series = {}

    def add(self, series):
        """Take the samples of one cell."""
        for name, facts in series.get("families", {}).items():
            self.families.setdefault(name, facts)
        columns = series.get("columns", [])
        for sample in series["samples"]:
            for column, value in zip(columns, sample[1:]):
                if value is not None:
                    points = self.series.setdefault(column["name"], {})
                    points.setdefault(_labels(column["name"], column["labels"]), []).append((sample[0], value))

    def _family(self, name):
        facts = self.families.get(name, {})
        kind = facts.get("type", "").strip()
        if kind not in TYPES or (kind == "counter" and not name.endswith("_total")):
            kind = "unknown"
        family = name[: -len("_total")] if kind == "counter" else name
        return family, kind, facts.get("help", "").strip()

    def text(self):
        """The whole run; ends with `# EOF`."""
        lines = []
        for name in sorted(self.series):
            family, kind, help_text = self._family(name)
            lines.append(f"# TYPE {family} {kind}")
            if help_text:
                lines.append(f"# HELP {family} {help_text}")
            for labels, points in sorted(self.series[name].items()):
                points.sort()
                lines += [f"{name}{labels} {_number(value)} {at:.3f}" for at, value in points]
        return "\n".join(lines + ["# EOF", ""])


def text(folder, results):
    """OpenMetrics text of a run's folder; None when nothing was sampled."""
    run = Run()
    for cell in results["cells"]:
        run.add(store.load_series(folder, cell))
    return run.text() if run.series else None
