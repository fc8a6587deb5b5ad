/*
 * Writing whole messages over a real socket: form and order, local mistakes, peers that do not
 * read, and what a timeout leaves behind.
 */
#include "support.h"

#include "conn/conn.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- Form and order ---- */

static void test_sizes(void **state)
{
    static const size_t sizes[] = {0, 1, 125, 126, 127, 1000, 16384, 65535, 65536, 65537};
    uint8_t *data = support_alloc(65537);
    struct rig r;
    tws_stats before, st;
    uint64_t bytes = 0;

    (void)state;
    rig_open(&r, NULL);
    tws_conn_stats(r.conn, &before);
    support_fill(data, 65537, 8);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_ok(tws_write_message(r.conn, TWS_TEXT, sizes[i] ? data : NULL, sizes[i]));
        client_expect(&r.client, CLIENT_FIN | CLIENT_TEXT, data, sizes[i]);
        assert_ok(tws_write_message(r.conn, TWS_BINARY, data, sizes[i]));
        client_expect(&r.client, CLIENT_FIN | CLIENT_BINARY, data, sizes[i]);
        bytes += 2 * sizes[i];
    }
    tws_conn_stats(r.conn, &st);
    assert_int_equal(st.messages_out, 20);
    assert_int_equal(st.bytes_out, bytes);
    assert_int_equal(st.wire_out, bytes + 6 * 2 + 10 * 4 + 4 * 10);
    rig_close(&r);
    free(data);
}

/* What was just read goes back in one piece, its header where the one that was read had been: as
 * often as one likes, and without harm to the message and to those behind it. */
static void test_own_view(void **state)
{
    static const size_t sizes[] = {1, 125, 126, 1000};
    enum { N = sizeof sizes / sizeof *sizes };
    uint8_t wire[2000], data[1000];
    tws_server_options opt;
    size_t len = 0;
    struct rig r;

    (void)state;
    support_fill(data, sizeof data, 5);
    rig_options(&opt);
    opt.upgrade.conn.join_replies = false;
    rig_open(&r, &opt);
    for (size_t i = 0; i < N; i++)
        len += client_frame(wire + len, CLIENT_FIN | (i % 2 ? CLIENT_BINARY : CLIENT_TEXT), data,
                            sizes[i]);
    assert_true(client_send_bytes(r.client.fd, wire, len));
    for (size_t i = 0; i < N; i++) {
        tws_message m;

        assert_ok(tws_read_message(r.conn, &m));
        for (int k = 0; k < 3; k++) {
            assert_ok(tws_write_message(r.conn, TWS_BINARY, m.data, m.len));
            client_expect(&r.client, CLIENT_FIN | CLIENT_BINARY, data, sizes[i]);
            assert_int_equal(m.len, sizes[i]);
            assert_memory_equal(m.data, data, sizes[i]);
            assert_int_equal(m.data[m.len], 0);
        }
    }
    rig_close(&r);
}

/* What was read may be changed where it stands, so it is looked at again before it goes back. */
static void test_changed_view(void **state)
{
    struct rig r;
    tws_message m;

    (void)state;
    rig_open(&r, NULL);
    client_send_text(&r.client, "hello");
    assert_ok(tws_read_message(r.conn, &m));
    m.data[1] = (char)0xff;
    assert_err(tws_write_message(r.conn, TWS_TEXT, m.data, m.len), TWS_ERR_TEXT);
    assert_err(tws_write_async(r.conn, TWS_TEXT, m.data, m.len, NULL, NULL), TWS_ERR_TEXT);
    m.data[1] = 'u';
    assert_ok(tws_write_message(r.conn, TWS_TEXT, m.data, m.len));
    client_expect_text(&r.client, "hullo");
    rig_close(&r);
}

/* One frame, whatever the number of pieces. */
static void test_writev(void **state)
{
    static const int counts[] = {0, 1, 2, 13, 14, 15, 16, 20, 29, 30, 31, 1024};
    uint8_t data[4096];
    struct iovec iov[1024];
    struct rig r;

    (void)state;
    support_fill(data, sizeof data, 9);
    rig_open(&r, NULL);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        size_t len = 0;

        for (int k = 0; k < counts[i]; k++) {
            size_t n = (size_t)k % 4; /* some are empty */

            iov[k] = (struct iovec){.iov_base = n ? data + len : NULL, .iov_len = n};
            len += n;
        }
        assert_ok(tws_writev_message(r.conn, TWS_BINARY, iov, counts[i]));
        client_expect(&r.client, CLIENT_FIN | CLIENT_BINARY, data, len);
    }
    /* A character may lie in two pieces. */
    iov[0] = (struct iovec){.iov_base = "\xc3", .iov_len = 1};
    iov[1] = (struct iovec){.iov_base = "\xa9", .iov_len = 1};
    assert_ok(tws_writev_message(r.conn, TWS_TEXT, iov, 2));
    client_expect_text(&r.client, "\xc3\xa9");
    assert_err(tws_writev_message(r.conn, TWS_TEXT, iov, 1), TWS_ERR_TEXT);
    assert_err(tws_writev_message(r.conn, TWS_BINARY, iov, 1025), TWS_ERR_ARGUMENT);
    assert_err(tws_writev_message(r.conn, TWS_BINARY, iov, -1), TWS_ERR_ARGUMENT);
    assert_err(tws_writev_message(r.conn, TWS_BINARY, NULL, 1), TWS_ERR_ARGUMENT);
    iov[1] = (struct iovec){.iov_base = NULL, .iov_len = 1};
    assert_err(tws_writev_message(r.conn, TWS_BINARY, iov, 2), TWS_ERR_ARGUMENT);
    assert_ok(tws_write_text(r.conn, "healthy"));
    client_expect_text(&r.client, "healthy");
    rig_close(&r);
}

enum { WRITERS = 8, EACH = 150 };

struct crowd {
    tws_conn *conn;
    int id;
    tws_err err;
};

static void *crowd_main(void *arg)
{
    struct crowd *w = arg;
    char text[3000];

    for (int i = 0; i < EACH && !w->err; i++) {
        size_t len = (size_t)(20 + (i * 37 + w->id * 501) % 2900);

        memset(text, 'A' + w->id, len);
        snprintf(text, sizeof text, "%d %d ", w->id, i);
        text[strlen(text)] = ' '; /* two blanks, then the letters */
        text[len] = 0;
        w->err = tws_write_text(w->conn, text);
    }
    return NULL;
}

/* Messages of several threads go out whole, each thread's in its own order. */
static void test_many_writers(void **state)
{
    struct crowd crowd[WRITERS];
    pthread_t threads[WRITERS];
    int next[WRITERS] = {0};
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    for (int i = 0; i < WRITERS; i++) {
        crowd[i] = (struct crowd){.conn = r.conn, .id = i};
        support_thread(&threads[i], crowd_main, &crowd[i]);
    }
    for (int n = 0; n < WRITERS * EACH; n++) {
        struct client_frame f;
        char *end;
        long id, i;

        assert_true(client_next(&r.client, &f));
        assert_int_equal(f.opcode, CLIENT_TEXT);
        id = strtol((const char *)f.data, &end, 10);
        i = strtol(end, &end, 10);
        assert_in_range(id, 0, WRITERS - 1);
        assert_int_equal(i, next[id]++);
        for (const char *p = end + 2; p < (const char *)f.data + f.len; p++)
            assert_int_equal(*p, 'A' + id);
    }
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(crowd[i].err, TWS_OK);
    }
    rig_close(&r);
}

/* ---- Local mistakes ---- */

/* B140: refused with an error of its own; nothing is sent and the connection is as healthy as before */
static void test_local_mistakes(void **state)
{
    char long_reason[125];
    char data[126] = {0};
    tws_server_options opt;
    tws_error e;
    struct rig r;

    (void)state;
    memset(long_reason, 'r', sizeof long_reason);
    long_reason[124] = 0;
    rig_options(&opt);
    opt.upgrade.conn.max_write = 6;
    rig_open(&r, &opt);
    assert_err(tws_write_message(r.conn, (tws_opcode)0, "x", 1), TWS_ERR_ARGUMENT);
    assert_err(tws_write_message(r.conn, (tws_opcode)9, "x", 1), TWS_ERR_ARGUMENT);
    assert_err(tws_write_message(r.conn, TWS_BINARY, NULL, 1), TWS_ERR_ARGUMENT);
    assert_err(tws_write_text(r.conn, NULL), TWS_ERR_ARGUMENT);
    assert_err(tws_write_text(r.conn, "\xed\xa0\x80"), TWS_ERR_TEXT);
    assert_err(tws_write_text(r.conn, "cut \xe2\x82"), TWS_ERR_TEXT);
    assert_err(tws_write_text(r.conn, "1234567"), TWS_ERR_MESSAGE_SIZE);
    assert_err(tws_ping(r.conn, data, 126), TWS_ERR_CONTROL_SIZE);
    assert_err(tws_pong(r.conn, data, 126), TWS_ERR_CONTROL_SIZE);
    assert_err(tws_ping(r.conn, NULL, 1), TWS_ERR_ARGUMENT);
    assert_err(tws_close(r.conn, 1000, long_reason), TWS_ERR_CONTROL_SIZE);
    assert_err(tws_close_start(r.conn, 1000, long_reason), TWS_ERR_CONTROL_SIZE);
    assert_err(tws_close(r.conn, 1000, "\xc3"), TWS_ERR_TEXT);
    assert_err(tws_close_start(r.conn, 1000, "\xff"), TWS_ERR_TEXT);
    for (unsigned code = 1; code < 5010; code++) {
        bool may = (code >= 1000 && code <= 1003) || code == 1005 ||
                   (code >= 1007 && code <= 1014) || (code >= 3000 && code <= 4999);

        if (!may)
            assert_err(tws_close(r.conn, (uint16_t)code, NULL), TWS_ERR_CLOSE_CODE);
    }
    assert_err(tws_set_timeout(r.conn, TWS_TIMEOUT_READ, -2), TWS_ERR_ARGUMENT);
    assert_err(tws_set_timeout(r.conn, TWS_TIMEOUT_CLOSE, TWS_NOWAIT), TWS_ERR_ARGUMENT);
    assert_err(tws_set_timeout(r.conn, (tws_timeout)0, 1), TWS_ERR_ARGUMENT);
    assert_err(tws_set_timeout(r.conn, (tws_timeout)7, 1), TWS_ERR_ARGUMENT);
    tws_conn_error(r.conn, &e);
    assert_int_equal(e.code, TWS_OK);
    assert_int_equal(e.phase, TWS_PHASE_NONE);
    assert_int_equal(e.cause, TWS_CAUSE_NONE);
    assert_true(client_is_quiet(&r.client));
    assert_ok(tws_write_text(r.conn, "12345"));
    client_expect_text(&r.client, "12345");
    rig_close(&r);
}

/* ---- Peers that do not read ---- */

static uint64_t wire_out(tws_conn *c)
{
    tws_stats st;

    tws_conn_stats(c, &st);
    return st.wire_out;
}

/* B128: after a torn frame nothing follows, and every later call says so */
static void check_stalled(tws_ms write_timeout)
{
    const size_t len = 24 << 20;
    uint8_t *data = support_alloc(len);
    struct client_frame f;
    tws_server_options opt;
    tws_message m;
    tws_error e;
    struct rig r;

    memset(data, 'z', len);
    rig_options(&opt);
    opt.upgrade.conn.write_timeout = write_timeout;
    rig_open(&r, &opt);
    assert_ok(tws_write_text(r.conn, "before"));
    assert_err(tws_write_message(r.conn, TWS_BINARY, data, len), TWS_ERR_STALLED);
    assert_err(tws_write_text(r.conn, "after"), TWS_ERR_STALLED);
    assert_err(tws_ping(r.conn, NULL, 0), TWS_ERR_STALLED);
    assert_err(tws_flush(r.conn), TWS_ERR_STALLED);
    assert_err(tws_read_message(r.conn, &m), TWS_ERR_STALLED);
    assert_err(tws_close(r.conn, 1000, NULL), TWS_ERR_STALLED);
    tws_conn_error(r.conn, &e);
    assert_int_equal(e.code, TWS_ERR_STALLED);
    assert_int_equal(e.phase, TWS_PHASE_WRITE);
    assert_int_equal(e.cause, TWS_CAUSE_TIMEOUT);
    assert_int_equal(e.close_code, 1006);
    assert_false(e.clean);

    client_expect_text(&r.client, "before");
    assert_false(client_next(&r.client, &f)); /* torn, then the end */
    assert_int_equal(r.client.wr - r.client.rd + 8, wire_out(r.conn));
    for (size_t i = r.client.rd + 10; i < r.client.wr; i++)
        if (r.client.buf[i] != 'z')
            fail_msg("a byte that is not of the torn frame");
    rig_close(&r);
    free(data);
}

static void test_stalled(void **state)
{
    (void)state;
    check_stalled(100);
    check_stalled(TWS_NOWAIT);
}

/* A message that could not be begun was not sent at all, and the connection goes on. The Unix
 * socket takes small messages whole or not at all. */
static void check_full(tws_ms write_timeout)
{
    const char *const listen[] = {support_unix_address("full")};
    tws_server_options opt;
    char text[1001];
    unsigned sent = 0;
    tws_stats st;
    struct rig r;

    support_fill(text, 1000, 0);
    text[1000] = 0;
    rig_options(&opt);
    opt.listen = listen;
    rig_open(&r, &opt);
    tws_set_timeout(r.conn, TWS_TIMEOUT_WRITE, TWS_NOWAIT);
    while (tws_write_text(r.conn, text) == TWS_OK)
        sent++;
    tws_set_timeout(r.conn, TWS_TIMEOUT_WRITE, write_timeout);
    assert_err(tws_write_text(r.conn, text), TWS_ERR_TIMEOUT);
    assert_err(tws_ping(r.conn, text, 100), TWS_ERR_TIMEOUT);
    tws_conn_stats(r.conn, &st);
    assert_int_equal(st.timeouts, 3);
    assert_int_equal(st.messages_out, sent);
    assert_int_equal(st.pings_out, 0);
    for (unsigned i = 0; i < sent; i++)
        client_expect_text(&r.client, text);
    tws_set_timeout(r.conn, TWS_TIMEOUT_WRITE, 10000);
    assert_ok(tws_write_text(r.conn, "there is room again"));
    client_expect_text(&r.client, "there is room again");
    rig_close(&r);
}

static void test_full(void **state)
{
    (void)state;
    check_full(50);
    check_full(TWS_NOWAIT);
}

struct taker {
    struct client *client;
    pthread_t thread;
    size_t len;
    bool ok;
};

/* Takes one long message slowly. */
static void *taker_main(void *arg)
{
    struct taker *t = arg;
    struct client_frame f;

    support_pause_ms(100);
    t->ok = client_try_next(t->client, &f) == 1 && f.len == t->len && f.fin &&
            f.opcode == CLIENT_BINARY && support_filled(f.data, f.len, 7);
    return NULL;
}

/* B191: 8 MiB to a slow reader arrive whole. B129: a timeout of 0 is no limit, not "at once". */
static void test_slow_reader(void **state)
{
    struct taker t = {.len = 8 << 20};
    uint8_t *data = support_alloc(t.len);
    struct rig r;
    tws_stats st;

    (void)state;
    support_fill(data, t.len, 7);
    rig_open(&r, NULL);
    t.client = &r.client;
    assert_ok(tws_set_timeout(r.conn, TWS_TIMEOUT_WRITE, TWS_NO_LIMIT));
    assert_int_equal(tws_get_timeout(r.conn, TWS_TIMEOUT_WRITE), 0);
    support_thread(&t.thread, taker_main, &t);
    assert_ok(tws_write_message(r.conn, TWS_BINARY, data, t.len));
    pthread_join(t.thread, NULL);
    assert_true(t.ok);
    tws_conn_stats(r.conn, &st);
    assert_int_equal(st.bytes_out, t.len);
    assert_int_equal(st.wire_out, t.len + 10);
    assert_ok(tws_ping(r.conn, "now", 3)); /* B129: control frames too */
    client_expect(&r.client, CLIENT_FIN | CLIENT_PING, "now", 3);
    rig_close(&r);
    free(data);
}

/* Without waiting for the peer means: still in turn behind another thread that makes progress. */
static void test_nowait_waits_its_turn(void **state)
{
    struct crowd crowd[2];
    pthread_t threads[2];
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    tws_set_timeout(r.conn, TWS_TIMEOUT_WRITE, TWS_NOWAIT);
    for (int i = 0; i < 2; i++) {
        crowd[i] = (struct crowd){.conn = r.conn, .id = i};
        support_thread(&threads[i], crowd_main, &crowd[i]);
    }
    for (int n = 0; n < 2 * EACH; n++) {
        struct client_frame f;

        assert_true(client_next(&r.client, &f));
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(crowd[i].err, TWS_OK);
    }
    rig_close(&r);
}

/* ---- A peer that has gone ---- */

/* The write fails, what the peer had sent before can still be read, then the end is told. */
static void test_rest_after_failed_write(void **state)
{
    tws_message m;
    tws_err err;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    client_send_text(&r.client, "one");
    client_send_text(&r.client, "two");
    client_close(&r.client);
    WAIT_FOR((err = tws_write_text(r.conn, "into the void")) != TWS_OK);
    assert_int_equal(err, TWS_ERR_NETWORK);
    assert_err(tws_write_text(r.conn, "again"), TWS_ERR_NETWORK);
    assert_ok(tws_read_message(r.conn, &m));
    assert_string_equal(m.data, "one");
    assert_ok(tws_read_message(r.conn, &m));
    assert_string_equal(m.data, "two");
    assert_err(tws_read_message(r.conn, &m), TWS_ERR_NETWORK);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_writev),
        cmocka_unit_test(test_many_writers),
        cmocka_unit_test(test_local_mistakes),
        cmocka_unit_test(test_stalled),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_own_view),
        cmocka_unit_test(test_changed_view),
        cmocka_unit_test(test_nowait_waits_its_turn),
        cmocka_unit_test(test_rest_after_failed_write),
    };

    return cmocka_run_group_tests_name("conn_write", tests, NULL, NULL);
}
