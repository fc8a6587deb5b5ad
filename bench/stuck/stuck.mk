# Two questions with a program of their own: handlers that do not come back, and memory per connection.

STUCK_SERVER := $(B)/bench/stuck_server

.PHONY: bench-stuck bench-memory

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

-include $(B)/obj/bench/stuck/stuck_server.d
