# Adapters for brokers, each a library of its own that needs only the public headers. One is built when the header of
# the broker's library is there: Debian's libnats-dev, libhiredis-dev. BROKERS='nats' chooses, BROKERS= builds none.

ifeq ($(origin BROKERS),undefined)
BROKERS := $(strip $(if $(call has_header,nats/nats.h),nats) $(if $(call has_header,hiredis/hiredis.h),redis))
endif

BROKER_LIBS_nats := -lnats
BROKER_LIBS_redis := -lhiredis
# What pkg-config asks for when linking statically.
BROKER_PKG_nats := libnats
BROKER_PKG_redis := hiredis

BROKER_STATIC := $(BROKERS:%=$(B)/libtws_%.a)
BROKER_SHARED := $(BROKERS:%=$(B)/libtws_%.so.$(VERSION))

.PHONY: brokers
brokers: $(if $(call on,$(STATIC)),$(BROKER_STATIC)) $(if $(call on,$(SHARED)),$(BROKERS:%=$(B)/libtws_%.so))
lib: brokers

define broker_rules
BROKER_OBJS_$(1) := $$(patsubst %.c,$$(B)/obj/%.o,$$(sort $$(wildcard src/$(1)/*.c)))

$$(B)/libtws_$(1).o: $$(BROKER_OBJS_$(1))
	$$(call say,LD,$$@)
	$$(Q)$$(RELINK) -o $$@ $$^
	$$(Q)$$(OBJCOPY) --localize-hidden $$@

$$(B)/libtws_$(1).a: $$(B)/libtws_$(1).o
	@rm -f $$@
	$$(call say,AR,$$@)
	$$(Q)$$(AR) rcs $$@ $$<

$$(B)/libtws_$(1).so.$$(VERSION): $$(BROKER_OBJS_$(1)) src/$(1)/$(1).map $$(B)/libtws.so
	$$(call say,LD,$$@)
	$$(Q)$$(CC) -shared -Wl,-soname,libtws_$(1).so.$$(VERSION_MAJOR) -Wl,--version-script=src/$(1)/$(1).map \
	  $$(BROKER_OBJS_$(1)) $$(ALL_CFLAGS) -L$$(B) -ltws $$(BROKER_LIBS_$(1)) $$(ALL_LDFLAGS) -lpthread -o $$@

$$(B)/libtws_$(1).so.$$(VERSION_MAJOR): $$(B)/libtws_$(1).so.$$(VERSION)
	$$(Q)ln -sf $$(<F) $$@

$$(B)/libtws_$(1).so: $$(B)/libtws_$(1).so.$$(VERSION_MAJOR)
	$$(Q)ln -sf $$(<F) $$@

-include $$(BROKER_OBJS_$(1):.o=.d)
endef
$(foreach b,$(BROKERS),$(eval $(call broker_rules,$(b))))
