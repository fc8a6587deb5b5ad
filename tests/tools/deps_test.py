#!/usr/bin/env python3
"""scripts/deps.sh installs what is missing when it may, and else says who has to run what."""

import os
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMMAND = "apt-get install -y --no-install-recommends gcc libc6-dev libssl-dev zlib1g-dev"


class Machine(unittest.TestCase):
    """A PATH on which there is nothing but what a test puts there: no compiler and no header."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.bin = os.path.join(holder.name, "bin")
        self.log = os.path.join(holder.name, "log")
        os.mkdir(self.bin)
        for name in ("bash", "cat", "find", "env", "true"):
            os.symlink(shutil.which(name), os.path.join(self.bin, name))
        self.stub("apt-get", f'echo "$*" >> {self.log}')

    def stub(self, name, text):
        path = os.path.join(self.bin, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(f"#!{shutil.which('bash')}\n{text}\n")
        os.chmod(path, 0o755)

    def deps(self, *args, user):
        self.stub("id", f"echo {user}")
        run = subprocess.run([os.path.join(self.bin, "bash"), os.path.join(ROOT, "scripts/deps.sh"), *args],
                             env={"PATH": self.bin}, capture_output=True, text=True, timeout=60)
        return run.returncode, run.stdout + run.stderr

    def asked(self):
        """What the package manager was asked for."""
        if not os.path.exists(self.log):
            return ""
        with open(self.log, encoding="utf-8") as f:
            return f.read()

    def test_root_installs(self):
        status, text = self.deps("build", user=0)
        self.assertEqual(status, 0, text)
        self.assertIn("install -y --no-install-recommends gcc libc6-dev libssl-dev zlib1g-dev", self.asked())

    def test_root_is_told_when_it_could_not_be_installed(self):
        self.stub("apt-get", "exit 100")
        status, text = self.deps("build", user=0)
        self.assertEqual(status, 1, text)

    def test_an_optional_package_that_is_not_to_be_had_stops_no_other(self):
        self.stub("apt-get", f'case "$*" in *chromium*) exit 100 ;; esac; echo "$*" >> {self.log}')
        status, text = self.deps("test", user=0)
        self.assertEqual(status, 0, text)
        self.assertIn("install -y --no-install-recommends libcmocka-dev", self.asked())
        self.assertNotIn("chromium", self.asked())

    def test_sudo_without_a_password_installs(self):
        self.stub("sudo", '[ "$1" = -n ] && shift && exec "$@"')
        status, text = self.deps("build", user=1000)
        self.assertEqual(status, 0, text)
        self.assertIn("libssl-dev", self.asked())

    def test_with_sudo_that_asks_the_command_has_sudo(self):
        self.stub("sudo", "exit 1")
        status, text = self.deps("build", user=1000)
        self.assertEqual((status, self.asked()), (1, ""), text)
        self.assertIn(f"\n    sudo apt-get update && sudo {COMMAND}\n", text)

    def test_without_sudo_the_command_has_none(self):
        status, text = self.deps("build", user=1000)
        self.assertEqual((status, self.asked()), (1, ""), text)
        self.assertIn("as root", text)
        self.assertIn(f"\n    apt-get update && {COMMAND}\n", text)

    def test_a_hint_installs_nothing_even_for_root(self):
        status, text = self.deps("--hint", "build", user=0)
        self.assertEqual((status, self.asked()), (1, ""), text)
        self.assertIn(f"\n    apt-get update && {COMMAND}\n", text)

    def test_the_list_is_names_only(self):
        status, text = self.deps("--list", "build", user=1000)
        self.assertEqual((status, text), (0, "gcc\nlibc6-dev\nlibssl-dev\nzlib1g-dev\n"))

    def test_nothing_missing_is_no_news(self):
        self.stub("gcc", "exit 0")
        self.stub("cc", "exit 0")
        self.assertEqual(self.deps("--quiet", "--hint", "build", user=1000), (0, ""))

    def test_an_unknown_group_is_refused(self):
        self.assertEqual(self.deps("everything", user=0)[0], 2)

    def test_a_compiler_without_headers_is_told_what_to_install(self):
        with tempfile.TemporaryDirectory() as build:
            run = subprocess.run(["make", "-C", ROOT, "CC=gcc -nostdinc", f"BUILD={build}", f"{build}/obj/src/base/alloc.o"],
                                 env={**os.environ, "MAKEFLAGS": "", "VARIANT": "release", "CC": "gcc -nostdinc"},
                                 capture_output=True, text=True, timeout=60)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("deps: missing", run.stderr)
        self.assertIn("libc6-dev libssl-dev zlib1g-dev", run.stderr)


if __name__ == "__main__":
    unittest.main()
