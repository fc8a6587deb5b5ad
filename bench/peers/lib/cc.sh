# For a peer in C or C++: one or more source files against a library of the system.
# Set PEER_COMPILER (cc or c++), PEER_SOURCES, PEER_CFLAGS, PEER_LIBS, PEER_HEADER (what must be there),
# PEER_PACKAGES (what to install for it on Debian), PEER_DEPENDS (files and folders besides that it is built from), and
# define peer_library_version.
# shellcheck shell=sh
. "$(dirname -- "$0")/../lib/peer.sh"

case $PEER_COMPILER in
c++) peer_cc=${CXX:-c++} ;;
*) peer_cc=${CC:-cc} ;;
esac

# peer_preprocess TEXT: what the preprocessor makes of it.
peer_preprocess()
{
    case $PEER_COMPILER in
    c++) peer_language=c++ ;;
    *) peer_language=c ;;
    esac
    printf '%b\n' "$1" | $peer_cc -E -P -x "$peer_language" - 2>/dev/null
}

peer_check()
{
    command -v "$peer_cc" >/dev/null || peer_lacks "needs a compiler: apt-get install build-essential"
    peer_preprocess "#include <$PEER_HEADER>" >/dev/null ||
        peer_lacks "needs <$PEER_HEADER>: apt-get install $PEER_PACKAGES"
}

peer_build()
{
    cd "$peer_dir" || return
    peer_stamp="$peer_cc $PEER_CFLAGS $PEER_LIBS $(peer_version)"
    # PEER_DEPENDS is words too.
    # shellcheck disable=SC2086
    if [ -x "$1/server" ] && [ "$(cat "$1/stamp" 2>/dev/null)" = "$peer_stamp" ] &&
        [ -z "$(find . ../lib/cc.sh ${PEER_DEPENDS:-} -newer "$1/server" -type f)" ]; then
        return 0
    fi
    # The lists are words, not one argument.
    # shellcheck disable=SC2086
    $peer_cc $PEER_CFLAGS -O2 -o "$1/server" $PEER_SOURCES $PEER_LIBS
    echo "$peer_stamp" >"$1/stamp"
}

peer_version()
{
    echo "$(peer_library_version), $($peer_cc --version 2>/dev/null | head -n 1 || echo 'no compiler')"
}

peer_start()
{
    exec "$2/server" "$PEER_HOST" "$1"
}
