#!/usr/bin/env bash
# Builds the source and binary packages of a tarball and has lintian judge them.
# usage: build.sh TARBALL VERSION DIRECTORY
set -eu
tarball=$1
version=$2
dir=$3
rm -rf "$dir"
mkdir -p "$dir"
cp "$tarball" "$dir/libtws_$version.orig.tar.gz"
tar -xzf "$tarball" -C "$dir"
cd "$dir/libtws-$version"
cp -a packaging/debian debian
rm debian/build.sh debian/clean-root.sh
found=$(sed -n '1s/^libtws (\(.*\)-[^-]*) .*/\1/p' debian/changelog)
[ "$found" = "$version" ] || {
    echo "deb: debian/changelog says $found, the header $version" >&2
    exit 1
}
# Not with what the make above was told.
unset MAKEFLAGS MAKELEVEL MFLAGS CFLAGS CPPFLAGS LDFLAGS CC
export DEB_BUILD_OPTIONS="parallel=${JOBS:-$(nproc)}"
dpkg-buildpackage -us -uc >../build.log 2>&1 || {
    tail -n 40 ../build.log >&2
    exit 1
}
cd ..
# There is no bug to close: nobody has asked Debian for this package.
lintian --suppress-tags initial-upload-closes-no-bugs --fail-on error,warning --tag-display-limit 0 ./*.changes
rm -rf "libtws-$version"
ls ./*.dsc ./*.deb
