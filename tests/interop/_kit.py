"""What the tests with software of other people share: starting it, its addresses, and the certificates."""

import itertools
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent / "integration"), str(HERE.parent / "support")]

from _examples import PATIENCE, build_path, wait_for  # noqa: E402
from installed import alone  # noqa: E402

CERTS = os.environ.get("TWS_CERTS", str(ROOT / "build" / "certs"))
PEERS = ROOT / "bench" / "peers"
BUILD_PATIENCE = 240  # with what has to be fetched and compiled the first time
# Each process begins at a place of its own, and goes round.
PORTS = (10000 + (os.getpid() * 97 + i) % 20000 for i in itertools.count())


def cert(name):
    """The path of a file that scripts/certs.sh has made."""
    return os.path.join(CERTS, name)


def tool(name):
    """A program of the system, also one that only root has on its path."""
    found = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if not found:
        raise AssertionError(f"{name} is not here: scripts/deps.sh interop")
    return found


def free_port():
    """A port of 127.0.0.1 for programs that cannot choose one by themselves. None that the system gives to those who
    ask for any, nor one that another test program at work beside this one would take."""
    for port in PORTS:
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")


def answers(port):
    """Whether somebody listens there."""
    try:
        socket.create_connection(("127.0.0.1", port), PATIENCE).close()
    except ConnectionRefusedError:
        return False
    return True


class Service:
    """A server of somebody else's, in a session of its own. What it says goes to a file, which is shown when it does
    not come up. `cleanup` is addCleanup of a test or addClassCleanup."""

    def __init__(self, cleanup, command, *ports, **env):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        env={**os.environ, **env}, start_new_session=True)
        cleanup(self.end)
        for port in ports:
            wait_for(f"{command[0]} on port {port}", lambda port=port: self.ended(command) or answers(port))

    def ended(self, command):
        if self.process.poll() is not None:
            raise AssertionError(f"{command} ended with {self.process.returncode}: {self.said()}")

    def said(self):
        self.log.seek(0)
        return self.log.read().decode("utf-8", "replace")

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.log.close()


def folder(cleanup):
    """A directory that is there as long as the test or the class."""
    path = tempfile.mkdtemp(prefix="tws-interop-")
    cleanup(shutil.rmtree, path, ignore_errors=True)
    return pathlib.Path(path)


def run(command, patience=4 * PATIENCE, **env):
    """Runs a program to its end; its status and what it said."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**os.environ, **env}, timeout=patience, check=False)
    return done.returncode, done.stdout.decode("utf-8", "replace")


def out_path(*parts):
    """A path in the build tree that holds for all its variants."""
    tree = pathlib.Path(build_path()).resolve()
    return str((tree.parent if tree.name == "asan" else tree).joinpath(*parts))


def build_peer(name):
    """Builds one of bench/peers; its script and its directory."""
    script, out = str(PEERS / name / "peer"), out_path("bench", "peers", name)
    with alone(out):
        status, said = run([script, "build", out], BUILD_PATIENCE)
    if status != 0:
        raise AssertionError(f"{name} cannot be built: {said}")
    return script, out


def peer(cleanup, name, secure=False, deflate=False):
    """One of bench/peers as a server; the URL of its echo."""
    script, out = build_peer(name)
    env = {"TLS_CERT": cert("server.pem"), "TLS_KEY": cert("server.key")} if secure else {}
    if deflate:
        env["DEFLATE"] = "1"
    port = free_port()
    Service(cleanup, [script, "start", str(port), out], port, **env)
    return f"{'wss' if secure else 'ws'}://127.0.0.1:{port}/connect"


def build(program, *command):
    """Builds a program below the build tree's interop/ with a command that has OUT in it; its path."""
    path = out_path("interop", program)
    with alone(path):
        status, said = run([path if word == "OUT" else word for word in command], BUILD_PATIENCE)
    if status != 0:
        raise AssertionError(f"{program} cannot be built: {said}")
    return path


def build_gorilla():
    return build("gorilla", tool("go"), "build", "-C", str(HERE / "clients" / "gorilla"), "-o", "OUT", ".")


def build_java():
    """The class path."""
    path = out_path("interop", "java")
    with alone(path):
        status, said = run([tool("javac"), "-d", path, str(HERE / "clients" / "Java.java")])
    if status != 0:
        raise AssertionError(f"Java.java cannot be compiled: {said}")
    return path


def build_lws():
    return build("lws", tool("cc"), "-D_GNU_SOURCE", "-O1", "-o", "OUT", str(HERE / "clients" / "lws.c"),
                 "-lwebsockets")


def tls_options(name="server"):
    """How echo is told to speak TLS."""
    return ("--tls", cert(name + ".pem"), cert(name + ".key"))
