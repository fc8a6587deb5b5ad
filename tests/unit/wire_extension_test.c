/*
 * Sec-WebSocket-Extensions, RFC 6455 section 9.1. Every list is walked at a guard page and inside
 * a head.
 */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "head_script.h"
#include "rng.h"
#include "wire/extension.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Writes a list as name(param=value,param)name... */
static enum extension_result describe(struct extension_list *list, char *out, size_t cap)
{
    struct wire_out w = {out, cap - 1, 0};
    struct extension ext;
    enum extension_result more;

    while ((more = extension_next(list, &ext)) == EXTENSION_NEXT) {
        struct extension_param param;
        enum extension_result rest;

        wire_put(&w, ext.name);
        wire_put_char(&w, '(');
        while ((rest = extension_param_next(&ext, &param)) == EXTENSION_NEXT) {
            char value[64];
            size_t n = extension_param_value(&param, value, sizeof value);

            assert_true(n <= sizeof value);
            assert_int_equal(param.has_value, n > 0);
            wire_put(&w, param.name);
            if (param.has_value)
                wire_put_char(&w, '=');
            wire_put(&w, (struct wire_text){value, n});
            wire_put_char(&w, ',');
        }
        assert_int_equal(rest, EXTENSION_END); /* one that was given cannot fail */
        wire_put_char(&w, ')');
    }
    assert_true(w.len < cap);
    out[w.len] = '\0';
    assert_int_equal(extension_next(list, &ext), more);
    return more;
}

static const struct {
    const char *text;
    const char *meaning;
    enum extension_result end;
} rows[] = {
    {"", "", EXTENSION_END},
    {",,,", "", EXTENSION_END},                           /* B031 */
    {"constructor", "constructor()", EXTENSION_END},      /* B031 */
    {"__proto__; a=1", "__proto__(a=1,)", EXTENSION_END}, /* B031 */
    {"permessage-deflate; client_max_window_bits; server_max_window_bits=10",
     "permessage-deflate(client_max_window_bits,server_max_window_bits=10,)", EXTENSION_END},
    {"foo;a=1;b , bar,foo ; a = 1\t;b=\"x\"", "foo(a=1,b,)bar()foo(a=1,b=x,)", EXTENSION_END},
    {"a;b=\"\\1\\0\";c", "a(b=10,c,)", EXTENSION_END},
    {"a;b=\"x\" ; c", "a(b=x,c,)", EXTENSION_END},
    {";;;", "", EXTENSION_BAD},                      /* B031 */
    {"permessage-deflate; =8", "", EXTENSION_BAD},   /* B031 */
    {"permessage-deflate; a=\"", "", EXTENSION_BAD}, /* B031 */
    {"a;", "", EXTENSION_BAD},
    {"a; ;b", "", EXTENSION_BAD},
    {"a;b=", "", EXTENSION_BAD},
    {"a;b=;c", "", EXTENSION_BAD},
    {"a;b==c", "", EXTENSION_BAD},
    {"a;b=c d", "", EXTENSION_BAD},
    {"a;b c", "", EXTENSION_BAD},
    {"a b", "", EXTENSION_BAD},
    {"a=b", "", EXTENSION_BAD},
    {"a/b", "", EXTENSION_BAD},
    {"\"a\"", "", EXTENSION_BAD},
    {"a;\"b\"", "", EXTENSION_BAD},
    {"a;b=\"\"", "", EXTENSION_BAD},       /* quoted content must be a token: not empty, */
    {"a;b=\"x y\"", "", EXTENSION_BAD},    /* no blank, */
    {"a;b=\"x,y\"", "", EXTENSION_BAD},    /* no separator, */
    {"a;b=\"x\\\"y\"", "", EXTENSION_BAD}, /* no quote */
    {"a;b=\" x\"", "", EXTENSION_BAD},
    {"a;b=\"x\"y", "", EXTENSION_BAD},
    {"a;b=x\"y\"", "", EXTENSION_BAD},
    {"ok, a;b=\xc3\xa9", "ok()", EXTENSION_BAD},
    {"ok;p, a;, never", "ok(p,)", EXTENSION_BAD},
};

static void test_texts(void **state)
{
    struct guard g;
    struct extension_list list;
    char got[256];

    (void)state;
    guard_open(&g, 256);
    for (size_t i = 0; i < COUNT(rows); i++) {
        size_t len = strlen(rows[i].text);

        extension_list_of_text(&list,
                               (struct wire_text){(char *)guard_tail(&g, rows[i].text, len), len});
        if (describe(&list, got, sizeof got) != rows[i].end || strcmp(got, rows[i].meaning) != 0)
            fail_msg("%s: got %s", rows[i].text, got);
    }
    guard_close(&g);
}

static void test_heads(void **state)
{
    struct head_script s;
    struct extension_list list;
    char text[256];
    char got[256];

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        snprintf(text, sizeof text, "GET / HTTP/1.1\r\nsec-websocket-extensions: %s\r\n\r\n",
                 rows[i].text);
        head_script_request(&s, text);
        extension_list_of_head(&list, &s.head, s.buf);
        assert_int_equal(describe(&list, got, sizeof got), rows[i].end);
        assert_string_equal(got, rows[i].meaning);
        assert_int_equal(extension_list_valid(&s.head, s.buf, NULL), rows[i].end == EXTENSION_END);
        head_script_end(&s);
    }
}

static void test_several_lines(void **state)
{
    struct head_script s;
    struct extension_list list;
    unsigned count = 99;
    char got[64];

    (void)state;
    head_script_request(&s, "GET / HTTP/1.1\r\nSec-WebSocket-Extensions: a;x=1, b\r\n"
                            "Sec-WebSocket-Extensions:\r\nHost: x\r\n"
                            "Sec-WebSocket-Extensions: c\r\n\r\n");
    extension_list_of_head(&list, &s.head, s.buf);
    assert_int_equal(describe(&list, got, sizeof got), EXTENSION_END);
    assert_string_equal(got, "a(x=1,)b()c()");
    assert_true(extension_list_valid(&s.head, s.buf, &count));
    assert_int_equal(count, 3);
    head_script_end(&s);

    head_script_request(&s, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(extension_list_valid(&s.head, s.buf, &count));
    assert_int_equal(count, 0);
    head_script_end(&s);
}

/* The bounds exactly, for extensions and for parameters. */
static void test_bounds(void **state)
{
    char text[1024];
    char got[1024];
    struct extension_list list;

    (void)state;
    for (unsigned n = EXTENSION_MAX - 1; n <= EXTENSION_MAX + 1; n++) {
        size_t len = 0;

        for (unsigned i = 0; i < n; i++)
            len += (size_t)snprintf(text + len, sizeof text - len, "x-e%u; p=%u,", i, i);
        extension_list_of_text(&list, (struct wire_text){text, len});
        assert_int_equal(describe(&list, got, sizeof got),
                         n <= EXTENSION_MAX ? EXTENSION_END : EXTENSION_BAD);
        assert_int_equal(list.count, n < EXTENSION_MAX ? n : EXTENSION_MAX);
    }
    for (unsigned n = EXTENSION_PARAMS_MAX - 1; n <= EXTENSION_PARAMS_MAX + 1; n++) {
        size_t len = (size_t)snprintf(text, sizeof text, "x");

        for (unsigned i = 0; i < n; i++)
            len += (size_t)snprintf(text + len, sizeof text - len, ";p%u", i);
        extension_list_of_text(&list, (struct wire_text){text, len});
        assert_int_equal(describe(&list, got, sizeof got),
                         n <= EXTENSION_PARAMS_MAX ? EXTENSION_END : EXTENSION_BAD);
    }
}

static int number_of(const char *text, int min, int max)
{
    struct extension_list list;
    struct extension ext;
    struct extension_param param;

    extension_list_of_text(&list, wire_text_of(text));
    assert_int_equal(extension_next(&list, &ext), EXTENSION_NEXT);
    assert_int_equal(extension_param_next(&ext, &param), EXTENSION_NEXT);
    return extension_param_number(&param, min, max);
}

/* RFC 7692 7.1.2: decimal, no leading zeros, within bounds. */
static void test_numbers(void **state)
{
    static const struct {
        const char *text;
        int number;
    } table[] = {
        {"x;b=8", 8},
        {"x;b=15", 15},
        {"x;b=\"10\"", 10},
        {"x;b=\"1\\0\"", 10},
        {"x;b=7", -1},
        {"x;b=16", -1},
        {"x;b=08", -1},
        {"x;b=010", -1},
        {"x;b", -1},
        {"x;b=a", -1},
        {"x;b=1a", -1},
        {"x;b=-8", -1},
        {"x;b=99", -1},
        {"x;b=0", -1},
        {"x;b=+8", -1},
        {"x;b=99999999", -1},
        {"x;b=8.0", -1},
        {"x;b=100000008", -1},
        {"x;b=4294967304", -1},
        {"x;b=18446744073709551624", -1},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        if (number_of(table[i].text, 8, 15) != table[i].number)
            fail_msg("%s", table[i].text);
    }
    assert_int_equal(number_of("x;b=0", 0, 15), 0);
    assert_int_equal(number_of("x;b", 0, 15), -1); /* no value is not zero */
    assert_int_equal(number_of("x;b=99999999", 8, 99999999), 99999999);
    assert_int_equal(number_of("x;b=100000000", 8, INT_MAX), -1);
}

/* Whatever the bytes, walking stays inside them and comes to an end. */
static void test_random(void **state)
{
    static const char spice[] = "ab1;,=\"\\ \t\xc3\x01";
    struct rng rng = {2026};
    unsigned ends[2] = {0};
    struct guard g;
    char got[256];

    (void)state;
    guard_open(&g, 32);
    for (int round = 0; round < 50000; round++) {
        size_t len = rng_below(&rng, 12);
        struct extension_list list;
        char text[12];

        for (size_t i = 0; i < len; i++)
            text[i] = spice[rng_below(&rng, round % 2 ? 5 : sizeof spice - 1)];
        extension_list_of_text(&list, (struct wire_text){(char *)guard_tail(&g, text, len), len});
        ends[describe(&list, got, sizeof got) == EXTENSION_END]++;
    }
    guard_close(&g);
    assert_true(ends[0] > 1000 && ends[1] > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),         cmocka_unit_test(test_heads),
        cmocka_unit_test(test_several_lines), cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_numbers),       cmocka_unit_test(test_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
