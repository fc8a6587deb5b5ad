"""Programs that tests install on first use: several test programs may want the same one at once."""

import fcntl
import os
import pathlib
import sys
import tempfile
import threading
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import installed  # noqa: E402

PATIENCE = 30


class Install(unittest.TestCase):
    def test_who_comes_second_waits_and_installs_nothing(self):
        asked = threading.Event()
        found = []

        def flock(*args):
            asked.set()
            real(*args)

        real = fcntl.flock
        with tempfile.TemporaryDirectory() as folder, open(folder + "/it.lock", "w", encoding="utf-8") as lock:
            home = folder + "/it"
            real(lock, fcntl.LOCK_EX)
            with mock.patch.object(fcntl, "flock", flock), mock.patch.object(installed, "new_enough_python",
                                                                             return_value="/bin/false"):
                second = threading.Thread(target=lambda: found.append(installed.install_program(home, "it==1", "it")))
                second.start()
                self.assertTrue(asked.wait(PATIENCE))
                os.makedirs(home + "/bin")
                pathlib.Path(home, "bin", "it").touch(0o755)
                pathlib.Path(home, "installed.txt").write_text("it==1", encoding="utf-8")
                real(lock, fcntl.LOCK_UN)
                second.join(PATIENCE)
            self.assertEqual(found, [home + "/bin/it"])


if __name__ == "__main__":
    unittest.main()
