"""The machine and the versions a run was made on."""

import os
import platform
import resource
import subprocess


def _first_line(argv, cwd=None):
    try:
        done = subprocess.run(argv, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20,
                              check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = (done.stdout or done.stderr).strip()
    return text.splitlines()[0] if done.returncode == 0 and text else None


def _cpu_model():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
            for line in cpuinfo:
                if line.lower().startswith(("model name", "hardware")):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def _memory_bytes():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _distribution():
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def _read(path):
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None


def describe():
    """Facts that change the figures, as a flat table."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "cores_allowed": len(os.sched_getaffinity(0)),
        "memory_bytes": _memory_bytes(),
        "kernel": platform.release(),
        "system": _distribution(),
        "descriptor_limit": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        "pid_max": int(_read("/proc/sys/kernel/pid_max") or 0),
        "somaxconn": int(_read("/proc/sys/net/core/somaxconn") or 0),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "load_average": list(os.getloadavg()),
    }


def versions(root, load_program):
    """Versions of the tools that a run stands on; None for what is not there."""
    changed = _first_line(["git", "status", "--porcelain", "--untracked-files=no"], cwd=root)
    return {
        "commit": _first_line(["git", "rev-parse", "--short=12", "HEAD"], cwd=root),
        "tree_changed": changed is not None,
        "load": _first_line([str(load_program), "--version"]),
        "gcc": _first_line(["gcc", "--version"]),
        "openssl": _first_line(["openssl", "version"]),
        "python": platform.python_version(),
    }


def raise_descriptor_limit():
    """Soft limit up to the hard one, for this process and its children."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
