# `make check`: everything that can be judged without running the library. `make check-NAME` runs one of them.

CHECKS := layers contracts headers exports install service size text cases format shell man cppcheck hardening analyzer tidy
.PHONY: check $(addprefix check-,$(CHECKS))

# Written by hand and in C: what the format and the analysers look at.
C_FILES = $(shell git ls-files --cached --others --exclude-standard '*.c' '*.h')
ANALYSED := $(sort $(wildcard src/*/*.c src/*/*/*.c examples/*.c examples/*/*.c bench/*/*.c))
ANALYSE_CPP := -D_GNU_SOURCE -Iinclude -Isrc -Iexamples -I$(B)/gen

##@ Check
## check: layers, contracts, headers as C and C++, exports, sizes, format, clang-tidy, cppcheck and more
check:
	@scripts/deps.sh --quiet build check
	@MAKE='$(MAKE)' scripts/run-checks.sh $(CHECKS)

check-layers:
	@$(PYTHON) scripts/check-layers.py
check-contracts:
	@$(PYTHON) scripts/check-contracts.py
check-headers:
	@scripts/check-headers.sh
check-exports: lib $(OBJECTS_LIB)
	@$(PYTHON) scripts/check-exports.py $(SHARED_LIB) $(STATIC_LIB) $(OBJECTS_LIB) \
	  $(foreach b,$(BROKERS),$(b) $(B)/libtws_$(b).so.$(VERSION) $(B)/libtws_$(b).a)
check-install: lib man
	@MAKE='$(MAKE)' CC='$(CC)' scripts/check-install.sh $(abspath $(B)/install-check)
check-service: $(B)/examples/chat
	@scripts/check-service.sh $(abspath $(B)/service) $<
check-size:
	@$(PYTHON) scripts/check-size.py
check-text:
	@$(PYTHON) scripts/check-text.py
check-cases:
	@$(PYTHON) scripts/check-cases.py
check-shell:
	@scripts/check-shell.sh
check-man:
	@$(PYTHON) scripts/mkman.py man $(MAN_DIR)
	@mandoc -T lint -W warning packaging/man/*.1 $(MAN_DIR)/*.3
	@$(PYTHON) scripts/mkman.py check docs/api
	@echo 'man: clean, and docs/api is fresh'
check-format:
	@clang-format --dry-run -Werror --ferror-limit=3 $(C_FILES) && echo 'format: $(words $(C_FILES)) files'
check-cppcheck: $(EXAMPLE_PAGES)
	@cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr --error-exitcode=1 \
	  --suppress=missingIncludeSystem --suppress=autoVariables -j 2 $(ANALYSE_CPP) $(ANALYSED) && echo 'cppcheck: $(words $(ANALYSED)) files'
check-hardening: all
	@scripts/check-hardening.sh $(SHARED_LIB) $(EXAMPLES)
# gcc's; clang's is part of check-tidy.
check-analyzer: $(EXAMPLE_PAGES)
	@ANALYSE_CPP='$(ANALYSE_CPP)' $(PYTHON) scripts/check-analyzer.py gcc $(filter-out bench/%,$(filter %.c,$(ANALYSED)))
check-tidy:
	@$(SUBMAKE) --keep-going $(TIDY_STAMPS)
	@echo 'tidy: $(words $(TIDY_STAMPS)) files'

# A file that was found clean is looked at again only when it, one of its headers or the rules have changed. In
# bench/, which is no part of the library, the slow analyser is left out.
TIDY_STAMPS := $(ANALYSED:%=$(B)/tidy/%.ok)
BENCH_TIDY := --checks=-clang-analyzer-*,-cert-*,-bugprone-not-null-terminated-result
$(TIDY_STAMPS): $(B)/tidy/%.ok: % .clang-tidy | $(EXAMPLE_PAGES)
	@mkdir -p $(@D)
	@$(CC) $(ANALYSE_CPP) -MM -MP -MT $@ -MF $@.d $<
	@clang-tidy --quiet $(if $(filter bench/%,$<),'$(BENCH_TIDY)') $< -- -std=c11 $(ANALYSE_CPP) 2>/dev/null
	@touch $@
-include $(TIDY_STAMPS:=.d)

## format: lay out all C files as .clang-format says
format:
	@clang-format -i $(C_FILES)
