# Prints the "##@ Section" and "## target: text" lines of the makefiles it is given.
/^##@ / {
    if ($0 != section)
        printf "\n%s\n", substr($0, 5)
    section = $0
    next
}
/^## [a-z-]+: / {
    target = $2
    sub(/:$/, "", target)
    text = $0
    sub(/^## [a-z-]+: /, "", text)
    printf "  %-18s %s\n", target, text
}
