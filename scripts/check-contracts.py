#!/usr/bin/env python3
"""Every public function says its contract: summary, each parameter, what it returns, threads."""

import sys

import headers


def faults_of(fn):
    if not fn.doc:
        return ["has no contract comment (/** ... */ directly above it)"]
    doc, faults = fn.doc, []
    if not doc.summary.endswith((".", "?")):
        faults.append("needs a summary that is a sentence")
    given = [name for name, _ in doc.params]
    if given != fn.param_names():
        faults.append(f"describes ({', '.join(given)}) but takes ({', '.join(fn.param_names())})")
    faults += [f"says nothing about '{name}'" for name, text in doc.params if not text]
    if fn.returns != "void" and not doc.returns:
        faults.append("does not say what it returns")
    if fn.returns == "void" and doc.returns:
        faults.append("returns nothing, but has @return")
    if fn.returns == "tws_err" and not ("TWS_OK" in doc.returns or doc.returns.startswith("as tws_")):
        faults.append("does not say when it returns TWS_OK, nor like which function it returns")
    if not doc.threads:
        faults.append("does not say which threads may call it (Threads:)")
    return faults


def main():
    all_headers = headers.read_headers()
    known = {row[0] for h in all_headers for row in h.errors}
    functions = [fn for h in all_headers for fn in h.functions]
    faults = [f"{fn.header}:{fn.line}: {fn.name} {fault}" for fn in functions for fault in faults_of(fn)]
    for fn in functions:
        returns = fn.doc.returns if fn.doc else ""
        named = {word.strip(".,;:()") for word in returns.split() if word.startswith("TWS_ERR_")}
        faults += [f"{fn.header}:{fn.line}: {fn.name} returns {name}, which is no error code"
                   for name in sorted(named - known)]
    print("\n".join(faults) if faults else f"contracts: {len(functions)} functions have theirs")
    return 1 if faults or not functions else 0


if __name__ == "__main__":
    sys.exit(main())
