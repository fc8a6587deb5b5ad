"""The soak: text that is not ASCII, messages of 10 MiB among small ones, for hours; the memory's slope results."""

from run import measures
from run.errors import RunError
from run.workloads import Companion, Timing, Workload

SMALL_BYTES = 1000
BIG_BYTES = 10 * 1024 * 1024
SAMPLES_WANTED = 3600
WARMUP_S = 600.0
SHORTEST_S = 1800.0
# Two, three and four bytes in UTF-8, right to left, combining marks, and a character beyond the first plane at the end.
PATTERN = "Grüße, κόσμε, привет, 你好, สวัสดี, שלום, नमस्ते, e\u0301, 𝄞, 🧵. "


def text_of(size):
    """Valid UTF-8 of exactly so many bytes, none of it cut inside a character."""
    unit = PATTERN.encode("utf-8")
    whole = unit * (size // len(unit))
    return whole + b"~" * (size - len(whole))


def slope_per_hour(points):
    """Least-squares slope of (unix seconds, value) points, per hour; None below three points."""
    if len(points) < 3:
        return None
    mean_t = sum(t for t, _ in points) / len(points)
    mean_v = sum(v for _, v in points) / len(points)
    across = sum((t - mean_t) ** 2 for t, _ in points)
    if across == 0:
        return None
    return 3600.0 * sum((t - mean_t) * (v - mean_v) for t, v in points) / across


def workload(hours, folder):
    """The soak as a workload; writes its two message files."""
    files = {"small": text_of(SMALL_BYTES), "big": text_of(BIG_BYTES)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, body in files.items():
            (folder / name).write_bytes(body)
    except OSError as error:
        raise RunError(f"cannot write the soak's messages into {folder}: {error.strerror}") from error
    seconds = hours * 3600.0
    return Workload(
        "soak", f"soak for {hours:g} h: 200 connections × 20 msg/s × 1,000 B, 4 × 10 MiB each 10 s, UTF-8 text",
        200, ("-r", "20", "-f", str(folder / "small")), "rss_slope",
        table=("rss_slope", "rss", "rss_peak") + measures.TABLE[:1] + measures.TABLE[2:],
        companions=(Companion(4, ("-r", "0.1", "-f", str(folder / "big"))),),
        timing=Timing(min(WARMUP_S, seconds / 10.0), seconds), sample_s=max(1.0, seconds / SAMPLES_WANTED))
