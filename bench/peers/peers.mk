# Checks of the servers under test.

.PHONY: test-bench-peers

##@ Compare
## test-bench-peers: every peer that can be built here keeps the contract; the checker finds what it should
test-bench-peers:
	@$(PYTHON) scripts/run-tests.py --build $(B) --name bench-peers --timeout 420 bench/peers/check_test.py
	@$(PYTHON) bench/peers/check.py --out $(BUILD)/bench/peers
