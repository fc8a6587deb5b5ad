/* The thread that speaks to the broker: subscriptions, beats, and what has been queued. */
#include "base/clock.h"
#include "cluster/cluster.h"

#include <string.h>

/* Beats without a word until a node counts as silent, and until it is forgotten. */
#define SILENT_BEATS 3
#define FORGET_BEATS 20
/* Beats that a room without members is known on after something was published to it. */
#define KEEP_BEATS 3
/* Of one room at most: a broker that comes and goes would have them pile up. */
#define BEATS_QUEUED 2
/* Rooms that are looked at under one hold of the lock. */
#define SWEEP_STEP 256
#define SUBSCRIBE_AGAIN_NS BASE_NS_PER_S

/* ---- Subscriptions ---- */

/* Two rooms with the same hash have one subject, and so one subscription of the broker's. */
static struct cluster_room *twin_locked(tws_cluster *c, const struct cluster_room *r)
{
    struct base_node *n = base_table_first(&c->rooms, r->node.hash);

    for (; n; n = base_table_next(n)) {
        struct cluster_room *other = (struct cluster_room *)(void *)n;

        if (other != r && other->subscribed && strcmp(other->subject, r->subject) == 0)
            return other;
    }
    return NULL;
}

/* The broker's function, without the lock. */
static tws_err ask_broker_locked(tws_cluster *c, struct cluster_room *r, bool subscribe)
{
    tws_err err = TWS_OK;

    if (twin_locked(c, r))
        return TWS_OK;
    r->users++;
    pthread_mutex_unlock(&c->mu);
    if (subscribe)
        err = c->broker.subscribe(c->broker.state, r->subject);
    else
        c->broker.unsubscribe(c->broker.state, r->subject);
    pthread_mutex_lock(&c->mu);
    r->users--;
    return err;
}

static void subscribe_locked(tws_cluster *c, struct cluster_room *r)
{
    if (!c->up)
        return; /* once it is, all that are missing are made */
    if (ask_broker_locked(c, r, true) != TWS_OK) {
        cluster_todo_locked(c, r, SUBSCRIBE_AGAIN_NS);
        return;
    }
    r->subscribed = true;
    c->stats.subscriptions++;
    c->stats.subscribed++;
    r->since = base_clock_ns();
    r->ask = true;
    r->beat_at = 0;
}

static void unsubscribe_locked(tws_cluster *c, struct cluster_room *r)
{
    r->subscribed = r->shaky = r->ask = false;
    r->since = 0;
    c->stats.subscriptions--;
    c->stats.unsubscribed++;
    cluster_room_forget_peers_locked(c, r);
    ask_broker_locked(c, r, false);
}

/* ---- Beats ---- */

/* Somebody may count on this node's word there. */
static bool speaks(const struct cluster_room *r)
{
    return cluster_room_wanted(r) || r->told_members > 0 || r->seq > 0 || r->ask;
}

static void beat_locked(tws_cluster *c, struct cluster_room *r, int64_t now)
{
    if (!c->up) {
        r->beat_at = now + c->beat_ns; /* the moment it is up, all are told */
        return;
    }
    if (r->beats >= BEATS_QUEUED) {
        r->beat_at = now + c->tick_ns; /* nothing leaves: those would only grow more */
        return;
    }
    cluster_queue_beat_locked(c, r, r->ask ? CLUSTER_ASK : 0);
    r->ask = r->answer = false;
    r->told_members = r->members;
    r->told_seq = r->seq;
    r->beat_at = now + c->beat_ns - cluster_random_locked(c, c->beat_ns / 8 + 1);
}

static bool beat_is_due(const struct cluster_room *r, int64_t now)
{
    return speaks(r) && (now >= r->beat_at || r->answer || r->told_members != r->members);
}

/* ---- One room ---- */

struct silence {
    uint8_t origin[CLUSTER_ORIGIN];
};

/* One peer that has fallen silent; the next look finds the next one. */
static bool find_silent_locked(tws_cluster *c, struct cluster_room *r, int64_t now,
                               struct silence *out)
{
    struct cluster_peer **at = &r->peers;

    while (*at) {
        struct cluster_peer *p = *at;

        if (now - p->heard > FORGET_BEATS * p->beat_ns) {
            *at = p->next;
            r->peer_count--;
            base_free(c->opt.allocator, p);
            continue;
        }
        if (!p->silent && now - p->heard > SILENT_BEATS * p->beat_ns) {
            p->silent = true;
            p->members = 0;
            memcpy(out->origin, p->origin, sizeof out->origin);
            return true;
        }
        at = &p->next;
    }
    return false;
}

static void look_for_silent_locked(tws_cluster *c, struct cluster_room *r, int64_t now)
{
    struct silence s;

    while (c->up && r->subscribed && find_silent_locked(c, r, now, &s)) {
        if (!cluster_room_wanted(r))
            continue;
        r->users++;
        pthread_mutex_unlock(&c->mu);
        cluster_tell_gap(c, r, s.origin, 0, TWS_GAP_SILENT);
        pthread_mutex_lock(&c->mu);
        r->users--;
    }
}

static bool has_lingered(const tws_cluster *c, const struct cluster_room *r, int64_t now)
{
    if (c->opt.linger == TWS_NOWAIT)
        return true;
    return c->opt.linger > 0 && now - r->empty >= c->opt.linger * BASE_NS_PER_MS;
}

/* May free the room. */
static void visit_locked(tws_cluster *c, struct cluster_room *r, int64_t now)
{
    if (cluster_room_wanted(r) && !r->subscribed)
        subscribe_locked(c, r);
    if (r->since > 0 && now - r->since > CLUSTER_SETTLED_BEATS * c->beat_ns)
        r->shaky = false;
    if (beat_is_due(r, now))
        beat_locked(c, r, now);
    look_for_silent_locked(c, r, now);
    if (cluster_room_wanted(r))
        return;
    if (r->subscribed && has_lingered(c, r, now))
        unsubscribe_locked(c, r);
    if (r->subscribed || cluster_room_wanted(r) || r->users > 0 || r->todo ||
        now - r->spoke < KEEP_BEATS * c->beat_ns)
        return;
    if (speaks(r)) {
        if (!c->up)
            return; /* it has something to tell yet */
        cluster_queue_beat_locked(c, r, CLUSTER_GONE);
        r->seq = 0; /* nothing more to tell: the room goes when this beat has left */
        r->told_members = 0;
        r->stream = ++c->streams;
    } else {
        cluster_room_free_locked(c, r);
    }
}

/* ---- All rooms ---- */

static void do_todo_locked(tws_cluster *c)
{
    struct cluster_room *list = c->todo;

    c->todo = NULL;
    c->todo_at = INT64_MAX;
    while (list) {
        struct cluster_room *r = list;

        list = r->todo_next;
        r->todo = false;
        visit_locked(c, r, base_clock_ns());
    }
}

/* A new connection of a broker that has forgotten the subscriptions. Peers and their numbers stay, so
 * that what is missing shows. */
static void went_void_locked(tws_cluster *c, struct cluster_room *r, int64_t now)
{
    (void)now;
    if (!r->subscribed)
        return;
    r->subscribed = false;
    c->stats.subscriptions--;
    c->stats.subscribed--;
}

/* The connection has been made: every room is told, spread over a moment. */
static void came_up_locked(tws_cluster *c, struct cluster_room *r, int64_t now)
{
    if (r->since > 0)
        r->shaky = true;
    if (cluster_room_wanted(r) && !r->subscribed)
        subscribe_locked(c, r);
    if (!r->subscribed)
        cluster_room_forget_peers_locked(c, r);
    r->since = r->subscribed ? now : 0;
    r->ask = r->subscribed;
    for (struct cluster_peer *p = r->peers; p; p = p->next)
        p->heard = now;
    if (speaks(r))
        r->beat_at = now + cluster_random_locked(c, c->beat_ns / 4);
}

static void sweep_locked(tws_cluster *c,
                         void (*visit)(tws_cluster *, struct cluster_room *, int64_t))
{
    size_t left = c->rooms.count;
    int64_t now = base_clock_ns();

    for (size_t n = 1; left > 0 && c->first; left--, n++) {
        struct cluster_room *r = c->first;

        /* To the end of the list, so that others may come and go meanwhile. */
        cluster_room_unlink_locked(c, r);
        cluster_room_link_locked(c, r);
        visit(c, r, now);
        if (n % SWEEP_STEP == 0) {
            pthread_mutex_unlock(&c->mu);
            pthread_mutex_lock(&c->mu);
        }
    }
    c->sweep_at = base_clock_ns() + c->tick_ns;
}

static void count_all(tws_cluster *c)
{
    size_t members = tws_hub_count(c->hub, NULL);

    pthread_mutex_lock(&c->mu);
    c->all->members = members;
    pthread_mutex_unlock(&c->mu);
}

/* ---- The thread ---- */

static void farewell_locked(tws_cluster *c, struct cluster_room *r, int64_t now)
{
    (void)now;
    if (c->up && speaks(r))
        cluster_queue_beat_locked(c, r, CLUSTER_GONE);
}

/* Not before. */
static int64_t send_at_locked(const tws_cluster *c)
{
    return c->hold_until > c->retry_at && !c->ending ? c->hold_until : c->retry_at;
}

/* True: there is more to do at once. */
static bool work_locked(tws_cluster *c)
{
    int64_t now = base_clock_ns();

    if (c->came) {
        bool forgot = c->forgot;

        c->came = c->forgot = false;
        if (forgot)
            sweep_locked(c, went_void_locked);
        sweep_locked(c, came_up_locked);
    }
    if (!c->ending && now >= c->todo_at)
        do_todo_locked(c);
    if (!c->ending && now >= c->sweep_at) {
        pthread_mutex_unlock(&c->mu);
        count_all(c);
        pthread_mutex_lock(&c->mu);
        sweep_locked(c, visit_locked);
    }
    if (!c->head || !c->up || now < send_at_locked(c))
        return false;
    cluster_send_locked(c);
    return true;
}

static void rest_locked(tws_cluster *c)
{
    int64_t until = c->sweep_at < c->todo_at ? c->sweep_at : c->todo_at;

    if (c->head && c->up && send_at_locked(c) < until)
        until = send_at_locked(c);
    if (c->ending && c->end_at < until)
        until = c->end_at;
    while (!c->woken && task_queue_wait(&c->wake, &c->mu, until) == 0)
        ;
    c->woken = false;
}

void cluster_service(void *arg)
{
    tws_cluster *c = arg;
    bool said = false;

    pthread_mutex_lock(&c->mu);
    c->service_self = task_self();
    for (;;) {
        bool more = work_locked(c);

        if (c->ending && !said) {
            said = true;
            c->sweep_at = c->todo_at = INT64_MAX;
            sweep_locked(c, farewell_locked);
            c->sweep_at = INT64_MAX;
            continue;
        }
        if (c->ending && (!c->head || base_clock_ns() >= c->end_at))
            break;
        if (!more)
            rest_locked(c);
    }
    pthread_mutex_unlock(&c->mu);
}
