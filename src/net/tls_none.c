/*
 * In place of all other tls_*.c in a build without TLS (make TLS=0).
 *
 * Nobody gets a tws_tls here, so that no stream is ever TLS: what asks about one has no answer.
 */
#include "net/tls.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char no_tls[] = "this build has no TLS";

struct ssl_ctx_st;

/* As <tws/openssl.h> declares it, which needs OpenSSL's headers. */
TWS_API tws_err tws_tls_from_ctx(tws_tls **out, struct ssl_ctx_st *ctx, bool server);

static tws_err unsupported(tws_error *e)
{
    if (e) {
        memset(e, 0, sizeof *e);
        e->code = TWS_ERR_UNSUPPORTED;
        e->phase = TWS_PHASE_TLS;
        e->cause = TWS_CAUSE_LOCAL;
        snprintf(e->text, sizeof e->text, "%s", no_tls);
    }
    return TWS_ERR_UNSUPPORTED;
}

tws_err tws_tls_server_new(tws_tls **out, const tws_tls_server_options *opt, tws_error *error)
{
    (void)opt;
    *out = NULL;
    return unsupported(error);
}

tws_err tws_tls_client_new(tws_tls **out, const tws_tls_client_options *opt, tws_error *error)
{
    (void)opt;
    *out = NULL;
    return unsupported(error);
}

tws_err tws_tls_from_ctx(tws_tls **out, struct ssl_ctx_st *ctx, bool server)
{
    (void)ctx, (void)server;
    *out = NULL;
    return TWS_ERR_UNSUPPORTED;
}

tws_err tws_tls_reload(tws_tls *tls, tws_error *error)
{
    (void)tls;
    return unsupported(error);
}

tws_tls *tws_tls_ref(tws_tls *tls)
{
    return tls;
}

void tws_tls_unref(tws_tls *tls)
{
    (void)tls;
}

int net_tls_wrap(struct net_stream *st, const struct net_tls_params *p, int64_t deadline,
                 struct net_tls_error *err)
{
    (void)st, (void)p, (void)deadline;
    memset(err, 0, sizeof *err);
    snprintf(err->text, sizeof err->text, "%s", no_tls);
    return -EPROTO;
}

bool net_tls_readable(const struct net_stream *st)
{
    (void)st;
    return false;
}

tws_ms net_tls_pending(const struct net_stream *st)
{
    (void)st;
    return 0;
}

void net_tls_thread_trim(void)
{
}

void net_tls_agreed(struct net_stream *st, int *version, bool *resumed)
{
    (void)st;
    *version = 0;
    *resumed = false;
}

void net_tls_limit_updates(struct net_stream *st, uint32_t most)
{
    (void)st, (void)most;
}

uint32_t net_tls_updates(struct net_stream *st, uint64_t *got)
{
    (void)st;
    *got = 0;
    return 0;
}

void net_tls_describe(struct net_stream *st, tws_tls_info *out)
{
    (void)st;
    memset(out, 0, sizeof *out);
}

void net_tls_last_error(struct net_stream *st, struct net_tls_error *err)
{
    (void)st;
    memset(err, 0, sizeof *err);
}

bool net_tls_do(struct net_stream *st, void (*fn)(struct ssl_st *ssl, void *arg), void *arg)
{
    (void)st, (void)fn, (void)arg;
    return false;
}
