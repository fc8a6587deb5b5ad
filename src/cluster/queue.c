/* What is published waits here for the service thread, which hands it to the broker. */
#include "base/clock.h"
#include "base/sized.h"
#include "cluster/cluster.h"

#include <string.h>

/* Messages that are taken out of the queue together. */
#define BATCH 64
/* The longest that the service stays inside one publish of the broker's. */
#define PUBLISH_MS 200
/* A broker that says that it is away is asked again after so long, if it does not speak before. */
#define AWAY_NS (50 * BASE_NS_PER_MS)
/* One that has been waited for, after this. */
#define SLOW_NS BASE_NS_PER_MS

static size_t out_size(const struct cluster_out *o)
{
    return sizeof *o + o->len;
}

/* ---- In ---- */

static struct cluster_out *out_new(tws_cluster *c, const struct cluster_message *m)
{
    size_t len = CLUSTER_HEAD + m->name_len + m->len;
    struct cluster_out *o = base_alloc(c->opt.allocator, sizeof *o + len);

    if (!o)
        return NULL;
    memset(o, 0, sizeof *o);
    o->len = len;
    o->beat = m->kind == CLUSTER_BEAT;
    return o;
}

static void append_locked(tws_cluster *c, struct cluster_room *r, struct cluster_out *o)
{
    o->room = r;
    r->users++;
    r->beats += o->beat;
    if (c->tail)
        c->tail->next = o;
    else
        c->head = o;
    c->tail = o;
    c->stats.queue_messages++;
    c->stats.queue_bytes += out_size(o);
    cluster_wake_locked(c);
}

void cluster_queue_beat_locked(tws_cluster *c, struct cluster_room *r, uint8_t what)
{
    struct cluster_message m = {.kind = CLUSTER_BEAT,
                                .what = what,
                                .stream = r->stream,
                                .seq = r->seq,
                                .members = what & CLUSTER_GONE ? 0 : r->members,
                                .beat_ms = (uint32_t)c->opt.beat,
                                .name = r->name,
                                .name_len = r->name_len};
    struct cluster_out *o = out_new(c, &m);

    if (!o)
        return;
    memcpy(m.origin, c->origin, sizeof m.origin);
    cluster_message_write(o->bytes, &m);
    append_locked(c, r, o);
}

static bool is_full_locked(const tws_cluster *c, size_t size)
{
    return (c->opt.max_bytes > 0 && c->stats.queue_bytes + size > c->opt.max_bytes) ||
           (c->opt.max_messages > 0 && c->stats.queue_messages >= c->opt.max_messages);
}

/* Waits for room, as long as the options allow and the broker is there. */
static bool has_room_locked(tws_cluster *c, size_t size)
{
    int64_t deadline;

    if (!is_full_locked(c, size))
        return true;
    /* The service, in on_gap, would wait for itself. */
    if (c->opt.wait == TWS_NOWAIT || !c->up || c->service_self == task_self())
        return false;
    c->stats.waited++;
    deadline = task_deadline(c->opt.wait);
    while (is_full_locked(c, size) && c->up && !c->ending)
        if (task_queue_wait(&c->space, &c->mu, deadline) < 0)
            break;
    return !is_full_locked(c, size);
}

/* Numbers the message, and queues it if there is room. What is refused has a number too, so that the
 * others find out. */
static tws_err number_locked(tws_cluster *c, struct cluster_room *r, struct cluster_out *o,
                             size_t len)
{
    tws_err err = TWS_OK;

    r->users++;
    if (!o)
        err = TWS_ERR_MEMORY;
    else if (!has_room_locked(c, out_size(o)) || c->ending)
        err = TWS_ERR_QUEUE_FULL;
    r->users--;
    r->seq++;
    r->spoke = base_clock_ns();
    if (r->beat_at == INT64_MAX)
        r->beat_at = r->spoke + c->beat_ns;
    if (err)
        return err;
    cluster_message_number(o->bytes, r->stream, r->seq);
    append_locked(c, r, o);
    c->stats.published++;
    c->stats.published_bytes += len;
    return TWS_OK;
}

static tws_err enqueue(tws_cluster *c, const char *room, tws_prepared *p)
{
    struct cluster_message m = {.kind = CLUSTER_DATA, .name = room ? room : ""};
    struct cluster_room *r;
    struct cluster_out *o;
    const tws_allocator *a = c->opt.allocator;
    tws_err err = TWS_ERR_MEMORY;

    m.what = (uint8_t)tws_prepared_opcode(p);
    m.data = tws_prepared_data(p, &m.len);
    m.name_len = strlen(m.name);
    memcpy(m.origin, c->origin, sizeof m.origin);
    o = out_new(c, &m);
    if (o)
        cluster_message_write(o->bytes, &m);
    pthread_mutex_lock(&c->mu);
    c->calls++;
    r = room ? cluster_room_get_locked(c, room, m.name_len) : c->all;
    if (r)
        err = number_locked(c, r, o, m.len);
    if (err)
        c->stats.refused++;
    if (--c->calls == 0 && c->ending)
        task_queue_wake_all(&c->space);
    pthread_mutex_unlock(&c->mu);
    if (err)
        base_free(a, o);
    return err;
}

tws_err tws_cluster_publish(tws_cluster *c, const char *room, tws_prepared *p,
                            const tws_publish_options *opt, tws_publish_result *result)
{
    size_t len;
    tws_err err;

    if (result)
        memset(result, 0, sizeof *result);
    if (!p || (room && strlen(room) > CLUSTER_NAME_MAX))
        return TWS_ERR_ARGUMENT;
    tws_prepared_data(p, &len);
    if (len > c->opt.max_message)
        return TWS_ERR_MESSAGE_SIZE;
    err = tws_hub_publish(c->hub, room, p, opt, result);
    return err ? err : enqueue(c, room, p);
}

tws_err tws_cluster_publish_message(tws_cluster *c, const char *room, tws_opcode opcode,
                                    const void *data, size_t len, const tws_conn *except,
                                    tws_publish_result *result)
{
    tws_publish_options how;
    tws_prepared *p;
    tws_err err;

    if (result)
        memset(result, 0, sizeof *result);
    err = tws_prepared_new(&p, opcode, data, len);
    if (err)
        return err;
    tws_publish_options_init(&how);
    how.except = (tws_conn *)(uintptr_t)except; /* compared only */
    err = tws_cluster_publish(c, room, p, &how, result);
    tws_prepared_unref(p);
    return err;
}

/* ---- Out ---- */

static struct cluster_out *take_locked(tws_cluster *c, size_t max)
{
    struct cluster_out *first = c->head, *last = c->head;

    for (size_t n = 1; last && last->next && n < max; n++)
        last = last->next;
    if (last) {
        c->head = last->next;
        last->next = NULL;
    }
    if (!c->head)
        c->tail = NULL;
    return first;
}

static void put_back_locked(tws_cluster *c, struct cluster_out *first)
{
    struct cluster_out *last = first;

    if (!first)
        return;
    while (last->next)
        last = last->next;
    last->next = c->head;
    c->head = first;
    if (!c->tail)
        c->tail = last;
}

/* They are on their way, or given up. */
static void done_locked(tws_cluster *c, struct cluster_out *o, const struct cluster_out *end)
{
    while (o != end) {
        struct cluster_out *next = o->next;

        c->stats.queue_messages--;
        c->stats.queue_bytes -= out_size(o);
        o->room->users--;
        o->room->beats -= o->beat;
        base_free(c->opt.allocator, o);
        o = next;
    }
    task_queue_wake_all(&c->space);
}

static void gave_up(tws_cluster *c, const struct cluster_out *o)
{
    if (o->beat)
        return;
    pthread_mutex_lock(&c->mu);
    c->stats.unsent++;
    pthread_mutex_unlock(&c->mu);
    cluster_tell_gap(c, o->room, NULL, 1, TWS_GAP_UNSENT);
}

void cluster_send_locked(tws_cluster *c)
{
    struct cluster_out *first = take_locked(c, BATCH), *o = first;
    tws_err err = TWS_OK;

    pthread_mutex_unlock(&c->mu);
    for (; o; o = o->next) {
        err = c->broker.publish(c->broker.state, o->room->subject, o->bytes, o->len, PUBLISH_MS);
        if (err == TWS_ERR_TIMEOUT || err == TWS_ERR_CLOSED)
            break;
        if (err)
            gave_up(c, o);
    }
    if (o)
        c->retry_at = base_clock_ns() + (err == TWS_ERR_CLOSED ? AWAY_NS : SLOW_NS);
    pthread_mutex_lock(&c->mu);
    put_back_locked(c, o);
    done_locked(c, first, o);
}

void cluster_queue_drop(tws_cluster *c)
{
    struct cluster_out *first;

    pthread_mutex_lock(&c->mu);
    first = take_locked(c, SIZE_MAX);
    pthread_mutex_unlock(&c->mu);
    for (const struct cluster_out *o = first; o; o = o->next)
        gave_up(c, o);
    pthread_mutex_lock(&c->mu);
    done_locked(c, first, NULL);
    pthread_mutex_unlock(&c->mu);
}
