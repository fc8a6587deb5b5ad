"""The folder of one run. Every file in it is complete at any moment: written beside, then renamed.

results.json is rewritten after each cell, so a run that is cut short keeps everything measured until then.
"""

import json
import os
from pathlib import Path

from run.errors import RunError

SCHEMA = 1


def write_atomically(path, text):
    """Replace a file by the text, or leave the old one and raise RunError."""
    temporary = path.with_name(path.name + ".part")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        try:
            temporary.unlink()
        except OSError:
            pass
        raise RunError(f"cannot write {path}: {error.strerror}; what was written before is kept") from error


class Store:
    """results.json, the series and the logs of one run."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.series_folder = self.folder / "series"
        self.logs = self.folder / "logs"
        self.results = {"schema": SCHEMA, "complete": False, "cells": []}

    def create(self, **facts):
        """Make the folder and the first results.json, so that a bad place is found before anything is measured."""
        for folder in (self.folder, self.series_folder, self.logs):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise RunError(f"cannot make {folder}: {error.strerror}") from error
        self.results.update(facts)
        self.save()

    def save(self):
        """Write results.json."""
        text = json.dumps(self.results, indent=1, ensure_ascii=False, allow_nan=False)
        write_atomically(self.folder / "results.json", text + "\n")

    def add(self, cell, series):
        """Keep one cell and its samples of each second."""
        if series["samples"]:
            name = f"{cell['workload']}-{cell['server']}-r{cell['round']}.json"
            write_atomically(self.series_folder / name, json.dumps(series, allow_nan=False) + "\n")
            cell["series"] = f"series/{name}"
        self.results["cells"].append(cell)
        self.save()


def load(folder):
    """results.json of a finished or broken-off run."""
    path = Path(folder) / "results.json"
    try:
        with open(path, encoding="utf-8") as file:
            results = json.load(file)
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise RunError(f"{path} is not JSON: {error}") from error
    if results.get("schema") != SCHEMA:
        raise RunError(f"{path} has schema {results.get('schema')}, this program reads {SCHEMA}")
    return results


def load_series(folder, cell):
    """Samples of one cell; none when it was not sampled."""
    if not cell.get("series"):
        return {"samples": []}
    with open(Path(folder) / cell["series"], encoding="utf-8") as file:
        return json.load(file)
