# `make check`: everything that can be judged without running the library. `make check-NAME` runs one of them.

CHECKS := layers contracts headers exports install size text format shell man cppcheck tidy
.PHONY: check $(addprefix check-,$(CHECKS))

# Written by hand and in C: what the format and the analysers look at.
C_FILES = $(shell git ls-files --cached --others --exclude-standard '*.c' '*.h')
ANALYSED = $(sort $(wildcard src/*/*.c examples/*.c examples/*/*.c bench/*/*.c))
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
check-exports: lib
	@$(PYTHON) scripts/check-exports.py $(SHARED_LIB) $(STATIC_LIB)
check-install: lib man
	@MAKE='$(MAKE)' CC='$(CC)' scripts/check-install.sh $(abspath $(B)/install-check)
check-size:
	@$(PYTHON) scripts/check-size.py
check-text:
	@$(PYTHON) scripts/check-text.py
check-shell:
	@scripts/check-shell.sh
check-man:
	@$(PYTHON) scripts/mkman.py man $(MAN_DIR)
	@mandoc -T lint -W warning $(MAN_DIR)/*.3
	@$(PYTHON) scripts/mkman.py check docs/api
	@echo 'man: clean, and docs/api is fresh'
check-format:
	@clang-format --dry-run -Werror --ferror-limit=3 $(C_FILES) && echo 'format: $(words $(C_FILES)) files'
check-cppcheck: $(EXAMPLE_PAGES)
	@cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr --error-exitcode=1 \
	  --suppress=missingIncludeSystem --suppress=autoVariables -j 2 $(ANALYSE_CPP) $(ANALYSED) && echo 'cppcheck: $(words $(ANALYSED)) files'
check-tidy: $(EXAMPLE_PAGES)
	@printf '%s\n' $(ANALYSED) | xargs -r -P 2 -n 3 sh -c \
	  'clang-tidy --quiet "$$@" -- -std=c11 $(ANALYSE_CPP) 2>/dev/null' tidy && echo 'tidy: $(words $(ANALYSED)) files'

## format: lay out all C files as .clang-format says
format:
	@clang-format -i $(C_FILES)
