/* Sending, by the thread that has the writer's role. */
#include "conn/pieces.h"

#include "base/iov.h"
#include "wire/mask.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

/* Pieces that go into one system call; the first two are `out` and the frame header. */
#define SEND_PIECES 16

/* While the connection closes only the close frame is sent, and the rest of a frame for a peer that
 * has closed: it may read on for that, and whoever finishes the handshake limits the time. */
static bool may_wait_locked(const tws_conn *c, enum conn_turn turn, bool begun)
{
    if (conn_state(c) == CONN_CLOSING)
        return turn == CONN_TURN_CLOSE || (begun && c->peer_closed);
    return conn_state(c) == CONN_OPEN;
}

/* Waits until the peer takes data. The state may change meanwhile. */
static tws_err wait_for_room(tws_conn *c, enum conn_turn turn, bool begun, struct conn_wait *w)
{
    tws_err err = TWS_OK;
    int r;

    if (w->ms == TWS_NOWAIT)
        return TWS_ERR_TIMEOUT;
    pthread_mutex_lock(&c->mu);
    if (may_wait_locked(c, turn, begun))
        c->write_blocked = true;
    else
        err = conn_sticky_locked(c);
    task_queue_wake_all(&c->turns); /* those who do not wait for a blocked writer */
    pthread_mutex_unlock(&c->mu);
    if (err)
        return err;

    r = net_stream_await_send(&c->stream, conn_wait_deadline(w));
    pthread_mutex_lock(&c->mu);
    c->write_blocked = false;
    if (!may_wait_locked(c, turn, begun))
        err = conn_sticky_locked(c);
    pthread_mutex_unlock(&c->mu);
    if (err)
        return err;
    if (r == -ETIMEDOUT)
        return TWS_ERR_TIMEOUT;
    return r < 0 ? conn_io_failed(c, TWS_PHASE_WRITE, r) : TWS_OK;
}

/* A write that had to stop: harmless before the first byte, the end of the connection after it. */
static tws_err give_up(tws_conn *c, tws_err err, bool begun)
{
    struct conn_cause cause = {TWS_ERR_STALLED, TWS_PHASE_WRITE, TWS_CAUSE_TIMEOUT, 0,
                               "the write timeout ran out inside a frame"};

    if (!begun) {
        if (err == TWS_ERR_TIMEOUT)
            CONN_ADD(c->count.timeouts, 1);
        return err;
    }
    if (err != TWS_ERR_TIMEOUT)
        cause = (struct conn_cause){TWS_ERR_CLOSED, TWS_PHASE_CLOSE, TWS_CAUSE_LOCAL, 0,
                                    "a frame was abandoned half-way"};
    conn_end(c, &cause);
    return err == TWS_ERR_TIMEOUT ? TWS_ERR_STALLED : err;
}

/* One batch: at most SEND_PIECES - 1 pieces behind `out`. `begun` tells whether a piece's byte has
 * left, in this batch or an earlier one of the same frame. */
static tws_err send_batch(tws_conn *c, const struct iovec *iov, int count, enum conn_turn turn,
                          struct conn_wait *w, bool *begun)
{
    struct iovec pieces[SEND_PIECES];

    for (int i = 0; i < count; i++)
        pieces[i + 1] = iov[i];
    struct iovec *at = pieces + 1;

    while (count > 0 || conn_out_len(c) > 0) {
        uint32_t held = conn_out_len(c);
        struct iovec *first = at;
        ssize_t n;

        if (held > 0) { /* the slot before `at` is free: it was the spare one, or a sent piece */
            first = at - 1;
            first->iov_base = c->out + c->out_begin;
            first->iov_len = held;
        }
        n = net_stream_send(&c->stream, first, count + (held > 0));
        if (n == -EAGAIN) {
            tws_err err = wait_for_room(c, turn, *begun, w);

            if (err)
                return give_up(c, err, *begun);
            continue;
        }
        if (n < 0)
            return conn_io_failed(c, TWS_PHASE_WRITE, (int)n);
        CONN_COUNT(c->count.wire_out, (uint64_t)n);
        if (held > 0) {
            uint32_t out = (size_t)n < held ? (uint32_t)n : held;

            conn_out_sent(c, out);
            n -= out;
        }
        if (n > 0)
            *begun = true;
        base_iov_advance(&at, &count, (size_t)n);
    }
    return TWS_OK;
}

tws_err conn_send_part(tws_conn *c, const struct iovec *iov, int count, enum conn_turn turn,
                       struct conn_wait *w, bool *begun)
{
    tws_err err;

    do {
        int batch = count < SEND_PIECES - 1 ? count : SEND_PIECES - 1;

        err = send_batch(c, iov, batch, turn, w, begun);
        iov = batch > 0 ? iov + batch : iov; /* NULL when there is no piece */
        count -= batch;
    } while (!err && count > 0);
    return err;
}

/* A client's frame: masked through a borrowed buffer, piece by piece. */
static tws_err send_masked(tws_conn *c, const struct wire_frame *f, const struct iovec *iov,
                           int count, enum conn_turn turn, struct conn_wait *w)
{
    uint8_t *buf = base_pool_get(&c->env->buffers);
    uint64_t offset = 0;
    bool begun = false;
    tws_err err = TWS_OK;
    size_t fill;

    if (!buf)
        return TWS_ERR_MEMORY;
    fill = wire_frame_write(buf, f);
    for (int i = 0; i < count && !err; i++) {
        const uint8_t *data = iov[i].iov_base;
        size_t left = iov[i].iov_len;

        while (left > 0 && !err) {
            size_t n = left < CONN_BUFFER - fill ? left : CONN_BUFFER - fill;

            wire_mask_copy(buf + fill, data, n, f->key, offset);
            fill += n;
            offset += n;
            data += n;
            left -= n;
            if (fill == CONN_BUFFER) {
                struct iovec full = {.iov_base = buf, .iov_len = fill};

                err = conn_send_part(c, &full, 1, turn, w, &begun);
                fill = 0;
            }
        }
    }
    if (!err && fill > 0) {
        struct iovec rest = {.iov_base = buf, .iov_len = fill};

        err = conn_send_part(c, &rest, 1, turn, w, &begun);
    }
    base_pool_put(&c->env->buffers, buf);
    return err;
}

tws_err conn_send_frame(tws_conn *c, struct wire_frame *f, const struct iovec *iov, int count,
                        uint32_t room, enum conn_turn turn, struct conn_wait *w)
{
    uint8_t header[WIRE_FRAME_HEADER_MAX];
    struct iovec pieces[SEND_PIECES];
    bool begun = false;
    tws_err err;
    int batch = count < SEND_PIECES - 2 ? count : SEND_PIECES - 2;

    f->masked = !c->server;
    if (f->masked) {
        if (!conn_mask_key(c, f->key))
            return TWS_ERR_SYSTEM;
        return send_masked(c, f, iov, count, turn, w);
    }
    pieces[0].iov_base = header;
    pieces[0].iov_len = wire_frame_write(header, f);
    if (count == 1 && pieces[0].iov_len <= room) {
        /* One piece costs the system less than two. */
        uint8_t *at = (uint8_t *)iov->iov_base - pieces[0].iov_len;

        memcpy(at, header, pieces[0].iov_len);
        pieces[0].iov_base = at;
        pieces[0].iov_len += iov->iov_len;
        return conn_send_part(c, pieces, 1, turn, w, &begun);
    }
    for (int i = 0; i < batch; i++)
        pieces[i + 1] = iov[i];
    err = conn_send_part(c, pieces, batch + 1, turn, w, &begun);
    if (!err && count > batch)
        err = conn_send_part(c, iov + batch, count - batch, turn, w, &begun);
    return err;
}

tws_err conn_send_file_part(tws_conn *c, int fd, int64_t *offset, size_t len, enum conn_turn turn,
                            struct conn_wait *w, int *error)
{
    ssize_t n;

    *error = 0;
    while ((n = net_stream_send_file(&c->stream, fd, offset, len)) == -EAGAIN) {
        tws_err err = wait_for_room(c, turn, true, w);

        if (err)
            return give_up(c, err, true);
    }
    if (n == -EPIPE || n == -ECONNRESET || n == -TASK_LOST)
        return conn_io_failed(c, TWS_PHASE_WRITE, (int)n);
    if (n > 0)
        CONN_COUNT(c->count.wire_out, (uint64_t)n);
    else
        *error = n < 0 ? (int)-n : ENODATA;
    return TWS_OK;
}

tws_err conn_send_made(tws_conn *c, const struct iovec *iov, int count, enum conn_turn turn,
                       struct conn_wait *w)
{
    bool begun = false;

    return conn_send_part(c, iov, count, turn, w, &begun);
}

tws_err conn_flush(tws_conn *c, enum conn_turn turn, struct conn_wait *w)
{
    bool begun = false;
    tws_err err = conn_turn_take(c, turn, w);

    if (err)
        return err;
    err = conn_send_part(c, NULL, 0, turn, w, &begun);
    conn_turn_give(c);
    return err;
}

/* Whole, and with nothing between that could take long. */
static bool another_ping_waits(const tws_conn *c)
{
    const uint8_t *next = c->in.buf + c->in.rd;
    uint32_t have = conn_input_len(c);

    return have >= 2 && !c->on_ping && !c->on_pong && (next[0] & 0x0f) == WIRE_PING &&
           have >= 2 + (c->server ? 4u : 0u) + (next[1] & 0x7fu);
}

/*
 * The reader answers a ping at once if nobody is sending. Else the thread that is, sends it when
 * its frame is done; of several pings that come meanwhile the last is answered, as RFC 6455 5.5.3
 * allows, so that a peer that floods and does not read costs no memory. A pong with another whole
 * ping right behind it in the input waits for that one's, so that a flood does not cost a system call
 * for each ping. Not with handlers, which may take their time between the two.
 */
tws_err conn_pong(tws_conn *c, const uint8_t *data, size_t len)
{
    bool mine;

    pthread_mutex_lock(&c->mu);
    c->pong_wanted = true;
    c->pong_len = (uint8_t)len;
    if (len > 0)
        memcpy(c->pong_data, data, len);
    if (another_ping_waits(c) && !c->writing && conn_state(c) == CONN_OPEN) {
        conn_queue_wanted_locked(c);
        if (!c->pong_wanted) {
            pthread_mutex_unlock(&c->mu);
            return TWS_OK;
        }
    }
    mine = conn_turn_try_locked(c);
    pthread_mutex_unlock(&c->mu);
    if (mine)
        conn_turn_give(c);
    return TWS_OK;
}
