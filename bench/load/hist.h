#ifndef LOAD_HIST_H
#define LOAD_HIST_H

#include <stdatomic.h>
#include <stdint.h>

/*
 * A counter with one writing thread and any number of reading ones. The writer needs no locked
 * instruction: a relaxed load and store are plain moves.
 */
typedef _Atomic uint64_t counter;

static inline uint64_t counter_get(const counter *c)
{
    return atomic_load_explicit(c, memory_order_relaxed);
}

static inline void counter_add(counter *c, uint64_t n)
{
    atomic_store_explicit(c, counter_get(c) + n, memory_order_relaxed);
}

static inline void counter_set(counter *c, uint64_t n)
{
    atomic_store_explicit(c, n, memory_order_relaxed);
}

/*
 * Log-linear histogram: 128 cells in each power of two, so a cell is at most 1/128 of its value wide and its
 * middle is at most 0.4 % from any value in it. Values under 256 are exact; values over 2^44 ns
 * (4.9 hours) fall into the last cell. Minimum and maximum are kept exactly.
 */
#define HIST_SUB_BITS 7
#define HIST_TOP_BITS 44
#define HIST_CELLS ((HIST_TOP_BITS - HIST_SUB_BITS + 1) << HIST_SUB_BITS)

struct hist {
    counter min; /* plus one, so that a zeroed histogram is an empty one */
    counter max;
    counter sum;
    counter cells[HIST_CELLS];
};

static inline unsigned hist_cell(uint64_t v)
{
    if (v >> HIST_TOP_BITS)
        v = (UINT64_C(1) << HIST_TOP_BITS) - 1;
    if (v < (2U << HIST_SUB_BITS))
        return (unsigned)v;
    unsigned shift = 63U - (unsigned)__builtin_clzll(v) - HIST_SUB_BITS;
    return (shift << HIST_SUB_BITS) + (unsigned)(v >> shift);
}

static inline void hist_add(struct hist *h, uint64_t v)
{
    counter_add(&h->cells[hist_cell(v)], 1);
    counter_add(&h->sum, v);
    if (v > counter_get(&h->max))
        counter_set(&h->max, v);
    uint64_t min = counter_get(&h->min);
    if (min == 0 || v < min - 1)
        counter_set(&h->min, v + 1);
}

/* The same value n times. */
void hist_add_n(struct hist *h, uint64_t v, uint64_t n);

/* Adds src to dst; src may be written meanwhile. */
void hist_merge(struct hist *dst, const struct hist *src);

/* dst = now - before, cell by cell; minimum and maximum become those of the cells. */
void hist_difference(struct hist *dst, const struct hist *now, const struct hist *before);

void hist_clear(struct hist *h);
uint64_t hist_count(const struct hist *h);

/* The first value of a cell. */
uint64_t hist_cell_start(unsigned cell);

/* Value of rank ceil(q * count), 0 < q <= 1; 0 when empty. */
uint64_t hist_quantile(const struct hist *h, double q);
uint64_t hist_min(const struct hist *h);
uint64_t hist_max(const struct hist *h);
double hist_mean(const struct hist *h);

#endif
