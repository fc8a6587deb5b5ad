# For the floors: FLOOR_SOURCES besides server.c, under the root of the repository; PEER_TEXT.
# shellcheck shell=sh
PEER_COMPILER=cc
PEER_SOURCES="server.c ../lib/floor/floor.c"
for floor_source in src/wire/sha1.c src/wire/base64.c src/wire/text.c src/wire/mask.c src/wire/mask_x86.c ${FLOOR_SOURCES:-}; do
    PEER_SOURCES="$PEER_SOURCES ../../../$floor_source"
done
PEER_CFLAGS="-std=c11 -D_GNU_SOURCE -Wall -Wextra -pthread -I../lib/floor -I../../../src -I../../../include"
PEER_LIBS=
PEER_HEADER=pthread.h
PEER_PACKAGES=libc6-dev
PEER_DEPENDS="../lib/floor ../lib/floor.sh ../../../src/wire ../../../src/task/light"
PEER_FEATURES="echo any-path"
. "$(dirname -- "$0")/../lib/cc.sh"

peer_library_version()
{
    echo "floor"
}
