#!/usr/bin/env bash
# Installs into an empty DESTDIR, builds programs against what is there and nothing else, and runs them: by pkg-config
# (shared, static, C++, the brokers' adapters), by CMake (shared, static, from a tree that was moved), and the examples
# by their own Makefile. Then sees that uninstall leaves nothing, and does the same with a library that was built
# without TLS and compression, with the static form alone.
# usage: check-install.sh DIRECTORY
set -eu
dir=$1
root=$dir/root
prefix=/opt/tws
lib=$root$prefix/lib64
version=$(sed -n 's/^#define TWS_VERSION "\(.*\)"/\1/p' include/tws/types.h)
make=("${MAKE:-make}" --no-print-directory "PREFIX=$prefix" "LIBDIR=$prefix/lib64")
rm -rf "$dir"
mkdir -p "$dir"

fail() {
    echo "install: $*" >&2
    exit 1
}

# Runs quietly; what it has said is shown when it fails.
quiet() {
    "$@" >"$dir/log" 2>&1 || {
        cat "$dir/log" >&2
        fail "failed: $*"
    }
}

# runs NAME PROGRAM: it prints the version.
runs() {
    local found
    found=$("$2") || fail "the $1 program failed"
    [ "$found" = "$version" ] || fail "the $1 program found $found, the header says $version"
}

built() {
    local name=$1
    shift
    quiet "$@"
    runs "$name" "$dir/$name"
}

# Nothing but directories that others use too is left.
gone() {
    local left
    left=$(find "$root" ! -type d -o -type d \( -name tws -o -name libtws \) ! -path "$root$prefix")
    [ -z "$left" ] || fail "uninstall leaves $left"
}

# The system's own libraries are not below DESTDIR, so pkg-config's sysroot is for ours only.
pc() {
    PKG_CONFIG_PATH=$lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root pkg-config "$@"
}
pc_static() {
    PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --static --libs-only-l --libs-only-other "$1"
}

# cmake_consumer NAME OPTION...; tws_DIR, since CMake looks in lib64 on some systems only.
cmake_consumer() {
    local name=$1
    shift
    quiet cmake -S tests/install/cmake -B "$dir/cmake-$name" -DCMAKE_BUILD_TYPE=Debug "$@"
    quiet cmake --build "$dir/cmake-$name"
    runs "CMake $name" "$dir/cmake-$name/consumer"
}

# ---- Everything ----

quiet "${make[@]}" "DESTDIR=$root" install
export LD_LIBRARY_PATH=$lib
[ "$(pc --modversion tws)" = "$version" ] || fail "tws.pc says $(pc --modversion tws), the header $version"
read -ra cflags < <(pc --cflags tws)
read -ra shared < <(pc --libs tws)
read -ra static < <(pc_static tws)
src=tests/install/consumer.c
built shared "${CC:-cc}" -std=c11 "${cflags[@]}" $src "${shared[@]}" -o "$dir/shared"
built static "${CC:-cc}" -std=c11 "${cflags[@]}" $src "-L$lib" "${static[@]/#-ltws/-l:libtws.a}" -o "$dir/static"
built cxx g++ -std=c++17 "${cflags[@]}" -x c++ $src -x none "${shared[@]}" -o "$dir/cxx"
# A program that was compiled with shorter structs.
built old "${CC:-cc}" -std=c11 -Itests/install/old tests/install/old/program.c "${shared[@]}" -o "$dir/old"
readelf -d "$dir/shared" | grep -q 'NEEDED.*\[libtws\.so\.[0-9]*\]' || fail 'the program does not need libtws.so.MAJOR'
if LD_LIBRARY_PATH='' ldd "$dir/static" | grep -q libtws; then
    fail 'the static program needs the shared library'
fi
brokers=()
for pcfile in "$lib"/pkgconfig/tws-*.pc; do
    [ -e "$pcfile" ] || continue
    broker=$(basename "$pcfile" .pc)
    broker=${broker#tws-}
    brokers+=("$broker")
    read -ra libs < <(pc --libs "tws-$broker")
    built "$broker" "${CC:-cc}" -std=c11 "${cflags[@]}" "-DWITH_$broker" tests/install/broker.c "${libs[@]}" \
        -o "$dir/$broker"
done

wanted=$(IFS=';' && echo "${brokers[*]-}")
cmake_consumer shared "-Dtws_DIR=$lib/cmake/tws" "-DWANTED=$wanted" "-DASK=$version"
for broker in ${brokers[@]+"${brokers[@]}"}; do
    runs "CMake $broker" "$dir/cmake-shared/with_$broker"
done
cp -a "$root$prefix" "$dir/moved"
LD_LIBRARY_PATH='' cmake_consumer static "-Dtws_DIR=$dir/moved/lib64/cmake/tws" -Dtws_USE_STATIC_LIBS=ON
if cmake -S tests/install/cmake -B "$dir/cmake-new" "-Dtws_DIR=$lib/cmake/tws" -DASK=99 >"$dir/log" 2>&1; then
    fail 'find_package(tws 99) finds this version'
fi
if cmake -S tests/install/cmake -B "$dir/cmake-part" "-Dtws_DIR=$lib/cmake/tws" -DWANTED=none >"$dir/log" 2>&1; then
    fail 'find_package(tws COMPONENTS none) finds that component'
fi

# The document's own lines.
mkdir "$dir/doc"
# shellcheck disable=SC2016
sed -n '/^```cmake/,/^```/{/^```/!p}' docs/install.md >"$dir/doc/CMakeLists.txt"
cp $src "$dir/doc/program.c"
quiet cmake -S "$dir/doc" -B "$dir/doc/build" "-Dtws_DIR=$lib/cmake/tws"
quiet cmake --build "$dir/doc/build"
runs 'docs/install.md' "$dir/doc/build/program"

examples=$root$prefix/share/doc/libtws/examples
PKG_CONFIG_PATH=$lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root \
    quiet make -C "$examples" OUT="$dir/examples" CFLAGS=-O0 chat ticker
"$dir/examples/chat" --help >"$dir/log" || fail 'the chat example does not run'
for tool in "$root$prefix"/bin/*; do
    "$tool" --help >"$dir/log" || fail "$tool does not run"
    [ -f "$root$prefix/share/man/man1/${tool##*/}.1" ] || fail "no manual page of $tool"
done
[ -f "$root$prefix/share/man/man3/tws_version.3" ] || fail 'no manual page of tws_version'
quiet "${make[@]}" "DESTDIR=$root" uninstall
gone

# ---- Without TLS and compression, static alone ----

rm -rf "$root"
small=("${make[@]}" "DESTDIR=$root" "BUILD=$dir/build" TLS=0 DEFLATE=0 BROKERS= SHARED=0 TOOLS=0 CFLAGS=-O0)
quiet "${small[@]}" "-j$(nproc)" install
[ ! -e "$lib/libtws.so" ] || fail 'SHARED=0 installs a shared library'
[ ! -e "$root$prefix/include/tws/openssl.h" ] || fail 'TLS=0 installs openssl.h'
read -ra static < <(pc_static tws)
absent=(-DWITHOUT_TLS -DWITHOUT_DEFLATE)
built small "${CC:-cc}" -std=c11 "${cflags[@]}" "${absent[@]}" $src "-L$lib" "${static[@]}" -o "$dir/small"
if ldd "$dir/small" | grep -E 'libssl|libcrypto|libz\.'; then
    fail 'a program of the library without TLS and compression needs their libraries'
fi
cmake_consumer small "-Dtws_DIR=$lib/cmake/tws" "-DCMAKE_C_FLAGS=${absent[*]}"
quiet "${small[@]}" uninstall
gone
echo "install: pkg-config, CMake, an old program, examples, tools of version $version; without TLS and compression; uninstall"
