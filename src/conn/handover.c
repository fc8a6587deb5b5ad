/*
 * A connection goes to another process: both roles are taken at a point where all there is to know
 * about it are the bytes that were received and not yet read.
 *
 * The reader's role is this thread's own, or is lent by a reader in the middle of its call, before it
 * waits for input (conn_handover_lend()). It is never taken behind the back of a thread that works on
 * a message: its answer could not be sent any more.
 */
#include "conn/queue.h"

#include "base/clock.h"
#include "conn/codec.h"
#include "conn/watch.h"

#include <errno.h>

void conn_handover_lend(tws_conn *c)
{
    pthread_mutex_lock(&c->mu);
    while (atomic_load(&c->lend_wanted)) {
        if (!c->lent) {
            c->lent = true;
            conn_events_wake_locked(c);
        }
        task_queue_wait(&c->events, &c->mu, TASK_FOREVER);
    }
    c->lent = false;
    pthread_mutex_unlock(&c->mu);
}

/* Reads are this thread's business: nobody else is in the middle of a message. */
static bool reads_itself(tws_conn *c)
{
    uintptr_t reader = atomic_load(&c->reader);

    return reader == task_self() || reader == 0;
}

/* The reader's role, or the loan of it. mu is held, but not meanwhile. */
static tws_err borrow_reader_locked(tws_conn *c, int64_t deadline)
{
    bool expected = false;

    if (atomic_load(&c->lend_wanted))
        return TWS_ERR_BUSY;
    if (atomic_load(&c->reading) && atomic_load(&c->reader) == task_self())
        return TWS_ERR_STATE;
    atomic_store(&c->lend_wanted, true);
    net_stream_nudge(&c->stream);
    for (;;) {
        if (conn_state(c) != CONN_OPEN)
            return conn_sticky_locked(c);
        if (c->lent ||
            (reads_itself(c) && atomic_compare_exchange_strong(&c->reading, &expected, true)))
            return TWS_OK;
        expected = false;
        if (task_queue_wait(&c->events, &c->mu, deadline) == -ETIMEDOUT)
            return TWS_ERR_TIMEOUT;
    }
}

/* Gives it back. */
static void return_reader(tws_conn *c)
{
    bool own;

    pthread_mutex_lock(&c->mu);
    own = !c->lent;
    c->handing = false;
    atomic_store(&c->lend_wanted, false);
    conn_events_wake_locked(c);
    pthread_mutex_unlock(&c->mu);
    if (own)
        conn_reader_leave(c);
}

/* The writer's role, when nothing is left to be sent. */
static tws_err take_writer(tws_conn *c, tws_ms ms, int64_t deadline)
{
    struct conn_wait w = {.ms = ms, .deadline = deadline};
    const struct conn_queue *q;
    bool more;
    tws_err err;

    do {
        err = conn_turn_take(c, CONN_TURN_DATA, &w);
        if (err)
            return err;
        pthread_mutex_lock(&c->mu);
        conn_queue_wanted_locked(c);
        pthread_mutex_unlock(&c->mu);
        err = conn_send_made(c, NULL, 0, CONN_TURN_DATA, &w);
        pthread_mutex_lock(&c->mu);
        q = conn_queue(c);
        more = (q && q->head) || conn_out_len(c) > 0;
        if (!err && c->pong_wanted) /* it could not even be put into `out` */
            err = TWS_ERR_MEMORY;
        if (!err && conn_state(c) != CONN_OPEN)
            err = conn_sticky_locked(c);
        c->handing = !err && !more;
        if (!c->handing)
            conn_turn_give_locked(c);
        pthread_mutex_unlock(&c->mu);
        if (!err && more && ms != 0 && base_clock_ns() >= deadline)
            err = TWS_ERR_TIMEOUT;
    } while (!err && more);
    return err;
}

tws_err conn_handover_begin(tws_conn *c, tws_ms ms, int64_t deadline)
{
    const struct conn_incoming *m = &c->msg;
    tws_err err;

    if (net_stream_is_tls(&c->stream) ||
        (c->deflate && (c->deflate->in_takeover || c->deflate->out_takeover)))
        return TWS_ERR_UNSUPPORTED;
    pthread_mutex_lock(&c->mu);
    err = borrow_reader_locked(c, deadline);
    if (err && err != TWS_ERR_BUSY && err != TWS_ERR_STATE) { /* it was asked for */
        atomic_store(&c->lend_wanted, false);
        conn_events_wake_locked(c);
    }
    pthread_mutex_unlock(&c->mu);
    if (err)
        return err;
    if (m->in_frame || m->in_message || m->streaming)
        err = TWS_ERR_STATE;
    if (!err)
        err = take_writer(c, ms, deadline);
    if (err)
        return_reader(c);
    else
        conn_input_restore(c);
    return err;
}

static const struct conn_cause handed = {TWS_ERR_HANDED_OVER, TWS_PHASE_NONE, TWS_CAUSE_LOCAL, 0,
                                         NULL};

void conn_disown(tws_conn *c)
{
    conn_end(c, &handed);
}

tws_err conn_handover_end(tws_conn *c, bool gone)
{
    tws_err err = TWS_OK;

    pthread_mutex_lock(&c->mu);
    if (gone) {
        if (conn_state(c) == CONN_ENDED) { /* cut meanwhile, for both */
            net_stream_forget(&c->stream);
            err = conn_sticky_locked(c);
        } else {
            conn_end_locked(c, &handed);
        }
        c->in.rd = c->in.wr; /* the other process reads it */
        conn_turn_release_locked(c);
    } else {
        net_stream_again(&c->stream);
        if (conn_state(c) != CONN_OPEN)
            err = conn_sticky_locked(c);
        c->handing = false;
        conn_turn_give_locked(c);
    }
    pthread_mutex_unlock(&c->mu);
    return_reader(c);
    return err;
}
