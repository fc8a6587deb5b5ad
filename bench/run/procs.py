"""Child processes that never outlive the run.

Every child leads its own process group. A group is signalled while its leader is still unreaped, so its id cannot have
passed to somebody else. Where setpriv (util-linux) is present, the kernel also ends the child should the runner itself
be killed with SIGKILL.
"""

import os
import shutil
import signal
import subprocess
import time

from run.errors import CellError, Interrupted, RunError

POLL_S = 0.02


def exit_reason(code):
    """A person's words for a return code of subprocess."""
    if code is None:
        return "still running"
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"exit status {code}"


class Child:
    """One started program and the group it leads."""

    def __init__(self, name, popen, log_path):
        self.name = name
        self.popen = popen
        self.pid = popen.pid
        self.log_path = log_path

    def exited(self):
        """True once the leader has ended; does not reap it."""
        if self.popen.returncode is not None:
            return True
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.pid, flags) is not None

    def wait(self, timeout_s):
        """True when the leader ended within the time."""
        deadline = time.monotonic() + timeout_s
        while not self.exited():
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_S)
        return True

    def _signal_group(self, signum):
        try:
            os.killpg(self.pid, signum)
        except ProcessLookupError:
            pass

    def stop(self, grace_s=5.0, first=signal.SIGTERM):
        """End the whole group, politely first. Returns the leader's return code."""
        if self.popen.returncode is None:
            if not self.exited():
                self._signal_group(first)
                self.wait(grace_s)
            self._signal_group(signal.SIGKILL)
            self.popen.wait()
        return self.popen.returncode

    def log_tail(self, lines=3):
        """The last lines the program printed, as one line."""
        try:
            with open(self.log_path, "rb") as log:
                log.seek(0, os.SEEK_END)
                log.seek(max(0, log.tell() - 4096))
                text = log.read().decode("utf-8", "replace")
        except OSError:
            return ""
        kept = [line.strip() for line in text.splitlines() if line.strip()]
        return " | ".join(kept[-lines:])


class Children:
    """Starts children and ends what is left of them when the block is left, however it is left."""

    def __init__(self):
        self._live = []
        self._setpriv = shutil.which("setpriv")

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.stop_all()

    def start(self, name, argv, log_path, env=None, pass_fds=()):
        """Start a program in a group of its own, output to a file."""
        command = [str(a) for a in argv]
        if self._setpriv:
            command = [self._setpriv, "--pdeathsig", "KILL", "--"] + command
        try:
            log = open(log_path, "wb")
        except OSError as error:
            raise RunError(f"cannot write {log_path}: {error.strerror}") from error
        with log:
            try:
                popen = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                         env=env, pass_fds=pass_fds, start_new_session=True)
            except OSError as error:
                raise CellError(f"cannot start {name}: {error.strerror}") from error
        child = Child(name, popen, log_path)
        self._live.append(child)
        return child

    def stop(self, child, grace_s=5.0, first=signal.SIGTERM):
        """End one child and forget it."""
        code = child.stop(grace_s, first)
        if child in self._live:
            self._live.remove(child)
        return code

    def stop_all(self):
        """End every child that is left, newest first."""
        while self._live:
            self._live.pop().stop(grace_s=2.0)


class Signals:
    """Turns SIGINT, SIGTERM and SIGHUP into Interrupted, once; later ones are ignored while cleaning up."""

    CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __enter__(self):
        self._before = {s: signal.signal(s, self._raise) for s in self.CAUGHT}
        return self

    def _raise(self, signum, _frame):
        for caught in self.CAUGHT:
            signal.signal(caught, signal.SIG_IGN)
        raise Interrupted(signum)

    def __exit__(self, *_exc):
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
