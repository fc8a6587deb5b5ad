/* Handing messages to the members of a room, alone or with the hub's workers. */
#include "base/clock.h"
#include "hub/hub.h"

#include <string.h>

/* A worker that has had nothing to do for so long leaves. */
#define IDLE_NS BASE_NS_PER_S

/* ---- One member ---- */

static enum publish_outcome outcome_of(const struct conn_publish *put)
{
    if (put->err == TWS_OK)
        return put->direct ? OUT_SENT : OUT_QUEUED;
    return put->err == TWS_ERR_QUEUE_FULL ? OUT_DROPPED : OUT_FAILED;
}

static bool is_for(tws_conn *c, const struct room_publish *p)
{
    return c != p->except && (!p->filter || p->filter(c, p->arg));
}

/* ---- One thread's share ---- */

struct share {
    uint32_t counts[ROOM_BATCH][OUT_COUNT];
};

static void member_deliver(const struct hub_work *w, const struct room_slot *slot,
                           struct share *share)
{
    struct conn_publish puts[ROOM_BATCH];
    size_t which[ROOM_BATCH], n = 0;

    for (size_t k = 0; k < w->count; k++) {
        const struct room_publish *p = w->list[k];

        if (slot->since > p->seq)
            continue; /* it joined later */
        if (!is_for(slot->conn, p)) {
            share->counts[k][OUT_SKIPPED]++;
            continue;
        }
        puts[n] =
            (struct conn_publish){.prepared = p->prepared, .done = p->done, .arg = p->done_arg};
        which[n++] = k;
    }
    conn_publish(slot->conn, puts, n);
    for (size_t i = 0; i < n; i++)
        share->counts[which[i]][outcome_of(&puts[i])]++;
}

static void chunk_deliver(const struct hub_work *w, const struct room_slot *slots, size_t n,
                          struct share *share)
{
    for (size_t i = 0; i < n; i++) {
        member_deliver(w, &slots[i], share);
        conn_drop(slots[i].conn);
    }
}

static void work_on(struct hub_work *w, struct share *share)
{
    struct room_slot slots[ROOM_CHUNK];
    size_t n;

    while (room_copy(w->room, atomic_fetch_add(&w->cursor, 1), ROOM_KEEP, slots, &n)) {
        chunk_deliver(w, slots, n, share);
        task_yield();
    }
}

static void add_share_locked(const struct hub_work *w, const struct share *share)
{
    for (size_t k = 0; k < w->count; k++)
        for (size_t o = 0; o < OUT_COUNT; o++)
            w->list[k]->counts[o] += share->counts[k][o];
}

/* Threads that run filters are known while they do. */
static void filtering_begin(tws_hub *h, struct hub_filtering *f)
{
    f->thread = task_self();
    pthread_mutex_lock(&h->mu);
    f->next = h->filtering;
    f->link = &h->filtering;
    if (f->next)
        f->next->link = &f->next;
    h->filtering = f;
    pthread_mutex_unlock(&h->mu);
}

static void filtering_end(tws_hub *h, struct hub_filtering *f)
{
    pthread_mutex_lock(&h->mu);
    *f->link = f->next;
    if (f->next)
        f->next->link = f->link;
    pthread_mutex_unlock(&h->mu);
}

static void do_share(tws_hub *h, struct hub_work *w, struct share *share)
{
    struct hub_filtering f;
    bool filters = false;

    memset(share, 0, sizeof *share);
    for (size_t k = 0; k < w->count; k++)
        filters = filters || w->list[k]->filter;
    if (filters)
        filtering_begin(h, &f);
    work_on(w, share);
    if (filters)
        filtering_end(h, &f);
}

/* ---- Workers ---- */

static struct hub_work *next_work_locked(const struct hub_workers *ws)
{
    struct hub_work *w = ws->head;

    while (w && w->wanted == 0)
        w = w->next;
    return w;
}

static void help_locked(tws_hub *h, struct hub_work *w)
{
    struct hub_workers *ws = &h->workers;
    struct share share;

    w->wanted--;
    w->helpers++;
    w->helped = true;
    pthread_mutex_unlock(&ws->mu);
    do_share(h, w, &share);
    pthread_mutex_lock(&ws->mu);
    add_share_locked(w, &share);
    if (--w->helpers == 0)
        task_queue_wake_all(&w->done);
}

static void worker_main(void *arg)
{
    tws_hub *h = arg;
    struct hub_workers *ws = &h->workers;
    int r = 0;

    pthread_mutex_lock(&ws->mu);
    for (;;) {
        struct hub_work *w = next_work_locked(ws);

        if (w) {
            help_locked(h, w);
            r = 0;
            continue;
        }
        if (r < 0 || ws->stop)
            break;
        ws->idle++;
        r = task_queue_wait(&ws->queue, &ws->mu, base_clock_ns() + IDLE_NS);
        ws->idle--;
    }
    ws->count--;
    pthread_mutex_unlock(&ws->mu);
}

/* Wakes or starts so many workers; fewer when there are no threads. */
static void call_workers_locked(tws_hub *h, uint32_t wanted)
{
    struct hub_workers *ws = &h->workers;
    uint32_t idle = ws->idle;

    for (; wanted > 0 && idle > 0; wanted--, idle--)
        task_queue_wake_one(&ws->queue);
    for (; wanted > 0 && ws->count < ws->max; wanted--) {
        ws->count++;
        if (task_spawn(ws->runtime, worker_main, h) < 0) {
            ws->count--;
            break;
        }
    }
}

static void unlink_locked(struct hub_workers *ws, const struct hub_work *w)
{
    struct hub_work **at = &ws->head, *last = NULL;

    while (*at != w) {
        last = *at;
        at = &last->next;
    }
    *at = w->next;
    if (ws->tail == w)
        ws->tail = last;
}

static void deliver_with_help(tws_hub *h, struct hub_work *w, struct share *share)
{
    struct hub_workers *ws = &h->workers;

    pthread_mutex_lock(&ws->mu);
    w->next = NULL;
    if (ws->tail)
        ws->tail->next = w;
    else
        ws->head = w;
    ws->tail = w;
    call_workers_locked(h, w->wanted);
    pthread_mutex_unlock(&ws->mu);
    do_share(h, w, share);
    pthread_mutex_lock(&ws->mu);
    unlink_locked(ws, w);
    while (w->helpers > 0)
        task_queue_wait(&w->done, &ws->mu, TASK_FOREVER);
    add_share_locked(w, share);
    pthread_mutex_unlock(&ws->mu);
}

void hub_deliver(tws_hub *h, struct hub_room *r, struct room_publish **list, size_t count)
{
    struct hub_work w = {.room = r, .list = list, .count = count};
    size_t wanted = room_members(r) * count / h->spread;
    struct share share;

    if (wanted < 2 || h->workers.max == 0) {
        do_share(h, &w, &share);
        add_share_locked(&w, &share);
        return;
    }
    w.wanted = wanted - 1 < h->workers.max ? (uint32_t)(wanted - 1) : h->workers.max;
    deliver_with_help(h, &w, &share);
    for (size_t k = 0; k < count; k++)
        list[k]->spread = w.helped;
}

int hub_workers_init(struct hub_workers *w, const tws_allocator *a, uint32_t max)
{
    struct task_options opt = {.kind = TASK_KERNEL, .name = "tws-hub", .allocator = a};
    int r;

    memset(w, 0, sizeof *w);
    w->max = max;
    r = task_runtime_new(&w->runtime, &opt);
    if (r == 0)
        pthread_mutex_init(&w->mu, NULL);
    return r;
}

void hub_workers_free(struct hub_workers *w)
{
    pthread_mutex_lock(&w->mu);
    w->stop = true;
    task_queue_wake_all(&w->queue);
    pthread_mutex_unlock(&w->mu);
    task_runtime_free(w->runtime);
    pthread_mutex_destroy(&w->mu);
}
