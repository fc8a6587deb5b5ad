/* An allocator that counts, and fails when told. */
#include "support_counter.h"

#include <stdlib.h>
#include <string.h>

static bool fails(struct counter *k)
{
    long n = atomic_fetch_add(&k->calls, 1);
    long from = atomic_load(&k->fail_from);

    return n >= from && n - from < atomic_load(&k->fail_count);
}

static void *counted_alloc(size_t size, void *arg)
{
    struct counter *k = arg;
    void *p = fails(k) ? NULL : malloc(size);

    if (p)
        atomic_fetch_add(&k->live, 1);
    return p;
}

static void *counted_resize(void *block, size_t size, void *arg)
{
    return fails(arg) ? NULL : realloc(block, size);
}

static void counted_release(void *block, void *arg)
{
    struct counter *k = arg;

    atomic_fetch_sub(&k->live, 1);
    free(block);
}

tws_allocator counter_allocator(struct counter *k)
{
    memset(k, 0, sizeof *k);
    return (tws_allocator){counted_alloc, counted_resize, counted_release, k};
}
