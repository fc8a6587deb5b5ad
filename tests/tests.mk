# Tests. `make test` builds everything with AddressSanitizer and UBSan and runs the C programs
# (tests/{unit,integration}/*_test.c) and the Python drivers (tests/integration/*.py, but not _*.py, which are
# helpers). Other C files in those folders and in tests/support/ are helpers linked into every program.

TEST_DIRS := tests/unit tests/integration
# What a build without TLS or compression cannot do is not asked of it: tests with one of these words in their name, and
# those that need it somewhere. The others' own peers use OpenSSL and zlib all the same. Unpacked sources are no clone of
# which a release could be made.
TEST_LACKS := $(if $(wildcard .git),,release_test) \
	$(if $(and $(call on,$(TLS)),$(call on,$(DEFLATE))),,client_memory examples_cat examples_streams docs_test soak_test) \
	$(if $(call on,$(TLS)),,tls client_way server_limits server_parsed examples_service) \
	$(if $(call on,$(DEFLATE)),,deflate compression zstream hostile_bombs alloc_test conn_file_pair conn_model \
	  conn_prepared conn_queue_fault hub_publish /pair_test server_handoff_record server_handoff_test /stream_test parity_docs)
possible = $(foreach p,$(1),$(if $(strip $(foreach w,$(TEST_LACKS),$(findstring $(w),$(p)))),,$(p)))
TEST_LIBS := -lssl -lcrypto -lz -lpthread
TEST_SRCS := $(call possible,$(sort $(wildcard $(addsuffix /*_test.c,$(TEST_DIRS)))))
TEST_PROGS := $(patsubst %.c,$(B)/%,$(TEST_SRCS))
TEST_KIT := $(patsubst %.c,$(B)/obj/%.o,$(sort $(filter-out %_test.c,\
	$(wildcard $(addsuffix /*.c,$(TEST_DIRS) tests/support)))))
TEST_OBJS := $(patsubst %.c,$(B)/obj/%.o,$(TEST_SRCS)) $(TEST_KIT)
TEST_DRIVERS := $(call possible,$(sort $(filter-out tests/integration/_%,$(wildcard tests/integration/*.py))))
# The checkers of `make check` and the test runner are tested too.
TOOL_TESTS := $(call possible,$(sort $(wildcard tests/tools/*_test.py)))

# These watch memory and system calls of the release build.
RELEASE_DRIVERS := tests/integration/hostile_release.py tests/integration/hostile_bombs.py

# What runs a server runs once more with light threads.
LIGHT_TOO := alloc_ metrics_ conn_ stream_ pair_ wait_ events_ session_ map_ server_ hub_ cluster_ client_ cases_ hostile_ examples_chat.py examples_restart.py examples_bridge.py examples_small.py examples_service.py examples_streams.py
with_light = $(1) $(addsuffix @light,$(foreach p,$(1),\
	$(if $(strip $(foreach n,$(LIGHT_TOO),$(findstring tests/integration/$(n),$(p)))),$(p))))

# Drivers of a server, and programs with a raw client, that run once more over TLS, with each kind of thread. Left
# out are programs that count what fits into a socket.
TLS_TOO := tests/integration/cases_%.py \
	$(addprefix %tests/integration/,$(addsuffix _test,conn_close conn_file conn_join conn_peer_close conn_races conn_ping_wait conn_read conn_stream conn_stress wait))
with_tls = $(call with_light,$(1)) $(foreach k,$(if $(call on,$(TLS)),tls tls-light),$(addsuffix @$(k),\
	$(filter $(TLS_TOO),$(1))))

# Programs that make no second thread: TSan has nothing to see in them.
TSAN_SKIP := $(filter tests/unit/wire_%,$(TEST_SRCS))
TSAN_PROGS := $(patsubst %.c,$(B)/%,$(filter-out $(TSAN_SKIP),$(TEST_SRCS)))

# `make test T=NAME`: those with NAME in their file name.
chosen = $(strip $(if $(T),$(foreach p,$(1),$(if $(findstring $(T),$(notdir $(p))),$(p))),$(1)))
# Tests find the certificates there, whatever tree they are built in.
CERTS := $(BUILD)/certs
# Programs run side by side, since most of them wait most of the time; TEST_JOBS=1: one at a time. Those that watch
# the memory of a process, the processor or the whole system run by themselves.
TEST_JOBS ?= 0
RUN_ALONE := hostile_release,hostile_bombs
RUN_TESTS = TWS_CERTS=$(abspath $(CERTS)) $(PYTHON) scripts/run-tests.py --build $(B) --jobs $(TEST_JOBS) \
	--alone $(RUN_ALONE)

.PHONY: certs test test-interop test-tsan test-build test-run interop-build interop-run tsan-build tsan-run

##@ Test
## test: unit and integration tests under ASan and UBSan; `make test T=NAME` runs those whose name has NAME in it
test:
	@scripts/deps.sh --quiet build test
	@scripts/certs.sh $(CERTS)
	@$(SUBMAKE) VARIANT=asan test-build
	@$(if $(call chosen,$(RELEASE_DRIVERS)),$(SUBMAKE) VARIANT=release $(BUILD)/examples/echo)
	@$(SUBMAKE) VARIANT=asan test-run

## test-tsan: the threaded C tests under ThreadSanitizer
test-tsan:
	@scripts/deps.sh --quiet build test
	@scripts/certs.sh $(CERTS)
	@$(SUBMAKE) VARIANT=tsan tsan-build
	@$(SUBMAKE) VARIANT=tsan tsan-run

# With software of other people, which `make deps` does not install: scripts/deps.sh interop.
INTEROP_DRIVERS := $(sort $(filter-out tests/interop/_%,$(wildcard tests/interop/*.py)))
# Those that do not see to both kinds of thread themselves.
INTEROP_LIGHT_TOO := $(foreach n,server_proxied proxy_health,tests/interop/$(n).py@light)

## test-interop: clients, servers and proxies of other people; installs them. T=NAME as above
test-interop:
	@scripts/deps.sh --quiet build test interop
	@scripts/certs.sh $(CERTS)
	@$(SUBMAKE) VARIANT=asan interop-build
	@$(SUBMAKE) VARIANT=asan interop-run

# The library's client, for drivers that have it dial, and many that stay.
DIAL := $(B)/tests/interop/dial
FLEET := $(B)/tests/interop/fleet
$(DIAL) $(FLEET): $(B)/%: $(B)/obj/%.o $(STATIC_LIB)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $< $(STATIC_LIB) $(ALL_LDFLAGS) $(LIBS) -o $@
-include $(B)/obj/tests/interop/dial.d $(B)/obj/tests/interop/fleet.d

## rolling-restart: three servers behind a proxy restarted under load; PROXY=nginx, CLIENTS=300
.PHONY: rolling-restart rolling-restart-build
rolling-restart:
	@scripts/deps.sh --quiet build interop
	@scripts/certs.sh $(CERTS)
	@$(SUBMAKE) VARIANT=release rolling-restart-build
	@TWS_BUILD=$(abspath $(BUILD)) TWS_CERTS=$(abspath $(CERTS)) $(PYTHON) tests/interop/_rolling.py \
	  --proxy $(or $(PROXY),haproxy) --clients $(or $(CLIENTS),300)
rolling-restart-build: $(FLEET) $(B)/examples/echo

# A node of a cluster and its clients, for drivers with real brokers.
CLUSTER_PROGS := $(B)/tests/interop/cluster_node $(B)/tests/interop/cluster_crowd $(B)/tests/interop/cluster_replay
$(CLUSTER_PROGS:$(B)/%=$(B)/obj/%.o): private ROOM_CPP := -Itests -Itests/interop
$(B)/tests/interop/cluster_node: $(B)/obj/tests/interop/cluster_node.o $(BROKER_STATIC) $(STATIC_LIB)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $^ $(ALL_LDFLAGS) $(BROKER_LIBS_nats) $(BROKER_LIBS_redis) $(LIBS) -o $@
$(B)/tests/interop/cluster_crowd: $(B)/obj/tests/interop/cluster_crowd.o $(B)/obj/tests/support/crowd.o
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $^ $(ALL_LDFLAGS) -lpthread -o $@
$(B)/tests/interop/cluster_replay: $(B)/obj/tests/interop/cluster_replay.o
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $^ $(ALL_LDFLAGS) $(BROKER_LIBS_nats) -o $@
-include $(CLUSTER_PROGS:$(B)/%=$(B)/obj/%.d)

## cluster-run: 3 nodes, 3,000 clients, brokers killed and restarted; SECONDS=300, BROKER=redis
.PHONY: cluster-run cluster-run-build
cluster-run:
	@scripts/deps.sh --quiet build interop
	@$(SUBMAKE) VARIANT=release cluster-run-build
	@TWS_BUILD=$(abspath $(BUILD)) $(PYTHON) tests/interop/_cluster.py --seconds $(if $(filter file,$(origin SECONDS)),300,$(SECONDS)) \
	  --broker $(or $(BROKER),nats)
cluster-run-build: $(CLUSTER_PROGS)

interop-build: $(EXAMPLES) $(DIAL) $(FLEET) $(CLUSTER_PROGS)
interop-run:
	@$(RUN_TESTS) --name interop --timeout 300 $(call chosen,$(INTEROP_DRIVERS) $(INTEROP_LIGHT_TOO))

## certs: certificates for tests and examples in build/certs, with a CA of their own
certs:
	@scripts/certs.sh $(CERTS)
	@echo '$(CERTS): ca.pem, server.pem, server.key and more; see scripts/certs.sh'

test-build: $(call chosen,$(TEST_PROGS)) \
	$(if $(call chosen,$(TEST_DRIVERS) $(filter %docs_test.py %/limits_test.py,$(TOOL_TESTS))),$(EXAMPLES)) \
	$(if $(call chosen,tests/integration/client_tls.py),$(DIAL)) \
	$(if $(call chosen,tests/tools/soak_test.py),$(addprefix $(B)/tests/soak/,soak_server soak_client))
test-run:
	@$(RUN_TESTS) $(call with_tls,$(call chosen,$(TEST_PROGS) $(TEST_DRIVERS) $(TOOL_TESTS)))
tsan-build: $(call chosen,$(TSAN_PROGS))
tsan-run:
	@$(RUN_TESTS) --name tsan --timeout 400 $(call with_light,$(call chosen,$(TSAN_PROGS)))

$(TEST_OBJS): private ROOM_CPP := -Itests -Itests/unit -Itests/support

$(TEST_PROGS): $(B)/%: $(B)/obj/%.o $(TEST_KIT) $(OBJECTS_LIB)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $< $(TEST_KIT) $(OBJECTS_LIB) $(ALL_LDFLAGS) -lcmocka -lm $(TEST_LIBS) -o $@

.SECONDARY: $(TEST_OBJS) $(EXAMPLE_OBJS)
-include $(TEST_OBJS:.o=.d)

## tls-stress: 200 connections over TLS for a minute under TSan, each read by one thread and written by three
TLS_STRESS := $(B)/tests/integration/conn_tls_stress_test
.PHONY: tls-stress tls-stress-run
tls-stress:
	@scripts/deps.sh --quiet build test
	@$(SUBMAKE) VARIANT=tsan tls-stress-run
tls-stress-run: $(TLS_STRESS)
	@for kind in kernel light; do echo "threads: $$kind"; \
	  TWS_TEST_THREADS=$$kind TWS_STRESS_CONNECTIONS=200 TWS_STRESS_MS=60000 $< || exit 1; done

include tests/autobahn/autobahn.mk
include tests/fuzz/fuzz.mk
include tests/fault/fault.mk
include tests/hostile/hostile.mk
include tests/threads/threads.mk
include tests/soak/soak.mk
include tests/coverage.mk

## test-10g: 10 GiB as one message, each way and with each kind of thread, in less than 8 MiB of memory
.PHONY: test-10g
test-10g:
	@scripts/deps.sh --quiet build test
	@$(SUBMAKE) VARIANT=release $(BUILD)/examples/receiver
	@for kind in kernel light; do echo "threads: $$kind"; TWS_TEST_THREADS=$$kind TWS_BUILD=$(abspath $(BUILD)) \
	  TWS_STREAM_BYTES=10737418240 TWS_STREAM_MEMORY_KIB=8192 \
	  $(PYTHON) tests/integration/examples_streams.py -v Receiver.test_up Receiver.test_down || exit 1; done
