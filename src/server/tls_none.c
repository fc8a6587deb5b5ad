/* In place of tls_upgrade.c in a build without TLS. The declaration is that of <tws/openssl.h>, which
 * needs OpenSSL's headers. */
#include "server/upgrade.h"

struct ssl_st;

TWS_API tws_err tws_upgrade_ssl(tws_conn **out, struct ssl_st *ssl, int fd, const void *buffered,
                                size_t buffered_len, const tws_upgrade_options *opt,
                                tws_error *error);

/* The SSL stays the caller's, since nothing here can free it. */
tws_err tws_upgrade_ssl(tws_conn **out, struct ssl_st *ssl, int fd, const void *buffered,
                        size_t buffered_len, const tws_upgrade_options *opt, tws_error *error)
{
    (void)ssl, (void)buffered, (void)buffered_len, (void)opt;
    *out = NULL;
    return upgrade_refuse_input(fd, TWS_ERR_UNSUPPORTED, "this build has no TLS", error);
}
