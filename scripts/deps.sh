#!/usr/bin/env bash
# Installs what is missing for the named groups, or prints the command that would and fails.
# usage: deps.sh [--quiet] [--list | --hint] GROUP...     groups: build test check fuzz cross debug soak coverage autobahn interop
#         bench package
#   --quiet   say nothing when nothing is missing
#   --list    print the packages that are missing and stop
#   --hint    print the command, install nothing
# Nothing is asked of the package manager while every probe succeeds, so that this costs next to nothing.
set -u

# One line per need: GROUP PROBE PACKAGE [optional]. A probe is a command on PATH (cmd:), a C header (hdr:), a runtime
# library of clang (rt:), any file (file:) or a module of Debian's Python (py:). What is optional is installed where that
# is possible and does without saying no where it is not: the tests that want it count themselves as skipped.
needs() {
    cat <<'LIST'
build cmd:gcc gcc
build hdr:stdlib.h libc6-dev
build hdr:openssl/ssl.h libssl-dev
build hdr:zlib.h zlib1g-dev
test hdr:cmocka.h libcmocka-dev
test cmd:/usr/bin/python3 python3
test cmd:strace strace
test py:websockets python3-websockets
test cmd:openssl openssl
test hdr:jansson.h libjansson-dev
test cmd:chromium chromium optional
test cmd:pkg-config pkg-config optional
check cmd:git git
check cmd:/usr/bin/python3 python3
check cmd:clang clang
check cmd:clang-tidy clang-tidy
check cmd:clang-format clang-format
check cmd:g++ g++
check cmd:cppcheck cppcheck
check cmd:shellcheck shellcheck
check cmd:mandoc mandoc
check cmd:cmake cmake
check cmd:systemd-analyze systemd
check py:venv python3-venv
check py:ensurepip python3-venv
check cmd:pkg-config pkg-config
check hdr:cmocka.h libcmocka-dev
check hdr:nats/nats.h libnats-dev
check hdr:hiredis/hiredis.h libhiredis-dev
check hdr:jansson.h libjansson-dev
check hdr:microhttpd.h libmicrohttpd-dev
fuzz cmd:/usr/bin/python3 python3
fuzz cmd:clang clang
fuzz rt:fuzzer libclang-rt-dev
fuzz hdr:wslay/wslay.h libwslay-dev
fuzz cmd:llvm-cov llvm optional
fuzz cmd:afl-fuzz afl++ optional
cross cmd:aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
cross file:/usr/aarch64-linux-gnu/include/stdlib.h libc6-dev-arm64-cross
cross cmd:qemu-aarch64 qemu-user
debug cmd:gdb gdb
debug cmd:valgrind valgrind
soak cmd:/usr/bin/python3 python3
soak cmd:openssl openssl
soak cmd:gnuplot gnuplot-nox optional
coverage cmd:gcovr gcovr
autobahn cmd:/usr/bin/python3 python3
autobahn py:venv python3-venv
autobahn py:ensurepip python3-venv
autobahn cmd:openssl openssl
autobahn cmd:/usr/sbin/haproxy haproxy
interop py:websockets python3-websockets
interop cmd:openssl openssl
interop py:venv python3-venv
interop py:ensurepip python3-venv
interop cmd:chromium chromium
interop cmd:certutil libnss3-tools
interop cmd:javac default-jdk-headless
interop cmd:node nodejs
interop cmd:npm npm
interop cmd:go golang-go
interop hdr:libwebsockets.h libwebsockets-dev
interop hdr:microhttpd.h libmicrohttpd-dev
interop cmd:/usr/sbin/nginx nginx-light
interop cmd:/usr/sbin/haproxy haproxy
interop cmd:/usr/bin/tinyproxy tinyproxy-bin
interop cmd:/usr/bin/microsocks microsocks
interop hdr:nats/nats.h libnats-dev
interop hdr:hiredis/hiredis.h libhiredis-dev
interop cmd:nats-server nats-server
interop cmd:redis-server redis-server
package cmd:git git
package cmd:dh debhelper
package cmd:dpkg-buildpackage dpkg-dev
package cmd:fakeroot fakeroot
package cmd:lintian lintian
package cmd:abidiff abigail-tools
package hdr:nats/nats.h libnats-dev
package hdr:hiredis/hiredis.h libhiredis-dev
bench cmd:/usr/bin/python3 python3
bench cmd:gnuplot gnuplot-nox
bench cmd:npm npm optional
bench cmd:prometheus prometheus
bench cmd:promtool prometheus
LIST
}

quiet=0
list=0
hint=0
groups=()
for arg in "$@"; do
    case $arg in
        --quiet) quiet=1 ;;
        --list) list=1 ;;
        --hint) hint=1 ;;
        build | test | check | fuzz | cross | debug | soak | coverage | autobahn | interop | bench | package) groups+=("$arg") ;;
        *)
            echo "deps.sh: unknown argument '$arg'" >&2
            exit 2
            ;;
    esac
done
[ ${#groups[@]} -gt 0 ] || groups=(build test)

present() {
    local what=${1#*:}
    case $1 in
        cmd:*) command -v "$what" >/dev/null 2>&1 ;;
        hdr:cmocka.h)
            printf '#include <stdarg.h>\n#include <stddef.h>\n#include <setjmp.h>\n#include <stdint.h>\n#include <cmocka.h>\n' |
                ${CC:-cc} -E -x c - >/dev/null 2>&1
            ;;
        hdr:*) printf '#include <%s>\n' "$what" | ${CC:-cc} -E -x c - >/dev/null 2>&1 ;;
        file:*) [ -e "$what" ] ;;
        rt:*) [ -e "$(clang -print-file-name="libclang_rt.$what-$(uname -m).a" 2>/dev/null)" ] ;;
        py:*) /usr/bin/python3 -c "import $what" >/dev/null 2>&1 ;;
    esac
}

missing=()
needed=()
required=0
while read -r group probe package optional; do
    case " ${groups[*]} " in *" $group "*) ;; *) continue ;; esac
    case " ${missing[*]-} " in *" $package "*) continue ;; esac
    if ! present "$probe"; then
        missing+=("$package")
        [ -n "$optional" ] || { needed+=("$package"); required=1; }
    fi
done < <(needs)

if [ "$list" = 1 ]; then
    [ ${#missing[@]} -eq 0 ] || printf '%s\n' "${missing[@]}"
    exit 0
fi
if [ ${#missing[@]} -eq 0 ]; then
    [ "$quiet" = 1 ] || echo "deps: everything for ${groups[*]} is here"
    exit 0
fi

# Package lists exist already, unless apt-get update was never run here or images were stripped of them.
have_lists() {
    [ -n "$(find /var/lib/apt/lists -maxdepth 1 -name '*Packages*' -print -quit 2>/dev/null)" ]
}

# Who may install: root, sudo without a password, or (none) a person, who is told how.
as_root=()
by='sudo '
command -v sudo >/dev/null 2>&1 || by=''
if [ "$hint" = 1 ]; then
    as_root=(none)
    why='please run'
    [ -n "$by" ] || why='please run as root'
elif [ "$(id -u)" != 0 ]; then
    if [ -z "$by" ]; then
        as_root=(none)
        why='not root, and no sudo here; please run as root'
    elif sudo -n true 2>/dev/null; then
        as_root=(sudo -n)
    else
        as_root=(none)
        why='not root, and sudo would ask; please run'
    fi
fi
[ "$(id -u)" != 0 ] || by=''

# What cannot be installed is an error only when something required is among it.
install="apt-get install -y --no-install-recommends ${missing[*]}"
if ! command -v apt-get >/dev/null 2>&1; then
    echo "deps: missing (by their Debian names): ${missing[*]}" >&2
    echo "deps: no apt-get here; please install their like with your own package manager" >&2
    exit 1
fi
if [ "${as_root[0]-}" = none ]; then
    echo "deps: missing: ${missing[*]}" >&2
    echo "deps: $why:" >&2
    echo "    ${by}apt-get update && $by$install" >&2
    [ "$required" = 0 ] && echo "deps: going on without, as only optional ones are missing" >&2
    exit "$required"
fi

apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Dpkg::Use-Pty=0 \
        -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@" </dev/null
}

echo "deps: installing ${missing[*]}"
have_lists || apt update || exit "$required"
if ! apt install -y --no-install-recommends "${missing[@]}"; then
    echo "deps: once more, with fresh package lists" >&2
    if ! { apt update && apt install -y --no-install-recommends "${missing[@]}"; }; then
        echo "deps: could not install ${missing[*]}; tried: $install" >&2
        [ "$required" = 1 ] || exit 0
        [ ${#needed[@]} -lt ${#missing[@]} ] || exit 1
        echo "deps: without the optional ones: ${needed[*]}" >&2
        apt install -y --no-install-recommends "${needed[@]}" || exit 1
    fi
fi
