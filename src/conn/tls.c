/* What TLS agreed on, for the caller. */
#include "conn/conn.h"

#include "base/sized.h"

bool tws_conn_tls_sized(tws_conn *c, tws_tls_info *out, size_t size)
{
    tws_tls_info info;

    net_tls_describe(&c->stream, &info);
    base_sized_give(out, size, &info, sizeof info);
    return net_stream_is_tls(&c->stream);
}
