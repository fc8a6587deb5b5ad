#!/usr/bin/env python3
"""Runs the Go tests of the dashboard's files, each as a TAP line; checks that the dashboard is up to date."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def go_results():
    """(name, passed, output) of every Go test."""
    done = subprocess.run(["go", "test", "-json", "-count=1", "./..."], cwd=HERE, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)
    outputs, verdicts = {}, {}
    for line in done.stdout.splitlines():
        event = json.loads(line)
        name = event.get("Test", "")
        outputs[name] = outputs.get(name, "") + event.get("Output", "")
        if event["Action"] in ("pass", "fail", "skip") and name:
            verdicts[name] = event["Action"] == "pass"
    if done.returncode != 0 and all(verdicts.values()):
        verdicts["go test"] = False
        outputs["go test"] = outputs.get("", "") + done.stderr
    return [(name, passed, outputs[name]) for name, passed in verdicts.items()]


def main():
    """Exit status 0 when all passed."""
    if not shutil.which("go"):
        print("1..1\nok 1 - dashboard files # SKIP go is not installed")
        return 0
    check = subprocess.run([sys.executable, str(ROOT / "bench/grafana/mkdashboard.py"), "--check"],
                           capture_output=True, text=True, check=False)
    results = [("dashboard is what its source says", check.returncode == 0, check.stderr)] + go_results()
    print(f"1..{len(results)}")
    for number, (name, passed, output) in enumerate(results, 1):
        print(f"{'ok' if passed else 'not ok'} {number} - {name}")
        if not passed:
            print("".join(f"# {line}\n" for line in output.splitlines()), end="")
    return 0 if all(passed for _, passed, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
