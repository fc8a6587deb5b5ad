/* ref.h: reference counts. */
#ifndef BASE_REF_H
#define BASE_REF_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct base_ref {
    _Atomic uint32_t count;
};

static inline void base_ref_init(struct base_ref *r)
{
    atomic_init(&r->count, 1);
}

static inline void base_ref_get(struct base_ref *r)
{
    atomic_fetch_add_explicit(&r->count, 1, memory_order_relaxed);
}

/* True when that was the last one: all writes of the others are visible, and nobody else is left. */
static inline bool base_ref_put(struct base_ref *r)
{
    return atomic_fetch_sub_explicit(&r->count, 1, memory_order_acq_rel) == 1;
}

/* Puts one unless it is the last. False: it is. */
static inline bool base_ref_put_shared(struct base_ref *r)
{
    uint32_t n = atomic_load_explicit(&r->count, memory_order_relaxed);

    while (n > 1)
        if (atomic_compare_exchange_weak_explicit(&r->count, &n, n - 1, memory_order_acq_rel,
                                                  memory_order_relaxed))
            return true;
    return false;
}

#endif
