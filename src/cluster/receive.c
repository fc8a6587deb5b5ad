/* What other nodes say: which of it is new, what is missing before it, and on to the members here. */
#include "base/clock.h"
#include "base/sized.h"
#include "cluster/cluster.h"

#include <stdio.h>
#include <string.h>

/* Whoever invents nodes takes memory, but not without end. */
#define PEERS_MAX 1024
/* Those who are asked answer within so long, each at a moment of its own. */
#define ANSWER_NS (100 * BASE_NS_PER_MS)

/* What became of a message's number. */
enum verdict { FRESH, STALE, IGNORED };

struct finding {
    enum verdict verdict;
    bool gap;
    uint64_t missed; /* with gap; 0: unknown */
};

static const struct finding stale = {.verdict = STALE};

/* ---- Gaps ---- */

static void put_origin(char *out, const uint8_t *origin)
{
    for (size_t i = 0; i < CLUSTER_ORIGIN; i++)
        snprintf(out + 2 * i, 3, "%02x", origin[i]);
}

void tws_cluster_origin(const tws_cluster *c, char *buf)
{
    put_origin(buf, c->origin);
}

void cluster_tell_gap(tws_cluster *c, const struct cluster_room *r, const uint8_t *origin,
                      uint64_t missed, tws_gap_cause cause)
{
    char name[TWS_ORIGIN_BYTES];
    tws_gap gap;

    put_origin(name, origin ? origin : c->origin);
    memset(&gap, 0, sizeof gap);
    gap.room = r->all ? NULL : r->name;
    gap.origin = name;
    gap.missed = missed;
    gap.cause = cause;
    pthread_mutex_lock(&c->mu);
    c->stats.gaps++;
    c->stats.missed += missed;
    pthread_mutex_unlock(&c->mu);
    if (c->opt.on_gap)
        c->opt.on_gap(&gap, c->opt.arg);
}

/* ---- Numbers ---- */

static struct cluster_peer *find_peer(const struct cluster_room *r, const uint8_t *origin)
{
    struct cluster_peer *p = r->peers;

    while (p && memcmp(p->origin, origin, CLUSTER_ORIGIN) != 0)
        p = p->next;
    return p;
}

static void drop_peer_locked(tws_cluster *c, struct cluster_room *r, struct cluster_peer *gone)
{
    struct cluster_peer **at = &r->peers;

    while (*at != gone)
        at = &(*at)->next;
    *at = gone->next;
    r->peer_count--;
    base_free(c->opt.allocator, gone);
}

/*
 * Of too many, one that is gone or silent, or has not been heard for the longest. What it says next
 * is judged as after a loss of the connection: nobody knows what is missing.
 */
static void make_place_locked(tws_cluster *c, struct cluster_room *r)
{
    struct cluster_peer *least = r->peers;

    if (!least)
        return;
    for (struct cluster_peer *p = least->next; p; p = p->next)
        if (p->silent == least->silent ? p->heard < least->heard : p->silent)
            least = p;
    if (!least->silent) {
        r->shaky = true;
        r->since = base_clock_ns();
    }
    drop_peer_locked(c, r, least);
}

static struct cluster_peer *add_peer_locked(tws_cluster *c, struct cluster_room *r,
                                            const uint8_t *origin)
{
    struct cluster_peer *p = base_calloc(c->opt.allocator, sizeof *p);

    if (!p)
        return NULL;
    if (r->peer_count >= PEERS_MAX)
        make_place_locked(c, r);
    memcpy(p->origin, origin, CLUSTER_ORIGIN);
    p->beat_ns = c->beat_ns;
    p->next = r->peers;
    r->peers = p;
    r->peer_count++;
    return p;
}

/*
 * A node that has not been heard in this room before. What it said until now is the past, unless this
 * node should have heard it: then it has been here for long enough, or has been cut off since.
 */
static struct finding judge_new(const tws_cluster *c, const struct cluster_room *r, uint64_t before)
{
    struct finding f = {.verdict = FRESH};
    bool settled = r->since > 0 && base_clock_ns() - r->since > CLUSTER_SETTLED_BEATS * c->beat_ns;

    f.gap = before > 0 && (settled || r->shaky);
    f.missed = r->shaky ? 0 : before;
    return f;
}

/* before: the number of the message before this one, all of which should have been seen. */
static struct finding judge(const struct cluster_room *r, const struct cluster_peer *p,
                            const struct cluster_message *m, uint64_t before)
{
    struct finding f = {.verdict = FRESH};

    if (m->stream < p->stream || (p->gone && m->stream == p->stream))
        return stale;
    if (p->gone) {
        f.gap = before > 0;
        f.missed = r->shaky ? 0 : before;
        return f;
    }
    if (m->stream > p->stream) {
        f.gap = true; /* it has forgotten the room since, and its farewell is missing */
        return f;
    }
    if (before < p->seq)
        return stale;
    f.gap = before > p->seq;
    f.missed = before - p->seq;
    return f;
}

static struct finding account_locked(tws_cluster *c, struct cluster_room *r,
                                     const struct cluster_message *m)
{
    struct cluster_peer *p = find_peer(r, m->origin);
    uint64_t before = m->kind == CLUSTER_DATA ? m->seq - 1 : m->seq;
    struct finding f = p ? judge(r, p, m, before) : judge_new(c, r, before);

    if (f.verdict == STALE)
        return f;
    if (!p)
        p = add_peer_locked(c, r, m->origin);
    if (!p) {
        f.verdict = IGNORED;
        f.gap = m->kind == CLUSTER_DATA; /* no memory */
        f.missed = 0;
        return f;
    }
    p->stream = m->stream;
    p->seq = m->seq;
    p->heard = base_clock_ns();
    p->silent = p->gone = false;
    if (m->kind == CLUSTER_BEAT) {
        p->members = m->members;
        p->told = p->heard;
        p->beat_ns = (int64_t)m->beat_ms * BASE_NS_PER_MS;
        /* Its numbers are kept for a while: what has come once may come again. */
        if (m->what & CLUSTER_GONE) {
            p->silent = p->gone = true;
            p->members = 0;
        }
    }
    return f;
}

/* ---- Receiving ---- */

/* The room that a message is for, kept; NULL: it is for nobody here. */
static struct cluster_room *address_locked(tws_cluster *c, const char *subject,
                                           const struct cluster_message *m)
{
    bool all = strcmp(subject, c->all->subject) == 0;
    struct cluster_room *r =
        cluster_room_find_locked(c, all ? NULL : m->name, all ? 0 : m->name_len);

    if (memcmp(m->origin, c->origin, CLUSTER_ORIGIN) == 0) {
        c->stats.echoes++;
        return NULL;
    }
    if (!r || !r->subscribed) {
        /* Another room's with the same hash, or one that was given up a moment ago. */
        c->stats.unwanted++;
        return NULL;
    }
    if (strcmp(r->subject, subject) != 0 || (all && m->name_len > 0)) {
        c->stats.foreign++; /* smuggled in under another room's subject */
        return NULL;
    }
    r->users++;
    return r;
}

/* True: the members are to have it. */
static bool take(tws_cluster *c, struct cluster_room *r, const struct cluster_message *m)
{
    struct finding f;
    bool deliver;

    pthread_mutex_lock(&c->mu);
    f = account_locked(c, r, m);
    deliver = f.verdict == FRESH && m->kind == CLUSTER_DATA && cluster_room_wanted(r);
    if (f.verdict == STALE)
        c->stats.stale++;
    else if (f.verdict == IGNORED)
        c->stats.foreign++;
    else if (m->kind == CLUSTER_BEAT && m->what & CLUSTER_ASK && !r->answer) {
        r->answer = true;
        cluster_todo_locked(c, r, cluster_random_locked(c, ANSWER_NS));
    } else if (m->kind == CLUSTER_DATA && !deliver) {
        c->stats.unwanted++;
    }
    if (deliver) {
        c->stats.received++;
        c->stats.received_bytes += m->len;
    }
    /* The others of a room without members here are nobody's loss. */
    f.gap = f.gap && cluster_room_wanted(r);
    pthread_mutex_unlock(&c->mu);
    if (f.gap)
        cluster_tell_gap(c, r, m->origin, f.missed, TWS_GAP_MISSED);
    return deliver;
}

static void count_foreign(tws_cluster *c)
{
    pthread_mutex_lock(&c->mu);
    c->stats.foreign++;
    pthread_mutex_unlock(&c->mu);
}

void tws_broker_received(tws_cluster *c, const char *subject, const void *data, size_t len)
{
    tws_prepared *p = NULL;
    struct cluster_message m;
    struct cluster_room *r;
    tws_err err = TWS_OK;

    if (!cluster_message_read(&m, data, len)) {
        count_foreign(c);
        return;
    }
    pthread_mutex_lock(&c->mu);
    r = address_locked(c, subject, &m);
    pthread_mutex_unlock(&c->mu);
    if (!r)
        return;
    /* Before its number is noted: without memory it is missing like any other that did not come. */
    if (m.kind == CLUSTER_DATA)
        err = tws_prepared_new(&p, (tws_opcode)m.what, m.data, m.len);
    if (err && err != TWS_ERR_MEMORY)
        count_foreign(c); /* text that is none */
    if (!err && take(c, r, &m))
        tws_hub_publish(c->hub, r->all ? NULL : r->name, p, NULL, NULL);
    tws_prepared_unref(p);
    pthread_mutex_lock(&c->mu);
    r->users--;
    pthread_mutex_unlock(&c->mu);
}
