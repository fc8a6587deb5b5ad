#!/usr/bin/env python3
"""Every query of the dashboard against a real Prometheus: once scraped live from two servers under load, once loaded
from the run's OpenMetrics file. Each has to return series for both servers, with every label its legend names.
"""

import json
import re
import shutil
import socket
import subprocess
import sys
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "bench_run"))

import harness  # noqa: E402  (the path has to be set first)

GRAFANA = harness.ROOT / "bench" / "grafana"
BOARD = json.loads((GRAFANA / "grafana/dashboards/ws-compare.json").read_text(encoding="utf-8"))
SCRAPED = {"127.0.0.1:9464": "exporter", "127.0.0.1:9465": "load"}
SERVERS = set(harness.PEERS)
RUNS = {"test/W2/1"}
RATE_INTERVAL = "4s"


def free_port():
    """A port nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


class Prometheus:
    """A Prometheus of the test's own."""

    def __init__(self, config, data):
        self.port = free_port()
        self.log = open(data.parent / f"{data.name}.log", "wb")
        self.child = subprocess.Popen(
            ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={data}",
             f"--web.listen-address=127.0.0.1:{self.port}", "--storage.tsdb.retention.time=5y"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT)
        harness.wait_for("Prometheus", self._ready)

    def _ready(self):
        if self.child.poll() is not None:
            raise AssertionError(f"prometheus ended: {Path(self.log.name).read_text(encoding='utf-8')[-500:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=2) as answer:
                return answer.status == 200
        except OSError:
            return False

    def ask(self, path, **parameters):
        """The data of an answer of its API."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters, doseq=True)}"
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{error}: {error.read().decode()}") from error

    def series(self, expression, start, end):
        """Labels and values of a range query, a point each second."""
        found = self.ask("query_range", query=expression, start=start, end=end, step="1")["result"]
        return [(s["metric"], [(at, float(v)) for at, v in s["values"]]) for s in found]

    def stop(self):
        """End it."""
        self.child.terminate()
        self.child.wait(timeout=30)
        self.log.close()


def with_variables(expression, job=".+", server=".+", run=".+"):
    """What Grafana sends for the chosen values."""
    for name, value in (("$__rate_interval", RATE_INTERVAL), ("$job", job), ("$server", server), ("$run", run)):
        expression = expression.replace(name, value)
    if "$" in expression:
        raise AssertionError(f"unknown variable in {expression}")
    return expression


def queries():
    """(panel's title, expression, legend) of every query of the dashboard."""
    return [(panel["title"], target["expr"], target["legendFormat"])
            for panel in BOARD["panels"] for target in panel.get("targets", [])]


class Stage(harness.RunnerTest):
    """One live run under a live Prometheus, and a second Prometheus with the run's file."""

    def runTest(self):
        """Not a test: the owner of the servers."""

    def prepare(self):
        """Everything both test classes ask."""
        self.setUp()
        ports = {address: free_port() for address in SCRAPED}
        config = (GRAFANA / "prometheus/prometheus.yml").read_text(encoding="utf-8")
        for address, port in ports.items():
            if address not in config:
                raise AssertionError(f"prometheus.yml does not scrape {address}")
            config = config.replace(address, f"127.0.0.1:{port}")
        (self.build / "prometheus.yml").write_text(config, encoding="utf-8")
        (self.build / "empty.yml").write_text("scrape_configs: []\n", encoding="utf-8")
        self.live = Prometheus(self.build / "prometheus.yml", self.build / "live")
        self.addCleanup(self.live.stop)
        exporter, load = ports.values()
        self.start = time.time()
        arguments = self.run_arguments("--workloads", "W2", "--window", "7", "--exporter-port", exporter,
                                       "--load-port", load, "--connections", "50")
        self.done = self.finish(*arguments)
        self.end = time.time()
        subprocess.run(["promtool", "tsdb", "create-blocks-from", "openmetrics", str(self.folder / "run.om"),
                        str(self.build / "loaded")], check=True, capture_output=True)
        self.loaded = Prometheus(self.build / "empty.yml", self.build / "loaded")
        self.addCleanup(self.loaded.stop)


STAGE = Stage()


def setUpModule():
    """The servers run once for all tests."""
    STAGE.prepare()


def tearDownModule():
    """And are ended once."""
    STAGE.doCleanups()


class Live(unittest.TestCase):
    """The dashboard while a run goes on."""

    def prometheus(self):
        """Which one is asked."""
        return STAGE.live

    def ask(self, expression, **chosen):
        """Series of an expression over the whole run."""
        return self.prometheus().series(with_variables(expression, **chosen), STAGE.start, STAGE.end + 2)

    def test_run_was_good(self):
        self.assertEqual(STAGE.done.returncode, 0, STAGE.done.stdout + STAGE.done.stderr)

    def test_every_query_returns_every_label_of_its_legend(self):
        self.assertGreater(len(queries()), 14)
        for title, expression, legend in queries():
            with self.subTest(title):
                found = self.ask(expression)
                self.assertEqual({labels["server"] for labels, _ in found}, SERVERS)
                for label in re.findall(r"{{\s*(\w+)\s*}}", legend):
                    self.assertTrue(all(labels.get(label) for labels, _ in found), f"{label} is missing")
                names = {re.sub(r"{{\s*(\w+)\s*}}", lambda m: labels[m.group(1)], legend) for labels, _ in found}
                self.assertEqual(len(names), len(found), "two series would have one name")
                for labels, points in found:
                    self.assertGreaterEqual(len(points), 3, labels)

    def test_choosing_a_server_or_a_run_leaves_the_others_out(self):
        for title, expression, _legend in queries():
            with self.subTest(title):
                self.assertEqual({m["server"] for m, _ in self.ask(expression, server="gws")}, {"gws"})
                self.assertEqual(self.ask(expression, run="another"), [])
                self.assertEqual(self.ask(expression, job="another"), [])

    def test_variables(self):
        wanted = {"job": {"ws-compare"}, "server": SERVERS, "run": RUNS}
        for variable in BOARD["templating"]["list"]:
            if variable["type"] != "query":
                continue
            selector, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"]).groups()
            with self.subTest(variable["name"]):
                found = self.prometheus().ask(f"label/{label}/values", **{
                    "match[]": with_variables(selector), "start": STAGE.start, "end": STAGE.end})
                self.assertEqual(set(found), wanted[variable["name"]])

    def test_annotations_name_server_and_run(self):
        annotation = BOARD["annotations"]["list"][0]
        found = self.ask(annotation["expr"])
        self.assertEqual({(m["server"], m["run"]) for m, _ in found}, {(s, r) for s in SERVERS for r in RUNS})
        for label in re.findall(r"{{(\w+)}}", annotation["titleFormat"] + annotation["textFormat"]):
            self.assertTrue(all(label in m for m, _ in found))

    def test_an_ended_server_is_not_drawn_on(self):
        cells = {c["server"]: c for c in STAGE.results()["cells"]}
        memory = next(e for t, e, _ in queries() if t == "Resident memory")
        for labels, points in self.ask(memory):
            last = max(at for at, _ in points)
            self.assertLessEqual(last, cells[labels["server"]]["ended_unix"] + 5)

    def test_values_agree_with_the_runner(self):
        cells = {c["server"]: c for c in STAGE.results()["cells"]}
        asked = {title: self.ask(expression) for title, expression, _ in queries()}
        for server, cell in cells.items():
            with self.subTest(server):
                connections = [p for m, p in asked["Connections"] if m["server"] == server][0]
                self.assertEqual(max(v for _, v in connections), 50)
                memory = [p for m, p in asked["Peak resident memory"] if m["server"] == server][0]
                self.assertAlmostEqual(max(v for _, v in memory) / cell["measures"]["rss_peak"], 1.0, delta=0.5)
                received = self.ask(f'bench_load_messages_received_total{{server="{server}"}}')
                self.assertEqual(len(received), 1)
                share = max(v for _, v in received[0][1]) / cell["load"]["messages"]["received"]
                self.assertTrue(0.5 <= share <= 1.0, share)


class Loaded(Live):
    """The same dashboard on the run's recorded file."""

    def prometheus(self):
        return STAGE.loaded


class Tools(unittest.TestCase):
    def test_prometheus_configuration_is_valid(self):
        self.assertTrue(shutil.which("promtool"))
        done = subprocess.run(["promtool", "check", "config", str(GRAFANA / "prometheus/prometheus.yml")],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_ports_are_the_runners_defaults(self):
        from run import cli
        self.assertEqual({f"127.0.0.1:{cli.EXPORTER_PORT}", f"127.0.0.1:{cli.LOAD_PORT}"}, set(SCRAPED))

    def test_job_and_instances_are_those_of_the_recorded_run(self):
        from report import openmetrics
        config = (GRAFANA / "prometheus/prometheus.yml").read_text(encoding="utf-8")
        self.assertIn(f"job_name: {openmetrics.JOB}\n", config)
        for name in SCRAPED.values():
            self.assertIn(f"instance: {name}\n", config)


if __name__ == "__main__":
    unittest.main()
