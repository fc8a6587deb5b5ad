# Installation. The .pc file is written here and not earlier, because only here the prefix is known.

PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
MANDIR ?= $(PREFIX)/share/man
PKGCONFIGDIR ?= $(LIBDIR)/pkgconfig
INSTALL ?= install

HEADERS := $(sort $(wildcard include/tws/*.h))
MAN_DIR := $(B)/man/man3

# In the .pc file, directories below the prefix are written relative to it, so that it can be moved.
below_prefix = $(patsubst $(PREFIX)/%,$${prefix}/%,$(1))

.PHONY: install uninstall man docs

##@ Install
## install: library, headers, tws.pc and manual pages below DESTDIR/PREFIX (default /usr/local); LIBDIR=DIR
install: lib man
	$(INSTALL) -d '$(DESTDIR)$(LIBDIR)' '$(DESTDIR)$(INCLUDEDIR)/tws' '$(DESTDIR)$(PKGCONFIGDIR)' \
	  '$(DESTDIR)$(MANDIR)/man3'
	$(INSTALL) -m 644 $(HEADERS) '$(DESTDIR)$(INCLUDEDIR)/tws/'
	$(INSTALL) -m 644 $(STATIC_LIB) '$(DESTDIR)$(LIBDIR)/'
	$(INSTALL) -m 755 $(SHARED_LIB) '$(DESTDIR)$(LIBDIR)/'
	ln -sf $(notdir $(SHARED_LIB)) '$(DESTDIR)$(LIBDIR)/$(SONAME)'
	ln -sf $(SONAME) '$(DESTDIR)$(LIBDIR)/libtws.so'
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(call below_prefix,$(LIBDIR))|' \
	  -e 's|@INCLUDEDIR@|$(call below_prefix,$(INCLUDEDIR))|' -e 's|@VERSION@|$(VERSION)|' \
	  tws.pc.in > '$(DESTDIR)$(PKGCONFIGDIR)/tws.pc'
	chmod 644 '$(DESTDIR)$(PKGCONFIGDIR)/tws.pc'
	@if [ -d $(MAN_DIR) ]; then $(INSTALL) -m 644 $(MAN_DIR)/*.3 '$(DESTDIR)$(MANDIR)/man3/'; fi
	@if [ -z '$(DESTDIR)' ] && [ "$$(id -u)" = 0 ]; then ldconfig 2>/dev/null || true; fi

## uninstall: remove what install put there (same PREFIX, LIBDIR, DESTDIR)
uninstall:
	rm -f $(patsubst include/%,'$(DESTDIR)$(INCLUDEDIR)/%',$(HEADERS))
	-rmdir '$(DESTDIR)$(INCLUDEDIR)/tws' 2>/dev/null
	rm -f '$(DESTDIR)$(LIBDIR)/libtws.a' '$(DESTDIR)$(LIBDIR)/libtws.so' '$(DESTDIR)$(LIBDIR)/$(SONAME)' \
	  '$(DESTDIR)$(LIBDIR)/$(notdir $(SHARED_LIB))' '$(DESTDIR)$(PKGCONFIGDIR)/tws.pc'
	rm -f '$(DESTDIR)$(MANDIR)/man3'/tws_*.3 '$(DESTDIR)$(MANDIR)/man3/libtws.3'

## man: manual pages from the headers' contract comments, in build/man
man:
	@if command -v $(PYTHON) >/dev/null 2>&1; then $(PYTHON) scripts/mkman.py man $(MAN_DIR); \
	else echo 'man: no Python here, so no manual pages'; fi

## docs: docs/api from the same comments
docs:
	@$(PYTHON) scripts/mkman.py docs docs/api
