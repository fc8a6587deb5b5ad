# Fuzzers: one source file and one target each, built with clang's libFuzzer, AddressSanitizer and UBSan.

FUZZ_SRCS := $(sort $(wildcard tests/fuzz/*.c))
FUZZ_PROGS := $(patsubst %.c,$(B)/%,$(FUZZ_SRCS))
FUZZ_OBJS := $(patsubst %.c,$(B)/obj/%.o,$(FUZZ_SRCS))
# For each of them.
SECONDS ?= 60

.PHONY: fuzz fuzz-build

## fuzz: run each fuzzer for a minute; SECONDS=N for so long each, T=NAME only those with NAME in it
fuzz:
	@scripts/deps.sh --quiet build fuzz
	@$(SUBMAKE) VARIANT=fuzz CC=clang fuzz-build
	@$(PYTHON) tests/fuzz/run.py --build $(BUILD)/fuzz --seconds '$(SECONDS)' \
	  $(notdir $(basename $(call chosen,$(FUZZ_SRCS))))

fuzz-build: $(call chosen,$(FUZZ_PROGS))

$(FUZZ_OBJS): private ROOM_CPP := -Itests/fuzz
$(FUZZ_PROGS): $(B)/%: $(B)/obj/%.o $(OBJECTS_LIB)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -fsanitize=fuzzer $< $(OBJECTS_LIB) $(ALL_LDFLAGS) -lm $(LIBS) -o $@

-include $(FUZZ_OBJS:.o=.d)
