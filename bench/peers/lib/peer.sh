# Sourced by every bench/peers/NAME/peer (see README.md): the six calls, said once. A peer, or the file of lib/ for
# its language, defines peer_check, peer_build, peer_version and peer_start, and sets PEER_FEATURES and PEER_TEXT.
# shellcheck shell=sh
set -eu

peer_dir=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
peer_name=${peer_dir##*/}
peer_root=$(CDPATH='' cd -- "$peer_dir/../../.." && pwd)
PEER_HOST=${PEER_HOST:-127.0.0.1}

peer_fail()
{
    echo "$peer_name: $*" >&2
    exit 1
}

peer_usage()
{
    echo "usage: $0 check | build [OUTDIR] | version | features | describe | start PORT [OUTDIR]" >&2
    exit 2
}

# peer_lacks TEXT: what check prints before it fails.
peer_lacks()
{
    echo "$peer_name: $*"
    exit 1
}

peer_has_feature()
{
    case " $PEER_FEATURES " in
    *" $1 "*) return 0 ;;
    *) return 1 ;;
    esac
}

peer_check_asked_features()
{
    if [ -n "${TLS_CERT:-}${TLS_KEY:-}" ]; then
        peer_has_feature tls || peer_fail "has no tls"
        if [ -z "${TLS_CERT:-}" ] || [ -z "${TLS_KEY:-}" ]; then
            peer_fail "TLS_CERT and TLS_KEY go together"
        fi
    fi
    if [ "${DEFLATE:-0}" = 1 ]; then
        peer_has_feature deflate || peer_fail "has no deflate"
    fi
}

peer_run_start()
{
    case $1 in
    '' | *[!0-9]*) peer_usage ;;
    esac
    peer_check_asked_features
    # A connection is a descriptor; some systems still start a shell at 1,024.
    # shellcheck disable=SC3045
    ulimit -S -n "$(ulimit -H -n)" 2>/dev/null || true
    export PEER_HOST
    peer_start "$1" "$2"
    peer_fail "could not be started"
}

peer_main()
{
    peer_call=${1:-}
    [ $# -gt 0 ] && shift
    case $peer_call:$# in
    check:0) peer_check ;;
    build:[01])
        peer_out=${1:-$peer_root/build/bench/peers/$peer_name}
        mkdir -p "$peer_out"
        peer_build "$(CDPATH='' cd -- "$peer_out" && pwd)"
        ;;
    version:0) peer_version ;;
    features:0) echo "$PEER_FEATURES" ;;
    describe:0) echo "$PEER_TEXT" ;;
    start:[12]) peer_run_start "$1" "${2:-$peer_root/build/bench/peers/$peer_name}" ;;
    *) peer_usage ;;
    esac
}
