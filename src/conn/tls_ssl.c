/* The way to a connection's SSL. */
#include "conn/conn.h"

#include <tws/openssl.h>

tws_err tws_conn_ssl_do(tws_conn *c, void (*fn)(SSL *ssl, void *arg), void *arg)
{
    if (!fn)
        return TWS_ERR_ARGUMENT;
    return net_tls_do(&c->stream, fn, arg) ? TWS_OK : TWS_ERR_STATE;
}
