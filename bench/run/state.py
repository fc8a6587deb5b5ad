"""What the run is doing right now, for `make top`. Losing it loses nothing."""

import json
import os
import time


class State:
    """A small JSON file, replaced at each change."""

    def __init__(self, path):
        self._path = path
        self._facts = {}

    def update(self, **facts):
        """Change some facts and write all of them."""
        self._facts.update(facts, updated_unix=time.time(), runner_pid=os.getpid())
        temporary = self._path.with_suffix(".part")
        try:
            temporary.write_text(json.dumps(self._facts), encoding="utf-8")
            os.replace(temporary, self._path)
        except OSError:
            pass

    def clear(self):
        """The run is over."""
        try:
            self._path.unlink()
        except OSError:
            pass


def read(path):
    """The facts, or None when no run is going on."""
    try:
        with open(path, encoding="utf-8") as file:
            facts = json.load(file)
        os.kill(facts["runner_pid"], 0)
    except (OSError, ValueError, KeyError):
        return None
    return facts
