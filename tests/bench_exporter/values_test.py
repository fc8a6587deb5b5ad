#!/usr/bin/env python3
"""What the exporter says, against /proc and top, and what it costs."""
import glob
import os
import signal
import subprocess
import tempfile
import time
import unittest

from kit import Case, Exporter, Helper, PATIENCE_S, value

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGESIZE")
CAP_NET_ADMIN = 12


def stat_fields(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        return f.read().rsplit(")", 1)[1].split()


def cpu_ticks(pid):
    fields = stat_fields(pid)
    return int(fields[11]) + int(fields[12])


def cpu_clock(pid):
    """CPU seconds of another process, from the clock that clock_getcpuclockid(3) names."""
    return time.clock_gettime((~pid << 3) | 2)


def may_have_switches():
    with open("/proc/self/status", encoding="ascii") as f:
        effective = next(line for line in f if line.startswith("CapEff:"))
    return bool(int(effective.split()[1], 16) >> CAP_NET_ADMIN & 1)


def switches(pid):
    """Both kinds, added up over the threads: the slow way that the exporter must not go."""
    sums = {"voluntary": 0, "nonvoluntary": 0}
    for path in glob.glob(f"/proc/{pid}/task/*/status"):
        with open(path, encoding="ascii", errors="replace") as f:
            for line in f:
                kind, _, number = line.partition("_ctxt_switches:")
                if kind in sums and number:
                    sums[kind] += int(number)
    return sums["voluntary"], sums["nonvoluntary"]


class Top:
    """Two frames of `top` with an interval between them. It prints both only when it ends, so what happens in between
    is arranged by the caller: it runs beside."""

    def __init__(self, pid, interval):
        environment = {"PATH": os.environ["PATH"], "HOME": tempfile.gettempdir(), "LC_ALL": "C", "TERM": "dumb"}
        self.pid = str(pid)
        self.process = subprocess.Popen(["top", "-b", "-n", "2", "-d", str(interval), "-p", self.pid], text=True,
                                        stdout=subprocess.PIPE, env=environment)

    def finish(self):
        """Returns the last frame's RES in KiB, %CPU over the interval, and TIME+ in seconds."""
        text, _ = self.process.communicate(timeout=PATIENCE_S)
        frames = [line.split() for line in text.splitlines() if line.split()[:1] == [self.pid]]
        if len(frames) != 2:
            raise AssertionError(f"top gave {len(frames)} frames")
        minutes, seconds = frames[1][10].split(":")
        return int(frames[1][5]), float(frames[1][8]), 60 * int(minutes) + float(seconds)


class Values(Case):
    def test_agrees_with_top(self):
        """%CPU, TIME+ and RES of top, within 2 %, over an interval in which the process burned for six seconds. It is
        stopped when top looks at it, so that both see the same. Where the machine stalls so long that top looks while
        it runs, the measurement is worth nothing and is made again."""
        interval, lead, burn = 9, 1.5, 6
        with Helper(busy=1) as helper, Exporter("--proc", f"server=busy,pid={helper.pid}") as exporter:
            for _ in range(3):
                os.kill(helper.pid, signal.SIGSTOP)
                before = value(exporter.scrape(), "process_cpu_seconds_total", server="busy")
                top = Top(helper.pid, interval)
                time.sleep(lead)
                os.kill(helper.pid, signal.SIGCONT)
                time.sleep(burn)
                os.kill(helper.pid, signal.SIGSTOP)
                samples = exporter.scrape()
                resident, percent, total = top.finish()
                after = value(samples, "process_cpu_seconds_total", server="busy")
                ours = 100 * (after - before) / interval
                print(f"    top {percent:.1f} %, exporter {ours:.1f} %")
                if abs(ours - percent) <= 0.02 * percent:
                    break
            self.assertGreater(after - before, 0.5, "the process was not busy")
            self.near(ours, percent, 0.02, "%CPU")
            self.assertAlmostEqual(after, total, delta=0.021, msg="TIME+")
            self.near(value(samples, "process_resident_memory_bytes", server="busy") / 1024, resident, 0.02, "RES")

    def test_cpu_agrees_with_proc(self):
        """The seconds used in five seconds lie between what /proc says before and after each scrape."""
        with Helper(busy=2) as helper, Exporter("--proc", f"server=busy,pid={helper.pid}") as exporter:
            def bracket():
                before = cpu_ticks(helper.pid)
                samples = exporter.scrape()
                return before, samples, cpu_ticks(helper.pid)
            low, first, low_after = bracket()
            time.sleep(5)
            high, second, high_after = bracket()
            used = (value(second, "process_cpu_seconds_total", server="busy")
                    - value(first, "process_cpu_seconds_total", server="busy"))
            self.assertLessEqual((high - low_after - 1) / TICK, used)
            self.assertLessEqual(used, (high_after - low + 1) / TICK)
            self.near(used, (high_after + high - low - low_after) / 2 / TICK, 0.02, "CPU seconds")
            modes = sum(value(second, "process_cpu_mode_seconds_total", server="busy", mode=mode)
                        for mode in ("user", "system"))
            self.assertAlmostEqual(modes, value(second, "process_cpu_seconds_total", server="busy"), places=5)
            for mode in ("user", "system"):
                self.assertGreater(value(second, "process_cpu_mode_seconds_total", server="busy", mode=mode)
                                   - value(first, "process_cpu_mode_seconds_total", server="busy", mode=mode), 0.05)

    def test_memory_threads_descriptors_start(self):
        with Helper(idle=50) as helper, \
                Exporter("--proportional", "--proc", f"server=idle,pid={helper.pid}") as exporter:
            samples = exporter.scrape()
            with open(f"/proc/{helper.pid}/statm", encoding="ascii") as f:
                size, resident = (int(n) * PAGE for n in f.read().split()[:2])
            with open(f"/proc/{helper.pid}/smaps_rollup", encoding="ascii") as f:
                pss = next(int(line.split()[1]) * 1024 for line in f if line.startswith("Pss:"))
            with open("/proc/uptime", encoding="ascii") as f:
                booted = time.time() - float(f.read().split()[0])
            get = lambda name: value(samples, name, server="idle")
            self.assertEqual(get("process_virtual_memory_bytes"), size)
            self.near(get("process_resident_memory_bytes"), resident, 0.02, "RSS")
            self.near(get("process_proportional_memory_bytes"), pss, 0.02, "PSS")
            self.assertEqual(get("process_threads"), 51)
            self.assertEqual(get("process_open_fds"), len(os.listdir(f"/proc/{helper.pid}/fd")))
            self.assertAlmostEqual(get("process_start_time_seconds"),
                                   booted + int(stat_fields(helper.pid)[19]) / TICK, delta=0.5)

    def test_context_switches_of_all_threads(self):
        with Helper(idle=20, busy=2) as helper, Exporter("--proc", f"server=busy,pid={helper.pid}") as exporter:
            if not may_have_switches():
                self.assertNotIn("process_context_switches_total", exporter.text())
                return
            before = switches(helper.pid)
            samples = exporter.scrape()
            after = switches(helper.pid)
            for column, kind in enumerate(("voluntary", "involuntary")):
                got = value(samples, "process_context_switches_total", server="busy", kind=kind)
                self.assertLessEqual(before[column], got, kind)
                self.assertLessEqual(got, after[column], kind)
            self.assertGreaterEqual(before[0], 20)
            with Exporter("--no-switches", "--proc", f"server=busy,pid={helper.pid}") as without:
                self.assertNotIn("process_context_switches_total", without.text())

    def test_kernel_memory(self):
        """The machine's figures are those of /proc/meminfo, and growth is counted from when the process was seen."""
        with Helper() as helper, Exporter("--proc", f"server=s,pid={helper.pid}") as exporter:
            def machine():
                with open("/proc/meminfo", encoding="ascii") as f:
                    return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in f}
            first = exporter.scrape()
            low = machine()["KernelStack"]
            with Helper(idle=2000):
                samples = exporter.scrape()
                grown = value(samples, "bench_machine_kernel_memory_bytes", kind="kernel_stack") \
                    - value(first, "bench_machine_kernel_memory_bytes", kind="kernel_stack")
                change = value(samples, "bench_kernel_memory_bytes", server="s", source="machine_change") \
                    - value(first, "bench_kernel_memory_bytes", server="s", source="machine_change")
                self.near(value(samples, "bench_machine_kernel_memory_bytes", kind="kernel_stack"),
                          machine()["KernelStack"], 0.2, "KernelStack")
            # Others work on this machine meanwhile: 2,000 stacks of 16 KiB stand out all the same.
            self.assertGreater(low, 0)
            self.assertGreater(grown, 16 << 20)
            self.assertGreater(change, 16 << 20)

    def test_cost_at_ten_thousand_threads(self):
        """Under 1 % of a core at one scrape a second: under 10 ms of CPU each, in the median of ten."""
        with Helper(idle=10000) as helper, \
                Exporter("--proc", f"server=many,pid={helper.pid},run=cost") as exporter:
            costs = []
            for _ in range(10):
                before = cpu_clock(exporter.pid)
                samples = exporter.scrape()
                time.sleep(1)  # the pace of a scrape a second: caches are as cold as they will be
                costs.append(cpu_clock(exporter.pid) - before)
            self.assertEqual(value(samples, "process_threads", server="many"), 10001)
            costs.sort()
            print(f"    a scrape at 10,001 threads costs {costs[5] * 1000:.1f} ms "
                  f"(from {costs[0] * 1000:.1f} to {costs[-1] * 1000:.1f}): {costs[5] * 100:.2f} % of a core")
            self.assertLess(costs[5], 0.010)
            self.near(value(exporter.scrape(), "bench_exporter_cpu_seconds_total"), cpu_clock(exporter.pid), 0.2,
                      "what the exporter says of itself")

    def test_promtool_finds_nothing(self):
        with Helper(busy=1) as one, Helper() as two, Exporter(
                "--proportional", "--run", "r 1", "--proc", f"server=a\"b\\c,pid={one.pid}",
                "--proc", f"server=two,pid={two.pid},run=other") as exporter:
            full = exporter.text()
            self.assertIn('server="a\\"b\\\\c"', full)
            self.assertIn('bench_run_active{server="two",run="other"} 1', full)
            self.assertIn('run="r 1"} 1', full)
            one.end()
            two.end()
            empty = exporter.text()
            for text in (full, empty):
                self.assertTrue(text.endswith("\n"))
                checked = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, timeout=PATIENCE_S,
                                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
                self.assertEqual((checked.returncode, checked.stdout), (0, ""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
