# Compiler and flags. The user's CPPFLAGS, CFLAGS and LDFLAGS come last and are never replaced.

# CROSS_COMPILE=aarch64-linux-gnu- takes that family of tools, but for those that are named by themselves.
ifeq ($(origin CC),default)
CC := $(CROSS_COMPILE)gcc
endif
ifeq ($(origin AR),default)
AR := $(CROSS_COMPILE)ar
endif
ifeq ($(origin LD),default)
LD := $(CROSS_COMPILE)ld
endif
OBJCOPY ?= $(CROSS_COMPILE)objcopy
# Debian's own Python, for which its python3-* packages are.
PYTHON ?= $(firstword $(wildcard /usr/bin/python3) python3)
WERROR ?= -Werror

# BUILD=DIR keeps a second tree of objects, for instance one per compiler.
BUILD ?= build
ifeq ($(VARIANT),release)
B := $(BUILD)
else
B := $(BUILD)/$(VARIANT)
endif

# What a recipe builds for itself uses all cores, unless the user has said how many.
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
SUBMAKE = $(MAKE) --no-print-directory $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(JOBS))

# One short line per step; V=1 shows the commands.
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-8s%s\n' '$(1)' '$(2)')

# The version has one home: the public header.
version_of = $(shell sed -n 's/^\#define TWS_VERSION_$(1)[ \t]*\([0-9][0-9]*\).*/\1/p' \
	include/tws/types.h 2>/dev/null | head -n 1)
VERSION_MAJOR := $(or $(call version_of,MAJOR),0)
VERSION_MINOR := $(or $(call version_of,MINOR),0)
VERSION_PATCH := $(or $(call version_of,PATCH),0)
VERSION := $(VERSION_MAJOR).$(VERSION_MINOR).$(VERSION_PATCH)

WARN_FLAGS := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes $(WERROR)

# _FORTIFY_SOURCE warns without optimisation, which -Werror would turn into a failed build.
# The user's own choice is kept.
ifneq ($(filter -O0 -Og,$(CFLAGS))$(findstring _FORTIFY_SOURCE,$(CPPFLAGS)$(CFLAGS)),)
HARDEN_CPP :=
else
# 3 where compiler and C library know it, which say so by a warning where they do not.
FORTIFY = $(shell printf '\043include <features.h>\n' | \
	$(CC) -O2 -Werror -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -E -x c - >/dev/null 2>&1 && echo 3 || echo 2)
HARDEN_CPP = -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=$(FORTIFY)
endif
# A flag that the compiler knows for this processor, or nothing.
known_flag = $(shell $(CC) -Werror $(1) -x c -c -o /dev/null /dev/null >/dev/null 2>&1 && echo $(1))

ifeq ($(VARIANT),release)
VARIANT_CPP := $(HARDEN_CPP)
# Without -fcf-protection: Linux checks no branches of programs, and light threads switch stacks by hand, so that
# shadow stacks cannot be kept. It would add 2.7 % to the instructions of an echo; what is here adds none.
VARIANT_CFLAGS := -O2 -fstack-protector-strong $(call known_flag,-fstack-clash-protection)
VARIANT_LDFLAGS := -Wl,-z,relro,-z,now,-z,noexecstack
# Of programs, not of the shared library.
PIE := -pie
else ifeq ($(VARIANT),asan)
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=all
VARIANT_CFLAGS := -O1 -fno-omit-frame-pointer $(SANITIZE)
VARIANT_LDFLAGS := $(SANITIZE)
else ifeq ($(VARIANT),tsan)
SANITIZE := -fsanitize=thread
VARIANT_CFLAGS := -O1 -fno-omit-frame-pointer $(SANITIZE)
VARIANT_LDFLAGS := $(SANITIZE)
else ifeq ($(VARIANT),fuzz)
SANITIZE := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
VARIANT_CFLAGS := -O1 -fno-omit-frame-pointer $(SANITIZE)
VARIANT_LDFLAGS := $(SANITIZE)
else ifeq ($(VARIANT),coverage)
VARIANT_CFLAGS := -O0 --coverage -fprofile-update=atomic -fprofile-abs-path
VARIANT_LDFLAGS := --coverage
else ifeq ($(VARIANT),fuzzcov)
VARIANT_CFLAGS := -O1 -fprofile-instr-generate -fcoverage-mapping -fsanitize=fuzzer-no-link
VARIANT_LDFLAGS := -fprofile-instr-generate
else ifeq ($(VARIANT),afl)
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=all
VARIANT_CFLAGS := -O1 -fno-omit-frame-pointer $(SANITIZE)
VARIANT_LDFLAGS := $(SANITIZE)
else
$(error VARIANT is release, asan, tsan, fuzz, fuzzcov, afl or coverage, not '$(VARIANT)')
endif

# TLS=0 builds without OpenSSL, DEFLATE=0 without zlib: what needs them says TWS_ERR_UNSUPPORTED. docs/install.md.
TLS ?= 1
DEFLATE ?= 1
# STATIC=0 and SHARED=0 leave one form out of `make lib` and `make install`.
STATIC ?= 1
SHARED ?= 1
on = $(filter-out 0,$(1))
ifeq ($(call on,$(STATIC))$(call on,$(SHARED)),)
$(error STATIC=0 and SHARED=0: nothing is left to build)
endif
LIBS := -lssl -lcrypto -lz -lpthread
LIBS := $(filter-out $(if $(call on,$(TLS)),,-lssl -lcrypto) $(if $(call on,$(DEFLATE)),,-lz),$(LIBS))

# ROOM_CPP is what one group of objects needs besides (set per target, private).
ALL_CPPFLAGS = -D_GNU_SOURCE $(VARIANT_CPP) -Iinclude -Isrc $(ROOM_CPP) $(CPPFLAGS)
ALL_CFLAGS = -std=c11 -g -pthread -fPIC -fvisibility=hidden $(WARN_FLAGS) $(VARIANT_CFLAGS) $(CFLAGS)
ALL_LDFLAGS = -pthread $(VARIANT_LDFLAGS) $(LDFLAGS)

COMPILE = $(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) -MMD -MP

# "yes" when the compiler finds a header.
has_header = $(shell printf '\043include <$(1)>\n' | $(CC) $(CPPFLAGS) -E -x c - >/dev/null 2>&1 && echo yes)

# Objects depend on this file, which changes when the compiler or a flag does: gcc and clang can share a tree.
FLAGS_STAMP := $(B)/flags.txt
FLAGS_TEXT := $(CC) | $(ALL_CPPFLAGS) | $(ALL_CFLAGS) | $(ALL_LDFLAGS)
# `make install` alone takes what was built, with whatever flags that was.
$(FLAGS_STAMP): $(if $(filter-out install uninstall,$(or $(MAKECMDGOALS),all)),FORCE)
	@mkdir -p $(@D)
	@printf '%s\n' '$(subst ','\'',$(FLAGS_TEXT))' | cmp -s - $@ || \
	  printf '%s\n' '$(subst ','\'',$(FLAGS_TEXT))' > $@

FORCE:
