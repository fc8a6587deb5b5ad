"""Starts build/bench/load and follows its phases. Its output is described in bench/load/SCHEMA.md."""

import json
import os
import select

SCHEMA = 1


def argv(program, workload, timing, url, json_path, part=None):
    """Command line for one cell; `part` is a companion of the workload instead of its main load."""
    part = part or workload
    line = [program, "-c", part.connections, "--connect-rate", workload.connect_rate, *part.arguments,
            "-d", timing.window_s, "--warmup", timing.warmup_s, "--drain", workload.drain_s, "--json", json_path]
    if workload.deflate:
        line.append("--deflate")
    if workload.tls:
        line.append("--insecure")
    return [str(a) for a in line + [url]]


def reporting(metrics, labels, events_fd):
    """Options of the main load: where it can be watched, and the pipe for its phases."""
    line = ["--metrics", metrics, "--events", f"/dev/fd/{events_fd}"]
    for name, value in labels.items():
        line += ["--label", f"{name}={value}"]
    return line


class Phases:
    """The generator's own account of what it is doing, read from a pipe as it happens."""

    def __init__(self):
        self._read, self.write = os.pipe()
        os.set_blocking(self._read, False)
        self._rest = b""
        self.closed = False

    def close_write(self):
        """The child has its own copy; ours has to go, so that its end is seen."""
        if self.write is not None:
            os.close(self.write)
            self.write = None

    def close(self):
        """Give back both ends."""
        self.close_write()
        if self._read is not None:
            os.close(self._read)
            self._read = None

    def wait(self, timeout_s):
        """Names of the phases that began within the time; returns at the first."""
        if self.closed:
            select.select([], [], [], timeout_s)
            return []
        ready, _, _ = select.select([self._read], [], [], timeout_s)
        if not ready:
            return []
        data = os.read(self._read, 65536)
        if not data:
            self.closed = True
            return []
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line)["phase"] for line in lines if line.strip()]


def read_json(path):
    """The generator's result; None when it left none."""
    try:
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
    except (OSError, ValueError):
        return None
    return result if result.get("schema") == SCHEMA else None
