/*
 * How often addresses connect: bursts, refill, and a table that never grows, however many come.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "server/rate_table.h"

static struct net_peer_key key_of(unsigned n)
{
    struct net_peer_key key = {{0}};

    memcpy(key.bytes + 2, &n, sizeof n);
    return key;
}

/* How many of `count` that come at one moment may. */
static unsigned taken(struct rate_table *t, unsigned n, unsigned count, int64_t now, uint32_t burst)
{
    struct net_peer_key key = key_of(n);
    unsigned sum = 0;

    for (unsigned i = 0; i < count; i++)
        sum += rate_table_take(t, &key, now, 10, burst);
    return sum;
}

static void test_burst_and_refill(void **state)
{
    struct rate_table t = {0};
    int64_t now = 5 * BASE_NS_PER_S;

    (void)state;
    assert_int_equal(taken(&t, 1, 1000, now, 10), 1000); /* no table: everybody may */
    assert_true(rate_table_init(&t, NULL));
    assert_int_equal(taken(&t, 1, 1000, now, 20), 20);
    assert_int_equal(taken(&t, 2, 1000, now, 20), 20); /* another address has its own */
    assert_int_equal(taken(&t, 1, 5, now, 20), 0);
    assert_int_equal(taken(&t, 1, 5, now + BASE_NS_PER_S / 10, 20), 1); /* 10 a second come back */
    assert_int_equal(taken(&t, 1, 99, now + BASE_NS_PER_S, 20), 9);
    assert_int_equal(taken(&t, 1, 99, now + 100 * BASE_NS_PER_S, 20),
                     20); /* never more than that */
    rate_table_free(&t, NULL);
}

/* A crowd of addresses costs no memory, and none of them gets more than its burst at a time. */
static void test_many_addresses(void **state)
{
    struct rate_table t = {0};
    int64_t now = 5 * BASE_NS_PER_S;

    (void)state;
    assert_true(rate_table_init(&t, NULL));
    for (unsigned n = 1; n <= 10 * RATE_TABLE_SLOTS; n++) {
        unsigned got = taken(&t, n, 5, now, 3);

        if (got != 3)
            fail_msg("address %u: %u", n, got);
    }
    rate_table_free(&t, NULL);
}

/* One that keeps on is not forgotten because others pass by: its bucket is the emptiest. */
static void test_the_worst_is_remembered(void **state)
{
    struct rate_table t = {0};
    int64_t now = 5 * BASE_NS_PER_S;

    (void)state;
    assert_true(rate_table_init(&t, NULL));
    assert_int_equal(taken(&t, 0, 99, now, 50), 50);
    for (unsigned n = 1; n <= 4 * RATE_TABLE_SLOTS; n++)
        assert_int_equal(taken(&t, n, 1, now, 50), 1);
    assert_int_equal(taken(&t, 0, 99, now, 50), 0);
    rate_table_free(&t, NULL);
}

static void *no_alloc(size_t size, void *arg)
{
    (void)size;
    (void)arg;
    return NULL;
}

static void test_no_memory(void **state)
{
    static const tws_allocator none = {no_alloc, NULL, NULL, NULL};
    struct rate_table t = {0};

    (void)state;
    assert_false(rate_table_init(&t, &none));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_burst_and_refill),
        cmocka_unit_test(test_many_addresses),
        cmocka_unit_test(test_the_worst_is_remembered),
        cmocka_unit_test(test_no_memory),
    };

    return cmocka_run_group_tests_name("server_rate_table", tests, NULL, NULL);
}
