# `make autobahn`: a referee's verdict on the echo example and on the client, or with AUTOBAHN_URL=ws://... on any
# server.

# Cases to leave out; AUTOBAHN_EXCLUDE='12.* 13.*', those of compression, makes it a matter of seconds.
AUTOBAHN_EXCLUDE ?=
# Only these cases, for instance AUTOBAHN_CASES='1.* 7.1.*'; empty: all.
AUTOBAHN_CASES ?=
AUTOBAHN_URL ?=
# Kinds of thread that the echo example runs its connections on, one run for each.
AUTOBAHN_THREADS ?= kernel light

# All but the cases of compression once more over TLS; empty: not.
AUTOBAHN_TLS ?= yes

AUTOBAHN_CLIENT := $(B)/tests/autobahn_client

.PHONY: autobahn

## autobahn: Autobahn testsuite against build/examples/echo and the client; AUTOBAHN_URL=ws://HOST:PORT: any server
autobahn:
	@scripts/deps.sh --quiet build autobahn
	@$(if $(AUTOBAHN_URL),,$(SUBMAKE) $(B)/examples/echo $(AUTOBAHN_CLIENT))
	@$(if $(AUTOBAHN_TLS),scripts/certs.sh $(CERTS))
	@$(PYTHON) tests/autobahn/run.py --out $(B)/autobahn --exclude '$(AUTOBAHN_EXCLUDE)' --cases '$(AUTOBAHN_CASES)' \
	  $(if $(AUTOBAHN_URL),--url '$(AUTOBAHN_URL)',--echo $(B)/examples/echo \
	  --threads '$(AUTOBAHN_THREADS)' --client $(AUTOBAHN_CLIENT) $(if $(AUTOBAHN_TLS),--tls $(CERTS)))

$(AUTOBAHN_CLIENT): $(B)/obj/tests/autobahn/autobahn_client.o $(STATIC_LIB)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $< $(STATIC_LIB) $(ALL_LDFLAGS) $(LIBS) -o $@
-include $(B)/obj/tests/autobahn/autobahn_client.d
