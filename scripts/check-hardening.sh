#!/usr/bin/env bash
# Looks at what was built for what the flags in mk/flags.mk promise, and for what they need to work.
# usage: check-hardening.sh SHARED_LIBRARY PROGRAM...
set -u
faults=0
fault() {
    echo "$1"
    faults=$((faults + 1))
}

for file in "$@"; do
    headers=$(readelf -Wl "$file")
    dynamic=$(readelf -Wd "$file")
    symbols=$(readelf -W --dyn-syms "$file")
    grep -q GNU_RELRO <<<"$headers" || fault "$file: no RELRO"
    grep -qE 'BIND_NOW|FLAGS_1.*\bNOW\b' <<<"$dynamic" || fault "$file: not bound when it is loaded"
    grep -q TEXTREL <<<"$dynamic" && fault "$file: code is changed when it is loaded"
    grep -E 'GNU_STACK|LOAD' <<<"$headers" | grep -q RWE && fault "$file: memory to write that can be executed"
    grep -qE 'RPATH|RUNPATH' <<<"$dynamic" && fault "$file: looks for libraries in a place of its own"
    grep -q __stack_chk_fail <<<"$symbols" || fault "$file: stacks are not protected"
    grep -qE '__(mem|str|vsn|sn|fd|vf|f)[a-z]+_chk' <<<"$symbols" || fault "$file: calls of the C library are not checked"
done
shift
for program in "$@"; do
    readelf -h "$program" | grep -q 'Type: *DYN' || fault "$program: always at the same address"
    readelf -Wd "$program" | grep -q 'FLAGS_1.*PIE' || fault "$program: always at the same address"
done
[ $faults = 0 ] && echo "hardening: $(($# + 1)) files"
[ $faults = 0 ]
