#!/usr/bin/env python3
"""What the makefiles would run for settings that nobody here builds with every day."""

import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENV = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "VARIANT", "BUILD", "CC")}


class Plan(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)

    def plan(self, *settings):
        done = subprocess.run(["make", "-n", "lib", f"BUILD={self.dir}/build", "BROKERS=", *settings], cwd=ROOT, env=ENV,
                              text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)
        joined = [line for line in done.stdout.splitlines() if " -r -o " in line]
        self.assertEqual(len(joined), 1, done.stdout)
        return joined[0].split(f" {self.dir}")[0]

    def test_objects_of_link_time_optimisation_are_joined_by_who_can(self):
        other = self.dir / "other-cc"
        other.write_text('#!/bin/sh\ncase "$*" in *-flinker-output*) exit 1 ;; esac\nexec gcc "$@"\n', encoding="ascii")
        other.chmod(0o755)
        self.assertIn("-flinker-output=nolto-rel", self.plan("CC=gcc", "CFLAGS=-O2 -flto=auto"))
        line = self.plan(f"CC={other}", "CFLAGS=-O2 -flto=thin")
        self.assertNotIn("-flinker-output", line)
        self.assertIn("-fuse-ld=lld", line)
        self.assertNotIn("lto", self.plan("CC=gcc", "CFLAGS=-O2"))


if __name__ == "__main__":
    unittest.main()
