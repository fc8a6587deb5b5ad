"""Runs build/bench/exporter beside the servers and tells it whom to watch."""

import time

from run import scrape, store
from run.errors import RunError

READY_TIMEOUT_S = 5.0


class Exporter:
    """One exporter for the whole run; the file it re-reads at each scrape names the server of the moment."""

    def __init__(self, program, listen, address, folder):
        self.address = address
        self._listen = listen
        self._program = program
        self._procs_file = folder / "procs"
        self._log = folder / "exporter.log"

    def start(self, children):
        """Start it and wait until it answers."""
        self.forget()
        child = children.start("exporter", [self._program, "--listen", self._listen, "--procs-file",
                                            self._procs_file], self._log)
        deadline = time.monotonic() + READY_TIMEOUT_S
        while scrape.fetch(self.address) is None:
            if child.exited() or time.monotonic() > deadline:
                raise RunError(f"the exporter does not answer on {self.address}: {child.log_tail() or 'no output'}")
            time.sleep(0.02)

    def watch(self, server, pid, run):
        """From the next scrape on: this process, and no other."""
        store.write_atomically(self._procs_file, f"server={server},pid={pid},run={run}\n")

    def forget(self):
        """From the next scrape on: nobody."""
        store.write_atomically(self._procs_file, "")
