"""uPlot, pinned: fetched once with npm into the build folder, checked against its digests, then put into the page."""

import hashlib
import shutil
import subprocess
import tarfile
from pathlib import Path

VERSION = "1.6.32"
DIGESTS = {
    "package/dist/uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "package/dist/uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
FOLDER = Path(__file__).resolve().parent.parent.parent / "build" / "bench" / "uplot"
FETCH_TIMEOUT_S = 120


class Missing(Exception):
    """uPlot cannot be had here; the text says why."""


def _fetch(archive):
    npm = shutil.which("npm")
    if not npm:
        raise Missing("npm is not installed")
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run([npm, "pack", "--silent", f"uplot@{VERSION}"], cwd=FOLDER, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise Missing("npm did not answer in time") from error
    if done.returncode != 0 or not archive.exists():
        raise Missing(f"npm could not fetch uplot@{VERSION}")


def sources():
    """(script, style) of uPlot; raises Missing."""
    archive = FOLDER / f"uplot-{VERSION}.tgz"
    if not archive.exists():
        _fetch(archive)
    found = []
    with tarfile.open(archive) as tar:
        for name, digest in DIGESTS.items():
            body = tar.extractfile(name).read()
            if hashlib.sha256(body).hexdigest() != digest:
                raise Missing(f"{archive} is not the uPlot that was pinned")
            found.append(body.decode("utf-8"))
    return tuple(found)
