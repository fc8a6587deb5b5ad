# Coverage of the C tests: the lines of src/ that they run, with a floor for each layer in tests/coverage.py.

.PHONY: coverage coverage-build coverage-run

##@ Check
## coverage: lines of each layer that the C tests run; fails below the floors in tests/coverage.py. T=NAME: without floors
coverage:
	@scripts/deps.sh --quiet build test coverage
	@scripts/certs.sh $(CERTS)
	@$(SUBMAKE) VARIANT=coverage coverage-build
	@find $(BUILD)/coverage -name '*.gcda' -delete
	@$(SUBMAKE) VARIANT=coverage coverage-run
	@$(PYTHON) tests/coverage.py --build $(BUILD)/coverage $(if $(T),--no-floors)

# Left out is what counts calls of the C library, which only the sanitizers' builds make: others ask the kernel.
COVERAGE_PROGS := $(filter-out %/conn_join_test,$(TEST_PROGS))

coverage-build: $(call chosen,$(COVERAGE_PROGS))
coverage-run:
	@$(RUN_TESTS) --name coverage $(call with_light,$(call chosen,$(COVERAGE_PROGS)))
