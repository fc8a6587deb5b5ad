/*
 * Pseudo-random numbers for tests: the same on every run and every machine (xorshift64*).
 */
#ifndef TESTS_UNIT_RNG_H
#define TESTS_UNIT_RNG_H

#include <stddef.h>
#include <stdint.h>

struct rng {
    uint64_t state; /* not zero */
};

static inline uint64_t rng_next(struct rng *r)
{
    r->state ^= r->state >> 12;
    r->state ^= r->state << 25;
    r->state ^= r->state >> 27;
    return r->state * UINT64_C(2685821657736338717);
}

/* 0 to n - 1; n must not be zero. */
static inline size_t rng_below(struct rng *r, size_t n)
{
    return (size_t)((rng_next(r) >> 16) % n);
}

static inline void rng_fill(struct rng *r, uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)(rng_next(r) >> 32);
}

#endif
