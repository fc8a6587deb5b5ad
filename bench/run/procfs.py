"""What /proc says about one process and about the machine. Units: seconds and bytes.

Reads only files whose cost does not grow with the number of threads more than it must: never /proc/PID/task, never
smaps. /proc/PID/stat adds up the threads' times in the kernel (about 1 ms at 8,000 threads).
"""

import os

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def process(pid):
    """CPU, memory and threads of a process; None when it is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            text = stat.read().decode("utf-8", "replace")
    except OSError:
        return None
    fields = text[text.rindex(")") + 2:].split()
    if fields[0] in ("Z", "X"):
        return None
    return {
        "user_s": int(fields[11]) / TICK,
        "system_s": int(fields[12]) / TICK,
        "threads": int(fields[17]),
        "rss": int(fields[21]) * PAGE,
    }


def peak_rss(pid):
    """High-water mark of resident memory in bytes; None when it cannot be read."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def kernel_memory():
    """Kernel stacks and slab of the whole machine, in bytes."""
    found = {}
    with open("/proc/meminfo", encoding="utf-8") as meminfo:
        for line in meminfo:
            name, value = line.split(":", 1)
            if name in ("KernelStack", "Slab", "SUnreclaim"):
                found[name] = int(value.split()[0]) * 1024
    return found


def machine_busy_s():
    """CPU seconds that all processes of the machine have used (user, nice, system)."""
    with open("/proc/stat", encoding="utf-8") as stat:
        fields = stat.readline().split()
    return sum(int(fields[i]) for i in (1, 2, 3)) / TICK


def tcp_listening(port):
    """True when a socket listens on the TCP port, without connecting to it."""
    wanted = f"{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as lines:
                next(lines)
                for line in lines:
                    fields = line.split()
                    if fields[3] == "0A" and fields[1].rsplit(":", 1)[1] == wanted:
                        return True
        except (OSError, StopIteration):
            continue
    return False
