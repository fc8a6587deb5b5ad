/* The histogram against sorted data, and schedules against counting. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "hist.h"
#include "schedule.h"

enum { SAMPLES = 200000 };

static const double quantiles[] = {0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 0.9999, 1};

static uint64_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 11;
}

static double next_unit(uint64_t *state)
{
    return ((double)next_random(state) + 1) / 9007199254740993.0;
}

static uint64_t draw_uniform(uint64_t *state)
{
    return next_random(state) % 10000000;
}

static uint64_t draw_small(uint64_t *state)
{
    return next_random(state) % 256;
}

static uint64_t draw_log(uint64_t *state) /* every size from 1 ns to hours alike */
{
    return (uint64_t)exp(next_unit(state) * log(1.5e13));
}

static uint64_t draw_tail(uint64_t *state) /* most are fast, a few are awful */
{
    return (uint64_t)(50000 * pow(next_unit(state), -1.2));
}

static uint64_t draw_pause(uint64_t *state) /* a server that stood still for a while */
{
    uint64_t r = next_random(state) % 1000;
    return r < 3 ? 200000000 + next_random(state) % 1000 : 90000 + next_random(state) % 20000;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void check_against_sorted(uint64_t (*draw)(uint64_t *state))
{
    uint64_t *values = malloc(SAMPLES * sizeof *values);
    struct hist *h = calloc(1, sizeof *h);
    uint64_t state = 42;
    double sum = 0;
    assert_non_null(values);
    assert_non_null(h);
    for (size_t i = 0; i < SAMPLES; i++) {
        values[i] = draw(&state);
        sum += (double)values[i];
        hist_add(h, values[i]);
    }
    qsort(values, SAMPLES, sizeof *values, compare);
    assert_int_equal(hist_count(h), SAMPLES);
    assert_int_equal(hist_min(h), values[0]);
    assert_int_equal(hist_max(h), values[SAMPLES - 1]);
    assert_true(fabs(hist_mean(h) - sum / SAMPLES) <= 1e-9 * sum / SAMPLES + 1e-9);
    for (size_t i = 0; i < sizeof quantiles / sizeof *quantiles; i++) {
        size_t rank = (size_t)ceil(quantiles[i] * SAMPLES);
        double exact = (double)values[rank - 1];
        double got = (double)hist_quantile(h, quantiles[i]);
        assert_true(fabs(got - exact) <= 0.008 * exact);
    }
    free(values);
    free(h);
}

static void test_uniform(void **state)
{
    (void)state;
    check_against_sorted(draw_uniform);
}

static void test_small_values_are_exact(void **state)
{
    (void)state;
    check_against_sorted(draw_small);
    struct hist *h = calloc(1, sizeof *h);
    for (uint64_t v = 0; v < 256; v++)
        hist_add(h, v);
    for (unsigned k = 1; k <= 256; k++)
        assert_int_equal(hist_quantile(h, k / 256.0), k - 1);
    free(h);
}

static void test_all_sizes(void **state)
{
    (void)state;
    check_against_sorted(draw_log);
}

static void test_heavy_tail(void **state)
{
    (void)state;
    check_against_sorted(draw_tail);
}

static void test_pause(void **state)
{
    (void)state;
    check_against_sorted(draw_pause);
}

static void test_cells_follow_each_other(void **state)
{
    (void)state;
    for (unsigned c = 0; c < HIST_CELLS; c++) {
        uint64_t start = hist_cell_start(c), next = hist_cell_start(c + 1);
        assert_true(next > start);
        assert_int_equal(hist_cell(start), c);
        assert_int_equal(hist_cell(next - 1), c);
        assert_true((double)(next - 1 - start) <= (double)start / 128);
    }
    assert_int_equal(hist_cell(UINT64_MAX), HIST_CELLS - 1);
}

static void test_empty_and_zero(void **state)
{
    (void)state;
    struct hist *h = calloc(1, sizeof *h);
    assert_int_equal(hist_quantile(h, 0.5), 0);
    assert_int_equal(hist_count(h), 0);
    hist_add(h, 0);
    hist_add(h, 7);
    assert_int_equal(hist_min(h), 0);
    assert_int_equal(hist_max(h), 7);
    assert_int_equal(hist_count(h), 2);
    free(h);
}

static void test_merge_and_difference(void **state)
{
    (void)state;
    struct hist *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b), *d = calloc(1, sizeof *d);
    struct hist *both = calloc(1, sizeof *both);
    uint64_t seed = 7;
    for (int i = 0; i < 5000; i++) {
        uint64_t v = draw_log(&seed);
        hist_add(i % 3 == 0 ? a : b, v);
        hist_add(both, v);
    }
    hist_add_n(a, 123456, 10);
    for (int i = 0; i < 10; i++)
        hist_add(both, 123456);
    hist_merge(d, a);
    hist_merge(d, b);
    assert_memory_equal(d, both, sizeof *d);
    hist_difference(d, both, a);
    assert_int_equal(hist_count(d), hist_count(b));
    for (size_t i = 0; i < sizeof quantiles / sizeof *quantiles; i++) {
        double want = (double)hist_quantile(b, quantiles[i]);
        assert_true(fabs((double)hist_quantile(d, quantiles[i]) - want) <= 0.008 * want + 1);
    }
    free(a);
    free(b);
    free(d);
    free(both);
}

static void test_pace_counts_what_is_due(void **state)
{
    (void)state;
    static const double rates[] = {0.3, 1, 3, 7, 10, 333.3, 500, 99999.9};
    static const unsigned bursts[] = {1, 2, 5, 64};
    for (size_t r = 0; r < sizeof rates / sizeof *rates; r++) {
        for (size_t b = 0; b < sizeof bursts / sizeof *bursts; b++) {
            struct pace p = {bursts[b] / rates[r] * 1e9, bursts[b]};
            uint64_t start = 1000000007;
            assert_int_equal(pace_count(&p, start, start - 1), 0);
            assert_int_equal(pace_count(&p, start, start), bursts[b]);
            for (uint64_t n = 0; n < 2000; n += bursts[b]) {
                uint64_t due = pace_due(&p, start, n);
                assert_int_equal(pace_count(&p, start, due), n + bursts[b]);
                if (n > 0)
                    assert_int_equal(pace_count(&p, start, due - 1), n);
                assert_int_equal(pace_due(&p, start, n + bursts[b] - 1), due);
            }
            /* No drift: after an hour the count is the rate times the time. */
            double hour = (double)pace_count(&p, start, start + UINT64_C(3600000000000));
            assert_true(fabs(hour - rates[r] * 3600) <= bursts[b] + 1e-6 * hour);
        }
    }
}

static void test_heap_sorts(void **state)
{
    (void)state;
    struct heap h;
    uint64_t seed = 3, last = 0;
    assert_int_equal(heap_init(&h, 1000), 0);
    assert_true(heap_next(&h) == UINT64_MAX);
    for (int round = 0; round < 20; round++) {
        while (h.count < 1000) {
            uint64_t due = last + next_random(&seed) % 5000;
            heap_push(&h, due, (void *)(uintptr_t)due);
        }
        for (int i = 0; i < 700; i++) {
            uint64_t due = heap_next(&h);
            assert_true(due >= last);
            assert_int_equal((uintptr_t)heap_pop(&h), due);
            last = due;
        }
    }
    heap_clear(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_small_values_are_exact),
        cmocka_unit_test(test_all_sizes),
        cmocka_unit_test(test_heavy_tail),
        cmocka_unit_test(test_pause),
        cmocka_unit_test(test_cells_follow_each_other),
        cmocka_unit_test(test_empty_and_zero),
        cmocka_unit_test(test_merge_and_difference),
        cmocka_unit_test(test_pace_counts_what_is_due),
        cmocka_unit_test(test_heap_sorts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
