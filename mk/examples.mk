# Each examples/*.c is one program; examples/common/*.c (if any) is linked into all of them. A page that a
# program serves (examples/NAME.html) is turned into a list of bytes: `#include "NAME.html.inc"` between braces.

EXAMPLE_SRCS := $(sort $(wildcard examples/*.c))
EXAMPLES := $(patsubst examples/%.c,$(B)/examples/%,$(EXAMPLE_SRCS))
EXAMPLE_COMMON := $(patsubst %.c,$(B)/obj/%.o,$(sort $(wildcard examples/common/*.c)))
EXAMPLE_PAGES := $(patsubst examples/%,$(B)/gen/%.inc,$(sort $(wildcard examples/*.html)))
EXAMPLE_OBJS := $(patsubst %.c,$(B)/obj/%.o,$(EXAMPLE_SRCS)) $(EXAMPLE_COMMON)

.PHONY: examples
examples: $(EXAMPLES)

$(B)/gen/%.inc: examples/%
	@mkdir -p $(@D)
	$(call say,GEN,$@)
	$(Q)od -An -v -tx1 $< | sed 's/ \(..\)/0x\1,/g' > $@

$(EXAMPLE_OBJS): private ROOM_CPP := -Iexamples -I$(B)/gen
$(EXAMPLE_OBJS): | $(EXAMPLE_PAGES)

$(EXAMPLES): $(B)/examples/%: $(B)/obj/examples/%.o $(EXAMPLE_COMMON) $(STATIC_LIB)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $< $(EXAMPLE_COMMON) $(STATIC_LIB) $(ALL_LDFLAGS) $(LIBS) -o $@

-include $(EXAMPLE_OBJS:.o=.d)
