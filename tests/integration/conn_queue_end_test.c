/* Queued writes when the connection ends: what still leaves, who is told what, what stays behind. */
#include "support_queue.h"

#include "conn/queue.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { LEN = 20000, SOME = 30 };

/* Fills the socket and queues some more; how many in all. */
static uint32_t queue_some(struct rig *r, struct tally *t)
{
    uint8_t *data = support_alloc(LEN);

    for (uint32_t i = 0; i < SOME; i++) {
        numbered_fill(data, LEN, i);
        assert_ok(tws_write_async(r->conn, TWS_BINARY, data, LEN, tally_done, &t->tickets[i]));
    }
    free(data);
    assert_true(queue_stats(r->conn).messages > 1);
    return SOME;
}

static void open_filled(struct rig *r, struct tally *t, const tws_queue_options *queue)
{
    tws_queue_options defaults;

    tws_queue_options_init(&defaults);
    tally_init(t, SOME);
    rig_open_queue(r, queue ? queue : &defaults);
    queue_some(r, t);
}

/* Waits until every message was told once; those that left were whole, and the last few were not. */
static void assert_told(struct tally *t, tws_err code)
{
    tally_assert_once(t, SOME);
    assert_err((tws_err)atomic_load(&t->results[SOME - 1]), code);
    for (int i = 0; i < SOME; i++)
        if (atomic_load(&t->results[i]))
            assert_err((tws_err)atomic_load(&t->results[i]), code);
}

static void *close_it(void *conn)
{
    return (void *)(intptr_t)tws_close(conn, 1000, "bye");
}

/* ---- Closing ---- */

static void test_close_lets_it_leave(void **state)
{
    struct client_frame f;
    struct tally t;
    struct rig r;
    pthread_t thread;
    void *result;

    (void)state;
    open_filled(&r, &t, NULL);
    support_thread(&thread, close_it, r.conn);
    WAIT_FOR(tws_write_message(r.conn, TWS_TEXT, "late", 4) == TWS_ERR_CLOSED);
    assert_err(tws_write_async(r.conn, TWS_TEXT, "late", 4, NULL, NULL), TWS_ERR_CLOSED);
    for (uint32_t i = 0; i < SOME; i++) {
        assert_true(client_next(&r.client, &f));
        assert_int_equal(numbered_check(f.data, f.len), i);
    }
    client_expect_close(&r.client, 1000, "bye");
    client_send_close(&r.client, 1000, NULL);
    client_close(&r.client);
    pthread_join(thread, &result);
    assert_err((tws_err)(intptr_t)result, TWS_OK);
    assert_told(&t, TWS_OK);
    assert_int_equal(atomic_load(&t.out_of_order), 0);
    rig_close(&r);
    tally_free(&t);
}

/* What a handler that returns leaves in the queue leaves too. */
static void test_handler_returns(void **state)
{
    struct client_frame f;
    struct tally t;
    struct rig r;

    (void)state;
    open_filled(&r, &t, NULL);
    rig_release(&r);
    for (uint32_t i = 0; i < SOME; i++) {
        assert_true(client_next(&r.client, &f));
        assert_int_equal(numbered_check(f.data, f.len), i);
    }
    client_expect_close(&r.client, 1000, NULL);
    client_send_close(&r.client, 1000, NULL);
    assert_told(&t, TWS_OK);
    rig_close(&r);
    tally_free(&t);
}

/* A peer that takes nothing is waited for as long as the close timeout says. */
static void test_close_times_out(void **state)
{
    struct tally t;
    struct rig r;
    tws_error e;

    (void)state;
    open_filled(&r, &t, NULL);
    assert_ok(tws_set_timeout(r.conn, TWS_TIMEOUT_CLOSE, 50));
    tws_close(r.conn, 1000, NULL);
    tws_conn_error(r.conn, &e);
    assert_true(e.code == TWS_ERR_CLOSE_TIMEOUT || e.code == TWS_ERR_CLOSED);
    assert_told(&t, e.code);
    assert_int_equal(queue_stats(r.conn).bytes, 0);
    rig_close(&r);
    tally_free(&t);
}

static bool stuck(tws_conn *c)
{
    bool yes;

    pthread_mutex_lock(&c->mu);
    yes = conn_queue_stuck_locked(c);
    pthread_mutex_unlock(&c->mu);
    return yes;
}

/* One that had taken nothing for so long already is not waited for at all. */
static void test_close_of_stuck(void **state)
{
    struct tally t;
    struct rig r;
    tws_error e;

    (void)state;
    open_filled(&r, &t, NULL);
    assert_ok(tws_set_timeout(r.conn, TWS_TIMEOUT_CLOSE, 20));
    WAIT_FOR(stuck(r.conn));
    assert_ok(tws_close_start(r.conn, 1000, NULL));
    tws_conn_error(r.conn, &e); /* it is over before anything could time out */
    assert_err(e.code, TWS_ERR_CLOSED);
    assert_non_null(strstr(e.text, "stuck"));
    assert_told(&t, TWS_ERR_CLOSED);
    rig_close(&r);
    tally_free(&t);
}

static void test_close_behind_open_writer(void **state)
{
    struct tally t;
    tws_writer *w;
    struct rig r;

    (void)state;
    tally_init(&t, 1);
    rig_open(&r, NULL);
    assert_ok(tws_next_writer(r.conn, TWS_TEXT, &w));
    assert_ok(tws_writer_write(w, "never", 5));
    assert_ok(tws_write_async(r.conn, TWS_TEXT, "behind", 6, tally_done, &t.tickets[0]));
    assert_ok(tws_close_start(r.conn, 1000, NULL));
    tally_assert_once(&t, 1);
    assert_err((tws_err)atomic_load(&t.results[0]), TWS_ERR_CLOSED);
    assert_err(tws_writer_close(w), TWS_ERR_CLOSED);
    client_expect_close(&r.client, 1000, NULL);
    client_send_close(&r.client, 1000, NULL);
    rig_close(&r);
    tally_free(&t);
}

/* ---- Cut ---- */

static void test_abort(void **state)
{
    struct tally t;
    struct rig r;

    (void)state;
    open_filled(&r, &t, NULL);
    tws_abort(r.conn);
    WAIT_FOR(queue_stats(r.conn).bytes == 0);
    assert_told(&t, TWS_ERR_CLOSED);
    assert_int_equal(atomic_load(&t.out_of_order), 0);
    assert_err(tws_queue_wait(r.conn, 0), TWS_OK); /* nothing is queued */
    rig_close(&r);
    tally_free(&t);
}

static void *wait_for_queue(void *conn)
{
    return (void *)(intptr_t)tws_queue_wait(conn, 0);
}

/* Those who wait for the queue wake, too. */
static void test_abort_wakes(void **state)
{
    struct writer_thread writer;
    struct tally t;
    struct rig r;
    pthread_t thread;
    void *result;

    (void)state;
    open_filled(&r, &t, NULL);
    assert_err(tws_queue_wait(r.conn, TWS_NOWAIT), TWS_ERR_TIMEOUT);
    assert_err(tws_queue_wait(r.conn, 1), TWS_ERR_TIMEOUT);
    support_thread(&thread, wait_for_queue, r.conn);
    writer_thread_start(&writer, r.conn, "sync", 4);
    support_pause_ms(5);
    tws_abort(r.conn);
    pthread_join(thread, &result);
    assert_err((tws_err)(intptr_t)result, TWS_ERR_CLOSED);
    assert_err(writer_thread_join(&writer), TWS_ERR_CLOSED);
    assert_told(&t, TWS_ERR_CLOSED);
    rig_close(&r);
    tally_free(&t);
}

/* A peer that has closed wants nothing more. */
static void test_peer_closes(void **state)
{
    struct reader rd;
    struct tally t;
    struct rig r;

    (void)state;
    open_filled(&r, &t, NULL);
    reader_start(&rd, r.conn);
    client_send_close(&r.client, 1000, NULL);
    assert_err(reader_join(&rd), TWS_ERR_PEER_CLOSED);
    client_close(&r.client);
    tws_close(r.conn, 1000, NULL);
    assert_told(&t, TWS_ERR_PEER_CLOSED);
    rig_close(&r);
    tally_free(&t);
}

static void test_peer_resets(void **state)
{
    struct tally t;
    struct rig r;

    (void)state;
    open_filled(&r, &t, NULL);
    client_reset(&r.client);
    assert_told(&t, TWS_ERR_NETWORK);
    rig_close(&r);
    tally_free(&t);
}

/* ---- A peer that takes nothing ---- */

static tws_err end_of_idle_peer(tws_queue_policy policy)
{
    tws_server_options opt;
    struct reader rd;
    struct tally t;
    struct rig r;
    tws_err err;

    rig_options(&opt);
    opt.upgrade.conn.queue.policy = policy;
    opt.upgrade.conn.write_timeout = 100;
    opt.upgrade.conn.ping_interval = 200;
    opt.upgrade.conn.ping_timeout = 200;
    tally_init(&t, SOME);
    rig_open(&r, &opt);
    rig_narrow(&r);
    queue_some(&r, &t);
    reader_start(&rd, r.conn);
    err = reader_join(&rd);
    assert_told(&t, err);
    rig_close(&r);
    tally_free(&t);
    return err;
}

static void test_stalled(void **state)
{
    (void)state;
    assert_err(end_of_idle_peer(TWS_QUEUE_CLOSE), TWS_ERR_STALLED);
    assert_err(end_of_idle_peer(TWS_QUEUE_WAIT), TWS_ERR_STALLED);
}

/* The policy governs; who is silent, too, is found out by keepalive although no ping can leave. */
static void test_dropping_waits(void **state)
{
    (void)state;
    assert_err(end_of_idle_peer(TWS_QUEUE_DROP_NEWEST), TWS_ERR_PEER_SILENT);
    assert_err(end_of_idle_peer(TWS_QUEUE_DROP_OLDEST), TWS_ERR_PEER_SILENT);
}

/* ---- References ---- */

/* A connection without a server, whose last reference goes while messages wait. */
static void test_last_reference(void **state)
{
    struct support_census before = support_census();

    (void)state;
    for (int round = 0; round < 50; round++) {
        struct client client = {.fd = -1};
        tws_upgrade_options opt;
        char request[1024];
        uint8_t *data = support_alloc(LEN);
        struct tally t;
        tws_conn *c;
        int fd[2];
        uint32_t n = 0;

        tally_init(&t, 1000);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
        client.fd = fd[1];
        assert_true(client_send_bytes(fd[1], request, client_request(request, sizeof request, "")));
        tws_upgrade_options_init(&opt);
        opt.any_origin = true;
        assert_ok(tws_upgrade(&c, fd[0], NULL, 0, &opt, NULL));
        assert_int_equal(client_read_head(&client), 101);
        while (queue_stats(c).messages < 3) {
            numbered_fill(data, LEN, n);
            assert_ok(tws_write_async(c, TWS_BINARY, data, LEN, tally_done, &t.tickets[n]));
            n++;
        }
        if (round % 2) /* some leave meanwhile */
            assert_true(client_try_next(&client, &(struct client_frame){0}) == 1);
        tws_conn_unref(c);
        tally_assert_once(&t, n);
        assert_int_equal(atomic_load(&t.out_of_order), 0);
        client_close(&client);
        tally_free(&t);
        free(data);
    }
    support_assert_census(before);
}

/* ---- Hooks ---- */

struct ended {
    struct conn_end_hook hook;
    _Atomic int calls;
    tws_conn *conn;
};

static void ended(tws_conn *c, struct conn_end_hook *hook)
{
    struct ended *e = (struct ended *)hook;

    assert_ptr_equal(c, e->conn);
    atomic_fetch_add(&e->calls, 1);
}

static void test_end_hooks(void **state)
{
    struct ended e[4];
    struct rig r;

    (void)state;
    memset(e, 0, sizeof e);
    rig_open(&r, NULL);
    for (int i = 0; i < 3; i++) {
        e[i].hook.fn = ended;
        e[i].conn = r.conn;
        assert_true(conn_on_end(r.conn, &e[i].hook));
    }
    assert_true(conn_off_end(r.conn, &e[1].hook));
    assert_false(conn_off_end(r.conn, &e[1].hook));
    tws_abort(r.conn);
    WAIT_FOR(atomic_load(&e[0].calls) + atomic_load(&e[2].calls) == 2);
    assert_int_equal(atomic_load(&e[0].calls), 1);
    assert_int_equal(atomic_load(&e[1].calls), 0);
    assert_false(conn_off_end(r.conn, &e[0].hook));
    assert_false(conn_on_end(r.conn, &e[3].hook));
    rig_close(&r);
    assert_int_equal(atomic_load(&e[0].calls), 1);
}

/* ---- In the middle of everything ---- */

enum { ROUNDS = 1000, WAYS = 6, PUBLISHERS = 2, MESSAGES = 60 };

struct publisher {
    pthread_t thread;
    tws_conn *conn;
    struct tally tally;
    tws_prepared *prepared;
    uint32_t accepted;
};

static void *publish(void *arg)
{
    struct publisher *p = arg;
    static const uint8_t zeros[3000];

    while (p->accepted < MESSAGES) {
        struct ticket *ticket = &p->tally.tickets[p->accepted];
        tws_err err;

        if (p->accepted % 3 == 0)
            err = tws_write_prepared_async(p->conn, p->prepared, tally_done, ticket);
        else
            err = tws_write_async(p->conn, TWS_BINARY, zeros, sizeof zeros, tally_done, ticket);
        if (err && err != TWS_ERR_QUEUE_FULL)
            break;
        p->accepted += !err;
        if (p->accepted % 16 == 0 && tws_write_message(p->conn, TWS_BINARY, zeros, 10))
            break;
    }
    return NULL;
}

static void *drink(void *arg)
{
    client_drain(arg);
    return NULL;
}

static void end_somehow(struct rig *r, int how)
{
    switch (how) {
    case 0:
        tws_abort(r->conn);
        break;
    case 1:
        tws_close_start(r->conn, 1000, NULL);
        break;
    case 2:
        shutdown(r->client.fd, SHUT_RDWR);
        break;
    case 3:
        rig_release(r);
        tws_server_drain(r->s.server, 2);
        break;
    case 4:
        rig_release(r);
        break;
    default: /* at the end of the rig */
        break;
    }
}

/* Every accepted message is told once, whatever ends the connection, and when. */
static void test_rounds(void **state)
{
    static uint8_t payload[2000];
    struct support_census before = support_census();

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct publisher p[PUBLISHERS];
        tws_server_options opt;
        pthread_t reader;
        struct rig r;

        rig_options(&opt);
        opt.upgrade.conn.close_timeout = 1;
        opt.upgrade.conn.queue.policy = (tws_queue_policy)(round / WAYS % 4);
        opt.upgrade.conn.queue.wait = 1;
        opt.upgrade.conn.queue.max_bytes = 20000;
        opt.upgrade.conn.queue.writer =
            round % 5 ? TWS_WRITER_DEMAND : (tws_writer_mode)(round / (5 * WAYS) % 3);
        rig_open(&r, &opt);
        rig_narrow(&r);
        support_thread(&reader, drink, &r.client);
        for (int i = 0; i < PUBLISHERS; i++) {
            p[i].conn = tws_conn_ref(r.conn);
            p[i].accepted = 0;
            tally_init(&p[i].tally, MESSAGES);
            assert_ok(tws_prepared_new(&p[i].prepared, TWS_BINARY, payload, sizeof payload));
            support_thread(&p[i].thread, publish, &p[i]);
        }
        for (int spin = round % 37 * 50; spin > 0; spin--)
            sched_yield();
        end_somehow(&r, round % WAYS);
        rig_release(&r);
        for (int i = 0; i < PUBLISHERS; i++) {
            pthread_join(p[i].thread, NULL);
            tws_conn_unref(p[i].conn);
        }
        shutdown(r.client.fd, SHUT_RDWR);
        pthread_join(reader, NULL);
        rig_end(&r);
        for (int i = 0; i < PUBLISHERS; i++) {
            tally_assert_once(&p[i].tally, p[i].accepted);
            tally_free(&p[i].tally);
            tws_prepared_unref(p[i].prepared);
        }
    }
    support_assert_census(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_close_lets_it_leave),
        cmocka_unit_test(test_handler_returns),
        cmocka_unit_test(test_close_times_out),
        cmocka_unit_test(test_close_of_stuck),
        cmocka_unit_test(test_close_behind_open_writer),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_abort_wakes),
        cmocka_unit_test(test_peer_closes),
        cmocka_unit_test(test_peer_resets),
        cmocka_unit_test(test_stalled),
        cmocka_unit_test(test_dropping_waits),
        cmocka_unit_test(test_last_reference),
        cmocka_unit_test(test_end_hooks),
        cmocka_unit_test(test_rounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
