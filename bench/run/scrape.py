"""Reads Prometheus text over HTTP: only what the exporter and the generator write."""

import http.client
import re

TIMEOUT_S = 2.0

_SAMPLE = re.compile(r'^([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})?\s+(\S+)$')
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


class Scrape:
    """One answer: samples and what is known of their families."""

    def __init__(self):
        self.samples = []
        self.families = {}

    def value(self, name, **labels):
        """Sum of the samples of that name whose labels include the given ones; None when there is none."""
        found = [v for n, have, v in self.samples if n == name and all(have.get(k) == w for k, w in labels.items())]
        return sum(found) if found else None


def _unescape(text):
    return re.sub(r'\\[\\"n]', lambda m: _ESCAPES[m.group()], text)


def parse(text):
    """Samples as (name, labels, value), families as name to {type, help}."""
    out = Scrape()
    for line in text.splitlines():
        if line.startswith(("# TYPE ", "# HELP ")):
            kind, name, rest = (line[2:].split(" ", 2) + [""])[:3]
            out.families.setdefault(name, {})[kind.lower()] = rest
            continue
        if not line or line.startswith("#"):
            continue
        match = _SAMPLE.match(line)
        if match:
            labels = {k: _unescape(v) for k, v in _LABEL.findall(match.group(2) or "")}
            out.samples.append((match.group(1), labels, float(match.group(3))))
    return out


def fetch(address):
    """Scrape of HOST:PORT; None when nobody answers properly."""
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        body = answer.read().decode("utf-8", "replace")
        return parse(body) if answer.status == 200 else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
