/*
 * The HTTP head parser, RFC 9112. head_script runs every text of these tables cut at every
 * boundary.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "head_script.h"
#include "rng.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static void assert_text(const struct head_script *s, struct http_slice slice, const char *expected)
{
    struct wire_text text = http_text(s->buf, slice);

    if (!wire_text_equal(text, wire_text_of(expected)))
        fail_msg("got \"%.*s\" instead of \"%s\"", (int)text.len, text.at, expected);
}

static void test_request(void **state)
{
    const char *text = "GET /chat?room=1 HTTP/1.1\r\n"
                       "Host: example.com\r\n"
                       "X-Empty:\r\n"
                       "X-Blank: \t \r\n"
                       "X-Tabs:\t\ta \t b\t \r\n"
                       "x!#$%&'*+-.^_`|~09: \xc3\xa9:\"\r\n"
                       "\r\n";
    struct head_script s;

    (void)state;
    head_script_request(&s, text);
    assert_int_equal(s.head.head_len, strlen(text));
    assert_int_equal(s.head.minor, 1);
    assert_int_equal(s.head.target_form, HTTP_TARGET_ORIGIN);
    assert_text(&s, s.head.method, "GET");
    assert_text(&s, s.head.target, "/chat?room=1");
    assert_int_equal(s.head.nfields, 5);
    assert_text(&s, s.fields[0].name, "Host");
    assert_text(&s, s.fields[0].value, "example.com");
    assert_text(&s, s.fields[1].value, "");
    assert_text(&s, s.fields[2].value, "");
    assert_text(&s, s.fields[3].value, "a \t b");
    assert_text(&s, s.fields[4].name, "x!#$%&'*+-.^_`|~09");
    assert_text(&s, s.fields[4].value, "\xc3\xa9:\"");
    assert_int_equal(http_head_status(&s.head), 0);
    assert_string_equal(http_head_error_text(&s.head), "");
    head_script_end(&s);
}

/* What follows the head is not looked at, and one empty line may stand before a request. */
static void test_around_the_head(void **state)
{
    static const char text[] = "\r\nGET / HTTP/1.0\r\nA: b\r\n\r\n\0\xff\r\r";
    struct head_script s;

    (void)state;
    head_script_run(&s, false, text, sizeof text - 1, &head_script_limits);
    assert_int_equal(s.result, HTTP_DONE);
    assert_int_equal(s.head.head_len, sizeof text - 1 - 4);
    assert_int_equal(s.head.minor, 0);
    assert_text(&s, s.head.method, "GET");
    assert_text(&s, s.head.target, "/");
    head_script_end(&s);
}

static void test_responses(void **state)
{
    static const struct {
        const char *text;
        int status;
        int minor;
        const char *reason;
    } table[] = {
        {"HTTP/1.1 101 Switching Protocols\r\n\r\n", 101, 1, "Switching Protocols"},
        {"HTTP/1.1 200 \r\n\r\n", 200, 1, ""},
        {"HTTP/1.1 200\r\n\r\n", 200, 1, ""}, /* the blank is missing, and nobody is misled */
        {"HTTP/1.0 999 a\tb\x80 \r\nA: b\r\n\r\n", 999, 0, "a\tb\x80 "},
        {"HTTP/1.9 407  two\r\n\r\n", 407, 9, " two"},
    };
    struct head_script s;

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        head_script_response(&s, table[i].text);
        assert_int_equal(s.head.status, table[i].status);
        assert_int_equal(s.head.minor, table[i].minor);
        assert_text(&s, s.head.reason, table[i].reason);
        head_script_end(&s);
    }
}

static void test_target_forms(void **state)
{
    static const struct {
        const char *line;
        enum http_target_form form;
        const char *target;
    } table[] = {
        {"GET /", HTTP_TARGET_ORIGIN, "/"},
        {"GET //x/?a?b=[{|}]\"<>\\^`%zz", HTTP_TARGET_ORIGIN, "//x/?a?b=[{|}]\"<>\\^`%zz"},
        {"OPTIONS *", HTTP_TARGET_ASTERISK, "*"},
        {"OPTIONS /x", HTTP_TARGET_ORIGIN, "/x"},
        {"CONNECT example.com:443", HTTP_TARGET_AUTHORITY, "example.com:443"},
        {"CONNECT [::1]:1", HTTP_TARGET_AUTHORITY, "[::1]:1"},
        {"GET http://example.com", HTTP_TARGET_ABSOLUTE, "http://example.com"},
        {"GET ws+x-1.0://a?b", HTTP_TARGET_ABSOLUTE, "ws+x-1.0://a?b"},
        {"CONNECTS /", HTTP_TARGET_ORIGIN, "/"}, /* only begins like CONNECT */
        {"CONNEC /", HTTP_TARGET_ORIGIN, "/"},
        {"G /", HTTP_TARGET_ORIGIN, "/"},
        {"ABCDEFG /", HTTP_TARGET_ORIGIN, "/"},
        {"connect /", HTTP_TARGET_ORIGIN, "/"}, /* methods have a case */
    };
    struct head_script s;
    char text[128];

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        snprintf(text, sizeof text, "%s HTTP/1.1\r\n\r\n", table[i].line);
        head_script_request(&s, text);
        assert_int_equal(s.head.target_form, table[i].form);
        assert_text(&s, s.head.target, table[i].target);
        head_script_end(&s);
    }
}

struct bad {
    const char *text; /* ends with the byte that gives it away */
    enum http_result result;
    const char *error;
};

/* head_script checks that every shorter prefix still wanted more. */
static void check_bad(bool is_response, const struct bad *table, size_t n)
{
    struct head_script s;

    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(table[i].text);

        head_script_run(&s, is_response, table[i].text, len, &head_script_limits);
        if (s.result != table[i].result || s.head.pos != len - 1 ||
            strcmp(http_head_error_text(&s.head), table[i].error) != 0)
            fail_msg("row %zu: result %d at %u of %zu: %s", i, (int)s.result, s.head.pos, len,
                     http_head_error_text(&s.head));
        assert_int_equal(http_head_status(&s.head), s.result == HTTP_VERSION ? 505 : 400);
        head_script_end(&s);
    }
}

static void test_bad_requests(void **state)
{
    static const struct bad table[] = {
        {"\r\r", HTTP_BAD, "CR without LF"},
        {"\r\n\r", HTTP_BAD, "bad character in the method"}, /* one empty line, not two */
        {"\n", HTTP_BAD, "LF without CR"},
        {" ", HTTP_BAD, "bad character in the method"},
        {"GET\t", HTTP_BAD, "bad character in the method"},
        {"GE(", HTTP_BAD, "bad character in the method"},
        {"GET\r", HTTP_BAD, "bad character in the method"},
        {"GET  ", HTTP_BAD, "bad character in the request target"},
        {"GET \t", HTTP_BAD, "bad character in the request target"},
        {"GET /\t", HTTP_BAD, "bad character in the request target"},
        {"GET /\x7f", HTTP_BAD, "bad character in the request target"},
        {"GET /\xc3", HTTP_BAD, "bad character in the request target"},
        {"GET /#", HTTP_BAD, "fragment in the request target"},
        {"GET /\r", HTTP_BAD, "request line without an HTTP version"},
        {"GET /\n", HTTP_BAD, "LF without CR"},
        {"GET x ", HTTP_BAD, "request target does not fit the method"},
        {"GET 1", HTTP_BAD, "request target does not fit the method"},
        {"GET ?", HTTP_BAD, "request target does not fit the method"},
        {"GET http:/x", HTTP_BAD, "request target does not fit the method"},
        {"GET http://?", HTTP_BAD, "request target does not fit the method"},
        {"GET http:// ", HTTP_BAD, "request target does not fit the method"},
        {"GET a_", HTTP_BAD, "request target does not fit the method"},
        {"GET *x", HTTP_BAD, "request target does not fit the method"},
        {"GET * HTTP/1.1\r", HTTP_BAD, "request target does not fit the method"},
        {"CONNECT /", HTTP_BAD, "request target does not fit the method"},
        {"CONNECT a/", HTTP_BAD, "request target does not fit the method"},
        {"CONNECT a ", HTTP_BAD, "request target does not fit the method"},
        {"CONNECT a: ", HTTP_BAD, "request target does not fit the method"},
        {"CONNECT ?", HTTP_BAD, "request target does not fit the method"},
        {"CONNECT @", HTTP_BAD, "request target does not fit the method"},
        {"ABCDEFG * HTTP/1.1\r", HTTP_BAD, "request target does not fit the method"},
        {"OPTIONSS * HTTP/1.1\r", HTTP_BAD, "request target does not fit the method"},
        {"CONNECT :", HTTP_BAD, "request target does not fit the method"},
        {"CONNECT a@", HTTP_BAD, "request target does not fit the method"},
        {"CONNECT a:1x", HTTP_BAD, "request target does not fit the method"},
        {"CONNECT [::1]x", HTTP_BAD, "request target does not fit the method"},
        {"CONNECT [::1 ", HTTP_BAD, "request target does not fit the method"},
        {"GET / h", HTTP_BAD, "malformed HTTP version"},
        {"GET /  ", HTTP_BAD, "malformed HTTP version"},
        {"GET / HTTP ", HTTP_BAD, "malformed HTTP version"},
        {"GET / HTTP/x", HTTP_BAD, "malformed HTTP version"},
        {"GET / HTTP/1,", HTTP_BAD, "malformed HTTP version"},
        {"GET / HTTP/11", HTTP_BAD, "malformed HTTP version"},
        {"GET / HTTP/1.\r", HTTP_BAD, "malformed HTTP version"},
        {"GET / HTTP/1.10", HTTP_BAD, "malformed HTTP version"},
        {"GET / HTTP/1.1 ", HTTP_BAD, "malformed HTTP version"},
        {"GET / HTTP/1.1\n", HTTP_BAD, "LF without CR"},
        {"GET / HTTP/1.1\r\r", HTTP_BAD, "CR without LF"},
        {"GET / HTTP/2.0\r", HTTP_VERSION, "HTTP version is not 1.x"},
        {"GET / HTTP/0.9\r", HTTP_VERSION, "HTTP version is not 1.x"},
        {"PRI * HTTP/2.0\r", HTTP_VERSION, "HTTP version is not 1.x"},
    };

    (void)state;
    check_bad(false, table, COUNT(table));
}

#define LINE "GET / HTTP/1.1\r\n"

static void test_bad_fields(void **state)
{
    static const struct bad table[] = {
        {LINE " ", HTTP_BAD, "field line that begins with a blank"},
        {LINE "\t", HTTP_BAD, "field line that begins with a blank"},
        {LINE "A: b\r\n ", HTTP_BAD, "field line that begins with a blank"}, /* folded */
        {LINE ":", HTTP_BAD, "bad character in a field name"},
        {LINE "A\x80", HTTP_BAD, "bad character in a field name"},
        {LINE "A@", HTTP_BAD, "bad character in a field name"},
        {LINE "Abc\r", HTTP_BAD, "field line without a colon"},
        {LINE "Abc\n", HTTP_BAD, "LF without CR"},
        {LINE "Sec-WebSocket-Version ", HTTP_BAD, "blank between field name and colon"}, /* B025 */
        {LINE "A\t", HTTP_BAD, "blank between field name and colon"},
        {LINE "A: b\n", HTTP_BAD, "LF without CR"},
        {LINE "A:\n", HTTP_BAD, "LF without CR"},
        {LINE "A: b\rc", HTTP_BAD, "CR without LF"},
        {LINE "A: b\r\r", HTTP_BAD, "CR without LF"},
        {LINE "A: b\r\n\r\r", HTTP_BAD, "CR without LF"},
        {LINE "\n", HTTP_BAD, "LF without CR"},
        {LINE "A: b\r\n\n", HTTP_BAD, "LF without CR"},
        {LINE "A: \x01", HTTP_BAD, "control character in a field value"},
        {LINE "A: b\x7f", HTTP_BAD, "control character in a field value"},
        {LINE "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits=\x0f", HTTP_BAD,
         "control character in a field value"}, /* B033 */
    };

    (void)state;
    check_bad(false, table, COUNT(table));
}

static void test_bad_responses(void **state)
{
    static const struct bad table[] = {
        {"\r", HTTP_BAD, "malformed HTTP version"}, /* the empty line is for requests only */
        {"I", HTTP_BAD, "malformed HTTP version"},
        {"HTTP/2 ", HTTP_BAD, "malformed HTTP version"},
        {"HTTP/2.0 ", HTTP_VERSION, "HTTP version is not 1.x"},
        {"HTTP/1.1\t", HTTP_BAD, "malformed status code"},
        {"HTTP/1.1  ", HTTP_BAD, "malformed status code"},
        {"HTTP/1.1 0", HTTP_BAD, "malformed status code"},
        {"HTTP/1.1 10 ", HTTP_BAD, "malformed status code"},
        {"HTTP/1.1 1011", HTTP_BAD, "malformed status code"},
        {"HTTP/1.1 101\n", HTTP_BAD, "LF without CR"},
        {"HTTP/1.1 101 a\n", HTTP_BAD, "LF without CR"},
        {"HTTP/1.1 101 a\x1b", HTTP_BAD, "control character in the reason phrase"},
        {"HTTP/1.1 101 a\rb", HTTP_BAD, "CR without LF"},
    };

    (void)state;
    check_bad(true, table, COUNT(table));
}

/* B033: NUL in a value. Tables of strings cannot say it. */
static void test_nul(void **state)
{
    static const char text[] = LINE "X-Nul: a\0b\r\n\r\n";
    struct head_script s;

    (void)state;
    head_script_run(&s, false, text, sizeof text - 1, &head_script_limits);
    assert_int_equal(s.result, HTTP_BAD);
    assert_int_equal(s.head.pos, strlen(text));
    head_script_end(&s);
}

/* Each of the 256 bytes in each place, against the grammar written out. */
static void test_every_byte_everywhere(void **state)
{
    static const struct {
        const char *before;
        const char *after;
        bool is_response;
        const char *good; /* besides letters and digits */
        bool high;        /* bytes above 127 */
        bool letters;
    } places[] = {
        {"G", "T / HTTP/1.1\r\n\r\n", false, "!#$%&'*+-.^_`|~", false, true},
        {"GET /", " HTTP/1.1\r\n\r\n", false, "!\"$%&'()*+,-./:;<=>?@[\\]^_`{|}~", false, true},
        {LINE "A", "b: c\r\n\r\n", false, "!#$%&'*+-.^_`|~:", false, true},
        {LINE "A: b", "c\r\n\r\n", false, "\t !\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", true, true},
        {LINE "A:", "c\r\n\r\n", false, "\t !\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", true, true},
        {"HTTP/1.1 101 ", "\r\n\r\n", true, "\t !\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", true, true},
        {"GET / HTTP", "1.1\r\n\r\n", false, "/", false, false},
    };
    struct head_script s;
    char text[64];

    (void)state;
    for (size_t i = 0; i < COUNT(places); i++) {
        for (int c = 0; c < 256; c++) {
            size_t n = strlen(places[i].before);
            bool letter =
                (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
            bool good = (letter && places[i].letters) || (c >= 128 && places[i].high) ||
                        (c != 0 && c < 128 && strchr(places[i].good, c) != NULL);

            memcpy(text, places[i].before, n);
            text[n] = (char)c;
            memcpy(text + n + 1, places[i].after, strlen(places[i].after));
            head_script_run(&s, places[i].is_response, text, n + 1 + strlen(places[i].after),
                            &head_script_limits);
            if ((s.result == HTTP_DONE) != good)
                fail_msg("place %zu, byte %d: result %d", i, c, (int)s.result);
            head_script_end(&s);
        }
    }
}

/* B021: 2000 header lines. */
static void test_too_many_fields(void **state)
{
    static char text[32768];
    size_t len = (size_t)snprintf(text, sizeof text, "%s", LINE);
    const struct http_limits limits = {32768, 100};
    struct head_script s;

    (void)state;
    for (int i = 0; i < 2000; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "H%04d: x\r\n", i);
    head_script_run(&s, false, text, len, &limits);
    assert_int_equal(s.result, HTTP_TOO_MANY);
    assert_int_equal(http_head_status(&s.head), 431);
    assert_string_equal(http_head_error_text(&s.head), "too many field lines");
    assert_int_equal(s.head.nfields, 100);
    assert_int_equal(s.head.pos, strlen(LINE) + (size_t)100 * strlen("H0000: x\r\n"));
    head_script_end(&s);
}

/* Exactly as many fields as allowed pass; the caller's array is a limit of its own. */
static void test_field_limit(void **state)
{
    static const char text[] = LINE "A: 1\r\nB: 2\r\n\r\n";
    struct http_field fields[2];
    struct http_head h;

    (void)state;
    for (uint16_t cap = 0; cap <= 2; cap++) {
        for (uint16_t max = 0; max <= 3; max++) {
            const struct http_limits limits = {1024, max};
            enum http_result expected = cap >= 2 && max >= 2 ? HTTP_DONE : HTTP_TOO_MANY;

            http_head_init(&h, false, cap > 0 ? fields : NULL, cap, &limits);
            assert_int_equal(http_head_feed(&h, (const uint8_t *)text, sizeof text - 1), expected);
            assert_int_equal(h.nfields, cap < max ? cap : max < 2 ? max : 2);
        }
    }
}

/* Every limit of bytes from none to more than enough, with 414 in the request line and 431 behind
 * it. */
static void test_byte_limit(void **state)
{
    static const char text[] = LINE "A: 1\r\n\r\n";
    const uint32_t len = sizeof text - 1;
    struct head_script s;

    (void)state;
    for (uint32_t max = 0; max <= len + 2; max++) {
        const struct http_limits limits = {max, 10};

        head_script_run(&s, false, text, len, &limits);
        if (max >= len) {
            assert_int_equal(s.result, HTTP_DONE);
        } else {
            assert_int_equal(s.result, HTTP_TOO_LONG);
            assert_int_equal(http_head_status(&s.head), max < strlen(LINE) - 1 ? 414 : 431);
            assert_int_equal(s.head.pos, max);
        }
        head_script_end(&s);
    }
}

static void test_response_too_long(void **state)
{
    const struct http_limits limits = {12, 10};
    struct head_script s;

    (void)state;
    head_script_run(&s, true, "HTTP/1.1 200 OK\r\n\r\n", 19, &limits);
    assert_int_equal(s.result, HTTP_TOO_LONG);
    assert_int_equal(http_head_status(&s.head), 431);
    head_script_end(&s);
}

/* B019: the same segments as in the case. */
static void test_segments(void **state)
{
    static const char text[] =
        "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        "Sec-WebSocket-Version: 13\r\n\r\n";
    const size_t cuts[] = {2, 77, 96, sizeof text - 3, sizeof text - 1};
    struct http_field fields[8];
    struct http_head h;
    struct guard g;

    (void)state;
    guard_open(&g, sizeof text);
    http_head_init(&h, false, fields, 8, &head_script_limits);
    for (size_t i = 0; i < COUNT(cuts); i++)
        assert_int_equal(http_head_feed(&h, guard_tail(&g, text, cuts[i]), cuts[i]),
                         i + 1 < COUNT(cuts) ? HTTP_MORE : HTTP_DONE);
    assert_int_equal(h.nfields, 5);
    guard_close(&g);
}

/* Random damage to good heads: all ways of cutting agree, whatever comes out. */
static void test_mutations(void **state)
{
    static const char good[] = "GET /a?b HTTP/1.1\r\nHost: x\r\nA:  b , c\t\r\n\r\n";
    static const char spice[] = "\r\n\t :,/*#@[]A1.\x80\x7f\0H";
    struct rng rng = {12345};
    unsigned results[HTTP_VERSION + 1] = {0};
    struct head_script s;

    (void)state;
    for (int round = 0; round < 4000; round++) {
        char text[sizeof good];
        size_t changes = rng_below(&rng, 4);

        memcpy(text, good, sizeof good);
        for (size_t i = 0; i < changes; i++)
            text[rng_below(&rng, sizeof good - 1)] = spice[rng_below(&rng, sizeof spice - 1)];
        head_script_run(&s, false, text, sizeof good - 1, &head_script_limits);
        results[s.result]++;
        head_script_end(&s);
    }
    /* The damage was neither always fatal nor never. */
    assert_true(results[HTTP_DONE] > 400 && results[HTTP_BAD] > 400);
}

static void test_find(void **state)
{
    struct head_script s;
    const struct http_field *f;

    (void)state;
    head_script_request(&s, LINE "Cookie: a\r\nHost: x\r\ncOOKIE: b\r\nCookies: c\r\n\r\n");
    f = http_find(&s.head, s.buf, "cookie", NULL);
    assert_non_null(f);
    assert_text(&s, f->value, "a");
    f = http_find(&s.head, s.buf, "COOKIE", f);
    assert_non_null(f);
    assert_text(&s, f->value, "b");
    assert_null(http_find(&s.head, s.buf, "cookie", f));
    assert_null(http_find(&s.head, s.buf, "Cook", NULL));
    assert_null(http_find(&s.head, s.buf, "", NULL));
    assert_int_equal(http_count(&s.head, s.buf, "Cookie"), 2);
    assert_int_equal(http_count(&s.head, s.buf, "Host"), 1);
    assert_int_equal(http_count(&s.head, s.buf, "Origin"), 0);
    head_script_end(&s);
    /* The Kelvin sign is not a k. */
    head_script_request(&s, LINE "A: \xe2\x84\xaa\r\n\r\n");
    assert_false(wire_text_is(http_text(s.buf, s.fields[0].value), "k"));
    head_script_end(&s);
}

static void test_status_text(void **state)
{
    (void)state;
    assert_string_equal(http_status_text(101), "Switching Protocols");
    assert_string_equal(http_status_text(426), "Upgrade Required");
    assert_string_equal(http_status_text(400), "Bad Request");
    assert_string_equal(http_status_text(403), "Forbidden");
    assert_string_equal(http_status_text(414), "URI Too Long");
    assert_string_equal(http_status_text(431), "Request Header Fields Too Large");
    assert_string_equal(http_status_text(503), "Service Unavailable");
    assert_string_equal(http_status_text(505), "HTTP Version Not Supported");
    assert_string_equal(http_status_text(299), "Unknown");
    assert_string_equal(http_status_text(-1), "Unknown");
}

static void check_date(int64_t seconds, int64_t same_as)
{
    char expected[64];
    char got[HTTP_DATE_LEN + 1];
    time_t t = (time_t)same_as;
    struct tm tm;

    /* The test runs in the C locale. */
    strftime(expected, sizeof expected, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&t, &tm));
    http_date(got, seconds);
    assert_string_equal(got, expected);
}

static void test_date(void **state)
{
    const int64_t last = INT64_C(253402300799);
    struct rng rng = {7};
    char got[HTTP_DATE_LEN + 1];

    (void)state;
    http_date(got, 784111777); /* the example of RFC 9110 5.6.7 */
    assert_string_equal(got, "Sun, 06 Nov 1994 08:49:37 GMT");
    for (int64_t day = 0; day < (int64_t)366 * 500; day++)
        check_date(day * 86400 + day % 86400, day * 86400 + day % 86400);
    for (int i = 0; i < 20000; i++) {
        int64_t t = (int64_t)(rng_next(&rng) >> 8) % last;

        check_date(t, t);
    }
    check_date(last, last);
    check_date(last + 1, last);
    check_date(INT64_MAX, last);
    check_date(-1, 0);
    check_date(INT64_MIN, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_request),
        cmocka_unit_test(test_around_the_head),
        cmocka_unit_test(test_responses),
        cmocka_unit_test(test_target_forms),
        cmocka_unit_test(test_bad_requests),
        cmocka_unit_test(test_bad_fields),
        cmocka_unit_test(test_bad_responses),
        cmocka_unit_test(test_nul),
        cmocka_unit_test(test_every_byte_everywhere),
        cmocka_unit_test(test_too_many_fields),
        cmocka_unit_test(test_field_limit),
        cmocka_unit_test(test_byte_limit),
        cmocka_unit_test(test_response_too_long),
        cmocka_unit_test(test_segments),
        cmocka_unit_test(test_mutations),
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_status_text),
        cmocka_unit_test(test_date),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
