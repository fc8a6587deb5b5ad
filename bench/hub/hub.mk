# One room with slow members: what the others notice, and what becomes of the slow ones.

HUB_BENCH := $(B)/bench/hub

.PHONY: bench-hub

$(B)/obj/bench/hub/hub.o $(B)/obj/tests/support/crowd.o: private ROOM_CPP := -Itests -Itests/unit -Itests/support

$(HUB_BENCH): $(B)/obj/bench/hub/hub.o $(B)/obj/tests/support/crowd.o $(STATIC_LIB)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $^ $(ALL_LDFLAGS) -lm $(LIBS) -o $@

## bench-hub: a room in which a fifth of the members read nothing or little, under each policy (HUB_ARGS="--rate 200")
bench-hub: $(HUB_BENCH)
	@$(HUB_BENCH) $(HUB_ARGS)

-include $(B)/obj/bench/hub/hub.d
