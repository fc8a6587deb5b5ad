#!/usr/bin/env bash
# Installs into an empty DESTDIR, builds programs against what is there by pkg-config alone (shared, static, C++),
# runs them, and sees that uninstall leaves nothing.
# usage: check-install.sh DIRECTORY
set -eu
dir=$1
root=$dir/root
prefix=/opt/tws
rm -rf "$dir"
mkdir -p "$dir"
args=(--no-print-directory "DESTDIR=$root" "PREFIX=$prefix" "LIBDIR=$prefix/lib64")
${MAKE:-make} "${args[@]}" install >"$dir/install.log" 2>&1 || {
    cat "$dir/install.log" >&2
    exit 1
}

export PKG_CONFIG_PATH=$root$prefix/lib64/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
export LD_LIBRARY_PATH=$root$prefix/lib64
read -ra cflags < <(pkg-config --cflags tws)
read -ra shared < <(pkg-config --libs tws)
# --static names what the archive needs as well; the system's own libraries are not below DESTDIR.
read -ra static < <(PKG_CONFIG_SYSROOT_DIR='' pkg-config --static --libs-only-l --libs-only-other tws)

built() {
    local name=$1
    shift
    "$@" || { echo "install: cannot build the $name program: $*" >&2 && exit 1; }
    version=$("$dir/$name") || { echo "install: the $name program failed" >&2 && exit 1; }
    [ "$version" = "$(pkg-config --modversion tws)" ] || {
        echo "install: the $name program found $version, tws.pc says $(pkg-config --modversion tws)" >&2
        exit 1
    }
}

src=tests/install/consumer.c
built shared "${CC:-cc}" -std=c11 "${cflags[@]}" $src "${shared[@]}" -o "$dir/shared"
built static "${CC:-cc}" -std=c11 "${cflags[@]}" $src "-L$root$prefix/lib64" \
    "${static[@]/#-ltws/-l:libtws.a}" -o "$dir/static"
built cxx g++ -std=c++17 "${cflags[@]}" -x c++ $src -x none "${shared[@]}" -o "$dir/cxx"

readelf -d "$dir/shared" | grep -q 'NEEDED.*\[libtws\.so\.[0-9]*\]' || {
    echo 'install: the program does not need libtws.so.MAJOR' >&2
    exit 1
}
if LD_LIBRARY_PATH='' ldd "$dir/static" | grep -q libtws; then
    echo 'install: the static program needs the shared library' >&2
    exit 1
fi
[ -f "$root$prefix/share/man/man3/tws_version.3" ] || {
    echo 'install: no manual page of tws_version' >&2
    exit 1
}

${MAKE:-make} "${args[@]}" uninstall >>"$dir/install.log" 2>&1
left=$(find "$root" ! -type d)
[ -z "$left" ] || {
    echo "install: uninstall leaves $left" >&2
    exit 1
}
echo "install: shared, static and C++ programs found version $version by pkg-config"
