/* A connection as a stream of bytes, across the borders of messages. */
#include <tws/stream.h>

#include "conn/codec.h"

#include <string.h>

/* Bytes of one message that tws_stream_write() sends. */
#define STREAM_MESSAGE 65536
#define TERMINATOR_MAX 255

/* What follows each message. */
struct conn_stream {
    uint8_t len;
    char text[];
};

/* ---- Reading ---- */

static size_t take_terminator(tws_conn *c, uint8_t *buf, size_t size)
{
    const struct conn_stream *s = c->bytes;
    uint8_t left = c->msg.owed;
    size_t n = left < size ? left : size;

    memcpy(buf, s->text + s->len - left, n);
    c->msg.owed = (uint8_t)(left - n);
    return n;
}

static bool was_empty(const tws_conn *c)
{
    return (c->msg.compressed ? c->deflate->inflated : c->msg.message_len) == 0;
}

/* Some bytes; none when an empty message came and nothing stands between messages. */
static tws_err read_bytes(tws_conn *c, uint8_t *buf, size_t size, size_t *n, int64_t deadline)
{
    for (;;) {
        bool fresh = !c->msg.streaming;
        tws_err err;

        if (c->bytes && c->msg.owed > 0) {
            *n = take_terminator(c, buf, size);
            return TWS_OK;
        }
        if (fresh && (err = conn_next_reader(c, deadline)))
            return err;
        err = conn_reader_read(c, buf, size, n, deadline);
        if (err || *n > 0)
            return err;
        if (c->bytes) /* the message has ended */
            c->msg.owed = c->bytes->len;
        else if (was_empty(c))
            return TWS_OK;
    }
}

static bool ended_cleanly(tws_conn *c)
{
    bool clean;

    pthread_mutex_lock(&c->mu);
    clean =
        c->error.code == TWS_ERR_PEER_CLOSED && !c->error.cut &&
        (c->error.close_code == TWS_CLOSE_NORMAL || c->error.close_code == TWS_CLOSE_GOING_AWAY ||
         c->error.close_code == TWS_CLOSE_NO_STATUS);
    pthread_mutex_unlock(&c->mu);
    return clean;
}

tws_err tws_stream_read(tws_conn *c, void *buf, size_t size, size_t *n)
{
    int64_t deadline = conn_read_deadline(c);
    tws_err err;

    *n = 0;
    if (size == 0)
        return TWS_ERR_ARGUMENT;
    err = conn_reader_enter(c, deadline);
    if (!err) {
        err = read_bytes(c, buf, size, n, deadline);
        conn_reader_leave(c);
    }
    return err == TWS_ERR_PEER_CLOSED && ended_cleanly(c) ? TWS_OK : err;
}

tws_err tws_stream_join(tws_conn *c, const char *terminator)
{
    size_t len = terminator ? strlen(terminator) : 0;
    struct conn_stream *s = NULL;
    tws_err err;

    if (len > TERMINATOR_MAX)
        return TWS_ERR_ARGUMENT;
    err = conn_reader_claim(c, TASK_NOW);
    if (err)
        return err == TWS_ERR_TIMEOUT ? TWS_ERR_BUSY : err;
    if (terminator) {
        s = base_alloc(c->env->allocator, sizeof *s + len);
        if (!s)
            err = TWS_ERR_MEMORY;
    }
    if (!err) {
        if (s) {
            s->len = (uint8_t)len;
            if (len > 0)
                memcpy(s->text, terminator, len);
        }
        base_free(c->env->allocator, c->bytes);
        c->bytes = s;
        c->msg.owed = 0;
    }
    conn_reader_leave(c);
    return err;
}

/* ---- Writing ---- */

tws_err tws_stream_write(tws_conn *c, const void *data, size_t len, size_t *n)
{
    const uint8_t *at = data;
    size_t done = 0;
    tws_err err = !data && len > 0 ? TWS_ERR_ARGUMENT : TWS_OK;

    while (!err && done < len) {
        size_t piece = len - done < STREAM_MESSAGE ? len - done : STREAM_MESSAGE;

        err = tws_write_message(c, TWS_BINARY, at + done, piece);
        if (!err)
            done += piece;
    }
    if (n)
        *n = done;
    return err;
}

tws_err tws_stream_end(tws_conn *c)
{
    return tws_write_message(c, TWS_BINARY, NULL, 0);
}
