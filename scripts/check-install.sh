#!/usr/bin/env bash
# Installs into an empty DESTDIR, builds programs against what is there and nothing else, and runs them: by pkg-config
# (shared, static, C++, the brokers' adapters), by CMake (shared, static, from a tree that was moved), and the examples
# by their own Makefile. Then sees that uninstall leaves nothing, and does the same below a prefix with a blank, and with
# libraries that were built without TLS, without compression and without both, with the static form alone.
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

# Nothing is left below a prefix of one's own.
gone() {
    local left
    left=$(find "$root$prefix" 2>/dev/null || true)
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
# asks ANSWER REQUEST [PARTS]: whether find_package() takes this version for what is requested.
asks() {
    local found=yes
    cmake -S tests/install/cmake -B "$dir/cmake-asks" "-Dtws_DIR=$lib/cmake/tws" "-DASK=$2" "-DWANTED=${3-}" \
        >"$dir/log" 2>&1 || found=no
    [ $found = "$1" ] || fail "find_package(tws $2 ${3-}): $found"
}
IFS=. read -r major minor patch <<<"$version"
next=$major.$minor.$((patch + 1))
asks yes "$version;EXACT"
asks yes "$major.$minor"
asks yes "$major.$minor...$next"
asks yes "0.0.1...<$next"
asks no "0.0.1...<$version"
asks no "$next;EXACT"
asks no "$next"
asks no "$major.$((minor + 1))"
asks no 99
asks no "$version" none

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
    grep -q "^usage: ${tool##*/} " "$dir/log" || fail "$tool does not know its name"
    [ -f "$root$prefix/share/man/man1/${tool##*/}.1" ] || fail "no manual page of $tool"
done
[ -f "$root$prefix/share/man/man3/tws_version.3" ] || fail 'no manual page of tws_version'
quiet "${make[@]}" "DESTDIR=$root" uninstall
gone

# ---- Below a prefix with a blank ----

with_blank() {
    local root="$dir/a root" prefix='/opt/an own'
    local lib=$root$prefix/lib flags
    local own=("${MAKE:-make}" --no-print-directory "PREFIX=$prefix" "DESTDIR=$root")
    quiet "${own[@]}" install
    cp -a "$root$prefix" "$dir/moved 2"
    flags=$(PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --define-prefix --cflags --libs tws)
    # What pkg-config escapes is for a shell to read.
    eval "quiet ${CC:-cc} -std=c11 $src $flags -o '$dir/blank'"
    LD_LIBRARY_PATH=$lib runs 'a prefix with a blank' "$dir/blank"
    LD_LIBRARY_PATH='' cmake_consumer blank "-Dtws_DIR=$dir/moved 2/lib/cmake/tws"
    quiet "${own[@]}" uninstall
    gone
}
with_blank

# ---- Without TLS, without compression, without both; static alone ----

# without NAME SWITCH...: everything can be built, and what the library lacks it says.
without() {
    local name=$1 switch
    local small absent=() static
    shift
    small=("${make[@]}" "DESTDIR=$root" "BUILD=$dir/build" "$@" BROKERS= SHARED=0 TOOLS=0 CFLAGS=-O0)
    quiet "${small[@]}" "-j$(nproc)" all install
    [ ! -e "$lib/libtws.so" ] || fail 'SHARED=0 installs a shared library'
    for switch in "$@"; do absent+=("-DWITHOUT_${switch%=0}"); done
    read -ra static < <(pc_static tws)
    built "$name" "${CC:-cc}" -std=c11 "${cflags[@]}" "${absent[@]}" $src "-L$lib" "${static[@]}" -o "$dir/$name"
    cmake_consumer "$name" "-Dtws_DIR=$lib/cmake/tws" "-DCMAKE_C_FLAGS=${absent[*]}"
    if [[ $* = *TLS=0* ]]; then
        [ ! -e "$root$prefix/include/tws/openssl.h" ] || fail 'TLS=0 installs openssl.h'
        ! ldd "$dir/$name" "$dir/build/examples/echo" | grep -E 'libssl|libcrypto' || fail 'TLS=0 needs OpenSSL'
    fi
    if [[ $* = *DEFLATE=0* ]]; then
        ! ldd "$dir/$name" "$dir/build/examples/echo" | grep 'libz\.' || fail 'DEFLATE=0 needs zlib'
    fi
    quiet "${small[@]}" uninstall
    gone
}
without no-tls TLS=0
without no-deflate DEFLATE=0
without neither TLS=0 DEFLATE=0
echo "install: pkg-config, CMake, an old program, examples, tools of version $version; without TLS and compression; uninstall"
