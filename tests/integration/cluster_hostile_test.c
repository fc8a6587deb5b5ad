/* A cluster's callbacks that publish, nodes that somebody invents, and messages of long ago. */
#include "support_net.h"

#include "cluster/message.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- Callbacks that publish ---- */

struct speaker {
    tws_cluster *cluster;
    _Atomic unsigned gaps, refused;
};

/* What has not gone out is said again, which may fail as well. */
static void say_again(const tws_gap *gap, void *arg)
{
    struct speaker *s = arg;

    if (gap->cause != TWS_GAP_UNSENT || atomic_fetch_add(&s->gaps, 1) >= 3)
        return;
    if (tws_cluster_publish_message(s->cluster, gap->room, TWS_TEXT, "again", 5, NULL, NULL))
        atomic_fetch_add(&s->refused, 1);
}

static void speaker_open(struct speaker *s, struct net *n, tws_ms wait)
{
    tws_cluster_options opt;
    tws_broker broker;

    memset(s, 0, sizeof *s);
    net_open(n, 1, 1, NULL);
    net_stop(n, 0);
    tws_cluster_options_init(&opt);
    opt.wait = wait;
    opt.max_messages = 1;
    opt.drain = TWS_NOWAIT;
    opt.on_gap = say_again;
    opt.arg = s;
    bus_open(n->bus, 0, true, &broker);
    assert_ok(tws_cluster_new(&s->cluster, n->hubs[0], &broker, &opt, NULL));
}

static size_t waiting(const struct speaker *s)
{
    tws_cluster_stats stats;

    tws_cluster_get_stats(s->cluster, &stats);
    return stats.queue_messages;
}

/* The thread that would make room is the one that waits for it. */
static void test_a_gap_that_publishes(void **state)
{
    struct speaker s;
    struct net n;

    (void)state;
    speaker_open(&s, &n, TWS_NO_LIMIT);
    bus_up(n.bus, 0);
    WAIT_FOR(bus_subscriptions(n.bus, 0) == 1 && waiting(&s) == 0);
    bus_answer(n.bus, 0, TWS_ERR_NETWORK);
    assert_ok(tws_cluster_publish_message(s.cluster, "lobby", TWS_TEXT, "hello", 5, NULL, NULL));
    WAIT_FOR(atomic_load(&s.gaps) == 1 && waiting(&s) == 0);
    assert_int_equal(atomic_load(&s.refused), 1);
    tws_cluster_free(s.cluster);
    net_close(&n);
}

static void test_a_gap_that_publishes_at_the_end(void **state)
{
    struct speaker s;
    struct net n;

    (void)state;
    speaker_open(&s, &n, TWS_NO_LIMIT);
    assert_ok(tws_cluster_publish_message(s.cluster, "lobby", TWS_TEXT, "hello", 5, NULL, NULL));
    tws_cluster_free(s.cluster); /* nothing is left in the queue, or it would leak */
    assert_int_equal(atomic_load(&s.gaps), 1);
    assert_int_equal(atomic_load(&s.refused), 1);
    net_close(&n);
}

/* ---- Nodes that nobody knows ---- */

static void inject(struct net *n, const char *room, const struct cluster_message *m)
{
    struct cluster_message one = *m;
    char subject[CLUSTER_SUBJECT_MAX];
    uint8_t bytes[256];

    one.name = room;
    one.name_len = strlen(room);
    cluster_subject(subject, "tws", room, one.name_len, CLUSTER_HASH_DIGITS);
    cluster_message_write(bytes, &one);
    bus_inject(n->bus, subject, bytes, CLUSTER_HEAD + one.name_len + one.len);
}

static void invent_nodes(struct net *n, uint32_t first, uint32_t end)
{
    struct cluster_message m = {
        .kind = CLUSTER_BEAT, .stream = 1, .seq = 0, .members = 1, .beat_ms = 3600000};

    for (uint32_t i = first; i < end; i++) {
        memcpy(m.origin, &i, sizeof i);
        inject(n, "lobby", &m);
    }
    WAIT_FOR(bus_idle(n->bus));
}

/* Memory stays bounded, and a node that comes later is heard all the same. */
static void test_invented_nodes(void **state)
{
    const uint32_t wanted[] = {0};
    tws_presence p;
    struct net n;

    (void)state;
    net_open(&n, 2, 1, NULL);
    assert_ok(tws_hub_join(n.hubs[1], net_conn(&n, 1, 0), "lobby"));
    WAIT_FOR(bus_subscribers(n.bus, "tws.r.lobby") == 1);
    invent_nodes(&n, 1, 1100);
    assert_ok(tws_cluster_presence(n.clusters[1], "lobby", &p));
    assert_in_range(p.nodes, 1, 1024);
    assert_ok(net_publish(&n, 0, "lobby", 0));
    WAIT_FOR(net_has(&n, 1, 0, 0, wanted, 1));
    net_close(&n);
}

static void test_numbers_beyond_measure(void **state)
{
    struct cluster_message m = {
        .kind = CLUSTER_BEAT, .stream = 1, .members = UINT64_MAX, .beat_ms = 3600000};
    uint64_t foreign;
    struct net n;

    (void)state;
    net_open(&n, 1, 1, NULL);
    assert_ok(tws_hub_join(n.hubs[0], net_conn(&n, 0, 0), "lobby"));
    WAIT_FOR(bus_subscribers(n.bus, "tws.r.lobby") == 1);
    inject(&n, "lobby", &m);
    m.origin[0] = 1;
    inject(&n, "lobby", &m);
    WAIT_FOR(bus_idle(n.bus));
    assert_true(net_elsewhere(&n, 0, "lobby") == UINT64_MAX);
    /* No node may ask to be remembered for years. */
    foreign = net_stats(&n, 0).foreign;
    m.beat_ms = 3600001;
    inject(&n, "lobby", &m);
    WAIT_FOR(net_stats(&n, 0).foreign == foreign + 1);
    net_close(&n);
}

/* ---- What comes again long afterwards ---- */

static void test_twice_after_a_farewell(void **state)
{
    uint8_t bytes[256];
    char subject[CLUSTER_SUBJECT_MAX];
    struct net n;
    size_t len;

    (void)state;
    net_open(&n, 2, 1, NULL);
    assert_ok(tws_hub_join(n.hubs[1], net_conn(&n, 1, 0), "lobby"));
    WAIT_FOR(bus_subscribers(n.bus, "tws.r.lobby") == 1);
    assert_ok(net_publish(&n, 0, "lobby", 0));
    WAIT_FOR(atomic_load(&net_log(&n, 1, 0)->count) == 1);
    len = bus_last(n.bus, bytes, sizeof bytes, subject, sizeof subject);
    WAIT_FOR(net_stats(&n, 0).rooms == 0); /* it has taken its leave */
    WAIT_FOR(bus_idle(n.bus));
    bus_inject(n.bus, subject, bytes, len);
    WAIT_FOR(net_stats(&n, 1).stale + net_stats(&n, 1).received == 2);
    assert_int_equal(atomic_load(&net_log(&n, 1, 0)->count), 1);
    assert_int_equal(net_stats(&n, 1).gaps, 0);
    /* It comes back under new numbers, of which the first is lost. */
    bus_drop(n.bus, 1);
    assert_ok(net_publish(&n, 0, "lobby", 1));
    assert_ok(net_publish(&n, 0, "lobby", 2));
    WAIT_FOR(atomic_load(&net_log(&n, 1, 0)->count) == 2);
    assert_int_equal(net_missed(&n, 1, "lobby"), 1);
    net_close(&n);
}

/* ---- A broker that comes and goes ---- */

static void test_beats_do_not_pile_up(void **state)
{
    tws_cluster_options opt;
    struct net n;

    (void)state;
    net_options(&opt);
    opt.hold = 3600000;
    net_open(&n, 2, 1, &opt);
    for (unsigned i = 0; i < 20; i++) {
        bus_down(n.bus, 1);
        WAIT_FOR(!net_stats(&n, 1).up);
        bus_up(n.bus, 1);
        WAIT_FOR(net_stats(&n, 1).up && bus_subscriptions(n.bus, 1) == 1);
    }
    support_pause_ms(1000); /* five beats, none of which leaves */
    assert_in_range(net_stats(&n, 1).queue_messages, 1, 2);
    net_close(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_twice_after_a_farewell),
        cmocka_unit_test(test_numbers_beyond_measure),
        cmocka_unit_test(test_invented_nodes),
        cmocka_unit_test(test_a_gap_that_publishes_at_the_end),
        cmocka_unit_test(test_a_gap_that_publishes),
        cmocka_unit_test(test_beats_do_not_pile_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
