/* Messages that wait for a slow peer: the queue, its bounds, and what happens at them. */
#include "conn/queue.h"

#include "base/clock.h"
#include "base/sized.h"

#include <errno.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

/* ---- Options ---- */

void tws_queue_options_init_sized(tws_queue_options *opt, size_t size)
{
    tws_queue_options o;

    memset(&o, 0, sizeof o);
    o.size = size;
    o.max_bytes = MIB;
    o.max_messages = 4096;
    o.wait = 5000;
    base_sized_give(opt, size, &o, sizeof o);
}

/* Ours may be longer or shorter than the caller's; those that were never initialised are defaults. */
static void normalise(tws_queue_options *out, const tws_queue_options *in)
{
    tws_queue_options_init(out);
    base_sized_take(out, sizeof *out, in, in->size);
    out->size = sizeof *out;
    if (out->high_water == 0)
        out->high_water = out->max_bytes - out->max_bytes / 4;
    if (out->low_water == 0)
        out->low_water = out->high_water / 4;
}

const char *conn_queue_check(const tws_queue_options *opt)
{
    tws_queue_options o;

    normalise(&o, opt);
    if (o.policy < TWS_QUEUE_CLOSE || o.policy > TWS_QUEUE_DROP_OLDEST)
        return "the queue's policy is not one";
    if (o.writer < TWS_WRITER_DEMAND || o.writer > TWS_WRITER_RESIDENT)
        return "the queue's writer is not a mode";
    if (o.wait < TWS_NOWAIT)
        return "the queue's wait is negative";
    if (o.low_water > o.high_water)
        return "the queue's low_water is above its high_water";
    return NULL;
}

void conn_queue_options(tws_conn *c, const tws_queue_options *opt)
{
    struct conn_env *env = c->env;

    pthread_mutex_lock(&env->mu);
    if (!env->queue_set) {
        normalise(&env->queue, opt);
        env->queue_set = true;
    }
    pthread_mutex_unlock(&env->mu);
}

/* The queue, made when it is first needed. mu is held. NULL: no memory. */
struct conn_queue *conn_queue_make_locked(tws_conn *c)
{
    struct conn_queue *q = conn_queue(c);

    if (q)
        return q;
    q = base_calloc(c->env->allocator, sizeof *q);
    if (!q)
        return NULL;
    q->opt = c->env->queue;
    atomic_store_explicit(&c->queue, q, memory_order_release);
    return q;
}

tws_err tws_set_queue(tws_conn *c, const tws_queue_options *opt)
{
    struct conn_queue *q;

    if (!opt || opt->size < sizeof opt->size + sizeof opt->max_bytes || conn_queue_check(opt))
        return TWS_ERR_ARGUMENT;
    pthread_mutex_lock(&c->mu);
    q = conn_queue_make_locked(c);
    if (q) {
        normalise(&q->opt, opt);
        task_queue_wake_all(&q->changed);
        task_queue_wake_all(&q->work);
    }
    pthread_mutex_unlock(&c->mu);
    return q ? TWS_OK : TWS_ERR_MEMORY;
}

void tws_get_queue_sized(tws_conn *c, tws_queue_options *out, size_t size)
{
    struct conn_queue *q;
    tws_queue_options o;

    pthread_mutex_lock(&c->mu);
    q = conn_queue(c);
    o = q ? q->opt : c->env->queue;
    pthread_mutex_unlock(&c->mu);
    o.size = size;
    base_sized_give(out, size, &o, sizeof o);
}

/* ---- Items ---- */

void conn_queue_item_free(tws_conn *c, struct queue_item *it)
{
    if (it->deflated.data)
        conn_deflated_free(c->env, &it->deflated);
    it->deflated.data = NULL;
    tws_prepared_unref(it->prepared);
    it->prepared = NULL;
    if (!it->on_stack)
        base_free(c->env->allocator, it);
}

/* ---- Taking out ---- */

static void count_result(struct conn_queue *q, tws_err result)
{
    if (result == TWS_OK)
        q->count.sent++;
    else if (result == TWS_ERR_DROPPED)
        q->count.dropped_oldest++;
    else
        q->count.failed++;
}

void conn_queue_water_locked(tws_conn *c)
{
    struct conn_queue *q = conn_queue(c);

    if (!q->high && q->bytes > q->opt.high_water)
        q->high = true;
    else if (q->high && q->bytes <= q->opt.low_water)
        q->high = false;
    if (q->high != q->high_told && q->opt.on_water)
        conn_tell_locked(c);
}

/* Its callback is due. */
void conn_queue_told_locked(tws_conn *c, struct queue_item *it)
{
    struct conn_queue *q = conn_queue(c);

    it->next = NULL;
    if (q->told_tail)
        q->told_tail->next = it;
    else
        q->told_head = it;
    q->told_tail = it;
    conn_tell_locked(c);
}

/* An item that is in the list no more. */
static void finish_locked(tws_conn *c, struct conn_queue *q, struct queue_item *it, tws_err result)
{
    it->result = result;
    it->gone = true;
    task_queue_wake_all(&q->changed);
    if (!it->counted)
        return; /* its caller is still here, and sees to it */
    q->bytes -= it->len;
    q->messages--;
    count_result(q, result);
    conn_queue_water_locked(c);
    /* The last reference on an adopted message calls the application, which no lock may be held for. */
    if (it->done || (it->prepared && !conn_prepared_drop(it->prepared))) {
        conn_queue_told_locked(c, it);
        return;
    }
    it->prepared = NULL;
    conn_queue_item_free(c, it);
}

void conn_queue_pop_locked(tws_conn *c, tws_err result)
{
    struct conn_queue *q = conn_queue(c);
    struct queue_item *it = q->head;

    q->head = it->next;
    if (!q->head)
        q->tail = NULL;
    finish_locked(c, q, it, result);
}

/* The item behind `before`; the head when that is NULL. */
void conn_queue_take_out_locked(tws_conn *c, struct queue_item *before, tws_err result)
{
    struct conn_queue *q = conn_queue(c);
    struct queue_item *it = before ? before->next : q->head;

    if (!before) {
        conn_queue_pop_locked(c, result);
        return;
    }
    before->next = it->next;
    if (q->tail == it)
        q->tail = before;
    finish_locked(c, q, it, result);
}

struct queue_item *conn_queue_fixed_locked(const struct conn_queue *q, bool begun_too)
{
    struct queue_item *last = NULL, *it = q->head;

    for (uint32_t i = 0; i < q->in_hand && it; i++, it = it->next)
        last = it;
    if (!last && begun_too && it && (it->begun || it->bound))
        last = it;
    return last;
}

static void drop_locked(tws_conn *c, struct conn_queue *q, bool begun_too)
{
    struct queue_item *fixed = conn_queue_fixed_locked(q, !begun_too);
    tws_err code = conn_sticky_locked(c);

    while (fixed ? fixed->next : q->head)
        conn_queue_take_out_locked(c, fixed, code);
}

void conn_queue_drop_locked(tws_conn *c)
{
    struct conn_queue *q = conn_queue(c);

    if (q)
        drop_locked(c, q, false);
}

void conn_queue_end_locked(tws_conn *c)
{
    struct conn_queue *q = conn_queue(c);

    if (!q)
        return;
    if (q->in_hand ==
        0) /* else who has them in hand comes by here, so that all are told in order */
        drop_locked(c, q, true);
    task_queue_wake_all(&q->changed);
    task_queue_wake_all(&q->work);
}

bool conn_queue_stuck_locked(tws_conn *c)
{
    struct conn_queue *q = conn_queue(c);
    tws_ms ms = conn_timeout(c, TWS_TIMEOUT_CLOSE);

    if (!q || !q->head || !q->blocked || q->blocked_since == 0 || ms == 0)
        return false;
    return (base_clock_coarse_ns() - q->blocked_since) / BASE_NS_PER_MS >= ms;
}

bool conn_queue_tell_locked(tws_conn *c)
{
    struct conn_queue *q = conn_queue(c);
    struct queue_item *it;

    if (!q)
        return false;
    it = q->told_head;
    if (it) {
        q->told_head = it->next;
        if (!q->told_head)
            q->told_tail = NULL;
        pthread_mutex_unlock(&c->mu);
        if (it->done)
            it->done(c, it->result, it->arg);
        conn_queue_item_free(c, it);
        pthread_mutex_lock(&c->mu);
        return true;
    }
    if (q->high != q->high_told && q->opt.on_water) {
        tws_water_fn fn = q->opt.on_water;
        void *arg = q->opt.arg;
        uint64_t bytes = q->bytes;
        bool high = q->high_told = q->high;

        pthread_mutex_unlock(&c->mu);
        fn(c, high, bytes, arg);
        pthread_mutex_lock(&c->mu);
        return true;
    }
    return false;
}

void conn_queue_free(tws_conn *c)
{
    base_free(c->env->allocator, conn_queue(c));
}

/* ---- Waiting and counting ---- */

/* Whether everything up to seq has left. */
static bool left_locked(const struct conn_queue *q, uint64_t seq)
{
    return !q->head || q->head->seq > seq;
}

tws_err conn_queue_await_locked(tws_conn *c, int64_t deadline)
{
    struct conn_queue *q = conn_queue(c);
    uint64_t first = q->head ? q->head->seq : 0;
    tws_err err = conn_queue_help_locked(c, deadline);

    if (err || !q->head || q->head->seq != first)
        return err;
    return task_queue_wait(&q->changed, &c->mu, deadline) == -ETIMEDOUT ? TWS_ERR_TIMEOUT : TWS_OK;
}

tws_err tws_queue_wait(tws_conn *c, tws_ms ms)
{
    int64_t deadline = task_deadline(ms);
    struct conn_queue *q;
    tws_err err = TWS_OK;
    uint64_t seq;

    if (ms < TWS_NOWAIT)
        return TWS_ERR_ARGUMENT;
    pthread_mutex_lock(&c->mu);
    q = conn_queue(c);
    seq = q ? q->seq : 0;
    if (!q || left_locked(q, seq)) {
        pthread_mutex_unlock(&c->mu);
        return TWS_OK;
    }
    while (!err && conn_state(c) != CONN_ENDED && !left_locked(q, seq)) {
        if (conn_own_writer_locked(c))
            err = TWS_ERR_STATE; /* nothing leaves before this thread closes it */
        else if (ms == TWS_NOWAIT)
            err = TWS_ERR_TIMEOUT;
        else
            err = conn_queue_await_locked(c, deadline);
    }
    if (conn_state(c) == CONN_ENDED)
        err = conn_sticky_locked(c);
    else if (left_locked(q, seq))
        err = TWS_OK;
    pthread_mutex_unlock(&c->mu);
    return err;
}

void tws_queue_stats_sized(tws_conn *c, tws_queue_stats *out, size_t size)
{
    struct conn_queue *q;
    tws_queue_stats s = {.bytes = 0};

    if (conn_queue(c)) {
        pthread_mutex_lock(&c->mu);
        q = conn_queue(c);
        s = q->count;
        s.bytes = q->bytes;
        s.messages = q->messages;
        s.writer_running = q->writer;
        pthread_mutex_unlock(&c->mu);
    }
    base_sized_give(out, size, &s, sizeof s);
}
