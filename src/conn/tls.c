/* What TLS agreed on, and the way to the SSL, for the caller. */
#include "conn/conn.h"

#include "base/sized.h"

#include <tws/openssl.h>

bool tws_conn_tls_sized(tws_conn *c, tws_tls_info *out, size_t size)
{
    tws_tls_info info;

    net_tls_describe(&c->stream, &info);
    base_sized_give(out, size, &info, sizeof info);
    return net_stream_is_tls(&c->stream);
}

tws_err tws_conn_ssl_do(tws_conn *c, void (*fn)(SSL *ssl, void *arg), void *arg)
{
    if (!fn)
        return TWS_ERR_ARGUMENT;
    return net_tls_do(&c->stream, fn, arg) ? TWS_OK : TWS_ERR_STATE;
}
