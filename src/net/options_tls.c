/* Options of TLS, which every build knows: defaults. */
#include "net/tls.h"

#include "base/sized.h"

#include <string.h>

void tws_tls_server_options_init_sized(tws_tls_server_options *opt, size_t size)
{
    tws_tls_server_options o;

    memset(&o, 0, sizeof o);
    o.size = size;
    o.min_version = TWS_TLS_1_2;
    base_sized_give(opt, size, &o, sizeof o);
}

void tws_tls_client_options_init_sized(tws_tls_client_options *opt, size_t size)
{
    tws_tls_client_options o;

    memset(&o, 0, sizeof o);
    o.size = size;
    o.min_version = TWS_TLS_1_2;
    base_sized_give(opt, size, &o, sizeof o);
}
