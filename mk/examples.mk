# Each examples/NAME.c is one program; files named NAME_PART.c belong to it. A page that a program serves
# (examples/NAME.html) is turned into a list of bytes: `#include "NAME.html.inc"` between braces.

EXAMPLE_PARTS := $(sort $(wildcard examples/*_*.c))
# These want a library that nothing else here needs.
EXAMPLES_WITHOUT := $(if $(call has_header,jansson.h),,examples/json.c) \
	$(if $(call has_header,microhttpd.h),,examples/microhttpd.c) \
	$(if $(BROKERS),,examples/cluster.c) $(if $(and $(call on,$(TLS)),$(call on,$(DEFLATE))),,examples/receiver.c)
EXAMPLE_SRCS := $(sort $(filter-out $(EXAMPLE_PARTS) $(EXAMPLES_WITHOUT),$(wildcard examples/*.c)))
EXAMPLES := $(patsubst examples/%.c,$(B)/examples/%,$(EXAMPLE_SRCS))
EXAMPLE_PAGES := $(patsubst examples/%,$(B)/gen/%.inc,$(sort $(wildcard examples/*.html)))
EXAMPLE_OBJS := $(patsubst %.c,$(B)/obj/%.o,$(EXAMPLE_SRCS) $(EXAMPLE_PARTS))

.PHONY: examples
examples: $(EXAMPLES)

$(B)/gen/%.inc: examples/%
	@mkdir -p $(@D)
	$(call say,GEN,$@)
	$(Q)od -An -v -tx1 $< | sed 's/ \(..\)/0x\1,/g' > $@

$(EXAMPLE_OBJS): private ROOM_CPP := -Iexamples -I$(B)/gen
$(EXAMPLE_OBJS): | $(EXAMPLE_PAGES)

$(foreach name,$(notdir $(EXAMPLES)),$(eval $(B)/examples/$(name): \
	$(patsubst %.c,$(B)/obj/%.o,$(filter examples/$(name)_%,$(EXAMPLE_PARTS)))))

$(B)/examples/json: private LIBS += -ljansson
$(B)/examples/microhttpd: private LIBS += -lmicrohttpd
$(B)/obj/examples/cluster.o: private ROOM_CPP := -Iexamples -I$(B)/gen $(BROKERS:%=-DWITH_%)
$(B)/examples/cluster: private LIBS := $(foreach b,$(BROKERS),$(BROKER_LIBS_$(b))) $(LIBS)
$(B)/examples/cluster: $(BROKER_STATIC)
$(EXAMPLES): $(B)/examples/%: $(B)/obj/examples/%.o $(STATIC_LIB)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(PIE) $(filter %.o,$^) $(filter %.a,$^) $(ALL_LDFLAGS) $(LIBS) -o $@

-include $(EXAMPLE_OBJS:.o=.d)
