/* Compressing messages (RFC 7692 section 7.2.1), by who writes them. */
#include "conn/codec.h"
#include "conn/zstream_z.h"

#include "base/clock.h"

#include <string.h>

/* Of a large message so much is tried first, unless later messages refer to it. */
#define TRIAL_BYTES ((size_t)64 * 1024)
/* A compressor that nobody has used for so long goes back to the system. */
#define POOL_IDLE_NS BASE_NS_PER_S

static const uint8_t tail[CODEC_TAIL_SIZE] = {0x00, 0x00, 0xff, 0xff};

/* ---- Compressors ---- */

static void set_memory(_Atomic uint32_t *memory, size_t bytes)
{
    atomic_store_explicit(memory, (uint32_t)bytes, memory_order_relaxed);
}

/* Puts what has been sent last away and gives the compressor back, or frees it. */
static void put_away(tws_conn *c, struct zstream *s, bool idle)
{
    struct conn_deflate *d = c->deflate;

    /* Without memory it is forgotten: what comes then refers to nothing, which is always right. */
    if (!zstream_save(s, &d->out_past) && d->out_past)
        d->out_past->len = 0;
    set_memory(&d->out_memory, d->out_past ? d->out_past->cap : 0);
    d->out = NULL;
    if (idle)
        zstream_drop(&c->env->codec->out, s);
    else
        zstream_put(&c->env->codec->out, s);
}

struct zstream *conn_deflate_open(tws_conn *c)
{
    struct conn_deflate *d = c->deflate;
    struct zstream *s = d->out;

    if (s)
        return s;
    s = zstream_get(&c->env->codec->out, d->out_bits);
    if (s && d->out_takeover) {
        zstream_load(s, d->out_past);
        d->out = s;
        set_memory(&d->out_memory, zstream_size(s) + (d->out_past ? d->out_past->cap : 0));
    }
    return s;
}

void conn_deflate_close(tws_conn *c, struct zstream *s, bool sent)
{
    struct conn_deflate *d = c->deflate;

    if (!sent)
        zstream_abandon(s);
    if (!d->out_takeover) {
        zstream_put(&c->env->codec->out, s);
        return;
    }
    if (!sent)
        conn_deflate_reset(c);
    if (d->out_bits <= CODEC_WINDOW_BITS) {
        put_away(c, s, false);
        return;
    }
    base_free(c->env->allocator, d->out_past);
    d->out_past = NULL;
    set_memory(&d->out_memory, zstream_size(s));
}

void conn_deflate_reset(tws_conn *c)
{
    struct conn_deflate *d = c->deflate;

    if (!d)
        return;
    if (d->out)
        zstream_reset(d->out);
    if (d->out_past)
        d->out_past->len = 0;
}

bool conn_deflate_warm(const tws_conn *c)
{
    const struct conn_deflate *d = c->deflate;

    return d && (d->used || (d->out_takeover && d->out_bits > CODEC_WINDOW_BITS &&
                             atomic_load_explicit(&d->out_memory, memory_order_relaxed) >
                                 ((uint32_t)1 << d->out_bits)));
}

void conn_deflate_idle(tws_conn *c)
{
    struct conn_deflate *d = c->deflate;
    int64_t before = base_clock_coarse_ns() - POOL_IDLE_NS;
    bool mine;

    if (!d)
        return;
    if (conn_deflate_warm(c)) {
        pthread_mutex_lock(&c->mu);
        mine = conn_state(c) == CONN_OPEN && !c->writer && conn_turn_try_locked(c);
        pthread_mutex_unlock(&c->mu);
        if (mine) {
            if (d->out)
                put_away(c, d->out, true);
            conn_turn_give(c);
        }
    }
    d->used = false;
    zstream_pool_trim(&c->env->codec->out, before);
    zstream_pool_trim(&c->env->codec->in, before);
}

/* ---- Into a buffer ---- */

/* A buffer that grows up to `max`. */
struct sink {
    struct conn_env *env;
    struct conn_deflated *d;
    size_t max;
};

enum outcome { PACKED, NOT_SMALLER, NO_MEMORY };

static bool sink_first(struct sink *out)
{
    struct conn_deflated *d = out->d;
    uint8_t *base = base_pool_get(&out->env->buffers);

    if (!base)
        return false;
    d->data = base + CONN_DEFLATED_ROOM;
    d->pooled = true;
    d->cap = CONN_BUFFER - CONN_DEFLATED_ROOM;
    return true;
}

static bool sink_grow(struct sink *out)
{
    struct conn_deflated *d = out->d;
    size_t cap = d->cap * 2 < out->max ? d->cap * 2 : out->max;
    uint8_t *old = d->data - CONN_DEFLATED_ROOM;
    uint8_t *base =
        base_resize(out->env->allocator, d->pooled ? NULL : old, cap + CONN_DEFLATED_ROOM);

    if (!base)
        return false;
    if (d->pooled) {
        memcpy(base + CONN_DEFLATED_ROOM, d->data, d->len);
        base_pool_put(&out->env->buffers, old);
        d->pooled = false;
    }
    d->data = base + CONN_DEFLATED_ROOM;
    d->cap = cap;
    return true;
}

/* Compresses some bytes. zlib is done when it leaves room in the buffer. */
static enum outcome pack(z_stream *z, struct sink *out, const void *data, size_t len, int flush)
{
    struct conn_deflated *d = out->d;

    z->next_in = (void *)(uintptr_t)data;
    z->avail_in = (uInt)len;
    do {
        if (d->len == (d->cap < out->max ? d->cap : out->max)) {
            if (d->len == out->max)
                return NOT_SMALLER;
            if (!sink_grow(out))
                return NO_MEMORY;
        }
        size_t room = (d->cap < out->max ? d->cap : out->max) - d->len;

        z->next_out = d->data + d->len;
        z->avail_out = (uInt)(room < UINT32_MAX ? room : UINT32_MAX);
        deflate(z, flush);
        d->len = (size_t)(z->next_out - d->data);
    } while (z->avail_out == 0);
    return PACKED;
}

/* One piece of a message, in parts that zlib can count. */
static enum outcome pack_piece(z_stream *z, struct sink *out, const struct iovec *piece)
{
    const uint8_t *data = piece->iov_base;
    size_t left = piece->iov_len;
    bool whole = out->max == SIZE_MAX;
    enum outcome r = PACKED;

    while (left > 0 && !r) {
        size_t n = left < TRIAL_BYTES || whole ? left : TRIAL_BYTES;

        if (n > UINT32_MAX / 2)
            n = UINT32_MAX / 2;
        r = pack(z, out, data, n, Z_NO_FLUSH);
        data += n;
        left -= n;
        /* Random or compressed data shows at once; the rest of it is not worth the time. */
        if (!r && !whole && left > TRIAL_BYTES && out->d->len > 0 && z->total_in == TRIAL_BYTES &&
            out->d->len > TRIAL_BYTES - TRIAL_BYTES / 64)
            return NOT_SMALLER;
    }
    return r;
}

/* Compresses a message with a stream. `must`: also when that makes it larger. */
static tws_err pack_message(struct conn_env *env, struct zstream *s, const struct iovec *iov,
                            int count, bool must, struct conn_deflated *d)
{
    struct sink out = {.env = env, .d = d, .max = SIZE_MAX};
    enum outcome r = PACKED;

    if (!must) /* with the tail, which will be cut, less than the original */
        out.max = (size_t)d->original + CODEC_TAIL_SIZE - 1;
    if (!sink_first(&out))
        return TWS_ERR_MEMORY;
    for (int i = 0; i < count && !r; i++)
        if (iov[i].iov_len > 0)
            r = pack_piece(&s->z, &out, &iov[i]);
    if (!r)
        r = pack(&s->z, &out, "", 0, Z_SYNC_FLUSH);
    if (!r && d->len >= sizeof tail &&
        memcmp(d->data + d->len - sizeof tail, tail, sizeof tail) == 0) {
        d->len -= sizeof tail;
        return TWS_OK;
    }
    zstream_abandon(s);
    conn_deflated_free(env, d);
    return r == NOT_SMALLER ? TWS_OK : TWS_ERR_MEMORY;
}

/* ---- Messages ---- */

static uint64_t sum(const struct iovec *iov, int count)
{
    uint64_t n = 0;

    for (int i = 0; i < count; i++)
        n += iov[i].iov_len;
    return n;
}

tws_err conn_deflate_message_as(tws_conn *c, tws_compression mode, const struct iovec *iov,
                                int count, struct conn_deflated *d)
{
    /* Where later messages refer to this one, it is worth some bytes. */
    bool must = conn_deflate_ordered(c) || conn_deflate_threshold(c, mode) == 0;
    struct zstream *s = conn_deflate_open(c);
    tws_err err;

    memset(d, 0, sizeof *d);
    if (!s)
        return TWS_ERR_MEMORY;
    d->original = sum(iov, count);
    err = pack_message(c->env, s, iov, count, must, d);
    conn_deflate_close(c, s, !err);
    return err;
}

void conn_deflate_count(tws_conn *c, const struct conn_deflated *d)
{
    CONN_COUNT(c->deflate->messages_out, 1);
    CONN_COUNT(c->deflate->original_out, d->original);
    CONN_COUNT(c->deflate->compressed_out, d->len);
}

void conn_deflated_free(struct conn_env *env, struct conn_deflated *d)
{
    if (d->data && d->pooled)
        base_pool_put(&env->buffers, d->data - CONN_DEFLATED_ROOM);
    else if (d->data)
        base_free(env->allocator, d->data - CONN_DEFLATED_ROOM);
    d->data = NULL;
    d->len = d->cap = 0;
}

tws_err conn_deflate_once(struct conn_env *env, struct conn_deflate_form form, const void *data,
                          size_t len, struct conn_deflated *d)
{
    struct codec_env *codec = env->codec;
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
    bool ours =
        codec && codec->out.level == form.level && codec->out.memory_level == form.memory_level;
    struct zstream *s;
    tws_err err;

    memset(d, 0, sizeof *d);
    d->original = len;
    if (len == 0)
        return TWS_OK;
    s = ours ? zstream_get(&codec->out, form.window_bits)
             : zstream_new(env->allocator, form.level, form.memory_level, form.window_bits);
    if (!s)
        return TWS_ERR_MEMORY;
    err = pack_message(env, s, &iov, 1, false, d);
    if (ours)
        zstream_put(&codec->out, s);
    else
        zstream_free(s);
    return err;
}
