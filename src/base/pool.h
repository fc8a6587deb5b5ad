/*
 * pool.h: blocks of one size, lent and given back, with a bounded number kept for reuse.
 *
 * The block given back last is lent first, while it is still in the cache.
 */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include "base/alloc.h"

#include <pthread.h>

struct base_pool {
    pthread_mutex_t mu;
    const tws_allocator *allocator;
    size_t block_size;
    void *free_list; /* mu */
    uint32_t free_max;
    uint32_t free_now; /* mu */
    uint32_t lent;     /* mu */
};

void base_pool_init(struct base_pool *p, const tws_allocator *a, size_t block_size,
                    uint32_t free_max);
/* All blocks must have been given back. */
void base_pool_destroy(struct base_pool *p);
/* NULL when there is no memory. The bytes are not cleared. */
void *base_pool_get(struct base_pool *p);
void base_pool_put(struct base_pool *p, void *block);
uint32_t base_pool_lent(struct base_pool *p);

#endif
