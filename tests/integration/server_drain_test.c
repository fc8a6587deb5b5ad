/*
 * Stopping and draining; several servers in one process; visiting all connections.
 */
#include "support.h"

#include "conn/conn.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- Stopping ---- */

static tws_server *to_stop;

static void stop_on_signal(int sig)
{
    (void)sig;
    tws_server_stop(to_stop);
}

static void *wait_main(void *arg)
{
    tws_server_wait(arg);
    tws_server_wait(arg); /* for good: it returns at once */
    return NULL;
}

/* From a signal handler; waiting threads return, nobody is accepted, open connections go on. */
static void test_stop(void **state)
{
    struct sigaction sa = {.sa_handler = stop_on_signal}, old;
    pthread_t waiting[2];
    struct rig r;
    tws_message m;

    (void)state;
    rig_open(&r, NULL);
    to_stop = r.s.server;
    for (int i = 0; i < 2; i++)
        support_thread(&waiting[i], wait_main, r.s.server);
    assert_int_equal(sigaction(SIGUSR2, &sa, &old), 0);
    assert_int_equal(kill(getpid(), SIGUSR2), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(waiting[i], NULL);
    sigaction(SIGUSR2, &old, NULL);
    for (bool refused = false; !refused;) { /* the listener goes in a moment */
        int fd = client_dial(r.s.address);

        refused = fd < 0;
        if (!refused)
            close(fd);
    }
    client_send_text(&r.client, "still open");
    assert_ok(tws_read_message(r.conn, &m));
    assert_string_equal(m.data, "still open");
    tws_server_stop(r.s.server);
    rig_close(&r);
}

/* ---- Draining ---- */

struct drainer {
    pthread_t thread;
    tws_server *server;
    tws_ms ms;
    tws_err err;
    _Atomic bool done;
};

static void *drainer_main(void *arg)
{
    struct drainer *d = arg;

    d->err = tws_server_drain(d->server, d->ms);
    atomic_store(&d->done, true);
    return NULL;
}

static void drainer_start(struct drainer *d, tws_server *s, tws_ms ms)
{
    memset(d, 0, sizeof *d);
    d->server = s;
    d->ms = ms;
    support_thread(&d->thread, drainer_main, d);
}

static tws_err drainer_join(struct drainer *d)
{
    WAIT_FOR(atomic_load(&d->done));
    pthread_join(d->thread, NULL);
    return d->err;
}

/* Everybody is told 1001, and when all have answered nothing had to be cut. */
static void test_drain(void **state)
{
    enum { CLIENTS = 10 };
    struct support_census before = support_census();
    struct client c[CLIENTS];
    struct support_server s;
    tws_server_options opt;
    tws_server_stats st;
    struct drainer d;

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    support_server_start(&s, &opt);
    for (int i = 0; i < CLIENTS; i++)
        client_open(&c[i], s.address);
    WAIT_FOR((tws_server_get_stats(s.server, &st), st.open == CLIENTS));
    drainer_start(&d, s.server, SUPPORT_HANG_MS);
    for (int i = 0; i < CLIENTS; i++)
        client_expect_close(&c[i], 1001, "");
    assert_false(atomic_load(&d.done));
    for (int i = 0; i < CLIENTS; i++) {
        client_send_close(&c[i], 1001, NULL);
        client_expect_eof(&c[i]);
        client_close(&c[i]);
    }
    assert_err(drainer_join(&d), TWS_OK);
    tws_server_get_stats(s.server, &st); /* may still be asked for */
    assert_int_equal(st.open, 0);
    assert_int_equal(st.threads, 0);
    assert_int_equal(st.upgraded, CLIENTS);
    assert_ok(tws_server_drain(s.server, 1)); /* again: done already */
    tws_server_wait(s.server);
    tws_server_free(s.server);
    support_assert_census(before);
}

/* Silent peers are cut at the end of the time, handshakes at once. */
static void test_drain_cuts(void **state)
{
    struct support_census before = support_census();
    tws_server_options opt;
    struct client silent, answers;
    struct support_server s;
    tws_server_stats st;
    struct drainer d;
    char byte;
    int half;

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    support_server_start(&s, &opt);
    client_open(&silent, s.address);
    client_open(&answers, s.address);
    half = client_dial(s.address);
    assert_true(client_send_bytes(half, "GET / HTTP/1.1\r\n", 16));
    WAIT_FOR((tws_server_get_stats(s.server, &st), st.handshaking == 1 && st.open == 2));
    drainer_start(&d, s.server, 300);
    assert_int_equal(read(half, &byte, 1), 0);
    assert_false(atomic_load(&d.done));
    client_expect_close(&answers, 1001, NULL);
    client_send_close(&answers, 1001, NULL);
    client_expect_eof(&answers);
    client_expect_close(&silent, 1001, NULL);
    assert_err(drainer_join(&d), TWS_ERR_TIMEOUT);
    tws_server_get_stats(s.server, &st);
    assert_int_equal(st.open + st.handshaking + st.threads, 0);
    close(half);
    client_close(&silent);
    client_close(&answers);
    tws_server_free(s.server);
    support_assert_census(before);
}

struct told {
    _Atomic unsigned cut, other;
};

static void on_end(const tws_error *e, const tws_request *r, void *user, void *arg)
{
    struct told *told = arg;
    bool cut = e->code == TWS_ERR_CLOSED && e->cause == TWS_CAUSE_LOCAL && !r && !user;

    atomic_fetch_add(cut ? &told->cut : &told->other, 1);
}

/* The hook is told of a handshake that a drain ended, and that it was this side's doing. */
static void test_drain_tells_the_hook(void **state)
{
    tws_server_options opt;
    struct support_server s;
    tws_server_stats st;
    struct told told = {0};
    int half;

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    opt.upgrade.on_handshake_end = on_end;
    opt.upgrade.hook_arg = &told;
    support_server_start(&s, &opt);
    half = client_dial(s.address);
    assert_true(client_send_bytes(half, "GET / HTTP/1.1\r\n", 16));
    WAIT_FOR((tws_server_get_stats(s.server, &st), st.handshaking == 1));
    assert_ok(tws_server_drain(s.server, SUPPORT_HANG_MS));
    assert_int_equal(atomic_load(&told.cut), 1);
    assert_int_equal(atomic_load(&told.other), 0);
    close(half);
    tws_server_free(s.server);
}

/* An answered close is no cut, even if the peer keeps its side of the socket open. */
static void test_drain_answered_but_open(void **state)
{
    tws_server_options opt;
    struct support_server s;
    tws_server_stats st;
    struct client c;
    struct drainer d;

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    support_server_start(&s, &opt);
    client_open(&c, s.address);
    WAIT_FOR((tws_server_get_stats(s.server, &st), st.open == 1));
    drainer_start(&d, s.server, 300);
    client_expect_close(&c, 1001, NULL);
    client_send_close(&c, 1001, NULL);
    assert_err(drainer_join(&d), TWS_OK);
    client_close(&c);
    tws_server_free(s.server);
}

/* A second, shorter drain hastens the first; both return when all is done. */
static void test_drain_hastened(void **state)
{
    tws_server_options opt;
    struct support_server s;
    struct drainer first, second;
    tws_server_stats st;
    struct client c;

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    support_server_start(&s, &opt);
    client_open(&c, s.address);
    WAIT_FOR((tws_server_get_stats(s.server, &st), st.open == 1));
    drainer_start(&first, s.server, TWS_NO_LIMIT);
    client_expect_close(&c, 1001, NULL);
    assert_false(atomic_load(&first.done));
    drainer_start(&second, s.server, 20);
    assert_err(drainer_join(&second), TWS_ERR_TIMEOUT);
    assert_err(drainer_join(&first), TWS_ERR_TIMEOUT);
    client_close(&c);
    tws_server_free(s.server);
}

/* Without waiting: everything is cut at once. */
static void test_drain_nowait(void **state)
{
    struct rig r;
    struct reader rd;

    (void)state;
    rig_open(&r, NULL);
    reader_start(&rd, r.conn);
    reader_await(&rd);
    rig_release(&r);
    assert_err(tws_server_drain(r.s.server, TWS_NOWAIT), TWS_ERR_TIMEOUT);
    assert_true(tws_err_is_final(reader_join(&rd)));
    assert_err(tws_server_drain(r.s.server, -2), TWS_ERR_ARGUMENT);
    rig_close(&r);
}

/* A handler that computes is waited for, however long it takes. */
static void test_drain_waits_for_handlers(void **state)
{
    struct drainer d;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    drainer_start(&d, r.s.server, 20);
    client_expect_close(&r.client, 1001, NULL);
    client_drain(&r.client); /* cut after 20 ms */
    support_pause_ms(100);
    assert_false(atomic_load(&d.done));
    rig_release(&r);
    assert_err(drainer_join(&d), TWS_ERR_TIMEOUT);
    rig_close(&r);
}

static void drain_own(tws_conn *c, void *arg)
{
    tws_server **s = arg;
    tws_message m;

    if (tws_read_message(c, &m) == TWS_OK)
        tws_write_text(c, tws_err_name(tws_server_drain(*s, 10)));
    support_echo(c, NULL);
}

/* From one of the server's own connections it is refused, and nothing has happened. */
static void test_drain_from_connection(void **state)
{
    tws_server_options opt;
    struct support_server s;
    struct client c, other;

    (void)state;
    support_server_options(&opt, drain_own, &s.server);
    support_server_start(&s, &opt);
    client_open(&c, s.address);
    client_send_text(&c, "drain yourself");
    client_expect_text(&c, "TWS_ERR_STATE");
    client_send_text(&c, "still here");
    client_expect_text(&c, "still here");
    client_open(&other, s.address); /* still accepting */
    client_close(&other);
    client_close(&c);
    tws_server_free(s.server);
}

/* ---- Several servers ---- */

static void answer_arg(tws_conn *c, void *arg)
{
    tws_write_text(c, arg);
    support_echo(c, NULL);
}

static bool refuse_all(const tws_request *r, tws_reply *a, void *arg)
{
    (void)r;
    (void)arg;
    tws_reply_status(a, 410);
    return false;
}

/* B133: each connection gets the handlers of its own listener's server. */
static void test_two_servers(void **state)
{
    struct support_server a, b, none;
    struct client ca, cb;
    tws_server_options opt;
    char request[1024], answer[1024];

    (void)state;
    support_server_options(&opt, answer_arg, "a");
    support_server_start(&a, &opt);
    support_server_options(&opt, answer_arg, "b");
    support_server_start(&b, &opt);
    opt.upgrade.on_upgrade = refuse_all;
    support_server_start(&none, &opt);
    client_open(&cb, b.address);
    client_open(&ca, a.address);
    client_expect_text(&ca, "a");
    client_expect_text(&cb, "b");
    client_request(request, sizeof request, NULL);
    assert_int_equal(client_http(none.address, request, answer, sizeof answer), 410);
    tws_server_free(a.server); /* the others do not care */
    client_send_text(&cb, "alive");
    client_expect_text(&cb, "alive");
    client_close(&ca);
    client_close(&cb);
    tws_server_free(none.server);
    tws_server_free(b.server);
}

/* ---- Visiting ---- */

static bool greet(tws_conn *c, void *arg)
{
    unsigned *left = arg;

    tws_write_text(c, "hello to all");
    return --*left > 0;
}

static bool close_it(tws_conn *c, void *arg)
{
    (void)arg;
    tws_close_start(c, 4000, "visited");
    return true;
}

static void test_each(void **state)
{
    enum { CLIENTS = 5 };
    struct client c[CLIENTS];
    struct support_server s;
    tws_server_options opt;
    tws_server_stats st;
    unsigned left = 1000;

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    support_server_start(&s, &opt);
    assert_int_equal(tws_server_each(s.server, greet, &left), 0);
    for (int i = 0; i < CLIENTS; i++)
        client_open(&c[i], s.address);
    WAIT_FOR((tws_server_get_stats(s.server, &st), st.open == CLIENTS));
    assert_int_equal(tws_server_each(s.server, greet, &left), CLIENTS);
    for (int i = 0; i < CLIENTS; i++)
        client_expect_text(&c[i], "hello to all");
    left = 2; /* fn stops the visit */
    assert_int_equal(tws_server_each(s.server, greet, &left), 2);
    assert_int_equal(tws_server_each(s.server, close_it, NULL), CLIENTS);
    for (int i = 0; i < CLIENTS; i++) {
        struct client_frame f;

        do
            assert_true(client_next(&c[i], &f));
        while (f.opcode == CLIENT_TEXT);
        assert_int_equal(f.opcode, CLIENT_CLOSE);
        assert_int_equal(f.data[0] << 8 | f.data[1], 4000);
        client_close(&c[i]);
    }
    WAIT_FOR((tws_server_get_stats(s.server, &st), st.threads == 0));
    assert_int_equal(tws_server_each(s.server, greet, &left), 0);
    tws_server_free(s.server);
}

/* When the handler has returned a connection is not visited any more. */
static void test_each_after_handler(void **state)
{
    unsigned left = 1000;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    assert_int_equal(tws_server_each(r.s.server, close_it, &left), 1);
    rig_release(&r);
    WAIT_FOR(tws_server_each(r.s.server, greet, &left) == 0);
    assert_int_equal(conn_state(r.conn), CONN_CLOSING); /* it still waits for its peer */
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_drain_cuts),
        cmocka_unit_test(test_drain_tells_the_hook),
        cmocka_unit_test(test_drain_answered_but_open),
        cmocka_unit_test(test_drain_hastened),
        cmocka_unit_test(test_drain_nowait),
        cmocka_unit_test(test_drain_waits_for_handlers),
        cmocka_unit_test(test_drain_from_connection),
        cmocka_unit_test(test_two_servers),
        cmocka_unit_test(test_each),
        cmocka_unit_test(test_each_after_handler),
    };

    return cmocka_run_group_tests_name("server_drain", tests, NULL, NULL);
}
