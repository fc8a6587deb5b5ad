/*
 * Messages of TLS itself after its handshake: key updates, each of which costs both sides fresh keys
 * and may ask for an answer, and attempts to renegotiate, which are refused. Nothing in TLS limits them.
 */
#include "net/tls_stream.h"

#include "base/clock.h"

#define UPDATES_NS (10 * BASE_NS_PER_S)
#define UPDATES_DEFAULT 64

static void count_locked(struct net_tls *t)
{
    int64_t now = base_clock_coarse_ns();

    if (now - t->updates_since >= UPDATES_NS) {
        t->updates_since = now;
        t->updates = 0;
    }
    t->updates++;
}

/* Called by OpenSSL whenever its state machine has moved; the lock is held. */
static void moved_locked(const SSL *ssl, int where, int value)
{
    OSSL_HANDSHAKE_STATE state = SSL_get_state(ssl);
    bool update =
        (where & SSL_CB_LOOP) && (state == TLS_ST_SR_KEY_UPDATE || state == TLS_ST_CR_KEY_UPDATE);
    /* A refused renegotiation leaves nothing but the warning it is answered with. */
    bool refused = where == SSL_CB_WRITE_ALERT && (value & 0xff) == SSL_AD_NO_RENEGOTIATION;

    if (update || refused)
        count_locked(tls_of(ssl));
}

void tls_updates_watch(struct net_tls *t)
{
    SSL_CTX *ctx = SSL_get_SSL_CTX(t->ssl);

    if (SSL_get_info_callback(t->ssl) || SSL_CTX_get_info_callback(ctx))
        return; /* the application's own */
    t->updates_max = UPDATES_DEFAULT;
    t->updates_since = base_clock_coarse_ns();
    SSL_set_info_callback(t->ssl, moved_locked);
}

void tls_updates_forget(struct net_tls *t)
{
    if (SSL_get_info_callback(t->ssl) == moved_locked)
        SSL_set_info_callback(t->ssl, NULL);
}

bool tls_updates_too_many_locked(const struct net_tls *t)
{
    return t->updates_max > 0 && t->updates > t->updates_max;
}

void net_tls_limit_updates(struct net_stream *st, uint32_t most)
{
    if (!st->tls)
        return;
    pthread_mutex_lock(&st->tls->mu);
    st->tls->updates_max = most;
    pthread_mutex_unlock(&st->tls->mu);
}

uint32_t net_tls_updates(struct net_stream *st, uint64_t *got)
{
    uint32_t most;

    pthread_mutex_lock(&st->tls->mu);
    *got = st->tls->updates;
    most = st->tls->updates_max;
    pthread_mutex_unlock(&st->tls->mu);
    return most;
}
