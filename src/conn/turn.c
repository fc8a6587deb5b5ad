/* The writer's role: one thread sends at a time, whole frames, in the order of asking. */
#include "conn/queue.h"

#include "wire/close.h"

#include <errno.h>
#include <sys/socket.h>

/* Batches of queued messages that a thread sends when it gives the role back. */
#define GIVE_ROUNDS 2

int64_t conn_wait_deadline(struct conn_wait *w)
{
    if (w->deadline == 0 && w->ms != TWS_NOWAIT)
        w->deadline = task_deadline(w->ms);
    return w->deadline;
}

/* Whether a thread must wait before it may send. mu is held. */
static bool turn_taken(const tws_conn *c, enum conn_turn turn)
{
    if (c->writing || (turn == CONN_TURN_WRITER && c->controls > 0))
        return true; /* a control frame passes between fragments */
    return turn == CONN_TURN_DATA && c->writer != NULL;
}

/* The queue's writer looks for those it has to let pass. */
static int ask(tws_conn *c, struct queue_turn *t, int64_t deadline)
{
    struct conn_queue *q = conn_queue(c);
    struct queue_turn **at;
    int r;

    if (q) {
        t->next = q->asking;
        q->asking = t;
    }
    r = task_queue_wait(&c->turns, &c->mu, deadline);
    if (!q)
        return r;
    for (at = &q->asking; *at != t; at = &(*at)->next) {
    }
    *at = t->next;
    return r;
}

static tws_err turn_wait(tws_conn *c, struct conn_wait *w, struct queue_turn *t)
{
    /* Without waiting for the peer means: only as long as the other thread makes progress. */
    int64_t deadline = w->ms == TWS_NOWAIT ? TASK_FOREVER : conn_wait_deadline(w);
    const struct conn_queue *q = conn_queue(c);
    int r;

    if (w->ms == TWS_NOWAIT &&
        (c->write_blocked || (q && q->blocked) || (c->writer && !c->writing)))
        return TWS_ERR_TIMEOUT;
    if (t->turn == CONN_TURN_CONTROL)
        c->controls++;
    r = ask(c, t, deadline);
    if (t->turn == CONN_TURN_CONTROL && --c->controls == 0 && r == -ETIMEDOUT && !c->writing)
        task_queue_wake_all(&c->turns); /* who stood back for it */
    return r == -ETIMEDOUT ? TWS_ERR_TIMEOUT : TWS_OK;
}

/* The role is free. Whether queued messages go first, sent by a writer thread; where there is none,
 * this thread sends them and takes the role. */
static tws_err turn_after_queue(tws_conn *c, const struct queue_turn *t, struct conn_wait *w,
                                bool *wait)
{
    tws_err err;

    *wait = false;
    if (!conn_queue_before_locked(c, t->turn, t->seq)) {
        c->writing = true;
        return TWS_OK;
    }
    conn_queue_start_locked(c);
    if (conn_queue(c)->writer) {
        *wait = true;
        return TWS_OK;
    }
    c->writing = true;
    err = conn_queue_clear_locked(c, t->turn, t->seq, w);
    if (err)
        conn_turn_give_locked(c);
    return err;
}

/* The queue's writer stands back for one thread: that one has the role now, or has given up. */
static void turn_passed(tws_conn *c, bool taken)
{
    struct conn_queue *q = conn_queue(c);

    if (!q)
        return;
    q->yield = false;
    if (!taken)
        conn_queue_start_locked(c);
}

tws_err conn_turn_take(tws_conn *c, enum conn_turn turn, struct conn_wait *w)
{
    struct queue_turn t = {.turn = turn};
    bool wait;
    tws_err err = TWS_OK;

    pthread_mutex_lock(&c->mu);
    if (conn_queue(c))
        t.seq = conn_queue(c)->seq;
    for (;;) {
        if (turn == CONN_TURN_CLOSE ? conn_state(c) == CONN_ENDED : conn_state(c) != CONN_OPEN) {
            err = conn_sticky_locked(c);
            break;
        }
        if (turn == CONN_TURN_DATA && conn_own_writer_locked(c)) {
            err = TWS_ERR_STATE;
            break;
        }
        wait = turn_taken(c, turn);
        if (!wait)
            err = turn_after_queue(c, &t, w, &wait);
        if (wait)
            err = turn_wait(c, w, &t);
        if (err || !wait)
            break;
    }
    turn_passed(c, !err);
    pthread_mutex_unlock(&c->mu);
    return err;
}

bool conn_turn_try_locked(tws_conn *c)
{
    if (c->writing || conn_state(c) == CONN_ENDED)
        return false;
    c->writing = true;
    return true;
}

static bool queue_close_frame(tws_conn *c)
{
    uint8_t payload[WIRE_CONTROL_MAX];
    struct wire_frame f = {.opcode = WIRE_CLOSE, .fin = true};
    struct iovec iov = {.iov_base = payload};

    iov.iov_len =
        wire_close_write(payload, c->error.sent_code, c->error.reason, c->error.reason_len);
    f.len = iov.iov_len;
    return conn_out_append(c, &f, &iov, 1);
}

/* Nothing may follow our close frame: it stays behind what is queued. */
static bool close_due(const tws_conn *c)
{
    const struct conn_queue *q = conn_queue(c);

    return c->close_wanted && !c->close_queued && !(q && q->head);
}

void conn_queue_wanted_locked(tws_conn *c)
{
    if (c->pong_wanted && !c->close_queued) {
        struct wire_frame f = {.opcode = WIRE_PONG, .fin = true, .len = c->pong_len};
        struct iovec iov = {.iov_base = c->pong_data, .iov_len = c->pong_len};

        if (conn_out_append(c, &f, &iov, 1)) {
            c->pong_wanted = false;
            CONN_ADD(c->count.pongs_out, 1);
        }
    }
    if (close_due(c) && queue_close_frame(c)) {
        c->close_wanted = false;
        c->close_queued = true;
        c->error.clean = c->peer_closed;
    }
}

/* Sends from `out` what the socket takes. The role is held, mu is not. */
static void push_out(tws_conn *c)
{
    while (conn_out_len(c) > 0) {
        struct iovec iov = {.iov_base = c->out + c->out_begin, .iov_len = conn_out_len(c)};
        ssize_t n = net_stream_send(&c->stream, &iov, 1);

        if (n == -EAGAIN)
            return;
        if (n < 0) {
            conn_io_failed(c, TWS_PHASE_WRITE, (int)n);
            return;
        }
        CONN_COUNT(c->count.wire_out, (uint64_t)n);
        conn_out_sent(c, (uint32_t)n);
    }
}

static bool anything_wanted(const tws_conn *c)
{
    return (c->pong_wanted || close_due(c)) && conn_state(c) != CONN_ENDED;
}

/* There is no memory for `out`: a peer that waits for a control frame need not suffer from that. What
 * the socket does not take at once has nowhere to stay. */
static void push_bare_locked(tws_conn *c)
{
    struct conn_cause cause = {TWS_ERR_RESOURCE, TWS_PHASE_WRITE, TWS_CAUSE_LOCAL, ENOMEM,
                               "no memory for a control frame"};
    uint8_t room[CONN_LENT];

    conn_out_lend(c, room);
    conn_queue_wanted_locked(c);
    pthread_mutex_unlock(&c->mu);
    push_out(c);
    pthread_mutex_lock(&c->mu);
    if (conn_out_len(c) > 0)
        conn_end_locked(c, &cause);
    conn_out_free(c);
}

static void push_wanted_locked(tws_conn *c)
{
    while (anything_wanted(c)) {
        conn_queue_wanted_locked(c);
        if (conn_out_len(c) == 0) {
            push_bare_locked(c);
            return;
        }
        pthread_mutex_unlock(&c->mu);
        push_out(c);
        pthread_mutex_lock(&c->mu);
        if (conn_out_len(c) > 0)
            return; /* the socket is full: what is left goes before the next write */
    }
}

void conn_turn_release_locked(tws_conn *c)
{
    struct conn_queue *q = conn_queue(c);

    if (conn_state(c) == CONN_ENDED)
        conn_out_free(c);
    c->writing = false;
    c->write_blocked = false;
    /* Behind an open writer or a queue the first who waits may be one that cannot go on. */
    if (c->writer || (q && q->asking))
        task_queue_wake_all(&c->turns);
    else
        task_queue_wake_one(&c->turns);
    if (q)
        task_queue_wake_all(&q->work);
}

void conn_turn_give_locked(tws_conn *c)
{
    struct conn_queue *q = conn_queue(c);

    if (!q || !q->head)
        push_wanted_locked(c);
    else /* in passing: a peer that keeps up needs no writer thread */
        conn_queue_push_locked(c, GIVE_ROUNDS, conn_queue_asked_locked(c));
    conn_turn_release_locked(c);
    /* Else the next one does the same; who asked before that push may have given up meanwhile. */
    if (!conn_queue_asked_locked(c))
        conn_queue_start_locked(c);
}

void conn_turn_give(tws_conn *c)
{
    pthread_mutex_lock(&c->mu);
    conn_turn_give_locked(c);
    pthread_mutex_unlock(&c->mu);
}

void conn_kick(tws_conn *c)
{
    struct conn_queue *q;

    pthread_mutex_lock(&c->mu);
    if (conn_turn_try_locked(c)) { /* else whoever has the role sends it */
        q = conn_queue(c);
        if (!q || !q->head) {
            pthread_mutex_unlock(&c->mu);
            push_out(c);
            pthread_mutex_lock(&c->mu);
        }
        conn_turn_give_locked(c);
    }
    if (atomic_load_explicit(&c->env->untold, memory_order_relaxed))
        conn_tell_again(c->env);
    else if (c->hold && !c->writing && conn_out_len(c) == 0 && !conn_queue_stranded(c))
        hold_end(c->hold); /* nothing is left to see to */
    pthread_mutex_unlock(&c->mu);
}
