# bench/exporter: the process exporter and its tests. Included by bench/bench.mk.

EXPORTER_SRCS := $(sort $(wildcard bench/exporter/*.c))
EXPORTER_OBJS := $(EXPORTER_SRCS:%.c=$(B)/obj/%.o)
EXPORTER := $(B)/bench/exporter
EXPORTER_HELPER := $(B)/tests/bench_exporter/many_threads

$(EXPORTER_OBJS): private ROOM_CPP := -Ibench/exporter

$(EXPORTER): $(EXPORTER_OBJS)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $^ $(ALL_LDFLAGS) -o $@

$(EXPORTER_HELPER): $(B)/obj/tests/bench_exporter/many_threads.o
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $^ $(ALL_LDFLAGS) -o $@

-include $(EXPORTER_OBJS:.o=.d)

##@ Benchmarks
.PHONY: exporter test-bench-exporter
## exporter: the process exporter for Prometheus, build/bench/exporter
exporter: $(EXPORTER)

## test-bench-exporter: what the exporter says against /proc and top, what it costs, what ends
test-bench-exporter: $(EXPORTER) $(EXPORTER_HELPER)
	@EXPORTER=$(EXPORTER) MANY_THREADS=$(EXPORTER_HELPER) $(PYTHON) tests/bench_exporter/run.py
