#include "hist.h"

#include <math.h>

uint64_t hist_cell_start(unsigned cell)
{
    if (cell < (2U << HIST_SUB_BITS))
        return cell;
    unsigned shift = (cell >> HIST_SUB_BITS) - 1;
    uint64_t mantissa = (cell & ((1U << HIST_SUB_BITS) - 1)) | (1U << HIST_SUB_BITS);
    return mantissa << shift;
}

static uint64_t cell_middle(unsigned cell)
{
    uint64_t start = hist_cell_start(cell);
    return start + (hist_cell_start(cell + 1) - start) / 2;
}

void hist_add_n(struct hist *h, uint64_t v, uint64_t n)
{
    if (n == 0)
        return;
    hist_add(h, v);
    counter_add(&h->cells[hist_cell(v)], n - 1);
    counter_add(&h->sum, v * (n - 1));
}

void hist_clear(struct hist *h)
{
    counter_set(&h->min, 0);
    counter_set(&h->max, 0);
    counter_set(&h->sum, 0);
    for (unsigned i = 0; i < HIST_CELLS; i++)
        counter_set(&h->cells[i], 0);
}

void hist_merge(struct hist *dst, const struct hist *src)
{
    uint64_t min = counter_get(&src->min);
    uint64_t max = counter_get(&src->max);
    if (min != 0 && (counter_get(&dst->min) == 0 || min < counter_get(&dst->min)))
        counter_set(&dst->min, min);
    if (max > counter_get(&dst->max))
        counter_set(&dst->max, max);
    counter_add(&dst->sum, counter_get(&src->sum));
    for (unsigned i = 0; i < HIST_CELLS; i++) {
        uint64_t n = counter_get(&src->cells[i]);
        if (n != 0)
            counter_add(&dst->cells[i], n);
    }
}

void hist_difference(struct hist *dst, const struct hist *now, const struct hist *before)
{
    hist_clear(dst);
    counter_set(&dst->sum, counter_get(&now->sum) - counter_get(&before->sum));
    for (unsigned i = 0; i < HIST_CELLS; i++) {
        uint64_t n = counter_get(&now->cells[i]) - counter_get(&before->cells[i]);
        if (n == 0)
            continue;
        counter_set(&dst->cells[i], n);
        if (counter_get(&dst->min) == 0)
            counter_set(&dst->min, hist_cell_start(i) + 1);
        counter_set(&dst->max, hist_cell_start(i + 1) - 1);
    }
    /* Where the maximum is the run's own, it is known exactly. */
    uint64_t max = counter_get(&now->max);
    if (counter_get(&dst->max) > max)
        counter_set(&dst->max, max);
}

uint64_t hist_count(const struct hist *h)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < HIST_CELLS; i++)
        n += counter_get(&h->cells[i]);
    return n;
}

uint64_t hist_min(const struct hist *h)
{
    uint64_t min = counter_get(&h->min);
    return min != 0 ? min - 1 : 0;
}

uint64_t hist_max(const struct hist *h)
{
    return counter_get(&h->max);
}

double hist_mean(const struct hist *h)
{
    uint64_t n = hist_count(h);
    return n != 0 ? (double)counter_get(&h->sum) / (double)n : 0;
}

uint64_t hist_quantile(const struct hist *h, double q)
{
    uint64_t count = hist_count(h);
    if (count == 0)
        return 0;
    uint64_t rank = (uint64_t)ceil(q * (double)count);
    if (rank < 1)
        rank = 1;
    if (rank >= count)
        return hist_max(h);
    uint64_t seen = 0;
    unsigned cell = 0;
    while (cell < HIST_CELLS - 1 && (seen += counter_get(&h->cells[cell])) < rank)
        cell++;
    uint64_t v = cell_middle(cell);
    if (v > hist_max(h))
        v = hist_max(h);
    return v < hist_min(h) ? hist_min(h) : v;
}
