/*
 * zstream.h: compressors and decompressors of zlib, lent and given back.
 *
 * A stream costs 40 KiB to inflate and 150 KiB or more to deflate, so connections share them. What
 * a stream knows of earlier messages is taken out before it goes back, where that is needed.
 *
 * Only documented functions of zlib are used: zlib-ng's compatible build does as well. This header
 * does without zlib's, which zstream_z.h includes.
 */
#ifndef CONN_ZSTREAM_H
#define CONN_ZSTREAM_H

#include "base/alloc.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ZSTREAM_BITS_MIN 9
#define ZSTREAM_BITS_MAX 15

struct zstream;

/* Streams of one kind, by window. */
struct zstream_pool {
    pthread_mutex_t mu;
    const tws_allocator *allocator;
    uint8_t level; /* 0: they inflate */
    uint8_t memory_level;
    uint32_t lent;                                                  /* mu */
    uint32_t spare;                                                 /* mu: in the lists */
    int64_t used;                                                   /* mu: coarse clock */
    struct zstream *lists[ZSTREAM_BITS_MAX - ZSTREAM_BITS_MIN + 1]; /* mu */
};

/* Bytes that a connection has sent or received last: at most a window. */
struct zstream_past {
    uint32_t len, cap;
    uint8_t data[];
};

void zstream_pool_init(struct zstream_pool *p, const tws_allocator *a, int level, int memory_level);
/* All streams must have been given back. */
void zstream_pool_destroy(struct zstream_pool *p);
/* A stream at its beginning; NULL when there is no memory. */
struct zstream *zstream_get(struct zstream_pool *p, int bits);
void zstream_put(struct zstream_pool *p, struct zstream *s);
/* The same for one that will not be wanted soon: it is freed. */
void zstream_drop(struct zstream_pool *p, struct zstream *s);
/* Frees spare streams when none has been used since `before` (coarse clock). */
void zstream_pool_trim(struct zstream_pool *p, int64_t before);
uint32_t zstream_pool_count(struct zstream_pool *p);
/* Of a pool's own: what one stream takes, about. */
size_t zstream_size(const struct zstream *s);

/* One outside of any pool; level 0 inflates. */
struct zstream *zstream_new(const tws_allocator *a, int level, int memory_level, int bits);
void zstream_free(struct zstream *s);
/* Back to the beginning, from between two messages. */
void zstream_reset(struct zstream *s);
/* The same for a compressor from anywhere: its reset in zlib-ng (2.1, level 1) forgets to close a
 * block that has begun. */
void zstream_abandon(struct zstream *s);

/* For who compresses piece by piece: gives a compressor up to 2^31 bytes, which stay where they are
 * until zstream_pack() has made less than it had room for. */
void zstream_feed(struct zstream *s, const void *data, size_t len);
/* Compresses into out; how much it made. At the `end` everything comes out, up to a byte's edge. */
size_t zstream_pack(struct zstream *s, uint8_t *out, size_t room, bool end);

/* Copies what the stream knows of earlier bytes, growing *past, which may be NULL. False: there is
 * no memory, and *past is as it was. */
bool zstream_save(struct zstream *s, struct zstream_past **past);
/* Gives it to a stream at its beginning. NULL is fine. */
void zstream_load(struct zstream *s, const struct zstream_past *past);

#endif
