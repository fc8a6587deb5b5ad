#!/usr/bin/env bash
# The interface of each library, as the public headers say it, against the one kept in packaging/abi/, and against the
# one that the last tag kept there, by abidiff.
# usage: abi.sh check|accept DIRECTORY
set -eu
what=$1
dir=$2
kept=packaging/abi
[ "$(uname -m)" = x86_64 ] || {
    echo 'abi: the interface that is kept is that of x86-64' >&2
    exit 1
}
mkdir -p "$dir"

# types NAME HEADER...: a shared object with the types of all functions, and what abidw makes of it.
types() {
    local name=$1
    shift
    /usr/bin/python3 scripts/abi-types.py "$@" >"$dir/$name.c"
    gcc -std=c11 -g -shared -fPIC -Iinclude "$dir/$name.c" -o "$dir/$name.so"
    abidw --no-comp-dir-path --no-corpus-path --no-show-locs --no-write-default-sizes --no-elf-needed \
        --out-file "$dir/$name.abi" "$dir/$name.so"
}

# New functions break nothing. Whatever else is told of needs a decision.
differs() {
    ! abidiff --no-added-syms --suppressions "$kept/allowed.ini" "$1" "$2"
}

# Of what has been released nothing may go, whatever was accepted since, unless the major version has been raised.
# Bit 8 of abidiff's answer: something is gone.
breaks_release() {
    local status=0
    git show "$tag:$kept/$1.abi" >"$dir/$1.released.abi" 2>/dev/null || return 1
    abidiff --no-added-syms "$dir/$1.released.abi" "$dir/$1.abi" >"$dir/$1.released.txt" || status=$?
    [ $((status & 8)) != 0 ]
}
major_of() {
    sed -n 's/^#define TWS_VERSION_MAJOR \([0-9]*\)$/\1/p'
}

types libtws all
types libtws_nats tws/nats.h
types libtws_redis tws/redis.h
faults=0
for name in libtws libtws_nats libtws_redis; do
    if [ "$what" = accept ]; then
        cp "$dir/$name.abi" "$kept/$name.abi"
    elif differs "$kept/$name.abi" "$dir/$name.abi"; then
        faults=1
    fi
done
tag=$(git describe --tags --match 'v[0-9]*' --abbrev=0 2>/dev/null || true)
if [ -n "$tag" ] && [ "$(git show "$tag:include/tws/types.h" | major_of)" = "$(major_of <include/tws/types.h)" ]; then
    for name in libtws libtws_nats libtws_redis; do
        ! breaks_release $name || {
            cat "$dir/$name.released.txt"
            echo "abi: breaks programs built with $tag, and the major version is the same" >&2
            exit 1
        }
    done
fi
# A check that finds nothing when a field changes its type, or when a function goes, would be none.
one=$(grep -o -m 1 'type_of_[a-z_]*' "$dir/libtws.c" | head -n 1)
sed "/\<$one\>/d" "$dir/libtws.c" >"$dir/fewer.c"
gcc -std=c11 -g -shared -fPIC -Iinclude "$dir/fewer.c" -o "$dir/fewer.so"
differs "$dir/libtws.abi" "$dir/fewer.so" >"$dir/fewer.txt" || {
    echo 'abi: abidiff does not see that a function has gone' >&2
    exit 1
}
mkdir -p "$dir/changed"
cp -r include/tws "$dir/changed/"
sed -i 's/^    int backlog;/    int64_t backlog;/' "$dir/changed/tws/server.h"
gcc -std=c11 -g -shared -fPIC "-I$dir/changed" "$dir/libtws.c" -o "$dir/changed.so"
differs "$dir/libtws.abi" "$dir/changed.so" >"$dir/changed.txt" || {
    echo 'abi: abidiff does not see that a field of an option struct has changed' >&2
    exit 1
}
[ "$faults" = 0 ] || {
    echo 'abi: the interface has changed. docs/abi.md says when that may be; then: make accept-abi' >&2
    exit 1
}
echo "abi: $what${tag:+, $tag}: $(grep -c '^extern' "$dir/libtws.c") functions, $(grep -c '^extern' "$dir/libtws_nats.c") of libtws_nats, $(grep -c '^extern' "$dir/libtws_redis.c") of libtws_redis"
