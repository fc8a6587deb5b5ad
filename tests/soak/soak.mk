# The soak: a mixed load for hours on two servers, one per kind of thread. See docs/testing.md.

SOAK_PROGS := $(B)/tests/soak/soak_server $(B)/tests/soak/soak_client
SOAK_KIT := $(B)/obj/tests/soak/kit.o
SOAK_OBJS := $(patsubst %.c,$(B)/obj/%.o,$(sort $(wildcard tests/soak/*.c)))

.PHONY: soak soak-build

##@ Check
## soak: HOURS=h or MINUTES=m of mixed load on both kinds of thread; fails on a slope; to OUT=DIR, LOAD=PERCENT
soak:
	@scripts/deps.sh --quiet build soak
	@scripts/certs.sh $(CERTS)
	@$(SUBMAKE) VARIANT=release soak-build
	@$(PYTHON) tests/soak/soak.py --build $(BUILD) --certs $(CERTS) $(if $(OUT),--out '$(OUT)') \
	  $(if $(LOAD),--load $(LOAD)) --minutes $(or $(MINUTES),$(if $(HOURS),$(HOURS)h),120)

soak-build: $(SOAK_PROGS)

$(B)/tests/soak/soak_server: $(B)/obj/tests/soak/server.o $(SOAK_KIT) $(STATIC_LIB)
$(B)/tests/soak/soak_client: $(B)/obj/tests/soak/client.o $(B)/obj/tests/soak/roles.o $(SOAK_KIT) $(STATIC_LIB)
$(SOAK_PROGS):
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(filter %.o,$^) $(STATIC_LIB) $(ALL_LDFLAGS) $(LIBS) -o $@

-include $(SOAK_OBJS:.o=.d)
