/* The hash table: grows and shrinks a bucket at a time and loses nobody. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/table.h"
#include "rng.h"

#define MANY 5000

struct thing {
    struct base_node node;
    bool in;
    unsigned seen;
};

static bool holds(const struct base_table *t, const struct thing *x)
{
    struct base_node *n = base_table_first(t, x->node.hash);

    while (n && n != &x->node)
        n = base_table_next(n);
    return n != NULL;
}

static void check_walk(const struct base_table *t, struct thing *things)
{
    struct base_node *n = NULL;
    size_t at = 0, seen = 0;

    for (int i = 0; i < MANY; i++)
        things[i].seen = 0;
    while ((n = base_table_walk(t, &at, n))) {
        ((struct thing *)(void *)n)->seen++;
        seen++;
    }
    assert_int_equal(seen, t->count);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(things[i].seen, things[i].in);
}

/* Chains stay short: as many buckets as nodes while it grows, at most twice as many later. */
static void check_shape(const struct base_table *t)
{
    assert_true(t->used >= t->count || t->used == 8);
    assert_true(t->used <= 2 * t->count + 8);
    assert_true(t->used <= t->cap && t->cap <= 4 * t->used + 8);
    assert_true(t->mask + 1 >= t->used && (t->mask + 1) / 2 < t->used);
}

static void random_steps(uint64_t hash_mask)
{
    struct thing *things = calloc(MANY, sizeof *things);
    struct base_key key = {1, 2};
    struct base_table t;
    struct rng rng = {4};

    assert_non_null(things);
    assert_true(base_table_init(&t, NULL));
    for (int i = 0; i < MANY; i++)
        things[i].node.hash = base_hash(&key, &i, sizeof i) & hash_mask;
    /* It fills, empties and fills again. */
    for (int step = 0; step < 12 * MANY; step++) {
        struct thing *x = &things[rng_below(&rng, MANY)];
        bool fill = step / (3 * MANY) % 2 == 0;

        assert_int_equal(holds(&t, x), x->in);
        if (x->in && (!fill || rng_below(&rng, 8) == 0)) {
            base_table_remove(&t, &x->node);
            x->in = false;
        } else if (!x->in && (fill || rng_below(&rng, 8) == 0)) {
            base_table_insert(&t, &x->node);
            x->in = true;
        }
        if (hash_mask == UINT64_MAX)
            check_shape(&t);
        if (step % MANY == 0)
            check_walk(&t, things);
    }
    for (int i = 0; i < MANY; i++)
        if (things[i].in)
            base_table_remove(&t, &things[i].node);
    assert_int_equal(t.count, 0);
    assert_int_equal(t.used, 8);
    base_table_destroy(&t);
    free(things);
}

static void test_random_steps(void **state)
{
    (void)state;
    random_steps(UINT64_MAX);
}

static void test_same_hashes(void **state)
{
    (void)state;
    random_steps(0xff);
}

/* Without memory to grow, it goes on with longer chains. */
static int allowed;

static void *stingy_alloc(size_t size, void *arg)
{
    (void)arg;
    return malloc(size);
}
static void *stingy_resize(void *block, size_t size, void *arg)
{
    (void)arg;
    return allowed-- > 0 ? realloc(block, size) : NULL;
}
static void stingy_release(void *block, void *arg)
{
    (void)arg;
    free(block);
}

static void test_no_memory(void **state)
{
    static const tws_allocator stingy = {stingy_alloc, stingy_resize, stingy_release, NULL};
    static struct thing things[200];
    struct base_key key = {3, 4};
    struct base_table t;

    (void)state;
    for (allowed = 0; allowed < 3; allowed++) {
        int was = allowed;

        assert_true(base_table_init(&t, &stingy));
        for (int i = 0; i < 200; i++) {
            things[i].node.hash = base_hash(&key, &i, sizeof i);
            base_table_insert(&t, &things[i].node);
        }
        assert_int_equal(t.cap, 8 << was);
        for (int i = 0; i < 200; i++)
            assert_true(holds(&t, &things[i]));
        for (int i = 0; i < 200; i++)
            base_table_remove(&t, &things[i].node);
        assert_int_equal(t.used, 8);
        base_table_destroy(&t);
        allowed = was;
    }
}

/* All lengths differ from each other, and from themselves under another key. */
static void test_hash(void **state)
{
    uint64_t seen[65];
    uint8_t zeros[64] = {0};
    /* SipHash-1-3 of 0, 1, 2... under the key 0, 1, 2... */
    const struct base_key key = {UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)};
    const uint8_t counted[15] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};

    (void)state;
    assert_true(base_hash(&key, counted, 0) == UINT64_C(0xabac0158050fc4dc));
    assert_true(base_hash(&key, counted, 1) == UINT64_C(0xc9f49bf37d57ca93));
    assert_true(base_hash(&key, counted, 7) == UINT64_C(0xd3927d989bb11140));
    assert_true(base_hash(&key, counted, 8) == UINT64_C(0x369095118d299a8e));
    assert_true(base_hash(&key, counted, 15) == UINT64_C(0xd320d86d2a519956));
    for (size_t len = 0; len <= 64; len++) {
        struct base_key a = {5, 6}, b = {5, 7};

        seen[len] = base_hash(&a, zeros, len);
        assert_int_equal(seen[len], base_hash(&a, zeros, len));
        assert_int_not_equal(seen[len], base_hash(&b, zeros, len));
        for (size_t i = 0; i < len; i++)
            assert_int_not_equal(seen[i], seen[len]);
        for (size_t i = 0; i < len; i++) { /* every byte counts */
            zeros[i] = 1;
            assert_int_not_equal(base_hash(&a, zeros, len), seen[len]);
            zeros[i] = 0;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_steps),
        cmocka_unit_test(test_same_hashes),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_hash),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
