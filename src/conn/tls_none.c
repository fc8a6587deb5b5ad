/* In place of tls_ssl.c in a build without TLS: no connection has an SSL. The declaration is that of
 * <tws/openssl.h>, which needs OpenSSL's headers. */
#include "conn/conn.h"

struct ssl_st;

TWS_API tws_err tws_conn_ssl_do(tws_conn *c, void (*fn)(struct ssl_st *ssl, void *arg), void *arg);

tws_err tws_conn_ssl_do(tws_conn *c, void (*fn)(struct ssl_st *ssl, void *arg), void *arg)
{
    (void)c, (void)arg;
    return fn ? TWS_ERR_UNSUPPORTED : TWS_ERR_ARGUMENT;
}
