# Fuzzers: one source file and one target each; what they share is in tests/fuzz/lib/. Built with clang's libFuzzer,
# AddressSanitizer and UBSan, and from the same sources for AFL++ and for coverage.

FUZZ_SRCS := $(sort $(wildcard tests/fuzz/*.c))
FUZZ_PROGS := $(patsubst %.c,$(B)/%,$(FUZZ_SRCS))
FUZZ_LIB_OBJS := $(patsubst %.c,$(B)/obj/%.o,$(filter-out %/afl_mutator.c,$(wildcard tests/fuzz/lib/*.c)))
FUZZ_OBJS := $(patsubst %.c,$(B)/obj/%.o,$(FUZZ_SRCS))
# Before the library: what replaces a part of it is found first.
FUZZ_LIB := $(B)/libfuzz.a
# For each of them; so many at once.
SECONDS ?= 60
FUZZ_JOBS ?= 2
# What the mutations follow from; 0: others each time.
FUZZ_SEED ?= 0
FUZZ_RUN = $(PYTHON) tests/fuzz/run.py --seconds '$(SECONDS)' --jobs '$(FUZZ_JOBS)' --seed '$(FUZZ_SEED)'
FUZZ_NAMES = $(notdir $(basename $(call chosen,$(FUZZ_SRCS))))

.PHONY: fuzz fuzz-build fuzz-merge fuzz-coverage fuzz-afl

## fuzz: replay the corpora, then run each fuzzer for a minute; SECONDS=N for so long each, T=NAME only some
fuzz:
	@scripts/deps.sh --quiet build fuzz
	@$(SUBMAKE) VARIANT=fuzz CC=clang fuzz-build
	@$(FUZZ_RUN) --build $(BUILD)/fuzz $(FUZZ_NAMES)

fuzz-build: $(call chosen,$(FUZZ_PROGS))

## fuzz-merge: put what `make fuzz` found into the committed corpora, and make those small
fuzz-merge:
	@$(SUBMAKE) VARIANT=fuzz CC=clang fuzz-build
	@$(FUZZ_RUN) --merge --build $(BUILD)/fuzz $(FUZZ_NAMES)

## fuzz-coverage: what each fuzzer's corpus reaches of the files it is for
fuzz-coverage:
	@scripts/deps.sh --quiet build fuzz
	@$(SUBMAKE) VARIANT=fuzzcov CC=clang fuzz-build
	@$(PYTHON) tests/fuzz/coverage.py --build $(BUILD)/fuzzcov --found $(BUILD)/fuzz/corpus $(FUZZ_NAMES)

## fuzz-afl: the same with AFL++
fuzz-afl:
	@scripts/deps.sh --quiet build fuzz
	@$(SUBMAKE) VARIANT=afl CC=afl-clang-fast fuzz-build $(BUILD)/afl/afl_mutator.so
	@$(FUZZ_RUN) --afl --build $(BUILD)/afl $(FUZZ_NAMES)

$(FUZZ_OBJS) $(FUZZ_LIB_OBJS): private ROOM_CPP := -Itests/fuzz

$(FUZZ_LIB): $(FUZZ_LIB_OBJS)
	@rm -f $@
	$(call say,AR,$@)
	$(Q)$(AR) rcs $@ $(FUZZ_LIB_OBJS)

$(FUZZ_PROGS): $(B)/%: $(B)/obj/%.o $(FUZZ_LIB) $(OBJECTS_LIB)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -fsanitize=fuzzer $< $(FUZZ_LIB) $(OBJECTS_LIB) $(ALL_LDFLAGS) -lm -lwslay $(LIBS) -o $@

# Loaded by afl-fuzz itself, which knows no sanitizer.
$(B)/afl_mutator.so: tests/fuzz/lib/afl_mutator.c tests/fuzz/lib/frame_mutator.c tests/fuzz/fuzz.h \
		tests/fuzz/lib/frame_mutator.h
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)clang -std=c11 -O2 -fPIC -shared $(WARN_FLAGS) -D_GNU_SOURCE -Itests/fuzz $(filter %.c,$^) -lz -o $@

-include $(FUZZ_OBJS:.o=.d) $(FUZZ_LIB_OBJS:.o=.d)
