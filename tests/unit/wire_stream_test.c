/*
 * The wire layer as a connection uses it: a random run of valid frames is encoded, cut at random,
 * parsed, unmasked and validated as it arrives, and the same frames come out. In both directions.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "guard.h"
#include "rng.h"
#include "wire/close.h"
#include "wire/frame.h"
#include "wire/mask.h"
#include "wire/utf8.h"

enum {
    MAX_FRAMES = 60,
    PAYLOADS = 1 << 20,
    STREAM = PAYLOADS + MAX_FRAMES * WIRE_FRAME_HEADER_MAX
};

struct sent {
    struct wire_frame f;
    const uint8_t *payload; /* not masked */
};

/* What one side sends: the frames, and the same as a stream of bytes. */
struct run {
    struct sent frames[MAX_FRAMES];
    size_t count;
    uint8_t *payloads;
    size_t payload_len;
    uint8_t *stream;
    size_t stream_len;
};

static const size_t usual_lens[] = {0, 1, 5, 16, 33, 124, 125, 126, 127, 1000, 65535, 65536, 70000};

/* Bytes for one frame; those of text frames are a piece of this pattern, cut wherever it falls. */
static void fill_payload(struct rng *rng, uint8_t *out, size_t len, bool text, size_t *text_at)
{
    static const char pattern[] = "na\xc3\xafve \xe2\x82\xac and \xf0\x9f\x98\x80 in plain text ";

    if (!text) {
        rng_fill(rng, out, len);
        return;
    }
    for (size_t i = 0; i < len; i++)
        out[i] = (uint8_t)pattern[(*text_at)++ % (sizeof(pattern) - 1)];
}

static void add_frame(struct run *r, struct rng *rng, struct wire_frame f, const uint8_t *payload)
{
    struct sent *s = &r->frames[r->count++];
    uint8_t *to;
    size_t n;

    if (f.masked)
        rng_fill(rng, f.key, 4);
    *s = (struct sent){f, payload};
    n = wire_frame_write(r->stream + r->stream_len, &f);
    assert_int_equal(n, wire_frame_header_len(f.len, f.masked));
    to = r->stream + r->stream_len + n;
    if (f.masked)
        wire_mask_copy(to, payload, (size_t)f.len, f.key, 0);
    else if (f.len > 0)
        memcpy(to, payload, (size_t)f.len);
    r->stream_len += n + (size_t)f.len;
}

static uint8_t *take_payload(struct run *r, size_t len)
{
    uint8_t *p = r->payloads + r->payload_len;

    assert_true(r->payload_len + len <= PAYLOADS);
    r->payload_len += len;
    return p;
}

static void add_control(struct run *r, struct rng *rng, bool masked)
{
    struct wire_frame f = {.fin = true, .masked = masked, .len = rng_below(rng, 126)};
    uint8_t *p = take_payload(r, (size_t)f.len);

    f.opcode = rng_below(rng, 2) ? WIRE_PING : WIRE_PONG;
    rng_fill(rng, p, (size_t)f.len);
    add_frame(r, rng, f, p);
}

/* A message of one or more frames, control frames between them. */
static void add_message(struct run *r, struct rng *rng, bool masked)
{
    bool text = rng_below(rng, 2);
    size_t fragments = rng_below(rng, 2) ? 1 : 1 + rng_below(rng, 4), text_at = 0;

    for (size_t i = 0; i < fragments && r->count + 4 < MAX_FRAMES; i++) {
        struct wire_frame f = {.masked = masked};
        uint8_t *p;

        if (i > 0 && !rng_below(rng, 3))
            add_control(r, rng, masked);
        f.opcode = i > 0 ? WIRE_CONT : text ? WIRE_TEXT : WIRE_BINARY;
        f.rsv = i == 0 && rng_below(rng, 3) == 0 ? WIRE_RSV1 : 0;
        f.fin = i + 1 == fragments || r->count + 5 >= MAX_FRAMES;
        f.len = usual_lens[rng_below(rng, sizeof(usual_lens) / sizeof(usual_lens[0]))];
        if (r->payload_len + f.len + 4096 > PAYLOADS)
            f.len = 3;
        p = take_payload(r, (size_t)f.len);
        fill_payload(rng, p, (size_t)f.len, text, &text_at);
        add_frame(r, rng, f, p);
        if (f.fin)
            return;
    }
}

static void add_close(struct run *r, struct rng *rng, bool masked)
{
    struct wire_frame f = {.opcode = WIRE_CLOSE, .fin = true, .masked = masked};
    uint8_t *p = take_payload(r, WIRE_CLOSE_PAYLOAD_MAX);

    f.len = wire_close_write(p, rng_below(rng, 4) ? 1000 : TWS_CLOSE_NO_STATUS, "done", 4);
    add_frame(r, rng, f, p);
}

static void make_run(struct run *r, struct rng *rng, bool masked)
{
    size_t target = 1 + rng_below(rng, MAX_FRAMES - 10);

    r->count = r->payload_len = r->stream_len = 0;
    while (r->count < target)
        if (rng_below(rng, 5) == 0)
            add_control(r, rng, masked);
        else
            add_message(r, rng, masked);
    add_close(r, rng, masked);
}

/* A receiver that keeps nothing but what a connection would. */
struct receiver {
    struct wire_frame_rules rules;
    uint8_t head[WIRE_FRAME_HEADER_MAX];
    size_t head_len;
    struct wire_frame f;
    bool in_frame, in_message, text;
    uint64_t got; /* payload bytes of f so far */
    struct wire_utf8 utf8;
    size_t frames;
};

static void frame_begins(struct receiver *in, const struct run *r)
{
    const struct wire_frame *want = &r->frames[in->frames].f;

    assert_true(in->frames < r->count);
    assert_int_equal(in->f.opcode, want->opcode);
    assert_int_equal(in->f.rsv, want->rsv);
    assert_int_equal(in->f.fin, want->fin);
    assert_int_equal(in->f.masked, want->masked);
    assert_true(in->f.len == want->len);
    in->in_frame = true;
    in->got = 0;
    if (in->f.opcode == WIRE_TEXT || in->f.opcode == WIRE_BINARY) {
        in->text = in->f.opcode == WIRE_TEXT;
        in->utf8 = (struct wire_utf8)WIRE_UTF8_INIT;
    }
}

static void frame_ends(struct receiver *in, const struct run *r)
{
    in->in_frame = false;
    in->frames++;
    if (!wire_opcode_is_control(in->f.opcode)) {
        in->in_message = !in->f.fin;
    } else if (in->f.opcode == WIRE_CLOSE) {
        const struct sent *s = &r->frames[in->frames - 1];
        const uint8_t *reason;
        size_t reason_len;
        uint16_t code;

        assert_int_equal(
            wire_close_parse(s->payload, (size_t)s->f.len, &code, &reason, &reason_len), 0);
        assert_int_equal(code, s->f.len ? 1000 : TWS_CLOSE_NO_STATUS);
        assert_int_equal(reason_len, s->f.len ? 4 : 0);
    }
}

/* Payload bytes at p: unmasked in place and compared. Returns how many belong to the frame. */
static size_t take_bytes(struct receiver *in, const struct run *r, uint8_t *p, size_t n)
{
    uint64_t left = in->f.len - in->got;

    n = left < n ? (size_t)left : n;
    if (in->f.masked)
        wire_mask(p, n, in->f.key, in->got);
    if (n > 0)
        assert_memory_equal(p, r->frames[in->frames].payload + in->got, n);
    if (in->text && !wire_opcode_is_control(in->f.opcode))
        assert_true(wire_utf8_feed(&in->utf8, p, n));
    in->got += n;
    return n;
}

/* Header bytes at p, kept from one piece to the next. Returns how many belong to the header. */
static size_t take_head(struct receiver *in, const struct run *r, const uint8_t *p, size_t n)
{
    size_t before = in->head_len, room = sizeof(in->head) - before;
    int got;

    n = n < room ? n : room;
    memcpy(in->head + before, p, n);
    got = wire_frame_parse(&in->f, in->head, before + n, &in->rules, in->in_message);
    assert_true(got >= 0);
    if (got == 0) {
        in->head_len += n;
        return n;
    }
    in->head_len = 0;
    frame_begins(in, r);
    return (size_t)got - before;
}

static void receive(struct receiver *in, const struct run *r, uint8_t *p, size_t n)
{
    while (n > 0) {
        size_t used = in->in_frame ? take_bytes(in, r, p, n) : take_head(in, r, p, n);

        p += used;
        n -= used;
        if (in->in_frame && in->got == in->f.len)
            frame_ends(in, r);
    }
}

static size_t random_piece(struct rng *rng)
{
    static const size_t most[] = {1, 3, 20, 200, 5000, 60000};

    return 1 + rng_below(rng, most[rng_below(rng, sizeof(most) / sizeof(most[0]))]);
}

static void check_run(const struct run *r, struct rng *rng, struct guard *g, bool masked)
{
    struct receiver in = {.rules = {masked, WIRE_RSV1}};
    size_t at = 0;

    while (at < r->stream_len) {
        size_t n = random_piece(rng);

        n = n < r->stream_len - at ? n : r->stream_len - at;
        receive(&in, r, guard_tail(g, r->stream + at, n), n);
        at += n;
    }
    assert_int_equal(in.frames, r->count);
    assert_false(in.in_frame);
    assert_false(in.in_message);
    assert_int_equal(in.head_len, 0);
}

static void check_direction(bool masked, uint64_t seed)
{
    struct run *r = calloc(1, sizeof(*r));
    struct rng rng = {seed};
    struct guard g;

    assert_non_null(r);
    r->payloads = malloc(PAYLOADS);
    r->stream = malloc(STREAM);
    assert_true(r->payloads && r->stream);
    guard_open(&g, 1 << 16);
    for (int round = 0; round < 40; round++) {
        make_run(r, &rng, masked);
        check_run(r, &rng, &g, masked);
        check_run(r, &rng, &g, masked);
    }
    guard_close(&g);
    free(r->payloads);
    free(r->stream);
    free(r);
}

static void test_client_to_server(void **state)
{
    (void)state;
    check_direction(true, 2021);
}

static void test_server_to_client(void **state)
{
    (void)state;
    check_direction(false, 2022);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_client_to_server),
        cmocka_unit_test(test_server_to_client),
    };

    return cmocka_run_group_tests_name("wire_stream", tests, NULL, NULL);
}
