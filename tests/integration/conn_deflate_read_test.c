/*
 * Compressed messages received: whole and in fragments, blocks of every kind, limits, text, what is
 * not deflate at all; as messages, streamed and skipped.
 */
#include "support.h"
#include "support_deflate.h"

#include <stdlib.h>
#include <sys/socket.h>

#define HELLO "\xf2\x48\xcd\xc9\xc9\x07\x00" /* RFC 7692 7.2.3.1 */

static void send_raw(struct rig *r, unsigned first, const char *bytes, size_t len)
{
    client_send(&r->client, first, bytes, len);
}

static void expect_message(struct rig *r, const void *data, size_t len, uint32_t flags)
{
    tws_message m;

    assert_ok(tws_read_message(r->conn, &m));
    assert_int_equal(m.len, len);
    assert_memory_equal(m.data, data, len);
    assert_int_equal(m.data[len], 0);
    assert_int_equal(m.flags, flags);
}

/* Text that compresses, and holds characters of several bytes. */
static void fill_text(char *buf, size_t len, unsigned seed)
{
    static const char *const words[] = {"{\"name\":\"",     "\"},",
                                        "v\xc3\xa4lue ",    "\xe2\x82\xac 12.50 ",
                                        "\xf0\x9f\x98\x80", "quote"};
    size_t n = 0;

    while (n < len) {
        const char *word = words[(seed = seed * 1103515245 + 12345) >> 16 & 3];
        size_t size = strlen(word);

        if (size > len - n) {
            buf[n++] = 'x';
            continue;
        }
        memcpy(buf + n, word, size);
        n += size;
    }
}

/* ---- Whole messages ---- */

static void test_sizes(void **state)
{
    static const size_t lengths[] = {0, 1, 5, 1000, 16367, 16368, 16384, 40000, 300000};
    static const size_t cuts[] = {1, 2, 7};
    char *data = support_alloc(300000);
    struct rig r;

    (void)state;
    for (int takeover = 0; takeover < 2; takeover++) {
        struct peer_deflate p;
        tws_deflate_options d;
        tws_deflate_info info;

        tws_deflate_options_init(&d);
        d.client_no_context_takeover = !takeover;
        d.client_max_window_bits = 15;
        rig_open_deflate(&r, &d);
        peer_deflate_init(&p, 6, 15, takeover);
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            for (size_t k = 0; k < sizeof cuts / sizeof *cuts; k++) {
                fill_text(data, lengths[i], (unsigned)k);
                client_send_deflated(&r.client, &p, CLIENT_TEXT, data, lengths[i], cuts[k]);
                expect_message(&r, data, lengths[i], TWS_MESSAGE_COMPRESSED);
            }
        }
        client_send_text(&r.client, "plain");
        expect_message(&r, "plain", 5, 0);
        assert_true(tws_conn_deflate(r.conn, &info));
        assert_int_equal(info.messages_in, 27);
        assert_true(info.original_in > 4 * info.compressed_in);
        assert_int_equal(info.client_no_context_takeover, !takeover);
        assert_int_equal(info.memory > 0, takeover);
        peer_deflate_end(&p);
        rig_close(&r);
    }
    free(data);
}

static void test_control_between(void **state)
{
    struct rig r;

    (void)state;
    rig_open_deflate(&r, NULL);
    send_raw(&r, CLIENT_TEXT | CLIENT_RSV1, HELLO, 3);
    send_raw(&r, CLIENT_FIN | CLIENT_PING, "pp", 2);
    send_raw(&r, CLIENT_CONT, "", 0);
    send_raw(&r, CLIENT_FIN | CLIENT_CONT, HELLO + 3, 4);
    send_raw(&r, CLIENT_FIN | CLIENT_TEXT | CLIENT_RSV1, HELLO, 7);
    expect_message(&r, "Hello", 5, TWS_MESSAGE_COMPRESSED);
    client_expect(&r.client, CLIENT_FIN | CLIENT_PONG, "pp", 2);
    expect_message(&r, "Hello", 5, TWS_MESSAGE_COMPRESSED);
    rig_close(&r);
}

/* RFC 7692 7.2.3: stored blocks, final blocks, several blocks; and what lenient senders do. */
static void test_blocks(void **state)
{
    static const struct {
        const char *wire;
        size_t len;
        const char *text;
    } cases[] = {
        {"\x00\x05\x00\xfa\xffHello\x00", 11, "Hello"},   /* stored */
        {"\xf3\x48\xcd\xc9\xc9\x07\x00\x00", 8, "Hello"}, /* final block */
        {"\xf3\x48\xcd\xc9\xc9\x07\x00", 7, "Hello"},     /* with nothing behind it */
        {"\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00", 13, "Hello"}, /* two blocks */
        {"\xf3\x48\xcd\xc9\xc9\x07\x00\xf3\x48\xcd\xc9\xc9\x07\x00", 14, "HelloHello"},
        {HELLO "\x00\x00\xff\xff", 11, "Hello"},     /* the end was not cut */
        {HELLO "\x00\x00\xff\xff\x00", 12, "Hello"}, /* an empty block more */
        {"\x00", 1, ""},                             /* 7.2.3.6 */
        {"", 0, ""},
        {"\x03\x00", 2, ""},
    };

    (void)state;
    for (int takeover = 0; takeover < 2; takeover++) {
        tws_deflate_options d;
        struct rig r;

        tws_deflate_options_init(&d);
        d.client_no_context_takeover = !takeover;
        rig_open_deflate(&r, &d);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            send_raw(&r, CLIENT_FIN | CLIENT_TEXT | CLIENT_RSV1, cases[i].wire, cases[i].len);
            expect_message(&r, cases[i].text, strlen(cases[i].text), TWS_MESSAGE_COMPRESSED);
            send_raw(&r, CLIENT_FIN | CLIENT_TEXT | CLIENT_RSV1, HELLO, 7);
            expect_message(&r, "Hello", 5, TWS_MESSAGE_COMPRESSED);
        }
        rig_close(&r);
    }
}

/* 7.2.3.2: the second message refers to the first, over an uncompressed one. */
static void test_takeover(void **state)
{
    tws_deflate_options d;
    struct rig r;

    (void)state;
    tws_deflate_options_init(&d);
    d.client_no_context_takeover = false;
    rig_open_deflate(&r, &d);
    send_raw(&r, CLIENT_FIN | CLIENT_TEXT | CLIENT_RSV1, HELLO, 7);
    client_send_text(&r.client, "plain");
    send_raw(&r, CLIENT_FIN | CLIENT_TEXT | CLIENT_RSV1, "\xf2\x00\x11\x00\x00", 5);
    expect_message(&r, "Hello", 5, TWS_MESSAGE_COMPRESSED);
    expect_message(&r, "plain", 5, 0);
    expect_message(&r, "Hello", 5, TWS_MESSAGE_COMPRESSED);
    rig_close(&r);
}

static void test_take(void **state)
{
    struct peer_deflate p;
    char *data = support_alloc(100000);
    struct rig r;

    (void)state;
    rig_open_deflate(&r, NULL);
    peer_deflate_init(&p, 6, 15, false);
    for (size_t len = 10; len <= 100000; len *= 100) {
        tws_message m, other;

        fill_text(data, len, 1);
        client_send_deflated(&r.client, &p, CLIENT_TEXT, data, len, 1);
        client_send_deflated(&r.client, &p, CLIENT_TEXT, data, len, 3);
        assert_ok(tws_read_message(r.conn, &m));
        assert_ok(tws_message_take(r.conn, &m));
        assert_ok(tws_read_message(r.conn, &other));
        assert_int_equal(m.len, len);
        assert_memory_equal(m.data, data, len);
        assert_int_equal(m.data[len], 0);
        assert_memory_equal(other.data, data, len);
        assert_err(tws_message_take(r.conn, &(tws_message){.data = data}), TWS_ERR_STATE);
        tws_message_free(&m);
    }
    peer_deflate_end(&p);
    rig_close(&r);
    free(data);
}

/* A read that times out at any byte of a compressed message loses nothing. */
static void test_timeouts(void **state)
{
    struct peer_deflate p;
    char data[3000];
    uint8_t packed[4000], wire[8000];
    struct rig r;

    (void)state;
    fill_text(data, sizeof data, 4);
    for (size_t frames = 1; frames <= 3; frames += 2) {
        size_t n, len = 0, done = 0;
        struct sender s = {.piece = 40, .pause_ms = 1};
        tws_message m;
        tws_err err;

        rig_open_deflate(&r, NULL);
        peer_deflate_init(&p, 6, 15, false);
        n = peer_deflate(&p, packed, data, sizeof data);
        for (size_t i = 0; i < frames; i++) {
            size_t part = i + 1 == frames ? n - done : n / frames;

            len += client_frame(wire + len,
                                (i == 0 ? CLIENT_TEXT | CLIENT_RSV1 : CLIENT_CONT) |
                                    (i + 1 == frames ? CLIENT_FIN : 0u),
                                packed + done, part);
            done += part;
        }
        assert_ok(tws_set_timeout(r.conn, TWS_TIMEOUT_READ, TWS_NOWAIT));
        sender_start(&s, r.client.fd, wire, len);
        while ((err = tws_read_message(r.conn, &m)) == TWS_ERR_TIMEOUT)
            ;
        assert_int_equal(err, TWS_OK);
        assert_int_equal(m.len, sizeof data);
        assert_memory_equal(m.data, data, sizeof data);
        assert_true(sender_join(&s));
        peer_deflate_end(&p);
        rig_close(&r);
    }
}

/* ---- Refused ---- */

static void expect_refusal(struct rig *r, tws_err want, unsigned code)
{
    tws_message m;
    tws_error e;

    assert_err(tws_read_message(r->conn, &m), want);
    tws_conn_error(r->conn, &e);
    assert_int_equal(e.close_code, code);
    client_expect_close(&r->client, code, NULL);
}

static void test_reserved_bit(void **state)
{
    struct rig r;

    (void)state;
    rig_open_deflate(&r, NULL); /* on a continuation */
    send_raw(&r, CLIENT_TEXT | CLIENT_RSV1, HELLO, 3);
    send_raw(&r, CLIENT_FIN | CLIENT_CONT | CLIENT_RSV1, HELLO + 3, 4);
    expect_refusal(&r, TWS_ERR_PROTOCOL, TWS_CLOSE_PROTOCOL_ERROR);
    rig_close(&r);

    rig_open_deflate(&r, NULL); /* on a control frame */
    send_raw(&r, CLIENT_FIN | CLIENT_PING | CLIENT_RSV1, "", 0);
    expect_refusal(&r, TWS_ERR_PROTOCOL, TWS_CLOSE_PROTOCOL_ERROR);
    rig_close(&r);

    rig_open_asking(&r, NULL, DEFLATE_OFFER); /* not agreed: off is the default */
    assert_null(strstr(r.client.head, "Extensions"));
    assert_false(tws_conn_deflate(r.conn, &(tws_deflate_info){0}));
    send_raw(&r, CLIENT_FIN | CLIENT_TEXT | CLIENT_RSV1, HELLO, 7);
    expect_refusal(&r, TWS_ERR_PROTOCOL, TWS_CLOSE_PROTOCOL_ERROR);
    rig_close(&r);
}

static void test_garbage(void **state)
{
    static const struct {
        const char *wire;
        size_t len;
    } cases[] = {
        {"\xff\xff\xff\xff", 4},     /* reserved block type */
        {"\x06\x00", 2},             /* the same, not final */
        {"\xf2\x00\x11\x00\x00", 5}, /* refers to what was never sent */
        {HELLO, 4},                  /* ends inside a block */
        {"\x00\x05\x00\xfa\xffHel", 8},
        {"\x00\x05\x00\xfb\xffHello\x00", 11}, /* length and its complement disagree */
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rig r;

        rig_open_deflate(&r, NULL);
        send_raw(&r, CLIENT_FIN | CLIENT_BINARY | CLIENT_RSV1, cases[i].wire, cases[i].len);
        expect_refusal(&r, TWS_ERR_DEFLATE, TWS_CLOSE_INVALID_PAYLOAD);
        rig_close(&r);
    }
}

/* Bad text ends the connection with the fragment it is in. */
static void test_text(void **state)
{
    static const char bad[] = "fine so far \xc3\x28 no more";
    struct peer_deflate p;
    uint8_t packed[128];
    struct rig r;
    size_t n;

    (void)state;
    rig_open_deflate(&r, NULL);
    peer_deflate_init(&p, 0, 15, false); /* stored, so that the first part shows the fault */
    n = peer_deflate(&p, packed, bad, strlen(bad));
    send_raw(&r, CLIENT_TEXT | CLIENT_RSV1, (char *)packed, n - 5);
    expect_refusal(&r, TWS_ERR_UTF8, TWS_CLOSE_INVALID_PAYLOAD);
    rig_close(&r);

    rig_open_deflate(&r, NULL); /* ends inside a character */
    client_send_deflated(&r.client, &p, CLIENT_TEXT, bad, 13, 1);
    expect_refusal(&r, TWS_ERR_UTF8, TWS_CLOSE_INVALID_PAYLOAD);
    rig_close(&r);
    peer_deflate_end(&p);
}

/* ---- Limits ---- */

/* Counts what the library has allocated, and the most of it at one time. */
struct meter {
    _Atomic size_t now, most;
};

static void *meter_resize(void *block, size_t size, void *arg)
{
    struct meter *k = arg;
    size_t *old = block ? (size_t *)block - 2 : NULL;
    size_t had = old ? *old : 0, now, most;
    size_t *p = realloc(old, size + 2 * sizeof *p);

    if (!p)
        return NULL;
    *p = size;
    now = atomic_fetch_add(&k->now, size - had) + size - had;
    most = atomic_load(&k->most);
    while (now > most && !atomic_compare_exchange_weak(&k->most, &most, now))
        ;
    return p + 2;
}

static void *meter_alloc(size_t size, void *arg)
{
    return meter_resize(NULL, size, arg);
}

static void meter_release(void *block, void *arg)
{
    struct meter *k = arg;
    size_t *p = (size_t *)block - 2;

    atomic_fetch_sub(&k->now, *p);
    free(p);
}

static void open_metered(struct rig *r, struct meter *k, tws_allocator *a, uint64_t max)
{
    tws_deflate_options d;
    tws_server_options opt;

    memset(k, 0, sizeof *k);
    *a = (tws_allocator){meter_alloc, meter_resize, meter_release, k};
    tws_deflate_options_init(&d);
    rig_options(&opt);
    opt.upgrade.allocator = a;
    opt.upgrade.deflate = &d;
    opt.upgrade.conn.max_message = max;
    rig_open_asking(r, &opt, DEFLATE_OFFER);
}

/* 32 MiB of zeros against a limit of 1 MiB, in one frame and in many. */
static void test_bomb(void **state)
{
    enum { SIZE = 32 << 20, MAX = 1 << 20, CONSTANT = 256 << 10 };
    char *zeros = calloc(1, SIZE);
    uint8_t *packed = support_alloc(SIZE / 8);
    struct peer_deflate p;
    size_t n;

    (void)state;
    peer_deflate_init(&p, 9, 15, false);
    n = peer_deflate(&p, packed, zeros, SIZE);
    assert_in_range(n, 1, SIZE / 900);
    for (size_t piece = n; piece > 0; piece = piece == n ? 10 : 0) {
        uint8_t *wire = support_alloc(n * 2 + CLIENT_HEAD_MAX);
        size_t len = 0;
        struct sender s = {0};
        struct meter k;
        tws_allocator a;
        struct rig r;
        tws_message m;

        for (size_t at = 0; at < n; at += piece)
            len += client_frame(wire + len,
                                (at == 0 ? CLIENT_BINARY | CLIENT_RSV1 : CLIENT_CONT) |
                                    (at + piece >= n ? CLIENT_FIN : 0u),
                                packed + at, at + piece < n ? piece : n - at);
        open_metered(&r, &k, &a, MAX);
        size_t before = atomic_load(&k.now);

        sender_start(&s, r.client.fd, wire, len);
        assert_err(tws_read_message(r.conn, &m), TWS_ERR_TOO_BIG);
        assert_in_range(atomic_load(&k.most) - before, MAX / 2, MAX + CONSTANT);
        client_expect_close(&r.client, TWS_CLOSE_MESSAGE_TOO_BIG, NULL);
        sender_join(&s);
        rig_close(&r);
        assert_int_equal(atomic_load(&k.now), 0);
        free(wire);
    }
    peer_deflate_end(&p);
    free(packed);
    free(zeros);
}

static void test_limit_exactly(void **state)
{
    static const size_t limits[] = {1000, 20000, 50000};
    char *data = support_alloc(50001);
    struct peer_deflate p;

    (void)state;
    peer_deflate_init(&p, 6, 15, false);
    support_fill(data, 50001, 3);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct meter k;
        tws_allocator a;
        struct rig r;

        open_metered(&r, &k, &a, limits[i]);
        client_send_deflated(&r.client, &p, CLIENT_BINARY, data, limits[i], 1);
        expect_message(&r, data, limits[i], TWS_MESSAGE_COMPRESSED);
        client_send_deflated(&r.client, &p, CLIENT_BINARY, data, limits[i] + 1, 2);
        expect_refusal(&r, TWS_ERR_TOO_BIG, TWS_CLOSE_MESSAGE_TOO_BIG);
        rig_close(&r);
    }
    peer_deflate_end(&p);
    free(data);
}

/* Blocks that stand for nothing come to an end too. */
static void test_empty_blocks(void **state)
{
    uint8_t *data = calloc(1, 60000);
    struct rig r;
    struct meter k;
    tws_allocator a;

    (void)state;
    for (size_t i = 0; i + 5 <= 60000; i += 5) /* stored, empty */
        memset(data + i + 3, 0xff, 2);
    open_metered(&r, &k, &a, 20000);
    send_raw(&r, CLIENT_BINARY | CLIENT_RSV1, (char *)data, 30000);
    send_raw(&r, CLIENT_CONT, (char *)data, 30000);
    expect_refusal(&r, TWS_ERR_TOO_BIG, TWS_CLOSE_MESSAGE_TOO_BIG);
    rig_close(&r);
    free(data);
}

static void test_ratio(void **state)
{
    uint8_t *zeros = calloc(1, 1000000);
    struct peer_deflate p;
    tws_deflate_options d;
    struct rig r;

    (void)state;
    tws_deflate_options_init(&d);
    d.max_ratio = 100;
    peer_deflate_init(&p, 9, 15, false);
    rig_open_deflate(&r, &d);
    client_send_deflated(&r.client, &p, CLIENT_BINARY, zeros, 60000, 1);
    expect_message(&r, zeros, 60000, TWS_MESSAGE_COMPRESSED);
    client_send_deflated(&r.client, &p, CLIENT_BINARY, zeros, 1000000, 1);
    expect_refusal(&r, TWS_ERR_TOO_BIG, TWS_CLOSE_MESSAGE_TOO_BIG);
    rig_close(&r);
    peer_deflate_end(&p);
    free(zeros);
}

/* ---- Streamed and skipped ---- */

static size_t read_stream(tws_conn *c, char *out, size_t piece)
{
    size_t total = 0, n;

    do {
        assert_ok(tws_reader_read(c, out + total, piece, &n));
        assert_in_range(n, 0, piece);
        total += n;
    } while (n > 0);
    return total;
}

static void test_reader(void **state)
{
    static const size_t pieces[] = {1, 1000, 40000};
    char *data = support_alloc(30000), *out = support_alloc(80000);
    struct peer_deflate p;
    tws_deflate_options d;
    tws_opcode opcode;
    struct rig r;
    size_t n;

    (void)state;
    tws_deflate_options_init(&d);
    d.client_no_context_takeover = false;
    rig_open_deflate(&r, &d);
    peer_deflate_init(&p, 6, 12, true);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        for (size_t frames = 1; frames < 10; frames += 4) {
            fill_text(data, 30000, (unsigned)frames);
            client_send_deflated(&r.client, &p, CLIENT_TEXT, data, 30000, frames);
            assert_ok(tws_next_reader(r.conn, &opcode));
            assert_int_equal(read_stream(r.conn, out, pieces[i]), 30000);
            assert_memory_equal(out, data, 30000);
        }
    }
    /* Left in the middle, or with only the news of the end missing: the next message is whole. */
    for (size_t take = 0; take <= 40000; take += 10000) {
        client_send_deflated(&r.client, &p, CLIENT_TEXT, data, 30000, 3);
        client_send_deflated(&r.client, &p, CLIENT_TEXT, data, 30000, 1);
        assert_ok(tws_next_reader(r.conn, &opcode));
        for (size_t done = 0; done < take && done < 30000; done += n)
            assert_ok(tws_reader_read(r.conn, out, take - done, &n));
        if (take > 20000) {
            assert_ok(tws_next_reader(r.conn, &opcode));
            assert_int_equal(read_stream(r.conn, out, 50000), 30000);
            assert_memory_equal(out, data, 30000);
        } else {
            expect_message(&r, data, 30000, TWS_MESSAGE_COMPRESSED);
        }
    }
    peer_deflate_end(&p);
    rig_close(&r);
    free(out);
    free(data);
}

/* A close in the middle of a compressed message goes through. */
static void test_close_inside(void **state)
{
    struct rig r;

    (void)state;
    rig_open_deflate(&r, NULL);
    send_raw(&r, CLIENT_TEXT | CLIENT_RSV1, HELLO, 3);
    assert_ok(tws_set_timeout(r.conn, TWS_TIMEOUT_READ, 20));
    assert_err(tws_read_message(r.conn, &(tws_message){0}), TWS_ERR_TIMEOUT);
    assert_ok(tws_close_start(r.conn, 1000, NULL));
    client_expect_close(&r.client, 1000, NULL);
    send_raw(&r, CLIENT_CONT, HELLO, 3);
    send_raw(&r, CLIENT_FIN | CLIENT_CONT, "\xff\xff", 2);
    send_raw(&r, CLIENT_FIN | CLIENT_TEXT | CLIENT_RSV1, "\xff\xff", 2);
    client_send_close(&r.client, 1000, "");
    shutdown(r.client.fd, SHUT_WR);
    assert_ok(tws_close(r.conn, 1000, NULL));
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),         cmocka_unit_test(test_control_between),
        cmocka_unit_test(test_blocks),        cmocka_unit_test(test_takeover),
        cmocka_unit_test(test_take),          cmocka_unit_test(test_timeouts),
        cmocka_unit_test(test_reserved_bit),  cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_text),          cmocka_unit_test(test_bomb),
        cmocka_unit_test(test_limit_exactly), cmocka_unit_test(test_empty_blocks),
        cmocka_unit_test(test_ratio),         cmocka_unit_test(test_reader),
        cmocka_unit_test(test_close_inside),
    };

    return cmocka_run_group_tests_name("conn_deflate_read", tests, NULL, NULL);
}
