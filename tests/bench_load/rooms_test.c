/* Frames, stamps, bodies, deflate, handshake and addresses, each alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "deflate.h"
#include "frame.h"
#include "handshake.h"
#include "payload.h"
#include "url.h"

static void test_frame_headers(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0, 1, 125, 126, 65535, 65536, UINT64_C(1) << 40};
    static const size_t heads[] = {6, 6, 6, 8, 8, 14, 14};
    static const uint8_t key[4] = {1, 2, 3, 4};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint8_t head[FRAME_HEADER_MAX];
        struct frame_header h;
        size_t n = frame_put_header(head, OP_TEXT, true, sizes[i], key);
        assert_int_equal(n, heads[i]);
        assert_memory_equal(head + n - 4, key, 4);
        assert_int_equal(frame_parse(head, n, &h), -1); /* a server must not mask */
        head[1] &= 0x7f;
        for (size_t cut = 0; cut < n - 4; cut++)
            assert_int_equal(frame_parse(head, cut, &h), 0);
        assert_int_equal(frame_parse(head, n - 4, &h), (int)n - 4);
        assert_true(h.fin && h.rsv1 && !h.masked);
        assert_int_equal(h.opcode, OP_TEXT);
        assert_int_equal(h.length, sizes[i]);
    }
}

static void test_frames_no_peer_may_send(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
    } bad[] = {
        {"\xa1\x01", 2},                                  /* RSV2 */
        {"\x91\x01", 2},                                  /* RSV3 */
        {"\x83\x01", 2},                                  /* opcode 3 */
        {"\x8b\x01", 2},                                  /* opcode 11 */
        {"\x08\x00", 2},                                  /* close without FIN */
        {"\xc9\x00", 2},                                  /* ping with RSV1 */
        {"\x89\x7e\x00\x7e", 4},                          /* ping too long */
        {"\x81\x7e\x00\x7d", 4},                          /* length not minimal */
        {"\x81\x7f\x00\x00\x00\x00\x00\x00\xff\xff", 10}, /* length not minimal */
        {"\x81\x7f\x80\x00\x00\x00\x00\x00\x00\x00", 10}, /* top bit */
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct frame_header h;
        assert_int_equal(frame_parse((const uint8_t *)bad[i].bytes, bad[i].n, &h), -1);
    }
}

static void test_close_codes(void **state)
{
    (void)state;
    static const int good[] = {1000, 1001, 1011, 1013, 1014, 3000, 4999};
    static const int bad[] = {0, 999, 1004, 1005, 1006, 1015, 2999, 5000, 65535};
    assert_int_equal(frame_close_code(NULL, 0), FRAME_CLOSE_NO_CODE);
    assert_int_equal(frame_close_code((const uint8_t *)"\x03", 1), -1);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        uint8_t p[2] = {(uint8_t)(good[i] >> 8), (uint8_t)good[i]};
        assert_int_equal(frame_close_code(p, 2), good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint8_t p[2] = {(uint8_t)(bad[i] >> 8), (uint8_t)bad[i]};
        assert_int_equal(frame_close_code(p, 2), -1);
    }
}

static void test_stamps_round_trip(void **state)
{
    (void)state;
    struct stamp s = {UINT64_C(0x0123456789abcdef), 0xdeadbeef, 0x00c0ffee}, t;
    uint8_t text[STAMP_FULL + 1] = {0};
    stamp_write(text, STAMP_FULL, &s);
    assert_string_equal((char *)text, "0123456789abcdefdeadbeef00c0ffee");
    assert_true(stamp_read(text, STAMP_FULL, &t));
    assert_true(t.time == s.time && t.conn == s.conn && t.seq == s.seq);
    text[17] = 'x';
    assert_false(stamp_read(text, STAMP_FULL, &t));
    stamp_write(text, STAMP_SHORT, &s);
    assert_true(stamp_read(text, STAMP_SHORT, &t));
    assert_int_equal(t.seq, s.seq);
}

static void test_bodies(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 7, 8, 31, 32, 33, 1000, 70000};
    const char *why;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int kind = BODY_TEXT; kind <= BODY_BINARY; kind++) {
            struct bodies b;
            assert_int_equal(bodies_generate(&b, sizes[i], (enum body_kind)kind, &why), 0);
            assert_true(b.slots >= 1 && b.slots <= SLOTS_MAX && (b.slots & (b.slots - 1)) == 0);
            for (unsigned k = 0; k < b.slots && kind != BODY_BINARY; k++)
                assert_true(utf8_valid(bodies_slot(&b, k), b.size));
            if (b.slots > 1 && sizes[i] >= 1000)
                assert_memory_not_equal(bodies_slot(&b, 0), bodies_slot(&b, 1), b.size);
            bodies_clear(&b);
        }
    }
}

static void test_utf8(void **state)
{
    (void)state;
    static const char *const good[] = {"",
                                       "a",
                                       "\xc2\x80",
                                       "\xdf\xbf",
                                       "\xe0\xa0\x80",
                                       "\xed\x9f\xbf",
                                       "\xee\x80\x80",
                                       "\xf0\x90\x80\x80",
                                       "\xf4\x8f\xbf\xbf",
                                       "gr\xc3\xbc\xc3\x9f"};
    static const char *const bad[] = {"\x80",
                                      "\xc1\xbf",
                                      "\xc2",
                                      "\xe0\x9f\xbf",
                                      "\xed\xa0\x80",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xe2\x82",
                                      "\xe2(\xa1",
                                      "a\xff"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(utf8_valid((const uint8_t *)good[i], strlen(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(utf8_valid((const uint8_t *)bad[i], strlen(bad[i])));
}

struct sink {
    uint8_t *data;
    size_t n, room;
};

static void collect(void *arg, const uint8_t *p, size_t n)
{
    struct sink *s = arg;
    assert_true(n <= s->room - s->n);
    memcpy(s->data + s->n, p, n);
    s->n += n;
}

/* Unmasks slot `slot` of f and inflates it with one inflater over all messages, as a server would. */
static void check_frame(const struct frames *f, const struct bodies *b, unsigned slot, int bits,
                        struct inflater *in, const struct stamp *want)
{
    uint8_t *bytes = f->bytes + f->start[slot];
    size_t n = f->start[slot + 1] - f->start[slot];
    struct frame_header h;
    uint8_t unmasked[FRAME_HEADER_MAX], *out = malloc(b->size + 1), text[STAMP_FULL];
    struct sink s = {out, 0, b->size};
    memcpy(unmasked, bytes, n < sizeof unmasked ? n : sizeof unmasked);
    assert_true((unmasked[1] & 0x80) != 0);
    unmasked[1] &= 0x7f;
    int head = frame_parse(unmasked, n, &h) + 4;
    assert_int_equal(head + h.length, n);
    assert_int_equal(h.rsv1, bits != 0);
    uint8_t *payload = malloc(h.length + 1);
    frame_mask(payload, bytes + head, h.length, bytes + head - 4);
    if (bits != 0) {
        /* In two pieces, as it may come. */
        assert_true(inflater_feed(in, payload, h.length / 2, collect, &s));
        assert_true(
            inflater_feed(in, payload + h.length / 2, h.length - h.length / 2, collect, &s));
        assert_true(inflater_end(in, collect, &s));
    } else {
        collect(&s, payload, h.length);
    }
    assert_int_equal(s.n, b->size);
    stamp_write(text, b->stamp, want);
    assert_memory_equal(out, text, b->stamp);
    assert_memory_equal(out + b->stamp, bodies_slot(b, slot) + b->stamp, b->size - b->stamp);
    free(payload);
    free(out);
}

static void test_frames_carry_their_bodies(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 8, 20, 32, 33, 125, 1000, 66000};
    const char *why;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct bodies b;
        assert_int_equal(bodies_generate(&b, sizes[i], BODY_TEXT, &why), 0);
        for (int bits = 0; bits <= DEFLATE_WINDOW_MAX; bits += bits == 0 ? 8 : 1) {
            struct frames f;
            struct deflate_terms t = {true, false, bits != 0 ? bits : 15, 15};
            struct inflater *in = inflater_new(&t);
            assert_int_equal(frames_build(&f, &b, bits, 6, false), 0);
            for (unsigned n = 0; n < 3 * b.slots; n++) {
                struct stamp s = {UINT64_C(77) << 33 | n, n * 3, n};
                frames_stamp(&f, &b, n % b.slots, &s);
                check_frame(&f, &b, n % b.slots, bits, in, &s);
            }
            inflater_free(in);
            frames_clear(&f);
        }
        bodies_clear(&b);
    }
}

static void test_mask_keys_differ(void **state)
{
    (void)state;
    struct bodies b;
    struct frames f;
    const char *why;
    unsigned same = 0;
    assert_int_equal(bodies_generate(&b, 1000, BODY_TEXT, &why), 0);
    assert_int_equal(frames_build(&f, &b, 0, 6, false), 0);
    for (unsigned i = 1; i < b.slots; i++)
        same += memcmp(f.bytes + f.start[i] + 4, f.bytes + f.start[0] + 4, 4) == 0;
    assert_true(same <= 1);
    frames_clear(&f);
    assert_int_equal(frames_build(&f, &b, 0, 6, true), 0);
    assert_memory_equal(f.bytes + 4, "\0\0\0\0", 4);
    frames_clear(&f);
    bodies_clear(&b);
}

static void test_inflater_refuses_garbage(void **state)
{
    (void)state;
    struct deflate_terms t = {true, false, 15, 15};
    struct inflater *in = inflater_new(&t);
    uint8_t out[64];
    struct sink s = {out, 0, sizeof out};
    assert_false(inflater_feed(in, (const uint8_t *)"\xff\xff\xff\xff", 4, collect, &s));
    inflater_free(in);
}

static void test_deflate_answers(void **state)
{
    (void)state;
    static const struct {
        const char *offer, *answer;
        bool ok;
        int server_bits, client_bits;
    } cases[] = {
        {"client_max_window_bits", "permessage-deflate", true, 15, 15},
        {"client_max_window_bits", "Permessage-Deflate; client_max_window_bits=9", true, 15, 9},
        {"client_max_window_bits", "permessage-deflate; client_max_window_bits=\"10\"", true, 15,
         10},
        {"", "permessage-deflate; client_max_window_bits=9", false, 0, 0}, /* not offered */
        {"client_max_window_bits", "permessage-deflate; client_max_window_bits", false, 0, 0},
        {"client_max_window_bits=10", "permessage-deflate; client_max_window_bits=11", false, 0, 0},
        {"", "permessage-deflate; server_max_window_bits=12", true, 12, 15},
        {"server_max_window_bits=10", "permessage-deflate; server_max_window_bits=10", true, 10,
         15},
        {"server_max_window_bits=10", "permessage-deflate; server_max_window_bits=11", false, 0, 0},
        {"server_max_window_bits=10", "permessage-deflate", false, 0, 0}, /* demanded */
        {"server_no_context_takeover", "permessage-deflate", false, 0, 0},
        {"server_no_context_takeover", "permessage-deflate;server_no_context_takeover", true, 15,
         15},
        {"", "permessage-deflate; client_no_context_takeover", true, 15, 15},
        {"", "permessage-deflate; server_max_window_bits=16", false, 0, 0},
        {"", "permessage-deflate; server_max_window_bits=08", false, 0, 0},
        {"", "permessage-deflate; server_no_context_takeover=1", false, 0, 0},
        {"", "permessage-deflate; client_no_context_takeover; client_no_context_takeover", false, 0,
         0},
        {"", "permessage-deflate; unknown", false, 0, 0},
        {"", "permessage-deflate, permessage-deflate", false, 0, 0},
        {"", "x-webkit-deflate-frame", false, 0, 0},
        {"", "", false, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct deflate_terms t;
        bool ok = deflate_read_answer(cases[i].answer, cases[i].offer, &t);
        assert_int_equal(ok, cases[i].ok);
        if (ok) {
            assert_int_equal(t.server_bits, cases[i].server_bits);
            assert_int_equal(t.client_bits, cases[i].client_bits);
        }
    }
}

/* The example of RFC 6455 section 1.3. */
#define EXAMPLE_KEY "dGhlIHNhbXBsZSBub25jZQ=="
#define EXAMPLE_ACCEPT "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
#define HEAD_101 "HTTP/1.1 101 Switching Protocols\r\n"
#define GOOD_REST                                                                                  \
    "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " EXAMPLE_ACCEPT "\r\n"

static enum handshake_result answer(const char *head, bool deflate, struct handshake_answer *a)
{
    static struct handshake h;
    struct options o = {.deflate = deflate, .subprotocol = "chat"};
    strcpy(h.key, EXAMPLE_KEY);
    h.have = strlen(head);
    memcpy(h.head, head, h.have);
    return handshake_read(&h, &o, a);
}

static void test_handshake_answers(void **state)
{
    (void)state;
    static const struct {
        const char *head;
        enum handshake_result want;
    } cases[] = {
        {HEAD_101 GOOD_REST, HANDSHAKE_MORE},
        {HEAD_101 GOOD_REST "\r\n", HANDSHAKE_DONE},
        {HEAD_101 GOOD_REST "Sec-WebSocket-Protocol: chat\r\n\r\n", HANDSHAKE_DONE},
        {HEAD_101 GOOD_REST "Sec-WebSocket-Protocol: other\r\n\r\n", HANDSHAKE_INVALID},
        {HEAD_101 GOOD_REST "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
         HANDSHAKE_INVALID},
        {HEAD_101 GOOD_REST "no colon here\r\n\r\n", HANDSHAKE_INVALID},
        {HEAD_101 "upgrade:WebSocket\r\nconnection: keep-alive , UPGRADE\r\n"
                  "SEC-WEBSOCKET-ACCEPT:   " EXAMPLE_ACCEPT "  \r\n\r\n",
         HANDSHAKE_DONE},
        {HEAD_101 "Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n", HANDSHAKE_INVALID},
        {HEAD_101 "Connection: Upgrade\r\nSec-WebSocket-Accept: " EXAMPLE_ACCEPT "\r\n\r\n",
         HANDSHAKE_INVALID},
        {HEAD_101 "Upgrade: websocket\r\nSec-WebSocket-Accept: " EXAMPLE_ACCEPT "\r\n\r\n",
         HANDSHAKE_INVALID},
        {HEAD_101 "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: no\r\n\r\n",
         HANDSHAKE_INVALID},
        {"HTTP/1.1 503 Busy\r\n\r\n", HANDSHAKE_STATUS},
        {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", HANDSHAKE_STATUS},
        {"SSH-2.0-OpenSSH\r\n\r\n", HANDSHAKE_INVALID},
        {"HTTP/1.1 1x1 \r\n\r\n", HANDSHAKE_INVALID},
    };
    char accept[HANDSHAKE_ACCEPT + 1];
    handshake_accept(accept, EXAMPLE_KEY);
    assert_string_equal(accept, EXAMPLE_ACCEPT);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct handshake_answer a;
        assert_int_equal(answer(cases[i].head, false, &a), cases[i].want);
        if (cases[i].want == HANDSHAKE_DONE)
            assert_int_equal(a.length, strlen(cases[i].head));
    }
    struct handshake_answer a;
    const char *more = HEAD_101 GOOD_REST
        "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits=12\r\n\r\n\x81\x00";
    assert_int_equal(answer(more, true, &a), HANDSHAKE_DONE);
    assert_true(a.deflate.agreed);
    assert_int_equal(a.deflate.client_bits, 12);
    assert_int_equal(a.length, strlen(more) - 1); /* the frame behind the head is not part of it */
}

static void test_urls(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host, *port, *target;
        bool tls;
    } good[] = {
        {"ws://127.0.0.1:9001/connect", "127.0.0.1", "9001", "/connect", false},
        {"ws://example.org", "example.org", "80", "/", false},
        {"WSS://example.org/a/b?c=d", "example.org", "443", "/a/b?c=d", true},
        {"ws://example.org?x", "example.org", "80", "/?x", false},
        {"wss://[::1]:8443/", "::1", "8443", "/", true},
        {"ws://[::1]", "::1", "80", "/", false},
    };
    static const char *const bad[] = {"",          "http://a/",  "ws:/a",         "ws://",
                                      "ws://:80/", "ws://a:0/",  "ws://a:65536/", "ws://a:1x/",
                                      "ws://a:/",  "ws://[::1/", "ws://[::1]x/",  "ws://u@a/",
                                      "ws://a/ b", "ws://a/#f"};
    const char *why;
    struct url u;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(url_parse(&u, good[i].text, &why), 0);
        assert_string_equal(u.host, good[i].host);
        assert_string_equal(u.port, good[i].port);
        assert_string_equal(u.target, good[i].target);
        assert_int_equal(u.tls, good[i].tls);
        url_clear(&u);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(url_parse(&u, bad[i], &why), -1);
        assert_true(strlen(why) > 0);
        url_clear(&u);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frame_headers),
        cmocka_unit_test(test_frames_no_peer_may_send),
        cmocka_unit_test(test_close_codes),
        cmocka_unit_test(test_stamps_round_trip),
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_frames_carry_their_bodies),
        cmocka_unit_test(test_mask_keys_differ),
        cmocka_unit_test(test_inflater_refuses_garbage),
        cmocka_unit_test(test_deflate_answers),
        cmocka_unit_test(test_handshake_answers),
        cmocka_unit_test(test_urls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
