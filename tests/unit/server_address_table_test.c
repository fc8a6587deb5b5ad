/*
 * Counting connections by address: against a plain list, with growth, and without memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "rng.h"
#include "server/address_table.h"

static struct net_peer_key key_of(unsigned n)
{
    struct net_peer_key key = {{0}};

    memcpy(key.bytes, &n, sizeof n);
    return key;
}

static void test_limit(void **state)
{
    struct address_table t = {0};
    struct net_peer_key a = key_of(1), b = key_of(2);

    (void)state;
    assert_true(address_table_init(&t, NULL));
    address_table_remove(&t, &a); /* of an empty table: nothing */
    for (int i = 0; i < 3; i++)
        assert_int_equal(address_table_add(&t, &a, 3), 1);
    assert_int_equal(address_table_add(&t, &a, 3), 0);
    assert_int_equal(address_table_add(&t, &b, 3), 1);
    address_table_remove(&t, &a);
    assert_int_equal(address_table_add(&t, &a, 3), 1);
    assert_int_equal(address_table_add(&t, &a, 3), 0);
    address_table_free(&t);
}

/* A long random history, with the counts kept beside it. */
static void test_against_counts(void **state)
{
    enum { KEYS = 1000, MAX = 4 };
    struct address_table t = {0};
    struct rng rng = {42};
    unsigned count[KEYS] = {0};
    size_t used = 0;

    (void)state;
    assert_true(address_table_init(&t, NULL));
    for (int i = 0; i < 200000; i++) {
        unsigned n = (unsigned)rng_below(&rng, KEYS);
        struct net_peer_key key = key_of(n * 7919);

        if (rng_below(&rng, 2)) {
            int r = address_table_add(&t, &key, MAX);

            assert_int_equal(r, count[n] < MAX);
            used += count[n] == 0;
            count[n] += (unsigned)r;
        } else if (count[n] > 0) {
            address_table_remove(&t, &key);
            used -= --count[n] == 0;
        }
        assert_int_equal(t.entries.count, used);
    }
    for (unsigned n = 0; n < KEYS; n++) {
        struct net_peer_key key = key_of(n * 7919);

        while (count[n]-- > 0)
            address_table_remove(&t, &key);
    }
    assert_int_equal(t.entries.count, 0); /* nothing is kept of those who have gone */
    address_table_free(&t);
}

static int allowed;

static void *scarce_alloc(size_t size, void *arg)
{
    (void)arg;
    return allowed-- > 0 ? malloc(size) : NULL;
}

static void *scarce_resize(void *block, size_t size, void *arg)
{
    (void)arg;
    return allowed-- > 0 ? realloc(block, size) : NULL;
}

static void scarce_release(void *block, void *arg)
{
    (void)arg;
    free(block);
}

static void test_no_memory(void **state)
{
    static const tws_allocator scarce = {scarce_alloc, scarce_resize, scarce_release, NULL};
    struct address_table t = {0};

    (void)state;
    allowed = 0;
    assert_false(address_table_init(&t, &scarce));
    address_table_free(&t);
    allowed = 1;
    assert_true(address_table_init(&t, &scarce));
    for (int n = 0; n < 300; n++) {
        struct net_peer_key key = key_of((unsigned)n);

        allowed = 0;
        assert_int_equal(address_table_add(&t, &key, 1), -1);
        allowed = n % 3 ? 1 : 2; /* for the entry, sometimes for a larger table too */
        assert_int_equal(address_table_add(&t, &key, 1), 1);
        assert_int_equal(address_table_add(&t, &key, 1), 0);
    }
    assert_int_equal(t.entries.count, 300);
    address_table_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_against_counts),
        cmocka_unit_test(test_no_memory),
    };

    return cmocka_run_group_tests_name("server_address_table", tests, NULL, NULL);
}
