/*
 * Close codes and payloads, RFC 6455 sections 5.5.1 and 7.4.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "guard.h"
#include "wire/close.h"

/* Written out from the RFC and the IANA registry, not from the code under test. */
static bool may_travel(unsigned code)
{
    static const uint16_t registered[] = {1000, 1001, 1002, 1003, 1007, 1008,
                                          1009, 1010, 1011, 1012, 1013, 1014};

    for (size_t i = 0; i < sizeof(registered) / sizeof(registered[0]); i++)
        if (registered[i] == code)
            return true;
    return code / 1000 == 3 || code / 1000 == 4;
}

/* B066 (0, 999, 1005, 1006, 1015 and all others), B068 */
static void test_every_code(void **state)
{
    struct guard g;

    (void)state;
    guard_open(&g, 2);
    for (unsigned code = 0; code <= 0xffff; code++) {
        const uint8_t body[2] = {(uint8_t)(code >> 8), (uint8_t)code};
        const uint8_t *p = guard_tail(&g, body, 2), *reason;
        size_t reason_len = 99;
        uint16_t got = 1;

        assert_int_equal(wire_close_code_receivable((uint16_t)code), may_travel(code));
        assert_int_equal(wire_close_code_sendable((uint16_t)code), may_travel(code));
        assert_int_equal(wire_close_parse(p, 2, &got, &reason, &reason_len),
                         may_travel(code) ? 0 : 1002);
        assert_int_equal(got, code);
        assert_int_equal(reason_len, 0);
    }
    guard_close(&g);
}

static void test_empty_body(void **state)
{
    const uint8_t *reason;
    size_t reason_len = 99;
    uint16_t code = 1;

    (void)state;
    assert_int_equal(wire_close_parse(NULL, 0, &code, &reason, &reason_len), 0);
    assert_int_equal(code, TWS_CLOSE_NO_STATUS);
    assert_int_equal(reason_len, 0);
}

/* B064 */
static void test_one_byte_body(void **state)
{
    struct guard g;
    const uint8_t *reason;
    size_t reason_len = 99;
    uint16_t code = 1;

    (void)state;
    guard_open(&g, 1);
    assert_int_equal(wire_close_parse(guard_tail(&g, "\x03", 1), 1, &code, &reason, &reason_len),
                     1002);
    assert_int_equal(code, 0);
    assert_int_equal(reason_len, 0);
    guard_close(&g);
}

/* B068: a reason of every length up to 123 bytes, which end at a guard page */
static void test_reason_lengths(void **state)
{
    struct guard g;
    uint8_t body[126] = {4999 >> 8, 4999 & 0xff};

    (void)state;
    memset(body + 2, 'r', sizeof(body) - 2);
    guard_open(&g, sizeof(body));
    for (size_t len = 2; len <= sizeof(body); len++) {
        const uint8_t *p = guard_tail(&g, body, len), *reason = NULL;
        size_t reason_len = 99;
        uint16_t code = 1;

        assert_int_equal(wire_close_parse(p, len, &code, &reason, &reason_len),
                         len <= 125 ? 0 : 1002);
        assert_int_equal(code, 4999);
        assert_int_equal(reason_len, len <= 125 ? len - 2 : 0);
        if (len <= 125)
            assert_ptr_equal(reason, p + 2);
    }
    guard_close(&g);
}

static void test_reason_utf8(void **state)
{
    static const struct {
        const char *reason;
        int want;
    } cases[] = {
        {"bye", 0},
        {"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5", 0},
        {"\xf0\x9f\x98\x80", 0},
        {"\x80", 1007},
        {"bye\xff", 1007},
        {"\xc0\xaf", 1007},
        {"\xed\xa0\x80", 1007},
        {"cut \xe2\x82", 1007},
        {"a reason longer than one vector, with the bad byte near its end \xf4\x90\x80\x80", 1007},
    };
    struct guard g;

    (void)state;
    guard_open(&g, 125);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t body[125] = {1000 >> 8, 1000 & 0xff};
        size_t n = strlen(cases[i].reason), reason_len = 99;
        const uint8_t *p, *reason;
        uint16_t code = 1;

        memcpy(body + 2, cases[i].reason, n);
        p = guard_tail(&g, body, n + 2);
        assert_int_equal(wire_close_parse(p, n + 2, &code, &reason, &reason_len), cases[i].want);
        assert_int_equal(code, 1000);
        assert_int_equal(reason_len, cases[i].want ? 0 : n);
    }
    guard_close(&g);
}

/* A code that may not travel is the first thing wrong, whatever follows it. */
static void test_code_before_reason(void **state)
{
    static const uint8_t body[] = {1005 >> 8, 1005 & 0xff, 0xff};
    const uint8_t *reason;
    size_t reason_len;
    uint16_t code;

    (void)state;
    assert_int_equal(wire_close_parse(body, sizeof(body), &code, &reason, &reason_len), 1002);
}

static void test_write(void **state)
{
    struct guard g;
    char text[200];
    uint8_t *out;

    (void)state;
    memset(text, 'x', sizeof(text));
    guard_open(&g, WIRE_CLOSE_PAYLOAD_MAX);
    out = guard_tail(&g, NULL, WIRE_CLOSE_PAYLOAD_MAX);
    assert_int_equal(wire_close_write(out, TWS_CLOSE_NO_STATUS, "ignored", 7), 0);
    assert_int_equal(wire_close_write(out, 1001, NULL, 0), 2);
    assert_memory_equal(out, "\x03\xe9", 2);
    assert_int_equal(wire_close_write(out, 4000, "bye", 3), 5);
    assert_memory_equal(out,
                        "\x0f\xa0"
                        "bye",
                        5);
    for (size_t n = 1; n <= 123; n++) {
        assert_int_equal(wire_close_write(out, 1000, text, n), n + 2);
        assert_memory_equal(out + 2, text, n);
    }
    /* Too long is cut, and not inside a character. */
    assert_int_equal(wire_close_write(out, 1000, text, sizeof(text)), 125);
    memcpy(text + 121, "\xe2\x82\xac", 3);
    assert_int_equal(wire_close_write(out, 1000, text, sizeof(text)), 2 + 121);
    guard_close(&g);
}

static void test_round_trip(void **state)
{
    static const uint16_t codes[] = {1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010,
                                     1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999};
    static const char text[] = "going away \xe2\x82\xac";

    (void)state;
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        uint8_t out[WIRE_CLOSE_PAYLOAD_MAX];
        size_t n = wire_close_write(out, codes[i], text, sizeof(text) - 1), reason_len;
        const uint8_t *reason;
        uint16_t code;

        assert_int_equal(wire_close_parse(out, n, &code, &reason, &reason_len), 0);
        assert_int_equal(code, codes[i]);
        assert_int_equal(reason_len, sizeof(text) - 1);
        assert_memory_equal(reason, text, reason_len);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code),    cmocka_unit_test(test_empty_body),
        cmocka_unit_test(test_one_byte_body), cmocka_unit_test(test_reason_lengths),
        cmocka_unit_test(test_reason_utf8),   cmocka_unit_test(test_code_before_reason),
        cmocka_unit_test(test_write),         cmocka_unit_test(test_round_trip),
    };

    return cmocka_run_group_tests_name("wire_close", tests, NULL, NULL);
}
