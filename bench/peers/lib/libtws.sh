# For the library of this repository: its echo example, with PEER_ARGS saying which kind of thread.
# shellcheck shell=sh
. "$(dirname -- "$0")/../lib/peer.sh"

tws_example=$peer_root/examples/echo.c

tws_has_option()
{
    grep -q "{\"$1\"," "$tws_example" 2>/dev/null
}

PEER_FEATURES="echo any-path"
if tws_has_option broadcast; then PEER_FEATURES="$PEER_FEATURES broadcast"; fi
if tws_has_option tls-cert; then PEER_FEATURES="$PEER_FEATURES tls"; fi
if tws_has_option deflate; then PEER_FEATURES="$PEER_FEATURES deflate deflate-same"; fi # by its defaults

peer_check()
{
    [ -f "$tws_example" ] || peer_lacks "needs examples/echo.c: a whole checkout of this repository"
    if [ -n "${PEER_NEEDS_OPTION:-}" ] && ! tws_has_option "$PEER_NEEDS_OPTION"; then
        peer_lacks "needs an echo example with --$PEER_NEEDS_OPTION: a later version of this repository"
    fi
    command -v "${CC:-cc}" >/dev/null || peer_lacks "needs a compiler: apt-get install build-essential"
    command -v make >/dev/null || peer_lacks "needs make: apt-get install make"
}

# A copy, so that a run is not changed by a build that goes on beside it.
peer_build()
{
    make -s -C "$peer_root" build/examples/echo >&2
    cp "$peer_root/build/examples/echo" "$1/server.new"
    mv "$1/server.new" "$1/server"
}

peer_version()
{
    tws_number=$(sed -n 's/^#define TWS_VERSION_[A-Z]* *\([0-9]*\).*/\1/p' "$peer_root/include/tws/types.h" |
        head -n 3 | paste -s -d .)
    tws_commit=$(git -C "$peer_root" rev-parse --short HEAD 2>/dev/null || echo unknown)
    if [ -n "$(git -C "$peer_root" status --porcelain -- src include examples 2>/dev/null)" ]; then
        tws_commit="$tws_commit and changes"
    fi
    echo "libtws $tws_number ($tws_commit), $("${CC:-cc}" --version 2>/dev/null | head -n 1 || echo 'no compiler')"
}

peer_start()
{
    set -- "$2/server" --listen "$PEER_HOST:$1"
    if tws_has_option broadcast; then
        set -- "$@" --broadcast /broadcast --queue-messages "${PEER_BROADCAST_QUEUE:-256}"
    fi
    if [ -n "${TLS_CERT:-}" ]; then
        set -- "$@" --tls-cert "$TLS_CERT" --tls-key "$TLS_KEY"
    fi
    if [ "${DEFLATE:-0}" = 1 ]; then
        set -- "$@" --deflate
    fi
    # PEER_ARGS is words, not one argument.
    # shellcheck disable=SC2086
    exec "$@" $PEER_ARGS
}
