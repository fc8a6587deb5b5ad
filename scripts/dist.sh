#!/usr/bin/env bash
# Packs the last commit. Names, owners, times and order come from the commit alone, so the bytes are always the same.
# usage: dist.sh NAME DIRECTORY
set -eu
name=$1
dir=$2
# Nor may it be somewhere inside of another one, whose commit would be packed.
{ git rev-parse --verify -q HEAD >/dev/null && [ -z "$(git rev-parse --show-prefix)" ]; } || {
    echo 'dist: this is no clone of the repository' >&2
    exit 1
}
[ -z "$(git status --porcelain --untracked-files=no)" ] || echo 'dist: what is not committed is not in it' >&2
mkdir -p "$dir"
git -c tar.umask=0022 -c core.autocrlf=false -c core.eol=lf archive --format=tar --prefix="$name/" HEAD >"$dir/$name.tar"
gzip -n -9 -f "$dir/$name.tar"
echo "$dir/$name.tar.gz: $(sha256sum <"$dir/$name.tar.gz" | cut -d' ' -f1)"
