"""Tells a leak from noise in a series of samples.

What a server holds goes up and down with its load, so the floor is looked at: after the warm-up the time is cut into
windows, and the least value of each is kept. A line is laid through these minima by Theil and Sen (the median of the
slopes of all pairs), which a few odd windows do not move. A series fails when that line rises by more than its bound
over the measured time, and the rise is no chance (Mann and Kendall's test, one-sided).
"""

import math
import statistics

WINDOWS = 24
SURE = 2.33  # standard deviations: 1 in 100 by chance, and then the bound comes on top


class Bound:
    """How much a series may rise over the whole measured time: so much, and a share of its level."""

    def __init__(self, much, share=0.0):
        self.much = much
        self.share = share

    def of(self, level):
        return self.much + self.share * level


class Verdict:
    def __init__(self, rise=0.0, per_hour=0.0, level=0.0, bound=0.0, sureness=0.0, windows=0):
        self.rise = rise
        self.per_hour = per_hour
        self.level = level
        self.bound = bound
        self.sureness = sureness
        self.windows = windows

    @property
    def leaks(self):
        return self.rise > self.bound and self.sureness > SURE


def minima(points, windows=WINDOWS):
    """(time of the middle, least value) of each window that has samples."""
    first, last = points[0][0], points[-1][0]
    width = (last - first) / windows
    if width <= 0:
        return [points[0]]
    least = {}
    for at, value in points:
        index = min(windows - 1, int((at - first) / width))
        least[index] = min(value, least.get(index, value))
    return [(first + (index + 0.5) * width, value) for index, value in sorted(least.items())]


def theil_sen(points):
    """The median slope of all pairs."""
    slopes = [(v2 - v1) / (t2 - t1) for i, (t1, v1) in enumerate(points) for t2, v2 in points[i + 1:] if t2 > t1]
    return statistics.median(slopes) if slopes else 0.0


def mann_kendall(points):
    """How many standard deviations the count of rising pairs lies above that of falling ones; ties count for neither."""
    values = [v for _, v in points]
    n = len(values)
    score = sum((b > a) - (b < a) for i, a in enumerate(values) for b in values[i + 1:])
    ties = sum(k * (k - 1) * (2 * k + 5) for k in (values.count(v) for v in set(values)))
    variance = (n * (n - 1) * (2 * n + 5) - ties) / 18.0
    if variance <= 0 or score == 0:
        return 0.0
    return (score - math.copysign(1, score)) / math.sqrt(variance)


def judge(points, bound, warm_up):
    """Points are (seconds, value), in order. The first warm_up seconds do not count."""
    kept = [(t, v) for t, v in points if t >= points[0][0] + warm_up] if points else []
    if len(kept) < 8:
        raise ValueError(f"{len(kept)} samples after the warm-up are too few to tell a slope")
    floor = minima(kept)
    slope = theil_sen(floor)
    level = statistics.median(v for _, v in floor)
    return Verdict(rise=slope * (kept[-1][0] - kept[0][0]), per_hour=slope * 3600.0, level=level,
                   bound=bound.of(level), sureness=mann_kendall(floor), windows=len(floor))
