/* Messages that are written in pieces. */
#include "conn/codec.h"
#include "conn/pieces.h"

#include <string.h>

/* A gathered fragment. */
#define WRITER_FRAGMENT CONN_BUFFER

struct tws_writer {
    tws_conn *conn;
    uint64_t total;
    uint64_t packed; /* compressed bytes that have left */
    uint64_t threshold;
    size_t fill;
    struct wire_utf8 utf8;
    tws_opcode opcode;
    bool gathering; /* the message is compressed if it reaches the threshold */
    bool begun;     /* the first fragment has left */
    tws_err err;    /* what makes the message impossible to end */
    uint8_t *buf;
    struct zstream *packer; /* NULL: uncompressed, so far */
};

/* Only one message at a time can be between its first and last frame. */
tws_err conn_writer_claim(tws_conn *c, void *who)
{
    struct conn_wait w = conn_write_wait(c);
    tws_err err = conn_turn_take(c, CONN_TURN_DATA, &w);

    if (err)
        return err;
    pthread_mutex_lock(&c->mu);
    /* Closing drops what would wait behind an open message: it has to see this one, or this it. */
    if (conn_state(c) == CONN_OPEN) {
        c->writer = who;
        c->writer_owner = task_self();
    } else {
        err = conn_sticky_locked(c);
    }
    conn_turn_give_locked(c);
    pthread_mutex_unlock(&c->mu);
    return err;
}

void conn_writer_unclaim(tws_conn *c)
{
    bool queued;

    pthread_mutex_lock(&c->mu);
    c->writer = NULL;
    c->writer_owner = 0;
    task_queue_wake_all(&c->turns);
    queued = conn_queue_waiting_locked(c);
    pthread_mutex_unlock(&c->mu);
    if (queued)
        conn_kick(c);
}

static void writer_free(tws_writer *w)
{
    base_pool_put(&w->conn->env->buffers, w->buf);
    base_free(w->conn->env->allocator, w);
}

static tws_err writer_new(tws_conn *c, tws_opcode opcode, tws_compression mode, tws_writer **out)
{
    tws_writer *w = base_calloc(c->env->allocator, sizeof *w);

    if (!w)
        return TWS_ERR_MEMORY;
    w->buf = base_pool_get(&c->env->buffers);
    if (!w->buf) {
        base_free(c->env->allocator, w);
        return TWS_ERR_MEMORY;
    }
    w->conn = c;
    w->opcode = opcode;
    if (conn_deflate_wanted(c, mode, UINT64_MAX)) {
        w->gathering = true;
        w->threshold = conn_deflate_threshold(c, mode);
        if (w->threshold > WRITER_FRAGMENT)
            w->threshold = WRITER_FRAGMENT;
    }
    *out = w;
    return TWS_OK;
}

tws_err tws_next_writer(tws_conn *c, tws_opcode opcode, tws_writer **out)
{
    return tws_next_writer_as(c, opcode, conn_deflate_mode(c), out);
}

tws_err tws_next_writer_as(tws_conn *c, tws_opcode opcode, tws_compression mode, tws_writer **out)
{
    tws_writer *w;
    tws_err err;

    *out = NULL;
    if ((opcode != TWS_TEXT && opcode != TWS_BINARY) || mode < TWS_COMPRESS_AUTO ||
        mode > TWS_COMPRESS_ALWAYS)
        return TWS_ERR_ARGUMENT;
    err = writer_new(c, opcode, mode, &w);
    if (err)
        return err;
    err = conn_writer_claim(c, w);
    if (err) {
        writer_free(w);
        return err;
    }
    tws_conn_ref(c);
    *out = w;
    return TWS_OK;
}

/* Sends a fragment. A timeout before its first byte leaves everything as it was. */
static tws_err writer_fragment(tws_writer *w, const void *data, size_t len, bool fin)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
    struct conn_deflated all = {.len = (size_t)w->packed + len, .original = w->total};
    struct conn_outgoing o = {
        .frame = {.opcode = w->begun ? WIRE_CONT : (uint8_t)w->opcode, .fin = fin, .len = len},
        .iov = &iov,
        .count = len > 0,
        .payload = len,
        .ms = conn_timeout(w->conn, TWS_TIMEOUT_WRITE)};
    tws_err err;

    if (w->packer) {
        o.frame.rsv = w->begun ? 0 : WIRE_RSV1;
        o.payload = fin ? w->total : 0;
        o.as = fin ? &all : NULL;
    }
    err = conn_write_frame(w->conn, &o, CONN_TURN_WRITER);
    if (!err) {
        w->begun = true;
        w->packed += len;
    }
    return err;
}

/* ---- Uncompressed ---- */

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

/* ---- Compressed ---- */

/*
 * Compresses into the buffer, which leaves as a fragment whenever it is full. The last bytes stay
 * behind: if they turn out to be the tail they are cut.
 */
static tws_err writer_pack(tws_writer *w, const void *data, size_t len, bool end)
{
    tws_err err;

    zstream_feed(w->packer, data, len);
    for (;;) {
        size_t room = WRITER_FRAGMENT - w->fill;
        size_t made = zstream_pack(w->packer, w->buf + w->fill, room, end);

        w->fill += made;
        if (made < room)
            return TWS_OK;
        err = writer_fragment(w, w->buf, w->fill - CODEC_TAIL_SIZE, false);
        if (err)
            return err;
        memcpy(w->buf, w->buf + w->fill - CODEC_TAIL_SIZE, CODEC_TAIL_SIZE);
        w->fill = CODEC_TAIL_SIZE;
    }
}

/* The message has reached the threshold: what has been gathered is compressed into a buffer of its
 * own, which takes the place of the first. */
static tws_err writer_begin_packing(tws_writer *w)
{
    struct base_pool *pool = &w->conn->env->buffers;
    uint8_t *gathered = w->buf;
    uint8_t *buf = base_pool_get(pool);
    size_t len = w->fill;
    tws_err err;

    w->packer = buf ? conn_deflate_open(w->conn) : NULL;
    if (!w->packer) {
        if (buf)
            base_pool_put(pool, buf);
        return TWS_ERR_MEMORY;
    }
    w->buf = buf;
    w->fill = 0;
    err = writer_pack(w, gathered, len, false);
    base_pool_put(pool, gathered);
    return err;
}

static tws_err writer_compress(tws_writer *w, const uint8_t *data, size_t len)
{
    tws_err err = TWS_OK;

    if (w->gathering) {
        if (len == 0 || w->fill + len < w->threshold) {
            if (len > 0)
                memcpy(w->buf + w->fill, data, len);
            w->fill += len;
            return TWS_OK;
        }
        w->gathering = false;
        err = writer_begin_packing(w);
        if (err && !w->packer) /* no memory: it leaves as it is */
            return writer_append(w, data, len);
    }
    while (!err && len > 0) {
        size_t n = len < UINT32_MAX / 2 ? len : UINT32_MAX / 2;

        err = writer_pack(w, data, n, false);
        data += n;
        len -= n;
    }
    return err;
}

static tws_err writer_pack_end(tws_writer *w)
{
    tws_err err = writer_pack(w, "", 0, true);

    return err ? err : writer_fragment(w, w->buf, w->fill - CODEC_TAIL_SIZE, true);
}

/* ---- For files ---- */

tws_err conn_writer_flush(tws_writer *w)
{
    if (w->err || w->fill == 0 || w->gathering || w->packer)
        return w->err;
    w->err = writer_fragment(w, w->buf, w->fill, false);
    if (!w->err)
        w->fill = 0;
    return w->err;
}

void conn_writer_fail(tws_writer *w, tws_err err)
{
    if (!w->err)
        w->err = err;
}

/* ---- The caller's ---- */

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
    if (w->gathering || w->packer)
        return w->err = writer_compress(w, data, len);
    return w->err = writer_append(w, data, len);
}

tws_err tws_writer_close(tws_writer *w)
{
    tws_conn *c = w->conn;
    tws_err err = w->err;

    if (!err && w->opcode == TWS_TEXT && c->check_utf8 && !wire_utf8_complete(&w->utf8))
        err = TWS_ERR_TEXT;
    if (!err)
        err = w->packer ? writer_pack_end(w) : writer_fragment(w, w->buf, w->fill, true);
    /* The peer waits for the rest of a message that will never come. Before others may write: a
     * message of theirs would stand between the fragments. */
    if (err && w->begun) {
        tws_close_start(c, TWS_CLOSE_INTERNAL_ERROR, "message abandoned");
        if (err == TWS_ERR_TIMEOUT)
            err = TWS_ERR_STALLED; /* the connection does not go on */
    }
    if (w->packer)
        conn_deflate_close(c, w->packer, !err);
    conn_writer_unclaim(c);
    writer_free(w);
    tws_conn_unref(c);
    return err;
}
