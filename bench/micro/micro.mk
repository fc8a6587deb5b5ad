# Programs that measure one part of the library by itself, with its internal names.

MICRO_PROGS := $(patsubst %.c,$(BUILD)/%,$(sort $(wildcard bench/micro/*.c)))
MICRO_OBJS := $(patsubst %.c,$(BUILD)/obj/%.o,$(sort $(wildcard bench/micro/*.c)))

.PHONY: bench-micro bench-deflate

##@ Compare
## bench-micro: nanoseconds of masking, UTF-8 validation and parsing
bench-micro: $(BUILD)/bench/micro/wire_bench
	@$<

## bench-deflate: memory and CPU of compression by window, memory level and takeover; DEFLATE_ARGS="-l 6"
bench-deflate: $(BUILD)/bench/micro/deflate_table
	@$< $(DEFLATE_ARGS)

$(MICRO_PROGS): $(BUILD)/%: $(BUILD)/obj/%.o $(OBJECTS_LIB)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $< $(OBJECTS_LIB) $(ALL_LDFLAGS) -lm $(LIBS) -o $@

-include $(MICRO_OBJS:.o=.d)
