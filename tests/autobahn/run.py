#!/usr/bin/env python3
"""Runs the Autobahn testsuite against a server, against a client, and judges the reports.

Where a Docker engine answers, the testsuite's own image is the referee; else kosoku, which runs the same case files,
is put into a virtual environment below the output directory. Both write the same report, and there is one reader.
Everything but OK and INFORMATIONAL is a failure, and so is a run with fewer cases than there should be.
"""

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))

from installed import InstallError, install_program  # noqa: E402

KOSOKU = "kosoku==0.1.0"
IMAGE = "crossbario/autobahn-testsuite"
ALL_CASES = 517
CASES_IN = {"12.*": 90, "13.*": 126}  # groups that can be left out as a whole
COMPRESSION = "12.* 13.*"
SIDE_BY_SIDE = 3  # cases at a time, against a server; more would take longer than the least patient of them waits
GOOD = ("OK", "INFORMATIONAL")


class Fault(Exception):
    """Something that kept the run from happening; its text is for a person."""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="directory for the report, the log and kosoku")
    parser.add_argument("--echo", help="echo server to start on a free port")
    parser.add_argument("--threads", default="kernel", help="its kinds of thread, separated by blanks: a run for each")
    parser.add_argument("--url", help="a server that runs already, instead")
    parser.add_argument("--client", help="client program to run against the testsuite's fuzzing server")
    parser.add_argument("--tls", metavar="CERTS", help="run all but the cases of compression once more over TLS, with "
                        "certificates from here")
    parser.add_argument("--exclude", default="", help="case patterns to leave out, separated by blanks")
    parser.add_argument("--cases", default="", help="only these patterns; the number of cases is then not judged")
    parser.add_argument("--minutes", type=float, default=20, help="time limit of each run")
    return parser.parse_args()


# ---- the server under test ----

class Echo:
    """The library's echo example on a free port."""

    def __init__(self, program, *options):
        self.lines = []
        self.ready = threading.Event()
        self.process = subprocess.Popen([program, "--listen", "127.0.0.1:0", *options], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.ready.wait(15)
        match = re.search(r"listening on \S*:(\d+)", "\n".join(self.lines))
        if not match:
            self.stop()
            raise Fault(f"{program} did not say where it listens; it said: {self.lines}")
        self.url = f"ws://127.0.0.1:{match.group(1)}"

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if "listening on" in line:
                self.ready.set()
        self.ready.set()

    def stop(self):
        """Drains the server; a status other than 0 is a finding, as a sanitizer's would be."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return "the server did not end within 20 s of SIGTERM"
        self.reader.join(5)
        return f"the server ended with status {status}: {self.lines[-5:]}" if status else None


# ---- the referee ----

def docker_answers():
    if not shutil.which("docker"):
        return False
    try:
        return subprocess.run(["docker", "info"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              timeout=20).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def docker_command(mode, url, report, args):
    config = {
        "outdir": "/reports", "cases": args.cases.split() or ["*"], "exclude-cases": args.exclude.split(),
        "exclude-agent-cases": {},
    }
    config.update({"servers": [{"url": url}]} if mode == "fuzzingclient" else {"url": url, "webport": 0})
    with open(os.path.join(args.out, f"{mode}.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, indent=2)
    return ["docker", "run", "--rm", "--init", "--network", "host", "--user", f"{os.getuid()}:{os.getgid()}",
            "-v", f"{os.path.abspath(args.out)}:/config:ro", "-v", f"{os.path.abspath(report)}:/reports", IMAGE,
            "wstest", "-m", mode, "-s", f"/config/{mode}.json"]


def kosoku(args):
    """The command that runs it, installed on first use."""
    home = os.path.join(args.out, "venv")
    try:
        install_program(home, KOSOKU, "kosoku")
    except InstallError as error:
        raise Fault(f"neither a Docker engine is here, nor can {KOSOKU} be installed: {error}") from error
    return [os.path.join(home, "bin", "python"), os.path.join(os.path.dirname(os.path.abspath(__file__)), "referee.py")]


def kosoku_command(mode, url, report, args):
    address = url if mode == "fuzzingclient" else url.partition("//")[2]
    command = [*kosoku(args), "-m", mode, "-o", report, address]
    if mode == "fuzzingclient":
        command += ["-p", str(SIDE_BY_SIDE)]
    for pattern in args.cases.split():
        command += ["-i", pattern]
    for pattern in args.exclude.split():
        command += ["-x", pattern]
    return command


def prepare(mode, url, name, args):
    """The referee's command, where it reports to and where it logs to."""
    report = os.path.join(args.out, name)
    shutil.rmtree(report, ignore_errors=True)
    os.makedirs(report)
    use_docker = docker_answers()
    command = (docker_command if use_docker else kosoku_command)(mode, url, report, args)
    print(f"autobahn: {'Docker image ' + IMAGE if use_docker else KOSOKU}, {mode} at {url}", flush=True)
    return command, report, os.path.join(args.out, name + ".log")


def referee(url, name, args):
    """Runs the cases; the referee's own verdict is not asked, since ours is stricter."""
    command, report, log_path = prepare("fuzzingclient", url, name, args)
    with open(log_path, "wb") as log:
        try:
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                           timeout=args.minutes * 60)
        except subprocess.TimeoutExpired:
            print(f"autobahn: cut after {args.minutes:.0f} minutes", flush=True)
    return find_index(report, log_path)


def find_index(report, log_path):
    index = os.path.join(report, "index.json")
    if not os.path.exists(index):
        with open(log_path, encoding="utf-8", errors="replace") as log:
            tail = log.read().splitlines()[-15:]
        raise Fault("the referee left no report; it said:\n    " + "\n    ".join(tail))
    return index


# ---- TLS: the referee has none, so haproxy stands between ----

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def await_listener(port, process):
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise Fault("what should listen does not")


class Terminator:
    """haproxy, passing bytes on: TLS on one side of it, none on the other."""

    def __init__(self, args, name, bind, server):
        self.port = free_port()
        path = os.path.join(args.out, name + ".haproxy")
        with open(path, "w", encoding="ascii") as f:
            f.write("defaults\n    mode tcp\n    timeout connect 30s\n    timeout client 300s\n    timeout server 300s\n"
                    f"listen tls\n    bind 127.0.0.1:{self.port} {bind}\n    server one {server}\n")
        program = shutil.which("haproxy", path=os.environ.get("PATH", "") + ":/usr/sbin")
        if not program:
            raise Fault("haproxy is not here; on Debian: apt-get install haproxy")
        self.process = subprocess.Popen([program, "-db", "-f", path], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            await_listener(self.port, self.process)
        except Fault:
            self.stop()
            raise

    def stop(self):
        self.process.kill()
        self.process.wait()


def before_server(args, address):
    """In front of a server that speaks TLS."""
    ca = os.path.join(args.tls, "ca.pem")
    return Terminator(args, "server", "", f"{address} ssl verify required ca-file {ca} verifyhost localhost")


def before_referee(args, address):
    """In front of the referee, for a client that speaks TLS."""
    return Terminator(args, "client", f"ssl crt {os.path.join(args.tls, 'server-both.pem')}", address)


# ---- the client under test ----

def await_report(report, process):
    """kosoku ends when the client has asked for the report; wstest writes it and goes on serving."""
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        try:
            with open(os.path.join(report, "index.json"), encoding="utf-8") as f:
                json.load(f)
            return
        except (OSError, ValueError):
            time.sleep(0.05)


def run_client(args, port, secure):
    """Its fault, or None."""
    terminator = before_referee(args, f"127.0.0.1:{port}") if secure else None
    env = dict(os.environ, SSL_CERT_FILE=os.path.join(args.tls or "", "ca.pem"))
    url = f"wss://127.0.0.1:{terminator.port}" if secure else f"ws://127.0.0.1:{port}"
    try:
        status = subprocess.run([args.client, url], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=env,
                                timeout=args.minutes * 60).returncode
        return f"the client ended with status {status}" if status else None
    except subprocess.TimeoutExpired:
        return f"the client was cut after {args.minutes:.0f} minutes"
    finally:
        if terminator:
            terminator.stop()


def client_run(args, secure=False):
    """The client before the fuzzing server: the report's index, and the client's fault or None."""
    port = free_port()
    command, report, log_path = prepare("fuzzingserver", f"ws://127.0.0.1:{port}",
                                        "client-report" + ("-tls" if secure else ""), args)
    with open(log_path, "wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        try:
            await_listener(port, process)
            fault = run_client(args, port, secure)
            await_report(report, process)
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    return find_index(report, log_path), fault


# ---- the verdict ----

def case_key(name):
    return [int(part) for part in name.split(".")]


def judge(index, expected):
    with open(index, encoding="utf-8") as f:
        agents = json.load(f)
    if len(agents) != 1:
        raise Fault(f"the report names {len(agents)} agents: {', '.join(agents) or 'none'}")
    agent, cases = next(iter(agents.items()))
    behaviour = [row["behavior"] for row in cases.values()]
    closing = [row["behaviorClose"] for row in cases.values()]
    failed = [b for b in behaviour if b not in GOOD + ("NON-STRICT", "UNCLEAN")]
    unclean = [1 for b, c in zip(behaviour, closing) if "UNCLEAN" in (b, c)]
    print("\n| agent | cases | Pass | Info | NonStrict | Unclean | Failed |\n|---|---|---|---|---|---|---|")
    print(f"| {agent} | {len(cases)} | {behaviour.count('OK')} | {behaviour.count('INFORMATIONAL')} | "
          f"{behaviour.count('NON-STRICT')} | {len(unclean)} | {len(failed)} |\n")
    bad = [name for name in sorted(cases, key=case_key)
           if cases[name]["behavior"] not in GOOD or cases[name]["behaviorClose"] not in GOOD]
    for name in bad:
        print(f"case {name}: {cases[name]['behavior']}, closing: {cases[name]['behaviorClose']}")
    missing = expected - len(cases) if expected else 0
    if missing:
        print(f"{len(cases)} cases ran instead of {expected}")
    return len(cases) - len(bad), len(bad) + abs(missing)


def expected_cases(args):
    left_out = args.exclude.split()
    if args.cases or any(pattern not in CASES_IN for pattern in left_out):
        return None
    return ALL_CASES - sum(CASES_IN[pattern] for pattern in set(left_out))


def verdict(index, fault, args):
    passed, failed = judge(index, expected_cases(args))
    if fault:
        print(fault)
        failed += 1
    print(f"report: {os.path.join(os.path.dirname(index), 'index.html')}")
    return passed, failed


def server_run(args, kind=None, secure=False):
    """One server, all cases; without a kind of thread it runs already."""
    name = "-".join(["report", *([kind] if kind else []), *(["tls"] if secure else [])])
    tls = ["--tls", *(os.path.join(args.tls, "server" + end) for end in (".pem", ".key"))] if secure else []
    echo = Echo(args.echo, "--deflate", "--threads", kind, *tls) if kind else None
    terminator = end = None
    try:
        if secure:
            terminator = before_server(args, echo.url.partition("//")[2])
        index = referee(f"ws://127.0.0.1:{terminator.port}" if secure else echo.url if echo else args.url, name, args)
    finally:
        if terminator:
            terminator.stop()
        end = echo.stop() if echo else None
    return index, end


def runs(args):
    """What is to be done: a function and its arguments. TLS does not know what it carries: there the cases of
    compression, which take most of the time, are left out."""
    kinds = args.threads.split() if args.echo else [None] if args.url else []
    ways = [(args, False)]
    if args.tls:
        ways.append((argparse.Namespace(**{**vars(args), "exclude": COMPRESSION}), True))
    for way_args, secure in ways if args.echo else ways[:1]:
        for kind in kinds:
            yield server_run, way_args, kind, secure
    for way_args, secure in ways if args.client else []:
        yield client_run, way_args, secure


def run(args):
    os.makedirs(args.out, exist_ok=True)
    if args.exclude:
        print(f"autobahn: cases left out: {args.exclude}")
    passed, failed = 0, 0
    for side, *arguments_of_it in runs(args):
        p, f = verdict(*side(*arguments_of_it), arguments_of_it[0])
        passed, failed = passed + p, failed + f
    return passed, failed


def main():
    args = arguments()
    if (args.url and args.echo) or not (args.url or args.echo or args.client):
        print("autobahn: give --url or --echo, --client, or both", file=sys.stderr)
        return 2
    try:
        passed, failed = run(args)
    except Fault as fault:
        print(f"autobahn: {fault}", file=sys.stderr)
        passed, failed = 0, 1
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
