/* Compression of a connection: options, what connections share, what is known about it. */
#include "conn/codec.h"

#include "base/sized.h"

#include <string.h>

#define CHUNK_SIZE 16384
/* For a side that keeps its context: four times smaller costs little, see docs/compression.md. */
#define TAKEOVER_BITS 12
#define DEFAULT_THRESHOLD 512

/* ---- Options ---- */

static bool window_valid(int bits)
{
    return bits == 0 || (bits >= DEFLATE_BITS_MIN_WRITTEN && bits <= DEFLATE_BITS_MAX);
}

/* What is not allowed; NULL when all is well. */
static const char *options_fault(const tws_deflate_options *o)
{
    if (o->level < 1 || o->level > 9)
        return "deflate.level is not between 1 and 9";
    if (o->memory_level < 1 || o->memory_level > 9)
        return "deflate.memory_level is not between 1 and 9";
    if (!window_valid(o->server_max_window_bits))
        return "deflate.server_max_window_bits is not between 9 and 15";
    if (!window_valid(o->client_max_window_bits))
        return "deflate.client_max_window_bits is not between 9 and 15";
    return NULL;
}

tws_err conn_deflate_options(tws_deflate_options *out, const tws_deflate_options *in,
                             const char **what)
{
    tws_deflate_options_init(out);
    *what = "deflate options were not initialised";
    if (in->size < offsetof(tws_deflate_options, memory_level))
        return TWS_ERR_ARGUMENT;
    base_sized_take(out, sizeof *out, in, in->size);
    *what = options_fault(out);
    return *what ? TWS_ERR_ARGUMENT : TWS_OK;
}

static uint8_t window_of(int bits, bool drops)
{
    if (bits > 0)
        return (uint8_t)bits;
    return drops ? DEFLATE_BITS_MAX : TAKEOVER_BITS;
}

bool conn_deflate_want(const struct conn_env *env, bool server, struct deflate_params *want)
{
    const tws_deflate_options *o;

    if (!env->codec)
        return false;
    o = &env->codec->opt;
    want->server_no_takeover = o->server_no_context_takeover;
    want->client_no_takeover = o->client_no_context_takeover;
    /* A server that cannot limit its window would decline: a client asks only when told to. */
    want->server_bits = window_of(o->server_max_window_bits, want->server_no_takeover || !server);
    want->client_bits = window_of(o->client_max_window_bits, want->client_no_takeover);
    return true;
}

size_t conn_deflate_answer(const struct conn_env *env, const struct http_head *head,
                           const uint8_t *buf, struct deflate_params *agreed, char *text)
{
    struct extension_list offers;
    struct deflate_params want;

    if (!conn_deflate_want(env, true, &want))
        return 0;
    extension_list_of_head(&offers, head, buf);
    return deflate_choose(&offers, &want, agreed, text);
}

/* ---- What connections share ---- */

union codec_block {
    struct conn_deflate deflate;
    union codec_block *next;
};

/* Mapped, so that a thread that only receives never enters malloc; see base_map(). */
struct codec_chunk {
    struct codec_chunk *next;
    union codec_block blocks[(CHUNK_SIZE - sizeof(void *)) / sizeof(union codec_block)];
};

bool conn_env_deflate(struct conn_env *env, const tws_deflate_options *opt)
{
    struct codec_env *codec = base_calloc(env->allocator, sizeof *codec);

    if (!codec)
        return false;
    codec->opt = *opt;
    zstream_pool_init(&codec->out, env->allocator, opt->level, opt->memory_level);
    zstream_pool_init(&codec->in, env->allocator, 0, 0);
    pthread_mutex_init(&codec->mu, NULL);
    env->codec = codec;
    return true;
}

void codec_env_free(struct conn_env *env)
{
    struct codec_env *codec = env->codec;

    if (!codec)
        return;
    while (codec->chunks) {
        struct codec_chunk *next = codec->chunks->next;

        base_unmap(env->allocator, codec->chunks, sizeof *codec->chunks);
        codec->chunks = next;
    }
    zstream_pool_destroy(&codec->out);
    zstream_pool_destroy(&codec->in);
    pthread_mutex_destroy(&codec->mu);
    base_free(env->allocator, codec);
}

uint32_t conn_deflate_streams(struct conn_env *env)
{
    if (!env->codec)
        return 0;
    return zstream_pool_count(&env->codec->out) + zstream_pool_count(&env->codec->in);
}

/* A free block; NULL when there is no memory for more of them. */
static union codec_block *take_block_locked(struct conn_env *env)
{
    struct codec_env *codec = env->codec;
    union codec_block *block = codec->blocks;
    struct codec_chunk *chunk;

    if (block) {
        codec->blocks = block->next;
        return block;
    }
    chunk = base_map(env->allocator, sizeof *chunk);
    if (!chunk)
        return NULL;
    chunk->next = codec->chunks;
    codec->chunks = chunk;
    for (size_t i = 1; i < sizeof chunk->blocks / sizeof *chunk->blocks; i++) {
        chunk->blocks[i].next = codec->blocks;
        codec->blocks = &chunk->blocks[i];
    }
    return &chunk->blocks[0];
}

static struct conn_deflate *block_get(struct conn_env *env)
{
    union codec_block *block;

    pthread_mutex_lock(&env->codec->mu);
    block = take_block_locked(env);
    pthread_mutex_unlock(&env->codec->mu);
    return block ? &block->deflate : NULL;
}

static void block_put(struct conn_env *env, struct conn_deflate *d)
{
    union codec_block *block = (void *)d;

    pthread_mutex_lock(&env->codec->mu);
    block->next = env->codec->blocks;
    env->codec->blocks = block;
    pthread_mutex_unlock(&env->codec->mu);
}

/* ---- One connection ---- */

size_t conn_deflate_size(void)
{
    return sizeof(struct conn_deflate);
}

void conn_deflate_start_in(tws_conn *c, const struct deflate_params *agreed, void *mem)
{
    struct conn_deflate *d = mem;

    memset(d, 0, sizeof *d);
    d->out_bits = c->server ? agreed->server_bits : agreed->client_bits;
    d->out_takeover = c->server ? !agreed->server_no_takeover : !agreed->client_no_takeover;
    d->in_bits = c->server ? agreed->client_bits : agreed->server_bits;
    d->in_takeover = c->server ? !agreed->client_no_takeover : !agreed->server_no_takeover;
    d->boundary = true;
    c->deflate = d;
}

bool conn_deflate_start(tws_conn *c, const struct deflate_params *agreed)
{
    struct conn_deflate *d = block_get(c->env);

    if (!d)
        return false;
    conn_deflate_start_in(c, agreed, d);
    d->from_chunk = true;
    return true;
}

void conn_deflate_free(tws_conn *c)
{
    struct conn_deflate *d = c->deflate;

    if (!d)
        return;
    if (d->out)
        zstream_put(&c->env->codec->out, d->out);
    if (d->in)
        zstream_put(&c->env->codec->in, d->in);
    base_free(c->env->allocator, d->out_past);
    base_free(c->env->allocator, d->in_past);
    if (d->from_chunk)
        block_put(c->env, d);
    c->deflate = NULL;
}

tws_err tws_set_compression(tws_conn *c, tws_compression mode)
{
    if (mode < TWS_COMPRESS_AUTO || mode > TWS_COMPRESS_ALWAYS)
        return TWS_ERR_ARGUMENT;
    if (c->deflate)
        atomic_store_explicit(&c->deflate->mode, (uint8_t)mode, memory_order_relaxed);
    return TWS_OK;
}

tws_compression conn_deflate_mode(tws_conn *c)
{
    return c->deflate
               ? (tws_compression)atomic_load_explicit(&c->deflate->mode, memory_order_relaxed)
               : TWS_COMPRESS_NEVER;
}

uint64_t conn_deflate_threshold(tws_conn *c, tws_compression mode)
{
    uint32_t threshold = c->env->codec->opt.threshold;

    if (mode == TWS_COMPRESS_ALWAYS)
        return 0;
    if (threshold == TWS_DEFLATE_AUTO)
        return c->deflate->out_takeover ? 0 : DEFAULT_THRESHOLD;
    return threshold;
}

bool conn_deflate_wanted(tws_conn *c, tws_compression mode, uint64_t len)
{
    const struct conn_deflate *d = c->deflate;

    return d && d->out_bits >= ZSTREAM_BITS_MIN && len > 0 && mode != TWS_COMPRESS_NEVER &&
           len >= conn_deflate_threshold(c, mode);
}

bool conn_deflate_ordered(const tws_conn *c)
{
    return c->deflate && c->deflate->out_takeover;
}

bool conn_deflate_form(const tws_conn *c, struct conn_deflate_form *form)
{
    const struct conn_deflate *d = c->deflate;

    if (!d || d->out_bits < ZSTREAM_BITS_MIN)
        return false;
    *form = (struct conn_deflate_form){.level = c->env->codec->out.level,
                                       .memory_level = c->env->codec->out.memory_level,
                                       .window_bits = d->out_bits};
    return true;
}

static uint64_t load(_Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

bool tws_conn_deflate_sized(tws_conn *c, tws_deflate_info *out, size_t size)
{
    struct conn_deflate *d = c->deflate;
    tws_deflate_info i = {0};

    if (d) {
        i.server_max_window_bits = c->server ? d->out_bits : d->in_bits;
        i.client_max_window_bits = c->server ? d->in_bits : d->out_bits;
        i.server_no_context_takeover = c->server ? !d->out_takeover : !d->in_takeover;
        i.client_no_context_takeover = c->server ? !d->in_takeover : !d->out_takeover;
        i.messages_in = load(&d->messages_in);
        i.messages_out = load(&d->messages_out);
        i.compressed_in = load(&d->compressed_in);
        i.original_in = load(&d->original_in);
        i.original_out = load(&d->original_out);
        i.compressed_out = load(&d->compressed_out);
        i.memory = atomic_load_explicit(&d->out_memory, memory_order_relaxed) +
                   atomic_load_explicit(&d->in_memory, memory_order_relaxed);
    }
    base_sized_give(out, size, &i, sizeof i);
    return d != NULL;
}
