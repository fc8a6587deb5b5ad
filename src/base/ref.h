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

#endif
