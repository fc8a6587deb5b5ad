#!/usr/bin/env bash
# Tags the last commit as a release, when everything says that it is one: docs/releasing.md. RELEASE_GATES: the
# command that has to succeed.
# usage: release.sh VERSION
set -eu
version=$1
tag=v$version
gates=${RELEASE_GATES:-.ci/run}

refuse() {
    echo "release: $*" >&2
    exit 1
}

[ -z "$(git status --porcelain)" ] || refuse 'there are files that are not committed'
git rev-parse -q --verify "refs/tags/$tag" >/dev/null && refuse "there is a tag $tag already"
text=$(sed -n 's/^#define TWS_VERSION "\(.*\)"/\1/p' include/tws/types.h)
[ "$text" = "$version" ] || refuse "TWS_VERSION says $text, its numbers $version"
date=$(sed -nE "s/^## \[${version//./\\.}\] - ([0-9]{4}-[0-9]{2}-[0-9]{2})\$/\1/p" CHANGELOG.md)
[ -n "$date" ] || refuse "CHANGELOG.md has no entry '## [$version] - DATE'"
[ "$date" = "$(date -u +%F)" ] || refuse "CHANGELOG.md dates $version $date, which is not today"
between=$(awk '/^## \[/ { inside = ($2 == "[Unreleased]"); next } inside && NF' CHANGELOG.md)
[ -z "$between" ] || refuse "CHANGELOG.md has unreleased entries"
grep -q "^libtws ($version-" packaging/debian/changelog || refuse "packaging/debian/changelog has no $version"
$gates || refuse "a gate failed: $gates"
[ -z "$(git status --porcelain)" ] || refuse 'the gates have changed files'
git tag -a "$tag" -m "libtws $version"
echo "release: tagged $tag; publish with: git push origin $tag"
