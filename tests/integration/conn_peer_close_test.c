/* Connections that the peer closes: every code, what handler and record say, and how it is answered. */
#include "support.h"

#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

struct farewell {
    unsigned calls, code;
    char reason[TWS_REASON_MAX + 1];
};

static void on_close(tws_conn *c, uint16_t code, const char *reason, void *arg)
{
    struct farewell *f = arg;

    (void)c;
    f->calls++;
    f->code = code;
    strcpy(f->reason, reason);
}

/* The reason comes as it is; the line for a person stays one line, without orders to a terminal. */
static void test_reason_with_control_characters(void **state)
{
    tws_message m;
    tws_error e;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    client_send_close(&r.client, 4000, "a\n\x1b[2Jb\x7f");
    assert_err(tws_read_message(r.conn, &m), TWS_ERR_PEER_CLOSED);
    tws_conn_error(r.conn, &e);
    assert_string_equal(e.reason, "a\n\x1b[2Jb\x7f");
    assert_non_null(strstr(e.text, "a??[2Jb?"));
    rig_close(&r);
}

/* Every code that may be sent: handler and record see it, it is answered alike, the end is clean. */
static void test_closed_by_peer(void **state)
{
    static const unsigned codes[] = {0,    1000, 1001, 1002, 1003, 1007, 1008, 1009,
                                     1010, 1011, 1012, 1013, 1014, 3000, 4000, 4999};

    (void)state;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        const char *reason = i % 2 ? "because \xe2\x82\xac" : "";
        unsigned seen = codes[i] ? codes[i] : 1005;
        struct farewell f = {0};
        tws_message m;
        tws_error e;
        struct rig r;

        rig_open(&r, NULL);
        tws_set_close_handler(r.conn, on_close, &f);
        client_send_close(&r.client, codes[i], reason);
        assert_err(tws_read_message(r.conn, &m), TWS_ERR_PEER_CLOSED);
        client_expect_close(&r.client, codes[i], codes[i] ? reason : "");
        assert_int_equal(f.calls, 1);
        assert_int_equal(f.code, seen);
        assert_string_equal(f.reason, codes[i] ? reason : "");
        tws_conn_error(r.conn, &e); /* the close frames have gone both ways already */
        assert_int_equal(e.code, TWS_ERR_PEER_CLOSED);
        assert_int_equal(e.phase, TWS_PHASE_READ);
        assert_int_equal(e.cause, TWS_CAUSE_PEER);
        assert_int_equal(e.close_code, seen);
        assert_string_equal(e.reason, codes[i] ? reason : "");
        assert_true(e.clean);
        assert_non_null(strstr(e.text, tws_err_text(TWS_ERR_PEER_CLOSED)));
        assert_err(tws_write_text(r.conn, "x"), TWS_ERR_PEER_CLOSED);
        assert_err(tws_close_start(r.conn, 1000, NULL), TWS_ERR_PEER_CLOSED);
        rig_release(&r);
        client_expect_eof(&r.client);
        client_close(&r.client);
        assert_err(tws_close(r.conn, 1000, NULL), TWS_ERR_PEER_CLOSED);
        assert_int_equal(f.calls, 1);
        rig_close(&r);
    }
}

/* ---- Closed, gone, and a write fails before anybody has read that ---- */

/* More than is looked through, in one piece, which a new connection's window has room for. */
#define MUCH 20000

static void go(struct rig *r, size_t more)
{
    static char text[MUCH];
    int unsent;

    client_send_text(&r->client, "one");
    client_send(&r->client, CLIENT_FIN | CLIENT_BINARY, text, more);
    client_send_close(&r->client, 1009, "not so much");
    WAIT_FOR(ioctl(r->client.fd, SIOCOUTQ, &unsent) < 0 || unsent == 0);
    client_close(&r->client);
}

static tws_err write_in_vain(tws_conn *c)
{
    tws_err err;

    WAIT_FOR((err = tws_write_text(c, "into the void")) != TWS_OK);
    return err;
}

static void assert_farewell(tws_conn *c)
{
    tws_error e;

    tws_conn_error(c, &e);
    assert_int_equal(e.code, TWS_ERR_PEER_CLOSED);
    assert_int_equal(e.cause, TWS_CAUSE_PEER);
    assert_int_equal(e.phase, TWS_PHASE_WRITE);
    assert_int_equal(e.close_code, 1009);
    assert_string_equal(e.reason, "not so much");
    assert_false(e.clean);
    assert_non_null(strstr(e.text, "a write failed"));
    assert_non_null(strstr(e.text, "received 1009 not so much"));
}

/* The write itself says what the peer said; what came before that can be read. */
static void test_write_finds_it(void **state)
{
    struct farewell f = {0};
    tws_message m;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    tws_set_close_handler(r.conn, on_close, &f);
    go(&r, 1000);
    assert_err(write_in_vain(r.conn), TWS_ERR_PEER_CLOSED);
    assert_farewell(r.conn);
    assert_err(tws_write_text(r.conn, "again"), TWS_ERR_PEER_CLOSED);
    assert_ok(tws_read_message(r.conn, &m));
    assert_string_equal(m.data, "one");
    assert_ok(tws_read_message(r.conn, &m));
    assert_int_equal(m.len, 1000);
    assert_int_equal(f.calls, 0);
    assert_err(tws_read_message(r.conn, &m), TWS_ERR_PEER_CLOSED);
    assert_int_equal(f.calls, 1);
    assert_int_equal(f.code, 1009);
    assert_farewell(r.conn);
    rig_close(&r);
}

/* An echo loop, whose thread has just read and still looks at that. */
static void test_write_keeps_the_message(void **state)
{
    tws_message m, next;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    go(&r, 0);
    assert_ok(tws_read_message(r.conn, &m));
    assert_err(write_in_vain(r.conn), TWS_ERR_PEER_CLOSED);
    assert_string_equal(m.data, "one");
    assert_ok(tws_message_take(r.conn, &m));
    assert_farewell(r.conn);
    assert_ok(tws_read_message(r.conn, &next));
    assert_err(tws_read_message(r.conn, &next), TWS_ERR_PEER_CLOSED);
    tws_message_free(&m);
    rig_close(&r);
}

/* Behind more messages than are looked through it is found by who reads those... */
static void test_read_finds_it(void **state)
{
    tws_message m;
    tws_err err;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    go(&r, MUCH);
    assert_err(write_in_vain(r.conn), TWS_ERR_NETWORK);
    assert_ok(tws_read_message(r.conn, &m));
    assert_ok(tws_read_message(r.conn, &m));
    assert_int_equal(m.len, MUCH);
    err = tws_read_message(r.conn, &m);
    assert_int_equal(err, TWS_ERR_PEER_CLOSED);
    assert_farewell(r.conn);
    rig_close(&r);
}

/* What stands behind the close frame is nothing, also when it is read after a write has failed. */
static void test_nothing_behind_it(void **state)
{
    struct farewell f = {0};
    uint8_t wire[128];
    tws_message m;
    struct rig r;
    size_t len;

    (void)state;
    rig_open(&r, NULL);
    tws_set_close_handler(r.conn, on_close, &f);
    len = client_frame(wire, CLIENT_FIN | CLIENT_CLOSE, "\x03\xe8", 2);
    len += client_frame(wire + len, CLIENT_FIN | CLIENT_TEXT, "behind", 6);
    len += client_frame(wire + len, CLIENT_FIN | CLIENT_CLOSE, "\x03\xe9", 2);
    assert_true(client_send_bytes(r.client.fd, wire, len));
    go(&r, 0);
    assert_err(write_in_vain(r.conn), TWS_ERR_PEER_CLOSED);
    for (int i = 0; i < 3; i++)
        assert_err(tws_read_message(r.conn, &m), TWS_ERR_PEER_CLOSED);
    assert_int_equal(f.calls, 1);
    assert_int_equal(f.code, 1000);
    rig_close(&r);
}

/* Nor is anything read behind what breaks the rules. */
static void test_nothing_behind_a_breach(void **state)
{
    tws_message m;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    client_send(&r.client, CLIENT_TEXT, "\xe2", 1);
    client_send(&r.client, CLIENT_FIN | CLIENT_CONT, "\x82", 1); /* ends inside a character */
    go(&r, 0);
    assert_err(write_in_vain(r.conn), TWS_ERR_PEER_CLOSED);
    for (int i = 0; i < 3; i++)
        assert_err(tws_read_message(r.conn, &m), TWS_ERR_PEER_CLOSED);
    rig_close(&r);
}

/* ... or, when a handler leaves without, at its end. */
static void test_end_finds_it(void **state)
{
    tws_error e;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    go(&r, MUCH);
    assert_err(write_in_vain(r.conn), TWS_ERR_NETWORK);
    rig_release(&r);
    WAIT_FOR((tws_conn_error(r.conn, &e), e.code == TWS_ERR_PEER_CLOSED));
    assert_farewell(r.conn);
    rig_close(&r);
}

/* Inside a read another thread's failed write leaves it to that read. */
static bool write_inside(tws_conn *c, const void *data, size_t len, void *arg)
{
    (void)data;
    (void)len;
    *(tws_err *)arg = write_in_vain(c);
    return false;
}

static void test_own_read_finds_it(void **state)
{
    tws_err inside = TWS_OK;
    tws_message m;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    tws_set_ping_handler(r.conn, write_inside, &inside);
    client_send(&r.client, CLIENT_FIN | CLIENT_PING, "", 0);
    go(&r, 0);
    assert_ok(tws_read_message(r.conn, &m));
    assert_string_equal(m.data, "one");
    assert_ok(tws_read_message(r.conn, &m));
    assert_err(inside, TWS_ERR_NETWORK);
    assert_err(tws_read_message(r.conn, &m), TWS_ERR_PEER_CLOSED);
    assert_farewell(r.conn);
    rig_close(&r);
}

/* The peer closes while a frame to it is half sent. It gets the rest and the answer, when it reads. */
static void test_inside_a_frame(void **state)
{
    const size_t len = 24 << 20;
    uint8_t *data = calloc(1, len);

    (void)state;
    assert_non_null(data);
    for (int reads = 0; reads < 2; reads++) {
        struct writer_thread w;
        tws_message m;
        tws_error e;
        struct rig r;

        rig_open(&r, NULL);
        assert_ok(tws_set_timeout(r.conn, TWS_TIMEOUT_WRITE, TWS_NO_LIMIT));
        assert_ok(tws_set_timeout(r.conn, TWS_TIMEOUT_CLOSE, reads ? 60000 : 50));
        writer_thread_start(&w, r.conn, data, len);
        support_await_blocked_write(r.conn);
        client_send_close(&r.client, 4001, "enough");
        assert_err(tws_read_message(r.conn, &m), TWS_ERR_PEER_CLOSED);
        rig_release(&r);
        if (reads) {
            client_expect(&r.client, CLIENT_FIN | CLIENT_BINARY, data, len);
            client_expect_close(&r.client, 4001, "enough");
            client_expect_eof(&r.client);
            client_close(&r.client);
        }
        assert_err(writer_thread_join(&w), reads ? TWS_OK : TWS_ERR_PEER_CLOSED);
        assert_err(tws_close(r.conn, 1000, NULL), TWS_ERR_PEER_CLOSED);
        tws_conn_error(r.conn, &e);
        assert_int_equal(e.close_code, 4001);
        assert_string_equal(e.reason, "enough");
        assert_int_equal(e.clean, reads);
        rig_close(&r);
    }
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write_finds_it),
        cmocka_unit_test(test_write_keeps_the_message),
        cmocka_unit_test(test_read_finds_it),
        cmocka_unit_test(test_end_finds_it),
        cmocka_unit_test(test_nothing_behind_it),
        cmocka_unit_test(test_nothing_behind_a_breach),
        cmocka_unit_test(test_own_read_finds_it),
        cmocka_unit_test(test_closed_by_peer),
        cmocka_unit_test(test_inside_a_frame),
        cmocka_unit_test(test_reason_with_control_characters),
    };

    return cmocka_run_group_tests_name("conn_peer_close", tests, NULL, NULL);
}
