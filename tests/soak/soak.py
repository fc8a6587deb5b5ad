#!/usr/bin/env python3
"""Soak: two servers, one per kind of thread, under a mixed load, for hours.

Samples memory, descriptors and threads of all four processes to samples.csv, draws them to samples.png, and fails
when something rises (slope.py), a byte is wrong, a message is lost, a process ends early, or something is left when
all is over. The programs run from copies: the tree can be rebuilt meanwhile. result.txt says how it went.
"""

import argparse
import csv
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import slope  # noqa: E402

KIB = 1024
MIB = 1024 * KIB
# What a series may rise over the measured time; what the memory of the library (live) may is known best.
BOUNDS = {
    "rss": slope.Bound(1 * MIB, 0.03),
    "pss": slope.Bound(1 * MIB, 0.03),
    "descriptors": slope.Bound(2),
    # The pthreads that stepped in for handlers that kept their carrier stay as spares, some more on a busy machine.
    "threads": slope.Bound(8),
    "live_bytes": slope.Bound(128 * 1024, 0.02),
    "malloc_used": slope.Bound(256 * 1024, 0.03),
    "live_blocks": slope.Bound(20, 0.02),
}
UNITS = {"rss": MIB, "pss": MIB, "live_bytes": MIB, "malloc_used": MIB}
WARM_UP_S = 600.0
WARM_UP_SHARE = 0.15
START_S = 30.0
END_S = 150.0  # an actor may be in the middle of a big message on a busy machine
CALM_S = 30.0
# What OpenSSL and the C library may hold more after the load than before it.
OUTSIDE = 256 * KIB
KINDS = ("kernel", "light")
# glibc's malloc, kept from showing nothing but itself. By default it raises the size from which memory is mapped by
# itself up to the largest block freed so far, so that each arena sooner or later keeps the rest of a 10 MiB message;
# and there are eight arenas per core, each of which reaches its own high water only after hours. Free pages between
# blocks in use would still make resident memory creep up for an hour: both programs give them back (malloc_trim)
# before they are looked at, so that resident memory is what is in use. What a thread's own cache keeps (up to 235 KiB)
# counts as given out, and fills only in the course of hours: there is none.
MALLOC = {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=131072:glibc.malloc.arena_max=2:glibc.malloc.tcache_count=0"}


class SoakError(Exception):
    """Why a soak failed, in one line."""


def minutes(text):
    """"90" or "1.5h"."""
    return float(text[:-1]) * 60.0 if text.endswith("h") else float(text)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True, help="tree with tests/soak/soak_server and soak_client")
    parser.add_argument("--certs", required=True, help="what scripts/certs.sh made")
    parser.add_argument("--out", help="folder for everything (default: soak/ and the time, in the build tree)")
    parser.add_argument("--minutes", type=minutes, default=120.0, help="how long; 1.5h for hours")
    parser.add_argument("--load", type=int, default=50, help="percent; 50 takes a seventh of a core")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between samples")
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--fault", default="", help="have the servers misbehave: see server.c")
    return parser.parse_args()


def tail(path, lines=20):
    return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


class Program:
    """A process with its output in a file."""

    def __init__(self, name, command, folder):
        self.name = name
        self.output = folder / f"{name}.out"
        with open(self.output, "wb") as log:
            self.process = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=subprocess.STDOUT, start_new_session=True,
                                            env={**os.environ, **MALLOC})

    def said(self, pattern):
        return re.findall(pattern, self.output.read_text(encoding="utf-8", errors="replace"), re.M)

    def check(self):
        faults = self.said(r"^FAIL .*")
        if faults:
            raise SoakError(f"{self.name}: {faults[0]}" + (f" (and {len(faults) - 1} more)" if faults[1:] else ""))
        if self.process.poll() is not None:
            raise SoakError(f"{self.name} ended early with {self.process.returncode}:\n{tail(self.output)}")

    def end(self, seconds):
        """Asks it to end and waits; a bad end or none is an error."""
        self.process.terminate()
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise SoakError(f"{self.name} did not end in {seconds:.0f} s") from None
        faults = self.said(r"^FAIL .*")
        if faults or status != 0:
            raise SoakError(f"{self.name} ended with {status}: {faults[0] if faults else tail(self.output, 5)}")

    def kill(self):
        """True when something of it still ran."""
        running = self.process.poll() is None
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
            running = True
        except ProcessLookupError:
            pass
        self.process.wait()
        return running

    def sample(self):
        folder = f"/proc/{self.process.pid}"
        with open(f"{folder}/status", encoding="utf-8") as f:
            status = dict(line.split(":", 1) for line in f)
        with open(f"{folder}/smaps_rollup", encoding="utf-8") as f:
            rollup = dict(line.split(":", 1) for line in f.readlines()[1:])
        with open(f"{folder}/stat", encoding="utf-8") as f:
            fields = f.read().rpartition(")")[2].split()
        return {"rss": int(status["VmRSS"].split()[0]) * 1024, "pss": int(rollup["Pss"].split()[0]) * 1024,
                "threads": int(status["Threads"]), "descriptors": len(os.listdir(f"{folder}/fd")),
                "cpu": (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")}


class Client(Program):
    """A client says every 5 s what it has done and holds."""

    def sample(self):
        found = self.said(r"^counts: .* malloc_used (\d+)$")
        return {**super().sample(), **({"malloc_used": float(found[-1])} if found else {})}


class Server(Program):
    def __init__(self, kind, args, folder):
        super().__init__(f"server-{kind}", [folder / "bin" / "soak_server", kind, folder / "certs" / "server.pem",
                                            folder / "certs" / "server.key", args.fault], folder)
        deadline = time.monotonic() + START_S
        self.addresses = []
        while len(self.addresses) < 2:
            self.check()
            if time.monotonic() > deadline:
                raise SoakError(f"{self.name} did not say where it listens")
            self.addresses = self.said(r"^listening (\S+)$")
            time.sleep(0.05)

    def page(self):
        """The counters of its page."""
        with urllib.request.urlopen(f"http://{self.addresses[0]}/live", timeout=60) as answer:
            text = answer.read().decode("utf-8")
        return {name: float(value) for name, value in re.findall(r"^(\w+) (\S+)$", text, re.M)}

    def sample(self):
        found = self.page()
        return {**super().sample(), "live_bytes": found["live_bytes"], "live_blocks": found["live_blocks"],
                "malloc_used": found["malloc_used"],
                "connections": found["tws_connections_open"]}


class Soak:
    def __init__(self, args, folder):
        self.args = args
        self.folder = folder
        self.programs = []
        self.series = {}  # (program, what) -> [(seconds, value)]
        self.began = None
        self.idle = {}

    def add(self, make, *rest):
        program = make(*rest)
        self.programs.append(program)
        return program

    def servers(self):
        return [p for p in self.programs if isinstance(p, Server)]

    def start(self):
        bin_folder = self.folder / "bin"
        bin_folder.mkdir(parents=True, exist_ok=True)
        for name in ("soak_server", "soak_client"):
            shutil.copy2(os.path.join(self.args.build, "tests", "soak", name), bin_folder / name)
        shutil.copytree(self.args.certs, self.folder / "certs", dirs_exist_ok=True)
        for kind in self.args.kinds:
            server = self.add(Server, kind, self.args, self.folder)
            server.page()  # what the first request needs is there when it is idle, too
            self.idle[server.name] = server.sample()
        for server in self.servers():
            self.add(Client, server.name.replace("server", "client"),
                     [bin_folder / "soak_client", *server.addresses, self.folder / "certs" / "ca.pem",
                      str(self.args.load)], self.folder)
        self.began = time.monotonic()

    def sample(self, writer):
        now = time.monotonic() - self.began
        for program in self.programs:
            program.check()
            values = self.ask(program)
            for what, value in values.items():
                self.series.setdefault((program.name, what), []).append((now, value))
            writer.writerow([f"{now:.1f}", program.name, *(values.get(name, "") for name in COLUMNS)])

    @staticmethod
    def ask(program):
        try:
            return program.sample()
        except OSError:  # it has just ended, as a rule
            time.sleep(1.0)
            program.check()
            raise

    def run(self):
        seconds = self.args.minutes * 60.0
        with open(self.folder / "samples.csv", "w", encoding="utf-8", newline="") as f:
            writer = csv.writer(f)
            writer.writerow(["seconds", "program", *COLUMNS])
            due = told = 0.0
            while due < seconds:
                self.sample(writer)
                f.flush()
                now = time.monotonic() - self.began
                if now - told >= 60.0:
                    told = now
                    print(f"{now / 60.0:.0f} min of {self.args.minutes:g}: " + self.now(), flush=True)
                due += self.args.every
                time.sleep(max(0.0, due - now))

    def now(self):
        return ", ".join(f"{s.name} {self.series[s.name, 'rss'][-1][1] / MIB:.1f} MiB "
                         f"{self.series[s.name, 'descriptors'][-1][1]} fd" for s in self.servers())

    def end(self):
        """Clients first; what their servers then still hold for them is left over."""
        for program in [p for p in self.programs if not isinstance(p, Server)]:
            program.end(END_S)
        for server in self.servers():
            self.wait_idle(server)
        for server in self.servers():
            server.end(END_S)
        left = [p.name for p in self.programs if p.kill()]
        if left:
            raise SoakError("left something behind: " + ", ".join(left))

    def wait_idle(self, server):
        deadline = time.monotonic() + CALM_S
        while True:
            counters = server.page()
            values = server.sample()
            # The page's own request is a connection too, in its handshake.
            over = [f"{counters[name]:.0f} {name}" for name in
                    ("tws_connections_open", "tws_queue_bytes", "unfinished_writes") if counters[name] > 0]
            # Each hand-over may have made a pthread that stays as a spare.
            more = {"descriptors": 2, "threads": 2 + counters["tws_handovers_total"]}
            over += [f"{values[name]} {name}, {self.idle[server.name][name]} before"
                     for name, extra in more.items() if values[name] > self.idle[server.name][name] + extra]
            outside = values["malloc_used"] - values["live_bytes"]
            before = self.idle[server.name]["malloc_used"] - self.idle[server.name]["live_bytes"]
            if outside > before + OUTSIDE:
                over.append(f"{outside / KIB:.0f} KiB outside the library's allocator, {before / KIB:.0f} before")
            if not over:
                return
            if time.monotonic() > deadline:
                raise SoakError(f"{server.name} is not idle {CALM_S:.0f} s after its clients: " + "; ".join(over))
            time.sleep(0.5)

    def judge(self):
        """A table of all series; the names of those that rise."""
        warm_up = min(WARM_UP_S, WARM_UP_SHARE * self.args.minutes * 60.0)
        lines = [f"{'program':<16} {'what':<12} {'level':>10} {'rise':>10} {'bound':>10} {'sure':>6}"]
        rising = []
        for (program, what), points in sorted(self.series.items()):
            if what not in BOUNDS:
                continue
            v = slope.judge(points, BOUNDS[what], warm_up)
            unit = UNITS.get(what, 1)
            lines.append(f"{program:<16} {what:<12} {v.level / unit:>10.2f} {v.rise / unit:>10.3f} "
                         f"{v.bound / unit:>10.3f} {v.sureness:>6.1f}{'  RISES' if v.leaks else ''}")
            if v.leaks:
                rising.append(f"{program} {what}")
        return lines, rising

    def cpu(self):
        """Of all four, in percent of one core."""
        used = [points[-1][1] - points[0][1] for (_, what), points in self.series.items() if what == "cpu"]
        span = max(points[-1][0] - points[0][0] for points in self.series.values())
        return 100.0 * sum(used) / span if span > 0 else 0.0


COLUMNS = ("rss", "pss", "descriptors", "threads", "live_bytes", "live_blocks", "connections", "cpu", "malloc_used")


def plot(folder, programs):
    """samples.png: one picture per column, one line per program. Where gnuplot is missing, the CSV stands alone."""
    if not shutil.which("gnuplot"):
        return
    script = ["set terminal pngcairo size 1400,1500 noenhanced", f"set output '{folder / 'samples.png'}'",
              "set datafile separator ','", "set multiplot layout 6,1", "set key left top", "set grid",
              "set yrange [0:*]"]
    # One block of data per program: lines join only what stands together.
    with open(folder / "samples.csv", encoding="utf-8") as f:
        rows = f.read().splitlines()[1:]
    data = [line for i, name in enumerate(programs)
            for line in (f"$program{i} << END", *(row for row in rows if row.split(",")[1] == name), "END")]
    for index, what in enumerate(COLUMNS[:6]):
        unit = UNITS.get(what, 1)
        script.append(f"set title '{what}{' (MiB)' if unit == MIB else ''}, over minutes'")
        lines = [f"$program{i} using ($1/60):(${index + 3}/{unit}) with lines title '{name}'"
                 for i, name in enumerate(programs) if what[:4] != "live" or "server" in name]
        script.append("plot " + ", ".join(lines))
    subprocess.run(["gnuplot"], input="\n".join(data + script + ["unset multiplot"]), text=True, check=False,
                   stderr=subprocess.DEVNULL)


def counts(programs):
    return [f"{p.name}: {p.said('^counts: (.*)')[-1]}" for p in programs if p.said("^counts: (.*)")]


def soak(args, folder):
    """Runs all of it; (lines of the result, faults)."""
    run = Soak(args, folder)
    faults = []
    lines = []
    try:
        run.start()
        run.run()
        run.end()
    except (SoakError, OSError) as error:
        faults.append(str(error))
    finally:
        for program in run.programs:
            program.kill()
    names = [p.name for p in run.programs]
    try:
        table, rising = run.judge()
        lines += table + [f"{run.cpu():.1f} % of a core on average, all processes together"]
        faults += [f"{name} rises" for name in rising]
    except ValueError as error:
        faults.append(str(error))
    if run.series:
        plot(folder, names)
    return lines + counts(run.programs), faults


def main():
    args = arguments()
    folder = pathlib.Path(args.out or os.path.join(args.build, "soak", time.strftime("%Y%m%d-%H%M%S"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    print(f"soak for {args.minutes:g} minutes, to {folder}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
    lines, faults = soak(args, folder)
    verdict = "soak: FAILED: " + "; ".join(faults) if faults else f"soak: passed, {args.minutes:g} minutes"
    text = "\n".join([*lines, verdict]) + "\n"
    (folder / "result.txt").write_text(text, encoding="utf-8")
    print(text, end="")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
