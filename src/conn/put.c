/* Handing a message over: tried at once, queued, refused, or making room for itself. */
#include "conn/queue.h"

#include "wire/utf8.h"

#include <string.h>

/* A message that a caller hands over. */
struct put {
    tws_opcode opcode;
    const void *data;
    size_t len;
    tws_prepared *prepared; /* data is its payload; NULL */
    tws_written_fn done;
    void *arg;
    bool publish;     /* never waits */
    bool later;       /* more follows at once: conn_kick() sends it all */
    bool direct;      /* out: the socket has taken it */
    uint64_t seq;     /* out, with later: its number in the queue */
    uint32_t dropped; /* out: older ones that made room */
};

/* ---- Items ---- */

/* With room for `room` bytes behind it; NULL: no memory. */
static struct queue_item *item_alloc(tws_conn *c, uint64_t room)
{
    return base_alloc(c->env->allocator, sizeof(struct queue_item) + room);
}

/* The caller's bytes that a borrowed item still has to send. */
static struct iovec borrowed_rest(const struct queue_item *it)
{
    struct iovec rest = {.iov_base = (void *)(uintptr_t)it->payload, .iov_len = it->len};

    if (it->prepared || it->deflated.data)
        rest.iov_len = 0;
    else if (it->encoded && it->len > 0) /* else all there is is its header */
        rest = it->iov[it->iov_count - 1];
    return rest;
}

/* Makes a borrowed item one that may stay: `copy`, with `rest` behind it. */
static void item_move(struct queue_item *copy, const struct queue_item *it, size_t rest)
{
    uint8_t *first = it->iov[0].iov_base;

    *copy = *it;
    copy->on_stack = copy->borrowed = false;
    if (it->encoded && first >= it->header && first < it->header + sizeof it->header)
        copy->iov[0].iov_base = copy->header + (first - it->header);
    if (it->prepared || it->deflated.data)
        return;
    copy->payload = (const uint8_t *)(copy + 1);
    if (it->encoded && rest > 0)
        copy->iov[it->iov_count - 1].iov_base = copy + 1;
}

static void item_init(tws_conn *c, const struct put *p, struct queue_item *it)
{
    memset(it, 0, sizeof *it);
    it->done = p->done;
    it->arg = p->arg;
    it->opcode = (uint8_t)p->opcode;
    it->mode = (uint8_t)conn_deflate_mode(c);
    it->len = p->len;
    it->payload = p->data;
    if (p->prepared && c->server)
        it->prepared = tws_prepared_ref(p->prepared);
}

/* An item that may stay in the queue. A client's needs bytes of its own in any case, to mask them. */
static struct queue_item *item_new(tws_conn *c, const struct put *p)
{
    bool copy = !p->prepared || !c->server;
    struct queue_item *it = item_alloc(c, copy ? p->len : 0);

    if (!it)
        return NULL;
    item_init(c, p, it);
    if (copy) {
        if (p->len > 0)
            memcpy(it + 1, p->data, p->len);
        it->payload = (const uint8_t *)(it + 1);
    }
    return it;
}

/* ---- Room ---- */

static bool fits_locked(const struct conn_queue *q, uint64_t bytes, uint64_t messages, size_t len)
{
    const tws_queue_options *o = &q->opt;

    return (o->max_messages == 0 || messages < o->max_messages) &&
           (o->max_bytes == 0 || (bytes <= o->max_bytes && len <= o->max_bytes - bytes));
}

/* A message that is not taken. */
static tws_err refused(struct conn_queue *q)
{
    q->count.dropped_newest++;
    return TWS_ERR_QUEUE_FULL;
}

/* Drops the oldest messages to make room. TWS_OK: look again. */
static tws_err drop_oldest_locked(tws_conn *c, struct conn_queue *q, struct put *p)
{
    struct queue_item *fixed = conn_queue_fixed_locked(q, true);
    uint64_t bytes = 0, messages = 0;

    for (struct queue_item *it = q->head; fixed; it = it->next) {
        bytes += it->len;
        messages++;
        if (it == fixed)
            break;
    }
    if (fits_locked(q, bytes, messages, p->len)) {
        while (!fits_locked(q, q->bytes, q->messages, p->len)) {
            conn_queue_take_out_locked(c, fixed, TWS_ERR_DROPPED);
            p->dropped++;
        }
        return TWS_OK;
    }
    /* What somebody has in hand leaves, or can be dropped, in a moment; that is not the peer's doing. */
    if (q->in_hand > 1 || (q->in_hand == 1 && !q->firm)) {
        task_queue_wait(&q->changed, &c->mu, TASK_FOREVER);
        return TWS_OK;
    }
    return refused(q);
}

/* The peer reads too slowly: closes with 1013. */
static tws_err overflow_locked(tws_conn *c, struct conn_queue *q)
{
    struct conn_cause cause = {TWS_ERR_OVERFLOW, TWS_PHASE_WRITE, TWS_CAUSE_LIMIT, 0,
                               "send queue full"};

    q->count.overflows++;
    conn_fail_locked(c, &cause, TWS_CLOSE_TRY_AGAIN_LATER);
    if (c->error.code == cause.code)
        c->error.passed = CONN_PASSED_QUEUE;
    conn_wake_reader_locked(c);
    return conn_sticky_locked(c);
}

static tws_err wait_for_room_locked(tws_conn *c, struct conn_queue *q, const struct put *p,
                                    int64_t *deadline)
{
    if (*deadline < 0)
        *deadline = task_deadline(q->opt.wait);
    /* Behind this thread's own open writer nothing leaves while it waits. */
    if (*deadline != TASK_NOW && !conn_own_writer_locked(c) &&
        (conn_queue_await_locked(c, *deadline) != TWS_ERR_TIMEOUT ||
         fits_locked(q, q->bytes, q->messages, p->len)))
        return TWS_OK; /* or the connection has ended */
    q->count.wait_timeouts++;
    return TWS_ERR_QUEUE_FULL;
}

/* The queue is full. TWS_OK: look again. */
static tws_err make_room_locked(tws_conn *c, struct conn_queue *q, struct put *p, int64_t *deadline)
{
    switch (q->opt.policy) {
    case TWS_QUEUE_WAIT:
        if (!p->publish)
            return wait_for_room_locked(c, q, p, deadline);
        q->count.wait_timeouts++;
        return TWS_ERR_QUEUE_FULL;
    case TWS_QUEUE_DROP_NEWEST:
        break;
    case TWS_QUEUE_DROP_OLDEST:
        return drop_oldest_locked(c, q, p);
    case TWS_QUEUE_CLOSE:
        return overflow_locked(c, q);
    }
    return refused(q);
}

/* ---- At once ---- */

static bool can_try_locked(const tws_conn *c, const struct conn_queue *q, const struct put *p)
{
    return (q->opt.writer == TWS_WRITER_DEMAND ||
            (q->opt.writer == TWS_WRITER_NONE && p->publish)) &&
           !c->writing && !c->writer && !q->head;
}

static void append_locked(struct conn_queue *q, struct queue_item *it)
{
    it->next = NULL;
    it->seq = ++q->seq;
    if (q->tail)
        q->tail->next = it;
    else
        q->head = it;
    q->tail = it;
}

/* From now on the item is the queue's. */
static void accept_locked(tws_conn *c, struct conn_queue *q, struct queue_item *it)
{
    it->counted = true;
    q->count.accepted++;
    q->bytes += it->len;
    q->messages++;
    if (q->bytes > q->count.peak_bytes)
        q->count.peak_bytes = q->bytes;
    if (q->messages > q->count.peak_messages)
        q->count.peak_messages = q->messages;
    conn_queue_water_locked(c);
}

/* A tried item that has left the list: what becomes of it. */
static tws_err tried_locked(tws_conn *c, struct conn_queue *q, struct put *p, struct queue_item *it)
{
    tws_err result = it->result;

    if (result == TWS_OK) {
        q->count.accepted++;
        q->count.direct++;
        q->count.sent++;
        p->direct = true;
        if (it->done) {
            conn_queue_told_locked(c, it);
            return TWS_OK;
        }
    }
    conn_queue_item_free(c, it);
    return result;
}

/* It did not leave whole, and is the head: gives it memory of its own. mu is held, but not
 * meanwhile. */
static tws_err keep_locked(tws_conn *c, struct conn_queue *q, struct put *p, struct queue_item *it)
{
    struct conn_cause cause = {TWS_ERR_RESOURCE, TWS_PHASE_WRITE, TWS_CAUSE_LOCAL, 0,
                               "no memory for the rest of a frame"};
    struct queue_item *copy = it;

    if (p->publish && q->opt.writer == TWS_WRITER_NONE && !it->begun) {
        if (it->bound)
            conn_deflate_reset(c);
        conn_queue_pop_locked(c, refused(q));
        return tried_locked(c, q, p, it);
    }
    if (it->borrowed) {
        struct iovec rest = borrowed_rest(it);

        q->in_hand = 1;
        q->firm = it->begun || it->bound;
        pthread_mutex_unlock(&c->mu);
        copy = item_alloc(c, rest.iov_len);
        if (copy && rest.iov_len > 0)
            memcpy(copy + 1, rest.iov_base, rest.iov_len);
        pthread_mutex_lock(&c->mu);
        q->in_hand = 0;
        task_queue_wake_all(&q->changed);
        if (copy) /* now: others may have queued behind it */
            item_move(copy, it, rest.iov_len);
        if (!copy && it->begun)
            conn_end_locked(c, &cause); /* the peer waits for the rest */
        else if (!copy) {
            if (it->bound)
                conn_deflate_reset(c);
            conn_queue_pop_locked(c, TWS_ERR_MEMORY);
        }
    }
    if (conn_state(c) == CONN_ENDED)
        conn_queue_end_locked(c);
    if (it->gone) {
        if (copy && copy != it)
            base_free(c->env->allocator, copy);
        return tried_locked(c, q, p, it);
    }
    if (copy != it) {
        q->head = copy;
        if (q->tail == it)
            q->tail = copy;
        if (!it->on_stack)
            base_free(c->env->allocator, it);
    }
    accept_locked(c, q, copy);
    return TWS_OK;
}

/* Sends without waiting what the socket takes. mu is held, but not meanwhile. */
static tws_err try_locked(tws_conn *c, struct conn_queue *q, struct put *p, struct queue_item *it)
{
    enum { ROUNDS = 4 };
    tws_err err;

    c->writing = true;
    append_locked(q, it);
    for (int i = 0; i < ROUNDS && !it->gone; i++)
        if (conn_queue_push_locked(c, 1, false) != QUEUE_MORE)
            break;
    err = it->gone ? tried_locked(c, q, p, it) : keep_locked(c, q, p, it);
    conn_turn_give_locked(c);
    return err;
}

/* ---- All of it ---- */

static tws_err queue_locked(tws_conn *c, struct conn_queue *q, struct put *p, struct queue_item *it)
{
    append_locked(q, it);
    accept_locked(c, q, it);
    p->seq = it->seq;
    if (!p->later)
        conn_queue_start_locked(c);
    return TWS_OK;
}

/* What to do next with a message. */
enum step { STEP_TRY, STEP_QUEUE, STEP_NONE };

/* mu is held, but not while this waits for room. */
static tws_err next_step_locked(tws_conn *c, struct conn_queue *q, struct put *p, int64_t *deadline,
                                enum step *step)
{
    for (;;) {
        tws_err err;

        *step = STEP_NONE;
        if (conn_state(c) != CONN_OPEN)
            return conn_sticky_locked(c);
        if (q->opt.max_bytes > 0 && p->len > q->opt.max_bytes)
            return TWS_ERR_MESSAGE_SIZE;
        *step = p->later && q->opt.writer == TWS_WRITER_DEMAND ? STEP_QUEUE : STEP_TRY;
        if (can_try_locked(c, q, p))
            return TWS_OK;
        *step = STEP_NONE;
        if (q->opt.writer == TWS_WRITER_NONE)
            return p->publish ? refused(q) : TWS_OK;
        *step = STEP_QUEUE;
        if (fits_locked(q, q->bytes, q->messages, p->len))
            return TWS_OK;
        err = make_room_locked(c, q, p, deadline);
        if (err)
            return err;
    }
}

/* Writes as a synchronous call does; the callback is due afterwards. mu is held, but not
 * meanwhile. */
static tws_err write_now_locked(tws_conn *c, struct conn_queue *q, struct put *p,
                                struct queue_item *it)
{
    tws_err err;

    /* `it` may be left from a step that the mode has changed since, also where there is no callback. */
    pthread_mutex_unlock(&c->mu);
    if (p->prepared)
        err = tws_write_prepared(c, p->prepared);
    else
        err = tws_write_message(c, p->opcode, p->data, p->len);
    pthread_mutex_lock(&c->mu);
    if (!err) {
        p->direct = true;
        q->count.accepted++;
        q->count.direct++;
        q->count.sent++;
    }
    if (!it)
        return err;
    it->result = err;
    if (!err && it->done)
        conn_queue_told_locked(c, it);
    else
        conn_queue_item_free(c, it);
    return err;
}

/* Whether a step can do with the caller's bytes: who masks them needs bytes of its own. */
static bool may_borrow(const tws_conn *c, enum step step)
{
    return step == STEP_NONE || (step == STEP_TRY && c->server);
}

/* The memory that a step needs beforehand. NULL with *err TWS_OK: none. */
static struct queue_item *item_for(tws_conn *c, const struct put *p, enum step step, tws_err *err)
{
    struct queue_item *it;

    *err = TWS_OK;
    if (!may_borrow(c, step)) {
        it = item_new(c, p);
    } else if (p->done) {
        it = item_alloc(c, 0);
        if (it) {
            item_init(c, p, it);
            it->borrowed = true;
        }
    } else {
        return NULL;
    }
    if (!it)
        *err = TWS_ERR_MEMORY;
    return it;
}

static bool item_fits_step(const tws_conn *c, const struct put *p, const struct queue_item *it,
                           enum step step)
{
    if (!it)
        return !p->done && may_borrow(c, step);
    return !it->borrowed || may_borrow(c, step);
}

static tws_err put_locked(tws_conn *c, struct conn_queue *q, struct put *p)
{
    struct queue_item *it = NULL;
    struct queue_item local;
    int64_t deadline = -1;
    enum step step;
    tws_err err;

    for (;;) {
        struct queue_item *unfit = NULL;

        err = next_step_locked(c, q, p, &deadline, &step);
        if (err || item_fits_step(c, p, it, step))
            break;
        unfit = it;
        pthread_mutex_unlock(&c->mu);
        if (unfit)
            conn_queue_item_free(c, unfit);
        it = item_for(c, p, step, &err);
        pthread_mutex_lock(&c->mu);
        if (err)
            break;
    }
    if (err) {
        if (it)
            conn_queue_item_free(c, it);
        return err;
    }
    if (step == STEP_NONE)
        return write_now_locked(c, q, p, it);
    if (step == STEP_QUEUE)
        return queue_locked(c, q, p, it);
    if (!it) {
        it = &local;
        item_init(c, p, it);
        it->borrowed = it->on_stack = true;
    }
    return try_locked(c, q, p, it);
}

/* Bytes have been checked. */
static tws_err put(tws_conn *c, struct put *p)
{
    uint64_t max = conn_limit(c, TWS_LIMIT_WRITE);
    struct conn_queue *q;
    bool over = false;
    tws_err err;

    if (max > 0 && p->len > max)
        return TWS_ERR_MESSAGE_SIZE;
    pthread_mutex_lock(&c->mu);
    q = conn_queue_make_locked(c);
    if (p->later && q && !fits_locked(q, q->bytes, q->messages, p->len)) {
        pthread_mutex_unlock(&c->mu); /* room that the socket may still give */
        conn_kick(c);
        pthread_mutex_lock(&c->mu);
    }
    if (conn_state(c) != CONN_OPEN)
        err = conn_sticky_locked(c);
    else
        err = q ? put_locked(c, q, p) : TWS_ERR_MEMORY;
    over = err == TWS_ERR_OVERFLOW;
    pthread_mutex_unlock(&c->mu);
    if (over)
        conn_kick(c); /* the close frame */
    return err;
}

tws_err tws_write_async(tws_conn *c, tws_opcode opcode, const void *data, size_t len,
                        tws_written_fn done, void *arg)
{
    struct put p = {.opcode = opcode, .data = data, .len = len, .done = done, .arg = arg};

    if ((opcode != TWS_TEXT && opcode != TWS_BINARY) || (!data && len > 0))
        return TWS_ERR_ARGUMENT;
    if (len > INT64_MAX) /* nor does a queue without limits have room for it */
        return TWS_ERR_MESSAGE_SIZE;
    if (opcode == TWS_TEXT && c->check_utf8 && !wire_utf8_valid(data, len))
        return TWS_ERR_TEXT;
    return put(c, &p);
}

static struct put put_of(tws_prepared *prepared)
{
    struct put p = {.opcode = tws_prepared_opcode(prepared), .prepared = prepared};

    p.data = tws_prepared_data(prepared, &p.len);
    return p;
}

tws_err tws_write_prepared_async(tws_conn *c, tws_prepared *prepared, tws_written_fn done,
                                 void *arg)
{
    struct put p = put_of(prepared);

    p.done = done;
    p.arg = arg;
    return put(c, &p);
}

static void publish_one(tws_conn *c, struct conn_publish *one, bool later)
{
    struct put p = put_of(one->prepared);

    p.done = one->done;
    p.arg = one->arg;
    p.publish = true;
    p.later = later;
    one->err = put(c, &p);
    one->direct = p.direct;
    one->dropped = p.dropped;
    one->seq = p.seq;
}

/* Which of those that were queued together have left already. */
static void see_what_left(tws_conn *c, struct conn_publish *list, size_t count)
{
    const struct conn_queue *q;
    bool whole = true; /* what is gone has been sent, not dropped */
    uint64_t first;

    for (size_t i = 0; i < count; i++)
        whole = whole && list[i].dropped == 0;
    pthread_mutex_lock(&c->mu);
    q = conn_queue(c);
    whole = whole && conn_state(c) == CONN_OPEN;
    first = q && q->head ? q->head->seq : UINT64_MAX;
    pthread_mutex_unlock(&c->mu);
    for (size_t i = 0; i < count; i++)
        if (list[i].err == TWS_OK && list[i].seq > 0)
            list[i].direct = whole && list[i].seq < first;
}

void conn_publish(tws_conn *c, struct conn_publish *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        publish_one(c, &list[i], count > 1);
    if (count < 2)
        return;
    conn_kick(c);
    see_what_left(c, list, count);
}
