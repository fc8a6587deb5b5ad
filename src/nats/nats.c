/*
 * NATS. Uses only what every program may: the public headers, and libnats.
 *
 * One thread of our own connects, for the first time and again when libnats has given up, which it does
 * when a server refuses its credentials twice. Everything else libnats does: it reconnects, and makes
 * the subscriptions again.
 */
#include <tws/nats.h>
#include <tws/thread.h>

#include "nats/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 1024
/* What stop() grants to bytes that libnats still holds. */
#define FLUSH_MS 1000

struct subscription {
    struct subscription *next;
    struct nats *broker;
    natsSubscription *sub;
    bool listed; /* in its bucket */
    char subject[];
};

struct nats {
    tws_mutex *mu;
    tws_cond *changed;
    tws_group *group;
    natsOptions *opts;
    tws_nats_options own; /* times only */
    tws_cluster *cluster;
    natsConnection *nc;                    /* mu; used by the cluster's service without */
    bool up, stop, closed;                 /* mu; closed: libnats has given up, or been told to */
    bool publishing;                       /* mu: the service is inside libnats with nc */
    bool telling;                          /* mu: the first that the cluster hears of nc */
    size_t subs;                           /* mu: that exist, also those that libnats still ends */
    uint64_t dropped, errors;              /* mu; dropped: of subscriptions that are gone */
    struct subscription *buckets[BUCKETS]; /* mu */
    unsigned seed;                         /* of the random share; the delay's thread only */
};

static void lock(struct nats *n)
{
    tws_mutex_lock(n->mu, TWS_NO_LIMIT);
}

static void unlock(struct nats *n)
{
    tws_mutex_unlock(n->mu);
}

/* ---- Subscriptions ---- */

static struct subscription **bucket_of(struct nats *n, const char *subject)
{
    uint32_t h = 2166136261u;

    for (; *subject; subject++)
        h = (h ^ (uint8_t)*subject) * 16777619u;
    return &n->buckets[h % BUCKETS];
}

static struct subscription **find_locked(struct nats *n, const char *subject)
{
    struct subscription **at = bucket_of(n, subject);

    while (*at && strcmp((*at)->subject, subject) != 0)
        at = &(*at)->next;
    return at;
}

static void on_message(natsConnection *nc, natsSubscription *sub, natsMsg *msg, void *closure)
{
    const struct subscription *s = closure;

    (void)nc;
    (void)sub;
    tws_broker_received(s->broker->cluster, s->subject, natsMsg_GetData(msg),
                        (size_t)natsMsg_GetDataLength(msg));
    natsMsg_Destroy(msg);
}

/* The last that libnats does with a subscription. */
static void on_complete(void *closure)
{
    struct subscription *s = closure;
    struct nats *n = s->broker;

    lock(n);
    if (s->listed) {
        struct subscription **at = find_locked(n, s->subject);

        *at = s->next;
    }
    natsSubscription_Destroy(s->sub);
    free(s);
    n->subs--;
    tws_cond_broadcast(n->changed);
    unlock(n);
}

static tws_err subscribe_locked(struct nats *n, const char *subject)
{
    struct subscription **at = find_locked(n, subject), *s;
    size_t len = strlen(subject) + 1;

    if (*at)
        return TWS_OK;
    if (!n->nc || n->closed)
        return TWS_ERR_CLOSED;
    s = calloc(1, sizeof *s + len);
    if (!s)
        return TWS_ERR_MEMORY;
    memcpy(s->subject, subject, len);
    s->broker = n;
    if (natsConnection_Subscribe(&s->sub, n->nc, subject, on_message, s) != NATS_OK) {
        free(s);
        return TWS_ERR_NETWORK;
    }
    natsSubscription_SetPendingLimits(s->sub, (int)n->own.max_pending,
                                      (int)n->own.max_pending_bytes);
    if (natsSubscription_SetOnCompleteCB(s->sub, on_complete, s) != NATS_OK) {
        /* It has ended already; a message may still be at work with s, which stays for that. */
        natsSubscription_Destroy(s->sub);
        return TWS_ERR_NETWORK;
    }
    n->subs++;
    s->listed = true;
    s->next = *at;
    *at = s;
    return TWS_OK;
}

static tws_err nats_subscribe(void *state, const char *subject)
{
    struct nats *n = state;
    tws_err err;

    lock(n);
    err = subscribe_locked(n, subject);
    unlock(n);
    return err;
}

static uint64_t dropped_by(const struct subscription *s)
{
    int64_t dropped = 0;

    return natsSubscription_GetDropped(s->sub, &dropped) == NATS_OK && dropped > 0
               ? (uint64_t)dropped
               : 0;
}

static void nats_unsubscribe(void *state, const char *subject)
{
    struct nats *n = state;
    struct subscription **at, *s;

    lock(n);
    at = find_locked(n, subject);
    s = *at;
    if (s) {
        *at = s->next;
        s->listed = false;
        n->dropped += dropped_by(s);
        natsSubscription_Unsubscribe(s->sub);
    }
    unlock(n);
}

/* ---- The connection ---- */

/* The server's URL without who this is: it goes into logs. */
static const char *where(natsConnection *nc, char *buf, size_t size)
{
    char *host, *at;

    if (natsConnection_GetConnectedUrl(nc, buf, size) != NATS_OK) {
        snprintf(buf, size, "a NATS server");
        return buf;
    }
    host = strstr(buf, "://");
    host = host ? host + 3 : buf;
    at = strrchr(host, '@');
    if (at)
        memmove(host, at + 1, strlen(at + 1) + 1);
    return buf;
}

/* libnats's thread for such calls makes them one after the other. */
static void on_disconnected(natsConnection *nc, void *closure)
{
    struct nats *n = closure;
    const char *why = NULL;
    bool tell;

    natsConnection_GetLastError(nc, &why);
    lock(n);
    while (n->telling)
        tws_cond_wait(n->changed, n->mu, TWS_NO_LIMIT);
    tell = n->up;
    n->up = false;
    unlock(n);
    if (tell)
        tws_broker_down(n->cluster, why && *why ? why : "the connection was lost");
}

static void on_reconnected(natsConnection *nc, void *closure)
{
    struct nats *n = closure;
    char url[256];
    bool tell;

    lock(n);
    tell = !n->stop;
    n->up = tell;
    unlock(n);
    if (tell)
        tws_broker_up(n->cluster, true, where(nc, url, sizeof url));
}

static void on_closed(natsConnection *nc, void *closure)
{
    struct nats *n = closure;

    on_disconnected(nc, closure);
    lock(n);
    n->closed = true;
    tws_cond_broadcast(n->changed);
    unlock(n);
}

static void on_error(natsConnection *nc, natsSubscription *sub, natsStatus err, void *closure)
{
    struct nats *n = closure;

    (void)nc;
    (void)sub;
    lock(n);
    n->errors += err != NATS_SLOW_CONSUMER; /* those count as dropped */
    unlock(n);
}

static int64_t delay_of(struct nats *n, unsigned attempts)
{
    int64_t delay = n->own.retry_first;

    while (attempts-- > 0 && delay < n->own.retry_most)
        delay *= 2;
    if (delay > n->own.retry_most)
        delay = n->own.retry_most;
    n->seed = n->seed * 1103515245u + 12345u;
    delay = delay / 2 + (int64_t)(n->seed >> 16) % (delay / 2 + 1);
    return delay > 0 ? delay : 1;
}

static int64_t on_delay(natsConnection *nc, int attempts, void *closure)
{
    (void)nc;
    return delay_of(closure, attempts > 0 ? (unsigned)attempts - 1 : 0);
}

/* mu is held, and let go while it connects. */
static void connect_locked(struct nats *n)
{
    natsConnection *nc = NULL;
    const char *why = NULL;
    char url[256];
    natsStatus s;
    bool stop;

    n->closed = false;
    unlock(n);
    s = natsConnection_Connect(&nc, n->opts);
    if (s != NATS_OK) {
        why = nats_GetLastError(NULL);
        tws_broker_down(n->cluster, why && *why ? why : natsStatus_GetText(s));
        lock(n);
        return;
    }
    where(nc, url, sizeof url);
    lock(n);
    n->nc = nc;
    n->up = !n->closed;
    stop = n->stop || n->closed;
    if (stop)
        return;
    n->telling = true;
    unlock(n);
    tws_broker_up(n->cluster, false, url);
    lock(n);
    n->telling = false;
    tws_cond_broadcast(n->changed);
}

/* Until libnats has ended all that it had to do with the connection. */
static void disconnect_locked(struct nats *n)
{
    natsConnection *nc = n->nc;

    while (!n->closed)
        tws_cond_wait(n->changed, n->mu, TWS_NO_LIMIT);
    while (n->subs > 0 || n->publishing)
        tws_cond_wait(n->changed, n->mu, TWS_NO_LIMIT);
    n->nc = NULL;
    n->closed = false;
    unlock(n);
    natsConnection_Destroy(nc);
    lock(n);
}

static void supervise(void *arg)
{
    struct nats *n = arg;

    lock(n);
    for (unsigned failed = 0; !n->stop; failed++) {
        connect_locked(n);
        if (n->nc) {
            failed = 0;
            while (!n->closed && !n->stop)
                tws_cond_wait(n->changed, n->mu, TWS_NO_LIMIT);
            if (n->stop)
                break;
            disconnect_locked(n);
        }
        if (!n->stop)
            tws_cond_wait(n->changed, n->mu, delay_of(n, failed));
    }
    unlock(n);
}

/* ---- The table ---- */

static tws_err nats_start(void *state, tws_cluster *c, tws_error *error)
{
    struct nats *n = state;

    (void)error;
    n->cluster = c;
    n->seed = (unsigned)(uintptr_t)c ^ (unsigned)nats_NowInNanoSeconds();
    return tws_group_spawn(n->group, supervise, n) == TWS_OK ? TWS_OK : TWS_ERR_SYSTEM;
}

static void nats_stop(void *state)
{
    struct nats *n = state;
    natsConnection *nc;
    bool up;

    lock(n);
    n->stop = true;
    tws_cond_broadcast(n->changed);
    unlock(n);
    tws_group_wait(n->group, TWS_NO_LIMIT);
    lock(n);
    nc = n->nc;
    up = n->up;
    unlock(n);
    if (!nc)
        return;
    if (up)
        natsConnection_FlushTimeout(nc, FLUSH_MS);
    natsConnection_Close(nc);
    lock(n);
    disconnect_locked(n);
    unlock(n);
}

static tws_err judge(natsStatus s)
{
    switch (s) {
    case NATS_OK:
    case NATS_TIMEOUT: /* a part may have gone: not to be sent again */
    case NATS_IO_ERROR:
        return TWS_OK;
    case NATS_MAX_PAYLOAD:
        return TWS_ERR_MESSAGE_SIZE;
    case NATS_CONNECTION_CLOSED:
    case NATS_CONNECTION_DISCONNECTED:
    case NATS_INSUFFICIENT_BUFFER:
        return TWS_ERR_CLOSED;
    case NATS_NO_MEMORY:
        return TWS_ERR_MEMORY;
    default:
        return TWS_ERR_NETWORK;
    }
}

static tws_err nats_publish(void *state, const char *subject, const void *data, size_t len,
                            tws_ms ms)
{
    struct nats *n = state;
    natsConnection *nc;
    natsStatus s;

    (void)ms; /* write_timeout bounds it */
    if (len > INT32_MAX)
        return TWS_ERR_MESSAGE_SIZE;
    lock(n);
    nc = n->up ? n->nc : NULL;
    n->publishing = nc;
    unlock(n);
    if (!nc)
        return TWS_ERR_CLOSED;
    s = natsConnection_Publish(nc, subject, data, (int)len);
    lock(n);
    n->publishing = false;
    if (n->closed)
        tws_cond_broadcast(n->changed);
    unlock(n);
    return judge(s);
}

static void nats_look(void *state, tws_broker_stats *out)
{
    struct nats *n = state;
    int messages, bytes;

    lock(n);
    if (n->nc && (bytes = natsConnection_Buffered(n->nc)) > 0)
        out->pending_bytes = (uint64_t)bytes;
    out->dropped = n->dropped;
    out->errors = n->errors;
    for (size_t i = 0; i < BUCKETS; i++) {
        for (const struct subscription *s = n->buckets[i]; s; s = s->next) {
            if (natsSubscription_GetPending(s->sub, &messages, &bytes) == NATS_OK && messages > 0)
                out->pending_in += (uint64_t)messages;
            out->dropped += dropped_by(s);
        }
    }
    unlock(n);
}

static void nats_release(void *state)
{
    struct nats *n = state;

    tws_group_free(n->group);
    tws_cond_free(n->changed);
    tws_mutex_free(n->mu);
    natsOptions_Destroy(n->opts);
    free(n);
}

static natsStatus set_callbacks(struct nats *n)
{
    natsStatus s = natsOptions_SetDisconnectedCB(n->opts, on_disconnected, n);

    if (s == NATS_OK)
        s = natsOptions_SetReconnectedCB(n->opts, on_reconnected, n);
    if (s == NATS_OK)
        s = natsOptions_SetClosedCB(n->opts, on_closed, n);
    if (s == NATS_OK)
        s = natsOptions_SetErrorHandler(n->opts, on_error, n);
    if (s == NATS_OK)
        s = natsOptions_SetCustomReconnectDelay(n->opts, on_delay, n);
    return s;
}

tws_err tws_nats_open(tws_broker *out, const tws_nats_options *opt, tws_error *error)
{
    struct nats *n = calloc(1, sizeof *n);
    tws_group_options group;
    tws_err err = TWS_ERR_MEMORY;

    tws_broker_init(out);
    if (!n)
        return nats_options_error(error, err, "no memory");
    tws_group_options_init(&group);
    n->mu = tws_mutex_new();
    n->changed = tws_cond_new();
    if (n->mu && n->changed && tws_group_new(&n->group, &group) == TWS_OK)
        err = nats_options_make(&n->opts, &n->own, opt, error);
    else
        nats_options_error(error, err, "no memory");
    if (!err && set_callbacks(n) != NATS_OK)
        err = nats_options_error(error, TWS_ERR_MEMORY, "no memory");
    if (err) {
        nats_release(n);
        return err;
    }
    out->name = "nats";
    out->state = n;
    out->start = nats_start;
    out->stop = nats_stop;
    out->subscribe = nats_subscribe;
    out->unsubscribe = nats_unsubscribe;
    out->publish = nats_publish;
    out->look = nats_look;
    out->release = nats_release;
    return TWS_OK;
}
