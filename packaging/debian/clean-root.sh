#!/usr/bin/env bash
# Installs built packages in a root that has nothing but Debian's minimum, and there compiles and runs a program with
# pkg-config (shared and static) and with CMake. As root; debootstrap makes the root if it is not there.
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
mkdir -p "$root/try"
cp "$debs"/*.deb "$root/try/"
rm -f "$root"/try/*-dbgsym_*.deb
cp -r tests/install/consumer.c tests/install/broker.c tests/install/cmake "$root/try/"
in_root() {
    chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
}
in_root apt-get update -q
in_root sh -c 'apt-get install -y -q --no-install-recommends gcc libc6-dev pkg-config cmake make /try/*.deb'
# shellcheck disable=SC2016
in_root sh -euxc '
    cd /try
    cc consumer.c $(pkg-config --cflags --libs tws) -o shared && ./shared
    cc consumer.c $(pkg-config --cflags tws) -l:libtws.a $(pkg-config --static --libs-only-l --libs-only-other tws |
        sed s/-ltws//) -o static && ./static
    cmake -S cmake -B build "-DWANTED=nats;redis" && cmake --build build
    ./build/consumer && ./build/with_nats && ./build/with_redis
    tws-cat --help >cat.txt && tws-load --help >load.txt && tws-exporter --help >exporter.txt
    man=$(dpkg -L libtws-dev | grep -c "man3/tws_") && [ "$man" -gt 100 ]
    apt-get purge -y -q libtws0 tws-tools && [ ! -e /usr/include/tws ]'
echo "clean-root: packages installed, programs built and run, packages removed"
