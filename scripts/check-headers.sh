#!/usr/bin/env bash
# Each public header compiles alone, with every compiler that is here, as C11, C17 and C++17, and by itself brings
# in nothing of OpenSSL or zlib, but for the one that is for OpenSSL.
set -u
warn=(-Wall -Wextra -Wpedantic -Werror -fsyntax-only -Iinclude)
failed=0
count=0

try() {
    local header=$1
    shift
    count=$((count + 1))
    if ! printf '#include <%s>\n' "${header#include/}" | "$@" "${warn[@]}" -; then
        echo "$header: does not compile alone with: $*" >&2
        failed=1
    fi
}

for header in include/tws/*.h; do
    for cc in gcc clang; do
        command -v $cc >/dev/null || continue
        try "$header" $cc -std=c11 -x c -Wstrict-prototypes
        try "$header" $cc -std=c17 -x c
    done
    for cxx in g++ clang++; do
        command -v $cxx >/dev/null || continue
        try "$header" $cxx -std=c++17 -x c++
    done
    [ "$header" != include/tws/openssl.h ] || continue
    if printf '#include <%s>\n' "${header#include/}" | ${CC:-cc} -E -Iinclude -x c - |
        grep -qE '^# [0-9]+ "[^"]*/(openssl/|zlib\.h|pthread\.h)'; then
        echo "$header: brings in OpenSSL, zlib or pthread headers" >&2
        failed=1
    fi
done
[ "$count" -gt 0 ] || failed=1
[ "$failed" = 0 ] && echo "headers: $count compilations"
exit $failed
