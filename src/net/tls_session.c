/* Sessions that a client may resume, by the name that was verified when they began. Kept as bytes, so
 * that no object of OpenSSL is shared by threads. */
#include "net/tls_context.h"

#include "base/alloc.h"

#include <string.h>

void tls_sessions_init(struct tls_sessions *t)
{
    memset(t, 0, sizeof *t);
    pthread_mutex_init(&t->mu, NULL);
}

/* There are keys in it. */
static void slot_clear(struct tls_session *s, const tws_allocator *a)
{
    if (s->data)
        OPENSSL_cleanse(s->data, s->len);
    base_free(a, s->data);
    base_free(a, s->name);
    memset(s, 0, sizeof *s);
}

void tls_sessions_clear(struct tls_sessions *t, const tws_allocator *a)
{
    for (size_t i = 0; i < TLS_SESSIONS; i++)
        slot_clear(&t->slots[i], a);
    pthread_mutex_destroy(&t->mu);
}

static struct tls_session *find_locked(struct tls_sessions *t, const char *name)
{
    for (size_t i = 0; i < TLS_SESSIONS; i++)
        if (t->slots[i].name && strcmp(t->slots[i].name, name) == 0)
            return &t->slots[i];
    return NULL;
}

static struct tls_session *oldest_locked(struct tls_sessions *t)
{
    struct tls_session *oldest = &t->slots[0];

    for (size_t i = 1; i < TLS_SESSIONS; i++)
        if (t->slots[i].stamp < oldest->stamp)
            oldest = &t->slots[i];
    return oldest;
}

void tls_sessions_put(struct tls_sessions *t, const tws_allocator *a, const char *name,
                      SSL_SESSION *session)
{
    int len = i2d_SSL_SESSION(session, NULL);
    struct tls_session fresh = {.name = base_strdup(a, name),
                                .data = len > 0 ? base_alloc(a, (size_t)len) : NULL,
                                .len = len > 0 ? (size_t)len : 0};
    struct tls_session *slot;
    unsigned char *at = fresh.data;

    if (!fresh.name || !fresh.data || i2d_SSL_SESSION(session, &at) != len) {
        slot_clear(&fresh, a); /* no memory: the next handshake is a whole one, then */
        return;
    }
    /* Used twice, a ticket of TLS 1.3 would let an observer tie two connections together. */
    fresh.once = SSL_SESSION_get_protocol_version(session) >= TLS1_3_VERSION;
    pthread_mutex_lock(&t->mu);
    slot = find_locked(t, name);
    if (!slot)
        slot = oldest_locked(t);
    slot_clear(slot, a);
    *slot = fresh;
    slot->stamp = ++t->stamp;
    pthread_mutex_unlock(&t->mu);
}

SSL_SESSION *tls_sessions_take(struct tls_sessions *t, const tws_allocator *a, const char *name)
{
    SSL_SESSION *session = NULL;
    struct tls_session *slot;

    pthread_mutex_lock(&t->mu);
    slot = find_locked(t, name);
    if (slot) {
        const unsigned char *at = slot->data;

        session = d2i_SSL_SESSION(NULL, &at, (long)slot->len);
        if (slot->once)
            slot_clear(slot, a);
    }
    pthread_mutex_unlock(&t->mu);
    return session;
}
