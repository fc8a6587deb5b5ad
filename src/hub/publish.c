/* Publishing: who may go on when, and what is told afterwards. */
#include "base/clock.h"
#include "base/sized.h"
#include "hub/hub.h"

#include <string.h>

/* ---- The gate between publishes to all and to single rooms ---- */

/* Who comes while the other kind is inside or waits waits too, so that neither starves. */
static void gate_enter_locked(tws_hub *h, enum gate_kind kind)
{
    struct hub_gate *g = &h->gate;

    if (g->inside[!kind] == 0 && g->waits[!kind] == 0) {
        g->inside[kind]++;
        return;
    }
    g->waits[kind]++;
    task_queue_wait(&g->queue[kind], &h->mu, TASK_FOREVER); /* counted in by who wakes it */
}

static void gate_leave_locked(tws_hub *h, enum gate_kind kind)
{
    struct hub_gate *g = &h->gate;

    if (--g->inside[kind] > 0 || g->waits[!kind] == 0)
        return;
    g->inside[!kind] = g->waits[!kind];
    g->waits[!kind] = 0;
    task_queue_wake_all(&g->queue[!kind]);
}

/* ---- Sums ---- */

static const int64_t latency_us[TWS_HUB_LATENCIES - 1] = {
    50, 100, 250, 500, 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 1000000};

static void count_locked(tws_hub *h, const struct room_publish *p, int64_t took)
{
    tws_hub_stats *s = &h->stats;

    s->publishes++;
    s->publish_ns += (uint64_t)took;
    s->sent += p->counts[OUT_SENT];
    s->queued += p->counts[OUT_QUEUED];
    s->dropped += p->counts[OUT_DROPPED];
    s->failed += p->counts[OUT_FAILED];
    s->skipped += p->counts[OUT_SKIPPED];
    s->together += p->together;
    s->spread += p->spread;
    for (size_t i = 0; i < TWS_HUB_LATENCIES; i++)
        if (i == TWS_HUB_LATENCIES - 1 || took <= latency_us[i] * 1000)
            s->publish_latency[i]++;
}

static void tell_result(const struct room_publish *p, tws_publish_result *result)
{
    result->sent = p->counts[OUT_SENT];
    result->queued = p->counts[OUT_QUEUED];
    result->dropped = p->counts[OUT_DROPPED];
    result->failed = p->counts[OUT_FAILED];
    result->skipped = p->counts[OUT_SKIPPED];
}

/* ---- Publishing ---- */

static bool is_filter_locked(const tws_hub *h)
{
    const struct hub_filtering *f = h->filtering;
    uintptr_t self = f ? task_self() : 0;

    while (f && f->thread != self)
        f = f->next;
    return f != NULL;
}

/* Takes part in the room's queue of publishers. */
static void publish_in(tws_hub *h, struct hub_room *r, struct room_publish *p)
{
    struct room_publish *list[ROOM_BATCH];
    size_t count;

    if (!room_line_up(r, p))
        return;
    count = room_batch(r, list);
    hub_deliver(h, r, list, count);
    room_served(r, list, count);
}

void hub_call_ended_locked(tws_hub *h)
{
    if (--h->calls == 0)
        task_queue_wake_all(&h->calls_ended);
}

static tws_err publish(tws_hub *h, const char *room, struct room_publish *p)
{
    enum gate_kind kind = room ? GATE_ROOM : GATE_ALL;
    int64_t begin = base_clock_ns();
    struct hub_room *r;

    pthread_mutex_lock(&h->mu);
    if (is_filter_locked(h)) {
        pthread_mutex_unlock(&h->mu);
        return TWS_ERR_STATE;
    }
    h->calls++;
    gate_enter_locked(h, kind);
    r = hub_room_use_locked(h, room);
    if (r) {
        pthread_mutex_unlock(&h->mu);
        publish_in(h, r, p);
        pthread_mutex_lock(&h->mu);
        hub_room_unuse_locked(h, r);
    }
    gate_leave_locked(h, kind);
    count_locked(h, p, base_clock_ns() - begin);
    hub_call_ended_locked(h);
    pthread_mutex_unlock(&h->mu);
    return TWS_OK;
}

void tws_publish_options_init_sized(tws_publish_options *opt, size_t size)
{
    tws_publish_options o;

    memset(&o, 0, sizeof o);
    o.size = size;
    base_sized_give(opt, size, &o, sizeof o);
}

tws_err tws_hub_publish(tws_hub *h, const char *room, tws_prepared *p,
                        const tws_publish_options *opt, tws_publish_result *result)
{
    struct room_publish one = {.prepared = p};
    tws_publish_options o;
    tws_err err;

    if (result)
        memset(result, 0, sizeof *result);
    if (!p || (opt && opt->size == 0))
        return TWS_ERR_ARGUMENT;
    tws_publish_options_init(&o);
    if (opt)
        base_sized_take(&o, sizeof o, opt, opt->size);
    one.except = o.except;
    one.filter = o.filter;
    one.arg = o.arg;
    one.done = o.done;
    one.done_arg = o.done_arg;
    err = publish(h, room, &one);
    if (!err && result)
        tell_result(&one, result);
    return err;
}

tws_err tws_hub_publish_message(tws_hub *h, const char *room, tws_opcode opcode, const void *data,
                                size_t len, const tws_conn *except, tws_publish_result *result)
{
    struct room_publish one = {.except = except};
    tws_err err;

    if (result)
        memset(result, 0, sizeof *result);
    err = tws_prepared_new(&one.prepared, opcode, data, len);
    if (err)
        return err;
    err = publish(h, room, &one);
    tws_prepared_unref(one.prepared);
    if (!err && result)
        tell_result(&one, result);
    return err;
}
