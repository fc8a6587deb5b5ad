/*
 * tws_read_message() over a real socket: sizes, fragments, cuts, timeouts, what a view is worth, and
 * how a connection ends that breaks a rule.
 */
#include "support.h"

#include "conn/conn.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* Around the header forms, the receive area, the borrowed buffer and the direct receive. */
static const size_t sizes[] = {0,    1,     125,   126,   1000,  3999,  4000,  4096,   8191,
                               8192, 16382, 16383, 16384, 20000, 65535, 65536, 262144, 1 << 20};

static size_t build_message(uint8_t *out, unsigned opcode, const uint8_t *data, size_t len,
                            size_t frames)
{
    size_t n = 0, done = 0;

    for (size_t i = 0; i < frames; i++) {
        size_t part = i + 1 == frames ? len - done : len / frames;
        unsigned first = (i == 0 ? opcode : CLIENT_CONT) | (i + 1 == frames ? CLIENT_FIN : 0u);

        n += client_frame(out + n, first, data + done, part);
        done += part;
    }
    return n;
}

/* Every size in one to three frames, and in pieces of 1,000 bytes. */
static void test_sizes(void **state)
{
    const size_t max = 1 << 20;
    uint8_t *data = support_alloc(max);
    uint8_t *wire = support_alloc(max + 64);
    uint64_t messages = 0;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t frames = 1; frames <= 3; frames++) {
            struct sender s = {.piece = sizes[i] <= 65536 ? 1000 : 0};
            unsigned opcode = frames % 2 ? CLIENT_TEXT : CLIENT_BINARY;
            tws_message m;

            support_fill(data, sizes[i], (unsigned)frames);
            sender_start(&s, r.client.fd, wire,
                         build_message(wire, opcode, data, sizes[i], frames));
            assert_ok(tws_read_message(r.conn, &m));
            assert_true(sender_join(&s));
            assert_int_equal(m.opcode, opcode);
            assert_int_equal(m.len, sizes[i]);
            assert_true(support_filled(m.data, m.len, (unsigned)frames));
            assert_int_equal(m.data[m.len], 0);
            messages++;
        }
    }
    tws_stats st;
    tws_conn_stats(r.conn, &st);
    assert_int_equal(st.messages_in, messages);
    rig_close(&r);
    free(wire);
    free(data);
}

/* Reads without waiting until the connection has taken `bytes` off the wire. */
static void read_nothing_until(tws_conn *c, uint64_t bytes)
{
    int64_t end = support_now_ms() + SUPPORT_HANG_MS;
    tws_stats st;

    do {
        tws_message m;

        assert_err(tws_read_message(c, &m), TWS_ERR_TIMEOUT);
        assert_int_equal(m.len, 0);
        assert_string_equal(m.data, "");
        tws_conn_stats(c, &st);
        assert_true(support_now_ms() < end);
    } while (st.wire_in < bytes);
}

/* A message cut at `cut`: the read times out there, and the next one delivers the whole of it. */
static void check_cut(struct rig *r, const uint8_t *wire, size_t len, size_t cut, const char *want,
                      size_t want_len)
{
    tws_stats st;
    tws_message m;

    tws_conn_stats(r->conn, &st);
    assert_ok(tws_set_timeout(r->conn, TWS_TIMEOUT_READ, TWS_NOWAIT));
    assert_true(client_send_bytes(r->client.fd, wire, cut));
    read_nothing_until(r->conn, st.wire_in + cut);
    assert_ok(tws_set_timeout(r->conn, TWS_TIMEOUT_READ, SUPPORT_HANG_MS));
    assert_true(client_send_bytes(r->client.fd, wire + cut, len - cut));
    assert_ok(tws_read_message(r->conn, &m));
    assert_int_equal(m.len, want_len);
    assert_memory_equal(m.data, want, want_len + 1);
}

/* B192, B113: a timeout in the header, the payload, between fragments and around a ping */
static void test_cut_everywhere(void **state)
{
    static const char text[] = "Gr\xc3\xbc\xc3\x9f dich";
    uint8_t wire[256];
    size_t len = 0;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    len += client_frame(wire, CLIENT_TEXT, text, 3); /* ends inside a character */
    len += client_frame(wire + len, CLIENT_FIN | CLIENT_PING, "abc", 3);
    len += client_frame(wire + len, CLIENT_CONT, text + 3, 4);
    len += client_frame(wire + len, CLIENT_CONT, NULL, 0);
    len += client_frame(wire + len, CLIENT_FIN, text + 7, sizeof text - 1 - 7);
    for (size_t cut = 1; cut < len; cut++) {
        check_cut(&r, wire, len, cut, text, sizeof text - 1);
        client_expect(&r.client, CLIENT_FIN | CLIENT_PONG, "abc", 3);
    }
    rig_close(&r);
}

/* B192: the same for one frame that stays where it was received, with both longer length forms */
static void test_cut_one_frame(void **state)
{
    static const size_t lengths[] = {80, 300, 70000};
    uint8_t *wire = support_alloc(70000 + CLIENT_HEAD_MAX);
    char *data = support_alloc(70001);
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        size_t n = lengths[i], len;

        support_fill(data, n, 3);
        data[n] = 0;
        len = client_frame(wire, CLIENT_FIN | CLIENT_BINARY, data, n);
        for (size_t cut = 1; cut < len; cut += cut < 20 ? 1 : n / 7)
            check_cut(&r, wire, len, cut, data, n);
    }
    rig_close(&r);
    free(data);
    free(wire);
}

/* B113: a real read timeout, in place, assembled and received directly */
static void test_timeout(void **state)
{
    static const size_t lengths[] = {80, 10000, 300000};
    uint8_t *wire = support_alloc(300000 + CLIENT_HEAD_MAX);
    uint8_t *data = support_alloc(300000);
    tws_server_options opt;
    struct rig r;

    (void)state;
    rig_options(&opt);
    opt.upgrade.conn.read_timeout = 50;
    rig_open(&r, &opt);
    assert_int_equal(tws_get_timeout(r.conn, TWS_TIMEOUT_READ), 50);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        size_t len;
        tws_message m;
        tws_err err;

        support_fill(data, lengths[i], 1);
        len = client_frame(wire, CLIENT_FIN | CLIENT_BINARY, data, lengths[i]);
        assert_err(tws_read_message(r.conn, &m), TWS_ERR_TIMEOUT);
        assert_true(client_send_bytes(r.client.fd, wire, len / 2));
        assert_err(tws_read_message(r.conn, &m), TWS_ERR_TIMEOUT);
        assert_err(tws_read_message(r.conn, &m), TWS_ERR_TIMEOUT);
        assert_true(client_send_bytes(r.client.fd, wire + len / 2, len - len / 2));
        while ((err = tws_read_message(r.conn, &m)) == TWS_ERR_TIMEOUT) {
        }
        assert_ok(err);
        assert_int_equal(m.len, lengths[i]);
        assert_true(support_filled(m.data, m.len, 1));
    }
    tws_stats st;
    tws_conn_stats(r.conn, &st);
    assert_in_range(st.timeouts, 9, 10000);
    rig_close(&r);
    free(data);
    free(wire);
}

/* What a timed-out read has begun can also be dropped: by a streaming reader, without losing step. */
static void test_drop_begun_message(void **state)
{
    static const size_t lengths[] = {80, 10000, 100000};
    uint8_t *wire = support_alloc(100000 + CLIENT_HEAD_MAX);
    uint8_t *data = support_alloc(100000);
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        tws_opcode opcode;
        char buf[16];
        size_t len, n;
        tws_stats st;

        support_fill(data, lengths[i], 1);
        len = client_frame(wire, CLIENT_FIN | CLIENT_BINARY, data, lengths[i]);
        tws_conn_stats(r.conn, &st);
        assert_ok(tws_set_timeout(r.conn, TWS_TIMEOUT_READ, TWS_NOWAIT));
        assert_true(client_send_bytes(r.client.fd, wire, len / 2));
        read_nothing_until(r.conn, st.wire_in + len / 2);
        assert_ok(tws_set_timeout(r.conn, TWS_TIMEOUT_READ, SUPPORT_HANG_MS));
        assert_true(client_send_bytes(r.client.fd, wire + len / 2, len - len / 2));
        client_send_text(&r.client, "next");
        assert_ok(tws_next_reader(r.conn, &opcode));
        assert_int_equal(opcode, TWS_TEXT);
        assert_ok(tws_reader_read(r.conn, buf, sizeof buf, &n));
        assert_int_equal(n, 4);
        assert_memory_equal(buf, "next", 4);
    }
    rig_close(&r);
    free(data);
    free(wire);
}

/* Many messages in one packet come one by one, each with its zero byte. */
static void test_pipelined(void **state)
{
    enum { COUNT = 800 };
    uint8_t *wire = support_alloc(COUNT * (size_t)(40 + CLIENT_HEAD_MAX));
    size_t len = 0;
    struct rig r;
    struct sender s = {.piece = 0};

    (void)state;
    rig_open(&r, NULL);
    for (int i = 0; i < COUNT; i++) {
        char text[48];

        snprintf(text, sizeof text, "%d%.*s", i, i % 30, "..............................");
        len += client_frame(wire + len, CLIENT_FIN | CLIENT_TEXT, text, strlen(text));
    }
    sender_start(&s, r.client.fd, wire, len);
    for (int i = 0; i < COUNT; i++) {
        tws_message m;

        assert_ok(tws_read_message(r.conn, &m));
        assert_int_equal(strlen(m.data), m.len);
        assert_int_equal(strtol(m.data, NULL, 10), i);
    }
    assert_true(sender_join(&s));
    rig_close(&r);
    free(wire);
}

/* A view stays as it is until the next read, may be changed, and its zero byte harms nothing. */
static void test_view(void **state)
{
    uint8_t wire[64];
    size_t len;
    tws_message m;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    len = client_frame(wire, CLIENT_FIN | CLIENT_TEXT, "first", 5);
    len += client_frame(wire + len, CLIENT_FIN | CLIENT_TEXT, "second", 6);
    assert_true(client_send_bytes(r.client.fd, wire, len));
    assert_ok(tws_read_message(r.conn, &m));
    assert_string_equal(m.data, "first");
    client_send_text(&r.client, "third");
    assert_ok(tws_write_message(r.conn, TWS_TEXT, "answer", 6));
    assert_string_equal(m.data, "first");
    memset(m.data, 'x', m.len);
    assert_string_equal(m.data, "xxxxx");
    assert_ok(tws_read_message(r.conn, &m));
    assert_string_equal(m.data, "second");
    assert_ok(tws_read_message(r.conn, &m));
    assert_string_equal(m.data, "third");
    rig_close(&r);
}

static void test_take(void **state)
{
    tws_message small, large, again, untaken = TWS_MESSAGE_INIT;
    uint8_t *data = support_alloc(100000);
    struct sender s = {.piece = 0};
    uint8_t *wire = support_alloc(100000 + CLIENT_HEAD_MAX);
    const char *view;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    client_send_text(&r.client, "small");
    assert_ok(tws_read_message(r.conn, &small));
    again = small;
    assert_ok(tws_message_take(r.conn, &small));
    assert_ok(tws_message_take(r.conn, &small)); /* it is the caller's already */
    assert_err(tws_message_take(r.conn, &again), TWS_ERR_STATE);

    support_fill(data, 100000, 5);
    sender_start(&s, r.client.fd, wire,
                 client_frame(wire, CLIENT_FIN | CLIENT_BINARY, data, 100000));
    assert_ok(tws_read_message(r.conn, &large));
    assert_true(sender_join(&s));
    view = large.data;
    assert_ok(tws_message_take(r.conn, &large));
    assert_ptr_equal(large.data, view); /* a large one costs no copy */

    client_send_text(&r.client, "newer");
    assert_ok(tws_read_message(r.conn, &again));
    assert_err(tws_message_take(r.conn, &untaken), TWS_ERR_STATE);
    assert_string_equal(again.data, "newer");
    tws_message_free(&again); /* not taken: nothing happens */
    assert_string_equal(again.data, "newer");

    rig_close(&r); /* what was taken outlives the connection and the server */
    assert_string_equal(small.data, "small");
    assert_int_equal(large.data[large.len], 0);
    assert_true(support_filled(large.data, large.len, 5));
    tws_message_free(&small);
    tws_message_free(&large);
    assert_null(large.data);
    assert_int_equal(large.len, 0);
    tws_message_free(&large);
    free(wire);
    free(data);
}

static void test_busy(void **state)
{
    struct reader rd;
    tws_message m;
    tws_opcode opcode;
    char buf[8];
    size_t n = 9;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    reader_start(&rd, r.conn);
    reader_await(&rd);
    assert_err(tws_read_message(r.conn, &m), TWS_ERR_BUSY);
    assert_err(tws_next_reader(r.conn, &opcode), TWS_ERR_BUSY);
    assert_err(tws_reader_read(r.conn, buf, sizeof buf, &n), TWS_ERR_BUSY);
    assert_int_equal(n, 0);
    client_send_text(&r.client, "for the first");
    WAIT_FOR(atomic_load(&rd.messages) == 1);
    tws_abort(r.conn);
    assert_err(reader_join(&rd), TWS_ERR_CLOSED);
    rig_close(&r);
}

/* ---- Endings ---- */

/* The connection has ended with that code, for every call. */
static void assert_ended(tws_conn *c, tws_err code)
{
    tws_message m;
    tws_error e;

    assert_err(tws_read_message(c, &m), code);
    assert_int_equal(m.len, 0);
    assert_string_equal(m.data, "");
    assert_err(tws_write_message(c, TWS_TEXT, "x", 1), code);
    assert_err(tws_ping(c, NULL, 0), code);
    tws_conn_error(c, &e);
    assert_int_equal(e.code, code);
    assert_true(tws_err_is_final(e.code));
}

struct breach {
    const char *name;
    const char *bytes;
    size_t len;
    tws_err code;
    unsigned close_code;
    tws_cause cause;
};

#define MASKED "\x37\xfa\x21\x3d"
#define BREACH(name, text, code, close_code)                                                       \
    {                                                                                              \
        name, text, sizeof text - 1, code, close_code, TWS_CAUSE_PEER                              \
    }

/* A peer that breaks a rule is told the right code, and the record says what it was. */
static void test_breaches(void **state)
{
    static const struct breach breaches[] = {
        BREACH("not masked", "\x81\x02hi", TWS_ERR_PROTOCOL, 1002),
        BREACH("reserved bit", "\xc1\x80" MASKED, TWS_ERR_PROTOCOL, 1002),
        BREACH("reserved opcode", "\x83\x80" MASKED, TWS_ERR_PROTOCOL, 1002),
        BREACH("continuation of nothing", "\x80\x80" MASKED, TWS_ERR_PROTOCOL, 1002),
        BREACH("message in a message", "\x01\x80" MASKED "\x81\x80" MASKED, TWS_ERR_PROTOCOL, 1002),
        BREACH("fragmented ping", "\x09\x80" MASKED, TWS_ERR_PROTOCOL, 1002),
        BREACH("long ping", "\x89\xfe\x00\x7e", TWS_ERR_PROTOCOL, 1002),
        BREACH("length not minimal", "\x82\xfe\x00\x7d", TWS_ERR_PROTOCOL, 1002),
        BREACH("length of 2^63", "\x82\xff\x80\0\0\0\0\0\0\0", TWS_ERR_PROTOCOL, 1002),
        BREACH("close code of one byte", "\x88\x81" MASKED "\x34", TWS_ERR_PROTOCOL, 1002),
        BREACH("close code 1005", "\x88\x82" MASKED "\x34\x17", TWS_ERR_PROTOCOL, 1002),
        BREACH("close reason not UTF-8", "\x88\x83" MASKED "\x34\x12\xde", TWS_ERR_UTF8, 1007),
        /* fails at the first bad byte, long before the message is whole */
        BREACH("bad byte in a first fragment", "\x01\xfe\x10\x00" MASKED "\xc8", TWS_ERR_UTF8,
               1007),
        BREACH("text ends in a character", "\x81\x81" MASKED "\xf4", TWS_ERR_UTF8, 1007),
    };

    (void)state;
    for (size_t i = 0; i < sizeof breaches / sizeof *breaches; i++) {
        const struct breach *b = &breaches[i];
        struct rig r;
        tws_message m;
        tws_error e;

        rig_open(&r, NULL);
        assert_true(client_send_bytes(r.client.fd, b->bytes, b->len));
        if (tws_read_message(r.conn, &m) != b->code)
            fail_msg("%s: not %s", b->name, tws_err_name(b->code));
        client_expect_close(&r.client, b->close_code, NULL);
        assert_ended(r.conn, b->code);
        tws_conn_error(r.conn, &e);
        assert_int_equal(e.cause, b->cause);
        assert_int_equal(e.phase, TWS_PHASE_READ);
        assert_int_equal(e.close_code, b->close_code);
        assert_false(e.clean);
        assert_non_null(strstr(e.text, tws_err_text(b->code)));
        rig_release(&r);
        client_expect_eof(&r.client);
        rig_close(&r);
    }
}

/* B141: the limit counts all fragments of a message, and is applied before they have come */
static void test_message_limit(void **state)
{
    const size_t part = 300 * 1024;
    uint8_t *data = support_alloc(part);
    uint8_t *wire = support_alloc(4 * (part + CLIENT_HEAD_MAX));
    size_t len;
    struct sender s = {.piece = 0};
    tws_server_options opt;
    tws_message m;
    tws_error e;
    struct rig r;

    (void)state;
    rig_options(&opt);
    opt.upgrade.conn.max_message = 1 << 20;
    rig_open(&r, &opt);
    support_fill(data, part, 0);
    len = client_frame(wire, CLIENT_BINARY, data, part);
    for (int i = 0; i < 2; i++)
        len += client_frame(wire + len, CLIENT_CONT, data, part);
    sender_start(&s, r.client.fd, wire, len);
    tws_set_timeout(r.conn, TWS_TIMEOUT_READ, TWS_NOWAIT);
    read_nothing_until(r.conn, len);
    assert_true(sender_join(&s));
    tws_set_timeout(r.conn, TWS_TIMEOUT_READ, 0);
    client_frame(wire, CLIENT_CONT, data, part);
    assert_true(client_send_bytes(r.client.fd, wire, 14)); /* the fourth one's header will do */
    assert_err(tws_read_message(r.conn, &m), TWS_ERR_TOO_BIG);
    client_expect_close(&r.client, 1009, NULL);
    assert_ended(r.conn, TWS_ERR_TOO_BIG);
    tws_conn_error(r.conn, &e);
    assert_int_equal(e.cause, TWS_CAUSE_LIMIT);
    rig_close(&r);
    free(wire);
    free(data);
}

/* Exactly the limit passes; it can be changed while the connection runs. */
static void test_message_limit_border(void **state)
{
    char data[300] = {0};
    tws_server_options opt;
    tws_message m;
    struct rig r;

    (void)state;
    rig_options(&opt);
    opt.upgrade.conn.max_message = 100;
    rig_open(&r, &opt);
    client_send(&r.client, CLIENT_FIN | CLIENT_BINARY, data, 100);
    assert_ok(tws_read_message(r.conn, &m));
    assert_int_equal(m.len, 100);
    assert_ok(tws_set_limit(r.conn, TWS_LIMIT_MESSAGE, 0));
    client_send(&r.client, CLIENT_FIN | CLIENT_BINARY, data, 300);
    assert_ok(tws_read_message(r.conn, &m));
    assert_ok(tws_set_limit(r.conn, TWS_LIMIT_MESSAGE, 299));
    assert_err(tws_set_limit(r.conn, (tws_limit)99, 1), TWS_ERR_ARGUMENT);
    client_send(&r.client, CLIENT_FIN | CLIENT_BINARY, data, 300);
    assert_err(tws_read_message(r.conn, &m), TWS_ERR_TOO_BIG);
    client_expect_close(&r.client, 1009, NULL);
    rig_close(&r);
}

static void test_fragment_limit(void **state)
{
    tws_server_options opt;
    tws_message m;
    struct rig r;

    (void)state;
    rig_options(&opt);
    opt.upgrade.conn.max_fragments = 10;
    rig_open(&r, &opt);
    client_send(&r.client, CLIENT_BINARY, "", 0);
    for (int i = 0; i < 8; i++)
        client_send(&r.client, CLIENT_CONT, "", 0);
    client_send(&r.client, CLIENT_FIN, "", 0);
    assert_ok(tws_read_message(r.conn, &m)); /* ten are allowed */
    assert_int_equal(m.len, 0);
    client_send(&r.client, CLIENT_BINARY, "", 0);
    for (int i = 0; i < 10; i++)
        client_send(&r.client, CLIENT_CONT, "", 0);
    assert_err(tws_read_message(r.conn, &m), TWS_ERR_FLOOD);
    client_expect_close(&r.client, 1008, NULL);
    rig_close(&r);
}

static void test_peer_gone(void **state)
{
    tws_message m;
    tws_error e;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    assert_true(client_send_bytes(r.client.fd, "\x82\x85", 2)); /* half a header */
    client_close(&r.client);
    assert_err(tws_read_message(r.conn, &m), TWS_ERR_EOF);
    assert_ended(r.conn, TWS_ERR_EOF);
    tws_conn_error(r.conn, &e);
    assert_int_equal(e.cause, TWS_CAUSE_PEER);
    assert_int_equal(e.close_code, 1006);
    assert_false(e.clean);
    rig_close(&r);

    rig_open(&r, NULL);
    client_reset(&r.client);
    assert_err(tws_read_message(r.conn, &m), TWS_ERR_NETWORK);
    assert_ended(r.conn, TWS_ERR_NETWORK);
    tws_conn_error(r.conn, &e);
    assert_int_equal(e.cause, TWS_CAUSE_PEER);
    assert_int_equal(e.sys_errno, ECONNRESET);
    assert_int_equal(e.close_code, 1006);
    assert_non_null(strstr(e.text, strerror(ECONNRESET)));
    rig_close(&r);
}

/* Text may go unchecked both ways, when that was asked for. */
static void test_no_utf8_check(void **state)
{
    tws_server_options opt;
    tws_message m;
    struct rig r;

    (void)state;
    rig_options(&opt);
    opt.upgrade.conn.no_utf8_check = true;
    rig_open(&r, &opt);
    client_send(&r.client, CLIENT_FIN | CLIENT_TEXT, "\xff\xc3", 2);
    assert_ok(tws_read_message(r.conn, &m));
    assert_memory_equal(m.data, "\xff\xc3", 3);
    assert_ok(tws_write_message(r.conn, TWS_TEXT, "\xfe", 1));
    client_expect(&r.client, CLIENT_FIN | CLIENT_TEXT, "\xfe", 1);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_cut_everywhere),
        cmocka_unit_test(test_cut_one_frame),
        cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_drop_begun_message),
        cmocka_unit_test(test_pipelined),
        cmocka_unit_test(test_view),
        cmocka_unit_test(test_take),
        cmocka_unit_test(test_busy),
        cmocka_unit_test(test_breaches),
        cmocka_unit_test(test_message_limit),
        cmocka_unit_test(test_message_limit_border),
        cmocka_unit_test(test_fragment_limit),
        cmocka_unit_test(test_peer_gone),
        cmocka_unit_test(test_no_utf8_check),
    };

    return cmocka_run_group_tests_name("conn_read", tests, NULL, NULL);
}
