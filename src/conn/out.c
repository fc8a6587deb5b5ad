/* Bytes that must leave before anything else: held replies, and control frames on their way. */
#include "conn/conn.h"

#include "wire/mask.h"

#include <string.h>

static bool out_reserve(tws_conn *c, size_t need)
{
    uint32_t len = conn_out_len(c);

    if (!c->out) {
        c->out = base_pool_get(&c->env->buffers);
        if (!c->out)
            return false;
        c->out_begin = 0;
    }
    if (need > CONN_BUFFER - len)
        return false;
    if (need > CONN_BUFFER - len - c->out_begin) {
        memmove(c->out, c->out + c->out_begin, len);
        c->out_begin = 0;
    }
    return true;
}

bool conn_out_append(tws_conn *c, const struct wire_frame *f, const struct iovec *iov, int count)
{
    struct wire_frame frame = *f;
    uint8_t *at;
    size_t head, done = 0;

    if (frame.len > CONN_BUFFER - WIRE_FRAME_HEADER_MAX ||
        !out_reserve(c, (size_t)frame.len + WIRE_FRAME_HEADER_MAX))
        return false;
    frame.masked = !c->server;
    if (frame.masked && !conn_mask_key(c, frame.key))
        return false;
    at = c->out + c->out_begin + conn_out_len(c);
    head = wire_frame_write(at, &frame);
    for (int i = 0; i < count; i++) {
        if (frame.masked)
            wire_mask_copy(at + head + done, iov[i].iov_base, iov[i].iov_len, frame.key, done);
        else if (iov[i].iov_len > 0)
            memcpy(at + head + done, iov[i].iov_base, iov[i].iov_len);
        done += iov[i].iov_len;
    }
    if (c->hold && conn_out_len(c) == 0)
        hold_begin(c->env->hold, c->hold);
    atomic_store_explicit(&c->out_len, conn_out_len(c) + (uint32_t)(head + done),
                          memory_order_relaxed);
    return true;
}

void conn_out_sent(tws_conn *c, uint32_t n)
{
    uint32_t left = conn_out_len(c) - n;

    c->out_begin += n;
    atomic_store_explicit(&c->out_len, left, memory_order_relaxed);
    if (left == 0)
        conn_out_free(c);
}

void conn_out_lend(tws_conn *c, uint8_t room[CONN_LENT])
{
    c->out = room;
    c->out_begin = 0;
    c->out_lent = true;
}

void conn_out_free(tws_conn *c)
{
    if (c->out) {
        if (!c->out_lent)
            base_pool_put(&c->env->buffers, c->out);
        c->out_lent = false;
        c->out = NULL;
        if (c->hold)
            hold_end(c->hold);
    }
    c->out_begin = 0;
    atomic_store_explicit(&c->out_len, 0, memory_order_relaxed);
}
