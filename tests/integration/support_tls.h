/*
 * TLS for the raw client of the tests: with TWS_TEST_TLS=1 every server of the tests speaks it, and
 * client_dial() returns the plain side of a bridge, so that the same tests run over TLS.
 */
#ifndef TESTS_INTEGRATION_SUPPORT_TLS_H
#define TESTS_INTEGRATION_SUPPORT_TLS_H

#include <tws/openssl.h>

#include <stdbool.h>

#include "pki.h"

/* Whether the tests run over TLS this time. */
bool support_tls_wanted(void);
/* A server's certificate for "localhost" and 127.0.0.1 and its CA, made once for the process. */
const struct pki *support_tls_ca(void);
const struct pki *support_tls_leaf(void);
/* A server's TLS with that certificate; the process keeps it. */
tws_tls *support_tls_server(void);
/*
 * Speaks TLS on a connected socket, and plainly on the one it returns; -1 when the handshake fails.
 * An end, a half-close and a reset of either side become the same of the other. Stops reading while
 * the other side takes nothing. Its thread ends with the connection.
 */
int support_tls_bridge(int fd);
/* Of a server's connection that a test wants to see cut: streams that ended without close_notify. */
unsigned support_tls_truncated(void);

#endif
