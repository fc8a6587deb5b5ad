/* Opening handshakes over TLS that somebody else has set up. */
#include "server/upgrade.h"

#include <tws/openssl.h>

tws_err tws_upgrade_ssl(tws_conn **out, SSL *ssl, int fd, const void *buffered, size_t buffered_len,
                        const tws_upgrade_options *opt, tws_error *error)
{
    struct upgrade_input in = {
        .fd = fd, .ssl = ssl, .buffered = buffered, .buffered_len = buffered_len};
    tws_err err;

    *out = NULL;
    if (!ssl)
        return upgrade_refuse_input(fd, TWS_ERR_ARGUMENT, "no SSL", error);
    if (!SSL_is_init_finished(ssl) || !SSL_is_server(ssl))
        err = upgrade_refuse_input(fd, TWS_ERR_STATE,
                                   "the TLS handshake is not done, or a client's", error);
    else
        err = upgrade_socket(out, &in, opt, error);
    SSL_free(ssl); /* the connection has a reference of its own */
    return err;
}
