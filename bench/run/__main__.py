"""Comparison runs: `python3 bench/run --help`, or `make bench`."""

import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from run import cli  # noqa: E402  (the path has to be set first)

sys.exit(cli.main(sys.argv[1:]))
