/* How long tws_reconnect() waits: doubling up to a limit, with full jitter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/reconnect.h"
#include "rng.h"

/* The largest share there is. */
static tws_ms most(const tws_reconnect_options *o, uint32_t n)
{
    tws_ms largest = 0;

    for (uint64_t random = 0; random <= (uint64_t)o->max_delay; random++) {
        tws_ms ms = reconnect_delay(o, n, random);

        assert_true(ms >= 0);
        if (ms > largest)
            largest = ms;
    }
    return largest;
}

static void test_doubles_to_a_limit(void **state)
{
    static const tws_ms expected[] = {50, 50, 100, 200, 400, 700, 700, 700};
    tws_reconnect_options o = {.min_delay = 50, .max_delay = 700};

    (void)state;
    for (uint32_t n = 0; n < sizeof expected / sizeof expected[0]; n++)
        assert_int_equal(most(&o, n), expected[n]);
    assert_int_equal(most(&o, UINT32_MAX), 700);
}

static void test_no_overflow(void **state)
{
    tws_reconnect_options o = {.min_delay = 1, .max_delay = INT64_MAX};

    (void)state;
    assert_int_equal(reconnect_delay(&o, 62, (UINT64_C(1) << 61)), INT64_C(1) << 61);
    assert_int_equal(reconnect_delay(&o, 64, INT64_MAX), INT64_MAX);
    assert_int_equal(reconnect_delay(&o, UINT32_MAX, INT64_MAX), INT64_MAX);
    assert_int_equal(reconnect_delay(&o, UINT32_MAX, UINT64_MAX), INT64_MAX);
}

/* Every share of the whole is as likely as every other. */
static void test_full_jitter(void **state)
{
    tws_reconnect_options o = {.min_delay = 9, .max_delay = 9};
    unsigned hits[10] = {0};
    struct rng rng = {7};

    (void)state;
    for (int i = 0; i < 10000; i++)
        hits[reconnect_delay(&o, 3, rng_next(&rng))]++;
    for (int i = 0; i < 10; i++)
        assert_in_range(hits[i], 800, 1200);
}

static void test_defaults(void **state)
{
    tws_reconnect_options o;

    (void)state;
    tws_reconnect_options_init(&o);
    assert_int_equal(o.size, sizeof o);
    assert_int_equal(o.min_delay, 500);
    assert_int_equal(o.max_delay, 30000);
    assert_int_equal(o.max_attempts, 0);
    assert_int_equal(o.stable_after, 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_doubles_to_a_limit),
        cmocka_unit_test(test_no_overflow),
        cmocka_unit_test(test_full_jitter),
        cmocka_unit_test(test_defaults),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
