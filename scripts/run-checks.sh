#!/usr/bin/env bash
# Runs `make check-NAME` for each NAME, shows what failed, and ends with "N passed, N failed, N skipped".
# usage: run-checks.sh NAME...
set -u
passed=0
failed=()
for name in "$@"; do
    start=$SECONDS
    if output=$(${MAKE:-make} --no-print-directory "check-$name" 2>&1); then
        passed=$((passed + 1))
        verdict=ok
    else
        failed+=("$name")
        verdict=FAIL
    fi
    printf '%-6s %-12s (%d s)  %s\n' "$verdict" "$name" $((SECONDS - start)) \
        "$([ $verdict = ok ] && tail -n 1 <<<"$output" | cut -c -100)"
    [ $verdict = ok ] || sed 's/^/    | /' <<<"$output"
done
[ ${#failed[@]} -eq 0 ] || echo "failed: ${failed[*]}"
echo "$passed passed, ${#failed[@]} failed, 0 skipped"
[ ${#failed[@]} -eq 0 ]
