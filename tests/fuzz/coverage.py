#!/usr/bin/env python3
"""What the fuzzers reach of the files they are for: lines and branches, by clang's source coverage.

Each runs its committed corpus and what `make fuzz` has found, once. A line for each fuzzer and file, and pages with the
sources in BUILD/html/NAME.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FRAMES = ["src/wire/frame.c", "src/conn/frame.c", "src/conn/read.c", "src/conn/input.c", "src/wire/close.c"]
INFLATE = ["src/conn/inflate.c", "src/conn/inflate_read.c", "src/conn/zstream.c"]
# What each is for, of the library's sources.
TARGETS = {
    "close_frame": ["src/wire/close.c"],
    "cluster_message": ["src/cluster/message.c"],
    "deflate_frames": INFLATE + ["src/conn/deflate.c", "src/conn/writer.c"],
    "deflate_offer": ["src/wire/deflate.c", "src/wire/extension.c", "src/wire/token.c"],
    "deflate_zlib": INFLATE + ["src/conn/deflate.c", "src/conn/writer.c"],
    "frames_client": FRAMES + ["src/conn/send.c", "src/conn/turn.c", "src/conn/close.c"],
    "frames_deflate_client": FRAMES + INFLATE + ["src/conn/deflate.c"],
    "frames_deflate_server": FRAMES + INFLATE + ["src/conn/deflate.c"],
    "frames_server": FRAMES + ["src/conn/send.c", "src/conn/turn.c", "src/conn/close.c"],
    "frames_wslay": FRAMES,
    "handshake_client": ["src/client/dial.c", "src/client/exchange.c", "src/client/redirect.c",
                         "src/client/response.c", "src/wire/handshake_verify.c"],
    "handshake_server": ["src/server/upgrade.c", "src/server/request.c", "src/server/reply.c",
                         "src/wire/handshake.c", "src/wire/handshake_write.c"],
    "handoff": ["src/server/handoff_record.c"],
    "http_head": ["src/wire/http.c", "src/wire/handshake.c", "src/wire/token.c"],
    "inflate": INFLATE,
    "origin": ["src/wire/origin.c"],
    "prometheus": ["src/metrics/prometheus.c"],
    "proxy": ["src/client/proxy.c", "src/client/proxy_socks.c"],
    "request": ["src/server/request.c"],
    "request_parsed": ["src/wire/handshake_parsed.c", "src/server/upgrade.c", "src/server/verdict.c"],
    "stream_read": ["src/conn/stream.c", "src/conn/read.c"],
    "url": ["src/wire/url.c", "src/client/redirect.c", "src/client/proxy_choice.c"],
    "utf8": ["src/wire/utf8.c", "src/wire/utf8_x86.c"],
}


def measure(name, build, found):
    """The rows of one fuzzer; None when an input crashes it."""
    program = build / "tests" / "fuzz" / name
    raw, profile = build / f"{name}.profraw", build / f"{name}.profdata"
    inputs = [str(path) for path in (HERE / "corpus" / name, found / name) if path.is_dir()]
    done = subprocess.run([str(program), "-runs=0", "-max_len=70000", *inputs], check=False, capture_output=True,
                          env={**os.environ, "LLVM_PROFILE_FILE": str(raw)})
    if done.returncode != 0:
        print(done.stderr.decode(errors="replace")[-2000:])
        return None
    subprocess.run(["llvm-profdata", "merge", "-sparse", str(raw), "-o", str(profile)], check=True)
    raw.unlink()
    sources = [str(ROOT / path) for path in TARGETS.get(name, []) if (ROOT / path).exists()]
    text = subprocess.run(["llvm-cov", "export", "-summary-only", f"-instr-profile={profile}", str(program), *sources],
                          check=True, capture_output=True).stdout
    subprocess.run(["llvm-cov", "show", "-format=html", f"-output-dir={build / 'html' / name}",
                    f"-instr-profile={profile}", str(program), *sources], check=True, capture_output=True)
    rows = []
    for file in json.loads(text)["data"][0]["files"]:
        lines, branches = file["summary"]["lines"], file["summary"]["branches"]
        rows.append((os.path.relpath(file["filename"], ROOT), lines["covered"], lines["count"], branches["covered"],
                     branches["count"]))
    return rows


def percent(part, whole):
    return f"{100 * part / whole:5.1f} %" if whole else "      -"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":", maxsplit=1)[0])
    parser.add_argument("--build", required=True, type=pathlib.Path)
    parser.add_argument("--found", required=True, type=pathlib.Path, help="what was found: a folder for each")
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    build, found, failed = args.build.resolve(), args.found.resolve(), []
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for name, rows in zip(args.names, pool.map(lambda n: measure(n, build, found), args.names)):
            if rows is None:
                failed.append(name)
                continue
            sums = [sum(row[i] for row in rows) for i in range(1, 5)]
            print(f"{name:40} lines {percent(sums[0], sums[1])}  branches {percent(sums[2], sums[3])}", flush=True)
            for path, *counts in rows:
                print(f"    {path:36} lines {percent(counts[0], counts[1])}  branches {percent(counts[2], counts[3])}")
    if failed:
        print("failed: " + " ".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
