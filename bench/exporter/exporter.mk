# The process exporter for Prometheus. Its code shares nothing with the library.

EXPORTER := $(B)/bench/exporter
EXPORTER_OBJS := $(patsubst %.c,$(B)/obj/%.o,$(sort $(wildcard bench/exporter/*.c)))
EXPORTER_TEST_PROGS := $(patsubst %.c,$(B)/%,$(sort $(wildcard tests/bench_exporter/*.c)))
EXPORTER_TEST_OBJS := $(patsubst $(B)/%,$(B)/obj/%.o,$(EXPORTER_TEST_PROGS))
BENCH_EXPORTER_TESTS := $(sort $(wildcard tests/bench_exporter/*_test.py))

.PHONY: bench-exporter test-bench-exporter

$(EXPORTER): $(EXPORTER_OBJS)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $^ $(ALL_LDFLAGS) -o $@

bench-exporter: $(EXPORTER)

# Test programs: a process to watch, and unit tests that link the exporter's rooms.
EXPORTER_ROOMS := $(filter-out %/main.o,$(EXPORTER_OBJS))
$(EXPORTER_TEST_OBJS): private ROOM_CPP := -Ibench/exporter
$(EXPORTER_TEST_PROGS): $(B)/%: $(B)/obj/%.o $(EXPORTER_ROOMS)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $< $(EXPORTER_ROOMS) $(ALL_LDFLAGS) -lcmocka -o $@

test-bench: $(EXPORTER_TEST_PROGS)

##@ Compare
## test-bench-exporter: the exporter against /proc and top, its cost, and processes that come and go
test-bench-exporter: $(EXPORTER) $(EXPORTER_TEST_PROGS)
	@scripts/deps.sh --quiet bench
	@$(PYTHON) scripts/run-tests.py --build $(B) --name bench-exporter --timeout 420 \
	  $(filter %_test,$(EXPORTER_TEST_PROGS)) $(BENCH_EXPORTER_TESTS)

.SECONDARY: $(EXPORTER_TEST_OBJS)
-include $(EXPORTER_OBJS:.o=.d) $(EXPORTER_TEST_OBJS:.o=.d)
