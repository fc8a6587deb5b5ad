#include "conn/zstream_z.h"

#include "base/clock.h"

#include <string.h>

/* Spare streams that a pool keeps: no more calls run at one time on most machines. */
#define SPARE_MAX 16
/* From this on memory is mapped: it goes back to the system, wherever it was allocated. */
#define MAP_MIN 4096
/* In front of each block: its size, and what keeps the alignment that vector code may want. */
#define HEAD 64

/* ---- zlib's memory ---- */

static void *z_alloc(void *allocator, uInt items, uInt size)
{
    size_t n = (size_t)items * size + HEAD;
    uint8_t *block = n < MAP_MIN ? base_alloc(allocator, n) : base_map(allocator, n);

    if (!block)
        return NULL;
    memcpy(block, &n, sizeof n);
    return block + HEAD;
}

static void z_free(void *allocator, void *at)
{
    uint8_t *block = (uint8_t *)at - HEAD;
    size_t n;

    memcpy(&n, block, sizeof n);
    if (n < MAP_MIN)
        base_free(allocator, block);
    else
        base_unmap(allocator, block, n);
}

/* ---- One stream ---- */

struct zstream *zstream_new(const tws_allocator *a, int level, int memory_level, int bits)
{
    struct zstream *s = base_calloc(a, sizeof *s);
    int r;

    if (!s)
        return NULL;
    s->allocator = a;
    s->level = (uint8_t)level;
    s->memory_level = (uint8_t)memory_level;
    s->bits = (uint8_t)bits;
    s->z.zalloc = z_alloc;
    s->z.zfree = z_free;
    s->z.opaque = (void *)(uintptr_t)a;
    r = level > 0 ? deflateInit2(&s->z, level, Z_DEFLATED, -bits, memory_level, Z_DEFAULT_STRATEGY)
                  : inflateInit2(&s->z, -bits);
    if (r != Z_OK) {
        base_free(a, s);
        return NULL;
    }
    return s;
}

void zstream_free(struct zstream *s)
{
    if (!s)
        return;
    if (s->level > 0)
        deflateEnd(&s->z);
    else
        inflateEnd(&s->z);
    base_free(s->allocator, s);
}

void zstream_reset(struct zstream *s)
{
    if (s->level > 0)
        deflateReset(&s->z);
    else
        inflateReset(&s->z);
}

void zstream_abandon(struct zstream *s)
{
    uint8_t dropped[512];

    s->z.next_in = dropped;
    s->z.avail_in = 0;
    do {
        s->z.next_out = dropped;
        s->z.avail_out = sizeof dropped;
        deflate(&s->z, Z_SYNC_FLUSH);
    } while (s->z.avail_out == 0);
    deflateReset(&s->z);
}

size_t zstream_size(const struct zstream *s)
{
    size_t window = (size_t)1 << s->bits;

    /* zconf.h says how much; the last part is the state itself. */
    if (s->level > 0)
        return 4 * window + ((size_t)1 << (s->memory_level + 9)) + 6 * 1024;
    return window + 7 * 1024;
}

/* ---- What it knows of earlier bytes ---- */

static bool past_reserve(const tws_allocator *a, struct zstream_past **past, uint32_t need)
{
    struct zstream_past *p = *past;
    uint32_t cap = p ? p->cap : 512;

    if (p && need <= cap)
        return true;
    while (cap < need)
        cap *= 2;
    p = base_resize(a, p, sizeof *p + cap);
    if (!p)
        return false;
    if (!*past)
        p->len = 0;
    p->cap = cap;
    *past = p;
    return true;
}

bool zstream_save(struct zstream *s, struct zstream_past **past)
{
    uInt n = 0;

    if (s->level > 0)
        deflateGetDictionary(&s->z, NULL, &n);
    else
        inflateGetDictionary(&s->z, NULL, &n);
    if (!past_reserve(s->allocator, past, n))
        return false;
    if (s->level > 0)
        deflateGetDictionary(&s->z, (*past)->data, &n);
    else
        inflateGetDictionary(&s->z, (*past)->data, &n);
    (*past)->len = n;
    return true;
}

void zstream_load(struct zstream *s, const struct zstream_past *past)
{
    if (!past || past->len == 0)
        return;
    if (s->level > 0)
        deflateSetDictionary(&s->z, past->data, past->len);
    else
        inflateSetDictionary(&s->z, past->data, past->len);
}

/* ---- Pools ---- */

void zstream_pool_init(struct zstream_pool *p, const tws_allocator *a, int level, int memory_level)
{
    memset(p, 0, sizeof *p);
    pthread_mutex_init(&p->mu, NULL);
    p->allocator = a;
    p->level = (uint8_t)level;
    p->memory_level = (uint8_t)memory_level;
}

static void free_list(struct zstream *s)
{
    while (s) {
        struct zstream *next = s->next;

        zstream_free(s);
        s = next;
    }
}

/* Takes all spare streams out, as one list. mu is held. */
static struct zstream *take_all_locked(struct zstream_pool *p)
{
    struct zstream *all = NULL;

    for (size_t i = 0; i < sizeof p->lists / sizeof *p->lists; i++) {
        while (p->lists[i]) {
            struct zstream *s = p->lists[i];

            p->lists[i] = s->next;
            s->next = all;
            all = s;
        }
    }
    p->spare = 0;
    return all;
}

void zstream_pool_destroy(struct zstream_pool *p)
{
    free_list(take_all_locked(p));
    pthread_mutex_destroy(&p->mu);
}

struct zstream *zstream_get(struct zstream_pool *p, int bits)
{
    struct zstream **list = &p->lists[bits - ZSTREAM_BITS_MIN];
    struct zstream *s;

    pthread_mutex_lock(&p->mu);
    s = *list;
    if (s) {
        *list = s->next;
        p->spare--;
    }
    p->lent++;
    pthread_mutex_unlock(&p->mu);
    if (s) {
        zstream_reset(s);
        return s;
    }
    s = zstream_new(p->allocator, p->level, p->memory_level, bits);
    if (!s) {
        pthread_mutex_lock(&p->mu);
        p->lent--;
        pthread_mutex_unlock(&p->mu);
    }
    return s;
}

void zstream_put(struct zstream_pool *p, struct zstream *s)
{
    struct zstream **list = &p->lists[s->bits - ZSTREAM_BITS_MIN];
    int64_t now = base_clock_coarse_ns();

    pthread_mutex_lock(&p->mu);
    p->lent--;
    p->used = now;
    if (p->spare < SPARE_MAX) {
        s->next = *list;
        *list = s;
        p->spare++;
        s = NULL;
    }
    pthread_mutex_unlock(&p->mu);
    zstream_free(s);
}

void zstream_drop(struct zstream_pool *p, struct zstream *s)
{
    pthread_mutex_lock(&p->mu);
    p->lent--;
    pthread_mutex_unlock(&p->mu);
    zstream_free(s);
}

void zstream_pool_trim(struct zstream_pool *p, int64_t before)
{
    struct zstream *all = NULL;

    pthread_mutex_lock(&p->mu);
    if (p->used <= before)
        all = take_all_locked(p);
    pthread_mutex_unlock(&p->mu);
    free_list(all);
}

uint32_t zstream_pool_count(struct zstream_pool *p)
{
    uint32_t n;

    pthread_mutex_lock(&p->mu);
    n = p->lent + p->spare;
    pthread_mutex_unlock(&p->mu);
    return n;
}

void zstream_feed(struct zstream *s, const void *data, size_t len)
{
    s->z.next_in = (void *)(uintptr_t)data;
    s->z.avail_in = (uInt)len;
}

size_t zstream_pack(struct zstream *s, uint8_t *out, size_t room, bool end)
{
    s->z.next_out = out;
    s->z.avail_out = (uInt)room;
    deflate(&s->z, end ? Z_SYNC_FLUSH : Z_NO_FLUSH);
    return room - s->z.avail_out;
}
