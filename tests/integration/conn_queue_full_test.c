/* Queued writes: what a full queue does, by policy, and the marks before it is full. */
#include "support_queue.h"

#include <stdio.h>
#include <stdlib.h>

static const uint8_t hello[] = "hello";

/* ---- Full queues ---- */

static void test_drop_newest(void **state)
{
    enum { LEN = 1000 };
    tws_queue_options opt;
    struct rig r;
    uint32_t accepted = 0, refused = 0;
    uint8_t data[LEN];
    tws_err err;

    (void)state;
    tws_queue_options_init(&opt);
    opt.policy = TWS_QUEUE_DROP_NEWEST;
    opt.max_messages = 10;
    rig_open_queue(&r, &opt);
    while (refused < 20) {
        numbered_fill(data, LEN, accepted);
        err = tws_write_async(r.conn, TWS_BINARY, data, LEN, NULL, NULL);
        if (err)
            assert_err(err, TWS_ERR_QUEUE_FULL);
        accepted += !err;
        refused += err != TWS_OK;
        assert_true(queue_stats(r.conn).messages <= 10);
    }
    assert_int_equal(queue_stats(r.conn).dropped_newest, 20);
    for (uint32_t i = 0; i < accepted; i++)
        numbered_expect(&r.client, i, LEN);
    assert_ok(tws_queue_wait(r.conn, 0));
    assert_true(client_is_quiet(&r.client));
    rig_close(&r);
}

/* A thread does not wait for messages that wait for its own writer. */
static void test_own_writer(void **state)
{
    tws_queue_options opt;
    tws_writer *w;
    struct rig r;

    (void)state;
    tws_queue_options_init(&opt);
    opt.policy = TWS_QUEUE_WAIT;
    opt.wait = 0; /* for ever */
    opt.max_messages = 2;
    rig_open_queue(&r, &opt);
    assert_ok(tws_next_writer(r.conn, TWS_TEXT, &w));
    for (int i = 0; i < 2; i++)
        assert_ok(tws_write_async(r.conn, TWS_TEXT, hello, 5, NULL, NULL));
    assert_err(tws_write_async(r.conn, TWS_TEXT, hello, 5, NULL, NULL), TWS_ERR_QUEUE_FULL);
    assert_err(tws_queue_wait(r.conn, 0), TWS_ERR_STATE);
    assert_ok(tws_writer_close(w));
    assert_ok(tws_queue_wait(r.conn, 0));
    assert_int_equal(queue_stats(r.conn).sent, 2);
    rig_close(&r);
}

/* The newest arrive, and one that had begun; the others are told that they were dropped. */
static void test_drop_oldest(void **state)
{
    enum { LEN = 1000, COUNT = 500, KEPT = 8 };
    tws_queue_options opt;
    struct client_frame f;
    struct tally t;
    struct rig r;
    uint32_t last = 0, got = 0;

    (void)state;
    tws_queue_options_init(&opt);
    opt.policy = TWS_QUEUE_DROP_OLDEST;
    opt.max_bytes = KEPT * LEN;
    tally_init(&t, COUNT);
    rig_open_queue(&r, &opt);
    for (uint32_t i = 0; i < COUNT; i++) {
        numbered_send(r.conn, &t, i, LEN);
        assert_true(queue_stats(r.conn).bytes <= KEPT * LEN);
    }
    while (last < COUNT - 1) {
        uint32_t number;

        assert_true(client_next(&r.client, &f));
        number = numbered_check(f.data, f.len);
        assert_true(got == 0 || number > last);
        assert_int_equal(f.len, LEN);
        last = number;
        got++;
    }
    tally_assert_once(&t, COUNT);
    assert_int_equal(atomic_load(&t.results_ok), got);
    assert_int_equal(queue_stats(r.conn).dropped_oldest, COUNT - got);
    for (uint32_t i = COUNT - KEPT + 1; i < COUNT; i++)
        assert_err((tws_err)atomic_load(&t.results[i]), TWS_OK);
    for (uint32_t i = 0; i < COUNT; i++)
        if (atomic_load(&t.results[i]))
            assert_err((tws_err)atomic_load(&t.results[i]), TWS_ERR_DROPPED);
    rig_close(&r);
    tally_free(&t);
}

/* Several threads that drop each other's messages while they are being sent. */
enum { CROWD = 3, CROWD_EACH = 200 };

struct crowd {
    tws_conn *conn;
    struct tally *tally;
    uint32_t first;
    bool taken[CROWD_EACH];
    unsigned wrong;
    pthread_t thread;
};

static void *crowd_main(void *arg)
{
    static const uint8_t data[3000];
    struct crowd *w = arg;

    for (uint32_t i = 0; i < CROWD_EACH; i++) {
        tws_err err = tws_write_async(w->conn, TWS_BINARY, data, sizeof data, tally_done,
                                      &w->tally->tickets[w->first + i]);

        w->taken[i] = !err;
        w->wrong += err && err != TWS_ERR_QUEUE_FULL;
    }
    return NULL;
}

static void *drain_main(void *client)
{
    client_drain(client);
    return NULL;
}

static void test_drop_oldest_crowd(void **state)
{
    struct crowd crowd[CROWD] = {{.conn = NULL}};
    uint64_t taken = 0;
    tws_queue_options opt;
    pthread_t drain;
    struct tally t;
    struct rig r;

    (void)state;
    tws_queue_options_init(&opt);
    opt.policy = TWS_QUEUE_DROP_OLDEST;
    opt.max_messages = 1;
    tally_init(&t, CROWD * CROWD_EACH);
    rig_open_queue(&r, &opt);
    support_thread(&drain, drain_main, &r.client);
    for (uint32_t i = 0; i < CROWD; i++) {
        crowd[i].conn = r.conn;
        crowd[i].tally = &t;
        crowd[i].first = i * CROWD_EACH;
        support_thread(&crowd[i].thread, crowd_main, &crowd[i]);
    }
    for (uint32_t i = 0; i < CROWD; i++) {
        pthread_join(crowd[i].thread, NULL);
        assert_int_equal(crowd[i].wrong, 0);
        for (uint32_t k = 0; k < CROWD_EACH; k++)
            taken += crowd[i].taken[k];
    }
    assert_ok(tws_queue_wait(r.conn, 0));
    assert_int_equal(queue_stats(r.conn).accepted, taken);
    WAIT_FOR(atomic_load(&t.total) == taken);
    for (uint32_t i = 0; i < CROWD * CROWD_EACH; i++)
        assert_int_equal(atomic_load(&t.calls[i]), crowd[i / CROWD_EACH].taken[i % CROWD_EACH]);
    tws_abort(r.conn);
    pthread_join(drain, NULL);
    rig_close(&r);
    tally_free(&t);
}

/* A half-sent message stays, also when that leaves no room. */
static void test_drop_oldest_keeps_begun(void **state)
{
    enum { LEN = 900000, SECOND = 300000 };
    uint8_t *data = support_alloc(LEN);
    tws_queue_options opt;
    struct rig r;

    (void)state;
    tws_queue_options_init(&opt);
    opt.policy = TWS_QUEUE_DROP_OLDEST;
    rig_open_queue(&r, &opt);
    numbered_fill(data, LEN, 1);
    assert_ok(tws_write_async(r.conn, TWS_BINARY, data, LEN, NULL, NULL));
    assert_ok(tws_write_async(r.conn, TWS_BINARY, hello, 5, NULL, NULL));
    assert_err(tws_write_async(r.conn, TWS_BINARY, data, SECOND, NULL, NULL), TWS_ERR_QUEUE_FULL);
    assert_int_equal(queue_stats(r.conn).messages, 2);
    assert_int_equal(queue_stats(r.conn).dropped_oldest, 0);
    numbered_expect(&r.client, 1, LEN);
    client_expect(&r.client, CLIENT_FIN | CLIENT_BINARY, hello, 5);
    rig_close(&r);
    free(data);
}

static void test_policy_close(void **state)
{
    enum { LEN = 1000, MOST = 2000 };
    tws_queue_options opt;
    struct client_frame f;
    struct reader rd;
    struct tally t;
    struct rig r;
    uint8_t data[LEN];
    uint32_t n = 0;
    tws_err err;
    tws_error e;

    (void)state;
    tws_queue_options_init(&opt);
    opt.max_bytes = 10 * LEN;
    tally_init(&t, MOST);
    rig_open_queue(&r, &opt);
    reader_start(&rd, r.conn);
    reader_await(&rd);
    for (;; n++) {
        assert_true(n < MOST);
        numbered_fill(data, LEN, n);
        err = tws_write_async(r.conn, TWS_BINARY, data, LEN, tally_done, &t.tickets[n]);
        if (err)
            break;
    }
    assert_err(err, TWS_ERR_OVERFLOW);
    assert_err(reader_join(&rd), TWS_ERR_OVERFLOW); /* a handler learns it from its read */
    assert_err(tws_write_async(r.conn, TWS_BINARY, data, LEN, NULL, NULL), TWS_ERR_OVERFLOW);
    assert_err(tws_write_message(r.conn, TWS_BINARY, data, LEN), TWS_ERR_OVERFLOW);
    /* All but one that is half sent are given up at once. */
    WAIT_FOR(queue_stats(r.conn).messages <= 1);
    WAIT_FOR(atomic_load(&t.total) + queue_stats(r.conn).messages == n);
    rig_release(&r);
    do
        assert_true(client_next(&r.client, &f));
    while (f.opcode == CLIENT_BINARY);
    assert_int_equal(f.opcode, CLIENT_CLOSE);
    assert_int_equal(f.data[0] << 8 | f.data[1], 1013);
    assert_memory_equal(f.data + 2, "send queue full", 15);
    client_send_close(&r.client, 1013, NULL);
    client_expect_eof(&r.client);
    tws_conn_error(r.conn, &e);
    assert_err(e.code, TWS_ERR_OVERFLOW);
    assert_int_equal(e.cause, TWS_CAUSE_LIMIT);
    assert_int_equal(e.close_code, 1013);
    tally_assert_once(&t, n);
    assert_int_equal(queue_stats(r.conn).overflows, 1);
    rig_close(&r);
    tally_free(&t);
}

static void *wait_writer(void *arg)
{
    return (void *)(intptr_t)tws_write_async(arg, TWS_BINARY, hello, 5, NULL, NULL);
}

static void test_policy_wait(void **state)
{
    enum { LEN = 20000 };
    tws_queue_options opt;
    struct client_frame f;
    struct rig r;
    pthread_t thread;
    void *result;
    int n;

    (void)state;
    tws_queue_options_init(&opt);
    opt.policy = TWS_QUEUE_WAIT;
    opt.max_messages = 1;
    opt.wait = 30;
    rig_open_queue(&r, &opt);
    n = rig_fill(&r, LEN);
    assert_err(tws_write_async(r.conn, TWS_BINARY, hello, 5, NULL, NULL), TWS_ERR_QUEUE_FULL);
    assert_int_equal(queue_stats(r.conn).wait_timeouts, 1);
    opt.wait = TWS_NOWAIT;
    assert_ok(tws_set_queue(r.conn, &opt));
    assert_err(tws_write_async(r.conn, TWS_BINARY, hello, 5, NULL, NULL), TWS_ERR_QUEUE_FULL);
    opt.wait = 0;
    assert_ok(tws_set_queue(r.conn, &opt));
    support_thread(&thread, wait_writer, r.conn);
    for (int i = 0; i < n; i++) {
        assert_true(client_next(&r.client, &f));
        assert_int_equal(numbered_check(f.data, f.len), i);
    }
    client_expect(&r.client, CLIENT_FIN | CLIENT_BINARY, hello, 5);
    pthread_join(thread, &result);
    assert_err((tws_err)(intptr_t)result, TWS_OK);
    rig_close(&r);
}

/* ---- Water ---- */

struct water {
    _Atomic int highs, lows, wrong;
};

static void on_water(tws_conn *c, bool high, uint64_t bytes, void *arg)
{
    struct water *w = arg;

    (void)c;
    (void)bytes;
    if (high)
        atomic_fetch_add(&w->highs, 1);
    else
        atomic_fetch_add(&w->lows, 1);
    if (atomic_load(&w->highs) - atomic_load(&w->lows) != (high ? 1 : 0))
        atomic_fetch_add(&w->wrong, 1);
}

static void test_water(void **state)
{
    enum { LEN = 1000 };
    struct water w = {0};
    tws_queue_options opt;
    struct client_frame f;
    struct rig r;

    (void)state;
    tws_queue_options_init(&opt);
    opt.on_water = on_water;
    opt.arg = &w;
    opt.high_water = 300 * LEN; /* far more than the sockets take in from it later on */
    opt.low_water = 5 * LEN;
    rig_open_queue(&r, &opt);
    for (int round = 1; round <= 3; round++) {
        int n = 0;

        while (queue_stats(r.conn).bytes <= opt.high_water)
            numbered_send(r.conn, NULL, (uint32_t)n++, LEN);
        WAIT_FOR(atomic_load(&w.highs) == round);
        assert_int_equal(atomic_load(&w.lows), round - 1);
        while (n-- > 0)
            assert_true(client_next(&r.client, &f));
        WAIT_FOR(atomic_load(&w.lows) == round);
    }
    assert_int_equal(atomic_load(&w.wrong), 0);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drop_newest),
        cmocka_unit_test(test_own_writer),
        cmocka_unit_test(test_drop_oldest),
        cmocka_unit_test(test_drop_oldest_crowd),
        cmocka_unit_test(test_drop_oldest_keeps_begun),
        cmocka_unit_test(test_policy_close),
        cmocka_unit_test(test_policy_wait),
        cmocka_unit_test(test_water),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
