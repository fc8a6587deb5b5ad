# Comparison runs: the load generator, the exporter, the servers under test, the runner. See docs/benchmarks.md.

-include bench/load/load.mk
-include bench/exporter/exporter.mk
-include bench/peers/peers.mk
-include bench/stuck/stuck.mk
-include bench/hub/hub.mk
-include bench/micro/micro.mk

BENCH_TOOLS := $(BUILD)/bench/load $(BUILD)/bench/exporter
BENCH := $(PYTHON) bench/run --build $(BUILD)/bench
# make bench PEERS="gws gorilla" WORKLOADS="W2 W3" ROUNDS=3 BASE=gws SOAK=hours BENCH_ARGS="..."
BENCH_CHOICE = $(if $(PEERS),--peers "$(PEERS)") $(if $(WORKLOADS),--workloads "$(WORKLOADS)") \
	$(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(BASE),--base $(BASE)) $(if $(SOAK),--soak $(SOAK)) $(BENCH_ARGS)
BENCH_LATEST = $(lastword $(sort $(wildcard $(BUILD)/bench/results/*)))
RESULTS ?= $(BENCH_LATEST)

BENCH_RUN_TESTS := $(sort $(wildcard tests/bench_run/*_test.py))
DASHBOARD_TESTS := $(sort $(wildcard tests/dashboard/*_test.py))
BENCH_TESTS = $(filter %_test,$(LOAD_TEST_PROGS) $(EXPORTER_TEST_PROGS)) $(BENCH_LOAD_TESTS) $(BENCH_EXPORTER_TESTS) \
	$(BENCH_RUN_TESTS) $(DASHBOARD_TESTS)
RUN_BENCH_TESTS = $(PYTHON) scripts/run-tests.py --build $(BUILD) --timeout 600

.PHONY: bench bench-full bench-ready bench-list bench-tools bench-report bench-docs bench-dashboard top
.PHONY: test-bench test-bench-run test-dashboard bench-test-peers

##@ Compare
## bench: a few minutes of comparison; PEERS="gws gorilla" WORKLOADS="W2 W3" ROUNDS=3 BASE=gws SOAK=hours choose
bench: bench-ready
	@$(BENCH) run $(BENCH_CHOICE)

## bench-full: every server that can be built here, every workload; hours
bench-full: bench-ready
	@$(BENCH) run --full $(BENCH_CHOICE)

# Charts and tests want gnuplot and Prometheus; a run does without and says so.
bench-ready:
	@scripts/deps.sh --quiet build
	@scripts/deps.sh --quiet bench || true
	@$(MAKE) --no-print-directory bench-tools

## bench-list: workloads and servers, and what is missing for each
bench-list:
	@$(BENCH) list

## bench-tools: load generator and exporter
bench-tools: $(BENCH_TOOLS)

## bench-report: make tables, charts and page of the last run again (RESULTS=folder: of another)
bench-report:
	@$(BENCH) report $(RESULTS)

## bench-docs: write the last run's tables (RESULTS=folder: another's) into docs/benchmarks.md
bench-docs:
	@$(BENCH) docs $(RESULTS)

## bench-dashboard: write the Grafana dashboard from the report's panels
bench-dashboard:
	@$(PYTHON) bench/grafana/mkdashboard.py

## top: live view of the servers under test while `make bench` runs in another terminal
top:
	@$(BENCH) top $(TOP_ARGS)

# The two servers that the tests run, and the checker of the dashboard; built before the clock of a test ticks.
bench-test-peers:
	@! command -v go >/dev/null || (cd tests/dashboard && go test -run '^$$' ./... >/dev/null)
	@for peer in gws gorilla; do bench/peers/$$peer/peer build $(abspath $(BUILD))/bench/peers/$$peer || exit 1; done

## test-bench: tests of load generator, exporter, runner and dashboard
test-bench: bench-tools bench-test-peers $(LOAD_TEST_PROGS) $(EXPORTER_TEST_PROGS)
	@scripts/deps.sh --quiet bench
	@$(RUN_BENCH_TESTS) --name bench $(BENCH_TESTS)

## test-bench-run: tests of the runner and its reports
test-bench-run: bench-tools bench-test-peers
	@scripts/deps.sh --quiet bench
	@$(RUN_BENCH_TESTS) --name bench-run $(call chosen,$(BENCH_RUN_TESTS))

## test-dashboard: tests of the dashboard against its schema and a real Prometheus
test-dashboard: bench-tools bench-test-peers
	@scripts/deps.sh --quiet bench
	@$(RUN_BENCH_TESTS) --name dashboard $(call chosen,$(DASHBOARD_TESTS))
