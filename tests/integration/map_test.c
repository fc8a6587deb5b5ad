/*
 * Maps: connections by name, held while they are in, visited while they come and go.
 */
#include "support_counter.h"
#include "support_events.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- Calls ---- */

static bool note(const char *key, tws_conn *c, void *arg)
{
    char *keys = arg;

    assert_non_null(c);
    strcat(keys, key);
    return strlen(keys) < 3;
}

static void test_calls(void **state)
{
    tws_map *m = tws_map_new(NULL);
    char keys[16] = "";
    tws_conn *old;
    struct rig r, other;

    (void)state;
    rig_open(&r, NULL);
    rig_open(&other, NULL);
    assert_null(tws_map_get(m, "a"));
    assert_null(tws_map_get(m, NULL));
    assert_err(tws_map_set(m, NULL, r.conn, NULL), TWS_ERR_ARGUMENT);
    assert_err(tws_map_set(m, "a", NULL, &old), TWS_ERR_ARGUMENT);
    assert_ok(tws_map_set(m, "a", r.conn, &old));
    assert_null(old);
    assert_ok(tws_map_set(m, "a", r.conn, &old)); /* the same again */
    assert_ptr_equal(old, r.conn);
    tws_conn_unref(old);
    assert_ok(tws_map_set(m, "b", r.conn, NULL));
    assert_ok(tws_map_set(m, "b", other.conn, &old));
    assert_ptr_equal(old, r.conn);
    tws_conn_unref(old);
    assert_ok(tws_map_set(m, "c", r.conn, NULL));
    assert_ok(tws_map_set(m, "d", r.conn, NULL));
    assert_int_equal(tws_map_count(m), 4);
    assert_int_equal(tws_map_each(m, note, keys), 3);
    assert_string_equal(keys, "abc");
    old = tws_map_get(m, "b");
    assert_ptr_equal(old, other.conn);
    tws_conn_unref(old);
    assert_false(tws_map_delete(m, "b", r.conn)); /* that is somebody else now */
    assert_true(tws_map_delete(m, "b", other.conn));
    assert_true(tws_map_delete(m, "a", NULL));
    assert_false(tws_map_delete(m, "a", NULL));
    assert_false(tws_map_delete(m, NULL, NULL));
    tws_map_free(m);
    tws_map_free(NULL);
    rig_end(&other);
    rig_close(&r);
}

/* The map's reference is enough. */
static void test_reference(void **state)
{
    tws_map *m = tws_map_new(NULL);
    tws_conn *c;
    tws_error e;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    assert_ok(tws_map_set(m, "x", r.conn, NULL));
    rig_end(&r);
    c = tws_map_get(m, "x");
    assert_non_null(c);
    tws_conn_error(c, &e);
    assert_true(tws_err_is_final(e.code));
    tws_map_delete(m, "x", c);
    tws_conn_unref(c);
    tws_map_free(m);
    support_assert_census(r.before);
}

static void test_no_memory(void **state)
{
    struct counter k;
    tws_allocator a = counter_allocator(&k);
    tws_conn *old = NULL;
    struct rig r;
    tws_map *m;

    (void)state;
    rig_open(&r, NULL);
    for (long n = 0; n < 3; n++) {
        atomic_store(&k.fail_count, 1);
        atomic_store(&k.fail_from, atomic_load(&k.calls) + n);
        assert_null(tws_map_new(&a));
    }
    m = tws_map_new(&a);
    assert_ok(tws_map_set(m, "x", r.conn, NULL));
    atomic_store(&k.fail_from, atomic_load(&k.calls));
    assert_err(tws_map_set(m, "x", r.conn, &old), TWS_ERR_MEMORY);
    assert_null(old);
    atomic_store(&k.fail_from, atomic_load(&k.calls));
    assert_err(tws_map_set(m, "y", r.conn, NULL), TWS_ERR_MEMORY);
    assert_int_equal(tws_map_count(m), 1);
    tws_map_free(m);
    assert_int_equal(atomic_load(&k.live), 0);
    rig_close(&r);
}

/* ---- Coming and going ---- */

struct town {
    tws_map *map;
    _Atomic bool over;
    _Atomic int sent;
};

static void name_of(const tws_conn *c, char name[32])
{
    snprintf(name, 32, "%llu", (unsigned long long)tws_conn_id(c));
}

static void arrive(tws_conn *c, void *arg)
{
    struct town *t = arg;
    char name[32];

    name_of(c, name);
    tws_map_set(t->map, name, c, NULL);
}

static void depart(tws_conn *c, const tws_error *e, void *arg)
{
    struct town *t = arg;
    char name[32];

    (void)e;
    name_of(c, name);
    if (!tws_map_delete(t->map, name, c))
        abort();
}

static bool greet(const char *key, tws_conn *c, void *arg)
{
    struct town *t = arg;

    if (tws_write_async(c, TWS_TEXT, key, strlen(key), NULL, NULL) == TWS_OK)
        atomic_fetch_add(&t->sent, 1);
    return true;
}

static void *greet_all(void *arg)
{
    struct town *t = arg;

    while (!atomic_load(&t->over))
        tws_map_each(t->map, greet, t);
    return NULL;
}

/* Visitors, and connections that come and go in on_open and on_close. */
static void test_churn(void **state)
{
    struct support_census before = support_census();
    struct town t = {.map = tws_map_new(NULL)};
    struct support_server s;
    tws_server_options opt;
    pthread_t visitors[2];
    tws_events ev;

    (void)state;
    tws_events_init(&ev);
    ev.on_open = arrive;
    ev.on_close = depart;
    support_server_options(&opt, NULL, &t);
    opt.events = &ev;
    support_server_start(&s, &opt);
    for (int i = 0; i < 2; i++)
        support_thread(&visitors[i], greet_all, &t);
    for (int round = 0; round < 10; round++) {
        struct client c[5];

        for (int i = 0; i < 5; i++)
            client_open(&c[i], s.address);
        WAIT_FOR(tws_map_count(t.map) >= 5);
        for (int i = 0; i < 5; i++) {
            struct client_frame f;

            assert_true(client_next(&c[i], &f)); /* each is greeted */
            client_close(&c[i]);
        }
    }
    WAIT_FOR(tws_map_count(t.map) == 0);
    atomic_store(&t.over, true);
    for (int i = 0; i < 2; i++)
        pthread_join(visitors[i], NULL);
    assert_true(atomic_load(&t.sent) >= 50);
    tws_server_free(s.server);
    tws_map_free(t.map);
    support_assert_census(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_churn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
