/* Time limits of single calls, and one moment for all calls of a direction. */
#include "support.h"

#include "conn/conn.h"

#include <errno.h>
#include <stdlib.h>

/* More than fits into the buffers of both sides. */
#define MUCH ((size_t)16 << 20)

/* ---- A peer that sends pongs without a pause ---- */

#define FLOOD_END ((size_t)64 << 20)

static const struct net_stream_ops *real;
static size_t flooded;

static int flood_await(struct net_stream *st, int64_t deadline, tws_ms period)
{
    (void)st;
    (void)deadline;
    (void)period;
    return 0;
}

static ssize_t flood_recv(struct net_stream *st, void *buf, size_t len)
{
    static const uint8_t pong[6] = {0x8a, 0x80};
    uint8_t *out = buf;

    (void)st;
    if (flooded >= FLOOD_END)
        return -ECONNRESET; /* a call that does not end otherwise */
    for (size_t i = 0; i < len; i++)
        out[i] = pong[flooded++ % sizeof pong];
    return (ssize_t)len;
}

static ssize_t flood_send(struct net_stream *st, const struct iovec *iov, int count)
{
    return real->send(st, iov, count);
}

static int flood_await_send(struct net_stream *st, int64_t deadline)
{
    return real->await_send(st, deadline);
}

static void flood_shutdown(struct net_stream *st, int how)
{
    real->shutdown(st, how);
}

static void flood_close(struct net_stream *st)
{
    real->close(st);
}

/* As long as there is input no wait ends; calls do all the same. */
static void test_flood(void **state)
{
    static const struct net_stream_ops flood = {flood_await,      flood_recv,     flood_send,
                                                flood_await_send, flood_shutdown, flood_close};
    tws_server_options opt;
    tws_opcode opcode;
    tws_message m;
    struct rig r;

    (void)state;
    rig_options(&opt);
    opt.upgrade.conn.max_control_rate = 0;
    opt.upgrade.conn.close_timeout = 1;
    rig_open(&r, &opt);
    real = r.conn->stream.ops;
    r.conn->stream.ops = &flood;
    flooded = 0;
    assert_err(tws_read_message_within(r.conn, &m, TWS_NOWAIT), TWS_ERR_TIMEOUT);
    flooded %= 6;
    assert_err(tws_read_message_within(r.conn, &m, 1), TWS_ERR_TIMEOUT);
    flooded %= 6;
    assert_ok(tws_set_timeout(r.conn, TWS_TIMEOUT_READ, 1));
    assert_err(tws_next_reader(r.conn, &opcode), TWS_ERR_TIMEOUT);
    flooded %= 6;
    assert_err(tws_close(r.conn, 1000, NULL), TWS_ERR_CLOSE_TIMEOUT);
    r.conn->stream.ops = real;
    rig_close(&r);
}

/* ---- One call ---- */

static void test_read(void **state)
{
    uint8_t frame[64];
    size_t len = client_frame(frame, CLIENT_FIN | CLIENT_TEXT, "a whole message", 15);
    tws_message m;
    struct sender s;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    tws_set_timeout(r.conn, TWS_TIMEOUT_READ, 10); /* does not count */
    assert_err(tws_read_message_within(r.conn, &m, -2), TWS_ERR_ARGUMENT);
    assert_string_equal(m.data, "");
    assert_err(tws_read_message_within(r.conn, &m, TWS_NOWAIT), TWS_ERR_TIMEOUT);
    assert_err(tws_read_message_within(r.conn, &m, 10), TWS_ERR_TIMEOUT);
    assert_true(client_send_bytes(r.client.fd, frame, 9));
    assert_err(tws_read_message_within(r.conn, &m, 30), TWS_ERR_TIMEOUT);
    s = (struct sender){.piece = 1, .pause_ms = 15};
    sender_start(&s, r.client.fd, frame + 9, len - 9);
    assert_ok(tws_read_message_within(r.conn, &m, TWS_NO_LIMIT));
    assert_string_equal(m.data, "a whole message");
    assert_true(sender_join(&s));
    assert_int_equal(tws_get_timeout(r.conn, TWS_TIMEOUT_READ), 10);
    rig_close(&r);
}

static void test_write(void **state)
{
    char *much = support_alloc(MUCH);
    struct writer_thread w;
    tws_server_options opt;
    struct rig r;

    (void)state;
    support_fill(much, MUCH, 3);
    rig_options(&opt);
    opt.upgrade.conn.write_timeout = 0;
    rig_open(&r, &opt);
    assert_ok(tws_write_message_within(r.conn, TWS_TEXT, "first", 5, TWS_NOWAIT));
    assert_err(tws_write_message_within(r.conn, TWS_TEXT, "x", 1, -2), TWS_ERR_ARGUMENT);
    assert_err(tws_write_message_within(r.conn, TWS_TEXT, "\xff", 1, 10), TWS_ERR_TEXT);
    client_expect_text(&r.client, "first");
    writer_thread_start(&w, r.conn, much, MUCH);
    support_await_blocked_write(r.conn);
    assert_err(tws_write_message_within(r.conn, TWS_TEXT, "x", 1, 20), TWS_ERR_TIMEOUT);
    assert_err(tws_write_message_within(r.conn, TWS_TEXT, "x", 1, TWS_NOWAIT), TWS_ERR_TIMEOUT);
    assert_err(tws_ping_within(r.conn, "x", 1, 20), TWS_ERR_TIMEOUT);
    assert_err(tws_ping_within(r.conn, "x", 1, TWS_NOWAIT), TWS_ERR_TIMEOUT);
    client_expect(&r.client, CLIENT_FIN | CLIENT_BINARY, much, MUCH);
    assert_ok(writer_thread_join(&w));
    assert_ok(tws_write_message_within(r.conn, TWS_TEXT, "last", 4, TWS_NO_LIMIT));
    client_expect_text(&r.client, "last"); /* what timed out was not sent */
    assert_err(tws_ping_within(r.conn, "x", 1, -2), TWS_ERR_ARGUMENT);
    assert_ok(tws_ping_within(r.conn, "ping", 4, 1000));
    client_expect(&r.client, CLIENT_FIN | CLIENT_PING, "ping", 4);
    /* Inside a frame it is the end. */
    assert_err(tws_write_message_within(r.conn, TWS_BINARY, much, MUCH, 50), TWS_ERR_STALLED);
    assert_err(tws_write_message(r.conn, TWS_TEXT, "x", 1), TWS_ERR_STALLED);
    rig_close(&r);
    free(much);
}

/* ---- One moment ---- */

static void test_read_deadline(void **state)
{
    tws_opcode op;
    tws_message m;
    char buf[8];
    size_t n;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    assert_ok(tws_set_deadline(r.conn, TWS_TIMEOUT_READ, SUPPORT_HANG_MS));
    assert_in_range(tws_get_timeout(r.conn, TWS_TIMEOUT_READ), 1, SUPPORT_HANG_MS);
    client_send_text(&r.client, "in time");
    assert_ok(tws_read_message(r.conn, &m));

    assert_ok(tws_set_deadline(r.conn, TWS_TIMEOUT_READ, 40));
    client_send(&r.client, CLIENT_TEXT, "abc", 3);
    assert_ok(tws_next_reader(r.conn, &op));
    assert_ok(tws_reader_read(r.conn, buf, sizeof buf, &n));
    assert_err(tws_reader_read(r.conn, buf, sizeof buf, &n), TWS_ERR_TIMEOUT);
    assert_int_equal(tws_get_timeout(r.conn, TWS_TIMEOUT_READ), TWS_NOWAIT);
    assert_err(tws_reader_read(r.conn, buf, sizeof buf, &n), TWS_ERR_TIMEOUT);
    client_send(&r.client, CLIENT_FIN | CLIENT_CONT, "d", 1);
    WAIT_FOR(tws_reader_read(r.conn, buf, sizeof buf, &n) == TWS_OK); /* what has arrived */
    assert_int_equal(n, 1);

    assert_ok(tws_set_timeout(r.conn, TWS_TIMEOUT_READ, 0));
    assert_int_equal(tws_get_timeout(r.conn, TWS_TIMEOUT_READ), 0);
    client_send_text(&r.client, "later");
    assert_ok(tws_read_message(r.conn, &m));
    assert_string_equal(m.data, "later");
    rig_close(&r);
}

static void test_write_deadline(void **state)
{
    char *much = support_alloc(MUCH);
    struct writer_thread w;
    tws_writer *writer;
    struct rig r;

    (void)state;
    support_fill(much, MUCH, 3);
    rig_open(&r, NULL);
    assert_ok(tws_set_deadline(r.conn, TWS_TIMEOUT_WRITE, TWS_NO_LIMIT));
    writer_thread_start(&w, r.conn, much, MUCH);
    support_await_blocked_write(r.conn);
    assert_ok(tws_set_deadline(r.conn, TWS_TIMEOUT_WRITE, 30));
    assert_err(tws_write_text(r.conn, "x"), TWS_ERR_TIMEOUT);
    assert_err(tws_ping(r.conn, "x", 1), TWS_ERR_TIMEOUT);
    assert_err(tws_next_writer(r.conn, TWS_TEXT, &writer), TWS_ERR_TIMEOUT);
    assert_int_equal(tws_get_timeout(r.conn, TWS_TIMEOUT_WRITE), TWS_NOWAIT);
    client_expect(&r.client, CLIENT_FIN | CLIENT_BINARY, much, MUCH);
    assert_ok(writer_thread_join(&w));
    assert_ok(tws_write_text(r.conn, "it need not wait")); /* the deadline is past */
    client_expect_text(&r.client, "it need not wait");
    rig_close(&r);
    free(much);
}

static void note(tws_conn *c, tws_err err, void *arg)
{
    _Atomic int *result = arg;

    (void)c;
    atomic_store(result, err == TWS_OK ? 1 : 2);
}

/* What is queued is nobody's call. */
static void test_queue_has_no_deadline(void **state)
{
    char *much = support_alloc(MUCH);
    _Atomic int result = 0;
    tws_server_options opt;
    struct rig r;

    (void)state;
    support_fill(much, MUCH, 3);
    rig_options(&opt);
    opt.upgrade.conn.queue.max_bytes = 2 * MUCH;
    rig_open(&r, &opt);
    assert_ok(tws_set_deadline(r.conn, TWS_TIMEOUT_WRITE, TWS_NOWAIT));
    assert_ok(tws_write_async(r.conn, TWS_BINARY, much, MUCH, note, &result));
    assert_ok(tws_set_deadline(r.conn, TWS_TIMEOUT_WRITE, 1));
    support_pause_ms(30);
    client_expect(&r.client, CLIENT_FIN | CLIENT_BINARY, much, MUCH);
    WAIT_FOR(atomic_load(&result) != 0);
    assert_int_equal(atomic_load(&result), 1);
    rig_close(&r);
    free(much);
}

static void test_arguments(void **state)
{
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    assert_err(tws_set_deadline(r.conn, TWS_TIMEOUT_CLOSE, 10), TWS_ERR_ARGUMENT);
    assert_err(tws_set_deadline(r.conn, TWS_TIMEOUT_READ, -2), TWS_ERR_ARGUMENT);
    assert_ok(tws_set_deadline(r.conn, TWS_TIMEOUT_READ, INT64_MAX)); /* as good as none */
    assert_int_equal(tws_get_timeout(r.conn, TWS_TIMEOUT_READ), 0);
    assert_ok(tws_set_deadline(r.conn, TWS_TIMEOUT_READ, TWS_NOWAIT));
    assert_int_equal(tws_get_timeout(r.conn, TWS_TIMEOUT_READ), TWS_NOWAIT);
    assert_err(tws_set_timeout(r.conn, TWS_TIMEOUT_READ, -1000), TWS_ERR_ARGUMENT);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flood),          cmocka_unit_test(test_read),
        cmocka_unit_test(test_write),          cmocka_unit_test(test_read_deadline),
        cmocka_unit_test(test_write_deadline), cmocka_unit_test(test_queue_has_no_deadline),
        cmocka_unit_test(test_arguments),
    };

    return cmocka_run_group_tests_name("conn_within", tests, NULL, NULL);
}
