# For a peer written in Go: a module of its own in the peer's folder, versions pinned by go.mod and go.sum.
# Set PEER_MODULE to the import path of the library under test.
# shellcheck shell=sh
. "$(dirname -- "$0")/../lib/peer.sh"

peer_check()
{
    command -v go >/dev/null ||
        peer_lacks "needs Go $(go_wanted) or newer: apt-get install golang-go, or the package of your system"
    # Without a network the modules must be in the cache already; with one this puts them there.
    (cd "$peer_dir" && timeout 120 go mod download >/dev/null 2>&1) ||
        peer_lacks "needs Go $(go_wanted) or newer and its modules: run 'go mod download' in bench/peers/$peer_name" \
            "with a network (this machine has $(go env GOVERSION 2>/dev/null))"
}

go_wanted()
{
    sed -n 's/^go //p' "$peer_dir/go.mod"
}

peer_build()
{
    cd "$peer_dir" || return
    go build -trimpath -o "$1/server" .
}

peer_version()
{
    echo "$PEER_MODULE $(go_pinned), $(go env GOVERSION 2>/dev/null || echo 'no go')" | sed 's|^.*/\([^/]*/[^/]*\) |\1 |'
}

go_pinned()
{
    awk -v m="$PEER_MODULE" '$1 == "require" { $1 = ""; $0 = $0 } $1 == m { print $2; exit }' "$peer_dir/go.mod"
}

peer_start()
{
    exec "$2/server" "$PEER_HOST:$1"
}
