#!/usr/bin/env python3
"""Holds the borders between the folders of src/: who may include whom, and who may call what.

A folder includes only what stands above it. The wire layer works on bytes and touches nothing else; only the task
layer waits; a library never prints, exits or handles signals.
"""

import glob
import os
import re
import sys

# From the bottom up; each may include itself and those before it. <tws/...> may be included by all.
LAYERS = ["base", "wire", "task", "net", "conn", "event", "server", "client", "hub", "metrics", "cluster", "nats", "redis"]

WIRE_SYSTEM_HEADERS = {
    "stdbool.h", "stddef.h", "stdint.h", "limits.h", "string.h", "stdio.h", "stdarg.h",
    "immintrin.h", "emmintrin.h", "tmmintrin.h", "smmintrin.h", "arm_neon.h", "cpuid.h",
}
HEAP = "malloc calloc realloc reallocarray free strdup strndup asprintf vasprintf alloca"
WAITS = ("poll ppoll select pselect epoll_wait epoll_pwait epoll_pwait2 recv recvfrom recvmsg recvmmsg send sendto "
         "sendmsg sendmmsg sendfile splice read readv write writev pread pwrite accept accept4 connect sleep usleep "
         "nanosleep clock_nanosleep sem_wait sem_timedwait sem_clockwait sigwait sigtimedwait futex syscall "
         "cnd_wait cnd_timedwait thrd_join thrd_sleep SSL_read SSL_write SSL_do_handshake")
# Nowhere in a library: unbounded strings, output, exits, signals, hidden state, other locales.
EVERYWHERE = ("strcpy stpcpy strcat strncat sprintf vsprintf gets atoi atol atoll strtok rand srand random "
              "exit _exit _Exit quick_exit abort assert printf vprintf fprintf vfprintf puts fputs putchar perror "
              "warn warnx err errx system popen signal sigaction raise setlocale localtime gmtime ctime asctime "
              "gethostbyname strerror setenv putenv alloca")
# A mutex that guards fields for moments is no wait; every other use of pthreads is the task layer's.
SHORT_LOCKS = re.compile(r"pthread_(mutex_(init|destroy|lock|trylock|unlock)|once)$")
# Calls that could wait but do not where they stand: (file, function): why.
ALLOWED = {
    ("src/net/listen.c", "accept4"): "listeners are non-blocking; the task layer waits for them",
    ("src/net/connect.c", "connect"): "on non-blocking sockets; the task layer waits for them",
    ("src/net/listen.c", "connect"): "a non-blocking Unix socket, to see whether anybody listens",
    ("src/redis/link.c", "poll"): "on the adapter's own thread, which does nothing else",
    ("src/redis/link.c", "recv"): "never waits",
    ("src/redis/link.c", "send"): "never waits",
    ("src/redis/redis.c", "poll"): "on the adapter's own thread, which does nothing else",
    ("src/redis/redis.c", "read"): "of an eventfd that does not wait",
    ("src/redis/redis.c", "write"): "to an eventfd that does not wait",
    ("src/net/tls_handshake.c", "SSL_do_handshake"): "over a BIO that never waits: src/net/tls_bio.c",
}

# The one public header for programs that use OpenSSL themselves.
OPENSSL_HEADER = os.path.join("include", "tws", "openssl.h")

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)
NOT_CODE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
CALL = re.compile(r"(?<![\w.])(?<!->)([A-Za-z_]\w*)\s*\(")


def words(text):
    return set(text.split())


def strip(text):
    """Blanks out comments and literals, keeping the lines."""
    return NOT_CODE.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)


def include_fault(layer, kind, name):
    if name.startswith("tws/"):
        return None
    if kind == "<":
        if layer == "wire" and name not in WIRE_SYSTEM_HEADERS:
            return f"wire works on bytes alone and may not include <{name}>"
        return None
    folder, slash, rest = name.partition("/")
    if not slash:
        return f'write the folder, as in "{layer}/{name}"'
    if folder not in LAYERS:
        return f'"{folder}/" is no layer'
    if LAYERS.index(folder) > LAYERS.index(layer):
        return f"{layer} stands above {folder} and may not include {name}"
    if layer == "wire" and folder == "base":
        return f"wire works on bytes alone and may not include {name}"
    return None


def call_fault(layer, name):
    if name in words(EVERYWHERE):
        return f"{name}() has no place in a library"
    if layer == "wire" and (name in words(HEAP) or name.startswith("tws_")):
        return f"wire works on bytes alone and may not call {name}()"
    if layer != "task":
        if name in words(WAITS):
            return f"only the task layer may wait, and {name}() can"
        if name.startswith("pthread_") and not (layer != "wire" and SHORT_LOCKS.match(name)):
            return f"threads are the task layer's: {name}()"
    return None


def check_source(path):
    layer = path.split(os.sep)[1]
    with open(path, encoding="utf-8") as f:
        text = f.read()
    if layer not in LAYERS:
        return [f"{path}: src/{layer}/ is no layer"]
    faults = []

    def note(at, fault):
        faults.append(f"{path}:{text.count(chr(10), 0, at) + 1}: {fault}")

    for match in INCLUDE.finditer(text):
        fault = include_fault(layer, match.group(1), match.group(2))
        if fault:
            note(match.start(), fault)
    code = strip(text)
    pointers = set(re.findall(r"\(\s*\*\s*(\w+)\)\s*\(", code))
    for match in CALL.finditer(code):
        # A definition or declaration of a function that bears such a name is no call: a type stands before it.
        before = code[:match.start()].rstrip(" \t*")[-12:]
        declared = re.search(r"\b(?:int|void|bool|size_t|ssize_t|long|char)$", before)
        fault = None if declared or match.group(1) in pointers else call_fault(layer, match.group(1))
        if fault and (path, match.group(1)) not in ALLOWED:
            note(match.start(), fault)
    return faults


def check_public(path):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    faults = []
    for match in INCLUDE.finditer(text):
        if path == OPENSSL_HEADER and match.group(2).startswith("openssl/"):
            continue
        if re.match(r"openssl/|zlib|pthread|threads\.h", match.group(2)):
            faults.append(f"{path}: a public header may not include {match.group(2)}")
        elif match.group(1) == '"':
            faults.append(f'{path}: public headers include each other as <tws/...>, not "{match.group(2)}"')
    return faults


def check_opaque(paths):
    """A type that is declared as a handle must not be laid open in any public header."""
    code = ""
    for path in paths:
        with open(path, encoding="utf-8") as f:
            code += strip(f.read())
    handles = set(re.findall(r"typedef\s+struct\s+(\w+)\s+\w+\s*;", code))
    return [f"include/tws: struct {name} is a handle, but its members are shown"
            for name in sorted(handles) if re.search(rf"struct\s+{name}\s*\{{", code)]


def main():
    sources = sorted(glob.glob("src/*/**/*.[chS]", recursive=True))
    public = sorted(glob.glob("include/tws/*.h"))
    faults = [f for path in sources for f in check_source(path)]
    faults += [f for path in public for f in check_public(path)]
    faults += check_opaque(public)
    loose = [p for p in glob.glob("src/*.[ch]")]
    faults += [f"{p}: every source file has its folder" for p in loose]
    print("\n".join(faults) if faults else f"layers: {len(sources)} sources and {len(public)} public headers keep them")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
