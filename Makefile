# libtws: blocking, thread-per-connection WebSocket library.
# `make help` lists what can be asked for. Nothing is written outside build/ (except by `install` and `docs`).

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules
export PYTHONDONTWRITEBYTECODE := 1

# Build variants have their own object trees: release in build/, the sanitizers in build/asan and build/tsan.
VARIANT ?= release

include mk/flags.mk
include mk/lib.mk
include mk/brokers.mk
include mk/examples.mk
include tests/tests.mk
include mk/check.mk
include mk/install.mk
include mk/dist.mk
-include bench/bench.mk

.PHONY: all demo deps help clean format FORCE

##@ Build
## all: library (static and shared) and examples
all: lib examples

## deps: install what is missing for building and testing, or say how
deps:
	@scripts/deps.sh build test

## demo: chat, echo and counters at http://127.0.0.1:8080/; `make demo PORT=N` takes another port
demo:
	@scripts/deps.sh --quiet build
	@$(SUBMAKE) $(B)/examples/chat
	@$(B)/examples/chat $(DEMO_ARGS)

PORT ?= 8080
DEMO_ARGS ?= --listen 127.0.0.1:$(PORT)

## clean: remove everything that was built
clean:
	rm -rf $(BUILD)

## help: this list
help:
	@awk -f scripts/help.awk $(MAKEFILE_LIST)
