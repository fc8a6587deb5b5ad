/*
 * Replies that leave together: fewer system calls, every reply, in order, and none of them late.
 */
#include "support.h"

#include "conn/conn.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

/* ---- Counting sendmsg ---- */

/* The sanitizers' own, where there is one: they look at what is sent. */
ssize_t sanitizer_sendmsg(int fd, const struct msghdr *msg,
                          int flags) __asm__("__interceptor_sendmsg") __attribute__((weak));

static _Atomic unsigned sends;

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
    static ssize_t (*real)(int, const struct msghdr *, int);

    atomic_fetch_add(&sends, 1);
    if (sanitizer_sendmsg)
        return sanitizer_sendmsg(fd, msg, flags);
    if (!real) {
        void *symbol = dlsym(RTLD_NEXT, "sendmsg");

        memcpy(&real, &symbol, sizeof real);
    }
    return real(fd, msg, flags);
}

/* ---- Pipelined requests ---- */

enum { REQUESTS = 200 };

/* Answers REQUESTS pipelined requests on the test's thread; the number of send calls it took. */
static unsigned answer_pipelined(struct rig *r)
{
    uint8_t *wire = support_alloc(REQUESTS * (size_t)(20 + CLIENT_HEAD_MAX));
    size_t len = 0;
    unsigned before;
    char text[32];

    for (int i = 0; i < REQUESTS; i++) {
        snprintf(text, sizeof text, "request %d", i);
        len += client_frame(wire + len, CLIENT_FIN | CLIENT_TEXT, text, strlen(text));
    }
    assert_true(client_send_bytes(r->client.fd, wire, len));
    free(wire);
    before = atomic_load(&sends);
    for (int i = 0; i < REQUESTS; i++) {
        tws_message m;

        assert_ok(tws_read_message(r->conn, &m));
        assert_ok(tws_write_message(r->conn, m.opcode, m.data, m.len));
    }
    assert_ok(tws_flush(r->conn));
    for (int i = 0; i < REQUESTS; i++) {
        snprintf(text, sizeof text, "request %d", i);
        client_expect_text(&r->client, text);
    }
    assert_true(client_is_quiet(&r->client));
    return atomic_load(&sends) - before;
}

static void test_joined(void **state)
{
    tws_stats st;
    unsigned calls;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    calls = answer_pipelined(&r);
    tws_conn_stats(r.conn, &st);
    assert_int_equal(st.messages_out, REQUESTS);
    assert_in_range(st.joined, REQUESTS / 2, REQUESTS - 1);
    assert_in_range(calls, 1, REQUESTS / 2);
    assert_in_range(calls + st.joined, REQUESTS, 2 * REQUESTS);
    rig_close(&r);
}

static void test_option_off(void **state)
{
    tws_server_options opt;
    tws_stats st;
    struct rig r;

    (void)state;
    rig_options(&opt);
    opt.upgrade.conn.join_replies = false;
    rig_open(&r, &opt);
    assert_int_equal(answer_pipelined(&r), REQUESTS);
    tws_conn_stats(r.conn, &st);
    assert_int_equal(st.joined, 0);
    rig_close(&r);
}

/* ---- Nothing is held for long ---- */

/* Reads the first of two messages that came together and answers it: that reply is held back. */
static void hold_one(struct rig *r)
{
    uint8_t wire[64];
    size_t len;
    tws_message m;
    tws_stats before, st;

    len = client_frame(wire, CLIENT_FIN | CLIENT_TEXT, "one", 3);
    len += client_frame(wire + len, CLIENT_FIN | CLIENT_TEXT, "two", 3);
    assert_true(client_send_bytes(r->client.fd, wire, len));
    assert_ok(tws_read_message(r->conn, &m));
    assert_string_equal(m.data, "one");
    tws_conn_stats(r->conn, &before);
    assert_ok(tws_write_text(r->conn, "reply one"));
    tws_conn_stats(r->conn, &st);
    assert_int_equal(st.joined, before.joined + 1);
    assert_int_equal(st.messages_out, before.messages_out + 1);
}

/* A handler that goes on computing after its first reply: the reply leaves without its help. */
static void test_handler_runs_long(void **state)
{
    struct rig r;
    tws_message m;

    (void)state;
    rig_open(&r, NULL);
    for (int i = 0; i < 3; i++) {
        hold_one(&r);
        client_expect_text(&r.client, "reply one"); /* the test's thread is the handler: it waits */
        assert_ok(tws_read_message(r.conn, &m));
        assert_ok(tws_write_text(r.conn, "reply two"));
        client_expect_text(&r.client, "reply two");
        support_pause_ms(i * 250); /* the watcher asleep, and about to sleep */
    }
    rig_close(&r);
}

static void test_flush(void **state)
{
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    hold_one(&r);
    assert_ok(tws_flush(r.conn));
    assert_int_equal(conn_out_len(r.conn), 0);
    client_expect_text(&r.client, "reply one");
    assert_ok(tws_flush(r.conn)); /* nothing is held */
    rig_close(&r);
}

/* A held reply stays before what follows it: another message, a ping, a writer, a close frame. */
static void test_order(void **state)
{
    static const char zeros[5000];
    tws_writer *w;
    struct writer_thread other;
    struct rig r;

    (void)state;
    for (int next = 0; next < 5; next++) {
        rig_open(&r, NULL);
        hold_one(&r);
        switch (next) {
        case 0: /* too large to be held */
            assert_ok(tws_write_message(r.conn, TWS_BINARY, zeros, sizeof zeros));
            break;
        case 1:
            assert_ok(tws_ping(r.conn, "p", 1));
            break;
        case 2:
            assert_ok(tws_next_writer(r.conn, TWS_TEXT, &w));
            assert_ok(tws_writer_close(w));
            break;
        case 3:
            writer_thread_start(&other, r.conn, "b", 1);
            assert_ok(writer_thread_join(&other));
            break;
        default:
            assert_ok(tws_close_start(r.conn, 1000, NULL));
        }
        client_expect_text(&r.client, "reply one");
        if (next == 0)
            client_expect(&r.client, CLIENT_FIN | CLIENT_BINARY, zeros, sizeof zeros);
        else if (next == 1)
            client_expect(&r.client, CLIENT_FIN | CLIENT_PING, "p", 1);
        else if (next == 2)
            client_expect_text(&r.client, "");
        else if (next == 3)
            client_expect(&r.client, CLIENT_FIN | CLIENT_BINARY, "b", 1);
        else
            client_expect_close(&r.client, 1000, "");
        rig_close(&r);
    }
}

/* The error of a held reply's send reaches a later call. */
static void test_late_error(void **state)
{
    tws_err err;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    hold_one(&r);
    client_reset(&r.client);
    WAIT_FOR((err = tws_write_text(r.conn, "x")) != TWS_OK);
    assert_int_equal(err, TWS_ERR_NETWORK);
    /* Given up by whoever found the error, which may be the watch and not this write. */
    WAIT_FOR(conn_out_len(r.conn) == 0);
    rig_close(&r);
}

/* Replies are held only for the thread that reads; replies of others go out at once. */
static void test_other_threads(void **state)
{
    struct writer_thread other;
    tws_stats st;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    hold_one(&r);
    assert_ok(tws_flush(r.conn));
    writer_thread_start(&other, r.conn, "b", 1);
    assert_ok(writer_thread_join(&other));
    assert_int_equal(conn_out_len(r.conn), 0);
    tws_conn_stats(r.conn, &st);
    assert_int_equal(st.joined, 1);
    rig_close(&r);
}

/* Several at once. */
static void test_many_held(void **state)
{
    enum { CONNS = 12 };
    struct rig r[CONNS];

    (void)state;
    for (int i = 0; i < CONNS; i++) {
        rig_open(&r[i], NULL);
        hold_one(&r[i]);
    }
    for (int i = 0; i < CONNS; i++)
        client_expect_text(&r[i].client, "reply one");
    for (int i = CONNS - 1; i >= 0; i--)
        rig_close(&r[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_joined),
        cmocka_unit_test(test_option_off),
        cmocka_unit_test(test_handler_runs_long),
        cmocka_unit_test(test_flush),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_late_error),
        cmocka_unit_test(test_other_threads),
        cmocka_unit_test(test_many_held),
    };

    return cmocka_run_group_tests_name("conn_join", tests, NULL, NULL);
}
