#!/usr/bin/env python3
"""The parts of the runner that need no server: summary, text formats, readings, order of the cells."""

import os
import socket
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

import harness
from report import docs, openmetrics, panels, table
from report.series import Series
from run import bench, cli, marks, peers, procfs, scrape, soak, store, summary, workloads
from run.cell import Ports
from run.errors import RunError, UsageError


def cell(server, number, cpu, mbps=100.0, **more):
    """A finished cell."""
    base = {"server": server, "workload": "W1", "round": number, "status": "ok", "error": None, "marks": [],
            "notes": [], "measures": {"cpu_percent": cpu, "mbps_down": mbps, "carried": 0.5}}
    base.update(more)
    return base


def results_of(*cells, rank_by="cpu_percent"):
    """results.json as far as the summary reads it."""
    servers = list(dict.fromkeys(c["server"] for c in cells))
    return {"base": "gws", "servers": servers, "cells": list(cells),
            "workloads": [{"name": "W1", "rank_by": rank_by, "table": ["cpu_percent"]}]}


def row_of(rows, server):
    """The row of a server."""
    return next(r for r in rows if r["server"] == server)


class Summary(unittest.TestCase):
    def test_median_and_spread(self):
        rows = summary.rows(results_of(*(cell("gws", n, cpu) for n, cpu in enumerate((90.0, 200.0, 95.0), 1))))
        value = rows[0]["values"]["cpu_percent"]
        self.assertEqual((value["median"], value["min"], value["max"]), (95.0, 90.0, 200.0))

    def test_ratio_is_paired_by_round(self):
        # The machine was twice as slow in round 2, for both: the ratio is 0.5 all the same.
        mine = [cell("tws", n, cpu) for n, cpu in ((1, 50.0), (2, 100.0), (3, 52.0))]
        base = [cell("gws", n, cpu) for n, cpu in ((1, 100.0), (2, 200.0), (3, 104.0))]
        row = row_of(summary.rows(results_of(*mine, *base)), "tws")
        self.assertAlmostEqual(row["values"]["cpu_percent"]["ratio"], 0.5)

    def test_marked_and_failed_rows_are_never_ranked(self):
        rows = summary.rows(results_of(
            cell("gws", 1, 90.0), cell("lossy", 1, 10.0, marks=["lost messages"]),
            cell("dead", 1, 5.0), cell("dead", 2, 5.0, status="failed", error="server died", measures={}),
            cell("slow", 1, 99.0)))
        self.assertEqual([(r["server"], r["rank"]) for r in rows],
                         [("gws", 1), ("slow", 2), ("dead", None), ("lossy", None)])
        self.assertEqual(row_of(rows, "dead")["marks"], ["server died"])

    def test_a_marked_base_gives_no_ratio(self):
        rows = summary.rows(results_of(cell("gws", 1, 90.0, marks=["lost messages"]), cell("tws", 1, 45.0)))
        self.assertIsNone(row_of(rows, "tws")["values"]["cpu_percent"]["ratio"])

    def test_servers_that_carry_the_whole_offer_are_ordered_by_cpu(self):
        def measured(cpu, mbps, carried):
            return {"measures": {"cpu_percent": cpu, "mbps_down": mbps, "carried": carried}}
        rows = summary.rows(results_of(
            cell("gws", 1, 0, **measured(110.0, 4001.0, 0.995)), cell("tws", 1, 0, **measured(80.0, 3999.0, 0.992)),
            cell("late", 1, 0, **measured(70.0, 2000.0, 0.5)), rank_by="mbps_down"))
        self.assertEqual([r["server"] for r in rows], ["tws", "gws", "late"])


def generator_result(**changes):
    """A clean result of the generator in an open echo loop."""
    result = {
        "config": {"loop": "open", "rate": 100.0, "connections": 10, "senders": 0, "verify": True},
        "connections": {"failed": 0, "lost": 0, "open": 10, "deflate": 0},
        "messages": {"sent": 3000, "expected": 3000, "lost": 0}, "errors": {}, "bottleneck": False,
        "cpu": {"percent": 10.0, "threads_percent": [5.0, 5.0], "threads_wait_percent": [0.0, None]},
        "steady": {"window_s": 10.0, "received_per_s": 1000.0, "mbps_down": 8.0, "mbps_up": 8.0},
        "latency_us": {"p50": 1.0, "p99": 2.0, "p999": 3.0},
    }
    for path, value in changes.items():
        part, key = path.split("__")
        result[part] = dict(result[part], **{key: value}) if key else value
    return result


def window():
    """Ten seconds in which the server used five CPU seconds."""
    def end(clock, user, system):
        return {"clock": clock, "machine_s": clock * 0.6, "rss_peak": 5,
                "process": {"user_s": user, "system_s": system, "threads": 3, "rss": 4},
                "kernel": {"KernelStack": 100, "Slab": 200}}
    return SimpleNamespace(start=end(10.0, 1.0, 1.0), end=end(20.0, 3.0, 4.0))


def judged(workload="W2", **changes):
    """The record of a cell with that result of the generator."""
    record = {}
    marks.fill(record, workloads.ALL[workload], generator_result(**changes), window(),
               {"KernelStack": 40, "Slab": 50})
    return record


class Marks(unittest.TestCase):
    def test_figures(self):
        record = judged()
        self.assertEqual(record["marks"], [])
        self.assertAlmostEqual(record["measures"]["cpu_percent"], 50.0)
        self.assertAlmostEqual(record["measures"]["cpu_us_per_message"], 500.0)
        self.assertEqual(record["measures"]["kernel_stack"], 60)
        self.assertAlmostEqual(record["measures"]["carried"], 1.0)

    def test_the_peak_is_not_below_what_is_there(self):
        for mark, peak in ((3, 4), (5, 5), (None, None)):
            late = window()
            late.end["rss_peak"] = mark
            record = {}
            marks.fill(record, workloads.ALL["W2"], generator_result(), late, {"KernelStack": 40, "Slab": 50})
            self.assertEqual(record["measures"]["rss_peak"], peak)

    def test_each_fault_marks_the_cell(self):
        for change, mark in ((("bottleneck__", True), "limited by the generator"),
                             (("connections__failed", 1), "refused connections"),
                             (("connections__lost", 1), "lost connections"),
                             (("messages__lost", 1), "lost messages"),
                             (("errors__mismatch", 1), "wrong replies (mismatch)"),
                             (("steady__received_per_s", 900.0), "did not carry the load")):
            with self.subTest(mark):
                self.assertEqual(judged(**dict([change]))["marks"], [mark])

    def test_a_generator_without_a_core_is_no_generator_at_its_limit(self):
        late = {"bottleneck__": True, "cpu__threads_wait_percent": [60.0, 50.0]}
        record = judged(**late)
        self.assertEqual((record["marks"], record["notes"]), ([], ["machine full: the generator waited for a core"]))
        busy = window()
        busy.end["machine_s"] += 5.0
        marks.fill(record, workloads.ALL["W2"], generator_result(**late), busy, {"KernelStack": 0, "Slab": 0})
        self.assertEqual(record["marks"], ["other programs took the machine"])
        self.assertEqual(judged(cpu__threads_percent=[99.0, 50.0], **late)["marks"], ["limited by the generator"])

    def test_a_backlog_is_not_a_loss(self):
        behind = {"messages__lost": 7, "steady__received_per_s": 500.0}
        self.assertEqual(judged("W2", **behind)["marks"], ["did not carry the load"])
        self.assertEqual(judged("W1", **behind)["marks"], [])
        self.assertIn("far behind: not all was answered when the run ended", judged("W1", **behind)["notes"])
        self.assertIn("lost messages", judged("W1", connections__lost=1, **behind)["marks"])

    def test_a_runner_that_came_late_says_so(self):
        self.assertEqual(judged(steady__window_s=9.0)["marks"], ["server was not read at the ends of the window"])
        self.assertEqual(judged(steady__window_s=9.8)["marks"], [])

    def test_deflate_that_was_declined_is_seen(self):
        self.assertEqual(judged("W2-deflate", connections__deflate=9)["marks"], ["deflate not agreed"])
        self.assertEqual(judged("W2-deflate", connections__deflate=10)["marks"], [])

    def test_a_saturated_server_keeps_its_bandwidth_rank(self):
        self.assertEqual(judged("W1", steady__received_per_s=500.0)["marks"], [])

    def test_other_programs_are_noted(self):
        busy = window()
        busy.end["machine_s"] += 5.0
        record = {}
        marks.fill(record, workloads.ALL["W2"], generator_result(), busy, {"KernelStack": 0, "Slab": 0})
        self.assertEqual((record["marks"], record["notes"]), ([], ["other programs were busy"]))
        self.assertEqual(judged()["notes"], [])


class Formats(unittest.TestCase):
    def test_parse_prometheus_text(self):
        answer = scrape.parse('# HELP a Help text.\n# TYPE a counter\na{x="1",y="q\\"\\\\\\n"} 2.5\na 3\nb 4e3\n')
        self.assertEqual(answer.samples, [("a", {"x": "1", "y": 'q"\\\n'}, 2.5), ("a", {}, 3.0), ("b", {}, 4000.0)])
        self.assertEqual(answer.families["a"], {"help": "Help text.", "type": "counter"})
        self.assertEqual(answer.value("a"), 5.5)
        self.assertIsNone(answer.value("a", x="2"))

    def test_openmetrics_groups_series_over_cells(self):
        run = openmetrics.Run()
        families = {"c_total": {"type": "counter", "help": "C."}, "g": {"type": "gauge", "help": "G."}}
        columns = [{"name": "c_total", "labels": {"server": 'a"b'}}, {"name": "g", "labels": {"server": "a"}}]
        run.add({"families": families, "columns": columns, "samples": [[20.0, 7.0, None]]})
        run.add({"families": families, "columns": columns, "samples": [[10.0, 5.0, 0.25]]})
        self.assertEqual(run.text().splitlines(), [
            "# TYPE c counter", "# HELP c C.",
            'c_total{instance="exporter",job="ws-compare",server="a\\"b"} 5 10.000',
            'c_total{instance="exporter",job="ws-compare",server="a\\"b"} 7 20.000',
            "# TYPE g gauge", "# HELP g G.", 'g{instance="exporter",job="ws-compare",server="a"} 0.25 10.000',
            "# EOF"])

    def test_series_rates_and_splits(self):
        stored = {"columns": [{"name": "process_cpu_mode_seconds_total", "labels": {"mode": m}} for m in "us"],
                  "samples": [[100.0, 1.0, 0.0], [102.0, 2.0, 4.0], [103.0, 1.0, 5.0]]}
        series = Series(stored, {"window": {"start": 101.0}, "started_unix": 99.0})
        lines = series.read(panels.panel("modes").lines[0])
        # A counter that went back (another process) gives no rate.
        self.assertEqual(lines, {("s",): [(1.0, 2.0), (2.0, 1.0)], ("u",): [(1.0, 0.5)]})

    def test_a_sample_close_to_another_makes_no_rate(self):
        stored = {"columns": [{"name": "process_cpu_seconds_total", "labels": {}}],
                  "samples": [[10.0, 0.0], [10.1, 1.0], [12.0, 2.0]]}
        series = Series(stored, {"window": {"start": 10.0}, "started_unix": 9.0})
        self.assertEqual(series.single("cpu"), [(2.0, 1.0)])

    def test_csv_and_markdown_hold_every_row(self):
        results = results_of(cell("gws", 1, 90.0), cell("bad|name", 1, 80.0, marks=["lost messages"]))
        results["workloads"][0]["title"] = "t"
        results.update(run="r", complete=True, started_unix=0, versions={}, rows=summary.rows(results),
                       machine={"cpu": "c", "cores": 2, "cores_allowed": 2, "memory_bytes": 2**30, "kernel": "k",
                                "system": "s", "load_average": [0, 0, 0]})
        self.assertEqual(table.csv_text(results).count("\n"), 3)
        self.assertIn("| – | bad", table.markdown(results))
        self.assertIn("**lost messages**", table.markdown(results))

    def test_docs_replace_only_what_is_between_the_markers(self):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "page.md"
            page.write_text(f"before\n{docs.BEGIN}\nstale words\n", encoding="utf-8")
            results = Path(folder) / "results.json"
            kept = store.Store(folder)
            kept.create(run="r", base="gws", servers=[], workloads=[], started_unix=0, versions={}, machine={
                "cpu": "c", "cores": 2, "cores_allowed": 2, "memory_bytes": 2**30, "kernel": "k", "system": "s",
                "load_average": [0, 0, 0]})
            self.assertTrue(results.exists())
            with self.assertRaises(RunError):
                docs.write(folder, page)
            page.write_text(f"before\n{docs.BEGIN}\nstale words\n{docs.END}\nafter\n", encoding="utf-8")
            docs.write(folder, page)
            text = page.read_text(encoding="utf-8")
            self.assertTrue(text.startswith(f"before\n{docs.BEGIN}\n") and text.endswith(f"{docs.END}\nafter\n"))
            self.assertNotIn("stale words", text)

    def test_the_page_of_methods_has_the_markers_and_all_workloads(self):
        page = (harness.ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
        self.assertEqual((page.count(docs.BEGIN), page.count(docs.END)), (1, 1))
        for name in ("W1", "W2", "W3", "W4", "W5", "W6", "W6-mute", "W7"):
            self.assertIn(f"| {name} |", page)


class Soak(unittest.TestCase):
    def test_text_is_valid_utf8_of_the_exact_size(self):
        for size in (1, soak.SMALL_BYTES, 123457):
            body = soak.text_of(size)
            self.assertEqual(len(body), size)
            body.decode("utf-8")
        self.assertGreater(sum(byte > 127 for byte in soak.text_of(soak.SMALL_BYTES)), soak.SMALL_BYTES // 2)

    def test_slope(self):
        self.assertAlmostEqual(soak.slope_per_hour([(t, 5.0 + t / 3600.0 * 7.0) for t in range(0, 600, 7)]), 7.0)
        self.assertIsNone(soak.slope_per_hour([(0, 1), (1, 2)]))


class Readings(unittest.TestCase):
    def test_own_process(self):
        reading = procfs.process(os.getpid())
        self.assertGreater(reading["rss"], 1 << 20)
        self.assertLessEqual(reading["rss"], procfs.peak_rss(os.getpid()) + (1 << 20))
        self.assertEqual(reading["threads"], 1)
        self.assertIsNone(procfs.process(2**22 - 1))

    def test_cpu_time_agrees_with_the_kernel(self):
        before = procfs.process(os.getpid())
        spent = os.times()
        while sum(os.times()[:2]) - sum(spent[:2]) < 0.3:
            pass
        after = procfs.process(os.getpid())
        used = sum(after[k] - before[k] for k in ("user_s", "system_s"))
        self.assertAlmostEqual(used, 0.3, delta=0.05)

    def test_listening_port_is_seen(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            self.assertTrue(procfs.tcp_listening(port))
        self.assertFalse(procfs.tcp_listening(port))


class Plan(unittest.TestCase):
    def test_ports_pass_over_one_that_is_taken(self):
        ports = Ports("127.0.0.1")
        first = ports.take()
        with socket.create_server(("127.0.0.1", first + 1)):
            self.assertNotIn(ports.take(), (first, first + 1))

    def test_rounds_are_interleaved_and_begin_with_another_server(self):
        runner = SimpleNamespace(options=SimpleNamespace(rounds=2))
        order = [(p, n) for p, _w, n in bench.Bench.plan(runner, ["a", "b", "c"], ["W"])]
        self.assertEqual(order, [("a", 1), ("b", 1), ("c", 1), ("b", 2), ("c", 2), ("a", 2)])

    def test_group_names(self):
        found = {n: n for n in ("gws", "libtws-kernel", "libtws-light", "ws")}
        self.assertEqual(peers.choose(found, ["libtws", "ws", "libtws-light"]), ["libtws-kernel", "libtws-light", "ws"])
        with self.assertRaises(UsageError):
            peers.choose(found, ["nothing"])

    def test_wrong_commands_end_with_2(self):
        self.assertEqual(cli.main(["run", "--peers", "nothing"]), 2)
        self.assertEqual(cli.main(["run", "--workloads", "W99"]), 2)
        with self.assertRaises(SystemExit) as ended:
            cli.main(["run", "--rounds", "0"])
        self.assertEqual(ended.exception.code, 2)


if __name__ == "__main__":
    unittest.main()
