/*
 * Inflating received messages (RFC 7692 section 7.2.2), by who reads.
 *
 * zlib reads straight from the input buffer, where the frame's payload is unmasked in place, and
 * writes straight to where the message goes. All state is in the connection, so that a read that
 * times out loses nothing. Nothing is ever produced beyond the limit and one byte.
 */
#include "conn/codec.h"
#include "conn/zstream_z.h"

#include <string.h>

/* Messages below this may grow as much as they like. */
#define RATIO_FREE 65536

static const uint8_t tail[CODEC_TAIL_SIZE] = {0x00, 0x00, 0xff, 0xff};

static tws_err fail(tws_conn *c, tws_err code, tws_cause who, uint16_t close_code,
                    const char *detail)
{
    struct conn_cause cause = {code, TWS_PHASE_READ, who, 0, detail};

    return conn_fail(c, &cause, close_code);
}

static tws_err no_memory(tws_conn *c)
{
    return fail(c, TWS_ERR_RESOURCE, TWS_CAUSE_LOCAL, TWS_CLOSE_INTERNAL_ERROR,
                "no memory to inflate with");
}

static tws_err broken(tws_conn *c, const char *detail)
{
    return fail(c, TWS_ERR_DEFLATE, TWS_CAUSE_PEER, TWS_CLOSE_INVALID_PAYLOAD, detail);
}

static void set_memory(struct conn_deflate *d)
{
    size_t n = (d->in ? zstream_size(d->in) : 0) + (d->in_past ? d->in_past->cap : 0);

    atomic_store_explicit(&d->in_memory, (uint32_t)n, memory_order_relaxed);
}

/* ---- A message's beginning and end ---- */

static tws_err begin(tws_conn *c)
{
    struct conn_deflate *d = c->deflate;
    /* zlib may itself have written 9 where it has promised 8. */
    int bits = d->in_bits < ZSTREAM_BITS_MIN ? ZSTREAM_BITS_MIN : d->in_bits;

    d->in = zstream_get(&c->env->codec->in, bits);
    if (!d->in)
        return no_memory(c);
    zstream_load(d->in, d->in_past);
    d->inflated = 0;
    d->tail = sizeof tail;
    d->boundary = true;
    d->pending = false;
    d->used = true;
    set_memory(d);
    return TWS_OK;
}

static tws_err end(tws_conn *c)
{
    struct conn_deflate *d = c->deflate;

    if (d->in_takeover && !zstream_save(d->in, &d->in_past))
        return no_memory(c);
    zstream_put(&c->env->codec->in, d->in);
    d->in = NULL;
    set_memory(d);
    CONN_COUNT(d->messages_in, 1);
    CONN_COUNT(d->compressed_in, c->msg.message_len + c->msg.frame.len);
    CONN_COUNT(d->original_in, d->inflated);
    return conn_frame_ended(c);
}

/* ---- In between ---- */

tws_err conn_inflate_take(tws_conn *c)
{
    struct conn_incoming *m = &c->msg;
    uint64_t left = m->frame.len - m->frame_done;
    uint32_t have = conn_input_len(c) - m->clear;
    uint32_t n = have < left ? have : (uint32_t)left;
    tws_err err = TWS_OK;

    if (n > 0)
        err = conn_frame_payload(c, c->in.buf + c->in.rd + m->clear, n);
    m->clear += n;
    return err;
}

uint32_t conn_inflate_need(const tws_conn *c)
{
    uint64_t n = c->msg.frame.len - c->msg.frame_done + c->msg.clear;

    return n < CONN_BUFFER - 1 ? (uint32_t)n : CONN_BUFFER - 1;
}

/* Looks at what has come out. */
static tws_err judge(tws_conn *c, const uint8_t *data, size_t n)
{
    struct conn_incoming *m = &c->msg;
    struct conn_deflate *d = c->deflate;
    uint64_t max = conn_limit(c, TWS_LIMIT_MESSAGE);
    uint64_t ratio = c->env->codec->opt.max_ratio;

    d->inflated += n;
    if (max > 0 && d->inflated > max) {
        struct conn_excess e = {TWS_ERR_TOO_BIG, CONN_PASSED_MESSAGE, d->inflated, max,
                                "message inflates to more than the limit"};

        return conn_fail_limit(c, &e, TWS_CLOSE_MESSAGE_TOO_BIG);
    }
    if (ratio > 0 && d->inflated > RATIO_FREE &&
        d->inflated / ratio > m->message_len + m->frame_done) {
        struct conn_excess e = {TWS_ERR_TOO_BIG, CONN_PASSED_RATIO, d->inflated,
                                (m->message_len + m->frame_done) * ratio,
                                "message inflates to more than max_ratio allows"};

        return conn_fail_limit(c, &e, TWS_CLOSE_MESSAGE_TOO_BIG);
    }
    if (m->opcode == WIRE_TEXT && c->check_utf8 && !wire_utf8_feed(&m->utf8, data, n))
        return fail(c, TWS_ERR_UTF8, TWS_CAUSE_PEER, TWS_CLOSE_INVALID_PAYLOAD,
                    "text is not valid UTF-8");
    return TWS_OK;
}

/* One call of zlib: how much of the n bytes it has taken. */
static tws_err run(tws_conn *c, const uint8_t *from, size_t n, uint8_t *out, size_t room,
                   size_t *taken, size_t *made)
{
    struct conn_deflate *d = c->deflate;
    z_stream *z = &d->in->z;
    uint64_t max = conn_limit(c, TWS_LIMIT_MESSAGE);
    int r;

    if (max > 0) {
        uint64_t left = max > d->inflated ? max - d->inflated : 0;

        if (room > left) /* one byte more shows that there is more; the largest limit has none */
            room = (size_t)left + 1;
    }
    if (room > UINT32_MAX)
        room = UINT32_MAX;
    z->next_in = (void *)(uintptr_t)from;
    z->avail_in = (uInt)n;
    z->next_out = out;
    z->avail_out = (uInt)room;
    r = inflate(z, Z_SYNC_FLUSH);
    *taken = n - z->avail_in;
    *made = room - z->avail_out;
    d->pending = z->avail_out == 0;
    d->finished = r == Z_STREAM_END;
    if (d->finished) { /* a final block: the peer goes on with a new stream */
        inflateReset(z);
        d->boundary = true;
        d->pending = false;
    } else if (r == Z_OK || r == Z_BUF_ERROR) {
        /* Behind a block, with no bits of the next one (zlib.h on data_type). Called once more with
         * nothing to do there, zlib does not say so again. */
        d->boundary = (z->data_type & 0xff) == 128 || (d->boundary && *taken == 0 && *made == 0);
    } else {
        return r == Z_MEM_ERROR ? no_memory(c) : broken(c, "compressed data is not valid");
    }
    return judge(c, out, *made);
}

/* The bytes that zlib gets next. None: what has to happen first is in *step. */
static size_t next_input(tws_conn *c, const uint8_t **from, enum codec_step *step)
{
    struct conn_incoming *m = &c->msg;
    struct conn_deflate *d = c->deflate;

    *from = tail;
    if (m->clear > 0) {
        *from = c->in.buf + c->in.rd;
        return m->clear;
    }
    *step = CODEC_MORE;
    if (m->frame_done < m->frame.len || !m->frame.fin)
        return 0;
    *step = CODEC_DONE;
    /* While output is held back, it is not known yet where the data ends. */
    if (d->pending)
        return 0;
    /* What ends between two blocks was not cut, or ended by a final block: there is no tail. */
    if (d->boundary && d->tail == sizeof tail)
        return 0;
    *from = tail + sizeof tail - d->tail;
    return d->tail;
}

tws_err conn_inflate(tws_conn *c, uint8_t *out, size_t room, size_t *made, enum codec_step *step)
{
    struct conn_incoming *m = &c->msg;
    struct conn_deflate *d = c->deflate;
    tws_err err = d->in ? TWS_OK : begin(c);

    *made = 0;
    if (!err)
        err = conn_inflate_take(c);
    while (!err) {
        const uint8_t *from;
        size_t taken, n, some;

        n = next_input(c, &from, step);
        if (n == 0 && !d->pending)
            break;
        if (*made == room) {
            *step = CODEC_FULL;
            return TWS_OK;
        }
        err = run(c, from, n, out + *made, room - *made, &taken, &some);
        *made += some;
        if (m->clear > 0) {
            m->clear -= (uint32_t)taken;
            c->in.rd += (uint32_t)taken;
        } else if (n > 0 || d->tail < sizeof tail) { /* what a final block leaves is not needed */
            d->tail = d->finished ? 0 : (uint8_t)(d->tail - taken);
        }
    }
    if (!err && *step == CODEC_DONE)
        err = d->boundary ? end(c) : broken(c, "compressed message ends inside a block");
    else if (!err && m->frame_done == m->frame.len)
        err = conn_frame_ended(c);
    return err;
}
