# Installation. What names the prefix (.pc, CMake's files) is written here and not earlier, because only here it is known.

PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
MANDIR ?= $(PREFIX)/share/man
DOCDIR ?= $(PREFIX)/share/doc/libtws
EXAMPLEDIR ?= $(DOCDIR)/examples
PKGCONFIGDIR ?= $(LIBDIR)/pkgconfig
CMAKEDIR ?= $(LIBDIR)/cmake/tws
INSTALL ?= install

# 0 leaves the tools out. They run from wherever they are put; TOOLS_LIB=shared has tws-cat use the shared library, as a
# distribution wants it that puts that where the system looks. The load generator speaks TLS and compression, so it needs both.
TOOLS ?= 1

HEADERS := $(sort $(filter-out $(if $(call on,$(TLS)),,include/tws/openssl.h) \
	$(foreach b,$(filter-out $(BROKERS),nats redis),include/tws/$(b).h),$(wildcard include/tws/*.h)))
MAN_DIR := $(B)/man/man3
INSTALL_LIBS := libtws $(BROKERS:%=libtws_%)
INSTALL_PCS := tws $(BROKERS:%=tws-%)
INSTALL_TOOLS := $(if $(call on,$(TOOLS)),tws-cat tws-exporter $(if $(and $(call on,$(TLS)),$(call on,$(DEFLATE))),tws-load))
TOOLS_LIB ?= static
TOOL_tws-cat := $(B)/$(if $(filter shared,$(TOOLS_LIB)),tools/cat,examples/cat)
TOOL_tws-exporter := $(B)/bench/exporter
TOOL_tws-load := $(B)/bench/load
INSTALL_EXAMPLES := $(sort $(wildcard examples/*.c examples/*.h examples/*.html examples/*.service examples/*.socket))
INSTALL_DOCS := $(sort README.md CHANGELOG.md $(wildcard docs/*.md docs/api/*.md))

# Calls $(1) with FROM,TO,MODE for each file, for install and uninstall alike.
each_file = $(foreach h,$(HEADERS),$(call $(1),$(h),$(INCLUDEDIR)/tws/$(notdir $(h)),644)) \
	$(if $(call on,$(STATIC)),$(foreach l,$(INSTALL_LIBS),$(call $(1),$(B)/$(l).a,$(LIBDIR)/$(l).a,644))) \
	$(if $(call on,$(SHARED)),$(foreach l,$(INSTALL_LIBS),$(call $(1),$(B)/$(l).so.$(VERSION),$(LIBDIR)/$(l).so.$(VERSION),$(SHARED_MODE)))) \
	$(foreach p,$(INSTALL_PCS),$(call $(1),$(B)/pc/$(p).pc,$(PKGCONFIGDIR)/$(p).pc,644)) \
	$(foreach c,tws-config.cmake tws-config-version.cmake,$(call $(1),$(B)/pc/$(c),$(CMAKEDIR)/$(c),644)) \
	$(foreach t,$(INSTALL_TOOLS),$(call $(1),$(TOOL_$(t)),$(BINDIR)/$(t),755) \
	  $(call $(1),packaging/man/$(t).1,$(MANDIR)/man1/$(t).1,644)) \
	$(foreach e,$(INSTALL_EXAMPLES),$(call $(1),$(e),$(EXAMPLEDIR)/$(notdir $(e)),644)) \
	$(call $(1),packaging/examples.mk,$(EXAMPLEDIR)/Makefile,644) \
	$(foreach d,$(INSTALL_DOCS),$(call $(1),$(d),$(DOCDIR)/$(d:docs/%=%),644))
put_file = $(INSTALL) -D -m $(3) '$(1)' '$(DESTDIR)$(2)' &&
drop_file = '$(DESTDIR)$(2)'
# Some systems (Debian) want shared objects without the bits for execution.
SHARED_MODE ?= 755

# In the .pc file, directories below the prefix are written relative to it, so that it can be moved; a blank is escaped.
# (patsubst would go word by word, and a name may have blanks.)
below_prefix = $(subst <,,$(subst <$(PREFIX)/,$${prefix}/,<$(1)))
pc_text = $(subst |,\|,$(subst $(blank),\\ ,$(1)))
blank := $(subst ,, )
# The way from CMake's files to a directory.
from_cmake = $(shell realpath -ms --relative-to='$(CMAKEDIR)' '$(1)')
POINTER_SIZE = $(shell echo __SIZEOF_POINTER__ | $(CC) $(CPPFLAGS) $(CFLAGS) -E -P -x c -)
FILL = sed -e 's|@PREFIX@|$(call pc_text,$(PREFIX))|' -e 's|@LIBDIR@|$(call pc_text,$(call below_prefix,$(LIBDIR)))|' \
	-e 's|@INCLUDEDIR@|$(call pc_text,$(call below_prefix,$(INCLUDEDIR)))|' \
	-e 's|@REL_LIBDIR@|$(call from_cmake,$(LIBDIR))|' -e 's|@REL_INCLUDEDIR@|$(call from_cmake,$(INCLUDEDIR))|' \
	-e 's|@VERSION@|$(VERSION)|g' -e 's|@VERSION_MAJOR@|$(VERSION_MAJOR)|g' -e 's|@VERSION_MINOR@|$(VERSION_MINOR)|g' \
	-e 's|@POINTER_SIZE@|$(POINTER_SIZE)|' -e 's|@TLS@|$(if $(call on,$(TLS)),ON,OFF)|' \
	-e 's|@DEFLATE@|$(if $(call on,$(DEFLATE)),ON,OFF)|' \
	-e 's|@REQUIRES_PRIVATE@|$(if $(call on,$(TLS)), openssl)$(if $(call on,$(DEFLATE)), zlib)|'

$(B)/tools/cat: $(B)/obj/examples/cat.o $(patsubst %.c,$(B)/obj/%.o,$(filter examples/cat_%,$(EXAMPLE_PARTS))) $(B)/libtws.so
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(PIE) $(filter %.o,$^) $(ALL_LDFLAGS) -L$(B) -ltws -lpthread -o $@

.PHONY: install uninstall install-files man docs

##@ Install
## install: libraries, headers, .pc and CMake files, tools, manual pages, documents and examples below DESTDIR/PREFIX
install: lib man $(foreach t,$(INSTALL_TOOLS),$(TOOL_$(t))) install-files
	$(Q)$(call each_file,put_file) :
	$(if $(call on,$(SHARED)),$(Q)$(foreach l,$(INSTALL_LIBS),ln -sf $(l).so.$(VERSION) '$(DESTDIR)$(LIBDIR)/$(l).so.$(VERSION_MAJOR)' && \
	  ln -sf $(l).so.$(VERSION_MAJOR) '$(DESTDIR)$(LIBDIR)/$(l).so' &&) :)
	@if [ -d $(MAN_DIR) ]; then $(INSTALL) -d '$(DESTDIR)$(MANDIR)/man3' && \
	  $(INSTALL) -m 644 $(MAN_DIR)/*.3 '$(DESTDIR)$(MANDIR)/man3/'; fi
	@if [ -z '$(DESTDIR)' ] && [ "$$(id -u)" = 0 ]; then ldconfig 2>/dev/null || true; fi
	@echo 'installed libtws $(VERSION) in $(DESTDIR)$(PREFIX)'

install-files:
	@mkdir -p $(B)/pc
	@$(foreach p,$(INSTALL_PCS),$(FILL) packaging/$(p).pc.in > $(B)/pc/$(p).pc &&) :
	@for f in tws-config.cmake tws-config-version.cmake; do $(FILL) packaging/cmake/$$f.in > $(B)/pc/$$f; done

## uninstall: remove what install put there (same PREFIX, LIBDIR, DESTDIR)
uninstall:
	$(Q)rm -f $(call each_file,drop_file)
	@rm -f $(foreach l,$(INSTALL_LIBS),'$(DESTDIR)$(LIBDIR)/$(l).so.$(VERSION_MAJOR)' '$(DESTDIR)$(LIBDIR)/$(l).so')
	@rm -f '$(DESTDIR)$(MANDIR)/man3'/tws_*.3 '$(DESTDIR)$(MANDIR)/man3/libtws.3'
	@rmdir '$(DESTDIR)$(INCLUDEDIR)/tws' '$(DESTDIR)$(CMAKEDIR)' '$(DESTDIR)$(EXAMPLEDIR)' '$(DESTDIR)$(DOCDIR)/api' \
	  '$(DESTDIR)$(DOCDIR)' $(if $(filter /usr /usr/local,$(PREFIX)),,$(OWN_DIRS)) 2>/dev/null || true

# Of a prefix of one's own, directories that are empty then go too.
OWN_DIRS = '$(DESTDIR)$(MANDIR)/man1' '$(DESTDIR)$(MANDIR)/man3' '$(DESTDIR)$(MANDIR)' \
	"$$(dirname '$(DESTDIR)$(DOCDIR)')" "$$(dirname '$(DESTDIR)$(CMAKEDIR)')" '$(DESTDIR)$(PKGCONFIGDIR)' \
	'$(DESTDIR)$(PREFIX)/share' '$(DESTDIR)$(LIBDIR)' '$(DESTDIR)$(BINDIR)' '$(DESTDIR)$(INCLUDEDIR)' '$(DESTDIR)$(PREFIX)'

## man: manual pages from the headers' contract comments, in build/man
man:
	@if command -v $(PYTHON) >/dev/null 2>&1; then $(PYTHON) scripts/mkman.py man $(MAN_DIR); \
	else echo 'man: no Python here, so no manual pages'; fi

## docs: docs/api from the same comments
docs:
	@$(PYTHON) scripts/mkman.py docs docs/api
