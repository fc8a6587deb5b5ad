/* Values by name: each let go of exactly once, and visited while they come and go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dict.h"

struct thing {
    _Atomic int destroyed, held;
};

static void destroy(void *value)
{
    struct thing *t = value;

    atomic_fetch_add(&t->destroyed, 1);
}

static void hold(void *value)
{
    struct thing *t = value;

    atomic_fetch_add(&t->held, 1);
}

static void put(struct base_dict *d, const char *key, struct thing *t)
{
    assert_int_equal(base_dict_set(d, key, t, destroy, NULL, NULL), BASE_DICT_SET);
}

/* ---- One after the other ---- */

/* The end of one value ends the next one too. */
static struct base_dict *shared;

static void destroy_other(void *value)
{
    destroy(value);
    base_dict_delete(shared, "b", NULL);
}

static void test_destroyer_deletes(void **state)
{
    struct thing a = {0}, b = {0};

    (void)state;
    shared = base_dict_new(NULL);
    assert_int_equal(base_dict_set(shared, "a", &a, destroy_other, NULL, NULL), BASE_DICT_SET);
    put(shared, "b", &b);
    base_dict_free(shared);
    assert_int_equal(a.destroyed, 1);
    assert_int_equal(b.destroyed, 1);
}

static void test_set_get_delete(void **state)
{
    struct base_dict *d = base_dict_new(NULL);
    struct thing a = {0}, b = {0};
    void *old = &a;

    (void)state;
    assert_null(base_dict_get(d, "x", NULL));
    assert_false(base_dict_delete(d, "x", NULL));
    assert_int_equal(base_dict_set(d, "x", &a, destroy, hold, &old), BASE_DICT_SET);
    assert_ptr_equal(old, &a); /* there was none: untouched */
    put(d, "", &b);
    assert_int_equal(base_dict_count(d), 2);
    assert_ptr_equal(base_dict_get(d, "x", hold), &a);
    assert_ptr_equal(base_dict_get(d, "", NULL), &b);
    assert_int_equal(a.held, 1);
    assert_false(base_dict_delete(d, "x", &b)); /* it is another one */
    assert_true(base_dict_delete(d, "x", &a));
    assert_int_equal(a.destroyed, 1);
    assert_null(base_dict_get(d, "x", NULL));
    assert_true(base_dict_delete(d, "", NULL));
    assert_int_equal(b.destroyed, 1);
    assert_int_equal(base_dict_count(d), 0);
    base_dict_free(d);
    base_dict_free(NULL);
}

static void test_replace(void **state)
{
    struct base_dict *d = base_dict_new(NULL);
    struct thing a = {0}, b = {0};
    void *old = NULL;

    (void)state;
    put(d, "x", &a);
    assert_int_equal(base_dict_set(d, "x", &a, NULL, hold, &old), BASE_DICT_SAME);
    assert_ptr_equal(old, &a);
    assert_int_equal(base_dict_set(d, "x", &a, destroy, NULL, NULL), BASE_DICT_SAME);
    assert_int_equal(a.destroyed, 0);
    assert_int_equal(base_dict_count(d), 1);
    assert_int_equal(base_dict_set(d, "x", &b, destroy, hold, &old), BASE_DICT_SET);
    assert_ptr_equal(old, &a);
    assert_int_equal(a.held, 2);
    assert_int_equal(a.destroyed, 1);
    base_dict_free(d);
    assert_int_equal(a.destroyed, 1);
    assert_int_equal(b.destroyed, 1);
}

static void test_many(void **state)
{
    enum { MANY = 2000 };
    static struct thing things[MANY];
    struct base_dict *d = base_dict_new(NULL);
    char key[16];

    (void)state;
    for (int i = 0; i < MANY; i++) {
        snprintf(key, sizeof key, "key %d", i);
        put(d, key, &things[i]);
    }
    for (int i = 0; i < MANY; i += 2) {
        snprintf(key, sizeof key, "key %d", i);
        assert_true(base_dict_delete(d, key, NULL));
    }
    for (int i = 0; i < MANY; i++) {
        snprintf(key, sizeof key, "key %d", i);
        assert_ptr_equal(base_dict_get(d, key, NULL), i % 2 == 0 ? NULL : &things[i]);
        assert_int_equal(things[i].destroyed, i % 2 == 0);
    }
    base_dict_free(d);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(things[i].destroyed, 1);
}

/* ---- Memory ---- */

static _Atomic int allowed;

static void *scarce_alloc(size_t size, void *arg)
{
    (void)arg;
    return atomic_fetch_sub(&allowed, 1) > 0 ? malloc(size) : NULL;
}

static void *scarce_resize(void *block, size_t size, void *arg)
{
    (void)arg;
    return atomic_fetch_sub(&allowed, 1) > 0 ? realloc(block, size) : NULL;
}

static void scarce_release(void *block, void *arg)
{
    (void)arg;
    free(block);
}

static void test_no_memory(void **state)
{
    static const tws_allocator scarce = {scarce_alloc, scarce_resize, scarce_release, NULL};
    struct thing a = {0}, b = {0};
    struct base_dict *d;

    (void)state;
    for (int n = 0; n < 2; n++) {
        atomic_store(&allowed, n);
        assert_null(base_dict_new(&scarce));
    }
    atomic_store(&allowed, 3);
    d = base_dict_new(&scarce);
    put(d, "x", &a);
    assert_int_equal(base_dict_set(d, "x", &b, destroy, NULL, NULL), BASE_DICT_NO_MEMORY);
    assert_ptr_equal(base_dict_get(d, "x", NULL), &a);
    base_dict_free(d);
    assert_int_equal(a.destroyed, 1);
    assert_int_equal(b.destroyed, 0);
}

/* ---- Visiting ---- */

struct visit {
    struct base_dict *d;
    struct thing *things;
    char seen[64];
    size_t stop_after;
    size_t inner;
};

static bool note(const char *key, void *value, void *arg)
{
    struct visit *v = arg;

    assert_int_equal(((struct thing *)value)->destroyed, 0);
    strcat(v->seen, key);
    return !v->stop_after || strlen(v->seen) < v->stop_after;
}

static void visit_open(struct visit *v, struct thing *things)
{
    memset(v, 0, sizeof *v);
    memset(things, 0, 6 * sizeof *things);
    v->d = base_dict_new(NULL);
    v->things = things;
    for (int i = 0; i < 5; i++)
        put(v->d, (char[]){(char)('a' + i), 0}, &things[i]);
}

static void visit_close(struct visit *v, struct thing *things)
{
    base_dict_free(v->d);
    for (int i = 0; i < 5; i++)
        assert_int_equal(things[i].destroyed, 1);
}

static void test_order(void **state)
{
    struct thing things[6];
    struct visit v;

    (void)state;
    visit_open(&v, things);
    assert_int_equal(base_dict_each(v.d, note, &v), 5);
    assert_string_equal(v.seen, "abcde");
    v.stop_after = strlen(v.seen) + 2;
    assert_int_equal(base_dict_each(v.d, note, &v), 2);
    assert_string_equal(v.seen, "abcdeab");
    visit_close(&v, things);
}

/* While at b it deletes b itself, its neighbours and the last, and sets a new one and an old one. */
static bool change(const char *key, void *value, void *arg)
{
    struct visit *v = arg;
    struct thing *t = value;

    if (*key == 'b') {
        assert_true(base_dict_delete(v->d, "b", NULL));
        assert_int_equal(t->destroyed, 0); /* not before it has been left */
        assert_true(base_dict_delete(v->d, "a", NULL));
        assert_true(base_dict_delete(v->d, "c", NULL));
        assert_true(base_dict_delete(v->d, "e", NULL));
        assert_int_equal(v->things[2].destroyed, 1);
        put(v->d, "f", &v->things[5]);
        assert_null(base_dict_get(v->d, "b", NULL));
    }
    return note(key, value, arg);
}

static void test_change_while_visiting(void **state)
{
    struct thing things[6];
    struct visit v;

    (void)state;
    visit_open(&v, things);
    assert_int_equal(base_dict_each(v.d, change, &v), 3);
    assert_string_equal(v.seen, "abd");
    assert_int_equal(things[1].destroyed, 1);
    v.seen[0] = 0;
    assert_int_equal(base_dict_each(v.d, note, &v), 2);
    assert_string_equal(v.seen, "df");
    visit_close(&v, things);
    assert_int_equal(things[5].destroyed, 1);
}

static bool nested(const char *key, void *value, void *arg)
{
    struct visit *v = arg;

    (void)value;
    v->inner += base_dict_each(v->d, note, v);
    base_dict_delete(v->d, key, NULL);
    return true;
}

static void test_nested(void **state)
{
    struct thing things[6];
    struct visit v;

    (void)state;
    visit_open(&v, things);
    assert_int_equal(base_dict_each(v.d, nested, &v), 5);
    assert_string_equal(v.seen, "abcdebcdecdedee");
    assert_int_equal(v.inner, 15);
    assert_int_equal(base_dict_count(v.d), 0);
    visit_close(&v, things);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_destroyer_deletes),
        cmocka_unit_test(test_set_get_delete),
        cmocka_unit_test(test_replace),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_change_while_visiting),
        cmocka_unit_test(test_nested),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
