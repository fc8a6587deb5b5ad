/* Compressed messages for the caller: whole ones, streamed ones and those that are skipped. */
#include "conn/codec.h"

#include <string.h>

/* Room for at least one more byte of a compressed message: first in a borrowed buffer, then in one
 * that doubles, up to one byte more than the limit. */
static bool reserve_inflated(tws_conn *c)
{
    struct conn_assembly *w = &c->msg.whole;
    uint64_t max = conn_limit(c, TWS_LIMIT_MESSAGE);
    struct conn_assembly old = *w;
    size_t cap = w->cap * 2;

    if (w->len < w->cap)
        return true;
    if (!w->block) {
        w->block = base_pool_get(&c->env->buffers);
        if (!w->block)
            return false;
        w->block->allocator = c->env->allocator;
        w->cap = CONN_BUFFER - sizeof *w->block - 1;
        return w->pooled = true;
    }
    if (cap > SIZE_MAX / 4)
        return false;
    if (max > 0 && max >= w->len && cap - 1 > max)
        cap = (size_t)max + 1;
    if (!old.pooled)
        return conn_assembly_resize(c, cap);
    *w = (struct conn_assembly){.block = NULL};
    if (!conn_assembly_resize(c, cap)) {
        *w = old;
        return false;
    }
    memcpy(w->block->data, old.block->data, old.len);
    w->len = old.len;
    base_pool_put(&c->env->buffers, old.block);
    return true;
}

/* A whole message in a small frame is inflated when all of it is there, so that nothing is held for
 * a peer that sends it slowly. */
static tws_err await_small_frame(tws_conn *c, int64_t deadline)
{
    struct conn_incoming *m = &c->msg;

    if (!m->frame.fin || m->message_len > 0 || m->frame.len >= CONN_BUFFER || c->deflate->in)
        return TWS_OK;
    for (;;) {
        tws_err err = conn_inflate_take(c);

        if (err || m->frame_done == m->frame.len)
            return err;
        err = conn_frame_slow(c);
        if (!err)
            err = conn_input_fill(c, conn_inflate_need(c), deadline);
        if (err)
            return err;
    }
}

/* Receives what comes next of a compressed message. */
static tws_err receive_compressed(tws_conn *c, int64_t deadline)
{
    tws_err err;

    if (!c->msg.in_frame)
        return conn_next_frame(c, deadline);
    err = conn_input_fill(c, conn_inflate_need(c), deadline);
    return err ? err : conn_frame_slow(c);
}

tws_err conn_read_compressed(tws_conn *c, int64_t deadline)
{
    struct conn_assembly *w = &c->msg.whole;
    enum codec_step step = CODEC_MORE;
    tws_err err = await_small_frame(c, deadline);

    while (!err) {
        size_t made = 0;

        if (c->msg.in_frame) {
            if (!reserve_inflated(c))
                return conn_read_no_memory(c);
            err = conn_inflate(c, w->block->data + w->len, w->cap - w->len, &made, &step);
            w->len += made;
            if (err || step == CODEC_DONE)
                return err;
        }
        if (step == CODEC_MORE)
            err = receive_compressed(c, deadline);
    }
    return err;
}

/* The rest of a compressed message is inflated all the same: later ones may refer to it, and its
 * text is checked. */
tws_err conn_skip_compressed(tws_conn *c, int64_t deadline)
{
    uint8_t *scratch = base_pool_get(&c->env->buffers);
    enum codec_step step = CODEC_MORE;
    tws_err err = TWS_OK;
    size_t made;

    if (!scratch)
        return conn_read_no_memory(c);
    while (!err && step != CODEC_DONE) {
        if (c->msg.in_frame)
            err = conn_inflate(c, scratch, CONN_BUFFER, &made, &step);
        if (!err && step == CODEC_MORE)
            err = receive_compressed(c, deadline);
    }
    base_pool_put(&c->env->buffers, scratch);
    if (!err)
        c->msg.skipping = false;
    return err;
}

/* Some bytes of a compressed message; none when it has ended. */
tws_err conn_stream_compressed(tws_conn *c, uint8_t *buf, size_t size, size_t *n, int64_t deadline)
{
    enum codec_step step = CODEC_MORE;
    tws_err err = TWS_OK;

    while (!err && *n == 0 && step != CODEC_DONE) {
        if (c->msg.in_frame)
            err = conn_inflate(c, buf, size, n, &step);
        if (!err && *n == 0 && step == CODEC_MORE)
            err = receive_compressed(c, deadline);
    }
    if (err)
        *n = 0;
    return err;
}
