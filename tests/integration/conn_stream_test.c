/*
 * Messages in pieces: tws_next_reader() and tws_reader_read(), alone and mixed with whole reads;
 * tws_next_writer(), tws_writer_write() and tws_writer_close(), with other threads beside them.
 */
#include "support.h"

#include "conn/conn.h"

#include <stdlib.h>

/* ---- Reading ---- */

/* Reads a streamed message to its end with a buffer of `size` bytes; its length. */
static size_t read_stream(tws_conn *c, uint8_t *out, size_t size)
{
    size_t total = 0, n;

    do {
        assert_ok(tws_reader_read(c, out + total, size, &n));
        assert_in_range(n, 0, size);
        total += n;
    } while (n > 0);
    return total;
}

static void send_later(struct sender *s, struct rig *r, uint8_t *wire, const uint8_t *data,
                       size_t len, size_t frames)
{
    size_t n = 0, done = 0;

    for (size_t i = 0; i < frames; i++) {
        size_t part = i + 1 == frames ? len - done : len / frames;
        unsigned first = (i == 0 ? CLIENT_TEXT : CLIENT_CONT) | (i + 1 == frames ? CLIENT_FIN : 0u);

        n += client_frame(wire + n, first, data + done, part);
        done += part;
    }
    sender_start(s, r->client.fd, wire, n);
}

static void test_reader_sizes(void **state)
{
    static const size_t lengths[] = {0, 1, 125, 126, 4000, 16384, 65536, 300000};
    static const size_t buffers[] = {7, 1000, 8192, 65536};
    uint8_t *data = support_alloc(300000), *wire = support_alloc(300000 + 64);
    uint8_t *out = support_alloc(300000 + 65536);
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (size_t b = 0; b < sizeof buffers / sizeof *buffers; b++) {
            struct sender s = {.piece = b == 1 ? 1000 : 0};
            tws_opcode opcode = 0;

            support_fill(data, lengths[i], (unsigned)b);
            send_later(&s, &r, wire, data, lengths[i], 1 + b);
            assert_ok(tws_next_reader(r.conn, &opcode));
            assert_int_equal(opcode, TWS_TEXT);
            assert_int_equal(read_stream(r.conn, out, buffers[b]), lengths[i]);
            assert_true(support_filled(out, lengths[i], (unsigned)b));
            assert_true(sender_join(&s));
        }
    }
    rig_close(&r);
    free(out);
    free(wire);
    free(data);
}

/* What is left of a message is dropped by the next read of either kind, wherever it was left. */
static void test_reader_skip(void **state)
{
    uint8_t *data = support_alloc(50000), *wire = support_alloc(50000 + 64);
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    support_fill(data, 50000, 2);
    for (size_t take = 0; take <= 50000; take += 12500) {
        for (int whole = 0; whole < 2; whole++) {
            struct sender s = {.piece = 0};
            tws_opcode opcode;
            char buf[50000];
            size_t got = 0, n;
            tws_message m;

            send_later(&s, &r, wire, data, 50000, 2);
            assert_ok(tws_next_reader(r.conn, &opcode));
            while (got < take) {
                assert_ok(tws_reader_read(r.conn, buf, take - got, &n));
                got += n;
            }
            assert_true(sender_join(&s));
            client_send_text(&r.client, "after it");
            if (whole) {
                assert_ok(tws_read_message(r.conn, &m));
                assert_string_equal(m.data, "after it");
                continue;
            }
            assert_ok(tws_next_reader(r.conn, &opcode));
            assert_ok(tws_reader_read(r.conn, buf, sizeof buf, &n));
            assert_int_equal(n, 8);
            assert_memory_equal(buf, "after it", 8);
        }
    }
    rig_close(&r);
    free(wire);
    free(data);
}

/* Calls that find a part of a message only, until they have received all that is there. */
static void find_nothing(tws_conn *c, bool whole, uint64_t wire)
{
    tws_opcode opcode;
    tws_message m;
    tws_stats st;

    do {
        assert_err(whole ? tws_read_message(c, &m) : tws_next_reader(c, &opcode), TWS_ERR_TIMEOUT);
        tws_conn_stats(c, &st);
    } while (st.wire_in < wire);
}

/* Dropping a message may take several calls; what is left when time runs out is dropped by the next
 * call, whichever that is. */
static void test_reader_skip_in_pieces(void **state)
{
    static const size_t lengths[] = {80, 10000, 100000};
    uint8_t *wire = support_alloc(100000 + CLIENT_HEAD_MAX);
    uint8_t *data = support_alloc(100000);
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    for (size_t i = 0; i < 2 * (sizeof lengths / sizeof *lengths); i++) {
        bool whole = i % 2; /* which call drops the rest */
        size_t size = lengths[i / 2], len, part, n;
        char buf[16];
        tws_message m;
        tws_stats st;

        support_fill(data, size, 1);
        len = client_frame(wire, CLIENT_FIN | CLIENT_BINARY, data, size);
        part = len / 4;
        tws_conn_stats(r.conn, &st);
        assert_ok(tws_set_timeout(r.conn, TWS_TIMEOUT_READ, TWS_NOWAIT));
        assert_true(client_send_bytes(r.client.fd, wire, part));
        find_nothing(r.conn, true, st.wire_in + part); /* a whole read has begun it */
        assert_true(client_send_bytes(r.client.fd, wire + part, part));
        find_nothing(r.conn, false, st.wire_in + 2 * part); /* and this drops it */
        assert_err(tws_reader_read(r.conn, buf, sizeof buf, &n), TWS_ERR_STATE);
        assert_true(client_send_bytes(r.client.fd, wire + 2 * part, part));
        find_nothing(r.conn, whole, st.wire_in + 3 * part);
        assert_ok(tws_set_timeout(r.conn, TWS_TIMEOUT_READ, SUPPORT_HANG_MS));
        assert_true(client_send_bytes(r.client.fd, wire + 3 * part, len - 3 * part));
        client_send_text(&r.client, "next");
        assert_ok(tws_read_message(r.conn, &m));
        assert_int_equal(m.len, 4);
        assert_string_equal(m.data, "next");
    }
    rig_close(&r);
    free(data);
    free(wire);
}

static void test_reader_state(void **state)
{
    tws_opcode opcode;
    uint8_t wire[64];
    tws_message m;
    char buf[8];
    size_t n = 7, len;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    assert_err(tws_reader_read(r.conn, buf, sizeof buf, &n), TWS_ERR_STATE);
    assert_int_equal(n, 0);
    client_send_text(&r.client, "abc");
    assert_ok(tws_next_reader(r.conn, &opcode));
    assert_err(tws_reader_read(r.conn, buf, 0, &n), TWS_ERR_ARGUMENT);
    assert_ok(tws_reader_read(r.conn, buf, sizeof buf, &n));
    assert_int_equal(n, 3);
    assert_ok(tws_reader_read(r.conn, buf, sizeof buf, &n));
    assert_int_equal(n, 0);
    assert_err(tws_reader_read(r.conn, buf, sizeof buf, &n), TWS_ERR_STATE);
    len = client_frame(wire, CLIENT_FIN | CLIENT_TEXT, "whole", 5);
    len += client_frame(wire + len, CLIENT_FIN | CLIENT_TEXT, "next", 4);
    assert_true(client_send_bytes(r.client.fd, wire, len));
    assert_ok(tws_read_message(r.conn, &m));
    assert_string_equal(m.data, "whole");
    assert_err(tws_reader_read(r.conn, buf, sizeof buf, &n), TWS_ERR_STATE);
    assert_ok(tws_message_take(r.conn, &m));
    assert_string_equal(m.data, "whole");
    tws_message_free(&m);
    rig_close(&r);
}

/* B192: a timeout of a streaming reader loses nothing either */
static void test_reader_timeout(void **state)
{
    static const char text[] = "caf\xc3\xa9 noir";
    uint8_t wire[64];
    char out[64];
    size_t len, total = 0, n = 1;
    tws_opcode opcode;
    struct rig r;

    (void)state;
    len = client_frame(wire, CLIENT_TEXT, text, 4);
    len += client_frame(wire + len, CLIENT_FIN, text + 4, sizeof text - 1 - 4);
    rig_open(&r, NULL);
    tws_set_timeout(r.conn, TWS_TIMEOUT_READ, 20);
    assert_err(tws_next_reader(r.conn, &opcode), TWS_ERR_TIMEOUT);
    for (size_t i = 0; i < len; i++) {
        assert_true(client_send_bytes(r.client.fd, wire + i, 1));
        if (i < 5) { /* not even a header */
            assert_err(tws_next_reader(r.conn, &opcode), TWS_ERR_TIMEOUT);
            continue;
        }
        if (i == 5)
            while (tws_next_reader(r.conn, &opcode) == TWS_ERR_TIMEOUT) {
            }
        while (tws_reader_read(r.conn, out + total, sizeof out - total, &n) == TWS_OK && n > 0)
            total += n;
        if (n == 0 && i + 1 < len)
            assert_int_equal(conn_state(r.conn), CONN_OPEN);
    }
    tws_set_timeout(r.conn, TWS_TIMEOUT_READ, 0);
    while (total < sizeof text - 1) {
        assert_ok(tws_reader_read(r.conn, out + total, sizeof out - total, &n));
        total += n;
    }
    assert_int_equal(total, sizeof text - 1);
    assert_memory_equal(out, text, total);
    rig_close(&r);
}

/* Limits and text are checked for streamed messages as for whole ones, also for what is dropped. */
static void test_reader_checks(void **state)
{
    tws_server_options opt;
    tws_opcode opcode;
    tws_message m;
    char buf[64] = {0};
    size_t n;
    struct rig r;

    (void)state;
    rig_options(&opt);
    opt.upgrade.conn.max_message = 100;
    rig_open(&r, &opt);
    client_send(&r.client, CLIENT_BINARY, buf, 60);
    client_send(&r.client, CLIENT_FIN, buf, 41);
    assert_ok(tws_next_reader(r.conn, &opcode));
    assert_ok(tws_reader_read(r.conn, buf, sizeof buf, &n));
    assert_int_equal(n, 60);
    assert_err(tws_reader_read(r.conn, buf, sizeof buf, &n), TWS_ERR_TOO_BIG);
    assert_int_equal(n, 0);
    client_expect_close(&r.client, 1009, NULL);
    rig_close(&r);

    for (int skip = 0; skip < 2; skip++) {
        rig_open(&r, NULL);
        client_send(&r.client, CLIENT_TEXT, "good", 4);
        client_send(&r.client, CLIENT_FIN, "\xc3", 1);
        assert_ok(tws_next_reader(r.conn, &opcode));
        if (skip) {
            assert_err(tws_read_message(r.conn, &m), TWS_ERR_UTF8);
        } else {
            assert_ok(tws_reader_read(r.conn, buf, sizeof buf, &n));
            assert_int_equal(n, 4);
            assert_ok(tws_reader_read(r.conn, buf, sizeof buf, &n)); /* inside a character */
            assert_int_equal(n, 1);
            assert_err(tws_reader_read(r.conn, buf, sizeof buf, &n), TWS_ERR_UTF8);
        }
        client_expect_close(&r.client, 1007, NULL);
        rig_close(&r);
    }
}

/* ---- Writing ---- */

/* Receives one message of any number of frames into out; its length. Pings are counted. */
static size_t receive_message(struct client *c, unsigned opcode, uint8_t *out, size_t *frames)
{
    struct client_frame f = {.fin = false};
    size_t total = 0;

    *frames = 0;
    while (!f.fin) {
        assert_true(client_next(c, &f));
        assert_int_equal(f.opcode, *frames == 0 ? opcode : CLIENT_CONT);
        memcpy(out + total, f.data, f.len);
        total += f.len;
        ++*frames;
    }
    return total;
}

static void test_writer(void **state)
{
    static const size_t pieces[] = {1, 100, 16384, 50000};
    const size_t len = 100000;
    uint8_t *data = support_alloc(len), *out = support_alloc(len);
    struct rig r;
    tws_stats st;

    (void)state;
    rig_open(&r, NULL);
    support_fill(data, len, 4);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        tws_writer *w;
        size_t frames;

        assert_ok(tws_next_writer(r.conn, TWS_TEXT, &w));
        for (size_t done = 0; done < len; done += pieces[i])
            assert_ok(
                tws_writer_write(w, data + done, pieces[i] < len - done ? pieces[i] : len - done));
        assert_ok(tws_writer_close(w));
        assert_int_equal(receive_message(&r.client, CLIENT_TEXT, out, &frames), len);
        assert_memory_equal(out, data, len);
        /* Small pieces are gathered into fragments of 16 KiB. */
        assert_int_equal(frames, pieces[i] == 50000 ? 3 : 7);
    }
    tws_conn_stats(r.conn, &st);
    assert_int_equal(st.messages_out, 4);
    assert_int_equal(st.bytes_out, 4 * len);
    rig_close(&r);
    free(out);
    free(data);
}

static void test_writer_short(void **state)
{
    tws_writer *w = (tws_writer *)&w; /* not NULL, and not to be used */
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    assert_err(tws_next_writer(r.conn, (tws_opcode)3, &w), TWS_ERR_ARGUMENT);
    assert_null(w);
    assert_ok(tws_next_writer(r.conn, TWS_BINARY, &w)); /* an empty message */
    assert_ok(tws_writer_close(w));
    client_expect(&r.client, CLIENT_FIN | CLIENT_BINARY, NULL, 0);
    assert_ok(tws_next_writer(r.conn, TWS_TEXT, &w));
    assert_ok(tws_writer_write(w, "a", 1));
    assert_ok(tws_writer_write(w, NULL, 0));
    assert_err(tws_writer_write(w, NULL, 1), TWS_ERR_ARGUMENT);
    assert_ok(tws_writer_write(w, "\xe2", 1)); /* a character in three pieces */
    assert_ok(tws_writer_write(w, "\x82", 1));
    assert_ok(tws_writer_write(w, "\xac", 1));
    assert_ok(tws_writer_close(w));
    client_expect_text(&r.client, "a\xe2\x82\xac");
    rig_close(&r);
}

/* Between the fragments pings, pongs and close frames pass; messages of other threads wait. */
static void test_writer_beside(void **state)
{
    static const char zeros[20000];
    struct client_frame f;
    struct writer_thread other;
    tws_writer *w, *second;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    assert_ok(tws_next_writer(r.conn, TWS_BINARY, &w));
    assert_err(tws_next_writer(r.conn, TWS_TEXT, &second), TWS_ERR_STATE);
    assert_err(tws_write_text(r.conn, "no"), TWS_ERR_STATE);
    assert_ok(tws_writer_write(w, zeros, sizeof zeros));
    client_expect(&r.client, CLIENT_BINARY, zeros, 20000);
    writer_thread_start(&other, r.conn, "other", 5);
    assert_ok(tws_ping(r.conn, "p", 1));
    assert_ok(tws_pong(r.conn, "q", 1));
    client_expect(&r.client, CLIENT_FIN | CLIENT_PING, "p", 1);
    client_expect(&r.client, CLIENT_FIN | CLIENT_PONG, "q", 1);
    /* B189: a ping of the peer's is answered between the fragments too */
    client_send(&r.client, CLIENT_FIN | CLIENT_PING, "z", 1);
    tws_set_timeout(r.conn, TWS_TIMEOUT_READ, TWS_NOWAIT);
    WAIT_FOR(
        (tws_read_message(r.conn, &(tws_message)TWS_MESSAGE_INIT), !client_is_quiet(&r.client)));
    client_expect(&r.client, CLIENT_FIN | CLIENT_PONG, "z", 1);
    assert_false(atomic_load(&other.done));
    assert_ok(tws_writer_write(w, "end", 3));
    assert_ok(tws_writer_close(w));
    client_expect(&r.client, CLIENT_FIN | CLIENT_CONT, "end", 3);
    assert_ok(writer_thread_join(&other));
    assert_true(client_next(&r.client, &f));
    assert_int_equal(f.opcode, CLIENT_BINARY);
    assert_int_equal(f.len, 5);
    rig_close(&r);
}

/* A message that waits behind an open writer gives up after its write timeout, and is not sent. */
static void test_writer_timeout_beside(void **state)
{
    struct writer_thread other;
    tws_writer *w;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    assert_ok(tws_set_timeout(r.conn, TWS_TIMEOUT_WRITE, 50));
    assert_ok(tws_next_writer(r.conn, TWS_TEXT, &w));
    writer_thread_start(&other, r.conn, "late", 4);
    assert_err(writer_thread_join(&other), TWS_ERR_TIMEOUT);
    assert_ok(tws_set_timeout(r.conn, TWS_TIMEOUT_WRITE, TWS_NOWAIT));
    writer_thread_start(&other, r.conn, "late", 4);
    assert_err(writer_thread_join(&other), TWS_ERR_TIMEOUT);
    assert_ok(tws_set_timeout(r.conn, TWS_TIMEOUT_WRITE, 10000));
    assert_ok(tws_writer_write(w, "streamed", 8));
    assert_ok(tws_writer_close(w));
    client_expect_text(&r.client, "streamed");
    assert_ok(tws_write_text(r.conn, "healthy"));
    client_expect_text(&r.client, "healthy");
    rig_close(&r);
}

/* A mistake in a message of which a part has left ends the connection with 1011. */
static void test_writer_mistake(void **state)
{
    static const struct {
        const char *last;
        size_t len;
        tws_err err;
    } mistakes[] = {{"\xff", 1, TWS_ERR_TEXT},
                    {"\xc3", 1, TWS_ERR_TEXT}, /* shows only at the end */
                    {"0123456789", 10, TWS_ERR_MESSAGE_SIZE}};
    char text[16384];

    (void)state;
    memset(text, 'a', sizeof text);
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        tws_error e;
        tws_writer *w;
        tws_err err;
        struct rig r;

        rig_open(&r, NULL);
        assert_ok(tws_set_limit(r.conn, TWS_LIMIT_WRITE, sizeof text + 5));
        assert_ok(tws_next_writer(r.conn, TWS_TEXT, &w));
        assert_ok(tws_writer_write(w, text, sizeof text));
        err = tws_writer_write(w, mistakes[i].last, mistakes[i].len);
        assert_int_equal(err, i == 1 ? TWS_OK : mistakes[i].err);
        if (err)
            assert_err(tws_writer_write(w, "more", 4), mistakes[i].err);
        assert_err(tws_writer_close(w), mistakes[i].err);
        client_expect(&r.client, CLIENT_TEXT, text, sizeof text);
        client_expect_close(&r.client, 1011, NULL);
        assert_err(tws_write_text(r.conn, "x"), TWS_ERR_CLOSED);
        tws_conn_error(r.conn, &e);
        assert_int_equal(e.close_code, 1011);
        assert_int_equal(e.cause, TWS_CAUSE_LOCAL);
        rig_close(&r);
    }
}

/* As long as nothing has left, a mistake costs only the message. */
static void test_writer_mistake_unsent(void **state)
{
    tws_writer *w;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    assert_ok(tws_next_writer(r.conn, TWS_TEXT, &w));
    assert_err(tws_writer_write(w, "\xff", 1), TWS_ERR_TEXT);
    assert_err(tws_writer_close(w), TWS_ERR_TEXT);
    assert_ok(tws_write_text(r.conn, "healthy"));
    client_expect_text(&r.client, "healthy");
    rig_close(&r);
}

/* Close and abort while a writer is open; it is closed afterwards without harm. */
static void test_writer_closed_under_it(void **state)
{
    static const char zeros[20000];
    tws_writer *w;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    assert_ok(tws_next_writer(r.conn, TWS_BINARY, &w));
    assert_ok(tws_writer_write(w, zeros, sizeof zeros));
    assert_ok(tws_close_start(r.conn, 1001, "enough"));
    client_expect(&r.client, CLIENT_BINARY, zeros, sizeof zeros);
    client_expect_close(&r.client, 1001, "enough");
    assert_err(tws_writer_write(w, zeros, sizeof zeros), TWS_ERR_CLOSED);
    assert_err(tws_writer_close(w), TWS_ERR_CLOSED);
    rig_close(&r);

    rig_open(&r, NULL);
    assert_ok(tws_next_writer(r.conn, TWS_BINARY, &w));
    tws_abort(r.conn);
    tws_conn_unref(r.conn); /* the writer has a reference of its own */
    assert_err(tws_writer_close(w), TWS_ERR_CLOSED);
    r.conn = NULL;
    rig_close(&r);
}

/* B189: pings all the time while a long message is streamed; every pong on a frame border. */
static void test_writer_under_pings(void **state)
{
    enum { PINGS = 300 };
    const size_t len = 1 << 20;
    uint8_t *wire = support_alloc(PINGS * (size_t)(4 + CLIENT_HEAD_MAX));
    uint8_t *data = support_alloc(len), *out = support_alloc(len);
    size_t n = 0, total = 0, pongs = 0;
    struct sender s = {.piece = 10, .pause_ms = 1};
    struct client_frame f = {.fin = false};
    struct reader rd;
    tws_writer *w;
    struct rig r;

    (void)state;
    for (int i = 0; i < PINGS; i++)
        n += client_frame(wire + n, CLIENT_FIN | CLIENT_PING, &i, sizeof i);
    support_fill(data, len, 6);
    rig_open(&r, NULL);
    reader_start(&rd, r.conn);
    sender_start(&s, r.client.fd, wire, n);
    assert_ok(tws_next_writer(r.conn, TWS_TEXT, &w));
    for (size_t done = 0, piece = 1024; done < len; done += piece) {
        assert_ok(tws_writer_write(w, data + done, piece));
        while (total + 65536 < done) { /* the peer reads along */
            assert_true(client_next(&r.client, &f));
            if (f.opcode == CLIENT_PONG) {
                pongs++;
                continue;
            }
            assert_in_range(f.opcode, CLIENT_CONT, CLIENT_TEXT);
            memcpy(out + total, f.data, f.len);
            total += f.len;
        }
    }
    assert_ok(tws_writer_close(w));
    assert_true(sender_join(&s));
    client_send_text(&r.client, "all pings are out");
    WAIT_FOR(atomic_load(&rd.messages) == 1);
    assert_ok(tws_write_text(r.conn, "last"));
    for (bool last = false; !last;) {
        assert_true(client_next(&r.client, &f));
        if (f.opcode == CLIENT_PONG) {
            pongs++;
        } else if (f.opcode == CLIENT_TEXT && total == len) {
            last = true;
        } else {
            memcpy(out + total, f.data, f.len);
            total += f.len;
        }
    }
    assert_int_equal(total, len);
    assert_memory_equal(out, data, len);
    assert_in_range(pongs, 1, PINGS); /* of several that wait, the last is answered */
    tws_abort(r.conn);
    reader_join(&rd);
    rig_close(&r);
    free(out);
    free(data);
    free(wire);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reader_sizes),
        cmocka_unit_test(test_reader_skip),
        cmocka_unit_test(test_reader_skip_in_pieces),
        cmocka_unit_test(test_reader_state),
        cmocka_unit_test(test_reader_timeout),
        cmocka_unit_test(test_reader_checks),
        cmocka_unit_test(test_writer),
        cmocka_unit_test(test_writer_short),
        cmocka_unit_test(test_writer_beside),
        cmocka_unit_test(test_writer_timeout_beside),
        cmocka_unit_test(test_writer_mistake),
        cmocka_unit_test(test_writer_mistake_unsent),
        cmocka_unit_test(test_writer_closed_under_it),
        cmocka_unit_test(test_writer_under_pings),
    };

    return cmocka_run_group_tests_name("conn_stream", tests, NULL, NULL);
}
