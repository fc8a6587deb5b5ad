"""What can go wrong with a run, by whose fault it is."""


class RunError(Exception):
    """The whole run cannot go on: one clear line for the user, exit status 1."""


class UsageError(Exception):
    """The command asks for something that does not exist: exit status 2."""


class CellError(Exception):
    """One cell failed; the run goes on with the next one."""


class Interrupted(Exception):
    """SIGINT, SIGTERM or SIGHUP arrived."""

    def __init__(self, signum):
        super().__init__(f"signal {signum}")
        self.signum = signum
