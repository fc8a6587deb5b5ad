#!/usr/bin/env python3
"""`make check-abi` lets an interface grow, and no more: changes to a clone that has a tag. Needs abidiff."""

import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENV = {**{k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")},
       **{f"GIT_{who}_{what}": "test@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}}
FUNCTION = "TWS_API const char *tws_version(void);"


class Kept(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.top = pathlib.Path(scratch.name) / "clone"
        subprocess.run(["git", "clone", "-q", "--depth=1", "--no-tags", f"file://{ROOT}", str(self.top)], check=True)
        subprocess.run(["git", "tag", "-a", "v0.1.0", "-m", "a release"], cwd=self.top, env=ENV, check=True)

    def abi(self, what):
        done = subprocess.run(["scripts/abi.sh", what, "build/abi"], cwd=self.top, env=ENV, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout

    def edit(self, path, old, new):
        file = self.top / path
        text = file.read_text(encoding="utf-8")
        self.assertIn(old, text)
        file.write_text(text.replace(old, new), encoding="utf-8")

    def refused(self, *words):
        status, said = self.abi("check")
        self.assertEqual(status, 1, said)
        for word in words:
            self.assertIn(word, said)

    def test_a_function_that_goes_is_not_to_be_accepted(self):
        self.edit("include/tws/types.h", FUNCTION, "")
        self.refused("1 Removed", "tws_version", "breaks programs built with v0.1.0")
        self.abi("accept")
        self.refused("tws_version", "breaks programs built with v0.1.0")
        self.edit("include/tws/types.h", "#define TWS_VERSION_MAJOR 0", "#define TWS_VERSION_MAJOR 1")
        status, said = self.abi("check")
        self.assertEqual(status, 0, said)

    def test_growth_is_accepted_by_somebody(self):
        self.edit("include/tws/types.h", FUNCTION, FUNCTION + "\n" + FUNCTION.replace("tws_version", "tws_more"))
        self.assertEqual(self.abi("check")[0], 0)
        self.edit("include/tws/server.h", "} tws_server_options;", "    int one_more;\n} tws_server_options;")
        self.refused("one_more", "docs/abi.md says when")
        self.assertEqual(self.abi("accept")[0], 0)
        self.assertEqual(self.abi("check")[0], 0)


if __name__ == "__main__":
    unittest.main()
