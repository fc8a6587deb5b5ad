#!/usr/bin/env bash
# Runs shellcheck over every tracked shell script, known by its name or its first line.
set -u
scripts=()
peers=() # these share variables with files whose path is known only when they run
while IFS= read -r -d '' file; do
    [ -f "$file" ] || continue
    case $file in
        bench/peers/*/peer | bench/peers/lib/*.sh) peers+=("$file") ;;
        *.sh) scripts+=("$file") ;;
        *.*/* | *.[a-z]*) [ "$file" = .ci/run ] && scripts+=("$file") ;;
        *) head -n 1 "$file" | grep -qaE '^#! ?/(usr/)?bin/(env )?(ba|da)?sh' && scripts+=("$file") ;;
    esac
done < <(git ls-files -z)
failed=0
shellcheck -x -S info "${scripts[@]}" || failed=1
[ ${#peers[@]} -eq 0 ] || shellcheck -e SC1091,SC2034,SC2154 -S info "${peers[@]}" || failed=1
[ $failed = 0 ] && echo "shell: $((${#scripts[@]} + ${#peers[@]})) scripts"
exit $failed
