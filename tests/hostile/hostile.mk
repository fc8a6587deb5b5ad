# Bad peers beside good ones: a program of its own plays the bad, the load generator the good.

HOSTILE := $(B)/tests/hostile/hostile
HOSTILE_OBJS := $(patsubst %.c,$(B)/obj/%.o,$(sort $(wildcard tests/hostile/*.c)))

.PHONY: hostile hostile-build

## hostile: PEERS=N bad peers for SECONDS=N beside 100 good ones, on each kind of thread, plain and TLS; TRIALS=light-tls only that
hostile:
	@scripts/deps.sh --quiet build test
	@scripts/certs.sh $(CERTS)
	@$(SUBMAKE) VARIANT=release hostile-build $(BUILD)/bench/load $(BUILD)/examples/echo
	@$(PYTHON) tests/hostile/run.py --build $(BUILD) --certs $(CERTS) --peers '$(or $(PEERS),1000)' --seconds '$(SECONDS)' \
	  $(if $(TRIALS),--trials '$(TRIALS)') $(HOSTILE_ARGS)

hostile-build: $(HOSTILE)

$(HOSTILE): $(HOSTILE_OBJS)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(HOSTILE_OBJS) $(ALL_LDFLAGS) $(LIBS) -o $@

.SECONDARY: $(HOSTILE_OBJS)
-include $(HOSTILE_OBJS:.o=.d)
