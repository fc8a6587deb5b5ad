/*
 * Frame headers: every rule of RFC 6455 section 5, each script of bytes cut at every boundary.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "guard.h"
#include "rng.h"
#include "wire/frame.h"

static const struct wire_frame_rules from_client = {true, 0};
static const struct wire_frame_rules from_server = {false, 0};
static const struct wire_frame_rules from_client_deflate = {true, WIRE_RSV1};

/* Where a script is understood: a result, and the number of bytes that it takes to get there. */
struct script {
    const char *hex;
    const struct wire_frame_rules *rules;
    bool in_message;
    int result; /* header size, or -(enum wire_fault) */
    size_t at;  /* bytes needed for it; 0: the header size */
};

static size_t unhex(uint8_t *out, size_t cap, const char *hex)
{
    size_t n = 0;
    char pair[3] = {0};

    for (const char *p = hex; *p; p++) {
        if (*p == ' ')
            continue;
        assert_true(n < cap);
        memcpy(pair, p++, 2);
        out[n++] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return n;
}

static void check_script(struct guard *g, const struct script *s)
{
    uint8_t bytes[64];
    size_t len = unhex(bytes, sizeof(bytes), s->hex);
    size_t at = s->at ? s->at : (size_t)s->result;

    assert_true(at <= len);
    for (size_t n = 0; n <= len; n++) {
        struct wire_frame f;
        const uint8_t *p = guard_tail(g, bytes, n);
        int got = wire_frame_parse(&f, p, n, s->rules, s->in_message);
        int want = n < at ? 0 : s->result;

        if (got != want)
            fail_msg("%s: %d instead of %d with %zu bytes", s->hex, got, want, n);
        if (got > 0)
            assert_int_equal(f.hlen, got);
    }
}

static void check_scripts(const struct script *s, size_t n)
{
    struct guard g;

    guard_open(&g, 64);
    for (size_t i = 0; i < n; i++)
        check_script(&g, &s[i]);
    guard_close(&g);
}

#define CHECK(scripts) check_scripts((scripts), sizeof(scripts) / sizeof((scripts)[0]))

/* RFC 6455 section 5.7, its examples. */
static void test_rfc_examples(void **state)
{
    static const struct script s[] = {
        {"8105 48656c6c6f", &from_server, false, 2, 0},
        {"8185 37fa213d 7f9f4d5158", &from_client, false, 6, 0},
        {"0103 48656c", &from_server, false, 2, 0},
        {"8002 6c6f", &from_server, true, 2, 0},
        {"8905 48656c6c6f", &from_server, false, 2, 0},
        {"8a85 37fa213d 7f9f4d5158", &from_client, false, 6, 0},
        {"827e 0100 00", &from_server, false, 4, 0},
        {"827f 0000000000010000 00", &from_server, false, 10, 0},
    };

    (void)state;
    CHECK(s);
}

/* B036, and the other direction */
static void test_mask_direction(void **state)
{
    static const struct script s[] = {
        {"8102 6869", &from_client, false, -WIRE_FAULT_MASK, 2},
        {"8182 00000000 6869", &from_server, false, -WIRE_FAULT_MASK, 2},
        {"8900", &from_client, false, -WIRE_FAULT_MASK, 2},
        {"8880 01020304", &from_server, false, -WIRE_FAULT_MASK, 2},
        {"817f 8000000000000000", &from_client, false, -WIRE_FAULT_MASK, 2},
    };

    (void)state;
    CHECK(s);
}

/* B043 and its 16-bit sibling; each fault with the first byte that proves it */
static void test_length_must_be_shortest(void **state)
{
    static const struct script s[] = {
        {"81ff 0000000000000005 37fa213d 7f9f4d5158", &from_client, false, -WIRE_FAULT_LENGTH_FORM,
         8},
        {"82ff 000000000000ffff 37fa213d", &from_client, false, -WIRE_FAULT_LENGTH_FORM, 8},
        {"82ff 0000000000010000 37fa213d", &from_client, false, 14, 0},
        {"82fe 0000 37fa213d", &from_client, false, -WIRE_FAULT_LENGTH_FORM, 4},
        {"82fe 007d 37fa213d", &from_client, false, -WIRE_FAULT_LENGTH_FORM, 4},
        {"82fe 007e 37fa213d", &from_client, false, 8, 0},
        {"827e 007d", &from_server, false, -WIRE_FAULT_LENGTH_FORM, 4},
        {"827e 007e", &from_server, false, 4, 0},
        {"007f 000000000000007e", &from_server, true, -WIRE_FAULT_LENGTH_FORM, 8},
    };

    (void)state;
    CHECK(s);
}

/* B038, and B040: 2^63 - 1 is a length like any other here; the limit belongs to the connection */
static void test_length_top_bit(void **state)
{
    static const struct script s[] = {
        {"82ff fffffffffffffffc 37fa213d 76bb607c76bb607c", &from_client, false,
         -WIRE_FAULT_LENGTH_TOP_BIT, 3},
        {"827f 8000000000000000", &from_server, false, -WIRE_FAULT_LENGTH_TOP_BIT, 3},
        {"82ff 7fffffffffffffff 37fa213d 76bb607c", &from_client, false, 14, 0},
        {"80ff 7fffffffffffffff 37fa213d 76bb607c", &from_client, true, 14, 0},
    };
    uint8_t bytes[14];
    struct wire_frame f;

    (void)state;
    CHECK(s);
    assert_int_equal(unhex(bytes, sizeof(bytes), "82ff 7fffffffffffffff 37fa213d"), 14);
    assert_int_equal(wire_frame_parse(&f, bytes, 14, &from_client, false), 14);
    assert_true(f.len == UINT64_C(0x7fffffffffffffff));
}

/* B047 */
static void test_rsv(void **state)
{
    static const struct wire_frame_rules all = {true, WIRE_RSV1 | WIRE_RSV2 | WIRE_RSV3};
    static const struct script s[] = {
        {"c182 37fa213d 5f93", &from_client, false, -WIRE_FAULT_RSV, 1},
        {"a182 37fa213d 5f93", &from_client, false, -WIRE_FAULT_RSV, 1},
        {"9182 37fa213d 5f93", &from_client, false, -WIRE_FAULT_RSV, 1},
        {"c182 37fa213d 5f93", &from_client_deflate, false, 6, 0},
        {"4282 37fa213d 5f93", &from_client_deflate, false, 6, 0},
        {"e182 37fa213d 5f93", &from_client_deflate, false, -WIRE_FAULT_RSV, 1},
        {"d182 37fa213d 5f93", &from_client_deflate, false, -WIRE_FAULT_RSV, 1},
        /* never on a continuation or a control frame, whatever was negotiated */
        {"c082 37fa213d 5f93", &all, true, -WIRE_FAULT_RSV, 1},
        {"c980 37fa213d", &all, false, -WIRE_FAULT_RSV, 1},
        {"a880 37fa213d", &all, false, -WIRE_FAULT_RSV, 1},
        {"9a80 37fa213d", &all, true, -WIRE_FAULT_RSV, 1},
        {"f280 37fa213d", &all, false, 6, 0},
    };

    (void)state;
    CHECK(s);
}

/* B049, and the reserved data opcodes: known with the first byte */
static void test_reserved_opcodes(void **state)
{
    (void)state;
    for (unsigned opcode = 0; opcode < 16; opcode++) {
        uint8_t byte = (uint8_t)(0x80 | opcode);
        bool known = opcode <= 2 || (opcode >= 8 && opcode <= 10);
        struct wire_frame f;

        for (int in_message = 0; in_message < 2; in_message++) {
            int got = wire_frame_parse(&f, &byte, 1, &from_client, in_message);

            if (!known)
                assert_int_equal(got, -WIRE_FAULT_OPCODE);
            else
                assert_int_not_equal(got, -WIRE_FAULT_OPCODE);
        }
    }
}

/* B051 */
static void test_control_rules(void **state)
{
    static const struct script s[] = {
        {"0981 37fa213d 56", &from_client, false, -WIRE_FAULT_CONTROL_FIN, 1},
        {"0a80 37fa213d", &from_client, true, -WIRE_FAULT_CONTROL_FIN, 1},
        {"0882 37fa213d 3412", &from_client, false, -WIRE_FAULT_CONTROL_FIN, 1},
        {"89fd 37fa213d", &from_client, false, 6, 0},
        {"89fe 007e 37fa213d", &from_client, false, -WIRE_FAULT_CONTROL_LEN, 2},
        {"88fe 007e 37fa213d", &from_client, true, -WIRE_FAULT_CONTROL_LEN, 2},
        {"8aff 0000000000010000 37fa213d", &from_client, false, -WIRE_FAULT_CONTROL_LEN, 2},
        {"897e 0001", &from_server, false, -WIRE_FAULT_CONTROL_LEN, 2},
    };

    (void)state;
    CHECK(s);
}

/* B055 (continuation without a start), B053 and B072 (control frames inside a message) */
static void test_sequence_rules(void **state)
{
    static const struct script s[] = {
        {"8082 37fa213d 5b95", &from_client, false, -WIRE_FAULT_CONT_WITHOUT_START, 1},
        {"0082 37fa213d 5b95", &from_client, false, -WIRE_FAULT_CONT_WITHOUT_START, 1},
        {"8082 37fa213d 5b95", &from_client, true, 6, 0},
        {"0082 37fa213d 5b95", &from_client, true, 6, 0},
        {"8182 37fa213d 5b95", &from_client, true, -WIRE_FAULT_DATA_INSIDE_MESSAGE, 1},
        {"0282 37fa213d 5b95", &from_client, true, -WIRE_FAULT_DATA_INSIDE_MESSAGE, 1},
        {"8a83 37fa213d 429452", &from_client, false, 6, 0},
        {"8a80 37fa213d", &from_client, true, 6, 0},
        {"8980 37fa213d", &from_client, true, 6, 0},
        {"8882 37fa213d 3412", &from_client, true, 6, 0},
    };

    (void)state;
    CHECK(s);
}

/* B058 */
static void test_empty_messages(void **state)
{
    static const struct script s[] = {
        {"8180 37fa213d", &from_client, false, 6, 0},
        {"8280 37fa213d", &from_client, false, 6, 0},
        {"8180 00000000", &from_client, false, 6, 0},
        {"8100", &from_server, false, 2, 0},
    };

    (void)state;
    CHECK(s);
}

/* The faults that the first two bytes can have, read from the RFC one rule at a time. */
static unsigned faults_of(uint8_t b0, uint8_t b1, const struct wire_frame_rules *rules,
                          bool in_message, bool second)
{
    unsigned opcode = b0 % 16, rsv = b0 / 16 % 8, set = 0;
    bool control = opcode >= 8, fin = b0 >= 128;

    if ((opcode > 2 && opcode < 8) || opcode > 10)
        set |= 1u << WIRE_FAULT_OPCODE;
    if (control || opcode == 0 ? rsv != 0 : (rsv & ~(unsigned)rules->rsv_allowed) != 0)
        set |= 1u << WIRE_FAULT_RSV;
    if (control && !fin)
        set |= 1u << WIRE_FAULT_CONTROL_FIN;
    if (opcode == 0 && !in_message)
        set |= 1u << WIRE_FAULT_CONT_WITHOUT_START;
    if ((opcode == 1 || opcode == 2) && in_message)
        set |= 1u << WIRE_FAULT_DATA_INSIDE_MESSAGE;
    if (!second || set)
        return set;
    if ((b1 >= 128) != rules->expect_masked)
        set |= 1u << WIRE_FAULT_MASK;
    if (control && b1 % 128 > 125)
        set |= 1u << WIRE_FAULT_CONTROL_LEN;
    return set;
}

static void check_two_bytes(uint8_t b0, uint8_t b1, const struct wire_frame_rules *rules,
                            bool in_message)
{
    const uint8_t buf[2] = {b0, b1};

    for (size_t n = 1; n <= 2; n++) {
        unsigned set = faults_of(b0, b1, rules, in_message, n == 2);
        struct wire_frame f;
        int got = wire_frame_parse(&f, buf, n, rules, in_message);
        int whole = n == 2 && !rules->expect_masked && b1 <= 125 ? 2 : 0;

        if (set ? got >= 0 || !(set & 1u << -got) : got != whole)
            fail_msg("%02x %02x, %zu bytes: %d, possible faults %x", b0, b1, n, got, set);
    }
}

/* All pairs of first bytes under all rules: a fault if and only if there is one. */
static void test_all_first_bytes(void **state)
{
    (void)state;
    for (unsigned setting = 0; setting < 8; setting++) {
        struct wire_frame_rules rules = {(setting & 1) != 0, setting & 2 ? WIRE_RSV1 : 0};

        for (unsigned pair = 0; pair <= 0xffff; pair++)
            check_two_bytes((uint8_t)(pair >> 8), (uint8_t)pair, &rules, (setting & 4) != 0);
    }
}

/* Every length below 2^16 in each longer form is refused, both roles. */
static void test_all_longer_forms(void **state)
{
    (void)state;
    for (unsigned len = 0; len <= 0xffff; len++) {
        const uint8_t wide[10] = {0x82, 0x7f, 0, 0, 0, 0, 0, 0, (uint8_t)(len >> 8), (uint8_t)len};
        const uint8_t mid[4] = {0x82, 0x7e, (uint8_t)(len >> 8), (uint8_t)len};
        struct wire_frame f;

        assert_int_equal(wire_frame_parse(&f, wide, 10, &from_server, false),
                         -WIRE_FAULT_LENGTH_FORM);
        assert_int_equal(wire_frame_parse(&f, mid, 4, &from_server, false),
                         len < 126 ? -WIRE_FAULT_LENGTH_FORM : 4);
    }
}

static void expect_frame(const struct wire_frame *got, const struct wire_frame *want)
{
    static const uint8_t no_key[4];

    assert_true(got->len == want->len);
    assert_int_equal(got->opcode, want->opcode);
    assert_int_equal(got->rsv, want->rsv);
    assert_int_equal(got->fin, want->fin);
    assert_int_equal(got->masked, want->masked);
    assert_memory_equal(got->key, want->masked ? want->key : no_key, 4);
}

/* Writes f, expects the shortest header, and reads it back with every cut. */
static void check_round_trip(struct guard *g, const struct wire_frame *f)
{
    struct wire_frame_rules rules = {f->masked, f->rsv};
    size_t want = (f->len < 126 ? 2 : f->len < 65536 ? 4 : 10) + (f->masked ? 4u : 0u);
    uint8_t *out = guard_tail(g, NULL, want), copy[WIRE_FRAME_HEADER_MAX];
    size_t n = wire_frame_write(out, f);

    assert_int_equal(n, want);
    assert_int_equal(wire_frame_header_len(f->len, f->masked), want);
    memcpy(copy, out, n);
    for (size_t cut = 0; cut <= n; cut++) {
        struct wire_frame got;
        const uint8_t *p = guard_tail(g, copy, cut);
        int r = wire_frame_parse(&got, p, cut, &rules, f->opcode == WIRE_CONT);

        assert_int_equal(r, cut < n ? 0 : (int)n);
        if (r > 0)
            expect_frame(&got, f);
    }
}

/* B045 */
static void test_length_borders(void **state)
{
    static const uint64_t lens[] = {0,
                                    1,
                                    125,
                                    126,
                                    127,
                                    65535,
                                    65536,
                                    65537,
                                    3,
                                    200,
                                    0xffffff,
                                    0x7fffffff,
                                    0x80000000,
                                    0xffffffff,
                                    0x100000000,
                                    (1ull << 62),
                                    (1ull << 63) - 1};
    struct guard g;

    (void)state;
    guard_open(&g, WIRE_FRAME_HEADER_MAX);
    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        struct wire_frame f = {.len = lens[i], .opcode = WIRE_BINARY, .fin = true};

        check_round_trip(&g, &f);
        f.masked = true;
        memcpy(f.key, "\x37\xfa\x21\x3d", 4);
        check_round_trip(&g, &f);
    }
    guard_close(&g);
}

static void test_random_round_trips(void **state)
{
    static const uint8_t opcodes[] = {WIRE_CONT,  WIRE_TEXT, WIRE_BINARY,
                                      WIRE_CLOSE, WIRE_PING, WIRE_PONG};
    struct rng rng = {11};
    struct guard g;

    (void)state;
    guard_open(&g, WIRE_FRAME_HEADER_MAX);
    for (int round = 0; round < 20000; round++) {
        struct wire_frame f = {.opcode = opcodes[rng_below(&rng, sizeof(opcodes))]};

        f.len = rng_next(&rng) >> (1 + rng_below(&rng, 63));
        f.fin = rng_below(&rng, 2) || wire_opcode_is_control(f.opcode);
        f.masked = rng_below(&rng, 2);
        if (wire_opcode_is_control(f.opcode))
            f.len %= WIRE_CONTROL_MAX + 1;
        else if (f.opcode != WIRE_CONT)
            f.rsv = rng_below(&rng, 2) ? WIRE_RSV1 : 0;
        if (f.masked)
            rng_fill(&rng, f.key, 4);
        check_round_trip(&g, &f);
    }
    guard_close(&g);
}

/*
 * Whatever the bytes: once there is a result, more bytes do not change it, and nothing outside the
 * bytes is read. Most rounds begin with a plausible header, so that the long forms are reached.
 */
static void test_random_bytes_are_stable(void **state)
{
    struct rng rng = {23};
    struct guard g;

    (void)state;
    guard_open(&g, 16);
    for (int round = 0; round < 40000; round++) {
        struct wire_frame_rules rules = {rng_below(&rng, 2), rng_below(&rng, 2) ? WIRE_RSV1 : 0};
        bool in_message = rng_below(&rng, 2);
        uint8_t bytes[16];
        int first = 0;

        rng_fill(&rng, bytes, sizeof(bytes));
        if (rng_below(&rng, 8)) {
            bytes[0] = (uint8_t)(rng_below(&rng, 2) << 7 | (in_message ? 0 : 1));
            bytes[1] = (uint8_t)((unsigned)rules.expect_masked << 7 | (125 + rng_below(&rng, 3)));
            memset(bytes + 2, 0, rng_below(&rng, 9));
        }
        for (size_t n = 0; n <= sizeof(bytes); n++) {
            struct wire_frame f;
            int r = wire_frame_parse(&f, guard_tail(&g, bytes, n), n, &rules, in_message);

            assert_true(r <= (int)n);
            if (first)
                assert_int_equal(r, first);
            first = r;
        }
        assert_int_not_equal(first, 0);
    }
    guard_close(&g);
}

static void test_fault_texts(void **state)
{
    (void)state;
    for (int i = 0; i < WIRE_FAULT_COUNT; i++) {
        const char *text = wire_fault_text((enum wire_fault)i);

        assert_non_null(text);
        assert_string_not_equal(text, wire_fault_text(WIRE_FAULT_COUNT));
        for (int k = 0; k < i; k++)
            assert_string_not_equal(text, wire_fault_text((enum wire_fault)k));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rfc_examples),
        cmocka_unit_test(test_mask_direction),
        cmocka_unit_test(test_length_must_be_shortest),
        cmocka_unit_test(test_length_top_bit),
        cmocka_unit_test(test_rsv),
        cmocka_unit_test(test_reserved_opcodes),
        cmocka_unit_test(test_control_rules),
        cmocka_unit_test(test_sequence_rules),
        cmocka_unit_test(test_empty_messages),
        cmocka_unit_test(test_all_first_bytes),
        cmocka_unit_test(test_all_longer_forms),
        cmocka_unit_test(test_length_borders),
        cmocka_unit_test(test_random_round_trips),
        cmocka_unit_test(test_random_bytes_are_stable),
        cmocka_unit_test(test_fault_texts),
    };

    return cmocka_run_group_tests_name("wire_frame", tests, NULL, NULL);
}
