"""The servers under test, through the contract in bench/peers/README.md."""

import os
import subprocess
from pathlib import Path

from run.errors import RunError, UsageError


class Peer:
    """One folder of bench/peers."""

    def __init__(self, folder, build_root):
        self.name = folder.name
        self.script = folder / "peer"
        self.outdir = build_root / folder.name

    def _call(self, *args, timeout_s=60):
        try:
            return subprocess.run([str(self.script), *args], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired as error:
            raise RunError(f"{self.name}: `peer {args[0]}` took longer than {timeout_s} s") from error

    def _line(self, *args):
        done = self._call(*args)
        lines = (done.stdout or done.stderr).strip().splitlines()
        return done.returncode, lines[0] if lines else ""

    def check(self):
        """None when the machine can build it, else one line that says what is missing."""
        code, line = self._line("check")
        return None if code == 0 else (line or f"check ended with status {code}")

    def features(self):
        """Set of feature words."""
        return set(self._line("features")[1].split())

    def version(self):
        """One line: library, version, toolchain."""
        return self._line("version")[1]

    def describe(self):
        """One line: language, model, what the defaults imply."""
        return self._line("describe")[1]

    def build_argv(self):
        """Command that builds it; cheap when nothing changed."""
        return [str(self.script), "build", str(self.outdir)]

    def start_argv(self, port):
        """Command that becomes the server."""
        return [str(self.script), "start", str(port), str(self.outdir)]

    @staticmethod
    def environment(host, tls=None, deflate=False, deflate_same=False):
        """Environment for `start`."""
        env = dict(os.environ, PEER_HOST=host)
        for name in ("TLS_CERT", "TLS_KEY", "DEFLATE", "DEFLATE_SAME"):
            env.pop(name, None)
        if tls:
            env["TLS_CERT"], env["TLS_KEY"] = (str(p) for p in tls)
        if deflate:
            env["DEFLATE"] = "1"
        if deflate_same:
            env["DEFLATE_SAME"] = "1"
        return env


def discover(peers_dir, build_root):
    """All peers, by name."""
    found = {}
    for folder in sorted(Path(peers_dir).iterdir()):
        if os.access(folder / "peer", os.X_OK) and (folder / "peer").is_file():
            found[folder.name] = Peer(folder, Path(build_root))
    return found


def choose(peers, names):
    """The peers asked for, in that order; a group name stands for all whose name begins with `NAME-`."""
    chosen = []
    for name in names:
        matches = [p for p in peers if p == name or p.startswith(name + "-")]
        if not matches:
            raise UsageError(f"no peer named {name}; there are: {' '.join(peers)}")
        chosen += [peers[m] for m in matches if peers[m] not in chosen]
    return chosen
