/* Queued writes without memory or threads, in the other writer modes, and to peers that are slow but
 * there. */
#include "support_queue.h"

#include "conn/queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

static const uint8_t hello[] = "hello";

/* ---- Memory ---- */

struct meagre {
    _Atomic size_t largest; /* larger blocks are refused */
    _Atomic long live;
    _Atomic(tws_conn *) changes; /* gets no writer any more when memory is next asked for */
};

static void *meagre_alloc(size_t size, void *arg)
{
    struct meagre *m = arg;
    void *p = size > atomic_load(&m->largest) ? NULL : malloc(size);
    tws_conn *c = atomic_exchange(&m->changes, NULL);

    if (c) {
        tws_queue_options opt;

        tws_queue_options_init(&opt);
        opt.writer = TWS_WRITER_NONE;
        tws_set_queue(c, &opt);
    }
    if (p)
        atomic_fetch_add(&m->live, 1);
    return p;
}

static void *meagre_resize(void *block, size_t size, void *arg)
{
    struct meagre *m = arg;

    return size > atomic_load(&m->largest) ? NULL : realloc(block, size);
}

static void meagre_release(void *block, void *arg)
{
    struct meagre *m = arg;

    atomic_fetch_sub(&m->live, 1);
    free(block);
}

static void rig_open_meagre(struct rig *r, struct meagre *m, tws_allocator *a)
{
    tws_server_options opt;

    atomic_store(&m->largest, SIZE_MAX);
    atomic_store(&m->live, 0);
    atomic_store(&m->changes, NULL);
    *a = (tws_allocator){meagre_alloc, meagre_resize, meagre_release, m};
    rig_options(&opt);
    opt.upgrade.allocator = a;
    rig_open(r, &opt);
    rig_narrow(r);
}

/* Without memory a message is refused and nothing else happens. */
static void test_no_memory(void **state)
{
    struct meagre m;
    tws_allocator a;
    tws_queue_options opt;
    struct rig r;
    int n;

    (void)state;
    rig_open_meagre(&r, &m, &a);
    atomic_store(&m.largest, 0);
    assert_err(tws_write_async(r.conn, TWS_BINARY, hello, 5, NULL, NULL), TWS_ERR_MEMORY);
    tws_queue_options_init(&opt);
    assert_err(tws_set_queue(r.conn, &opt), TWS_ERR_MEMORY);
    atomic_store(&m.largest, SIZE_MAX);
    n = rig_fill(&r, 1000);
    atomic_store(&m.largest, 0);
    assert_err(tws_write_async(r.conn, TWS_BINARY, hello, 5, NULL, NULL), TWS_ERR_MEMORY);
    assert_err(tws_write_async(r.conn, TWS_BINARY, hello, 5, tally_done, NULL), TWS_ERR_MEMORY);
    atomic_store(&m.largest, SIZE_MAX);
    for (int i = 0; i < n; i++) {
        struct client_frame f;

        assert_true(client_next(&r.client, &f));
        assert_int_equal(numbered_check(f.data, f.len), i);
    }
    assert_ok(tws_queue_wait(r.conn, 0));
    atomic_store(&m.largest, 0); /* what the socket takes at once needs none */
    assert_ok(tws_write_async(r.conn, TWS_BINARY, hello, 5, NULL, NULL));
    atomic_store(&m.largest, SIZE_MAX);
    client_expect(&r.client, CLIENT_FIN | CLIENT_BINARY, hello, 5);
    rig_close(&r);
    assert_int_equal(atomic_load(&m.live), 0);
}

/* Half of a frame has left and there is no memory for the rest: the connection cannot go on. */
static void test_no_memory_for_rest(void **state)
{
    enum { LEN = 900000 };
    uint8_t *data = support_alloc(LEN);
    struct meagre m;
    tws_allocator a;
    struct rig r;

    (void)state;
    support_fill(data, LEN, 1);
    rig_open_meagre(&r, &m, &a);
    assert_ok(tws_write_async(r.conn, TWS_BINARY, hello, 5, NULL, NULL));
    atomic_store(&m.largest, 10000);
    assert_err(tws_write_async(r.conn, TWS_BINARY, data, LEN, NULL, NULL), TWS_ERR_RESOURCE);
    assert_err(tws_write_message(r.conn, TWS_BINARY, hello, 5), TWS_ERR_RESOURCE);
    rig_close(&r);
    assert_int_equal(atomic_load(&m.live), 0);
    free(data);
}

/* ---- Threads ---- */

/* Until the server goes. */
static void no_threads(tws_conn *c)
{
    pthread_mutex_lock(&c->env->mu);
    c->env->served = true;
    c->env->runtime = NULL;
    pthread_mutex_unlock(&c->env->mu);
}

static void expect_numbers(struct client *c, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct client_frame f;

        assert_true(client_next(c, &f));
        assert_int_equal(numbered_check(f.data, f.len), i);
    }
}

static void queue_numbers(tws_conn *c, struct tally *t, uint32_t n, size_t len)
{
    uint8_t *data = support_alloc(len);

    for (uint32_t i = 0; i < n; i++) {
        numbered_fill(data, len, i);
        assert_ok(tws_write_async(c, TWS_BINARY, data, len, tally_done, &t->tickets[i]));
    }
    free(data);
}

enum { LEN = 20000, SOME = 30 };

/* The server's watch sends, the reader runs the callbacks. */
static void test_no_threads(void **state)
{
    struct reader rd;
    struct tally t;
    struct rig r;

    (void)state;
    tally_init(&t, SOME);
    rig_open(&r, NULL);
    rig_narrow(&r);
    no_threads(r.conn);
    queue_numbers(r.conn, &t, SOME, LEN);
    assert_int_equal(queue_stats(r.conn).writers_started, 0);
    assert_true(queue_stats(r.conn).messages > 0);
    expect_numbers(&r.client, SOME);
    assert_ok(tws_queue_wait(r.conn, 0));
    assert_int_equal(atomic_load(&t.total), 0);
    reader_start(&rd, r.conn);
    tally_assert_once(&t, SOME);
    assert_int_equal(atomic_load(&t.results_ok), SOME);
    client_close(&r.client);
    reader_join(&rd);
    rig_close(&r);
    tally_free(&t);
}

static void rig_open_lonely(struct rig *r, const tws_queue_options *queue)
{
    tws_server_options opt;

    rig_options(&opt);
    opt.upgrade.conn.join_replies = false; /* so that there is no watch */
    if (queue)
        opt.upgrade.conn.queue = *queue;
    rig_open(r, &opt);
    rig_narrow(r);
    no_threads(r->conn);
}

static void *wait_for_queue(void *conn)
{
    return (void *)(intptr_t)tws_queue_wait(conn, 0);
}

/* Nobody but those who write or wait. */
static void test_no_watch(void **state)
{
    struct writer_thread w;
    pthread_t thread;
    struct tally t;
    struct rig r;
    void *result;

    (void)state;
    tally_init(&t, SOME);
    rig_open_lonely(&r, NULL);
    queue_numbers(r.conn, &t, SOME / 2, LEN);
    writer_thread_start(&w, r.conn, hello, 5);
    expect_numbers(&r.client, SOME / 2);
    client_expect(&r.client, CLIENT_FIN | CLIENT_BINARY, hello, 5);
    assert_err(writer_thread_join(&w), TWS_OK);
    tws_set_timeout(r.conn, TWS_TIMEOUT_WRITE, TWS_NOWAIT);
    for (uint32_t i = 0; i < SOME / 2; i++) {
        uint8_t *data = support_alloc(LEN);

        numbered_fill(data, LEN, i);
        assert_ok(
            tws_write_async(r.conn, TWS_BINARY, data, LEN, tally_done, &t.tickets[SOME / 2 + i]));
        free(data);
    }
    assert_err(tws_write_message(r.conn, TWS_BINARY, hello, 5), TWS_ERR_TIMEOUT);
    support_thread(&thread, wait_for_queue, r.conn);
    expect_numbers(&r.client, SOME / 2);
    pthread_join(thread, &result);
    assert_err((tws_err)(intptr_t)result, TWS_OK);
    rig_end(&r); /* runs the callbacks */
    tally_assert_once(&t, SOME);
    support_assert_census(r.before);
    tally_free(&t);
}

static void *close_it(void *conn)
{
    return (void *)(intptr_t)tws_close(conn, 1000, NULL);
}

/* Closing sends what is queued by itself; giving up does not forget the callbacks. */
static void test_no_threads_close(void **state)
{
    struct tally t;
    struct rig r;
    pthread_t thread;
    void *result;

    (void)state;
    for (int round = 0; round < 2; round++) {
        tally_init(&t, SOME);
        rig_open_lonely(&r, NULL);
        queue_numbers(r.conn, &t, SOME, LEN);
        if (round == 0) {
            support_thread(&thread, close_it, r.conn);
            expect_numbers(&r.client, SOME);
            client_expect_close(&r.client, 1000, NULL);
            client_send_close(&r.client, 1000, NULL);
            client_close(&r.client);
            pthread_join(thread, &result);
            assert_err((tws_err)(intptr_t)result, TWS_OK);
        } else {
            tws_abort(r.conn);
        }
        rig_end(&r);
        tally_assert_once(&t, SOME);
        support_assert_census(r.before);
        tally_free(&t);
    }
}

static void *write_more(void *conn)
{
    return (void *)(intptr_t)tws_write_async(conn, TWS_BINARY, hello, 5, NULL, NULL);
}

static void test_no_threads_wait(void **state)
{
    tws_queue_options opt;
    struct tally t;
    struct rig r;
    pthread_t thread;
    void *result;
    uint32_t n = 0;

    (void)state;
    tally_init(&t, 200);
    tws_queue_options_init(&opt);
    opt.policy = TWS_QUEUE_WAIT;
    opt.max_messages = 1;
    opt.wait = 0;
    rig_open_lonely(&r, &opt);
    while (queue_stats(r.conn).messages == 0) {
        uint8_t *data = support_alloc(LEN);

        numbered_fill(data, LEN, n);
        assert_ok(tws_write_async(r.conn, TWS_BINARY, data, LEN, tally_done, &t.tickets[n]));
        n++;
        free(data);
    }
    support_thread(&thread, write_more, r.conn);
    expect_numbers(&r.client, n);
    client_expect(&r.client, CLIENT_FIN | CLIENT_BINARY, hello, 5);
    pthread_join(thread, &result);
    assert_err((tws_err)(intptr_t)result, TWS_OK);
    rig_end(&r);
    tally_assert_once(&t, n);
    tally_free(&t);
}

/* ---- Without threads, and without callers ---- */

/* Stops the writer where it needs memory. */
struct stopper {
    pthread_t main;
    _Atomic bool armed, inside, go;
    _Atomic int told;  /* a result; 1: nothing yet */
    _Atomic long live; /* blocks */
};

static void *stopper_alloc(size_t size, void *arg)
{
    struct stopper *s = arg;

    if (atomic_load(&s->armed) && !pthread_equal(pthread_self(), s->main)) {
        atomic_store(&s->inside, true);
        WAIT_FOR(atomic_load(&s->go));
    }
    atomic_fetch_add(&s->live, 1);
    return malloc(size);
}

static void *stopper_resize(void *block, size_t size, void *arg)
{
    (void)arg;
    return realloc(block, size);
}

static void stopper_release(void *block, void *arg)
{
    struct stopper *s = arg;

    atomic_fetch_sub(&s->live, 1);
    free(block);
}

static void stopper_told(tws_conn *c, tws_err result, void *arg)
{
    struct stopper *s = arg;

    (void)c;
    atomic_store(&s->told, (int)result);
}

/* The last reference goes while the writer has the message in hand, and nobody else can be told. */
static void test_no_threads_let_go(void **state)
{
    struct stopper s = {.main = pthread_self(), .told = 1};
    tws_allocator a = {stopper_alloc, stopper_resize, stopper_release, &s};
    static const uint8_t zeros[LEN];
    struct task_runtime *runtime;
    tws_conn *server, *client;
    tws_deflate_options deflate;
    tws_pair_options opt;
    struct conn_env *env;
    tws_message m;

    (void)state;
    tws_deflate_options_init(&deflate);
    tws_pair_options_init(&opt);
    opt.allocator = &a;
    opt.deflate = &deflate;
    assert_ok(tws_pair(&server, &client, &opt));
    tws_set_compression(server, TWS_COMPRESS_NEVER);
    while (queue_stats(server).messages == 0)
        assert_ok(tws_write_async(server, TWS_BINARY, zeros, LEN, NULL, NULL));
    tws_set_compression(server, TWS_COMPRESS_ALWAYS);
    assert_ok(tws_write_async(server, TWS_BINARY, zeros, LEN, stopper_told, &s));
    atomic_store(&s.armed, true);
    while (!atomic_load(&s.inside))
        tws_read_message_within(client, &m, 1);

    env = conn_env_ref(server->env);
    pthread_mutex_lock(&env->mu);
    runtime = env->runtime;
    env->runtime = NULL;
    env->served = true;
    pthread_mutex_unlock(&env->mu);
    tws_conn_unref(server);
    atomic_store(&s.go, true);
    WAIT_FOR(atomic_load(&s.told) != 1);
    assert_err((tws_err)atomic_load(&s.told), TWS_ERR_CLOSED);
    pthread_mutex_lock(&env->mu);
    env->runtime = runtime;
    env->served = false;
    pthread_mutex_unlock(&env->mu);
    conn_env_unref(env);
    tws_conn_unref(client);
    WAIT_FOR(atomic_load(&s.live) == 0); /* the writer may be the last that uses s */
}

/* ---- Modes ---- */

/* One thread from the first queued message to the end. */
static void test_resident(void **state)
{
    tws_queue_options opt;
    struct tally t;
    struct rig r;

    (void)state;
    tally_init(&t, SOME);
    tws_queue_options_init(&opt);
    opt.writer = TWS_WRITER_RESIDENT;
    rig_open_queue(&r, &opt);
    assert_false(queue_stats(r.conn).writer_running);
    for (int round = 0; round < 5; round++) {
        assert_ok(tws_write_async(r.conn, TWS_BINARY, hello, 5, NULL, NULL));
        client_expect(&r.client, CLIENT_FIN | CLIENT_BINARY, hello, 5);
        assert_ok(tws_queue_wait(r.conn, 0));
        assert_true(queue_stats(r.conn).writer_running);
    }
    queue_numbers(r.conn, &t, SOME, LEN);
    expect_numbers(&r.client, SOME);
    assert_int_equal(queue_stats(r.conn).direct, 0);
    assert_int_equal(queue_stats(r.conn).writers_started, 1);
    tally_assert_once(&t, SOME);
    assert_int_equal(atomic_load(&t.out_of_order), 0);

    opt.writer = TWS_WRITER_DEMAND; /* and it leaves */
    assert_ok(tws_set_queue(r.conn, &opt));
    WAIT_FOR(!queue_stats(r.conn).writer_running);
    assert_ok(tws_write_async(r.conn, TWS_BINARY, hello, 5, NULL, NULL));
    assert_int_equal(queue_stats(r.conn).direct, 1);
    rig_close(&r);
    tally_free(&t);
}

/* Nothing is queued; the callback does not run inside the call either. */
static void test_none(void **state)
{
    tws_queue_options opt;
    struct tally t;
    struct rig r;

    (void)state;
    tally_init(&t, SOME);
    tws_queue_options_init(&opt);
    opt.writer = TWS_WRITER_NONE;
    rig_open_queue(&r, &opt);
    pthread_mutex_lock(&t.lock);
    assert_ok(tws_write_async(r.conn, TWS_BINARY, hello, 5, tally_done, &t.tickets[0]));
    pthread_mutex_unlock(&t.lock);
    client_expect(&r.client, CLIENT_FIN | CLIENT_BINARY, hello, 5);
    tally_assert_once(&t, 1);
    assert_ok(tws_set_timeout(r.conn, TWS_TIMEOUT_WRITE, TWS_NOWAIT));
    while (tws_write_async(r.conn, TWS_BINARY, hello, 5, NULL, NULL) == TWS_OK) {
    }
    assert_int_equal(queue_stats(r.conn).peak_messages, 0);
    assert_int_equal(queue_stats(r.conn).writers_started, 0);
    rig_close(&r);
    tally_free(&t);
}

/* A publisher never waits; for the rest of a frame that began to leave there is a writer. */
static void test_none_published(void **state)
{
    enum { BIG = 900000 };
    uint8_t *data = support_alloc(BIG);
    struct conn_publish one = {.prepared = NULL};
    tws_queue_options opt;
    struct rig r;

    (void)state;
    tws_queue_options_init(&opt);
    opt.writer = TWS_WRITER_NONE;
    rig_open_queue(&r, &opt);
    numbered_fill(data, BIG, 0);
    assert_ok(tws_prepared_new(&one.prepared, TWS_BINARY, data, BIG));
    conn_publish(r.conn, &one, 1);
    assert_err(one.err, TWS_OK);
    assert_false(one.direct);
    assert_int_equal(queue_stats(r.conn).writers_started, 1);
    conn_publish(r.conn, &one, 1);
    assert_err(one.err, TWS_ERR_QUEUE_FULL);
    expect_numbers(&r.client, 1);
    WAIT_FOR(!queue_stats(r.conn).writer_running);
    tws_prepared_unref(one.prepared);
    rig_close(&r);
    free(data);
}

/* What the socket takes nothing of is not taken, and there is no writer for it. */
static void test_none_published_full(void **state)
{
    static const uint8_t filler[4096];
    struct conn_publish one = {.prepared = NULL};
    tws_queue_options opt;
    struct rig r;

    (void)state;
    tws_queue_options_init(&opt);
    opt.writer = TWS_WRITER_NONE;
    rig_open_queue(&r, &opt);
    while (send(r.conn->stream.sock.fd, filler, sizeof filler, MSG_DONTWAIT) > 0) {
    }
    assert_ok(tws_prepared_new(&one.prepared, TWS_BINARY, hello, 5));
    conn_publish(r.conn, &one, 1);
    assert_err(one.err, TWS_ERR_QUEUE_FULL);
    assert_int_equal(queue_stats(r.conn).dropped_newest, 1);
    assert_int_equal(queue_stats(r.conn).peak_messages, 0);
    assert_int_equal(queue_stats(r.conn).writers_started, 0);
    tws_prepared_unref(one.prepared);
    rig_close(&r);
}

/* The mode changes while a call has memory for its message already: nobody is told who did not ask. */
static void test_none_meanwhile(void **state)
{
    struct meagre m;
    tws_allocator a;
    tws_queue_options opt;
    struct tally t;
    struct rig r;

    (void)state;
    tally_init(&t, SOME);
    rig_open_meagre(&r, &m, &a);
    tws_queue_options_init(&opt);
    opt.writer = TWS_WRITER_RESIDENT;
    assert_ok(tws_set_queue(r.conn, &opt));
    atomic_store(&m.changes, r.conn);
    assert_ok(tws_write_async(r.conn, TWS_BINARY, hello, 5, NULL, NULL));
    assert_ok(tws_write_async(r.conn, TWS_BINARY, hello, 5, tally_done, &t.tickets[0]));
    tally_assert_once(&t, 1);
    client_expect(&r.client, CLIENT_FIN | CLIENT_BINARY, hello, 5);
    client_expect(&r.client, CLIENT_FIN | CLIENT_BINARY, hello, 5);
    assert_int_equal(queue_stats(r.conn).direct, 2);
    rig_close(&r);
    tally_free(&t);
}

/* ---- Slow, but there ---- */

/* What a peer takes shows although its socket is not writable yet: it is neither stalled nor silent. */
static void test_slow_is_alive(void **state)
{
    uint8_t buf[4096];
    int64_t mark = INT64_MIN;
    struct rig r;
    int still = 0;

    (void)state;
    rig_open(&r, NULL);
    rig_narrow(&r);
    rig_fill(&r, 400000);
    while (still < 20) { /* what is on its way arrives */
        still = conn_queue_progress(r.conn, &mark) ? 0 : still + 1;
        support_pause_ms(1);
    }
    for (int64_t before = mark; mark == before; conn_queue_progress(r.conn, &mark))
        assert_true(recv(r.client.fd, buf, sizeof buf, 0) > 0);
    assert_true(queue_stats(r.conn).messages > 0);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_no_memory_for_rest),
        cmocka_unit_test(test_no_threads),
        cmocka_unit_test(test_no_watch),
        cmocka_unit_test(test_no_threads_close),
        cmocka_unit_test(test_no_threads_wait),
        cmocka_unit_test(test_no_threads_let_go),
        cmocka_unit_test(test_resident),
        cmocka_unit_test(test_none),
        cmocka_unit_test(test_none_published),
        cmocka_unit_test(test_slow_is_alive),
        cmocka_unit_test(test_none_published_full),
        cmocka_unit_test(test_none_meanwhile),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
