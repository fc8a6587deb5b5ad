/* Prepared messages: one encoding for many connections, on their own and in queues. */
#include "support_queue.h"

#include "conn/queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

/* ---- The messages themselves ---- */

struct released {
    _Atomic int calls;
    void *data;
    size_t len;
    tws_conn *conn;
    uint64_t held; /* messages in its queue at that time */
};

static void release(void *data, size_t len, void *arg)
{
    struct released *r = arg;

    r->data = data;
    r->len = len;
    atomic_fetch_add(&r->calls, 1);
}

static void test_life(void **state)
{
    struct released r = {0};
    tws_prepared *p;
    char bytes[] = "payload";
    size_t len;

    (void)state;
    assert_err(tws_prepared_new(&p, (tws_opcode)8, "", 0), TWS_ERR_ARGUMENT);
    assert_null(p);
    assert_err(tws_prepared_new(&p, TWS_TEXT, NULL, 1), TWS_ERR_ARGUMENT);
    assert_err(tws_prepared_new(&p, TWS_TEXT, "\xc0", 1), TWS_ERR_TEXT);
    assert_err(tws_prepared_adopt(&p, TWS_TEXT, "\xc0", 1, release, &r), TWS_ERR_TEXT);
    assert_null(p);
    assert_int_equal(atomic_load(&r.calls), 0);

    assert_ok(tws_prepared_new(&p, TWS_TEXT, bytes, 7));
    bytes[0] = 'P'; /* it was copied */
    assert_int_equal(tws_prepared_opcode(p), TWS_TEXT);
    assert_memory_equal(tws_prepared_data(p, &len), "payload", 7);
    assert_int_equal(len, 7);
    assert_ptr_equal(tws_prepared_ref(p), p);
    tws_prepared_unref(p);
    assert_memory_equal(tws_prepared_data(p, NULL), "payload", 7);
    tws_prepared_unref(p);
    tws_prepared_unref(NULL);

    assert_ok(tws_prepared_adopt(&p, TWS_BINARY, bytes, 7, release, &r));
    assert_ptr_equal(tws_prepared_data(p, &len), bytes);
    tws_prepared_unref(tws_prepared_ref(p));
    assert_int_equal(atomic_load(&r.calls), 0);
    tws_prepared_unref(p);
    assert_int_equal(atomic_load(&r.calls), 1);
    assert_ptr_equal(r.data, bytes);
    assert_int_equal(r.len, 7);

    assert_ok(tws_prepared_adopt(&p, TWS_BINARY, NULL, 0, NULL, NULL));
    assert_non_null(tws_prepared_data(p, &len));
    assert_int_equal(len, 0);
    tws_prepared_unref(p);
}

static void test_pieces(void **state)
{
    /* "grüße" with a character in two pieces, and an empty one between them */
    struct iovec iov[] = {{"gr\xc3", 3},
                          {NULL, 0},
                          {"\xbc\xc3\x9f"
                           "e",
                           4}};
    tws_prepared *p;
    size_t len;

    (void)state;
    assert_ok(tws_prepared_newv(&p, TWS_TEXT, iov, 3));
    assert_memory_equal(tws_prepared_data(p, &len),
                        "gr\xc3\xbc\xc3\x9f"
                        "e",
                        7);
    assert_int_equal(len, 7);
    tws_prepared_unref(p);
    assert_ok(tws_prepared_newv(&p, TWS_BINARY, NULL, 0));
    assert_non_null(tws_prepared_data(p, NULL));
    tws_prepared_unref(p);
    assert_err(tws_prepared_newv(&p, TWS_TEXT, iov, 1), TWS_ERR_TEXT);
    assert_err(tws_prepared_newv(&p, (tws_opcode)8, iov, 3), TWS_ERR_ARGUMENT);
    assert_err(tws_prepared_newv(&p, TWS_TEXT, NULL, 1), TWS_ERR_ARGUMENT);
    assert_err(tws_prepared_newv(&p, TWS_TEXT, iov, 1025), TWS_ERR_ARGUMENT);
    iov[1].iov_len = 1;
    assert_err(tws_prepared_newv(&p, TWS_TEXT, iov, 3), TWS_ERR_ARGUMENT);
    iov[1] = (struct iovec){"x", SIZE_MAX - 5};
    assert_err(tws_prepared_newv(&p, TWS_BINARY, iov, 3), TWS_ERR_ARGUMENT);
    assert_null(p);
}

/* ---- Plain ---- */

static void test_plain(void **state)
{
    static const size_t lengths[] = {0, 1, 125, 126, 65535, 65536, 300000};
    uint8_t *data = support_alloc(300000);
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    support_fill(data, 300000, 3);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        size_t len = lengths[i];
        struct released gone = {0};
        tws_prepared *copied, *adopted;

        assert_ok(tws_prepared_new(&copied, TWS_BINARY, data, len));
        assert_ok(tws_prepared_adopt(&adopted, TWS_BINARY, data, len, release, &gone));
        assert_ok(tws_write_prepared_async(r.conn, copied, NULL, NULL));
        client_expect(&r.client, CLIENT_FIN | CLIENT_BINARY, data, len);
        assert_ok(tws_write_prepared_async(r.conn, adopted, NULL, NULL));
        client_expect(&r.client, CLIENT_FIN | CLIENT_BINARY, data, len);
        if (len < 100000) { /* else it waits for the client, which is this thread */
            assert_ok(tws_write_prepared(r.conn, copied));
            client_expect(&r.client, CLIENT_FIN | CLIENT_BINARY, data, len);
            assert_ok(tws_write_prepared(r.conn, adopted));
            client_expect(&r.client, CLIENT_FIN | CLIENT_BINARY, data, len);
        }
        tws_prepared_unref(copied);
        tws_prepared_unref(adopted);
        WAIT_FOR(atomic_load(&gone.calls) == 1);
    }
    assert_ok(tws_set_limit(r.conn, TWS_LIMIT_WRITE, 3));
    {
        tws_prepared *p;

        assert_ok(tws_prepared_new(&p, TWS_BINARY, data, 4));
        assert_err(tws_write_prepared(r.conn, p), TWS_ERR_MESSAGE_SIZE);
        assert_err(tws_write_prepared_async(r.conn, p, NULL, NULL), TWS_ERR_MESSAGE_SIZE);
        tws_prepared_unref(p);
    }
    rig_close(&r);
    free(data);
}

/* A queue has a reference of its own, and gives it back when the message has left or never will. */
static void queued(bool leaves)
{
    enum { LEN = 20000, COUNT = 30 };
    uint8_t *data = support_alloc(COUNT * LEN);
    struct released gone = {0};
    struct rig r;

    rig_open(&r, NULL);
    rig_narrow(&r);
    for (uint32_t i = 0; i < COUNT; i++) {
        tws_prepared *p;

        numbered_fill(data + i * LEN, LEN, i);
        assert_ok(tws_prepared_adopt(&p, TWS_BINARY, data + i * LEN, LEN, release, &gone));
        assert_ok(tws_write_prepared_async(r.conn, p, NULL, NULL));
        tws_prepared_unref(p);
    }
    assert_true(atomic_load(&gone.calls) < COUNT);
    assert_true(queue_stats(r.conn).messages > 0);
    if (!leaves)
        tws_abort(r.conn);
    for (uint32_t i = 0; leaves && i < COUNT; i++) {
        struct client_frame f;

        assert_true(client_next(&r.client, &f));
        assert_int_equal(f.len, LEN);
        assert_int_equal(numbered_check(f.data, f.len), i);
    }
    WAIT_FOR(atomic_load(&gone.calls) == COUNT);
    rig_close(&r);
    free(data);
}

static void test_queued(void **state)
{
    (void)state;
    queued(true);
}

static void test_queued_aborted(void **state)
{
    (void)state;
    queued(false);
}

/* Gives its memory back and looks at the connection, as an application may that holds no lock. */
static void release_looking(void *data, size_t len, void *arg)
{
    struct released *r = arg;

    r->held = queue_stats(r->conn).messages;
    release(data, len, r);
}

/* The last reference was the queue's: no lock of the library is held when it goes. */
static void test_release_unlocked(void **state)
{
    enum { LEN = 300000 };
    struct released gone = {0};
    tws_prepared *p;
    struct rig r;

    (void)state;
    for (int leaves = 0; leaves < 2; leaves++) {
        uint8_t *data = support_alloc(LEN);

        rig_open(&r, NULL);
        rig_narrow(&r);
        gone = (struct released){.conn = r.conn, .held = 1};
        numbered_fill(data, LEN, 0);
        assert_ok(tws_prepared_adopt(&p, TWS_BINARY, data, LEN, release_looking, &gone));
        assert_ok(tws_write_prepared_async(r.conn, p, NULL, NULL));
        tws_prepared_unref(p);
        assert_int_equal(queue_stats(r.conn).messages, 1);
        if (leaves)
            client_expect(&r.client, CLIENT_FIN | CLIENT_BINARY, data, LEN);
        else
            tws_abort(r.conn);
        WAIT_FOR(atomic_load(&gone.calls) == 1);
        assert_int_equal(gone.held, 0);
        rig_close(&r);
        free(data);
    }
}

/* ---- Compressed ---- */

enum { PEERS = 5, TEXT = 4000 };

/* A server and library clients of it: two that agree on the same, one with a smaller window, one
 * with the same again, one without compression. */
struct crowd_of_peers {
    struct support_server s;
    tws_conn *at_server[PEERS], *at_client[PEERS];
};

static void read_to_end(tws_conn *c, void *arg)
{
    tws_message m;

    (void)arg;
    while (tws_read_message(c, &m) == TWS_OK) {
    }
}

struct collected {
    tws_conn **list;
    size_t count;
};

static bool collect(tws_conn *c, void *arg)
{
    struct collected *k = arg;

    k->list[k->count++] = tws_conn_ref(c);
    return true;
}

/* The server's end of the connection that was dialled last. */
static tws_conn *newest(tws_server *s, size_t count)
{
    tws_conn *list[PEERS] = {NULL};
    struct collected k = {.list = list};
    tws_conn *found = NULL;

    while (k.count < count) {
        for (size_t i = 0; i < k.count; i++)
            tws_conn_unref(list[i]);
        k.count = 0;
        tws_server_each(s, collect, &k);
    }
    for (size_t i = 0; i < k.count; i++) {
        if (!found || tws_conn_id(list[i]) > tws_conn_id(found))
            found = list[i];
    }
    for (size_t i = 0; i < k.count; i++)
        if (list[i] != found)
            tws_conn_unref(list[i]);
    return found;
}

static void crowd_open(struct crowd_of_peers *k, bool takeover)
{
    tws_deflate_options deflate;
    tws_server_options opt;
    char url[200];

    support_server_options(&opt, read_to_end, NULL);
    tws_deflate_options_init(&deflate);
    deflate.server_no_context_takeover = !takeover;
    opt.upgrade.deflate = &deflate;
    support_server_start(&k->s, &opt);
    snprintf(url, sizeof url, "ws://%s/", k->s.address);
    for (size_t i = 0; i < PEERS; i++) {
        tws_deflate_options offered;
        tws_dial_options dial;

        tws_dial_options_init(&dial);
        tws_deflate_options_init(&offered);
        offered.server_no_context_takeover = !takeover;
        offered.server_max_window_bits = i == 2 ? 10 : 15;
        dial.deflate = i < PEERS - 1 ? &offered : NULL;
        assert_ok(tws_dial(&k->at_client[i], url, &dial, NULL, NULL));
        k->at_server[i] = newest(k->s.server, i + 1);
    }
}

static void crowd_close(struct crowd_of_peers *k)
{
    for (size_t i = 0; i < PEERS; i++) {
        tws_conn_unref(k->at_client[i]);
        tws_conn_unref(k->at_server[i]);
    }
    tws_server_free(k->s.server);
}

static void expect_message(tws_conn *c, const char *text, size_t len, bool compressed)
{
    tws_message m;

    assert_ok(tws_read_message(c, &m));
    assert_int_equal(m.len, len);
    assert_memory_equal(m.data, text, len);
    assert_int_equal(m.flags, compressed ? TWS_MESSAGE_COMPRESSED : 0);
}

static void fill_text(char *text, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        text[i] = "the quick brown fox "[(i + seed * 7) % 20];
    support_fill(text, len / 8, seed);
}

/* Made once for those who agreed on the same, and for nobody else. */
static void test_forms(void **state)
{
    struct support_census before = support_census();
    struct prepared_frame f[PEERS];
    struct crowd_of_peers k;
    tws_prepared *p;
    char text[TEXT];

    (void)state;
    crowd_open(&k, false);
    fill_text(text, TEXT, 1);
    assert_ok(tws_prepared_new(&p, TWS_TEXT, text, TEXT));
    for (size_t i = 0; i < PEERS; i++) {
        conn_prepared_frame(k.at_server[i], p, &f[i]);
        assert_int_equal(f[i].count, 1);
        assert_true(i == PEERS - 1 ? f[i].compressed == 0 : f[i].compressed < TEXT);
    }
    assert_ptr_equal(f[0].iov[0].iov_base, f[1].iov[0].iov_base);
    assert_ptr_equal(f[0].iov[0].iov_base, f[3].iov[0].iov_base);
    assert_ptr_not_equal(f[0].iov[0].iov_base, f[2].iov[0].iov_base);
    for (size_t i = 0; i < PEERS; i++) {
        tws_deflate_info info;

        assert_ok(tws_write_prepared(k.at_server[i], p));
        assert_ok(tws_write_prepared_async(k.at_server[i], p, NULL, NULL));
        expect_message(k.at_client[i], text, TEXT, i < PEERS - 1);
        expect_message(k.at_client[i], text, TEXT, i < PEERS - 1);
        if (tws_conn_deflate(k.at_server[i], &info)) {
            assert_int_equal(info.messages_out, 2);
            assert_int_equal(info.original_out, 2 * TEXT);
            assert_int_equal(info.compressed_out, 2 * f[i].compressed);
        }
    }
    tws_prepared_unref(p);
    crowd_close(&k);
    support_assert_census(before);
}

/* Where messages refer to earlier ones, prepared ones in between do no harm, queued or not. */
static void test_forms_and_context(void **state)
{
    enum { ROUNDS = 40 };
    struct crowd_of_peers k;
    char text[TEXT];

    (void)state;
    crowd_open(&k, true);
    for (unsigned round = 0; round < ROUNDS; round++) {
        tws_prepared *p;

        fill_text(text, TEXT, round % 3);
        assert_ok(tws_prepared_new(&p, TWS_TEXT, text, TEXT));
        for (size_t i = 0; i < PEERS; i++) {
            tws_conn *c = k.at_server[i];

            for (unsigned n = 0; n < 4; n++) {
                if ((round + n) % 4 == 0)
                    assert_ok(tws_write_prepared(c, p));
                else if ((round + n) % 4 == 1)
                    assert_ok(tws_write_prepared_async(c, p, NULL, NULL));
                else if ((round + n) % 4 == 2)
                    assert_ok(tws_write_async(c, TWS_TEXT, text, TEXT, NULL, NULL));
                else
                    assert_ok(tws_write_message(c, TWS_TEXT, text, TEXT));
            }
        }
        for (size_t i = 0; i < PEERS; i++)
            for (unsigned n = 0; n < 4; n++)
                expect_message(k.at_client[i], text, TEXT, i < PEERS - 1);
        tws_prepared_unref(p);
    }
    crowd_close(&k);
}

/* Compressed with this connection's context, queued, and sent in that order. */
static void test_queued_context(void **state)
{
    enum { COUNT = 60, LEN = 60000 };
    char *text = support_alloc(LEN);
    struct crowd_of_peers k;
    tws_queue_options opt;

    (void)state;
    crowd_open(&k, true);
    tws_queue_options_init(&opt);
    opt.max_bytes = 0;
    assert_ok(tws_set_queue(k.at_server[0], &opt));
    for (unsigned i = 0; i < COUNT; i++) {
        support_fill(text, LEN, i % 5); /* hardly compresses alone, and well after its like */
        assert_ok(tws_write_async(k.at_server[0], TWS_TEXT, text, LEN, NULL, NULL));
    }
    for (unsigned i = 0; i < COUNT; i++) {
        support_fill(text, LEN, i % 5);
        expect_message(k.at_client[0], text, LEN, true);
    }
    crowd_close(&k);
    free(text);
}

/* Puts a frame where held replies wait, if nobody is sending. */
static bool hold(tws_conn *c, const char *text, size_t len)
{
    struct wire_frame f = {.opcode = WIRE_BINARY, .fin = true, .len = len};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)text, .iov_len = len};
    bool held;

    pthread_mutex_lock(&c->mu);
    held = !c->writing && !conn_queue_waiting_locked(c) && conn_out_append(c, &f, &iov, 1);
    pthread_mutex_unlock(&c->mu);
    return held;
}

/* Held replies that the socket does not take stay before the message behind them, also when that one
 * cannot be put off any more because it was compressed with the context. */
static void test_held_before_queued(void **state)
{
    enum { ROUNDS = 30, LEN = 2000, HELD = 14000 };
    static char text[HELD];
    struct crowd_of_peers k;
    tws_queue_options opt;
    int small = 4096;

    (void)state;
    crowd_open(&k, true);
    tws_queue_options_init(&opt);
    opt.max_bytes = 0;
    assert_ok(tws_set_queue(k.at_server[0], &opt));
    setsockopt(k.at_server[0]->stream.sock.fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    support_fill(text, HELD, 1);
    for (int round = 0; round < ROUNDS; round++) {
        tws_opcode sent[1000];
        unsigned n = 0;

        while (queue_stats(k.at_server[0]).messages == 0) {
            assert_true(n + 2 <= sizeof sent / sizeof *sent);
            if (hold(k.at_server[0], text, HELD))
                sent[n++] = TWS_BINARY;
            assert_ok(tws_write_async(k.at_server[0], TWS_TEXT, text, LEN, NULL, NULL));
            sent[n++] = TWS_TEXT;
        }
        for (unsigned i = 0; i < n; i++) {
            tws_message m;

            assert_ok(tws_read_message(k.at_client[0], &m));
            assert_int_equal(m.opcode, sent[i]);
            assert_int_equal(m.len, m.opcode == TWS_TEXT ? LEN : HELD);
            assert_memory_equal(m.data, text, m.len);
        }
        assert_ok(tws_queue_wait(k.at_server[0], 0));
    }
    crowd_close(&k);
}

struct racer {
    pthread_t thread;
    tws_conn *conn;
    tws_prepared *p;
    tws_err err;
};

static void *race(void *arg)
{
    struct racer *r = arg;

    r->err = tws_write_prepared_async(r->conn, r->p, NULL, NULL);
    return NULL;
}

/* Several threads want a form that nobody has made yet. */
static void test_forms_race(void **state)
{
    struct crowd_of_peers k;
    char text[TEXT];

    (void)state;
    crowd_open(&k, false);
    for (unsigned round = 0; round < 50; round++) {
        struct racer r[PEERS];
        tws_prepared *p;

        fill_text(text, TEXT, round);
        assert_ok(tws_prepared_new(&p, TWS_TEXT, text, TEXT));
        for (size_t i = 0; i < PEERS; i++) {
            r[i] = (struct racer){.conn = k.at_server[i], .p = p};
            support_thread(&r[i].thread, race, &r[i]);
        }
        for (size_t i = 0; i < PEERS; i++) {
            pthread_join(r[i].thread, NULL);
            assert_err(r[i].err, TWS_OK);
            expect_message(k.at_client[i], text, TEXT, i < PEERS - 1);
        }
        tws_prepared_unref(p);
    }
    crowd_close(&k);
}

/* ---- Clients ---- */

/* Frames of a client are masked, queued or not, compressed or not. */
static void test_from_client(void **state)
{
    tws_server_options opt;
    struct support_server echo;
    tws_deflate_options deflate;
    char url[200], text[TEXT];

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    tws_deflate_options_init(&deflate);
    opt.upgrade.deflate = &deflate;
    support_server_start(&echo, &opt);
    snprintf(url, sizeof url, "ws://%s/", echo.address);
    for (int compressed = 0; compressed < 2; compressed++) {
        tws_dial_options dial;
        tws_conn *c;

        tws_dial_options_init(&dial);
        dial.deflate = compressed ? &deflate : NULL;
        assert_ok(tws_dial(&c, url, &dial, NULL, NULL));
        for (unsigned i = 0; i < 20; i++) {
            tws_prepared *p;

            fill_text(text, TEXT, i);
            assert_ok(tws_prepared_new(&p, TWS_TEXT, text, TEXT));
            assert_ok(tws_write_prepared(c, p));
            assert_ok(tws_write_prepared_async(c, p, NULL, NULL));
            assert_ok(tws_write_async(c, TWS_TEXT, text, TEXT, NULL, NULL));
            tws_prepared_unref(p);
            for (int n = 0; n < 3; n++)
                expect_message(c, text, TEXT, compressed);
        }
        assert_int_equal(queue_stats(c).sent, 40);
        tws_conn_unref(c);
    }
    tws_server_free(echo.server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_life),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_queued),
        cmocka_unit_test(test_release_unlocked),
        cmocka_unit_test(test_queued_aborted),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_forms_and_context),
        cmocka_unit_test(test_queued_context),
        cmocka_unit_test(test_held_before_queued),
        cmocka_unit_test(test_forms_race),
        cmocka_unit_test(test_from_client),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
