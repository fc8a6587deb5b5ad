#!/usr/bin/env python3
"""`make dist` gives everybody the same bytes, and they build without git; `make release` refuses what is no release."""

import datetime
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSION = re.search(r'#define TWS_VERSION "(.*)"', (ROOT / "include/tws/types.h").read_text(encoding="utf-8")).group(1)
# Not with what the make above has been told; nor is the clone's committer this machine's.
ENV = {**{k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "VARIANT", "BUILD", "T")},
       **{f"GIT_{who}_{what}": "test@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}}


def today():
    return datetime.datetime.now(datetime.timezone.utc)


def run(*command, cwd):
    return subprocess.run(command, cwd=cwd, env=ENV, text=True, check=False, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


class Clone(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.top = pathlib.Path(scratch.name) / "clone"
        self.do("git", "clone", "-q", "--depth=1", "--no-tags", f"file://{ROOT}", str(self.top), cwd=ROOT)

    def do(self, *command, cwd=None):
        done = run(*command, cwd=cwd or self.top)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def edit(self, path, old, new, commit=True):
        file = self.top / path
        text = file.read_text(encoding="utf-8")
        self.assertIn(old, text)
        file.write_text(text.replace(old, new), encoding="utf-8")
        if commit:
            self.do("git", "commit", "-qam", "a change")


class Dist(Clone):
    def pack(self, top, **env):
        """What make dist gives in that tree, with these settings of whoever runs it."""
        mask = env.pop("umask", 0o022)
        done = subprocess.run(["make", "dist", "BUILD=out"], cwd=top, env={**ENV, **env}, text=True, check=False, umask=mask,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)
        return (top / "out" / "dist" / f"libtws-{VERSION}.tar.gz").read_bytes()

    def test_the_same_bytes_for_everybody_which_build_without_git(self):
        first = self.pack(self.top)
        # Another clone, in another place, of somebody whose habits are different.
        home = self.top.parent / "home"
        home.mkdir()
        (home / ".gitconfig").write_text("[core]\n\tautocrlf = true\n[tar]\n\tumask = 0077\n", encoding="utf-8")
        other = self.top.parent / "another place"
        self.do("git", "clone", "-q", str(self.top), str(other))
        os.utime(other / "Makefile", (1, 1))
        second = self.pack(other, umask=0o077, TZ="Pacific/Auckland", HOME=str(home), LC_ALL="C.UTF-8", GZIP="-1")
        self.assertEqual(hashlib.sha256(first).hexdigest(), hashlib.sha256(second).hexdigest())
        with tarfile.open(self.top / "out" / "dist" / f"libtws-{VERSION}.tar.gz") as tar:
            self.assertEqual({(m.uname, m.uid, m.name.split("/")[0]) for m in tar},
                             {("root", 0, f"libtws-{VERSION}")})
            tar.extractall(self.top.parent)
        tree = self.top.parent / f"libtws-{VERSION}"
        # Its whole build is that of the Debian packages; here, that make finds everything it needs.
        plan = self.do("make", "-n", "all", "install", f"DESTDIR={self.top.parent}/root", cwd=tree)
        self.assertIn(f"libtws.so.{VERSION}", plan)
        self.assertNotIn("fatal:", plan)
        tests = self.do("make", "-n", "test-run", cwd=tree)
        self.assertIn("tests/tools/deps_test.py", tests)
        self.assertNotIn("tests/tools/release_test.py", tests)

    def test_sources_inside_another_repository_are_no_clone(self):
        inner = self.top / "inner"
        shutil.copytree(self.top, self.top.parent / "plain", ignore=shutil.ignore_patterns(".git"))
        shutil.move(self.top.parent / "plain", inner)
        done = run("make", "dist", cwd=inner)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("dist: this is no clone", done.stdout)


class Release(Clone):
    def refused(self, why, gates="true"):
        done = run("make", "release", f"RELEASE_GATES={gates}", cwd=self.top)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(f"release: {why}", done.stdout)
        self.assertEqual(self.do("git", "tag"), "")

    def prepare(self):
        """Whatever waits under Unreleased belongs to this release, which is of today."""
        text = (self.top / "CHANGELOG.md").read_text(encoding="utf-8")
        text = re.sub(r"## \[Unreleased\]\n.*?(?=## \[)", "## [Unreleased]\n\n", text, flags=re.S)
        text = re.sub(rf"(?m)^(## \[{re.escape(VERSION)}\] - ).*", rf"\g<1>{today():%F}", text)
        (self.top / "CHANGELOG.md").write_text(text, encoding="utf-8")
        if self.do("git", "status", "--porcelain"):
            self.do("git", "commit", "-qam", "an entry for the release")

    def test_refusals(self):
        self.prepare()
        (self.top / "new.c").write_text("", encoding="utf-8")
        self.refused("there are files that are not committed")
        (self.top / "new.c").unlink()
        self.edit("README.md", "\n", "\n\n", commit=False)
        self.refused("there are files that are not committed")
        self.do("git", "checkout", "-q", "README.md")
        self.refused("a gate failed: false", gates="false")

        self.edit("CHANGELOG.md", "## [Unreleased]\n", "## [Unreleased]\n\n- Something.\n")
        self.refused("CHANGELOG.md has unreleased entries")
        self.do("git", "reset", "-q", "--hard", "HEAD~")
        self.edit("CHANGELOG.md", f"## [{VERSION}] - ", f"## [{VERSION}.1] - ")
        self.refused(f"CHANGELOG.md has no entry '## [{VERSION}] - DATE'")
        self.do("git", "reset", "-q", "--hard", "HEAD~")
        yesterday = today() - datetime.timedelta(days=1)
        self.edit("CHANGELOG.md", f"## [{VERSION}] - {today():%F}", f"## [{VERSION}] - {yesterday:%F}")
        self.refused(f"CHANGELOG.md dates {VERSION} {yesterday:%F}, which is not today")
        self.do("git", "reset", "-q", "--hard", "HEAD~")
        self.edit("packaging/debian/changelog", f"libtws ({VERSION}-", "libtws (99-")
        self.refused(f"packaging/debian/changelog has no {VERSION}")
        self.do("git", "reset", "-q", "--hard", "HEAD~")
        self.edit("include/tws/types.h", f'"{VERSION}"', '"99.0.0"')
        self.refused(f"TWS_VERSION says 99.0.0, its numbers {VERSION}")

    def test_a_tag_after_the_gates_and_only_one(self):
        self.prepare()
        self.do("make", "release", "RELEASE_GATES=true")
        self.assertEqual(self.do("git", "tag"), f"v{VERSION}\n")
        self.assertEqual(self.do("git", "cat-file", "-t", f"v{VERSION}"), "tag\n")
        done = run("make", "release", "RELEASE_GATES=true", cwd=self.top)
        self.assertIn(f"release: there is a tag v{VERSION} already", done.stdout)
        self.assertNotEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main()
