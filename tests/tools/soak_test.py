#!/usr/bin/env python3
"""The soak notices what it is there to notice: a small leak in noise, a wrong byte, a lost message, an early end."""

import argparse
import os
import pathlib
import random
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "soak"))
import slope  # noqa: E402
import soak  # noqa: E402

MIB = 1024 * 1024
HOUR = 3600.0
SEEDS = range(20)


def series(seed, hours=2.0, every=5.0, leak_per_hour=0.0, settle=0.0):
    """Memory as a server shows it: a floor, bursts on top, single steps down and up, some growth at the start."""
    dice = random.Random(seed)
    points = []
    step = 0.0
    at = 0.0
    while at < hours * HOUR:
        if dice.random() < 0.01:
            step = dice.uniform(0, 1.5 * MIB)
        burst = dice.expovariate(1 / (2 * MIB)) if dice.random() < 0.5 else 0.0
        settled = settle * min(1.0, at / 400.0)
        points.append((at, 30 * MIB + settled + step + burst + leak_per_hour * at / HOUR))
        at += every
    return points


def judge(points):
    return slope.judge(points, soak.BOUNDS["rss"], 600.0)


class Slope(unittest.TestCase):
    def test_noise_does_not_rise(self):
        for seed in SEEDS:
            self.assertFalse(judge(series(seed)).leaks, seed)

    def test_growth_during_the_warm_up_does_not_count(self):
        for seed in SEEDS:
            self.assertFalse(judge(series(seed, settle=40 * MIB)).leaks, seed)

    def test_small_leak_is_seen(self):
        for seed in SEEDS:
            verdict = judge(series(seed, leak_per_hour=2.0 * MIB))
            self.assertTrue(verdict.leaks, seed)
            self.assertAlmostEqual(verdict.per_hour / MIB, 2.0, delta=0.8)

    def test_one_descriptor_in_half_an_hour_is_seen(self):
        dice = random.Random(1)
        steady = [(t, 60 + dice.randrange(6)) for t in range(0, 7200, 5)]
        leaking = [(t, v + t // 1800) for t, v in steady]
        self.assertFalse(slope.judge(steady, soak.BOUNDS["descriptors"], 600).leaks)
        self.assertTrue(slope.judge(leaking, soak.BOUNDS["descriptors"], 600).leaks)

    def test_one_step_is_no_slope_and_a_fall_neither(self):
        steady = [(t, 50 * MIB) for t in range(0, 7200, 5)]
        late = [(t, v + (5 * MIB if t > 6600 else 0)) for t, v in steady]
        self.assertFalse(judge(late).leaks)
        self.assertFalse(judge(series(1, leak_per_hour=-3 * MIB)).leaks)

    def test_too_few_samples_are_an_error(self):
        for points in ([], [(0, 1)], [(t, 1) for t in range(0, 600, 5)]):
            with self.assertRaises(ValueError):
                judge(points)

    def test_minutes(self):
        self.assertEqual((soak.minutes("90"), soak.minutes("1.5h")), (90.0, 90.0))


class Run(unittest.TestCase):
    """Short runs of the real thing. Memory is not judged as it settles only after minutes."""

    def soak(self, seconds, kinds, fault="", bounds=(), load=100):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        args = argparse.Namespace(build=os.environ["TWS_BUILD"], certs=os.environ["TWS_CERTS"], minutes=seconds / 60.0,
                                  load=load, every=0.2, kinds=kinds, fault=fault)
        kept = soak.BOUNDS
        soak.BOUNDS = {name: kept[name] for name in bounds}
        try:
            lines, faults = soak.soak(args, pathlib.Path(holder.name))
        finally:
            soak.BOUNDS = kept
        columns = (pathlib.Path(holder.name) / "samples.csv").read_text(encoding="utf-8").splitlines()
        return "\n".join(lines), faults, columns

    def test_sound_servers_pass(self):
        text, faults, csv = self.soak(6, soak.KINDS)
        self.assertEqual(faults, [])
        self.assertIn("client-kernel: messages ", text)
        self.assertIn("client-light: messages ", text)
        self.assertEqual(csv[0].split(",")[:3], ["seconds", "program", "rss"])
        self.assertGreaterEqual({line.split(",")[1] for line in csv[1:]},
                                {"server-kernel", "server-light", "client-kernel", "client-light"})

    def test_leaking_server_fails(self):
        _, faults, _ = self.soak(10, ("kernel",), "leak", ("live_blocks",), load=400)
        self.assertEqual(faults[-1:], ["server-kernel live_blocks rises"], faults)

    def not_idle(self, fault):
        calm = soak.CALM_S
        soak.CALM_S = 1.0
        self.addCleanup(setattr, soak, "CALM_S", calm)
        _, faults, _ = self.soak(4, ("kernel",), fault, load=400)
        self.assertEqual(len(faults), 1, faults)
        self.assertIn("server-kernel is not idle", faults[0])
        return faults[0]

    def test_lost_descriptors_fail(self):
        self.assertIn(" descriptors, ", self.not_idle("descriptors"))

    def test_leak_outside_the_allocator_fails(self):
        self.assertIn(" KiB outside the library's allocator, ", self.not_idle("hidden"))

    def test_wrong_byte_lost_message_and_early_end_fail(self):
        for fault, words in (("corrupt", "not the same|TWS_ERR_UTF8"), ("lose", "not the same|lost"),
                             ("exit", "ended early|FAIL")):
            _, faults, _ = self.soak(60, ("light",), fault)
            self.assertRegex(" ".join(faults), words)


if __name__ == "__main__":
    unittest.main()
