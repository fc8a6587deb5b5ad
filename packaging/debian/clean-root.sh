#!/usr/bin/env bash
# Installs built packages in a root that has nothing but Debian's minimum, in place of older ones, and there compiles and
# runs a program with pkg-config (shared and static) and with CMake. Then removes and purges them, after which no file may
# be left that was not there before. As root; debootstrap makes the root if it is not there.
# usage: clean-root.sh DIRECTORY-OF-PACKAGES ROOT
set -eu
debs=$1
root=$2
[ "$(id -u)" = 0 ] || {
    echo 'clean-root: chroot needs root' >&2
    exit 1
}
[ -d "$root/usr" ] || debootstrap --variant=minbase bookworm "$root"
rm -rf "$root/try"
mkdir -p "$root/try/old"
for deb in "$debs"/*.deb; do
    case $deb in *-dbgsym_*) continue ;; esac
    cp "$deb" "$root/try/"
    # The same, but older: what an upgrade comes from.
    dpkg-deb -R "$deb" "$root/try/unpacked"
    sed -i -E 's/^(Version: .*)/\1~old/; s/\(= ([^)]*)\)/(= \1~old)/g' "$root/try/unpacked/DEBIAN/control"
    dpkg-deb --root-owner-group -b "$root/try/unpacked" "$root/try/old/$(basename "$deb")" >/dev/null
    rm -rf "$root/try/unpacked"
done
cp -r tests/install/consumer.c tests/install/broker.c tests/install/cmake "$root/try/"
in_root() {
    chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
}
# Every file and directory, but for what apt and dpkg keep for themselves.
files() {
    find "$root" -xdev \( -path "$root/try" -o -path "$root/var/lib/apt" -o -path "$root/var/cache" -o \
        -path "$root/var/log" -o -path "$root/proc" -o -path "$root/sys" -o -path "$root/dev" -o \
        -path "$root/tmp" -o -path '*/var/lib/dpkg/*-old' \) -prune -o -print | sort
}
wanted=$(for deb in "$root"/try/*.deb; do dpkg-deb -f "$deb" Depends; done |
    tr ',' '\n' | sed -E 's/^ *([^ ]*).*/\1/; /^libtws/d' | sort -u)
in_root apt-get update -q
# shellcheck disable=SC2086
in_root apt-get install -y -q --no-install-recommends gcc libc6-dev pkg-config cmake make $wanted
in_root sh -c 'apt-get purge -y -q "libtws*" tws-tools 2>/dev/null || true'
files >"$root/try/before.txt"
in_root sh -c 'apt-get install -y -q /try/old/*.deb'
in_root sh -c 'apt-get install -y -q /try/*.deb'
# shellcheck disable=SC2016
in_root sh -euxc '
    [ "$(dpkg-query -W -f "\${Package} \${Version}\n" "libtws*" tws-tools | grep -c "[0-9]$")" = 5 ]
    cd /try
    cc consumer.c $(pkg-config --cflags --libs tws) -o shared && ./shared
    cc consumer.c $(pkg-config --cflags tws) -l:libtws.a $(pkg-config --static --libs-only-l --libs-only-other tws |
        sed s/-ltws//) -o static && ./static
    cmake -S cmake -B build "-DWANTED=nats;redis" && cmake --build build
    ./build/consumer && ./build/with_nats && ./build/with_redis
    tws-cat --help >cat.txt && tws-load --help >load.txt && tws-exporter --help >exporter.txt
    man=$(dpkg -L libtws-dev | grep -c "man3/tws_") && [ "$man" -gt 100 ]
    apt-get remove -y -q tws-tools && [ ! -e /usr/bin/tws-cat ]
    apt-get purge -y -q libtws0 && [ ! -e /usr/include/tws ]
    ! dpkg-query -W "libtws*" tws-tools 2>/dev/null | grep .'
files >"$root/try/after.txt"
diff "$root/try/before.txt" "$root/try/after.txt" || {
    echo 'clean-root: purging the packages leaves files behind, or takes others along' >&2
    exit 1
}
echo "clean-root: packages upgraded, programs built and run, packages purged, nothing left"
