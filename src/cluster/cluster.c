/* A cluster's life, its state, and looking at it. */
#include "cluster/cluster.h"

#include "base/clock.h"
#include "base/random.h"
#include "base/sized.h"

#include <stdio.h>
#include <string.h>

#define BEAT_MIN 50
#define DEFAULT_PREFIX "tws"
/* Rooms are looked at so often, or eight times a beat. */
#define TICK_NS (250 * BASE_NS_PER_MS)
/* A changed count is told after so long, with what has changed by then. */
#define TELL_NS (100 * BASE_NS_PER_MS)

void tws_cluster_options_init_sized(tws_cluster_options *opt, size_t size)
{
    tws_cluster_options o;

    memset(&o, 0, sizeof o);
    o.size = size;
    o.prefix = DEFAULT_PREFIX;
    o.wait = TWS_NOWAIT;
    o.max_bytes = 16u << 20;
    o.max_messages = 65536;
    o.max_message = 1000000;
    o.beat = 5000;
    o.hold = 1000;
    o.linger = 2000;
    o.drain = 1000;
    base_sized_give(opt, size, &o, sizeof o);
}

void tws_broker_init_sized(tws_broker *b, size_t size)
{
    memset(b, 0, size);
    b->size = size;
}

/* ---- What the hub tells ---- */

/* The hub's mu is held. */
static bool members_changed(struct hub_watch *w, const struct hub_room *hr, void **mark,
                            size_t members)
{
    tws_cluster *c = (tws_cluster *)(void *)w;
    struct cluster_room *r;

    if (hr->name_len > CLUSTER_NAME_MAX)
        return true; /* stays a local room */
    pthread_mutex_lock(&c->mu);
    r = *mark;
    if (!r && members > 0)
        r = cluster_room_get_locked(c, hr->name, hr->name_len);
    if (r) {
        r->members = members;
        if (members == 0)
            r->empty = base_clock_ns();
        cluster_todo_locked(c, r, *mark ? TELL_NS : 0);
        *mark = r;
    }
    pthread_mutex_unlock(&c->mu);
    return r || members == 0;
}

/* ---- What the adapter tells ---- */

static void tell_state(tws_cluster *c, bool up, const char *text, bool news)
{
    base_logf(&c->log, up ? TWS_LOG_INFO : TWS_LOG_WARNING, "cluster: %s %s: %s", c->broker.name,
              up ? "connected" : "is away", text);
    if (news && c->opt.on_state)
        c->opt.on_state(up, text, c->opt.arg);
}

void tws_broker_up(tws_cluster *c, bool kept, const char *text)
{
    int64_t hold = c->opt.hold * BASE_NS_PER_MS, now = base_clock_ns();

    pthread_mutex_lock(&c->mu);
    c->up = c->came = c->told = true;
    c->forgot = c->forgot || !kept;
    if (c->stats.ups++ > 0 && c->opt.hold > 0 && (!kept || now - c->down_at >= hold / 2))
        c->hold_until = now + hold;
    cluster_wake_locked(c);
    pthread_mutex_unlock(&c->mu);
    tell_state(c, true, text, true);
}

void tws_broker_down(tws_cluster *c, const char *text)
{
    bool news;

    pthread_mutex_lock(&c->mu);
    news = c->up || !c->told;
    if (c->up) {
        c->stats.downs++;
        c->down_at = base_clock_ns();
    }
    c->up = false;
    c->told = true;
    task_queue_wake_all(&c->space);
    cluster_wake_locked(c);
    pthread_mutex_unlock(&c->mu);
    tell_state(c, false, text, news);
}

/* ---- Beginning and end ---- */

static bool options_valid(const tws_cluster_options *o)
{
    return o->prefix && cluster_prefix_valid(o->prefix) && o->wait >= TWS_NOWAIT &&
           o->beat >= BEAT_MIN && o->beat <= CLUSTER_BEAT_MS_MAX && o->linger >= TWS_NOWAIT &&
           (o->hold > 0 || o->hold == TWS_NOWAIT) && o->hold <= CLUSTER_BEAT_MS_MAX &&
           o->drain >= TWS_NOWAIT;
}

static bool broker_valid(const tws_broker *b)
{
    return b->name && b->start && b->stop && b->subscribe && b->unsubscribe && b->publish &&
           b->look && b->release;
}

static void destroy(tws_cluster *c)
{
    while (c->first)
        cluster_room_free_locked(c, c->first);
    base_table_destroy(&c->rooms);
    pthread_mutex_destroy(&c->mu);
    base_free(c->opt.allocator, c);
}

static tws_err make(tws_cluster **out, tws_hub *h, const tws_broker *b,
                    const tws_cluster_options *o)
{
    tws_cluster *c = base_calloc(o->allocator, sizeof *c);

    *out = NULL;
    if (!c)
        return TWS_ERR_MEMORY;
    c->watch.changed = members_changed;
    c->hub = h;
    c->broker = *b;
    c->opt = *o;
    memcpy(c->prefix, o->prefix, strlen(o->prefix));
    c->opt.prefix = c->prefix;
    c->hash_digits = CLUSTER_HASH_DIGITS;
    c->log = (struct base_log){o->log, o->log_arg};
    c->beat_ns = o->beat * BASE_NS_PER_MS;
    c->tick_ns = c->beat_ns / 8 < TICK_NS ? c->beat_ns / 8 : TICK_NS;
    c->todo_at = INT64_MAX;
    if (!base_table_init(&c->rooms, o->allocator)) {
        base_free(o->allocator, c);
        return TWS_ERR_MEMORY;
    }
    pthread_mutex_init(&c->mu, NULL);
    if (!base_random(c->origin, sizeof c->origin) || !base_random(&c->key, sizeof c->key) ||
        !base_random(&c->random, sizeof c->random)) {
        destroy(c);
        return TWS_ERR_SYSTEM;
    }
    c->random |= 1;
    c->all = cluster_room_get_locked(c, NULL, 0);
    if (!c->all) {
        destroy(c);
        return TWS_ERR_MEMORY;
    }
    *out = c;
    return TWS_OK;
}

static tws_err begin(tws_cluster *c, tws_error *error)
{
    tws_err err = hub_watch_begin(c->hub, &c->watch);

    if (err)
        return err;
    err = c->broker.start(c->broker.state, c, error);
    if (err)
        goto no_broker;
    if (task_service_start(&c->service, "tws-cluster", false, cluster_service, c) == 0)
        return TWS_OK;
    err = TWS_ERR_SYSTEM;
    c->broker.stop(c->broker.state);
no_broker:
    hub_watch_end(c->hub);
    return err;
}

static void put_error(tws_error *error, tws_err err)
{
    if (!error || error->code)
        return;
    error->code = err;
    error->cause = TWS_CAUSE_LOCAL;
    snprintf(error->text, sizeof error->text, "cluster: %s", tws_err_text(err));
}

tws_err tws_cluster_new(tws_cluster **out, tws_hub *h, const tws_broker *broker,
                        const tws_cluster_options *opt, tws_error *error)
{
    tws_cluster_options o;
    tws_cluster *c = NULL;
    tws_err err = TWS_ERR_ARGUMENT;
    tws_error unused;
    tws_broker b;

    *out = NULL;
    if (!error)
        error = &unused;
    memset(error, 0, sizeof *error);
    tws_cluster_options_init(&o);
    tws_broker_init(&b);
    if (opt && opt->size > 0)
        base_sized_take(&o, sizeof o, opt, opt->size);
    if (broker && broker->size > 0)
        base_sized_take(&b, sizeof b, broker, broker->size);
    if (h && (!opt || opt->size > 0) && options_valid(&o) && broker_valid(&b))
        err = make(&c, h, &b, &o);
    if (!err)
        err = begin(c, error);
    if (err) {
        put_error(error, err);
        if (c)
            destroy(c);
        if (b.release)
            b.release(b.state);
        return err;
    }
    *out = c;
    return TWS_OK;
}

/* Those that waited for room have been told that there will be none. */
static void await_calls(tws_cluster *c)
{
    pthread_mutex_lock(&c->mu);
    while (c->calls > 0)
        task_queue_wait(&c->space, &c->mu, TASK_FOREVER);
    pthread_mutex_unlock(&c->mu);
}

void tws_cluster_free(tws_cluster *c)
{
    if (!c)
        return;
    hub_watch_end(c->hub);
    pthread_mutex_lock(&c->mu);
    c->ending = true;
    c->end_at = c->opt.drain == TWS_NOWAIT ? TASK_NOW : task_deadline(c->opt.drain);
    cluster_wake_locked(c);
    task_queue_wake_all(&c->space);
    pthread_mutex_unlock(&c->mu);
    task_service_join(&c->service);
    c->broker.stop(c->broker.state);
    await_calls(c);
    cluster_queue_drop(c);
    c->broker.release(c->broker.state);
    destroy(c);
}

/* ---- Looking ---- */

tws_err tws_cluster_presence_sized(tws_cluster *c, const char *room, tws_presence *out, size_t size)
{
    struct cluster_room *r;
    int64_t now = base_clock_ns(), oldest = now;
    tws_presence p;
    bool knows;

    memset(&p, 0, sizeof p);
    p.here = tws_hub_count(c->hub, room);
    pthread_mutex_lock(&c->mu);
    r = cluster_room_find_locked(c, room, room ? strlen(room) : 0);
    knows = r && r->subscribed && cluster_room_wanted(r);
    for (const struct cluster_peer *q = knows ? r->peers : NULL; q; q = q->next) {
        if (q->silent || q->members == 0)
            continue;
        p.elsewhere +=
            q->members <= UINT64_MAX - p.elsewhere ? q->members : UINT64_MAX - p.elsewhere;
        p.nodes++;
        if (q->told < oldest)
            oldest = q->told;
    }
    pthread_mutex_unlock(&c->mu);
    p.oldest = (now - oldest) / BASE_NS_PER_MS;
    base_sized_give(out, size, &p, sizeof p);
    return knows ? TWS_OK : TWS_ERR_STATE;
}

void tws_cluster_stats_sized(tws_cluster *c, tws_cluster_stats *out, size_t size)
{
    tws_broker_stats b;
    tws_cluster_stats s;

    memset(&b, 0, sizeof b);
    c->broker.look(c->broker.state, &b);
    pthread_mutex_lock(&c->mu);
    s = c->stats;
    s.up = c->up;
    s.rooms = c->rooms.count - 1;
    pthread_mutex_unlock(&c->mu);
    s.broker_pending_bytes = b.pending_bytes;
    s.broker_pending_in = b.pending_in;
    s.broker_dropped = b.dropped;
    s.broker_errors = b.errors;
    base_sized_give(out, size, &s, sizeof s);
}
