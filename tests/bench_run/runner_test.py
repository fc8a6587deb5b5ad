#!/usr/bin/env python3
"""A tiny run of two real servers, and everything that is made of it."""

import csv
import os
import re
import shutil
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

import harness
from run import store

WORKLOADS = ("W2", "W4", "W5", "W6", "W7", "W2-tls", "W2-deflate")
CHROMIUM = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
            "--disable-background-networking", "--disable-component-update", "--virtual-time-budget=8000")


def setUpModule():
    """One run serves all tests of this file."""
    Run.make()


def tearDownModule():
    """Its folder goes."""
    Run.test.doCleanups()


class Run(harness.RunnerTest):
    """The run itself, made once."""

    test = None
    done = None

    @classmethod
    def make(cls):
        cls.test = cls("runTest")
        cls.test.setUp()
        cls.done = cls.test.finish(*cls.test.run_arguments("--workloads", " ".join(WORKLOADS), "--rounds", "2",
                                                           "--window", "2"), timeout_s=400)

    def runTest(self):
        """Not a test: the owner of the run."""


class Results(unittest.TestCase):
    def test_the_run_ended_well(self):
        self.assertEqual(Run.done.returncode, 0, Run.done.stdout + Run.done.stderr)
        self.assertTrue(Run.test.results()["complete"])

    def test_nothing_is_left(self):
        Run.test.assert_nothing_left()
        self.assertFalse((Run.test.build / "state.json").exists())
        self.assertEqual(list(Run.test.folder.rglob("*.part")), [])

    def test_every_cell_has_its_figures(self):
        cells = Run.test.results()["cells"]
        self.assertEqual(len(cells), len(WORKLOADS) * len(harness.PEERS) * 2)
        for cell in cells:
            with self.subTest(cell["run"], server=cell["server"]):
                self.assertEqual((cell["status"], cell["error"]), ("ok", None))
                measures = cell["measures"]
                self.assertGreater(measures["rss"], 1 << 20)
                self.assertGreaterEqual(measures["rss_peak"], measures["rss"])
                self.assertEqual(measures["lost"], 0)
                self.assertGreaterEqual(measures["cpu_percent"], 0)
                if cell["workload"] == "W5":
                    self.assertGreater(measures["handshakes_per_s"], 1)
                else:
                    self.assertGreater(measures["mbps_down"], 0)
                    self.assertGreater(measures["p99_us"], measures["p50_us"] * 0.99)

    def test_window_is_the_generators(self):
        for cell in Run.test.results()["cells"]:
            if cell["workload"] != "W5":
                ours, theirs = cell["window"], cell["load"]["steady"]
                self.assertAlmostEqual(ours["start"], theirs["start_unix"], delta=0.5)
                self.assertAlmostEqual(ours["end"] - ours["start"], theirs["window_s"], delta=0.5)

    def test_rounds_are_interleaved(self):
        order = [(c["round"], c["server"]) for c in Run.test.results()["cells"] if c["workload"] == "W2"]
        self.assertEqual(order, [(1, "gws"), (1, "gorilla"), (2, "gorilla"), (2, "gws")])

    def test_each_cell_had_a_fresh_process(self):
        starts = []
        for cell in Run.test.results()["cells"]:
            series = store.load_series(Run.test.folder, cell)
            names = [column["name"] for column in series["columns"]]
            column = names.index("process_start_time_seconds") + 1
            seen = {sample[column] for sample in series["samples"] if sample[column] is not None}
            self.assertEqual(len(seen), 1, "one process for each cell")
            self.assertLess(abs(seen.pop() - cell["started_unix"]), 30)
            starts.append((cell["server"], series["samples"][0][column]))
        self.assertEqual(len(set(starts)), len(WORKLOADS) * len(harness.PEERS) * 2)

    def test_machine_and_versions_are_recorded(self):
        results = Run.test.results()
        for key in ("cpu", "cores", "kernel", "memory_bytes", "load_average"):
            self.assertTrue(results["machine"][key])
        self.assertRegex(results["peers"]["gws"]["version"], r"\d+\.\d+\.\d+")
        self.assertIn("commit", results["versions"])

    def test_rows_have_ratios_and_the_base_is_one(self):
        rows = [r for r in Run.test.results()["rows"] if r["workload"] == "W4" and not r["marks"]]
        for row in rows:
            if row["server"] == "gws":
                self.assertEqual(row["values"]["rss"]["ratio"], 1.0)


class Made(unittest.TestCase):
    def test_csv_has_a_line_for_each_row(self):
        with open(Run.test.folder / "results.csv", encoding="utf-8", newline="") as file:
            lines = list(csv.DictReader(file))
        self.assertEqual(len(lines), len(WORKLOADS) * len(harness.PEERS))
        self.assertTrue(all(float(line["rss"]) > 1 << 20 for line in lines))

    def test_markdown_has_a_table_for_each_workload(self):
        text = (Run.test.folder / "results.md").read_text(encoding="utf-8")
        for name in WORKLOADS:
            self.assertIn(f"### {name}: ", text)
        self.assertEqual(len(re.findall(r"^\| (?:\d|–) \| gws \|", text, re.M)), len(WORKLOADS))

    def test_charts_are_pictures(self):
        charts = Run.test.folder / "charts"
        for name in WORKLOADS:
            for stem in (name, f"{name}-time"):
                png = (charts / f"{stem}.png").read_bytes()
                self.assertEqual(png[:8], b"\x89PNG\r\n\x1a\n")
                self.assertGreater(len(png), 8000)
                root = xml.etree.ElementTree.parse(charts / f"{stem}.svg").getroot()
                drawn = "".join(root.itertext())
                self.assertIn("gws", drawn)
                self.assertIn("gorilla", drawn)

    def test_openmetrics_becomes_a_prometheus_block(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(["promtool", "tsdb", "create-blocks-from", "openmetrics", Run.test.folder / "run.om",
                                   folder], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            (Path(folder) / "wal").mkdir()
            analysed = subprocess.run(["promtool", "tsdb", "dump", folder], capture_output=True, text=True, check=True)
            for cell in ("test/W2/1", "test/W7/2"):
                self.assertRegex(analysed.stdout, rf'__name__="bench_run_active".*run="{cell}".*server="gorilla"')

    def test_page_opens_offline_and_draws(self):
        chromium = shutil.which("chromium")
        self.assertTrue(chromium, "chromium is not installed")
        page = Run.test.folder / "index.html"
        self.assertNotRegex(page.read_text(encoding="utf-8"), r'(?:src|href)="(?:https?:)?//')
        with tempfile.TemporaryDirectory() as profile:
            done = subprocess.run([chromium, *CHROMIUM, f"--user-data-dir={profile}", "--enable-logging=stderr",
                                   "--window-size=1400,3000", "--dump-dom", page.as_uri()],
                                  capture_output=True, text=True, timeout=120, check=False)
            self.assertNotIn("CONSOLE", done.stderr)
            self.assertGreater(done.stdout.count("<canvas"), 8 * len(WORKLOADS))
            drawn = done.stdout.split('id="W4"')[1].split("</section>")[0]
            self.assertFalse("No samples in this round" in drawn, "a panel of W4 is empty")
            shot = Path(profile) / "page.png"
            subprocess.run([chromium, *CHROMIUM, f"--user-data-dir={profile}", "--window-size=1400,3000",
                            f"--screenshot={shot}", page.as_uri()], capture_output=True, timeout=120, check=False)
            self.assertGreater(os.path.getsize(shot), 100_000)

    def test_report_can_be_made_again(self):
        before = (Run.test.folder / "results.md").read_text(encoding="utf-8")
        done = Run.test.finish("report", Run.test.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((Run.test.folder / "results.md").read_text(encoding="utf-8"), before)


if __name__ == "__main__":
    unittest.main()
