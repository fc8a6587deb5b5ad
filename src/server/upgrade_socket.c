/* Opening handshakes on sockets that somebody else accepted. */
#include "server/upgrade.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <tws/openssl.h>

static tws_err refuse_input(int fd, tws_err err, const char *what, tws_error *error)
{
    if (fd >= 0)
        close(fd);
    if (error) {
        memset(error, 0, sizeof *error);
        error->code = err;
        error->phase = TWS_PHASE_HANDSHAKE;
        error->cause = TWS_CAUSE_LOCAL;
        snprintf(error->text, sizeof error->text, "%s%s%s", tws_err_text(err), what ? ": " : "",
                 what ? what : "");
    }
    return err;
}

/* in: what is known; fd, bytes, SSL. */
static tws_err upgrade(tws_conn **out, struct upgrade_input *in, const tws_upgrade_options *opt,
                       tws_error *error)
{
    struct upgrade_config *cfg = NULL;
    const char *what = NULL;
    tws_error local;
    tws_err err;

    *out = NULL;
    if (in->fd < 0 || (!in->buffered && in->buffered_len > 0))
        return refuse_input(in->fd, TWS_ERR_ARGUMENT, "descriptor or buffer", error);
    err = upgrade_config_new(&cfg, opt, false, &what);
    if (err)
        return refuse_input(in->fd, err, what, error);
    net_peer_of(&in->peer, in->fd);
    in->block = base_pool_get(&cfg->env->blocks);
    if (!in->block) {
        upgrade_config_free(cfg);
        return refuse_input(in->fd, TWS_ERR_MEMORY, NULL, error);
    }
    upgrade_run(cfg, in, out, error ? error : &local);
    err = error ? error->code : local.code;
    upgrade_config_free(cfg);
    return err;
}

tws_err tws_upgrade(tws_conn **out, int fd, const void *buffered, size_t buffered_len,
                    const tws_upgrade_options *opt, tws_error *error)
{
    struct upgrade_input in = {.fd = fd, .buffered = buffered, .buffered_len = buffered_len};

    return upgrade(out, &in, opt, error);
}

tws_err tws_upgrade_ssl(tws_conn **out, SSL *ssl, int fd, const void *buffered, size_t buffered_len,
                        const tws_upgrade_options *opt, tws_error *error)
{
    struct upgrade_input in = {
        .fd = fd, .ssl = ssl, .buffered = buffered, .buffered_len = buffered_len};
    tws_err err;

    *out = NULL;
    if (!ssl)
        return refuse_input(fd, TWS_ERR_ARGUMENT, "no SSL", error);
    if (!SSL_is_init_finished(ssl) || !SSL_is_server(ssl))
        err =
            refuse_input(fd, TWS_ERR_STATE, "the TLS handshake is not done, or a client's", error);
    else
        err = upgrade(out, &in, opt, error);
    SSL_free(ssl); /* the connection has a reference of its own */
    return err;
}
