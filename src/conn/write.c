/* Messages and control frames, for the caller; and the writer of messages in pieces. */
#include "conn/conn.h"

#include <string.h>

/* A gathered fragment of a streamed message. */
#define WRITER_FRAGMENT 16384

struct tws_writer {
    tws_conn *conn;
    uint64_t total;
    size_t fill;
    struct wire_utf8 utf8;
    tws_opcode opcode;
    bool begun;  /* the first fragment has left */
    tws_err err; /* what makes the message impossible to end */
    uint8_t *buf;
};

static struct conn_wait write_wait(tws_conn *c)
{
    return (struct conn_wait){.ms = conn_timeout(c, TWS_TIMEOUT_WRITE), .deadline = 0};
}

static bool is_message(tws_opcode opcode)
{
    return opcode == TWS_TEXT || opcode == TWS_BINARY;
}

/* ---- Whole messages ---- */

/* Bytes just read and shown to this thread have been checked. */
static bool is_own_view(tws_conn *c, const void *data, size_t len)
{
    return data && atomic_load_explicit(&c->reader, memory_order_relaxed) == task_self() &&
           data == conn_view(c) && len == c->msg.view_len && c->msg.opcode == WIRE_TEXT;
}

static bool text_valid(const struct iovec *iov, int count)
{
    struct wire_utf8 u = WIRE_UTF8_INIT;

    for (int i = 0; i < count; i++)
        if (!wire_utf8_feed(&u, iov[i].iov_base, iov[i].iov_len))
            return false;
    return wire_utf8_complete(&u);
}

/*
 * Holds a reply back while the thread that reads has more whole messages waiting: they will be
 * answered in a moment, and all answers leave in one system call. False: send it now.
 */
static bool hold_reply(tws_conn *c, const struct wire_frame *f, const struct iovec *iov, int count)
{
    bool held = false;

    if (!c->hold || !c->join || f->len > CONN_BUFFER / 4 ||
        !atomic_load_explicit(&c->msg.more, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&c->mu);
    if (!c->writing && !c->writer && conn_state(c) == CONN_OPEN)
        held = conn_out_append(c, f, iov, count);
    if (held) {
        CONN_COUNT(c->count.joined, 1);
        CONN_COUNT(c->count.messages_out, 1);
        CONN_COUNT(c->count.bytes_out, f->len);
    }
    pthread_mutex_unlock(&c->mu);
    return held;
}

static tws_err write_frame(tws_conn *c, struct wire_frame *f, const struct iovec *iov, int count,
                           enum conn_turn turn)
{
    struct conn_wait w = write_wait(c);
    tws_err err = conn_turn_take(c, turn, &w);

    if (err) {
        if (err == TWS_ERR_TIMEOUT)
            CONN_ADD(c->count.timeouts, 1);
        return err;
    }
    err = conn_send_frame(c, f, iov, count, turn, &w);
    if (!err && f->opcode < WIRE_CLOSE) {
        if (f->fin)
            CONN_COUNT(c->count.messages_out, 1);
        CONN_COUNT(c->count.bytes_out, f->len);
    }
    conn_turn_give(c);
    return err;
}

static tws_err write_message(tws_conn *c, tws_opcode opcode, const struct iovec *iov, int count,
                             bool checked)
{
    struct wire_frame f = {.opcode = (uint8_t)opcode, .fin = true};
    uint64_t max = conn_limit(c, TWS_LIMIT_WRITE);

    if (!is_message(opcode))
        return TWS_ERR_ARGUMENT;
    for (int i = 0; i < count; i++) {
        if (!iov[i].iov_base && iov[i].iov_len > 0)
            return TWS_ERR_ARGUMENT;
        if (iov[i].iov_len > INT64_MAX - f.len)
            return TWS_ERR_MESSAGE_SIZE;
        f.len += iov[i].iov_len;
    }
    if (max > 0 && f.len > max)
        return TWS_ERR_MESSAGE_SIZE;
    if (opcode == TWS_TEXT && c->check_utf8 && !checked && !text_valid(iov, count))
        return TWS_ERR_TEXT;
    if (atomic_load_explicit(&c->reader, memory_order_relaxed) == task_self() &&
        hold_reply(c, &f, iov, count))
        return TWS_OK;
    return write_frame(c, &f, iov, count, CONN_TURN_DATA);
}

tws_err tws_write_message(tws_conn *c, tws_opcode opcode, const void *data, size_t len)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};

    return write_message(c, opcode, &iov, len > 0, is_own_view(c, data, len));
}

tws_err tws_write_text(tws_conn *c, const char *text)
{
    return text ? tws_write_message(c, TWS_TEXT, text, strlen(text)) : TWS_ERR_ARGUMENT;
}

tws_err tws_writev_message(tws_conn *c, tws_opcode opcode, const struct iovec *iov, int count)
{
    if (count < 0 || count > 1024 || (count > 0 && !iov))
        return TWS_ERR_ARGUMENT;
    return write_message(c, opcode, iov, count, false);
}

tws_err tws_flush(tws_conn *c)
{
    struct conn_wait w = write_wait(c);

    return conn_flush(c, CONN_TURN_CONTROL, &w);
}

/* ---- Control frames ---- */

static tws_err write_control(tws_conn *c, enum wire_opcode opcode, const void *data, size_t len)
{
    struct wire_frame f = {.opcode = (uint8_t)opcode, .fin = true, .len = len};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};

    if (len > WIRE_CONTROL_MAX)
        return TWS_ERR_CONTROL_SIZE;
    if (!data && len > 0)
        return TWS_ERR_ARGUMENT;
    return write_frame(c, &f, &iov, len > 0, CONN_TURN_CONTROL);
}

tws_err tws_ping(tws_conn *c, const void *data, size_t len)
{
    tws_err err = write_control(c, WIRE_PING, data, len);

    if (!err)
        CONN_ADD(c->count.pings_out, 1);
    return err;
}

tws_err tws_pong(tws_conn *c, const void *data, size_t len)
{
    tws_err err = write_control(c, WIRE_PONG, data, len);

    if (!err)
        CONN_ADD(c->count.pongs_out, 1);
    return err;
}

/* ---- Messages in pieces ---- */

/* Only one message at a time can be between its first and last frame. */
static tws_err writer_claim(tws_conn *c, tws_writer *wr)
{
    struct conn_wait w = write_wait(c);
    tws_err err = conn_turn_take(c, CONN_TURN_DATA, &w);

    if (err)
        return err;
    pthread_mutex_lock(&c->mu);
    c->writer = wr;
    c->writer_owner = task_self();
    pthread_mutex_unlock(&c->mu);
    conn_turn_give(c);
    return TWS_OK;
}

static void writer_unclaim(tws_conn *c)
{
    pthread_mutex_lock(&c->mu);
    c->writer = NULL;
    c->writer_owner = 0;
    task_queue_wake_all(&c->turns);
    pthread_mutex_unlock(&c->mu);
}

tws_err tws_next_writer(tws_conn *c, tws_opcode opcode, tws_writer **out)
{
    const tws_allocator *a = c->env->allocator;
    tws_writer *w;
    tws_err err;

    if (!is_message(opcode))
        return TWS_ERR_ARGUMENT;
    w = base_calloc(a, sizeof *w);
    if (!w)
        return TWS_ERR_MEMORY;
    w->buf = base_pool_get(&c->env->buffers);
    if (!w->buf) {
        base_free(a, w);
        return TWS_ERR_MEMORY;
    }
    w->conn = c;
    w->opcode = opcode;
    err = writer_claim(c, w);
    if (err) {
        base_pool_put(&c->env->buffers, w->buf);
        base_free(a, w);
        return err;
    }
    tws_conn_ref(c);
    *out = w;
    return TWS_OK;
}

/* Sends a fragment. A timeout before its first byte leaves everything as it was. */
static tws_err writer_fragment(tws_writer *w, const void *data, size_t len, bool fin)
{
    struct wire_frame f = {
        .opcode = w->begun ? WIRE_CONT : (uint8_t)w->opcode, .fin = fin, .len = len};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
    tws_err err = write_frame(w->conn, &f, &iov, len > 0, CONN_TURN_WRITER);

    if (!err)
        w->begun = true;
    return err;
}

static tws_err writer_append(tws_writer *w, const uint8_t *data, size_t len)
{
    tws_err err;

    while (len > 0) {
        size_t room = WRITER_FRAGMENT - w->fill;
        size_t n = len < room ? len : room;

        if (w->fill == 0 && len >= WRITER_FRAGMENT)
            return writer_fragment(w, data, len, false);
        memcpy(w->buf + w->fill, data, n);
        w->fill += n;
        data += n;
        len -= n;
        if (w->fill == WRITER_FRAGMENT) {
            err = writer_fragment(w, w->buf, w->fill, false);
            if (err)
                return err;
            w->fill = 0;
        }
    }
    return TWS_OK;
}

tws_err tws_writer_write(tws_writer *w, const void *data, size_t len)
{
    tws_conn *c = w->conn;
    uint64_t max = conn_limit(c, TWS_LIMIT_WRITE);

    if (w->err)
        return w->err;
    if (!data && len > 0)
        return TWS_ERR_ARGUMENT;
    if (max > 0 && (len > max || w->total > max - len))
        return w->err = TWS_ERR_MESSAGE_SIZE;
    if (w->opcode == TWS_TEXT && c->check_utf8 && !wire_utf8_feed(&w->utf8, data, len))
        return w->err = TWS_ERR_TEXT;
    w->total += len;
    /* Part of the piece may be in a fragment already, so it cannot be offered again. */
    return w->err = writer_append(w, data, len);
}

tws_err tws_writer_close(tws_writer *w)
{
    tws_conn *c = w->conn;
    tws_err err = w->err;

    if (!err && w->opcode == TWS_TEXT && c->check_utf8 && !wire_utf8_complete(&w->utf8))
        err = TWS_ERR_TEXT;
    if (!err)
        err = writer_fragment(w, w->buf, w->fill, true);
    /* The peer waits for the rest of a message that will never come. Before others may write: a
     * message of theirs would stand between the fragments. */
    if (err && w->begun)
        tws_close_start(c, TWS_CLOSE_INTERNAL_ERROR, "message abandoned");
    writer_unclaim(c);
    base_pool_put(&c->env->buffers, w->buf);
    base_free(c->env->allocator, w);
    tws_conn_unref(c);
    return err;
}
