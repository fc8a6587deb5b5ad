/* Messages and control frames, for the caller. */
#include "conn/codec.h"

#include <tws/wait.h>

#include <string.h>

static bool is_message(tws_opcode opcode)
{
    return opcode == TWS_TEXT || opcode == TWS_BINARY;
}

/* ---- Whole messages ---- */

static bool text_valid(const struct iovec *iov, int count)
{
    struct wire_utf8 u = WIRE_UTF8_INIT;

    for (int i = 0; i < count; i++)
        if (!wire_utf8_feed(&u, iov[i].iov_base, iov[i].iov_len))
            return false;
    return wire_utf8_complete(&u);
}

/* It has been sent or held; the writer's role, or mu while nobody has it. */
static void count_written(tws_conn *c, const struct conn_outgoing *o)
{
    if (o->frame.opcode >= WIRE_CLOSE)
        return;
    if (o->frame.fin)
        CONN_COUNT(c->count.messages_out, 1);
    CONN_COUNT(c->count.bytes_out, o->payload);
    if (o->as)
        conn_deflate_count(c, o->as);
}

/* Whether this is a reply of the thread that reads, which has more whole messages waiting: they
 * will be answered in a moment, and all answers leave in one system call. */
static bool may_hold(tws_conn *c, const struct conn_outgoing *o)
{
    return atomic_load_explicit(&c->reader, memory_order_relaxed) == task_self() && c->hold &&
           c->join && o->frame.len <= CONN_BUFFER / 4 &&
           atomic_load_explicit(&c->msg.more, memory_order_relaxed);
}

/* Holds a reply back. False: send it now. Caller has the writer's role, or mu while nobody has. */
static bool hold_reply(tws_conn *c, const struct conn_outgoing *o)
{
    if (!conn_out_append(c, &o->frame, o->iov, o->count))
        return false;
    CONN_COUNT(c->count.joined, 1);
    count_written(c, o);
    return true;
}

static bool try_hold(tws_conn *c, const struct conn_outgoing *o)
{
    bool held = false;

    if (!may_hold(c, o))
        return false;
    pthread_mutex_lock(&c->mu);
    if (!c->writing && !c->writer && !conn_queue_waiting_locked(c) && conn_state(c) == CONN_OPEN)
        held = hold_reply(c, o);
    pthread_mutex_unlock(&c->mu);
    return held;
}

static tws_err take_turn(tws_conn *c, enum conn_turn turn, struct conn_wait *w)
{
    tws_err err = conn_turn_take(c, turn, w);

    if (err == TWS_ERR_TIMEOUT)
        CONN_ADD(c->count.timeouts, 1);
    return err;
}

tws_err conn_write_frame(tws_conn *c, struct conn_outgoing *o, enum conn_turn turn)
{
    struct conn_wait w = {.ms = o->ms};
    tws_err err = take_turn(c, turn, &w);

    if (err)
        return err;
    err = conn_send_frame(c, &o->frame, o->iov, o->count, o->room, turn, &w);
    if (!err)
        count_written(c, o);
    conn_turn_give(c);
    return err;
}

/* ---- Compressed ---- */

static void take_deflated(struct conn_outgoing *o, const struct conn_deflated *d, struct iovec *iov)
{
    if (!d->data)
        return;
    *iov = (struct iovec){.iov_base = d->data, .iov_len = d->len};
    o->iov = iov;
    o->count = 1;
    o->frame.len = d->len;
    o->frame.rsv = WIRE_RSV1;
    o->room = CONN_DEFLATED_ROOM;
    o->as = d;
}

/* Compressed before the role is taken: several threads may do so at once. */
static tws_err write_apart(tws_conn *c, tws_compression mode, struct conn_outgoing out)
{
    struct conn_outgoing *o = &out;
    struct conn_deflated d;
    struct iovec iov;
    tws_err err = TWS_OK;

    /* Without memory to compress with, it leaves as it is. */
    conn_deflate_message_as(c, mode, o->iov, o->count, &d);
    take_deflated(o, &d, &iov);
    if (!try_hold(c, o))
        err = conn_write_frame(c, o, CONN_TURN_DATA);
    conn_deflated_free(c->env, &d);
    return err;
}

/* Compressed in the order of sending, since each message may refer to those before it. */
static tws_err write_ordered(tws_conn *c, tws_compression mode, struct conn_outgoing out)
{
    struct conn_outgoing *o = &out;
    struct conn_wait w = {.ms = o->ms};
    struct conn_deflated d;
    struct iovec iov;
    tws_err err = take_turn(c, CONN_TURN_DATA, &w);

    if (err)
        return err;
    conn_deflate_message_as(c, mode, o->iov, o->count, &d);
    take_deflated(o, &d, &iov);
    if (!may_hold(c, o) || !hold_reply(c, o)) {
        err = conn_send_frame(c, &o->frame, o->iov, o->count, o->room, CONN_TURN_DATA, &w);
        if (!err)
            count_written(c, o);
        else
            conn_deflate_reset(c);
    }
    conn_turn_give(c);
    conn_deflated_free(c->env, &d);
    return err;
}

static tws_err write_message(tws_conn *c, tws_opcode opcode, tws_compression mode,
                             const struct iovec *iov, int count, tws_ms ms)
{
    struct conn_outgoing o = {
        .frame = {.opcode = (uint8_t)opcode, .fin = true}, .iov = iov, .count = count, .ms = ms};
    uint64_t max = conn_limit(c, TWS_LIMIT_WRITE);

    if (!is_message(opcode))
        return TWS_ERR_ARGUMENT;
    for (int i = 0; i < count; i++) {
        if (!iov[i].iov_base && iov[i].iov_len > 0)
            return TWS_ERR_ARGUMENT;
        if (iov[i].iov_len > INT64_MAX - o.payload)
            return TWS_ERR_MESSAGE_SIZE;
        o.payload += iov[i].iov_len;
    }
    if (max > 0 && o.payload > max)
        return TWS_ERR_MESSAGE_SIZE;
    if (opcode == TWS_TEXT && c->check_utf8 && !text_valid(iov, count))
        return TWS_ERR_TEXT;
    o.frame.len = o.payload;
    if (conn_deflate_wanted(c, mode, o.payload))
        return conn_deflate_ordered(c) ? write_ordered(c, mode, o) : write_apart(c, mode, o);
    if (try_hold(c, &o))
        return TWS_OK;
    if (count == 1)
        o.room = conn_view_room(c, iov->iov_base, iov->iov_len);
    return conn_write_frame(c, &o, CONN_TURN_DATA);
}

tws_err tws_write_message(tws_conn *c, tws_opcode opcode, const void *data, size_t len)
{
    return tws_write_message_as(c, opcode, conn_deflate_mode(c), data, len);
}

tws_err tws_write_message_as(tws_conn *c, tws_opcode opcode, tws_compression mode, const void *data,
                             size_t len)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};

    if (mode < TWS_COMPRESS_AUTO || mode > TWS_COMPRESS_ALWAYS)
        return TWS_ERR_ARGUMENT;
    return write_message(c, opcode, mode, &iov, len > 0, conn_timeout(c, TWS_TIMEOUT_WRITE));
}

tws_err tws_write_message_within(tws_conn *c, tws_opcode opcode, const void *data, size_t len,
                                 tws_ms ms)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};

    if (ms < TWS_NOWAIT)
        return TWS_ERR_ARGUMENT;
    return write_message(c, opcode, conn_deflate_mode(c), &iov, len > 0, ms);
}

tws_err tws_write_text(tws_conn *c, const char *text)
{
    return text ? tws_write_message(c, TWS_TEXT, text, strlen(text)) : TWS_ERR_ARGUMENT;
}

tws_err tws_writev_message(tws_conn *c, tws_opcode opcode, const struct iovec *iov, int count)
{
    if (count < 0 || count > 1024 || (count > 0 && !iov))
        return TWS_ERR_ARGUMENT;
    return write_message(c, opcode, conn_deflate_mode(c), iov, count,
                         conn_timeout(c, TWS_TIMEOUT_WRITE));
}

tws_err tws_flush(tws_conn *c)
{
    struct conn_wait w = conn_write_wait(c);

    return conn_flush(c, CONN_TURN_CONTROL, &w);
}

/* ---- Control frames ---- */

static tws_err write_control(tws_conn *c, enum wire_opcode opcode, const void *data, size_t len,
                             tws_ms ms)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
    struct conn_outgoing o = {.frame = {.opcode = (uint8_t)opcode, .fin = true, .len = len},
                              .iov = &iov,
                              .count = len > 0,
                              .ms = ms};

    if (len > WIRE_CONTROL_MAX)
        return TWS_ERR_CONTROL_SIZE;
    if (!data && len > 0)
        return TWS_ERR_ARGUMENT;
    return conn_write_frame(c, &o, CONN_TURN_CONTROL);
}

static tws_err ping(tws_conn *c, const void *data, size_t len, tws_ms ms)
{
    tws_err err = write_control(c, WIRE_PING, data, len, ms);

    if (!err)
        CONN_ADD(c->count.pings_out, 1);
    return err;
}

tws_err tws_ping(tws_conn *c, const void *data, size_t len)
{
    return ping(c, data, len, conn_timeout(c, TWS_TIMEOUT_WRITE));
}

tws_err tws_ping_within(tws_conn *c, const void *data, size_t len, tws_ms ms)
{
    return ms < TWS_NOWAIT ? TWS_ERR_ARGUMENT : ping(c, data, len, ms);
}

tws_err tws_pong(tws_conn *c, const void *data, size_t len)
{
    tws_err err = write_control(c, WIRE_PONG, data, len, conn_timeout(c, TWS_TIMEOUT_WRITE));

    if (!err)
        CONN_ADD(c->count.pongs_out, 1);
    return err;
}
