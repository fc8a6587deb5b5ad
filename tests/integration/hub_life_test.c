/* Hubs, servers and connections that end in any order; and what a hub does with threads. */
#include "party.h"

#include <stdio.h>

#include "hub/hub.h"

static tws_hub_stats stats_of(tws_hub *h)
{
    tws_hub_stats st;

    tws_hub_get_stats(h, &st);
    return st;
}

/* ---- Orders of ending ---- */

/* The members stay as they are, and what was queued for them still goes out. */
static void test_hub_first(void **state)
{
    tws_server_options opt;
    tws_publish_result r;
    uint64_t queued = 0;
    struct party p;

    (void)state;
    party_options(&opt, &p);
    party_open(&p, 20, &opt, NULL);
    party_join_all(&p, "room");
    for (size_t i = 0; i < 10; i++)
        crowd_pace(p.crowd, i, 0);
    for (uint32_t i = 0; i < 60; i++) {
        assert_ok(party_publish(&p, "room", (struct party_note){0, i}, 8000, &r));
        queued += r.queued;
    }
    assert_true(queued > 0);
    party_end_hub(&p);
    for (size_t i = 0; i < 20; i++) {
        crowd_pace(p.crowd, i, CROWD_ALL);
        assert_ok(tws_write_async(p.conns[i], TWS_BINARY, &(struct party_note){1, 0},
                                  sizeof(struct party_note), NULL, NULL));
    }
    for (size_t i = 0; i < 20; i++) {
        WAIT_FOR(atomic_load(&p.logs[i].count) == 61);
        assert_int_equal(p.logs[i].notes[60].publisher, 1);
        p.logs[i].count--;
        assert_true(party_complete(&p, i, 1, 60));
    }
    party_close(&p);
}

static void test_server_first(void **state)
{
    tws_publish_result r;
    struct party p;

    (void)state;
    party_open(&p, 20, NULL, NULL);
    party_join_all(&p, "room");
    party_end_server(&p);
    WAIT_FOR(tws_hub_count(p.hub, NULL) == 0);
    assert_ok(party_publish(&p, NULL, (struct party_note){0, 0}, 8, &r));
    assert_int_equal(r.sent + r.queued + r.failed, 0);
    assert_true(tws_err_is_final(tws_hub_join(p.hub, p.conns[0], "room")));
    assert_int_equal(stats_of(p.hub).rooms, 0);
    party_close(&p);
}

/* Both while the members still stand in rooms, and messages wait for them. */
static void test_all_at_once(void **state)
{
    (void)state;
    for (int order = 0; order < 2; order++) {
        struct party p;

        party_open(&p, 20, NULL, NULL);
        party_join_all(&p, "room");
        party_join_all(&p, "another");
        for (size_t i = 0; i < 5; i++)
            crowd_pace(p.crowd, i, 0);
        for (uint32_t i = 0; i < 40; i++)
            assert_ok(party_publish(&p, NULL, (struct party_note){0, i}, 8000, NULL));
        for (size_t i = 0; i < p.count; i += 2) { /* the hub keeps nobody alive */
            tws_conn_unref(p.conns[i]);
            p.conns[i] = NULL;
        }
        if (order == 0) {
            party_end_hub(&p);
            party_end_server(&p);
        } else {
            party_end_server(&p);
            party_end_hub(&p);
        }
        party_close(&p);
    }
}

/* A connection of the application's own, whose last reference goes while it is a member. */
static void test_last_reference(void **state)
{
    struct support_server s;
    tws_server_options opt;
    tws_dial_options dial;
    tws_publish_result r;
    struct support_census before = support_census();
    char url[200];
    tws_conn *c;
    tws_hub *h;

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    support_server_start(&s, &opt);
    assert_ok(tws_hub_new(&h, NULL));
    snprintf(url, sizeof url, "ws://%s/", s.address);
    tws_dial_options_init(&dial);
    for (int i = 0; i < 20; i++) {
        tws_message m;

        assert_ok(tws_dial(&c, url, &dial, NULL, NULL));
        assert_ok(tws_hub_join(h, c, "clients"));
        assert_ok(tws_hub_publish_message(h, "clients", TWS_TEXT, "masked", 6, NULL, &r));
        assert_int_equal(r.sent + r.queued, 1);
        assert_ok(tws_read_message(c, &m));
        assert_int_equal(m.len, 6);
        assert_memory_equal(m.data, "masked", 6);
        tws_conn_unref(c);
        WAIT_FOR(tws_hub_count(h, NULL) == 0);
    }
    tws_server_free(s.server);
    tws_hub_free(h);
    support_assert_census(before);
}

/* ---- Freeing what is in use ---- */

struct gate {
    tws_hub *hub;
    tws_mutex *mu;
    tws_cond *changed;
    bool inside, open; /* mu */
    _Atomic bool freed;
    tws_err err;
    tws_publish_result result;
};

static bool waits_at_gate(tws_conn *c, void *arg)
{
    struct gate *g = arg;

    (void)c;
    tws_mutex_lock(g->mu, 0);
    g->inside = true;
    tws_cond_broadcast(g->changed);
    while (!g->open)
        tws_cond_wait(g->changed, g->mu, 0);
    tws_mutex_unlock(g->mu);
    return true;
}

static void *publishes_slowly(void *arg)
{
    struct gate *g = arg;
    tws_publish_options how;
    tws_prepared *m;

    tws_publish_options_init(&how);
    how.filter = waits_at_gate;
    how.arg = g;
    g->err = tws_prepared_new(&m, TWS_BINARY, "12345678", 8);
    if (!g->err) {
        g->err = tws_hub_publish(g->hub, "room", m, &how, &g->result);
        tws_prepared_unref(m);
    }
    return NULL;
}

static void *frees(void *arg)
{
    struct gate *g = arg;

    tws_hub_free(g->hub);
    atomic_store(&g->freed, true);
    return NULL;
}

/* A publish that is under way ends as if nothing had happened; freeing waits for it. */
static void test_free_while_publishing(void **state)
{
    struct gate g = {.mu = tws_mutex_new(), .changed = tws_cond_new()};
    pthread_t publisher, freer;
    struct party p;

    (void)state;
    party_open(&p, 100, NULL, NULL);
    party_join_all(&p, "room");
    g.hub = p.hub;
    support_thread(&publisher, publishes_slowly, &g);
    tws_mutex_lock(g.mu, 0);
    while (!g.inside)
        tws_cond_wait(g.changed, g.mu, 0);
    tws_mutex_unlock(g.mu);
    p.hub = NULL;
    support_thread(&freer, frees, &g);
    support_pause_ms(20);
    assert_false(atomic_load(&g.freed));
    tws_mutex_lock(g.mu, 0);
    g.open = true;
    tws_cond_broadcast(g.changed);
    tws_mutex_unlock(g.mu);
    pthread_join(publisher, NULL);
    pthread_join(freer, NULL);
    assert_ok(g.err);
    assert_int_equal(g.result.sent + g.result.queued, 100);
    for (size_t i = 0; i < 100; i++)
        WAIT_FOR(atomic_load(&p.logs[i].count) == 1);
    tws_cond_free(g.changed);
    tws_mutex_free(g.mu);
    party_close(&p);
}

/* While one publishes, joins, leaves and counts of the same room go on: no lock is held over it. */
static void test_nobody_waits_for_a_publish(void **state)
{
    struct gate g = {.mu = tws_mutex_new(), .changed = tws_cond_new()};
    pthread_t publisher;
    tws_publish_result r;
    struct party p;

    (void)state;
    party_open(&p, 100, NULL, NULL);
    for (size_t i = 0; i < 99; i++)
        assert_ok(tws_hub_join(p.hub, p.conns[i], "room"));
    g.hub = p.hub;
    support_thread(&publisher, publishes_slowly, &g);
    tws_mutex_lock(g.mu, 0);
    while (!g.inside)
        tws_cond_wait(g.changed, g.mu, 0);
    tws_mutex_unlock(g.mu);
    assert_ok(tws_hub_join(p.hub, p.conns[99], "room"));
    assert_ok(tws_hub_leave(p.hub, p.conns[98], "room"));
    assert_int_equal(tws_hub_count(p.hub, "room"), 99);
    assert_ok(tws_hub_join(p.hub, p.conns[0], "other"));
    assert_ok(party_publish(&p, "other", (struct party_note){1, 0}, 8, &r)); /* another room's */
    assert_int_equal(r.sent + r.queued, 1);
    tws_mutex_lock(g.mu, 0);
    g.open = true;
    tws_cond_broadcast(g.changed);
    tws_mutex_unlock(g.mu);
    pthread_join(publisher, NULL);
    assert_ok(g.err);
    /* Who joined after it had begun is behind it in the order; who left may have been passed. */
    assert_in_range(g.result.sent + g.result.queued, 98, 99);
    assert_ok(party_publish(&p, "room", (struct party_note){2, 0}, 8, NULL));
    WAIT_FOR(atomic_load(&p.logs[99].count) == 1);
    assert_int_equal(p.logs[99].notes[0].publisher, 2);
    tws_cond_free(g.changed);
    tws_mutex_free(g.mu);
    party_close(&p);
}

struct ender {
    tws_hub *hub;
    _Atomic bool done;
};

static void frees_in_handler(tws_conn *c, void *arg)
{
    struct ender *e = arg;

    if (tws_hub_join(e->hub, c, "room") == TWS_OK)
        tws_hub_publish_message(e->hub, "room", TWS_TEXT, "bye", 3, NULL, NULL);
    tws_hub_free(e->hub);
    atomic_store(&e->done, true);
}

static void test_free_in_handler(void **state)
{
    struct ender e = {.done = false};
    struct support_server s;
    tws_server_options opt;
    tws_hub_options hub;
    struct client c;

    (void)state;
    tws_hub_options_init(&hub);
    hub.workers = 2;
    hub.spread = 1;
    assert_ok(tws_hub_new(&e.hub, &hub));
    support_server_options(&opt, frees_in_handler, &e);
    support_server_start(&s, &opt);
    client_open(&c, s.address);
    client_expect_text(&c, "bye");
    WAIT_FOR(atomic_load(&e.done));
    client_close(&c);
    tws_server_free(s.server);
}

/* ---- Workers ---- */

/* A hub of small rooms has no thread; one of large rooms has some while it is busy. */
static void test_workers_come_and_go(void **state)
{
    struct support_census rest;
    tws_hub_options hub;
    struct party p;

    (void)state;
    tws_hub_options_init(&hub);
    hub.workers = 3;
    hub.spread = 50;
    party_open(&p, 200, NULL, &hub);
    rest = support_census();
    for (size_t i = 0; i < 99; i++)
        assert_ok(tws_hub_join(p.hub, p.conns[i], "room"));
    assert_ok(party_publish(&p, "room", (struct party_note){0, 0}, 8, NULL));
    assert_int_equal(stats_of(p.hub).workers, 0);
    assert_int_equal(stats_of(p.hub).spread, 0);
    party_join_all(&p, "room");
    for (int i = 0; i < 20; i++)
        assert_ok(party_publish(&p, "room", (struct party_note){0, 0}, 8, NULL));
    assert_in_range(stats_of(p.hub).workers, 1, 3);
    WAIT_FOR(stats_of(p.hub).workers == 0);
    support_assert_census(rest); /* once the last has been joined, but for one that may be left */
    party_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hub_first),
        cmocka_unit_test(test_server_first),
        cmocka_unit_test(test_all_at_once),
        cmocka_unit_test(test_last_reference),
        cmocka_unit_test(test_free_while_publishing),
        cmocka_unit_test(test_nobody_waits_for_a_publish),
        cmocka_unit_test(test_free_in_handler),
        cmocka_unit_test(test_workers_come_and_go),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
