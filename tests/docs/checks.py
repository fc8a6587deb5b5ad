"""What must be true of a page, as functions that yield what is wrong with it."""

import contextlib
import functools
import glob
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile

from pages import ROOT, Page

sys.path.insert(0, str(ROOT / "bench"))
from run import cli  # noqa: E402
from run.errors import UsageError  # noqa: E402

NAME = re.compile(r"\b(?:tws|TWS)_\w+")
PATH = re.compile(r"[\w.][\w.*@+-]*(?:/[\w.*@+-]+)*/?")
# Stands for something of the reader's: RUN, NAME, PID.
PLACEHOLDER = re.compile(r"[A-Z]{2,}")
OPTION = re.compile(r"--?[A-Za-z][\w-]*")

# Names in our style that are in no header: an example's, what the test runner sets, CMake's, symbol versions.
OTHER_NAMES = {"tws_example", "TWS_BUILD", "TWS_CERTS", "tws_USE_STATIC_LIBS", "TWS_0", "TWS_NATS_0", "TWS_REDIS_0"}
# Words with a slash that are no paths of this repository.
NO_PATHS = {"net/http", "lxzan/gws", "charts/*.png"}
# Commands of the system: the files they are given are looked at, their options are not.
SYSTEM = {"apt-get", "docker", "mkdir", "prometheus", "promtool", "taskset", "systemd-run", "cc", "pkg-config", "cmake"}
PEER_CALLS = {"check", "build", "version", "features", "describe", "start"}


def example_programs():
    """Names of examples/NAME.c; NAME_PART.c belong to them."""
    return [p.stem for p in sorted((ROOT / "examples").glob("*.c")) if "_" not in p.stem]


OPTION_SOURCES = {**{f"build/examples/{name}": f"examples/{name}.c" for name in example_programs()},
                  "build/examples/cat": "examples/cat_options.c",
                  "build/bench/load": "bench/load/options_help.h", "build/bench/exporter": "bench/exporter/main.c"}
# Their recipes do no more than print when make is asked to.
DRY = re.compile(r"demo|top|bench(-full|-list|-report|-docs|-dashboard|-deflate)?$")


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


# ---- Links ----

@functools.lru_cache(maxsize=None)
def anchors_of(path):
    return Page(path).anchors()


def links(page):
    for link in page.links():
        target, _, anchor = link.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(page.path), target)) if target else page.path
        if target and not (ROOT / path).exists():
            yield f"{page.path}: the link {link} leads nowhere"
        elif anchor and anchor not in (page.anchors() if path == page.path else anchors_of(path)):
            yield f"{page.path}: there is no #{anchor} in {path}"


# ---- Names ----

@functools.lru_cache(maxsize=None)
def public_names():
    """Of the headers and of the metrics."""
    text = "".join(read(path) for path in glob.glob("include/tws/*.h", root_dir=ROOT))
    metrics = [name for path in [*glob.glob("src/metrics/*.c", root_dir=ROOT), "src/cluster/metrics.c"]
               for name in re.findall(r'"(tws_\w+)"', read(path))]
    return set(NAME.findall(text)) | set(metrics) | OTHER_NAMES


def names(page):
    for name in sorted(set(NAME.findall(page.text)) - public_names()):
        yield f"{page.path}: {name} is not in include/tws"


@functools.lru_cache(maxsize=None)
def option_fields():
    """The members of the option structs."""
    text = "".join(read(path) for path in glob.glob("include/tws/*.h", root_dir=ROOT))
    bodies = re.findall(r"typedef struct tws_\w+_options \{(.*?)\n\}", text, flags=re.S)
    code = re.sub(r"/\*.*?\*/", "", "".join(bodies), flags=re.S)
    return set(re.findall(r"(\w+);", code))


def fields(page):
    for field in re.findall(r"\bopt(?:\.upgrade)?(?:\.conn)?\.(\w+)", page.text):
        if field not in option_fields() | {"upgrade", "conn"}:
            yield f"{page.path}: opt.{field} is no option"


# ---- Paths ----

def path_exists(page, word):
    """Whether a word is a path from the root or from the page's folder, or one that is built."""
    pattern = re.sub(r"\b[A-Z]{2,}(?=\b|_)", "*", word.rstrip("/")).replace("**", "*")
    source = OPTION_SOURCES.get(word)
    if source:
        return (ROOT / source).exists()
    if word.startswith(("build/", "/", "..", "PREFIX/", "LIBDIR/")):
        return True
    bases = [ROOT, ROOT / os.path.dirname(page.path), ROOT / "include"]
    return any(glob.glob(pattern, root_dir=base) for base in bases)


def looks_like_path(word):
    if not PATH.fullmatch(word) or word in NO_PATHS or word.startswith("."):
        return word.startswith(".ci/")
    return "/" in word.rstrip("/") or not PLACEHOLDER.match(word) and word.endswith((".c", ".h", ".py", ".mk", ".sh", ".yml"))


def paths(page):
    spans = [word for span in page.spans for word in span.split()]
    shell = [word for words in page.commands() for word in words if "=" not in word]
    for word in spans + shell:
        if looks_like_path(word) and not path_exists(page, word):
            yield f"{page.path}: there is no {word}"


# ---- Commands ----

@functools.lru_cache(maxsize=None)
def make_database():
    return run_make("-pRrq", ":").stdout


def run_make(*args):
    """As from a shell: not with what the make above has been told."""
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "VARIANT", "BUILD", "T")}
    return subprocess.run(["make", "--no-print-directory", *args], cwd=ROOT, env=env, text=True, check=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def make_command(words):
    """Targets have a rule, variables are used in some makefile, and what it comes to is a command that exists."""
    targets = [w for w in words[1:] if "=" not in w]
    for word in words[1:]:
        name = word.partition("=")[0]
        if "=" in word and not re.search(r"\$[({]" + name + r"[)},]", make_database()):
            yield f"{shlex.join(words)}: no makefile uses {name}"
        elif "=" in word and re.search(rf"^{name} :=", make_database(), flags=re.M) and \
                re.search(r"\$\(if \$\(" + name + r"\)", make_database()):
            # Whoever leaves it out would get what the makefiles have in it for themselves.
            yield f"{shlex.join(words)}: the makefiles set {name} themselves"
        elif "=" not in word and not PLACEHOLDER.search(word) and \
                not re.search(rf"^{re.escape(word)}:", make_database(), flags=re.M):
            yield f"{shlex.join(words)}: there is no target {word}"
    if len(targets) != 1 or not DRY.fullmatch(targets[0]):
        return
    # Without a run, RESULTS has no default.
    results = [] if any(w.startswith("RESULTS=") for w in words) else ["RESULTS=RUN"]
    done = run_make("-n", *words[1:], *results)
    if done.returncode != 0:
        yield f"{shlex.join(words)}: {done.stdout.strip()}"
    for line in done.stdout.splitlines():
        if " bench/run " in line:
            yield from bench_arguments(shlex.split(line)[2:])


def bench_arguments(argv):
    """Servers, workloads and options as `bench/run` itself judges them."""
    with tempfile.TemporaryDirectory() as folder:
        build = argv.index("--build") + 1
        argv = [*argv[:build], folder, *argv[build + 1:]]
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                args = cli._parser().parse_args(argv)
            if args.command_name == "run":
                cli._chosen(args)
        except (SystemExit, UsageError) as error:
            yield f"bench/run {shlex.join(argv)}: {error}"


def options_known(words):
    """Every option of the command stands in its program's source."""
    text = read(OPTION_SOURCES[words[0]])
    known = set(OPTION.findall(text)) | {f"--{name}" for name in re.findall(r'\{"([\w-]+)",', text)}
    for word in words[1:]:
        option = OPTION.match(word)
        if option and option.group(0) not in known:
            yield f"{shlex.join(words)}: {words[0]} has no option {option.group(0)}"


def script(words):
    if not os.access(ROOT / words[0], os.X_OK):
        yield f"{words[0]} is not there, or cannot be run"
    elif words[0].endswith("/peer") and words[1] not in PEER_CALLS:
        yield f"{shlex.join(words)}: a peer has no call {words[1]}"


def command(words):
    """What is wrong with one command."""
    while words and re.match(r"\w+=", words[0]):
        name = words[0].partition("=")[0]
        if name not in read("bench/peers/README.md"):
            yield f"{name}: no page explains it"
        words = words[1:]
    if words[0] == "make":
        yield from make_command(words)
    elif words[0] in OPTION_SOURCES:
        yield from options_known(words)
    elif words[0] == "python3":
        yield from [] if (ROOT / words[1]).is_file() else [f"there is no {words[1]}"]
    elif words[0].startswith("build/fuzz/"):
        source = words[0].removeprefix("build/fuzz/") + ".c"
        yield from [] if glob.glob(PLACEHOLDER.sub("*", source), root_dir=ROOT) else [f"there is no {source}"]
    elif (ROOT / words[0]).is_file():
        yield from script(words)
    elif words[0] not in SYSTEM and not re.match(r"build/.*/[A-Z]{2,}$", words[0]):
        yield f"{shlex.join(words)}: nobody knows {words[0]}"


def commands(page):
    in_prose = [span.split() if "'" in span else shlex.split(span) for span in page.spans
                if re.match(r"make [\w.-]|build/(examples|bench)/\w+ -", span)]
    for words in [*page.commands(), *in_prose]:
        for fault in command(words):
            yield f"{page.path}: {fault}"
    for block in page.code("sh"):
        for line in block.text.split("\n"):
            # In "a && b &" the number is that of a subshell, not of b.
            if "$!" in block.text and "&&" in line and line.split("#")[0].rstrip().endswith("&"):
                yield f"{page.path}: $! is not what it seems after: {line}"


ALL = (links, names, fields, paths, commands)
