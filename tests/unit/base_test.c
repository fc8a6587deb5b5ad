/*
 * The base layer: the error table, text copies, pools, the allocator hook.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include <tws/error.h>

#include "base/alloc.h"
#include "base/pool.h"
#include "base/random.h"
#include "base/text.h"

/* ---- Errors ---- */

#define COLLECT(name, value, text) {name, #name, text},
static const struct {
    tws_err err;
    const char *name, *text;
} table[] = {TWS_ERROR_MAP(COLLECT)};

static void test_errors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        assert_string_equal(tws_err_name(table[i].err), table[i].name);
        assert_string_equal(tws_err_text(table[i].err), table[i].text);
        assert_int_equal(tws_err_is_final(table[i].err), table[i].err <= -20);
        for (size_t k = 0; k < i; k++) {
            assert_true(table[i].err != table[k].err);
            assert_string_not_equal(table[i].text, table[k].text);
        }
    }
    assert_false(tws_err_is_final(TWS_OK));
    assert_false(tws_err_is_final(TWS_ERR_TIMEOUT));
    assert_false(tws_err_is_final(TWS_ERR_BUSY));
    assert_string_equal(tws_err_name((tws_err)-1000), "TWS_ERR_UNKNOWN");
    assert_string_equal(tws_err_text((tws_err)7), "unknown error");
    assert_string_equal(tws_version(), TWS_VERSION);
}

/* ---- Text and random bytes ---- */

static void test_text_copy(void **state)
{
    char buf[8];

    (void)state;
    assert_int_equal(base_text_copy(buf, sizeof buf, "abc", 3), 3);
    assert_string_equal(buf, "abc");
    assert_int_equal(base_text_copy(buf, 3, "abcdef", 6), 6);
    assert_string_equal(buf, "ab");
    assert_int_equal(base_text_copy(buf, 1, "abc", 3), 3);
    assert_string_equal(buf, "");
    assert_int_equal(base_text_copy(NULL, 0, "abc", 3), 3);
}

static void test_random(void **state)
{
    uint8_t a[64] = {0}, b[64] = {0};

    (void)state;
    assert_true(base_random(a, sizeof a));
    assert_true(base_random(b, sizeof b));
    assert_memory_not_equal(a, b, sizeof a); /* once in 2^512 */
    assert_true(base_random(NULL, 0));
}

/* ---- Allocator and pools ---- */

struct counter {
    int live, calls;
    bool fail;
};

static void *count_alloc(size_t size, void *arg)
{
    struct counter *c = arg;
    void *p = c->fail ? NULL : malloc(size);

    c->calls++;
    c->live += p != NULL;
    return p;
}

static void *count_resize(void *block, size_t size, void *arg)
{
    struct counter *c = arg;

    c->calls++;
    return c->fail ? NULL : realloc(block, size);
}

static void count_release(void *block, void *arg)
{
    struct counter *c = arg;

    c->live--;
    free(block);
}

static void check_alloc(const tws_allocator *a)
{
    char *p = base_calloc(a, 100);
    char *s = base_strdup(a, "text");

    assert_non_null(p);
    for (int i = 0; i < 100; i++)
        assert_int_equal(p[i], 0);
    p[0] = 'x';
    p = base_resize(a, p, 10000);
    assert_non_null(p);
    assert_int_equal(p[0], 'x');
    base_free(a, p);
    p = base_resize(a, NULL, 10);
    assert_non_null(p);
    base_free(a, p);
    assert_string_equal(s, "text");
    base_free(a, s);
    base_free(a, NULL);
    p = base_map(a, 8192);
    assert_non_null(p);
    memset(p, 1, 8192);
    base_unmap(a, p, 8192);
    base_unmap(a, NULL, 8192);
}

static void test_allocator(void **state)
{
    struct counter c = {0};
    tws_allocator a = {count_alloc, count_resize, count_release, &c};

    (void)state;
    check_alloc(NULL);
    check_alloc(&a);
    assert_int_equal(c.live, 0);
    assert_int_equal(c.calls, 5);
    c.fail = true;
    assert_null(base_calloc(&a, 8));
    assert_null(base_strdup(&a, "x"));
    assert_null(base_resize(&a, NULL, 8));
    assert_null(base_map(&a, 4096));
}

/* What was given back last is lent first; only so many are kept; what is lent is counted. */
static void test_pool(void **state)
{
    struct counter c = {0};
    tws_allocator a = {count_alloc, count_resize, count_release, &c};
    struct base_pool p;
    void *block[5];

    (void)state;
    base_pool_init(&p, &a, 4096, 3);
    for (int i = 0; i < 5; i++) {
        block[i] = base_pool_get(&p);
        assert_non_null(block[i]);
        memset(block[i], i, 4096);
        assert_int_equal(base_pool_lent(&p), i + 1);
    }
    assert_int_equal(c.live, 5);
    for (int i = 0; i < 5; i++)
        base_pool_put(&p, block[i]);
    assert_int_equal(base_pool_lent(&p), 0);
    assert_int_equal(c.live, 3);
    assert_ptr_equal(base_pool_get(&p), block[2]);
    assert_ptr_equal(base_pool_get(&p), block[1]);
    assert_ptr_equal(base_pool_get(&p), block[0]);
    c.fail = true;
    assert_null(base_pool_get(&p));
    assert_int_equal(base_pool_lent(&p), 3); /* what was not there is not lent */
    for (int i = 0; i < 3; i++)
        base_pool_put(&p, block[i]);
    base_pool_destroy(&p);
    assert_int_equal(c.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors), cmocka_unit_test(test_text_copy),
        cmocka_unit_test(test_random), cmocka_unit_test(test_allocator),
        cmocka_unit_test(test_pool),
    };

    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
