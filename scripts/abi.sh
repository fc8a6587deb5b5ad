#!/usr/bin/env bash
# The binary interface of each library against the one kept in packaging/abi/, which is that of the last release.
# usage: abi.sh check|accept BUILD
set -eu
what=$1
build=$2
kept=packaging/abi
dump=(--exported-interfaces-only --no-write-default-sizes --headers-dir include/tws --drop-private-types --no-comp-dir-path --no-corpus-path --no-show-locs --no-parameter-names)
[ "$(uname -m)" = x86_64 ] || {
    echo 'abi: the interface that is kept is that of x86-64' >&2
    exit 1
}
faults=0
for lib in libtws libtws_nats libtws_redis; do
    shared=$(readlink -f "$build/$lib.so")
    [ -e "$shared" ] || {
        echo "abi: there is no $build/$lib.so" >&2
        exit 1
    }
    file=$kept/$(basename "$shared" | sed 's/\(\.so\.[0-9]*\)\..*/\1/').abi
    abidw "${dump[@]}" --out-file "$build/$lib.abi" "$shared"
    case $what in
        accept)
            cp "$build/$lib.abi" "$file"
            echo "abi: $file is now that of $shared"
            ;;
        check)
            # Functions that are new break nothing. Everything else that abidiff tells of needs a decision.
            if ! abidiff --no-added-syms --no-unreferenced-symbols --suppressions "$kept/allowed.ini" \
                "$file" "$build/$lib.abi"; then
                echo "abi: $lib has changed in a way that may break programs; see docs/abi.md" >&2
                faults=1
            fi
            ;;
    esac
done
[ "$faults" = 0 ] && echo "abi: $what: libtws, libtws_nats, libtws_redis"
exit $faults
