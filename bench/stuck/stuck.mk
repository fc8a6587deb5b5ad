# Two questions with a program of their own: handlers that do not come back, and memory per connection.

STUCK_SERVER := $(B)/bench/stuck_server

.PHONY: bench-stuck bench-memory bench-many bench-spawn

$(STUCK_SERVER): $(B)/obj/bench/stuck/stuck_server.o $(STATIC_LIB)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $^ $(ALL_LDFLAGS) $(LIBS) -o $@

## bench-stuck: what others notice of a handler that spins or sleeps for two seconds
bench-stuck: $(STUCK_SERVER) $(B)/bench/load
	@$(PYTHON) bench/stuck/stuck.py

## bench-memory: memory per idle connection, both kinds of thread
bench-memory: all
	@$(PYTHON) bench/memory/memory.py

## bench-many: 19,000 light connections in one process (ulimit -n 20000), idle and then all echoing
bench-many: all
	@$(PYTHON) bench/memory/memory.py --threads light -n 19000 --echoes 5

## bench-spawn: a million light threads spawned and ended; memory stays where it was
bench-spawn: $(B)/tests/unit/task_light_test
	@TWS_SPAWNS=1000000 $< 2>/dev/null | grep spawned

-include $(B)/obj/bench/stuck/stuck_server.d
