/* The writer's role: one thread sends at a time, whole frames, in the order of asking. */
#include "conn/conn.h"

#include "wire/close.h"

#include <errno.h>
#include <sys/socket.h>

int64_t conn_wait_deadline(struct conn_wait *w)
{
    if (w->deadline == 0 && w->ms != TWS_NOWAIT)
        w->deadline = task_deadline(w->ms);
    return w->deadline;
}

/* Whether a thread must wait before it may send. mu is held. */
static bool turn_taken(const tws_conn *c, enum conn_turn turn)
{
    if (c->writing)
        return true;
    return turn == CONN_TURN_DATA && c->writer != NULL;
}

static tws_err turn_wait(tws_conn *c, struct conn_wait *w)
{
    /* Without waiting for the peer means: only as long as the other thread makes progress. */
    int64_t deadline = w->ms == TWS_NOWAIT ? TASK_FOREVER : conn_wait_deadline(w);

    if (w->ms == TWS_NOWAIT && (c->write_blocked || (c->writer && !c->writing)))
        return TWS_ERR_TIMEOUT;
    return task_queue_wait(&c->turns, &c->mu, deadline) == -ETIMEDOUT ? TWS_ERR_TIMEOUT : TWS_OK;
}

tws_err conn_turn_take(tws_conn *c, enum conn_turn turn, struct conn_wait *w)
{
    tws_err err = TWS_OK;

    pthread_mutex_lock(&c->mu);
    for (;;) {
        if (turn == CONN_TURN_CLOSE ? conn_state(c) == CONN_ENDED : conn_state(c) != CONN_OPEN) {
            err = conn_sticky_locked(c);
            break;
        }
        if (turn == CONN_TURN_DATA && c->writer && c->writer_owner == task_self()) {
            err = TWS_ERR_STATE;
            break;
        }
        if (!turn_taken(c, turn)) {
            c->writing = true;
            break;
        }
        err = turn_wait(c, w);
        if (err)
            break;
    }
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

/* Puts wanted control frames into `out`. mu is held, and the role. */
static void queue_wanted(tws_conn *c)
{
    if (c->pong_wanted && !c->close_queued) {
        struct wire_frame f = {.opcode = WIRE_PONG, .fin = true, .len = c->pong_len};
        struct iovec iov = {.iov_base = c->pong_data, .iov_len = c->pong_len};

        if (conn_out_append(c, &f, &iov, 1)) {
            c->pong_wanted = false;
            CONN_ADD(c->count.pongs_out, 1);
        }
    }
    if (c->close_wanted && !c->close_queued && queue_close_frame(c)) {
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
    return (c->pong_wanted || c->close_wanted) && conn_state(c) != CONN_ENDED;
}

void conn_turn_give(tws_conn *c)
{
    pthread_mutex_lock(&c->mu);
    while (anything_wanted(c)) {
        queue_wanted(c);
        if (conn_out_len(c) == 0)
            break; /* no memory: the next one tries again */
        pthread_mutex_unlock(&c->mu);
        push_out(c);
        pthread_mutex_lock(&c->mu);
        if (conn_out_len(c) > 0)
            break; /* the socket is full: what is left goes before the next write */
    }
    if (conn_state(c) == CONN_ENDED)
        conn_out_free(c);
    c->writing = false;
    c->write_blocked = false;
    /* Behind an open writer the first in the queue may be one that cannot go on. */
    if (c->writer)
        task_queue_wake_all(&c->turns);
    else
        task_queue_wake_one(&c->turns);
    pthread_mutex_unlock(&c->mu);
}

void conn_kick(tws_conn *c)
{
    bool mine;

    pthread_mutex_lock(&c->mu);
    mine = conn_turn_try_locked(c);
    pthread_mutex_unlock(&c->mu);
    if (!mine)
        return; /* whoever has the role sends it */
    push_out(c);
    conn_turn_give(c);
}
