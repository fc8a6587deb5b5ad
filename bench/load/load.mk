# The load generator. Its code shares nothing with the library.

BENCH_LOAD := $(B)/bench/load
LOAD_OBJS := $(patsubst %.c,$(B)/obj/%.o,$(sort $(wildcard bench/load/*.c)))
LOAD_TEST_PROGS := $(patsubst %.c,$(B)/%,$(sort $(wildcard tests/bench_load/*.c)))
LOAD_TEST_OBJS := $(patsubst $(B)/%,$(B)/obj/%.o,$(LOAD_TEST_PROGS))
BENCH_LOAD_TESTS := $(sort $(wildcard tests/bench_load/*_test.py))

.PHONY: bench-load bench-load-tools test-bench-load

$(BENCH_LOAD): $(LOAD_OBJS)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LOAD_OBJS) $(ALL_LDFLAGS) $(LIBS) -lm -o $@

bench-load: $(BENCH_LOAD)

# Test programs: the peer for speed checks, and unit tests that link the generator's rooms.
LOAD_ROOMS := $(filter-out %/main.o,$(LOAD_OBJS))
$(LOAD_TEST_OBJS): private ROOM_CPP := -Ibench/load
$(LOAD_TEST_PROGS): $(B)/%: $(B)/obj/%.o $(LOAD_ROOMS)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $< $(LOAD_ROOMS) $(ALL_LDFLAGS) -lcmocka $(LIBS) -lm -o $@

bench-load-tools: $(BENCH_LOAD) $(LOAD_TEST_PROGS)

##@ Compare
## test-bench-load: the load generator against servers that count, stop, lie and die
test-bench-load: bench-load-tools
	@$(PYTHON) scripts/run-tests.py --build $(B) --timeout 420 \
	  $(filter %_test,$(LOAD_TEST_PROGS)) $(BENCH_LOAD_TESTS)

.SECONDARY: $(LOAD_TEST_OBJS)
-include $(LOAD_OBJS:.o=.d) $(LOAD_TEST_OBJS:.o=.d)
