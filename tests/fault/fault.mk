# Faults at every position of whole sessions. The library's calls of the system and of malloc are renamed
# in a copy of its objects, which are those of `make test`.

FAULT := $(B)/tests/fault/fault
FAULT_OBJS := $(patsubst %.c,$(B)/obj/%.o,$(sort $(wildcard tests/fault/*.c)))
FAULT_LIB := $(B)/tests/fault/libtws-fault.o

.PHONY: test-fault fault-build

## test-fault: allocations, system calls, clock and signals fail in turn; FULL=1 every position; SCENE=NAME, MODE=NAME
test-fault:
	@scripts/deps.sh --quiet build test
	@$(SUBMAKE) VARIANT=asan fault-build
	@$(BUILD)/asan/tests/fault/fault $(if $(FULL),--full) $(if $(SCENE),--scene '$(SCENE)') $(if $(MODE),--mode '$(MODE)') \
	  $(FAULT_ARGS)

fault-build: $(FAULT)

# A call that is neither renamed nor said to be harmless fails the build.
$(FAULT_LIB): $(LIB_OBJS) $(B)/lib-objects.txt tests/fault/calls.txt tests/fault/harmless.txt
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(LD) -r -o $@ $(LIB_OBJS)
	$(Q)$(OBJCOPY) --redefine-syms=tests/fault/calls.txt $@
	$(Q)nm -u $@ | awk '{ print $$2 }' | grep -vE -f tests/fault/harmless.txt | \
	  awk '{ print "neither in calls.txt nor in harmless.txt: " $$0; bad = 1 } END { exit bad }'

$(FAULT_OBJS): private ROOM_CPP := -Itests -Itests/integration

$(FAULT): $(FAULT_OBJS) $(TEST_KIT) $(FAULT_LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $^ $(ALL_LDFLAGS) -lcmocka -lm $(LIBS) -o $@

.SECONDARY: $(FAULT_OBJS)
-include $(FAULT_OBJS:.o=.d)
