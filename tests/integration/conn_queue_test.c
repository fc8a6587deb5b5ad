/* Queued writes: where a message goes, in which order, who is told. */
#include "support_queue.h"

#include <tws/pair.h>

#include "conn/queue.h"

#include <stdio.h>
#include <stdlib.h>

static const uint8_t hello[] = "hello";

/* ---- A peer that keeps up ---- */

/* Nothing is queued and no thread is made; the callback does not run inside the call. */
static void test_direct(void **state)
{
    enum { COUNT = 200 };
    struct tally t;
    struct rig r;

    (void)state;
    tally_init(&t, COUNT);
    rig_open(&r, NULL);
    for (uint32_t i = 0; i < COUNT; i++) {
        pthread_mutex_lock(&t.lock); /* the callback takes it too */
        numbered_send(r.conn, &t, i, 100);
        pthread_mutex_unlock(&t.lock);
        numbered_expect(&r.client, i, 100);
    }
    tally_assert_once(&t, COUNT);
    assert_int_equal(atomic_load(&t.results_ok), COUNT);
    assert_int_equal(atomic_load(&t.out_of_order), 0);
    assert_int_equal(queue_stats(r.conn).direct, COUNT);
    assert_int_equal(queue_stats(r.conn).sent, COUNT);
    assert_int_equal(queue_stats(r.conn).writers_started, 0);
    assert_int_equal(queue_stats(r.conn).peak_messages, 0);
    rig_close(&r);
    tally_free(&t);
}

static void test_arguments(void **state)
{
    tws_queue_options opt, got;
    struct rig r;

    (void)state;
    tws_queue_options_init(&opt);
    opt.max_bytes = 100;
    rig_open_queue(&r, &opt);
    assert_err(tws_write_async(r.conn, (tws_opcode)7, "", 0, NULL, NULL), TWS_ERR_ARGUMENT);
    assert_err(tws_write_async(r.conn, TWS_TEXT, NULL, 1, NULL, NULL), TWS_ERR_ARGUMENT);
    assert_err(tws_write_async(r.conn, TWS_TEXT, "\xff", 1, NULL, NULL), TWS_ERR_TEXT);
    assert_err(tws_write_async(r.conn, TWS_BINARY, opt.reserved, 101, NULL, NULL),
               TWS_ERR_MESSAGE_SIZE);
    assert_ok(tws_set_limit(r.conn, TWS_LIMIT_WRITE, 4));
    assert_err(tws_write_async(r.conn, TWS_BINARY, hello, 5, NULL, NULL), TWS_ERR_MESSAGE_SIZE);
    assert_ok(tws_set_limit(r.conn, TWS_LIMIT_WRITE, 0));

    tws_get_queue(r.conn, &got);
    assert_int_equal(got.max_bytes, 100);
    assert_int_equal(got.high_water, 75);
    got.policy = (tws_queue_policy)9;
    assert_err(tws_set_queue(r.conn, &got), TWS_ERR_ARGUMENT);
    tws_get_queue(r.conn, &got);
    got.writer = (tws_writer_mode)9;
    assert_err(tws_set_queue(r.conn, &got), TWS_ERR_ARGUMENT);
    tws_get_queue(r.conn, &got);
    got.wait = -7;
    assert_err(tws_set_queue(r.conn, &got), TWS_ERR_ARGUMENT);
    tws_get_queue(r.conn, &got);
    got.low_water = got.high_water + 1;
    assert_err(tws_set_queue(r.conn, &got), TWS_ERR_ARGUMENT);
    memset(&got, 0, sizeof got);
    assert_err(tws_set_queue(r.conn, &got), TWS_ERR_ARGUMENT);
    assert_err(tws_set_queue(r.conn, NULL), TWS_ERR_ARGUMENT);
    assert_err(tws_queue_wait(r.conn, -5), TWS_ERR_ARGUMENT);
    assert_ok(tws_queue_wait(r.conn, 0));
    assert_ok(tws_write_async(r.conn, TWS_TEXT, NULL, 0, NULL, NULL));
    client_expect(&r.client, CLIENT_FIN | CLIENT_TEXT, "", 0);
    rig_close(&r);
}

/* A length that went below nothing is a mistake, not something to read or to add to. */
static void test_absurd_length(void **state)
{
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    assert_err(tws_write_async(r.conn, TWS_TEXT, hello, SIZE_MAX - 8, NULL, NULL),
               TWS_ERR_MESSAGE_SIZE);
    assert_ok(tws_write_async(r.conn, TWS_TEXT, hello, 5, NULL, NULL));
    client_expect_text(&r.client, "hello");
    rig_close(&r);
}

static void test_bad_server_options(void **state)
{
    tws_server_options opt;
    tws_server *s;

    (void)state;
    rig_options(&opt);
    opt.upgrade.conn.queue.policy = (tws_queue_policy)4;
    assert_err(tws_server_start(&s, &opt, NULL), TWS_ERR_ARGUMENT);
}

/* ---- A peer that does not ---- */

/* A writer comes, sends everything in order, and leaves. */
static void test_slow(void **state)
{
    enum { COUNT = 300, LEN = 3000 };
    struct support_census before;
    struct tally t;
    struct rig r;

    (void)state;
    tally_init(&t, COUNT);
    rig_open(&r, NULL);
    rig_narrow(&r);
    numbered_send(r.conn, NULL, 7, 100); /* the callbacks' thread is not there yet */
    numbered_expect(&r.client, 7, 100);
    before = support_census();
    for (uint32_t i = 0; i < COUNT; i++)
        numbered_send(r.conn, &t, i, LEN);
    assert_true(queue_stats(r.conn).writer_running);
    assert_int_equal(queue_stats(r.conn).writers_started, 1);
    assert_true(queue_stats(r.conn).bytes <= COUNT * LEN);
    for (uint32_t i = 0; i < COUNT; i++)
        numbered_expect(&r.client, i, LEN);
    assert_ok(tws_queue_wait(r.conn, 0));
    WAIT_FOR(!queue_stats(r.conn).writer_running);
    tally_assert_once(&t, COUNT);
    assert_int_equal(atomic_load(&t.results_ok), COUNT);
    assert_int_equal(atomic_load(&t.out_of_order), 0);
    assert_int_equal(queue_stats(r.conn).bytes, 0);
    assert_true(queue_stats(r.conn).peak_bytes > LEN);
    support_assert_census(before);
    rig_close(&r);
    tally_free(&t);
}

/* A message of which the socket takes a part is not torn. */
static void test_partial(void **state)
{
    enum { LEN = 900000 };
    uint8_t *data = support_alloc(LEN);
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    rig_narrow(&r);
    numbered_fill(data, LEN, 1);
    assert_ok(tws_write_async(r.conn, TWS_BINARY, data, LEN, NULL, NULL));
    memset(data, 0, LEN); /* the caller's again */
    assert_int_equal(queue_stats(r.conn).messages, 1);
    assert_ok(tws_write_async(r.conn, TWS_BINARY, hello, 5, NULL, NULL));
    numbered_expect(&r.client, 1, LEN);
    client_expect(&r.client, CLIENT_FIN | CLIENT_BINARY, hello, 5);
    rig_close(&r);
    free(data);
}

static bool somebody_asks(tws_conn *c)
{
    bool asks;

    pthread_mutex_lock(&c->mu);
    asks = conn_queue(c)->asking != NULL;
    pthread_mutex_unlock(&c->mu);
    return asks;
}

static void *ping_it(void *conn)
{
    return (void *)(intptr_t)tws_ping(conn, "!", 1);
}

static uint64_t pings_in(tws_conn *c)
{
    tws_stats s;

    tws_conn_stats(c, &s);
    return s.pings_in;
}

/* Pings, pongs and what a ping of the peer is answered with pass between queued messages. */
static void test_control_overtakes(void **state)
{
    enum { LEN = 20000 };
    struct client_frame f;
    struct reader rd;
    struct rig r;
    pthread_t thread;
    void *result;
    int n, seen = 0, pong_at = -1, ping_at = -1;

    (void)state;
    rig_open(&r, NULL);
    rig_narrow(&r);
    n = rig_fill(&r, LEN);
    for (int more = 0; more < 20; more++)
        numbered_send(r.conn, NULL, (uint32_t)n++, LEN);
    reader_start(&rd, r.conn);
    reader_await(&rd);
    client_send(&r.client, CLIENT_FIN | CLIENT_PING, "?", 1);
    WAIT_FOR(pings_in(r.conn) == 1);
    support_thread(&thread, ping_it, r.conn);
    WAIT_FOR(somebody_asks(r.conn));
    while (seen < n) {
        assert_true(client_next(&r.client, &f));
        if (f.opcode == CLIENT_PONG)
            pong_at = seen;
        else if (f.opcode == CLIENT_PING)
            ping_at = seen;
        else
            assert_int_equal(numbered_check(f.data, f.len), seen++);
    }
    pthread_join(thread, &result);
    assert_err((tws_err)(intptr_t)result, TWS_OK);
    assert_in_range(pong_at, 0, n - 10);
    assert_in_range(ping_at, 0, n - 10);
    client_close(&r.client);
    reader_join(&rd);
    rig_close(&r);
}

/* ---- Order ---- */

struct mixer {
    pthread_t thread;
    tws_conn *conn;
    uint32_t id;
    tws_err err;
};

enum { MIXERS = 4, MIXED = 120 };

/* Queued, synchronous, prepared and streamed messages of one thread. */
static tws_err mix_one(struct mixer *m, uint32_t number)
{
    char text[700];
    tws_prepared *p;
    tws_writer *w;
    tws_err err;
    size_t len = sizeof text - 1;

    memset(text, '.', len);
    text[snprintf(text, sizeof text, "%u %u", m->id, number)] = ' ';
    text[len] = 0;
    switch ((number + m->id) % 5) {
    case 0:
        return tws_write_message(m->conn, TWS_TEXT, text, len);
    case 1:
        err = tws_next_writer(m->conn, TWS_TEXT, &w);
        if (err)
            return err;
        err = tws_writer_write(w, text, len);
        return err ? (tws_writer_close(w), err) : tws_writer_close(w);
    case 2:
        err = tws_prepared_new(&p, TWS_TEXT, text, len);
        if (!err)
            err = number % 2 ? tws_write_prepared(m->conn, p)
                             : tws_write_prepared_async(m->conn, p, NULL, NULL);
        tws_prepared_unref(p);
        return err;
    default:
        return tws_write_async(m->conn, TWS_TEXT, text, len, NULL, NULL);
    }
}

static void *mixer_main(void *arg)
{
    struct mixer *m = arg;

    for (uint32_t i = 0; i < MIXED && !m->err; i++)
        m->err = mix_one(m, i);
    return NULL;
}

/* Each thread's messages come in the order of its calls, however it sends them. */
static void mixed(tws_writer_mode mode)
{
    struct mixer m[MIXERS];
    uint32_t next[MIXERS] = {0};
    tws_queue_options opt;
    struct rig r;

    tws_queue_options_init(&opt);
    opt.writer = mode;
    rig_open_queue(&r, &opt);
    for (uint32_t i = 0; i < MIXERS; i++) {
        m[i] = (struct mixer){.conn = r.conn, .id = i};
        support_thread(&m[i].thread, mixer_main, &m[i]);
    }
    for (int i = 0; i < MIXERS * MIXED; i++) {
        struct client_frame f;
        unsigned id, number;

        assert_true(client_next(&r.client, &f));
        if (!f.fin && f.len == 0 && client_next(&r.client, &f))
            assert_int_equal(f.opcode, CLIENT_CONT);
        assert_true(f.len > 0);
        assert_int_equal(sscanf((const char *)f.data, "%u %u ", &id, &number), 2);
        assert_true(id < MIXERS);
        assert_int_equal(number, next[id]++);
        if (!f.fin) {
            assert_true(client_next(&r.client, &f));
            assert_int_equal(f.opcode, CLIENT_CONT);
            assert_true(f.fin);
        }
    }
    for (int i = 0; i < MIXERS; i++) {
        pthread_join(m[i].thread, NULL);
        assert_err(m[i].err, TWS_OK);
    }
    rig_close(&r);
}

static void test_mixed_demand(void **state)
{
    (void)state;
    mixed(TWS_WRITER_DEMAND);
}

static void test_mixed_resident(void **state)
{
    (void)state;
    mixed(TWS_WRITER_RESIDENT);
}

static void test_mixed_none(void **state)
{
    (void)state;
    mixed(TWS_WRITER_NONE);
}

/* What is queued while a message is open leaves when that has ended. */
static void test_behind_open_writer(void **state)
{
    tws_writer *w;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    assert_ok(tws_next_writer(r.conn, TWS_TEXT, &w));
    assert_ok(tws_writer_write(w, "one", 3));
    assert_ok(tws_write_async(r.conn, TWS_TEXT, "two", 3, NULL, NULL));
    assert_ok(tws_ping(r.conn, "?", 1));
    assert_int_equal(queue_stats(r.conn).messages, 1);
    client_expect(&r.client, CLIENT_FIN | CLIENT_PING, "?", 1);
    assert_true(client_is_quiet(&r.client));
    assert_ok(tws_writer_close(w));
    client_expect_text(&r.client, "one");
    client_expect_text(&r.client, "two");
    rig_close(&r);
}

/* ---- Inside callbacks ---- */

struct chain {
    tws_server *server;
    _Atomic int left, drained;
    _Atomic bool closed;
};

/* Queues the next message, tries what is not allowed, and closes after the last. */
static void next_link(tws_conn *c, tws_err result, void *arg)
{
    struct chain *k = arg;

    if (result) {
        atomic_store(&k->left, -1);
    } else if (atomic_fetch_sub(&k->left, 1) > 1) {
        tws_write_async(c, TWS_BINARY, hello, 5, next_link, k);
    } else {
        atomic_store(&k->drained, tws_server_drain(k->server, 1));
        tws_close(c, 1000, "enough");
        atomic_store(&k->closed, true);
    }
}

static void test_inside_callbacks(void **state)
{
    enum { LINKS = 100 };
    struct chain k = {.server = NULL};
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    k.server = r.s.server;
    atomic_store(&k.left, LINKS);
    assert_ok(tws_write_async(r.conn, TWS_BINARY, hello, 5, next_link, &k));
    for (int i = 0; i < LINKS; i++)
        client_expect(&r.client, CLIENT_FIN | CLIENT_BINARY, hello, 5);
    client_expect_close(&r.client, 1000, "enough");
    client_send_close(&r.client, 1000, NULL);
    client_close(&r.client);
    WAIT_FOR(atomic_load(&k.closed));
    assert_int_equal(atomic_load(&k.left), 0);
    assert_err((tws_err)atomic_load(&k.drained), TWS_ERR_STATE);
    rig_close(&r);
}

/* ---- Clients ---- */

/* Gives *arg's connection a writer on demand, when memory is next asked for. */
static void *changing_alloc(size_t size, void *arg)
{
    tws_conn *c = atomic_exchange((_Atomic(tws_conn *) *)arg, NULL);
    tws_queue_options opt;

    if (c) {
        tws_queue_options_init(&opt);
        tws_set_queue(c, &opt);
    }
    return malloc(size);
}

static void *plain_resize(void *block, size_t size, void *arg)
{
    (void)arg;
    return realloc(block, size);
}

static void plain_release(void *block, void *arg)
{
    (void)arg;
    free(block);
}

static void count_written(tws_conn *c, tws_err result, void *arg)
{
    (void)c;
    if (result == TWS_OK)
        atomic_fetch_add((_Atomic int *)arg, 1);
}

/* A client masks a copy, also when the mode changes while the call has memory for something else. */
static void test_client_keeps_bytes(void **state)
{
    struct support_census before = support_census();
    _Atomic(tws_conn *) changes = NULL;
    tws_allocator a = {changing_alloc, plain_resize, plain_release, &changes};
    const char bytes[] = "these stay as they are";
    tws_pair_options opt;
    tws_conn *server, *client;
    _Atomic int written = 0;
    tws_message m;

    (void)state;
    tws_pair_options_init(&opt);
    opt.allocator = &a;
    opt.client.queue.writer = TWS_WRITER_NONE;
    assert_ok(tws_pair(&server, &client, &opt));
    assert_ok(tws_write_async(client, TWS_TEXT, bytes, 5, NULL, NULL)); /* the queue is made */
    atomic_store(&changes, client);
    assert_ok(tws_write_async(client, TWS_TEXT, bytes, strlen(bytes), count_written, &written));
    assert_null(atomic_load(&changes));
    assert_string_equal(bytes, "these stay as they are");
    assert_ok(tws_read_message(server, &m));
    assert_string_equal(m.data, "these");
    assert_ok(tws_read_message(server, &m));
    assert_string_equal(m.data, "these stay as they are");
    WAIT_FOR(atomic_load(&written) == 1);
    tws_conn_unref(server);
    tws_conn_unref(client);
    support_assert_census(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_direct),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_absurd_length),
        cmocka_unit_test(test_bad_server_options),
        cmocka_unit_test(test_slow),
        cmocka_unit_test(test_partial),
        cmocka_unit_test(test_control_overtakes),
        cmocka_unit_test(test_mixed_demand),
        cmocka_unit_test(test_mixed_resident),
        cmocka_unit_test(test_mixed_none),
        cmocka_unit_test(test_behind_open_writer),
        cmocka_unit_test(test_inside_callbacks),
        cmocka_unit_test(test_client_keeps_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
