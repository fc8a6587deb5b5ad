/*
 * Compressed messages sent: what is compressed and what is not, with and without context takeover,
 * in pieces, by many threads, held back, given up; what it costs while nothing happens.
 */
#include "support.h"
#include "support_deflate.h"

#include "conn/conn.h"
#include "conn/deflate.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROOM = 400000 };

struct bench {
    struct rig r;
    struct peer_deflate p;
    uint8_t *data, *out;
    bool compressed;
    unsigned fragments;
};

static tws_deflate_options options(bool takeover, int bits)
{
    tws_deflate_options d;

    tws_deflate_options_init(&d);
    d.server_no_context_takeover = d.client_no_context_takeover = !takeover;
    d.server_max_window_bits = d.client_max_window_bits = bits;
    return d;
}

static void bench_open(struct bench *b, const tws_deflate_options *d)
{
    memset(b, 0, sizeof *b);
    b->data = support_alloc(ROOM);
    b->out = support_alloc(ROOM);
    rig_open_deflate(&b->r, d);
    peer_deflate_init(&b->p, 6, 15, d && !d->server_no_context_takeover);
}

static void bench_close(struct bench *b)
{
    peer_deflate_end(&b->p);
    rig_close(&b->r);
    free(b->data);
    free(b->out);
}

/* The next message the client gets is this; whether it was compressed is in b->compressed. */
static void expect(struct bench *b, const void *data, size_t len)
{
    size_t n =
        client_next_inflated(&b->r.client, &b->p, b->out, ROOM, &b->compressed, &b->fragments);

    assert_int_equal(n, len);
    assert_memory_equal(b->out, data, len);
}

/* Bytes that do not compress. */
static void fill_random(uint8_t *buf, size_t len, uint32_t x)
{
    for (size_t i = 0; i < len; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        buf[i] = (uint8_t)x;
    }
}

static uint64_t memory(tws_conn *c)
{
    tws_deflate_info i;

    assert_true(tws_conn_deflate(c, &i));
    return i.memory;
}

/* ---- Options ---- */

static void test_options(void **state)
{
    static const struct {
        int level, memory, server, client;
        const char *why;
    } bad[] = {
        {0, 5, 0, 0, "deflate.level"},          {10, 5, 0, 0, "deflate.level"},
        {1, 0, 0, 0, "deflate.memory_level"},   {1, 10, 0, 0, "deflate.memory_level"},
        {1, 5, 8, 0, "server_max_window_bits"}, {1, 5, 16, 0, "server_max_window_bits"},
        {1, 5, 0, 8, "client_max_window_bits"}, {1, 5, 0, -1, "client_max_window_bits"},
    };
    tws_deflate_options d;
    tws_server_options opt;
    tws_server *s;
    tws_error e;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tws_deflate_options_init(&d);
        d.level = bad[i].level;
        d.memory_level = bad[i].memory;
        d.server_max_window_bits = bad[i].server;
        d.client_max_window_bits = bad[i].client;
        support_server_options(&opt, support_echo, NULL);
        opt.upgrade.deflate = &d;
        assert_err(tws_server_start(&s, &opt, &e), TWS_ERR_ARGUMENT);
        assert_non_null(strstr(e.text, bad[i].why));
    }
    memset(&d, 0, sizeof d);
    assert_err(tws_server_start(&s, &opt, &e), TWS_ERR_ARGUMENT);
    assert_non_null(strstr(e.text, "not initialised"));
}

/* What was asked for by both is what is agreed. */
static void test_agreed(void **state)
{
    static const struct {
        const char *offer;
        bool takeover;
        int server, client; /* agreed windows */
        const char *answer;
    } cases[] = {
        {"permessage-deflate; client_max_window_bits", true, 12, 12, "client_max_window_bits=12"},
        {"permessage-deflate", true, 12, 15, "permessage-deflate\r"},
        {"permessage-deflate; server_max_window_bits=9", true, 9, 15, "server_max_window_bits=9"},
        {"permessage-deflate", false, 15, 15, "server_no_context_takeover"},
        {"permessage-deflate; server_max_window_bits=8", false, 0, 0, NULL},
        {"x-other, permessage-deflate; server_max_window_bits=7, permessage-deflate", false, 15, 15,
         "client_no_context_takeover"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tws_deflate_options d = options(cases[i].takeover, 0);
        tws_server_options opt;
        tws_deflate_info info;
        char line[256];
        struct rig r;

        rig_options(&opt);
        opt.upgrade.deflate = &d;
        snprintf(line, sizeof line, "Sec-WebSocket-Extensions: %s\r\n", cases[i].offer);
        rig_open_asking(&r, &opt, line);
        assert_int_equal(tws_conn_deflate(r.conn, &info), cases[i].answer != NULL);
        assert_int_equal(info.server_max_window_bits, cases[i].server);
        assert_int_equal(info.client_max_window_bits, cases[i].client);
        assert_int_equal(info.server_no_context_takeover, cases[i].answer && !cases[i].takeover);
        if (cases[i].answer)
            assert_non_null(strstr(r.client.head, cases[i].answer));
        else
            assert_null(strstr(r.client.head, "Extensions"));
        rig_close(&r);
    }
}

/* ---- What is compressed ---- */

static void test_threshold(void **state)
{
    struct bench b;
    tws_deflate_info info;

    (void)state;
    bench_open(&b, NULL);
    memset(b.data, 'a', ROOM);
    assert_ok(tws_write_message(b.r.conn, TWS_TEXT, b.data, 511));
    expect(&b, b.data, 511);
    assert_false(b.compressed);
    assert_ok(tws_write_message(b.r.conn, TWS_TEXT, b.data, 512));
    expect(&b, b.data, 512);
    assert_true(b.compressed);

    assert_ok(tws_write_message_as(b.r.conn, TWS_TEXT, TWS_COMPRESS_NEVER, b.data, 5000));
    expect(&b, b.data, 5000);
    assert_false(b.compressed);
    assert_ok(tws_write_message_as(b.r.conn, TWS_TEXT, TWS_COMPRESS_ALWAYS, b.data, 1));
    expect(&b, b.data, 1);
    assert_true(b.compressed);
    assert_ok(tws_write_message_as(b.r.conn, TWS_TEXT, TWS_COMPRESS_ALWAYS, NULL, 0));
    expect(&b, b.data, 0);
    assert_false(b.compressed);

    assert_ok(tws_set_compression(b.r.conn, TWS_COMPRESS_NEVER));
    assert_ok(tws_write_message(b.r.conn, TWS_TEXT, b.data, 5000));
    expect(&b, b.data, 5000);
    assert_false(b.compressed);
    assert_err(tws_set_compression(b.r.conn, (tws_compression)3), TWS_ERR_ARGUMENT);
    assert_err(tws_write_message_as(b.r.conn, TWS_TEXT, (tws_compression)-1, "", 0),
               TWS_ERR_ARGUMENT);

    assert_true(tws_conn_deflate(b.r.conn, &info));
    assert_int_equal(info.messages_out, 2);
    assert_int_equal(info.original_out, 513);
    assert_in_range(info.compressed_out, 5, 40);
    bench_close(&b);
}

/* Sizes around every buffer, both ways of remembering, and data that does not get smaller. */
static void test_sizes(void **state)
{
    static const size_t lengths[] = {0, 1, 100, 5000, 16383, 16384, 16400, 70000, 200000, ROOM};
    static const int bits[] = {0, 9, 12, 15};

    (void)state;
    for (int k = 0; k < 4; k++) {
        tws_deflate_options d = options(bits[k] > 0, bits[k]);
        tws_stats stats;
        uint64_t total = 0;
        struct bench b;

        bench_open(&b, &d);
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            size_t len = lengths[i];

            support_fill(b.data, len, (unsigned)i);
            assert_ok(tws_write_message(b.r.conn, TWS_TEXT, b.data, len));
            expect(&b, b.data, len);
            assert_int_equal(b.compressed, len > 0 && (bits[k] > 0 || len >= 512));
            struct writer_thread w;

            fill_random(b.data, len, 7);
            writer_thread_start(&w, b.r.conn, b.data, len);
            expect(&b, b.data, len);
            assert_ok(writer_thread_join(&w));
            assert_int_equal(b.compressed, len > 0 && bits[k] > 0);
            assert_int_equal(b.fragments, 1);
            total += 2 * len;
        }
        tws_conn_stats(b.r.conn, &stats);
        assert_int_equal(stats.bytes_out, total);
        assert_int_equal(stats.messages_out, 2 * sizeof lengths / sizeof *lengths);
        assert_true(stats.compressed_out < stats.original_out);
        bench_close(&b);
    }
}

/* With takeover the same message again is a few bytes. */
static void test_takeover(void **state)
{
    tws_deflate_options d = options(true, 0);
    struct client_frame f;
    struct bench b;

    (void)state;
    bench_open(&b, &d);
    fill_random(b.data, 600, 3);
    assert_ok(tws_write_message(b.r.conn, TWS_BINARY, b.data, 600));
    expect(&b, b.data, 600);
    assert_in_range(memory(b.r.conn), 600, 8192); /* a window of 12 bits, and no compressor */
    assert_ok(tws_write_message(b.r.conn, TWS_BINARY, b.data, 600));
    assert_true(client_next(&b.r.client, &f));
    assert_in_range(f.len, 3, 30);
    bench_close(&b);
}

/* ---- In pieces ---- */

static void test_writer(void **state)
{
    static const size_t pieces[] = {1, 700, 16384, 100000};

    (void)state;
    for (int takeover = 0; takeover < 2; takeover++) {
        tws_deflate_options d = options(takeover, takeover ? 15 : 0);
        struct bench b;

        bench_open(&b, &d);
        for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
            size_t len = pieces[i] == 1 ? 3000 : 300000;
            tws_writer *w;

            support_fill(b.data, len, (unsigned)i);
            assert_ok(tws_next_writer(b.r.conn, TWS_TEXT, &w));
            for (size_t at = 0; at < len; at += pieces[i])
                assert_ok(
                    tws_writer_write(w, b.data + at, pieces[i] < len - at ? pieces[i] : len - at));
            assert_ok(tws_writer_close(w));
            expect(&b, b.data, len);
            assert_true(b.compressed);
        }
        fill_random(b.data, 60000, 1);
        struct writer_thread t;
        tws_writer *w;

        assert_ok(tws_next_writer(b.r.conn, TWS_BINARY, &w));
        assert_ok(tws_writer_write(w, b.data, 60000));
        assert_ok(tws_ping(b.r.conn, "p", 1)); /* between the fragments */
        writer_thread_start(&t, b.r.conn, b.data, 1000);
        assert_ok(tws_writer_close(w));
        for (int fragments = 0; fragments < 3; fragments++) {
            struct client_frame f;

            assert_true(client_next(&b.r.client, &f));
            assert_int_equal(f.opcode, fragments == 0 ? CLIENT_BINARY : CLIENT_CONT);
            assert_int_equal(f.rsv, fragments == 0 ? 4 : 0);
        }
        client_expect(&b.r.client, CLIENT_FIN | CLIENT_PING, "p", 1);
        writer_thread_join(&t);
        bench_close(&b);
    }
}

/* What ends before the threshold leaves as it is; what was given up is forgotten. */
static void test_writer_small(void **state)
{
    struct bench b;
    tws_deflate_options d = options(true, 0);
    tws_writer *w;

    (void)state;
    bench_open(&b, NULL);
    memset(b.data, 'a', 1000);
    for (size_t len = 0; len < 1000; len += 511) {
        assert_ok(tws_next_writer(b.r.conn, TWS_TEXT, &w));
        for (size_t i = 0; i < len; i++)
            assert_ok(tws_writer_write(w, b.data, 1));
        assert_ok(tws_writer_close(w));
        expect(&b, b.data, len);
        assert_false(b.compressed);
        assert_int_equal(b.fragments, 1);
    }
    assert_ok(tws_next_writer_as(b.r.conn, TWS_TEXT, TWS_COMPRESS_ALWAYS, &w));
    assert_ok(tws_writer_write(w, b.data, 1));
    assert_ok(tws_writer_close(w));
    expect(&b, b.data, 1);
    assert_true(b.compressed);
    assert_err(tws_next_writer_as(b.r.conn, TWS_TEXT, (tws_compression)9, &w), TWS_ERR_ARGUMENT);
    bench_close(&b);

    bench_open(&b, &d);
    memset(b.data, 'a', 1000);
    assert_ok(tws_next_writer(b.r.conn, TWS_TEXT, &w));
    assert_ok(tws_writer_write(w, b.data, 1000));
    assert_err(tws_writer_write(w, "\xff", 1), TWS_ERR_TEXT);
    assert_err(tws_writer_close(w), TWS_ERR_TEXT);
    assert_ok(tws_write_message(b.r.conn, TWS_TEXT, b.data, 1000));
    expect(&b, b.data, 1000);
    bench_close(&b);
}

/* ---- Threads, holding, giving up ---- */

struct many {
    tws_conn *conn;
    int number;
    tws_err err;
};

static void *write_many(void *arg)
{
    struct many *m = arg;
    char text[2000];

    for (int i = 0; i < 200 && !m->err; i++) {
        int n = snprintf(text, sizeof text, "%d:%d:", m->number, i);

        memset(text + n, 'a' + (i + m->number) % 26, sizeof text - (size_t)n);
        m->err = tws_write_message(m->conn, TWS_TEXT, text, 600 + (size_t)(i % 3) * 400);
    }
    return NULL;
}

/* Messages of several threads refer to each other in the order in which they leave. */
static void test_threads(void **state)
{
    enum { THREADS = 4 };
    static const int bits[] = {0, 12, 15};

    (void)state;
    for (int k = 0; k < 3; k++) {
        tws_deflate_options d = options(bits[k] > 0, bits[k]);
        struct many m[THREADS];
        pthread_t t[THREADS];
        int next[THREADS] = {0};
        struct bench b;

        bench_open(&b, &d);
        for (int i = 0; i < THREADS; i++) {
            m[i] = (struct many){.conn = b.r.conn, .number = i};
            support_thread(&t[i], write_many, &m[i]);
        }
        for (int i = 0; i < THREADS * 200; i++) {
            size_t n =
                client_next_inflated(&b.r.client, &b.p, b.out, ROOM, &b.compressed, &b.fragments);
            unsigned who = b.out[0] - '0';
            char want[16];

            assert_in_range(who, 0, THREADS - 1);
            int len = snprintf(want, sizeof want, "%u:%d:", who, next[who]);

            assert_memory_equal(b.out, want, (size_t)len);
            assert_int_equal(n, 600 + (size_t)(next[who] % 3) * 400);
            assert_int_equal(b.out[n - 1], 'a' + (next[who] + (int)who) % 26);
            next[who]++;
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(t[i], NULL);
            assert_int_equal(m[i].err, TWS_OK);
        }
        bench_close(&b);
    }
}

/* Answers to messages that arrived together leave together, compressed. */
static void test_joined(void **state)
{
    enum { COUNT = 20 };

    (void)state;
    for (int takeover = 0; takeover < 2; takeover++) {
        tws_deflate_options d = options(takeover, 0);
        static char metrics[32768];
        char line[100];
        uint8_t wire[COUNT * 200], packed[2000];
        tws_server_options opt;
        struct support_server s;
        struct client c;
        struct peer_deflate p;
        tws_server_stats stats;
        char text[700];
        size_t len = 0;

        memset(text, 'j', sizeof text);
        support_server_options(&opt, support_echo, NULL);
        opt.upgrade.deflate = &d;
        support_server_start(&s, &opt);
        assert_int_equal(client_upgrade(&c, client_dial(s.address), DEFLATE_OFFER), 101);
        peer_deflate_init(&p, 6, 12, takeover);
        for (int i = 0; i < COUNT; i++) {
            size_t n;

            text[0] = (char)('A' + i);
            n = peer_deflate(&p, packed, text, sizeof text);
            len += client_frame(wire + len, CLIENT_FIN | CLIENT_TEXT | CLIENT_RSV1, packed, n);
        }
        assert_true(client_send_bytes(c.fd, wire, len));
        for (int i = 0; i < COUNT; i++) {
            uint8_t out[1000];
            unsigned fragments;
            bool compressed;

            text[0] = (char)('A' + i);
            assert_int_equal(client_next_inflated(&c, &p, out, sizeof out, &compressed, &fragments),
                             700);
            assert_true(compressed);
            assert_memory_equal(out, text, 700);
        }
        WAIT_FOR((tws_server_get_stats(s.server, &stats), stats.compressed_messages_out == COUNT));
        assert_in_range(stats.joined, COUNT / 2, COUNT);
        assert_int_equal(stats.compressed_messages_in, COUNT);
        assert_int_equal(stats.original_in, COUNT * 700);
        assert_int_equal(stats.bytes_out, COUNT * 700);
        tws_server_metrics(s.server, metrics, sizeof metrics);
        snprintf(line, sizeof line, "\ntws_compressed_bytes_total{direction=\"out\"} %llu\n",
                 (unsigned long long)stats.compressed_out);
        assert_non_null(strstr(metrics, line));
        assert_non_null(strstr(metrics, "\ntws_compressed_messages_total{direction=\"in\"} 20\n"));
        assert_non_null(
            strstr(metrics, "\ntws_compressed_original_bytes_total{direction=\"in\"} 14000\n"));
        peer_deflate_end(&p);
        client_close(&c);
        tws_server_free(s.server);
    }
}

/* A message that was compressed and then not sent leaves no trace in what is sent later. */
static void test_given_up(void **state)
{
    static const int bits[] = {12, 15};

    (void)state;
    for (int k = 0; k < 2; k++) {
        tws_deflate_options d = options(true, bits[k]);
        int sent = 0;
        tws_err err;
        struct bench b;

        bench_open(&b, &d);
        assert_ok(tws_set_timeout(b.r.conn, TWS_TIMEOUT_WRITE, TWS_NOWAIT));
        do { /* until the socket is full: mostly between two frames or inside one */
            fill_random(b.data, 3000, (uint32_t)sent + 1);
            err = tws_write_message(b.r.conn, TWS_BINARY, b.data, 3000);
            sent += !err;
        } while (!err);
        assert_true(err == TWS_ERR_TIMEOUT || err == TWS_ERR_STALLED);
        for (int i = 0; i < sent; i++) {
            fill_random(b.data, 3000, (uint32_t)i + 1);
            expect(&b, b.data, 3000);
        }
        if (err == TWS_ERR_TIMEOUT) { /* the connection goes on */
            assert_ok(tws_set_timeout(b.r.conn, TWS_TIMEOUT_WRITE, 10000));
            for (int i = 0; i < 3; i++) {
                fill_random(b.data, 3000, (uint32_t)(sent + i) + 1);
                assert_ok(tws_write_message(b.r.conn, TWS_BINARY, b.data, 3000));
                expect(&b, b.data, 3000);
            }
        }
        bench_close(&b);
    }
}

/* ---- For prepared messages ---- */

static void test_once(void **state)
{
    tws_deflate_options d = options(true, 12);
    struct conn_deflate_form form, other = {.level = 9, .memory_level = 9, .window_bits = 15};
    struct conn_deflated once;
    struct bench b;

    (void)state;
    bench_open(&b, &d);
    assert_true(conn_deflate_form(b.r.conn, &form));
    assert_int_equal(CONN_DEFLATE_FORM_KEY(form), 1 | 5 << 4 | 12 << 8);
    support_fill(b.data, 3000, 1);
    for (int i = 0; i < 2; i++) {
        assert_ok(conn_deflate_once(b.r.conn->env, i == 0 ? form : other, b.data, 3000, &once));
        assert_non_null(once.data);
        assert_int_equal(peer_inflate(&b.p, b.out, ROOM, once.data, once.len), 3000);
        assert_memory_equal(b.out, b.data, 3000);
        conn_deflated_free(b.r.conn->env, &once);
        /* Sent on a connection with takeover: what it sends next must not refer over it. */
        assert_ok(tws_write_message(b.r.conn, TWS_TEXT, b.data, 2000));
        expect(&b, b.data, 2000);
        conn_deflate_reset(b.r.conn);
    }
    fill_random(b.data, 3000, 1);
    assert_ok(conn_deflate_once(b.r.conn->env, form, b.data, 3000, &once));
    assert_null(once.data);
    bench_close(&b);
}

/* ---- Silence ---- */

/* Compressors go back when nothing happens, and the next messages still refer to earlier ones. */
static void test_idle(void **state)
{
    tws_deflate_options d = options(true, 15);
    tws_server_stats stats;
    struct client_frame f;
    struct reader rd;
    struct bench b;

    (void)state;
    bench_open(&b, &d);
    fill_random(b.data, 600, 3);
    assert_ok(tws_write_message(b.r.conn, TWS_BINARY, b.data, 600));
    expect(&b, b.data, 600);
    client_send_deflated(&b.r.client, &b.p, CLIENT_TEXT, "something", 9, 1);
    reader_start(&rd, b.r.conn);
    WAIT_FOR(atomic_load(&rd.messages) == 1);
    assert_in_range(memory(b.r.conn), 100000, 300000);
    tws_server_get_stats(b.r.s.server, &stats);
    assert_int_equal(stats.compressors, 2);

    WAIT_FOR((tws_server_get_stats(b.r.s.server, &stats), stats.compressors == 0));
    assert_in_range(memory(b.r.conn), 600, 3000);
    assert_ok(tws_write_message(b.r.conn, TWS_BINARY, b.data, 600));
    assert_true(client_next(&b.r.client, &f));
    assert_in_range(f.len, 3, 30);
    client_close(&b.r.client);
    reader_join(&rd);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options),      cmocka_unit_test(test_agreed),
        cmocka_unit_test(test_threshold),    cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_takeover),     cmocka_unit_test(test_writer),
        cmocka_unit_test(test_writer_small), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_joined),       cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_once),         cmocka_unit_test(test_idle),
    };

    return cmocka_run_group_tests_name("conn_deflate_write", tests, NULL, NULL);
}
