# Builds the examples against the installed library: `make`, or `make echo`; into the directory OUT.
OUT ?= .
CFLAGS ?= -O2 -g
PKG_CONFIG ?= pkg-config
PAGES := $(wildcard *.html)
# These want a library besides: cluster (libtws_nats or libtws_redis), json, microhttpd, receiver.
NAMES := $(filter-out cluster json microhttpd receiver,$(basename $(filter-out $(wildcard *_*.c),$(wildcard *.c))))

.PHONY: all $(NAMES)
all: $(NAMES)
$(NAMES): %: $(OUT)/%

$(OUT)/%.html.inc: %.html
	@mkdir -p $(OUT)
	od -An -v -tx1 $< | sed 's/ \(..\)/0x\1,/g' > $@

define program
$(OUT)/$(1): $(1).c $(wildcard $(1)_*.c) $(wildcard $(1)_*.h) $(PAGES:%=$(OUT)/%.inc)
	@mkdir -p $(OUT)
	$$(CC) -std=c11 -D_GNU_SOURCE -pthread $$(CFLAGS) -I$(OUT) $$(filter %.c,$$^) `$$(PKG_CONFIG) --cflags --libs tws` \
	  $$(LDFLAGS) -o $$@
endef
$(foreach n,$(NAMES),$(eval $(call program,$(n))))
