/*
 * Pings, pongs, keepalive, silence, and limits on what a peer may do to keep a connection busy.
 */
#include "support.h"

#include "base/clock.h"
#include "conn/conn.h"

#include <stdlib.h>

/* ---- Pings and pongs ---- */

static void test_ping_is_answered(void **state)
{
    uint8_t data[125];
    tws_stats st;
    struct reader rd;
    struct rig r;

    (void)state;
    support_fill(data, sizeof data, 1);
    rig_open(&r, NULL);
    reader_start(&rd, r.conn);
    for (size_t len = 0; len <= sizeof data; len++) {
        client_send(&r.client, CLIENT_FIN | CLIENT_PING, data, len);
        client_expect(&r.client, CLIENT_FIN | CLIENT_PONG, data, len);
    }
    tws_conn_stats(r.conn, &st);
    assert_int_equal(st.pings_in, 126);
    assert_int_equal(st.pongs_out, 126);
    assert_int_equal(st.messages_in, 0);
    tws_abort(r.conn);
    reader_join(&rd);
    rig_close(&r);
}

struct seen {
    tws_conn *conn;
    unsigned calls;
    size_t len;
    char data[125];
    bool answer;
    bool reply_self;
};

static bool on_control(tws_conn *c, const void *data, size_t len, void *arg)
{
    struct seen *s = arg;

    s->conn = c;
    s->calls++;
    s->len = len;
    memcpy(s->data, data, len);
    if (s->reply_self)
        tws_write_text(c, "a ping came");
    return s->answer;
}

static void test_handlers(void **state)
{
    struct seen ping = {.answer = true}, pong = {.answer = false};
    tws_message m;
    tws_stats st;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    tws_set_ping_handler(r.conn, on_control, &ping);
    tws_set_pong_handler(r.conn, on_control, &pong);
    client_send(&r.client, CLIENT_FIN | CLIENT_PING, "first", 5);
    client_send(&r.client, CLIENT_FIN | CLIENT_PONG, "unasked", 7);
    client_send_text(&r.client, "m");
    assert_ok(tws_read_message(r.conn, &m));
    assert_int_equal(ping.calls, 1);
    assert_ptr_equal(ping.conn, r.conn);
    assert_int_equal(ping.len, 5);
    assert_memory_equal(ping.data, "first", 5);
    assert_int_equal(pong.calls, 1);
    assert_memory_equal(pong.data, "unasked", 7);
    client_expect(&r.client, CLIENT_FIN | CLIENT_PONG, "first", 5);

    ping.answer = false; /* the handler answers for itself, in its own way */
    ping.reply_self = true;
    client_send(&r.client, CLIENT_FIN | CLIENT_PING, "", 0);
    client_send_text(&r.client, "m");
    assert_ok(tws_read_message(r.conn, &m));
    assert_int_equal(ping.calls, 2);
    assert_int_equal(ping.len, 0);
    client_expect_text(&r.client, "a ping came");
    tws_set_ping_handler(r.conn, NULL, NULL);
    client_send(&r.client, CLIENT_FIN | CLIENT_PING, "third", 5);
    client_send_text(&r.client, "m");
    assert_ok(tws_read_message(r.conn, &m));
    assert_int_equal(ping.calls, 2);
    client_expect(&r.client, CLIENT_FIN | CLIENT_PONG, "third", 5);
    tws_conn_stats(r.conn, &st);
    assert_int_equal(st.pings_in, 3);
    assert_int_equal(st.pongs_in, 1);
    assert_int_equal(st.pongs_out, 2);
    rig_close(&r);
}

static void test_own_ping_and_pong(void **state)
{
    char data[125];
    tws_stats st;
    struct rig r;

    (void)state;
    support_fill(data, sizeof data, 2);
    rig_open(&r, NULL);
    assert_ok(tws_ping(r.conn, NULL, 0));
    client_expect(&r.client, CLIENT_FIN | CLIENT_PING, NULL, 0);
    assert_ok(tws_ping(r.conn, data, 125));
    client_expect(&r.client, CLIENT_FIN | CLIENT_PING, data, 125);
    assert_ok(tws_pong(r.conn, data, 3));
    client_expect(&r.client, CLIENT_FIN | CLIENT_PONG, data, 3);
    tws_conn_stats(r.conn, &st);
    assert_int_equal(st.pings_out, 2);
    assert_int_equal(st.pongs_out, 1);
    assert_int_equal(st.messages_out, 0);
    assert_int_equal(st.bytes_out, 0);
    rig_close(&r);
}

/* A control frame between fragments is handled at once, not when the message is whole. */
static void test_ping_between_fragments(void **state)
{
    struct reader rd;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    reader_start(&rd, r.conn);
    client_send(&r.client, CLIENT_TEXT, "a", 1);
    client_send(&r.client, CLIENT_FIN | CLIENT_PING, "now", 3);
    client_expect(&r.client, CLIENT_FIN | CLIENT_PONG, "now", 3);
    client_send(&r.client, CLIENT_FIN, "b", 1);
    WAIT_FOR(atomic_load(&rd.messages) == 1);
    assert_int_equal(atomic_load(&rd.bytes), 2);
    tws_abort(r.conn);
    reader_join(&rd);
    rig_close(&r);
}

/* ---- Keepalive ---- */

/* A silent peer is pinged, its pong measured, and the connection lives on. */
static void test_keepalive(void **state)
{
    tws_server_options opt;
    struct reader rd;
    tws_stats st;
    struct rig r;

    (void)state;
    rig_options(&opt);
    opt.upgrade.conn.ping_interval = 50;
    opt.upgrade.conn.ping_timeout = SUPPORT_HANG_MS;
    rig_open(&r, &opt);
    tws_conn_stats(r.conn, &st);
    assert_int_equal(st.rtt_us, -1);
    reader_start(&rd, r.conn);
    for (int i = 0; i < 3; i++) {
        struct client_frame f;

        assert_true(client_next(&r.client, &f));
        assert_int_equal(f.opcode, CLIENT_PING);
        client_send(&r.client, CLIENT_FIN | CLIENT_PONG, f.data, f.len);
    }
    WAIT_FOR((tws_conn_stats(r.conn, &st), st.pongs_in == 3));
    assert_in_range(st.rtt_us, 0, INT64_C(1000) * SUPPORT_HANG_MS);
    assert_in_range(st.pings_out, 3, 1000);
    assert_false(atomic_load(&rd.done));
    tws_abort(r.conn);
    reader_join(&rd);
    rig_close(&r);
}

static void check_silent(const void *first, size_t len, tws_ms read_timeout)
{
    tws_server_options opt;
    struct reader rd;
    tws_error e;
    struct rig r;

    rig_options(&opt);
    opt.upgrade.conn.ping_interval = 50;
    opt.upgrade.conn.ping_timeout = 60;
    opt.upgrade.conn.read_timeout = read_timeout;
    rig_open(&r, &opt);
    assert_true(client_send_bytes(r.client.fd, first, len));
    reader_start(&rd, r.conn);
    assert_err(reader_join(&rd), TWS_ERR_PEER_SILENT);
    tws_conn_error(r.conn, &e);
    assert_int_equal(e.code, TWS_ERR_PEER_SILENT);
    assert_int_equal(e.phase, TWS_PHASE_READ);
    assert_int_equal(e.cause, TWS_CAUSE_TIMEOUT);
    assert_int_equal(e.close_code, 1006);
    assert_false(e.clean);
    assert_err(tws_write_text(r.conn, "x"), TWS_ERR_PEER_SILENT);
    rig_close(&r);
}

/* B123: a peer that answers nothing is given up: idle, inside a frame, and with a read timeout */
static void test_peer_silent(void **state)
{
    (void)state;
    check_silent("", 0, 0);
    check_silent("\x82\x85"
                 "abcd"
                 "xy",
                 8, 0);
    check_silent("", 0, 20);
}

/* Any byte is a sign of life, and both times can be changed while the reader waits. */
static void test_keepalive_changed(void **state)
{
    struct client_frame f;
    struct reader rd;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    assert_int_equal(tws_get_timeout(r.conn, TWS_TIMEOUT_PING_INTERVAL), 30000);
    assert_int_equal(tws_get_timeout(r.conn, TWS_TIMEOUT_PING), 20000);
    assert_int_equal(tws_get_timeout(r.conn, (tws_timeout)0), 0);
    assert_ok(tws_set_timeout(r.conn, TWS_TIMEOUT_PING_INTERVAL, 40));
    assert_ok(tws_set_timeout(r.conn, TWS_TIMEOUT_PING, 200));
    reader_start(&rd, r.conn);
    for (int i = 0; i < 4; i++) { /* answers with data instead of pongs */
        assert_true(client_next(&r.client, &f));
        assert_int_equal(f.opcode, CLIENT_PING);
        client_send_text(&r.client, "alive");
    }
    assert_err(reader_join(&rd), TWS_ERR_PEER_SILENT);
    assert_int_equal(atomic_load(&rd.messages), 4);
    rig_close(&r);
}

/* ---- Idle ---- */

static void test_idle(void **state)
{
    tws_server_options opt;
    struct reader rd;
    tws_error e;
    struct rig r;

    (void)state;
    rig_options(&opt);
    opt.upgrade.conn.idle_timeout = 100;
    rig_open(&r, &opt);
    reader_start(&rd, r.conn);
    client_send_text(&r.client, "busy");
    WAIT_FOR(atomic_load(&rd.messages) == 1);
    client_expect_close(&r.client, 1001, NULL);
    client_send_close(&r.client, 1001, NULL);
    assert_err(reader_join(&rd), TWS_ERR_IDLE);
    tws_conn_error(r.conn, &e);
    assert_int_equal(e.cause, TWS_CAUSE_TIMEOUT);
    assert_int_equal(e.close_code, 1001);
    rig_release(&r);
    client_expect_eof(&r.client);
    rig_close(&r);
}

/* Only data messages count: pings of the peer's do not keep an idle connection open. */
static void test_idle_in_spite_of_pings(void **state)
{
    tws_server_options opt;
    struct client_frame f;
    struct reader rd;
    unsigned pings = 0;
    struct rig r;

    (void)state;
    rig_options(&opt);
    opt.upgrade.conn.idle_timeout = 100;
    rig_open(&r, &opt);
    reader_start(&rd, r.conn);
    do { /* never silent for as long as the timeout, which ends the connection all the same */
        assert_in_range(++pings, 1, 1000);
        client_send(&r.client, CLIENT_FIN | CLIENT_PING, "p", 1);
        assert_true(client_next(&r.client, &f));
        support_pause_ms(10);
    } while (f.opcode == CLIENT_PONG);
    assert_int_equal(f.opcode, CLIENT_CLOSE);
    assert_int_equal(f.data[0] << 8 | f.data[1], 1001);
    assert_err(reader_join(&rd), TWS_ERR_IDLE);
    rig_close(&r);
}

/* Bytes of a message that is not whole yet count too. */
static void test_not_idle_inside_a_message(void **state)
{
    enum { LEN = 100 };
    uint8_t data[LEN], wire[LEN + CLIENT_HEAD_MAX];
    tws_server_options opt;
    struct sender s = {.piece = 1, .pause_ms = 30};
    struct reader rd;
    struct rig r;

    (void)state;
    support_fill(data, LEN, 0);
    rig_options(&opt);
    opt.upgrade.conn.idle_timeout = 2000; /* the message takes longer */
    rig_open(&r, &opt);
    reader_start(&rd, r.conn);
    sender_start(&s, r.client.fd, wire, client_frame(wire, CLIENT_FIN | CLIENT_TEXT, data, LEN));
    WAIT_FOR(atomic_load(&rd.messages) == 1 || atomic_load(&rd.done));
    assert_int_equal(atomic_load(&rd.messages), 1);
    assert_true(sender_join(&s));
    tws_abort(r.conn);
    reader_join(&rd);
    rig_close(&r);
}

/* The idle timeout does not cut a closing handshake short. */
static void test_idle_while_closing(void **state)
{
    tws_server_options opt;
    tws_error e;
    struct rig r;

    (void)state;
    rig_options(&opt);
    opt.upgrade.conn.idle_timeout = 60;
    rig_open(&r, &opt);
    assert_ok(tws_close_start(r.conn, 1000, NULL));
    client_expect_close(&r.client, 1000, NULL);
    rig_release(&r);
    support_pause_ms(300); /* a slow peer */
    client_send_close(&r.client, 1000, NULL);
    client_expect_eof(&r.client);
    client_close(&r.client);
    assert_err(tws_close(r.conn, 1000, NULL), TWS_OK);
    tws_conn_error(r.conn, &e);
    assert_int_equal(e.code, TWS_ERR_CLOSED);
    assert_true(e.clean);
    rig_close(&r);
}

/* ---- Floods and drips ---- */

static void test_control_flood(void **state)
{
    uint8_t frame[CLIENT_HEAD_MAX], wire[200 * 6];
    tws_server_options opt;
    tws_message m;
    tws_error e;
    struct rig r;

    (void)state;
    rig_options(&opt);
    opt.upgrade.conn.max_control_rate = 50;
    rig_open(&r, &opt);
    for (size_t i = 0; i < 200; i++) {
        unsigned opcode = i % 2 ? CLIENT_PING : CLIENT_PONG;

        assert_int_equal(client_frame(frame, CLIENT_FIN | opcode, NULL, 0), 6);
        memcpy(wire + i * 6, frame, 6);
    }
    assert_true(client_send_bytes(r.client.fd, wire, sizeof wire));
    assert_err(tws_read_message(r.conn, &m), TWS_ERR_FLOOD);
    tws_conn_error(r.conn, &e);
    assert_int_equal(e.cause, TWS_CAUSE_LIMIT);
    assert_int_equal(e.close_code, 1008);
    rig_release(&r);
    client_drain(&r.client);
    rig_close(&r);

    rig_options(&opt);
    opt.upgrade.conn.max_control_rate = 0; /* no limit */
    rig_open(&r, &opt);
    assert_true(client_send_bytes(r.client.fd, wire, sizeof wire));
    client_send_text(&r.client, "still here");
    assert_ok(tws_read_message(r.conn, &m));
    rig_close(&r);
}

/* A peer that pings and never reads costs no more than one buffer. */
static void test_pings_of_a_peer_that_does_not_read(void **state)
{
    const char *const listen[] = {support_unix_address("pings")};
    uint8_t wire[1000 * (4 + 6)];
    tws_server_options opt;
    struct reader rd;
    size_t len = 0;
    struct rig r;

    (void)state;
    for (unsigned i = 0; i < 1000; i++)
        len += client_frame(wire + len, CLIENT_FIN | CLIENT_PING, &i, 4);
    rig_options(&opt);
    opt.listen = listen;
    opt.upgrade.conn.max_control_rate = 0;
    rig_open(&r, &opt);
    tws_set_timeout(r.conn, TWS_TIMEOUT_WRITE, TWS_NOWAIT);
    while (tws_write_text(r.conn, "fill the socket's buffer") == TWS_OK) {
    }
    reader_start(&rd, r.conn);
    for (int i = 0; i < 20; i++)
        assert_true(client_send_bytes(r.client.fd, wire, len));
    client_send_text(&r.client, "end");
    WAIT_FOR(atomic_load(&rd.messages) == 1);
    assert_in_range(conn_out_len(r.conn), 1, CONN_BUFFER);
    tws_abort(r.conn);
    reader_join(&rd);
    rig_close(&r);
}

/* The rule itself, without waiting half a minute for it. */
static void test_min_rate(void **state)
{
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    r.conn->msg.waited = 29 * BASE_NS_PER_S; /* young frames are left alone */
    r.conn->msg.waited_bytes = 1;
    assert_ok(conn_frame_slow(r.conn));
    r.conn->msg.waited = 40 * BASE_NS_PER_S;
    r.conn->msg.waited_bytes = 40 * 64;
    assert_ok(conn_frame_slow(r.conn));
    r.conn->msg.waited_bytes--;
    assert_err(conn_frame_slow(r.conn), TWS_ERR_SLOW);
    client_expect_close(&r.client, 1008, NULL);
    rig_close(&r);
}

/* What is counted: the time a frame is waited for, also across reads that time out. */
static void test_min_rate_measures(void **state)
{
    uint8_t wire[CLIENT_HEAD_MAX + 300] = {0};
    tws_message m;
    int64_t begin;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    tws_set_timeout(r.conn, TWS_TIMEOUT_READ, 20);
    client_frame(wire, CLIENT_FIN | CLIENT_BINARY, wire, 300);
    begin = support_now_ms();
    assert_true(client_send_bytes(r.client.fd, wire, 20));
    WAIT_FOR((tws_read_message(r.conn, &m), support_now_ms() - begin > 300));
    assert_true(client_send_bytes(r.client.fd, wire + 20, 1));
    assert_err(tws_read_message(r.conn, &m), TWS_ERR_TIMEOUT);
    assert_in_range(r.conn->msg.waited, 100 * BASE_NS_PER_MS, SUPPORT_HANG_MS * BASE_NS_PER_MS);
    assert_true(client_send_bytes(r.client.fd, wire + 21, 308 - 21));
    WAIT_FOR(tws_read_message(r.conn, &m) == TWS_OK);
    assert_int_equal(r.conn->msg.waited, 0);
    assert_int_equal(r.conn->msg.waited_bytes, 0);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ping_is_answered),
        cmocka_unit_test(test_handlers),
        cmocka_unit_test(test_own_ping_and_pong),
        cmocka_unit_test(test_ping_between_fragments),
        cmocka_unit_test(test_keepalive),
        cmocka_unit_test(test_peer_silent),
        cmocka_unit_test(test_keepalive_changed),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_idle_in_spite_of_pings),
        cmocka_unit_test(test_not_idle_inside_a_message),
        cmocka_unit_test(test_idle_while_closing),
        cmocka_unit_test(test_control_flood),
        cmocka_unit_test(test_pings_of_a_peer_that_does_not_read),
        cmocka_unit_test(test_min_rate),
        cmocka_unit_test(test_min_rate_measures),
    };

    return cmocka_run_group_tests_name("conn_control", tests, NULL, NULL);
}
