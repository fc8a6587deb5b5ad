/*
 * Sessions: values by name that go with a connection, each let go of exactly once.
 */
#include "support_counter.h"
#include "support_events.h"

#include <tws/session.h>
#include <tws/upgrade.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

struct value {
    _Atomic int destroyed;
};

static void destroy(void *value)
{
    atomic_fetch_add(&((struct value *)value)->destroyed, 1);
}

/* ---- Calls ---- */

static bool count_one(const char *key, void *value, void *arg)
{
    char *keys = arg;

    assert_non_null(value);
    strcat(keys, key);
    return true;
}

static void test_calls(void **state)
{
    struct value a = {0}, b = {0};
    char keys[16] = "";
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    assert_null(tws_session_get(r.conn, "a"));
    assert_false(tws_session_delete(r.conn, "a"));
    assert_int_equal(tws_session_each(r.conn, count_one, keys), 0);
    assert_err(tws_session_set(r.conn, NULL, &a, destroy), TWS_ERR_ARGUMENT);
    assert_ok(tws_session_set(r.conn, "a", &a, destroy));
    assert_ok(tws_session_set(r.conn, "b", &b, NULL));
    assert_ok(tws_session_set(r.conn, "b", &b, destroy));
    assert_ptr_equal(tws_session_get(r.conn, "a"), &a);
    assert_null(tws_session_get(r.conn, NULL));
    assert_false(tws_session_delete(r.conn, NULL));
    assert_int_equal(tws_session_each(r.conn, count_one, keys), 2);
    assert_string_equal(keys, "ab");
    assert_true(tws_session_delete(r.conn, "a"));
    assert_int_equal(a.destroyed, 1);
    assert_int_equal(b.destroyed, 0);
    rig_close(&r);
    assert_int_equal(a.destroyed, 1);
    assert_int_equal(b.destroyed, 1);
}

/* A session lives as long as its connection's memory: as the last reference. */
static void test_life(void **state)
{
    struct value a = {0};
    tws_conn *c;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    c = tws_conn_ref(r.conn);
    assert_ok(tws_session_set(c, "a", &a, destroy));
    rig_end(&r);
    assert_int_equal(a.destroyed, 0);
    assert_ptr_equal(tws_session_get(c, "a"), &a);
    tws_conn_unref(c);
    assert_int_equal(a.destroyed, 1);
    support_assert_census(r.before);
}

/* ---- From the upgrade hook ---- */

struct door {
    struct value values[3];
    _Atomic bool wrong;
    _Atomic int told; /* by on_handshake_end */
    bool open;
};

static bool at_the_door(const tws_request *r, tws_reply *a, void *arg)
{
    struct door *d = arg;

    (void)r;
    if (tws_reply_session_set(a, "name", &d->values[0], destroy) != TWS_OK ||
        tws_reply_session_set(a, "name", &d->values[1], destroy) != TWS_OK ||
        tws_reply_session_set(a, "role", &d->values[2], destroy) != TWS_OK ||
        tws_reply_session_set(a, NULL, &d->values[0], destroy) != TWS_ERR_ARGUMENT)
        atomic_store(&d->wrong, true);
    return d->open;
}

static void told(const tws_error *e, const tws_request *r, void *user, void *arg)
{
    struct door *d = arg;

    (void)e;
    (void)r;
    (void)user;
    if (atomic_load(&d->values[1].destroyed) != 0)
        atomic_store(&d->wrong, true);
    atomic_fetch_add(&d->told, 1);
}

static void look_around(tws_conn *c, void *arg)
{
    struct door *d = arg;

    if (tws_session_get(c, "name") != &d->values[1] || tws_session_get(c, "role") != &d->values[2])
        atomic_store(&d->wrong, true);
    support_echo(c, arg);
    if (atomic_load(&d->values[1].destroyed) != 0)
        atomic_store(&d->wrong, true);
}

static void test_upgrade_hook(void **state)
{
    (void)state;
    for (int open = 0; open < 2; open++) {
        struct door d = {.open = open};
        struct support_server s;
        tws_server_options opt;
        struct client c;

        support_server_options(&opt, look_around, &d);
        opt.upgrade.on_upgrade = at_the_door;
        opt.upgrade.on_handshake_end = told;
        support_server_start(&s, &opt);
        assert_int_equal(client_upgrade(&c, client_dial(s.address), NULL), open ? 101 : 403);
        if (open) {
            client_send_text(&c, "in");
            client_expect_text(&c, "in");
        }
        client_close(&c);
        tws_server_free(s.server);
        assert_false(atomic_load(&d.wrong));
        assert_int_equal(atomic_load(&d.told), !open);
        for (int i = 0; i < 3; i++)
            assert_int_equal(atomic_load(&d.values[i].destroyed), 1);
    }
}

/* Where another HTTP server answers: nobody asks for the connection, or it cannot be. */
static void test_verdict_without_connection(void **state)
{
    static const tws_header headers[] = {{"Host", "x"},
                                         {"Upgrade", "websocket"},
                                         {"Connection", "Upgrade"},
                                         {"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="},
                                         {"Sec-WebSocket-Version", "13"}};
    static const char behind[8000];
    tws_parsed_request r;
    tws_verdict *v;
    tws_conn *c;

    (void)state;
    tws_parsed_request_init(&r);
    r.headers = headers;
    r.header_count = 5;
    for (int way = 0; way < 4; way++) {
        struct door d = {.open = way > 0};
        struct counter k;
        tws_allocator a = counter_allocator(&k);
        tws_upgrade_options opt;
        int fds[2];

        tws_upgrade_options_init(&opt);
        opt.allocator = &a;
        opt.on_upgrade = at_the_door;
        opt.on_handshake_end = told;
        opt.hook_arg = &d;
        assert_err(tws_upgrade_judge(&v, &r, &opt, NULL), way > 0 ? TWS_OK : TWS_ERR_REFUSED);
        if (way < 2) {
            tws_verdict_free(v);
        } else if (way < 3) {
            assert_err(tws_verdict_open(&c, v, -1, NULL, 0, NULL), TWS_ERR_ARGUMENT);
        } else {
            assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
            atomic_store(&k.fail_from, atomic_load(&k.calls));
            atomic_store(&k.fail_count, 1);
            assert_err(tws_verdict_open(&c, v, fds[0], behind, sizeof behind, NULL),
                       TWS_ERR_MEMORY);
            close(fds[1]);
        }
        assert_false(atomic_load(&d.wrong));
        assert_int_equal(atomic_load(&d.told), 1);
        for (int i = 0; i < 3; i++)
            assert_int_equal(atomic_load(&d.values[i].destroyed), 1);
        assert_int_equal(atomic_load(&k.live), 0);
    }
}

/* At each place where memory may be missing, from the hook to the connection. */
static bool with_values(const tws_request *r, tws_reply *a, void *arg)
{
    _Atomic int *kept = arg;

    (void)r;
    for (int i = 0; i < 2; i++) {
        struct value *v = calloc(1, sizeof *v);

        atomic_fetch_add(kept, 1);
        if (tws_reply_session_set(a, i ? "one" : "two", kept, NULL) != TWS_OK)
            atomic_fetch_sub(kept, 1);
        if (tws_reply_session_set(a, i ? "three" : "four", v, free) != TWS_OK)
            free(v);
    }
    return true;
}

static void test_no_memory(void **state)
{
    _Atomic int kept = 0;
    struct counter k;
    tws_allocator a = counter_allocator(&k);
    struct support_server s;
    tws_server_options opt;

    (void)state;
    support_server_options(&opt, support_echo, &kept);
    opt.upgrade.allocator = &a;
    opt.upgrade.on_upgrade = with_values;
    support_server_start(&s, &opt);
    for (long n = 1; n < 25; n++) {
        struct client c;

        atomic_store(&k.fail_count, 1);
        atomic_store(&k.fail_from, atomic_load(&k.calls) + n);
        client_upgrade(&c, client_dial(s.address), NULL);
        client_close(&c);
    }
    tws_server_free(s.server);
    assert_true(atomic_load(&kept) > 24);
    assert_int_equal(atomic_load(&k.live), 0);
}

/* ---- Several threads ---- */

struct busy {
    pthread_t thread;
    tws_conn *conn;
    _Atomic int *live;
    unsigned seed;
};

struct counted {
    _Atomic int *live;
};

static void counted_free(void *value)
{
    struct counted *c = value;

    atomic_fetch_sub(c->live, 1);
    free(c);
}

static bool look(const char *key, void *value, void *arg)
{
    struct busy *b = arg;
    const struct counted *c = value;

    if (c->live != b->live) /* freed memory would show */
        abort();
    if (b->seed++ % 7 == 0)
        tws_session_delete(b->conn, key);
    return true;
}

static void *busy_main(void *arg)
{
    struct busy *b = arg;

    for (int i = 0; i < 500; i++) {
        char key[8];
        struct counted *c = malloc(sizeof *c);

        snprintf(key, sizeof key, "%u", b->seed++ % 10);
        c->live = b->live;
        atomic_fetch_add(b->live, 1);
        if (tws_session_set(b->conn, key, c, counted_free) != TWS_OK)
            counted_free(c);
        if (i % 3 == 0)
            tws_session_each(b->conn, look, b);
        tws_session_get(b->conn, key);
        if (i % 5 == 0)
            tws_session_delete(b->conn, key);
    }
    return NULL;
}

static void test_threads(void **state)
{
    struct busy b[4];
    _Atomic int live = 0;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    for (unsigned i = 0; i < 4; i++) {
        b[i] = (struct busy){.conn = r.conn, .live = &live, .seed = i * 31};
        support_thread(&b[i].thread, busy_main, &b[i]);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(b[i].thread, NULL);
    rig_close(&r);
    assert_int_equal(atomic_load(&live), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls),        cmocka_unit_test(test_life),
        cmocka_unit_test(test_upgrade_hook), cmocka_unit_test(test_verdict_without_connection),
        cmocka_unit_test(test_no_memory),    cmocka_unit_test(test_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
