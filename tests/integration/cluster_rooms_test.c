/* Rooms that span nodes: who gets what, who is subscribed, who counts whom. */
#include "support_net.h"

#include "cluster/cluster.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- Messages ---- */

#define EACH 60

struct publisher {
    pthread_t thread;
    struct net *n;
    size_t node;
    tws_err err;
};

static void *publish_some(void *arg)
{
    struct publisher *p = arg;

    for (uint32_t i = 0; i < EACH && !p->err; i++)
        p->err = net_publish(p->n, p->node, "lobby", i);
    return NULL;
}

static void await_all(const struct net *n, size_t client, uint32_t publishers)
{
    WAIT_FOR(atomic_load(&n->party.logs[client].count) >= publishers * EACH);
    assert_true(party_complete(&n->party, client, publishers, EACH));
}

/* Messages that came or went and were not what they should be. */
static uint64_t oddities(const struct net *n, size_t node)
{
    tws_cluster_stats s = net_stats(n, node);

    return s.echoes + s.stale + s.foreign + s.unwanted + s.refused + s.unsent;
}

static void test_everybody_once_in_order(void **state)
{
    struct publisher all[3];
    uint64_t before[3];
    struct net n;

    (void)state;
    net_open(&n, 3, 2, NULL);
    net_join(&n, "lobby", 0, 3);
    /* A beat that comes while the broker is still being asked for the room is not wanted yet. */
    for (size_t i = 0; i < 3; i++)
        before[i] = oddities(&n, i);
    for (size_t i = 0; i < 3; i++) {
        all[i] = (struct publisher){.n = &n, .node = i};
        support_thread(&all[i].thread, publish_some, &all[i]);
    }
    for (size_t i = 0; i < 3; i++) {
        pthread_join(all[i].thread, NULL);
        assert_ok(all[i].err);
    }
    for (size_t k = 0; k < 6; k++)
        await_all(&n, k, 3);
    for (size_t i = 0; i < 3; i++) {
        tws_cluster_stats s = net_stats(&n, i);

        assert_int_equal(s.published, EACH);
        assert_int_equal(s.published_bytes, EACH * sizeof(struct party_note));
        assert_int_equal(s.received, 2 * EACH);
        assert_int_equal(s.received_bytes, 2 * EACH * sizeof(struct party_note));
        assert_int_equal(oddities(&n, i), before[i]);
        assert_int_equal(net_gap_count(&n, i, NULL, TWS_GAP_MISSED), 0);
    }
    net_close(&n);
}

static void test_recipients(void **state)
{
    tws_publish_result r;
    const uint32_t one[] = {1}, both[] = {1, 2};
    struct party_note note = {0, 1};
    struct net n;

    (void)state;
    net_open(&n, 2, 2, NULL);
    net_join(&n, "lobby", 0, 2);
    assert_ok(tws_cluster_publish_message(n.clusters[0], "lobby", TWS_BINARY, &note, sizeof note,
                                          net_conn(&n, 0, 1), &r));
    assert_int_equal(r.sent + r.queued, 1); /* the result is that of this node */
    assert_int_equal(r.skipped, 1);
    WAIT_FOR(net_has(&n, 1, 0, 0, one, 1) && net_has(&n, 1, 1, 0, one, 1));
    /* Only who is in the room, wherever; with NULL those in any room. */
    assert_ok(tws_hub_leave(n.hubs[1], net_conn(&n, 1, 0), "lobby"));
    assert_ok(net_publish(&n, 0, "lobby", 2));
    WAIT_FOR(net_has(&n, 1, 1, 0, both, 2));
    assert_true(net_has(&n, 1, 0, 0, one, 1));
    assert_ok(net_publish(&n, 1, NULL, 1));
    WAIT_FOR(net_has(&n, 0, 0, 1, one, 1) && net_has(&n, 1, 1, 1, one, 1));
    assert_true(net_has(&n, 1, 0, 1, NULL, 0));
    /* From a node that is not in the room itself. */
    assert_ok(tws_hub_leave(n.hubs[1], net_conn(&n, 1, 1), "lobby"));
    assert_ok(net_publish(&n, 1, "lobby", 7));
    WAIT_FOR(atomic_load(&net_log(&n, 0, 0)->count) == 4);
    net_close(&n);
}

static void test_text_stays_text(void **state)
{
    struct net n;

    (void)state;
    net_open(&n, 2, 1, NULL);
    net_join(&n, "lobby", 0, 2);
    assert_ok(
        tws_cluster_publish_message(n.clusters[0], "lobby", TWS_TEXT, "12345678", 8, NULL, NULL));
    WAIT_FOR(atomic_load(&net_log(&n, 1, 0)->count) == 1);
    assert_memory_equal(net_log(&n, 1, 0)->notes, "12345678", 8);
    assert_err(tws_cluster_publish_message(n.clusters[0], "lobby", TWS_TEXT, "\xff", 1, NULL, NULL),
               TWS_ERR_TEXT);
    net_close(&n);
}

/* ---- Subscriptions ---- */

static void test_subscribed_while_there_are_members(void **state)
{
    struct net n;

    (void)state;
    net_open(&n, 2, 2, NULL);
    assert_ok(net_publish(&n, 0, "lobby", 1)); /* publishing needs none */
    assert_ok(tws_hub_join(n.hubs[0], net_conn(&n, 0, 0), "lobby"));
    WAIT_FOR(bus_subscribers(n.bus, "tws.r.lobby") == 1);
    assert_ok(tws_hub_join(n.hubs[0], net_conn(&n, 0, 1), "lobby"));
    assert_ok(tws_hub_join(n.hubs[0], net_conn(&n, 0, 1), "a b"));
    WAIT_FOR(bus_subscribers(n.bus, "tws.r.a=20b") == 1);
    assert_ok(tws_hub_leave(n.hubs[0], net_conn(&n, 0, 0), "lobby"));
    assert_int_equal(bus_subscribers(n.bus, "tws.r.lobby"), 1);
    WAIT_FOR(net_stats(&n, 0).subscriptions == 3); /* and one for messages to all */
    assert_int_equal(tws_hub_leave_all(n.hubs[0], net_conn(&n, 0, 1)), 2);
    WAIT_FOR(bus_subscriptions(n.bus, 0) == 1);
    assert_int_equal(net_stats(&n, 0).unsubscribed, 2);
    /* A member that ends does the same. */
    assert_ok(tws_hub_join(n.hubs[0], net_conn(&n, 0, 0), "lobby"));
    WAIT_FOR(bus_subscribers(n.bus, "tws.r.lobby") == 1);
    tws_abort(net_conn(&n, 0, 0));
    WAIT_FOR(bus_subscribers(n.bus, "tws.r.lobby") == 0);
    /* What was known of the rooms goes as well, in time. */
    WAIT_FOR(net_stats(&n, 0).rooms == 0);
    net_close(&n);
}

static void test_lingers(void **state)
{
    tws_cluster_options opt;
    struct net n;

    (void)state;
    net_options(&opt);
    opt.linger = TWS_NO_LIMIT;
    net_open(&n, 1, 1, &opt);
    for (int i = 0; i < 20; i++) {
        assert_ok(tws_hub_join(n.hubs[0], net_conn(&n, 0, 0), "lobby"));
        WAIT_FOR(bus_subscribers(n.bus, "tws.r.lobby") == 1);
        assert_ok(tws_hub_leave(n.hubs[0], net_conn(&n, 0, 0), "lobby"));
    }
    WAIT_FOR(net_stats(&n, 0).subscribed == 2);
    assert_int_equal(net_stats(&n, 0).unsubscribed, 0);
    net_close(&n);
}

static void *come_and_go(void *arg)
{
    struct publisher *p = arg;
    size_t client = p->node;

    for (int i = 0; i < 300; i++) {
        p->err = tws_hub_join(p->n->hubs[0], net_conn(p->n, 0, client), "lobby");
        if (p->err)
            break;
        p->err = tws_hub_leave(p->n->hubs[0], net_conn(p->n, 0, client), "lobby");
        if (p->err)
            break;
    }
    return NULL;
}

/* However joins and leaves fall together: in the end the subscription is as it must be. */
static void test_flapping(void **state)
{
    const uint32_t one[] = {1};
    struct publisher all[4];
    struct net n;

    (void)state;
    net_open(&n, 2, 5, NULL);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < 4; i++) {
            all[i] = (struct publisher){.n = &n, .node = i};
            support_thread(&all[i].thread, come_and_go, &all[i]);
        }
        for (size_t i = 0; i < 4; i++) {
            pthread_join(all[i].thread, NULL);
            assert_ok(all[i].err);
        }
        WAIT_FOR(bus_subscribers(n.bus, "tws.r.lobby") == 0);
    }
    assert_ok(tws_hub_join(n.hubs[0], net_conn(&n, 0, 4), "lobby"));
    WAIT_FOR(bus_subscribers(n.bus, "tws.r.lobby") == 1);
    assert_ok(net_publish(&n, 1, "lobby", 1));
    WAIT_FOR(net_has(&n, 0, 4, 1, one, 1));
    net_close(&n);
}

static void test_refused_subscription_is_tried_again(void **state)
{
    struct net n;

    (void)state;
    net_open(&n, 1, 1, NULL);
    bus_refuse_subscriptions(n.bus, 0, 1);
    assert_ok(tws_hub_join(n.hubs[0], net_conn(&n, 0, 0), "lobby"));
    WAIT_FOR(bus_subscribers(n.bus, "tws.r.lobby") == 1);
    net_close(&n);
}

static void test_rooms_that_are_there_already(void **state)
{
    struct net n;

    (void)state;
    net_open(&n, 1, 1, NULL);
    net_stop(&n, 0);
    assert_ok(tws_hub_join(n.hubs[0], net_conn(&n, 0, 0), "lobby"));
    assert_ok(net_start(&n, 0, true, NULL));
    assert_int_equal(bus_subscriptions(n.bus, 0), 0); /* not before it is connected */
    bus_up(n.bus, 0);
    WAIT_FOR(bus_subscribers(n.bus, "tws.r.lobby") == 1);
    net_close(&n);
}

/* ---- Presence ---- */

static void test_presence(void **state)
{
    tws_presence p;
    struct net n;

    (void)state;
    net_open(&n, 3, 2, NULL);
    net_join(&n, "lobby", 0, 2);
    assert_ok(tws_cluster_presence(n.clusters[0], "lobby", &p));
    assert_int_equal(p.here, 2);
    assert_int_equal(p.elsewhere, 2);
    assert_int_equal(p.nodes, 1);
    assert_err(tws_cluster_presence(n.clusters[2], "lobby", &p), TWS_ERR_STATE);
    assert_int_equal(p.here + p.elsewhere, 0);
    WAIT_FOR(net_elsewhere(&n, 2, NULL) == 4);
    /* A change is told. */
    assert_ok(tws_hub_leave(n.hubs[1], net_conn(&n, 1, 0), "lobby"));
    WAIT_FOR(net_elsewhere(&n, 0, "lobby") == 1);
    assert_ok(tws_hub_leave(n.hubs[1], net_conn(&n, 1, 1), "lobby"));
    WAIT_FOR(net_elsewhere(&n, 0, "lobby") == 0);
    /* A node that leaves drops out at once, and nobody counts that as a loss. */
    assert_ok(tws_hub_join(n.hubs[1], net_conn(&n, 1, 0), "lobby"));
    WAIT_FOR(net_elsewhere(&n, 0, "lobby") == 1);
    net_stop(&n, 1);
    WAIT_FOR(net_elsewhere(&n, 0, "lobby") == 0 && net_elsewhere(&n, 0, NULL) == 0);
    assert_int_equal(net_gap_count(&n, 0, "lobby", TWS_GAP_MISSED), 0);
    net_close(&n);
}

static void test_the_dead_drop_out(void **state)
{
    struct net n;

    (void)state;
    net_open(&n, 3, 1, NULL);
    net_join(&n, "lobby", 0, 3);
    bus_cut(n.bus, 2, true);
    WAIT_FOR(net_elsewhere(&n, 0, "lobby") == 1 && net_elsewhere(&n, 1, "lobby") == 1);
    WAIT_FOR(net_gap_count(&n, 0, "lobby", TWS_GAP_SILENT) > 0);
    /* It comes back, and what was said meanwhile is counted on both sides. */
    for (uint32_t i = 0; i < 3; i++)
        assert_ok(net_publish(&n, 2, "lobby", i));
    assert_ok(net_publish(&n, 0, "lobby", 0));
    WAIT_FOR(net_stats(&n, 2).queue_messages == 0 && net_stats(&n, 0).queue_messages == 0);
    bus_cut(n.bus, 2, false);
    WAIT_FOR(net_missed(&n, 0, "lobby") == 3 && net_missed(&n, 1, "lobby") == 3);
    WAIT_FOR(net_missed(&n, 2, "lobby") == 1);
    WAIT_FOR(net_elsewhere(&n, 0, "lobby") == 2);
    net_close(&n);
}

/* ---- Names ---- */

static void test_rooms_with_one_hash(void **state)
{
    const uint32_t one[] = {1}, two[] = {1, 2};
    char a[300], b[300];
    struct net n;

    (void)state;
    memset(a, 'a', sizeof a);
    memset(b, 'b', sizeof b);
    a[sizeof a - 1] = b[sizeof b - 1] = 0;
    net_open(&n, 2, 2, NULL);
    /* The whole hash cannot be made to collide here. */
    n.clusters[0]->hash_digits = n.clusters[1]->hash_digits = 0;
    for (size_t i = 0; i < 2; i++) {
        assert_ok(tws_hub_join(n.hubs[i], net_conn(&n, i, 0), a));
        assert_ok(tws_hub_join(n.hubs[i], net_conn(&n, i, 1), b));
    }
    WAIT_FOR(net_elsewhere(&n, 0, a) == 1 && net_elsewhere(&n, 1, a) == 1);
    WAIT_FOR(net_elsewhere(&n, 0, b) == 1 && net_elsewhere(&n, 1, b) == 1);
    assert_int_equal(bus_subscribers(n.bus, "tws.r.~"), 2);
    assert_ok(net_publish(&n, 0, a, 1));
    WAIT_FOR(net_has(&n, 1, 0, 0, one, 1));
    assert_true(net_has(&n, 1, 1, 0, NULL, 0));
    /* One of the two gives up: the other is still there. */
    assert_ok(tws_hub_leave(n.hubs[1], net_conn(&n, 1, 1), b));
    WAIT_FOR(net_stats(&n, 1).unsubscribed == 1);
    assert_ok(net_publish(&n, 0, a, 2));
    WAIT_FOR(net_has(&n, 1, 0, 0, two, 2));
    assert_ok(tws_hub_leave(n.hubs[1], net_conn(&n, 1, 0), a));
    WAIT_FOR(bus_subscribers(n.bus, "tws.r.~") == 1);
    net_close(&n);
}

static void test_too_long_a_name_stays_local(void **state)
{
    char *name = support_alloc(CLUSTER_NAME_MAX + 2);
    struct net n;

    (void)state;
    memset(name, 'x', CLUSTER_NAME_MAX + 1);
    name[CLUSTER_NAME_MAX + 1] = 0;
    net_open(&n, 1, 1, NULL);
    assert_ok(tws_hub_join(n.hubs[0], net_conn(&n, 0, 0), name));
    assert_err(net_publish(&n, 0, name, 1), TWS_ERR_ARGUMENT);
    assert_ok(tws_hub_leave(n.hubs[0], net_conn(&n, 0, 0), name));
    name[CLUSTER_NAME_MAX] = 0;
    assert_ok(tws_hub_join(n.hubs[0], net_conn(&n, 0, 0), name));
    WAIT_FOR(bus_subscriptions(n.bus, 0) == 2);
    net_close(&n);
    free(name);
}

/* ---- Handlers ---- */

struct talkers {
    struct net *n;
    _Atomic unsigned ready, done;
    _Atomic bool go;
};

static void talk(tws_conn *c, void *arg)
{
    struct talkers *t = arg;
    uint32_t publisher = atomic_fetch_add(&t->ready, 1);
    tws_message m;

    while (!atomic_load(&t->go))
        tws_sleep(1);
    for (uint32_t i = 0; i < EACH; i++) {
        struct party_note note = {publisher, i};

        if (tws_cluster_publish_message(t->n->clusters[publisher % 2], "lobby", TWS_BINARY, &note,
                                        sizeof note, NULL, NULL) != TWS_OK)
            break;
    }
    atomic_fetch_add(&t->done, 1);
    while (!tws_err_is_final(tws_read_message(c, &m))) {
    }
}

/* Connections' own threads publish, of either kind. */
static void test_handlers_publish(void **state)
{
    struct talkers t = {.ready = 0};
    struct crowd_options crowd = {.count = 8};
    struct support_server s;
    tws_server_options opt;
    struct crowd *clients;
    struct net n;

    (void)state;
    net_open(&n, 2, 1, NULL);
    net_join(&n, "lobby", 0, 2);
    t.n = &n;
    support_server_options(&opt, talk, &t);
    opt.upgrade.any_origin = true;
    support_server_start(&s, &opt);
    crowd.address = s.address;
    clients = crowd_new(&crowd);
    assert_non_null(clients);
    WAIT_FOR(atomic_load(&t.ready) == 8);
    atomic_store(&t.go, true);
    WAIT_FOR(atomic_load(&t.done) == 8);
    await_all(&n, 0, 8);
    await_all(&n, 1, 8);
    crowd_free(clients);
    tws_server_free(s.server);
    net_close(&n);
}

/* ---- Options, counters ---- */

static void assert_refused(const tws_hub *h, const tws_cluster_options *opt, tws_err wanted)
{
    struct bus *bus = bus_new();
    tws_cluster *c;
    tws_broker broker;
    tws_error error;

    bus_open(bus, 0, true, &broker);
    assert_err(tws_cluster_new(&c, (tws_hub *)(uintptr_t)h, &broker, opt, &error), wanted);
    assert_null(c);
    assert_int_equal(error.code, wanted);
    assert_true(strlen(error.text) > 0);
    bus_free(bus);
}

static void test_options(void **state)
{
    static const char *const prefixes[] = {"", "a b", "a..b", ".", "*"};
    tws_cluster_options opt;
    struct bus *bus = bus_new();
    tws_cluster *c;
    tws_broker broker;
    tws_error error;
    tws_hub *h;

    (void)state;
    assert_ok(tws_hub_new(&h, NULL));
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        tws_cluster_options_init(&opt);
        opt.prefix = prefixes[i];
        assert_refused(h, &opt, TWS_ERR_ARGUMENT);
    }
    tws_cluster_options_init(&opt);
    opt.beat = 49;
    assert_refused(h, &opt, TWS_ERR_ARGUMENT);
    opt.beat = 3600001;
    assert_refused(h, &opt, TWS_ERR_ARGUMENT);
    tws_cluster_options_init(&opt);
    opt.wait = -2;
    assert_refused(h, &opt, TWS_ERR_ARGUMENT);
    tws_cluster_options_init(&opt);
    opt.linger = -2;
    assert_refused(h, &opt, TWS_ERR_ARGUMENT);
    tws_cluster_options_init(&opt);
    opt.hold = 0;
    assert_refused(h, &opt, TWS_ERR_ARGUMENT);
    tws_cluster_options_init(&opt);
    opt.drain = -2;
    assert_refused(h, &opt, TWS_ERR_ARGUMENT);
    assert_refused(NULL, NULL, TWS_ERR_ARGUMENT);
    bus_open(bus, 0, true, &broker);
    broker.publish = NULL;
    assert_err(tws_cluster_new(&c, h, &broker, NULL, &error), TWS_ERR_ARGUMENT);
    bus_open(bus, 0, true, &broker);
    bus_answer(bus, 0, TWS_ERR_SYSTEM); /* start fails */
    assert_err(tws_cluster_new(&c, h, &broker, NULL, &error), TWS_ERR_SYSTEM);
    bus_answer(bus, 0, TWS_OK);
    assert_ok(tws_cluster_new(&c, h, &broker, NULL, &error)); /* a start that failed left nothing */
    assert_refused(h, NULL, TWS_ERR_STATE);                   /* one cluster for a hub */
    tws_cluster_free(c);
    tws_cluster_free(NULL);
    bus_open(bus, 0, true, &broker);
    tws_cluster_options_init(&opt);
    opt.prefix = "shop.chat";
    assert_ok(tws_cluster_new(&c, h, &broker, &opt, NULL));
    bus_up(bus, 0);
    WAIT_FOR(bus_subscribers(bus, "shop.chat.all") == 1);
    tws_cluster_free(c);
    tws_hub_free(h);
    bus_free(bus);
}

static void test_metrics(void **state)
{
    char text[8192], one[16];
    struct net n;

    (void)state;
    net_open(&n, 2, 1, NULL);
    net_join(&n, "lobby", 0, 2);
    assert_ok(net_publish(&n, 0, "lobby", 1));
    WAIT_FOR(net_stats(&n, 1).received == 1);
    assert_true(tws_cluster_metrics(n.clusters[1], text, sizeof text) < sizeof text);
    assert_non_null(strstr(text, "\ntws_cluster_up 1\n"));
    assert_non_null(strstr(text, "\ntws_cluster_received_total 1\n"));
    assert_non_null(strstr(text, "\ntws_cluster_subscriptions 2\n"));
    assert_non_null(strstr(text, "\ntws_cluster_broker_pending_bytes 7\n"));
    assert_non_null(strstr(text, "\ntws_cluster_broker_pending_messages 5\n"));
    assert_non_null(strstr(text, "\ntws_cluster_broker_dropped_total 3\n"));
    assert_non_null(strstr(text, "\ntws_cluster_broker_errors_total 2\n"));
    assert_non_null(strstr(text, "\ntws_cluster_ignored_total{reason=\"stale\"} 0\n"));
    assert_int_equal(tws_cluster_metrics(n.clusters[1], one, sizeof one), strlen(text));
    assert_int_equal(strlen(one), sizeof one - 1);
    net_close(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everybody_once_in_order),
        cmocka_unit_test(test_recipients),
        cmocka_unit_test(test_text_stays_text),
        cmocka_unit_test(test_subscribed_while_there_are_members),
        cmocka_unit_test(test_lingers),
        cmocka_unit_test(test_flapping),
        cmocka_unit_test(test_refused_subscription_is_tried_again),
        cmocka_unit_test(test_rooms_that_are_there_already),
        cmocka_unit_test(test_presence),
        cmocka_unit_test(test_the_dead_drop_out),
        cmocka_unit_test(test_rooms_with_one_hash),
        cmocka_unit_test(test_too_long_a_name_stays_local),
        cmocka_unit_test(test_handlers_publish),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_metrics),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
