# The library. One set of position-independent objects serves both forms.

# src/nats/ and src/redis/ become shared objects of their own, so that the core needs no broker: mk/brokers.mk.
# A build without TLS or compression (mk/flags.mk) has src/*/tls_none.c and src/conn/deflate_none.c in place of these.
TLS_SRCS := $(filter-out %/tls_none.c,$(wildcard src/net/tls_*.c src/conn/tls_*.c src/server/tls_*.c))
DEFLATE_SRCS := $(addprefix src/conn/,deflate.c deflate_setup.c inflate.c inflate_read.c zstream.c)
ABSENT_SRCS := $(if $(call on,$(TLS)),%/tls_none.c,$(TLS_SRCS)) \
	$(if $(call on,$(DEFLATE)),%/deflate_none.c,$(DEFLATE_SRCS))
LIB_SRCS := $(sort $(filter-out src/nats/% src/redis/% $(ABSENT_SRCS),\
	$(wildcard src/*/*.c src/*/*/*.c src/*/*.S src/*/*/*.S)))
LIB_OBJS := $(patsubst %,$(B)/obj/%.o,$(basename $(LIB_SRCS)))

SONAME := libtws.so.$(VERSION_MAJOR)
STATIC_LIB := $(B)/libtws.a
# The same with internal names visible, for the unit tests.
OBJECTS_LIB := $(B)/libtws-objects.a
SHARED_LIB := $(B)/libtws.so.$(VERSION)

# Says which packages are missing, if that may be why.
or_hint = { scripts/deps.sh --quiet --hint build; exit 1; }

.PHONY: lib
lib: $(if $(call on,$(STATIC)),$(STATIC_LIB)) $(if $(call on,$(SHARED)),$(SHARED_LIB) $(B)/$(SONAME) $(B)/libtws.so)

$(B)/obj/%.o: %.c $(FLAGS_STAMP)
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(COMPILE) -c -o $@ $< || $(or_hint)

$(B)/obj/%.o: %.S $(FLAGS_STAMP)
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(COMPILE) -c -o $@ $< || $(or_hint)

# A list of members that changes when a source file goes away, so that no stale object stays in an archive.
$(B)/lib-objects.txt: FORCE
	@mkdir -p $(@D)
	@echo '$(LIB_OBJS)' | cmp -s - $@ || echo '$(LIB_OBJS)' > $@

# With -flto the objects hold no code yet: gcc makes it while it joins them, and so does clang's linker, lld.
LTO_RELINK = $(or $(shell $(CC) -flinker-output=nolto-rel -x c -c -o /dev/null /dev/null >/dev/null 2>&1 && \
	echo -flinker-output=nolto-rel),-fuse-ld=lld -Wno-unused-command-line-argument)
RELINK = $(if $(filter -flto%,$(CFLAGS)),$(CC) $(ALL_CFLAGS) $(LTO_RELINK) -nostdlib,$(LD)) -r

# One object in which only the public names are global: no short internal name meets one of the program's.
$(B)/obj/libtws.o: $(LIB_OBJS) $(B)/lib-objects.txt
	$(call say,LD,$@)
	$(Q)$(RELINK) -o $@ $(LIB_OBJS)
	$(Q)$(OBJCOPY) --localize-hidden $@

$(STATIC_LIB): $(B)/obj/libtws.o
	@rm -f $@
	$(call say,AR,$@)
	$(Q)$(AR) rcs $@ $<

$(OBJECTS_LIB): $(LIB_OBJS) $(B)/lib-objects.txt
	@rm -f $@
	$(call say,AR,$@)
	$(Q)$(AR) rcs $@ $(LIB_OBJS)

$(SHARED_LIB): $(LIB_OBJS) $(B)/lib-objects.txt src/tws.map
	$(call say,LD,$@)
	$(Q)$(CC) -shared -Wl,-soname,$(SONAME) -Wl,--version-script=src/tws.map $(LIB_OBJS) $(ALL_CFLAGS) \
	  $(ALL_LDFLAGS) $(LIBS) -o $@ || $(or_hint)

$(B)/$(SONAME): $(SHARED_LIB)
	$(Q)ln -sf $(<F) $@

$(B)/libtws.so: $(B)/$(SONAME)
	$(Q)ln -sf $(<F) $@

-include $(LIB_OBJS:.o=.d)
