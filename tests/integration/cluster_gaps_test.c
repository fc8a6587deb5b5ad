/* Brokers that lose, double, delay and refuse; nodes that are cut off: what is reported, and what goes on. */
#include "support_net.h"

#include "cluster/message.h"
#include "support_counter.h"

#include <stdio.h>
#include <stdlib.h>

static void publish_range(struct net *n, size_t node, const char *room, uint32_t first,
                          uint32_t end)
{
    for (uint32_t i = first; i < end; i++)
        assert_ok(net_publish(n, node, room, i));
}

/* ---- Loss ---- */

static void test_loss_is_told_before_what_follows(void **state)
{
    const uint32_t wanted[] = {0, 1, 5, 6};
    const struct net_gap *g;
    struct net n;

    (void)state;
    net_open(&n, 3, 1, NULL);
    net_join(&n, "lobby", 0, 3);
    publish_range(&n, 0, "lobby", 0, 2);
    WAIT_FOR(bus_data(n.bus) == 2);
    bus_drop(n.bus, 3);
    publish_range(&n, 0, "lobby", 2, 7);
    WAIT_FOR(net_has(&n, 1, 0, 0, wanted, 4) && net_has(&n, 2, 0, 0, wanted, 4));
    assert_true(atomic_load(&net_log(&n, 0, 0)->count) == 7); /* the members here have them all */
    for (size_t i = 1; i < 3; i++) {
        assert_int_equal(net_missed(&n, i, "lobby"), 3);
        assert_int_equal(net_gap_count(&n, i, "lobby", TWS_GAP_MISSED), 1);
        g = &n.gaps[i]->list[0];
        assert_string_equal(g->origin, n.origins[0]);
        assert_true(g->delivered <= 2); /* the report came first */
        assert_int_equal(net_stats(&n, i).missed, 3);
    }
    assert_int_equal(n.gaps[0]->count, 0);
    net_close(&n);
}

/* Nothing follows: the next beat shows it. */
static void test_the_last_messages_are_lost(void **state)
{
    struct net n;

    (void)state;
    net_open(&n, 2, 1, NULL);
    net_join(&n, "lobby", 0, 2);
    bus_drop(n.bus, 4);
    publish_range(&n, 0, "lobby", 0, 4);
    WAIT_FOR(net_missed(&n, 1, "lobby") == 4);
    assert_int_equal(atomic_load(&net_log(&n, 1, 0)->count), 0);
    /* Also of a node that has no members there, and of messages to all. */
    assert_ok(tws_hub_leave(n.hubs[0], net_conn(&n, 0, 0), "lobby"));
    bus_drop(n.bus, 2);
    publish_range(&n, 0, "lobby", 4, 6);
    WAIT_FOR(net_missed(&n, 1, "lobby") == 6);
    /* What a node has not heard of until two beats after it came is the past: one is heard first. */
    assert_ok(net_publish(&n, 0, NULL, 0));
    WAIT_FOR(atomic_load(&net_log(&n, 1, 0)->count) == 1);
    bus_drop(n.bus, 1);
    assert_ok(net_publish(&n, 0, NULL, 1));
    WAIT_FOR(net_missed(&n, 1, "(all)") == 1);
    net_close(&n);
}

static void test_twice_and_in_the_wrong_order(void **state)
{
    const uint32_t wanted[] = {0, 1, 2, 3, 5, 6};
    struct net n;

    (void)state;
    net_open(&n, 2, 1, NULL);
    net_join(&n, "lobby", 0, 2);
    bus_duplicate(n.bus, 4);
    publish_range(&n, 0, "lobby", 0, 4);
    WAIT_FOR(net_stats(&n, 1).stale == 4);
    bus_swap(n.bus); /* 4 comes behind 5: too late */
    publish_range(&n, 0, "lobby", 4, 7);
    WAIT_FOR(net_has(&n, 1, 0, 0, wanted, 6));
    WAIT_FOR(net_stats(&n, 1).stale == 5);
    assert_int_equal(net_missed(&n, 1, "lobby"), 1);
    net_close(&n);
}

static void test_the_past_is_no_gap(void **state)
{
    const uint32_t wanted[] = {10};
    struct net n;

    (void)state;
    net_open(&n, 2, 1, NULL);
    assert_ok(tws_hub_join(n.hubs[0], net_conn(&n, 0, 0), "lobby"));
    publish_range(&n, 0, "lobby", 0, 10);
    WAIT_FOR(bus_data(n.bus) == 10);
    net_join(&n, "lobby", 0, 2);
    assert_ok(net_publish(&n, 0, "lobby", 10));
    WAIT_FOR(net_has(&n, 1, 0, 0, wanted, 1));
    assert_int_equal(net_gap_count(&n, 1, NULL, TWS_GAP_MISSED), 0);
    net_close(&n);
}

/* A node that has not been heard before, in a room that has been known for long. */
static void test_the_first_messages_of_a_node_are_lost(void **state)
{
    const uint32_t wanted[] = {2};
    struct net n;

    (void)state;
    net_open(&n, 3, 1, NULL);
    net_join(&n, "lobby", 0, 2);
    support_pause_ms(
        500); /* not for the outcome of the rest: two beats, by which all have spoken */
    bus_drop(n.bus, 2);
    publish_range(&n, 2, "lobby", 0, 3);
    WAIT_FOR(net_has(&n, 0, 0, 2, wanted, 1) && net_has(&n, 1, 0, 2, wanted, 1));
    assert_int_equal(net_missed(&n, 0, "lobby"), 2);
    assert_int_equal(net_missed(&n, 1, "lobby"), 2);
    /* It forgets the room in time, and numbers anew when it comes back: no gap, nothing twice. */
    WAIT_FOR(net_stats(&n, 2).rooms == 0);
    assert_ok(net_publish(&n, 2, "lobby", 3));
    WAIT_FOR(atomic_load(&net_log(&n, 0, 0)->count) == 2);
    assert_int_equal(net_missed(&n, 0, "lobby"), 2);
    net_close(&n);
}

/* ---- The connection ---- */

/* Node 1 keeps no subscriptions, node 0 does. */
static void lose_the_connection(size_t node)
{
    const uint32_t wanted[] = {0, 1, 4, 5};
    size_t other = 1 - node;
    struct net n;

    net_open(&n, 2, 1, NULL);
    net_join(&n, "lobby", 0, 2);
    publish_range(&n, other, "lobby", 0, 2);
    WAIT_FOR(atomic_load(&net_log(&n, node, 0)->count) == 2);
    bus_down(n.bus, node);
    WAIT_FOR(atomic_load(&n.gaps[node]->downs) == 1);
    publish_range(&n, other, "lobby", 2, 4);
    WAIT_FOR(bus_data(n.bus) == 4);
    /* Meanwhile its own messages reach the members here, and wait for the others. */
    publish_range(&n, node, "lobby", 0, 3);
    WAIT_FOR(atomic_load(&net_log(&n, node, 0)->count) == 5);
    assert_int_equal(net_stats(&n, node).queue_messages, 3);
    assert_false(net_stats(&n, node).up);
    bus_up(n.bus, node);
    WAIT_FOR(net_missed(&n, node, "lobby") == 2);
    WAIT_FOR(net_stats(&n, node).queue_messages == 0);
    publish_range(&n, other, "lobby", 4, 6);
    WAIT_FOR(net_has(&n, node, 0, other, wanted, 4));
    WAIT_FOR(net_has(&n, other, 0, node, (const uint32_t[]){0, 1, 2}, 3));
    assert_int_equal(net_missed(&n, other, "lobby"), 0);
    assert_int_equal(net_stats(&n, node).stale, 0);
    assert_int_equal(net_stats(&n, node).ups, 2);
    assert_int_equal(net_stats(&n, node).downs, 1);
    net_close(&n);
}

static void test_connection_lost(void **state)
{
    (void)state;
    lose_the_connection(0);
    lose_the_connection(1);
}

/* The broker has restarted; one node is back before the other, and does not speak to nobody. */
static void come_back_first(size_t node)
{
    const uint32_t wanted[] = {0, 1, 2};
    tws_cluster_options opt;
    struct net n;

    net_options(&opt);
    opt.hold = 1500;
    net_open(&n, 2, 1, &opt);
    net_join(&n, "lobby", 0, 2);
    for (size_t i = 0; i < 2; i++) {
        bus_down(n.bus, i);
        WAIT_FOR(!net_stats(&n, i).up);
    }
    publish_range(&n, node, "lobby", 0, 3);
    if (node == 0)
        support_pause_ms(800); /* it keeps its subscriptions: so long away tells of a restart */
    bus_up(n.bus, node);
    WAIT_FOR(net_stats(&n, node).up && bus_subscriptions(n.bus, node) == 2);
    bus_up(n.bus, 1 - node);
    WAIT_FOR(net_has(&n, 1 - node, 0, node, wanted, 3));
    assert_int_equal(net_missed(&n, 1 - node, "lobby"), 0);
    net_close(&n);
}

static void test_what_waits_is_held_for_the_others(void **state)
{
    (void)state;
    come_back_first(0);
    come_back_first(1);
}

/* A node that nobody knew spoke while the connection was down. */
static void test_unknown_after_a_loss(void **state)
{
    struct net n;

    (void)state;
    net_open(&n, 3, 1, NULL);
    net_join(&n, "lobby", 0, 2);
    bus_down(n.bus, 0);
    WAIT_FOR(atomic_load(&n.gaps[0]->downs) == 1);
    assert_ok(net_publish(&n, 2, "lobby", 0));
    WAIT_FOR(bus_data(n.bus) == 1);
    bus_up(n.bus, 0);
    WAIT_FOR(net_gap_count(&n, 0, "lobby", TWS_GAP_MISSED) == 1);
    assert_int_equal(net_missed(&n, 0, "lobby"), 0); /* unknown */
    net_close(&n);
}

static void test_members_come_and_go_without_a_broker(void **state)
{
    struct net n;

    (void)state;
    net_open(&n, 2, 1, NULL);
    net_join(&n, "old", 0, 2);
    for (size_t i = 0; i < 2; i++)
        bus_down(n.bus, i);
    for (size_t i = 0; i < 2; i++) {
        WAIT_FOR(!net_stats(&n, i).up);
        assert_ok(tws_hub_join(n.hubs[i], net_conn(&n, i, 0), "lobby"));
        assert_ok(tws_hub_leave(n.hubs[i], net_conn(&n, i, 0), "old"));
        bus_up(n.bus, i);
    }
    WAIT_FOR(bus_subscribers(n.bus, "tws.r.lobby") == 2 &&
             bus_subscribers(n.bus, "tws.r.old") == 0);
    WAIT_FOR(net_elsewhere(&n, 0, "lobby") == 1 && net_elsewhere(&n, 1, "lobby") == 1);
    net_close(&n);
}

/* ---- The queue ---- */

static void test_a_full_queue(void **state)
{
    const uint32_t wanted[] = {0, 1, 2, 3, 7};
    tws_cluster_options opt;
    struct net n;

    (void)state;
    net_options(&opt);
    opt.max_messages = 4;
    net_open(&n, 2, 1, &opt);
    net_join(&n, "lobby", 0, 2);
    WAIT_FOR(net_stats(&n, 0).queue_messages == 0);
    bus_down(n.bus, 0);
    WAIT_FOR(!net_stats(&n, 0).up);
    WAIT_FOR(net_stats(&n, 0).queue_messages == 0);
    publish_range(&n, 0, "lobby", 0, 4);
    for (uint32_t i = 4; i < 7; i++)
        assert_err(net_publish(&n, 0, "lobby", i), TWS_ERR_QUEUE_FULL);
    WAIT_FOR(atomic_load(&net_log(&n, 0, 0)->count) == 7); /* the members here have them */
    assert_int_equal(net_stats(&n, 0).refused, 3);
    bus_up(n.bus, 0);
    WAIT_FOR(net_missed(&n, 1, "lobby") == 3);
    assert_ok(net_publish(&n, 0, "lobby", 7));
    WAIT_FOR(net_has(&n, 1, 0, 0, wanted, 5));
    net_close(&n);
}

static void test_bytes_and_sizes(void **state)
{
    char *data = support_alloc(3000);
    tws_cluster_options opt;
    struct net n;

    (void)state;
    memset(data, 'x', 3000);
    net_options(&opt);
    opt.max_bytes = 2500;
    opt.max_message = 2000;
    net_open(&n, 1, 1, &opt);
    WAIT_FOR(net_stats(&n, 0).queue_messages == 0);
    bus_down(n.bus, 0);
    WAIT_FOR(!net_stats(&n, 0).up);
    assert_err(tws_cluster_publish_message(n.clusters[0], "r", TWS_TEXT, data, 2001, NULL, NULL),
               TWS_ERR_MESSAGE_SIZE);
    assert_ok(tws_cluster_publish_message(n.clusters[0], "r", TWS_TEXT, data, 2000, NULL, NULL));
    assert_err(tws_cluster_publish_message(n.clusters[0], "r", TWS_TEXT, data, 1000, NULL, NULL),
               TWS_ERR_QUEUE_FULL);
    assert_true(net_stats(&n, 0).queue_bytes > 2000 && net_stats(&n, 0).queue_bytes <= 2500);
    net_close(&n);
    free(data);
}

struct waiter {
    pthread_t thread;
    struct net *n;
    tws_err err;
    _Atomic bool done;
};

static void *wait_for_room(void *arg)
{
    struct waiter *w = arg;

    w->err = net_publish(w->n, 0, "lobby", 4);
    atomic_store(&w->done, true);
    return NULL;
}

/* A broker that is there but takes nothing: who wants to waits, at most for so long. */
static void slow_broker(tws_ms wait, tws_err wanted)
{
    tws_cluster_options opt;
    struct waiter w = {.err = TWS_OK};
    struct net n;

    net_options(&opt);
    opt.beat = 3600000; /* the queue is for data alone */
    opt.max_messages = 4;
    opt.wait = wait;
    net_open(&n, 2, 1, &opt);
    net_join(&n, "lobby", 0, 2);
    WAIT_FOR(net_stats(&n, 0).queue_messages == 0);
    bus_answer(n.bus, 0, TWS_ERR_TIMEOUT);
    publish_range(&n, 0, "lobby", 0, 4);
    w.n = &n;
    support_thread(&w.thread, wait_for_room, &w);
    WAIT_FOR(net_stats(&n, 0).waited == 1);
    WAIT_FOR(atomic_load(&net_log(&n, 0, 0)->count) == 5); /* the members here did not wait */
    if (wanted == TWS_OK)
        bus_answer(n.bus, 0, TWS_OK);
    pthread_join(w.thread, NULL);
    assert_err(w.err, wanted);
    bus_answer(n.bus, 0, TWS_OK);
    WAIT_FOR(atomic_load(&net_log(&n, 1, 0)->count) == (wanted == TWS_OK ? 5 : 4));
    net_close(&n);
}

static void test_waiting_for_room(void **state)
{
    (void)state;
    slow_broker(TWS_NO_LIMIT, TWS_OK);
    slow_broker(50, TWS_ERR_QUEUE_FULL);
}

static void test_a_waiter_does_not_wait_for_a_broker_that_goes(void **state)
{
    tws_cluster_options opt;
    struct waiter w = {.err = TWS_OK};
    struct net n;

    (void)state;
    net_options(&opt);
    opt.max_messages = 4;
    opt.wait = TWS_NO_LIMIT;
    opt.drain = TWS_NOWAIT;
    net_open(&n, 1, 1, &opt);
    WAIT_FOR(net_stats(&n, 0).queue_messages == 0);
    bus_answer(n.bus, 0, TWS_ERR_TIMEOUT);
    while (net_stats(&n, 0).queue_messages < 4)
        assert_ok(net_publish(&n, 0, "lobby", 0));
    w.n = &n;
    support_thread(&w.thread, wait_for_room, &w);
    WAIT_FOR(net_stats(&n, 0).waited == 1);
    bus_down(n.bus, 0);
    pthread_join(w.thread, NULL);
    assert_err(w.err, TWS_ERR_QUEUE_FULL);
    net_close(&n);
}

static void test_what_the_broker_does_not_take_is_told(void **state)
{
    struct net n;

    (void)state;
    net_open(&n, 2, 1, NULL);
    net_join(&n, "lobby", 0, 2);
    WAIT_FOR(net_stats(&n, 0).queue_messages == 0);
    bus_answer(n.bus, 0, TWS_ERR_MESSAGE_SIZE);
    publish_range(&n, 0, "lobby", 0, 2);
    WAIT_FOR(net_gap_count(&n, 0, "lobby", TWS_GAP_UNSENT) == 2);
    assert_int_equal(net_stats(&n, 0).unsent, 2);
    bus_answer(n.bus, 0, TWS_OK);
    WAIT_FOR(net_missed(&n, 1, "lobby") == 2);
    net_close(&n);
}

static void test_the_end_sends_what_is_queued(void **state)
{
    const uint32_t wanted[] = {0, 1, 2};
    tws_cluster_options opt;
    struct net n;

    (void)state;
    net_open(&n, 2, 1, NULL);
    net_join(&n, "lobby", 0, 2);
    bus_answer(n.bus, 0, TWS_ERR_CLOSED); /* says so without having been down: asked again */
    publish_range(&n, 0, "lobby", 0, 3);
    bus_answer(n.bus, 0, TWS_OK);
    net_stop(&n, 0);
    WAIT_FOR(net_has(&n, 1, 0, 0, wanted, 3));
    WAIT_FOR(net_elsewhere(&n, 1, "lobby") == 0);
    /* What cannot leave in time is told. */
    net_options(&opt);
    opt.drain = 20;
    assert_ok(net_start(&n, 0, true, &opt));
    publish_range(&n, 0, "lobby", 0, 2);
    net_stop(&n, 0);
    assert_int_equal(net_gap_count(&n, 0, "lobby", TWS_GAP_UNSENT), 2);
    net_close(&n);
}

/* ---- Bytes from elsewhere ---- */

static void test_foreign_bytes(void **state)
{
    uint8_t good[256], bad[sizeof good];
    char subject[256];
    uint64_t foreign = 0;
    struct net n;
    size_t len;

    (void)state;
    net_open(&n, 2, 1, NULL);
    net_join(&n, "lobby", 0, 2);
    net_join(&n, "other", 0, 2);
    assert_ok(net_publish(&n, 0, "lobby", 0));
    WAIT_FOR(atomic_load(&net_log(&n, 1, 0)->count) == 1);
    len = bus_last(n.bus, good, sizeof good, subject, sizeof subject);
    assert_string_equal(subject, "tws.r.lobby");
    /* Every byte of the head changed: ignored, or a message of another node or number, never a crash. */
    for (size_t i = 0; i < CLUSTER_HEAD; i++) {
        memcpy(bad, good, len);
        bad[i] ^= 0x80;
        bus_inject(n.bus, "tws.r.lobby", bad, len);
    }
    for (size_t cut = 0; cut < CLUSTER_HEAD + 5; cut++)
        bus_inject(n.bus, "tws.r.lobby", good, cut);
    WAIT_FOR(bus_idle(n.bus));
    WAIT_FOR(net_stats(&n, 1).foreign > 60);
    foreign = net_stats(&n, 1).foreign;
    /* A room's message under another room's subject, text that is none. */
    bus_inject(n.bus, "tws.r.other", good, len);
    WAIT_FOR(net_stats(&n, 1).foreign == foreign + 1);
    memcpy(bad, good, len);
    bad[6] = TWS_TEXT;
    bad[8] ^= 1;
    bad[len - 1] = 0xff;
    bus_inject(n.bus, "tws.r.lobby", bad, len);
    WAIT_FOR(net_stats(&n, 1).foreign == foreign + 2);
    /* Its own message again is an echo for the one, a duplicate for the other. */
    bus_inject(n.bus, "tws.r.lobby", good, len);
    WAIT_FOR(net_stats(&n, 0).echoes > 0 && net_stats(&n, 1).stale > 0);
    net_close(&n);
}

/* ---- Memory ---- */

static void test_without_memory(void **state)
{
    tws_cluster_options opt;
    struct counter k = {0};
    tws_allocator a = counter_allocator(&k);
    struct net n;
    tws_err err;

    (void)state;
    net_options(&opt);
    opt.allocator = &a;
    opt.beat = 3600000;
    net_open(&n, 2, 1, NULL);
    net_stop(&n, 0);
    for (long i = 0; i < 3; i++) {
        atomic_store(&k.fail_from, atomic_load(&k.calls) + i);
        atomic_store(&k.fail_count, 1000000);
        assert_err(net_start(&n, 0, true, &opt), TWS_ERR_MEMORY);
        assert_int_equal(atomic_load(&k.live), 0);
    }
    atomic_store(&k.fail_count, 0);
    assert_ok(net_start(&n, 0, true, &opt));
    bus_up(n.bus, 0);
    net_join(&n, "lobby", 0, 2);
    WAIT_FOR(net_stats(&n, 0).queue_messages == 0);
    atomic_store(&k.fail_from, atomic_load(&k.calls));
    atomic_store(&k.fail_count, 1000000);
    assert_err(net_publish(&n, 0, "lobby", 0), TWS_ERR_MEMORY); /* those here have it */
    err = tws_hub_join(n.hubs[0], net_conn(&n, 0, 0), "another");
    assert_err(err, TWS_ERR_MEMORY); /* rather than a room that nobody elsewhere reaches */
    assert_int_equal(tws_hub_count(n.hubs[0], "another"), 0);
    atomic_store(&k.fail_count, 0);
    assert_ok(tws_hub_join(n.hubs[0], net_conn(&n, 0, 0), "another"));
    assert_ok(net_publish(&n, 0, "lobby", 1));
    WAIT_FOR(net_missed(&n, 1, "lobby") == 1);
    WAIT_FOR(atomic_load(&net_log(&n, 1, 0)->count) == 1);
    net_stop(&n, 0);
    assert_int_equal(atomic_load(&k.live), 0);
    net_close(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loss_is_told_before_what_follows),
        cmocka_unit_test(test_the_last_messages_are_lost),
        cmocka_unit_test(test_twice_and_in_the_wrong_order),
        cmocka_unit_test(test_the_past_is_no_gap),
        cmocka_unit_test(test_the_first_messages_of_a_node_are_lost),
        cmocka_unit_test(test_connection_lost),
        cmocka_unit_test(test_what_waits_is_held_for_the_others),
        cmocka_unit_test(test_unknown_after_a_loss),
        cmocka_unit_test(test_members_come_and_go_without_a_broker),
        cmocka_unit_test(test_a_full_queue),
        cmocka_unit_test(test_bytes_and_sizes),
        cmocka_unit_test(test_waiting_for_room),
        cmocka_unit_test(test_a_waiter_does_not_wait_for_a_broker_that_goes),
        cmocka_unit_test(test_what_the_broker_does_not_take_is_told),
        cmocka_unit_test(test_the_end_sends_what_is_queued),
        cmocka_unit_test(test_foreign_bytes),
        cmocka_unit_test(test_without_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
