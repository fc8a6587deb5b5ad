# Light threads under debuggers, and with the other ways to switch: AArch64's, emulated, and ucontext, which other
# processors get. For these only the layers that the switch is used in are built, with the unit tests of light threads.

CROSS_TESTS := task_light_test task_stuck_test task_sync_test task_wake_test
CROSS_SRCS := $(sort $(wildcard src/base/*.c src/task/*.c src/task/light/*.c src/task/light/*.S))
CROSS_DEPS := $(CROSS_SRCS) $(wildcard src/base/*.h src/task/*.h src/task/light/*.h include/tws/*.h tests/unit/*.h) \
	$(wildcard tests/threads/shim/*.h) tests/threads/threads.mk
CROSS_FLAGS := -std=c11 -O1 -g -pthread -D_GNU_SOURCE -Iinclude -Isrc -Itests/unit $(WARN_FLAGS)
AARCH64_CC ?= aarch64-linux-gnu-gcc
QEMU_AARCH64 ?= qemu-aarch64
AARCH64_PROGS := $(addprefix $(BUILD)/aarch64/,$(CROSS_TESTS))
UCONTEXT_PROGS := $(addprefix $(BUILD)/ucontext/,$(CROSS_TESTS))

.PHONY: test-aarch64 test-ucontext test-debuggers aarch64-run ucontext-run

## test-aarch64: the tests of light threads on an emulated AArch64, small pages and large; installs compiler and emulator
test-aarch64:
	@scripts/deps.sh --quiet cross
	@$(SUBMAKE) aarch64-run

aarch64-run: $(AARCH64_PROGS)
	@for t in $(AARCH64_PROGS); do for page in 4096 65536; do \
	  echo "$(QEMU_AARCH64) -p $$page $$t"; $(QEMU_AARCH64) -p $$page $$t || exit 1; done; done

$(AARCH64_PROGS): $(BUILD)/aarch64/%: tests/unit/%.c $(CROSS_DEPS)
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(AARCH64_CC) $(CROSS_FLAGS) -Itests/threads/shim -static $< $(CROSS_SRCS) -lm -o $@

## test-ucontext: the tests of light threads with the switch of processors that have none of their own
test-ucontext:
	@scripts/deps.sh --quiet build test
	@$(SUBMAKE) ucontext-run

ucontext-run: $(UCONTEXT_PROGS)
	@for t in $(UCONTEXT_PROGS); do echo "$$t"; $$t || exit 1; done

$(UCONTEXT_PROGS): $(BUILD)/ucontext/%: tests/unit/%.c $(CROSS_DEPS)
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(CROSS_FLAGS) -DLIGHT_UCONTEXT -fsanitize=address,undefined -fno-sanitize-recover=all $< $(CROSS_SRCS) \
	  -lcmocka -lm -o $@

## test-debuggers: light threads under gdb and Valgrind; installs them
test-debuggers:
	@scripts/deps.sh --quiet build test debug
	@rm -f $(BUILD)/obj/src/task/light/stack.o # built before Valgrind was installed, it would not know it
	@$(SUBMAKE) VARIANT=release examples
	@$(RUN_TESTS) --name debuggers tests/threads/debuggers.py

# What reads memory that was never written, which no sanitizer of gcc's sees: programs that cover each layer in little
# time, both kinds of thread where there are two.
VALGRIND_TESTS := $(filter-out wire_mask_test wire_stream_test wire_utf8_test,$(notdir $(basename $(wildcard tests/unit/wire_*.c)))) \
	base_test net_test server_address_table_test
VALGRIND_PROGS := $(VALGRIND_TESTS:%=$(B)/tests/unit/%) $(addprefix $(B)/tests/integration/,conn_read_test conn_write_test \
	conn_deflate_read_test conn_deflate_write_test conn_queue_test server_upgrade_test hub_rooms_test client_dial_test)
MEMCHECK := valgrind -q --error-exitcode=9 --leak-check=full --show-leak-kinds=definite,indirect --fair-sched=try

.PHONY: test-valgrind valgrind-build valgrind-run
## test-valgrind: a selection of the C tests of every layer under Valgrind's memcheck; installs it
test-valgrind:
	@scripts/deps.sh --quiet build test debug
	@scripts/certs.sh $(CERTS)
	@rm -f $(BUILD)/obj/src/task/light/stack.o # as above
	@$(SUBMAKE) VARIANT=release valgrind-build
	@$(SUBMAKE) VARIANT=release valgrind-run
valgrind-build: $(call chosen,$(VALGRIND_PROGS))
valgrind-run:
	@$(RUN_TESTS) --name valgrind --timeout 300 --under '$(MEMCHECK)' $(call with_light,$(call chosen,$(VALGRIND_PROGS)))
