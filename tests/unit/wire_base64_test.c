/*
 * Base 64, RFC 4648 section 4 and its vectors of section 10.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "guard.h"
#include "rng.h"
#include "wire/base64.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static void test_vectors(void **state)
{
    static const char *const pairs[][2] = {
        {"", ""},
        {"f", "Zg=="},
        {"fo", "Zm8="},
        {"foo", "Zm9v"},
        {"foob", "Zm9vYg=="},
        {"fooba", "Zm9vYmE="},
        {"foobar", "Zm9vYmFy"},
        {"\xfb\xff\xfe", "+//+"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(pairs); i++) {
        size_t plain = strlen(pairs[i][0]);
        size_t coded = strlen(pairs[i][1]);
        char out[16];
        uint8_t back[16];

        assert_int_equal(WIRE_BASE64_LEN(plain), coded);
        assert_int_equal(wire_base64_encode(out, pairs[i][0], plain), coded);
        assert_memory_equal(out, pairs[i][1], coded);
        assert_int_equal(wire_base64_decode(back, sizeof back, pairs[i][1], coded), plain);
        assert_memory_equal(back, pairs[i][0], plain);
    }
}

/* There and back for every length; neither side touches a byte too many; one byte less room
 * fails. */
static void test_round_trip(void **state)
{
    struct rng rng = {4648};
    struct guard in;
    struct guard out;

    (void)state;
    guard_open(&in, 300);
    guard_open(&out, 400);
    for (size_t len = 0; len <= 200; len++) {
        uint8_t data[200];
        char text[WIRE_BASE64_LEN(200)];
        size_t n = WIRE_BASE64_LEN(len);
        char *coded = (char *)guard_tail(&out, NULL, n);
        uint8_t *back;

        rng_fill(&rng, data, len);
        assert_int_equal(wire_base64_encode(coded, guard_tail(&in, data, len), len), n);
        memcpy(text, coded, n);
        back = guard_tail(&out, NULL, len);
        coded = (char *)guard_tail(&in, text, n);
        assert_int_equal(wire_base64_decode(back, len, coded, n), len);
        assert_memory_equal(back, data, len);
        if (len > 0)
            assert_int_equal(wire_base64_decode(back, len - 1, coded, n), -1);
    }
    guard_close(&in);
    guard_close(&out);
}

static void test_malformed(void **state)
{
    static const char *const bad[] = {
        "Z",    "Zg",       "Zg=",      "Zm8",  "Zm9vY",   "====",   "=",      "Z===",
        "A===", "Zg==Zg==", "Zg=v",     "=g==", "Zm9v=",   "Zg\n",   "Zm 9v=", "Zm-v",
        "Zm_v", "Zm9vZg=a", "Zm9v====", "Zm!v", "Z\xe9==", "Zm9\x7f"};
    uint8_t out[16];
    struct guard g;

    (void)state;
    guard_open(&g, 16);
    for (size_t i = 0; i < COUNT(bad); i++) {
        size_t len = strlen(bad[i]);

        if (wire_base64_decode(out, sizeof out, (char *)guard_tail(&g, bad[i], len), len) != -1)
            fail_msg("accepted %s", bad[i]);
    }
    guard_close(&g);
}

/* Of the 64 last characters before the padding only those with no bits left over pass. */
static void test_one_spelling_only(void **state)
{
    (void)state;
    for (size_t i = 0; i < 64; i++) {
        const char one[4] = {'Z', alphabet[i], '=', '='};
        const char two[4] = {'Z', 'm', alphabet[i], '='};
        uint8_t out[4];

        assert_int_equal(wire_base64_decode(out, 4, one, 4), i % 16 == 0 ? 1 : -1);
        assert_int_equal(wire_base64_decode(out, 4, two, 4), i % 4 == 0 ? 2 : -1);
    }
}

static void test_every_character(void **state)
{
    (void)state;
    for (int c = 0; c < 256; c++) {
        const char text[4] = {'A', (char)c, 'A', 'A'};
        const char *found = c != 0 ? strchr(alphabet, c) : NULL;
        uint8_t out[4];

        if (found == NULL) {
            assert_int_equal(wire_base64_decode(out, 4, text, 4), -1);
            continue;
        }
        assert_int_equal(wire_base64_decode(out, 4, text, 4), 3);
        assert_int_equal(out[0] << 16 | out[1] << 8 | out[2], (found - alphabet) << 12);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),         cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_malformed),       cmocka_unit_test(test_one_spelling_only),
        cmocka_unit_test(test_every_character),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
