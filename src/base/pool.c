#include "base/pool.h"

struct free_block {
    struct free_block *next;
};

/* Less than a page is not worth a mapping of its own. */
#define MAP_MIN 4096

static void *block_new(const struct base_pool *p)
{
    return p->block_size < MAP_MIN ? base_alloc(p->allocator, p->block_size)
                                   : base_map(p->allocator, p->block_size);
}

static void block_free(const struct base_pool *p, void *block)
{
    if (p->block_size < MAP_MIN)
        base_free(p->allocator, block);
    else
        base_unmap(p->allocator, block, p->block_size);
}

void base_pool_init(struct base_pool *p, const tws_allocator *a, size_t block_size,
                    uint32_t free_max)
{
    pthread_mutex_init(&p->mu, NULL);
    p->allocator = a;
    p->block_size = block_size;
    p->free_list = NULL;
    p->free_max = free_max;
    p->free_now = 0;
    p->lent = 0;
}

void base_pool_destroy(struct base_pool *p)
{
    struct free_block *block = p->free_list;

    while (block) {
        struct free_block *next = block->next;

        block_free(p, block);
        block = next;
    }
    pthread_mutex_destroy(&p->mu);
}

void *base_pool_get(struct base_pool *p)
{
    struct free_block *block;

    pthread_mutex_lock(&p->mu);
    block = p->free_list;
    if (block) {
        p->free_list = block->next;
        p->free_now--;
    }
    p->lent++;
    pthread_mutex_unlock(&p->mu);
    if (block)
        return block;

    block = block_new(p);
    if (!block) {
        pthread_mutex_lock(&p->mu);
        p->lent--;
        pthread_mutex_unlock(&p->mu);
    }
    return block;
}

void base_pool_put(struct base_pool *p, void *block)
{
    struct free_block *b = block;

    pthread_mutex_lock(&p->mu);
    p->lent--;
    if (p->free_now < p->free_max) {
        b->next = p->free_list;
        p->free_list = b;
        p->free_now++;
        b = NULL;
    }
    pthread_mutex_unlock(&p->mu);
    block_free(p, b);
}

uint32_t base_pool_lent(struct base_pool *p)
{
    uint32_t lent;

    pthread_mutex_lock(&p->mu);
    lent = p->lent;
    pthread_mutex_unlock(&p->mu);
    return lent;
}
