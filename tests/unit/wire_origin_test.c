/*
 * Host, Origin and the patterns of an allow-list. Every text ends at a guard page.
 */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "guard.h"
#include "rng.h"
#include "wire/origin.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static struct guard guard;
static struct guard guard2;

static struct wire_text at_guard(struct guard *g, const char *string)
{
    size_t len = strlen(string);

    return (struct wire_text){(const char *)guard_tail(g, string, len), len};
}

static int open_guards(void **state)
{
    (void)state;
    guard_open(&guard, 1024);
    guard_open(&guard2, 1024);
    return 0;
}

static int close_guards(void **state)
{
    (void)state;
    guard_close(&guard);
    guard_close(&guard2);
    return 0;
}

static void test_hosts(void **state)
{
    static const struct {
        const char *text;
        const char *name; /* NULL: refused */
        int port;
        bool ipv6;
    } table[] = {
        {"example.com", "example.com", 0, false},
        {"Example.COM:8080", "Example.COM", 8080, false},
        {"localhost:", "localhost", 0, false}, /* RFC 3986: a port may be empty */
        {"a:00080", "a", 80, false},
        {"a:65535", "a", 65535, false},
        {"127.0.0.1:1", "127.0.0.1", 1, false},
        {"my_host-1.~x%C3%a9!$&'()*+,;=", "my_host-1.~x%C3%a9!$&'()*+,;=", 0, false},
        {"[::1]", "::1", 0, true},
        {"[2001:DB8::1]:9001", "2001:DB8::1", 9001, true},
        {"", NULL, 0, false},
        {":80", NULL, 0, false},
        {"a:0", NULL, 0, false},
        {"a:65536", NULL, 0, false},
        {"a:99999999999999999999", NULL, 0, false},
        {"a:8x", NULL, 0, false},
        {"a:-1", NULL, 0, false},
        {"a: 80", NULL, 0, false},
        {"a:80:80", NULL, 0, false},
        {"user@a", NULL, 0, false},
        {"a/b", NULL, 0, false},
        {"a b", NULL, 0, false},
        {"a%", NULL, 0, false},
        {"a%4", NULL, 0, false},
        {"a%4g", NULL, 0, false},
        {"a%g4", NULL, 0, false},
        {"a%\"0", NULL, 0, false},
        {"a%20\"", NULL, 0, false},
        {"%00", "%00", 0, false},
        {"%20%0a", "%20%0a", 0, false},
        {"a\\b", NULL, 0, false},
        {"\xe2\x84\xaa", NULL, 0, false},
        {"::1", NULL, 0, false},
        {"[::1", NULL, 0, false},
        {"[]", NULL, 0, false},
        {"[::1]x", NULL, 0, false},
        {"[::1]80", NULL, 0, false},
        {"[1.2.3.4]", NULL, 0, false},
        {"[fe80::1%25eth0]", NULL, 0, false},
        {"[v1.x]", NULL, 0, false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct wire_host host;
        bool good = wire_host_parse(&host, at_guard(&guard, table[i].text));

        if (good != (table[i].name != NULL))
            fail_msg("%s", table[i].text);
        if (!good)
            continue;
        assert_true(wire_text_equal(host.name, wire_text_of(table[i].name)));
        assert_int_equal(host.port, table[i].port);
        assert_int_equal(host.ipv6, table[i].ipv6);
    }
}

static void check_ipv6(const char *text)
{
    struct in6_addr address;
    bool expected = inet_pton(AF_INET6, text, &address) == 1;

    if (wire_ipv6_valid(at_guard(&guard, text)) != expected)
        fail_msg("%s is %s", text, expected ? "valid" : "not valid");
}

static const char *const notable_ipv6[] = {
    "::",
    "::1",
    "1::",
    "1:2:3:4:5:6:7:8",
    "1:2:3:4:5:6:7::",
    "::2:3:4:5:6:7:8",
    "1::8",
    "::ffff:1.2.3.4",
    "1:2:3:4:5:6:1.2.3.4",
    "::1.2.3.4",
    "ABCD:ef01::",
    "0000::0000",
    "",
    ":",
    ":::",
    "1",
    "1:",
    ":1",
    "1:2:3:4:5:6:7",
    "1:2:3:4:5:6:7:8:9",
    "1::2::3",
    "12345::",
    "g::",
    "1:2:3:4:5:6:7:8::",
    "::1:2:3:4:5:6:7:8",
    "1:2:3:4:5:6:7:1.2.3.4",
    "::1.2.3",
    "::1.2.3.4.5",
    "::256.2.3.4",
    "::1.2.3.256",
    "::1.2.3.4.",
    "::255.254.100.0",
    "::1000.2.3.4",
    "::0000.2.3.4",
    "::00.2.3.4",
    "::1.2.3.1000",
    "1:2:3:4:5:6:7:8:9::",
    "1:2:3:4:5:6:7:8:1.2.3.4",
    "::01.2.3.4",
    "::1.2.3.4:5",
    "::1.2.3.",
    "::.1.2.3",
    "::1..2.3",
    "1.2.3.4",
    "::1.2.3.4 ",
    "::1%lo",
    "1:2:3:4:5::1.2.3.4",
    "1:2:3:4:5:6::1.2.3.4",
    "::12345.2.3.4",
    "::a.2.3.4",
};

/* The C library as a second opinion, on addresses of note and on random text that looks like
 * them. */
static void test_ipv6(void **state)
{
    static const char *const parts[] = {":", "::", "0", "1a", "ffff", ".", "1.2.3.4", "12", ":1"};
    struct rng rng = {6};
    unsigned valid = 0;

    (void)state;
    for (size_t i = 0; i < COUNT(notable_ipv6); i++)
        check_ipv6(notable_ipv6[i]);
    for (int round = 0; round < 200000; round++) {
        char text[128] = "";
        struct in6_addr address;
        size_t n = rng_below(&rng, 18);

        for (size_t i = 0; i < n; i++)
            strcat(text, parts[i % 2 ? rng_below(&rng, 2) * 8 : rng_below(&rng, 9)]);
        check_ipv6(text);
        valid += inet_pton(AF_INET6, text, &address) == 1;
    }
    assert_true(valid > 1000);
}

static void test_origins(void **state)
{
    static const struct {
        const char *text;
        const char *scheme; /* NULL: refused */
        const char *name;
        int port;
    } table[] = {
        {"http://example.com", "http", "example.com", 80},
        {"https://example.com", "https", "example.com", 443},
        {"HTTPS://EXAMPLE.com:8443", "HTTPS", "EXAMPLE.com", 8443},
        {"http://[::1]:3000", "http", "::1", 3000},
        {"chrome-extension://abcdef", "chrome-extension", "abcdef", 0},
        {"x://a", "x", "a", 0},
        {"x1+-.y://a", "x1+-.y", "a", 0},
        {"null", NULL, NULL, 0},
        {"", NULL, NULL, 0},
        {"example.com", NULL, NULL, 0},
        {"//example.com", NULL, NULL, 0},
        {"://example.com", NULL, NULL, 0},
        {"http:example.com", NULL, NULL, 0},
        {"http:/example.com", NULL, NULL, 0},
        {"http://", NULL, NULL, 0},
        {"http://example.com/", NULL, NULL, 0},
        {"http://example.com/path", NULL, NULL, 0},
        {"http://a@example.com", NULL, NULL, 0},
        {"http://example.com http://other.example", NULL, NULL, 0},
        {"http://example.com, http://other.example", NULL, NULL, 0},
        {"http://example.com:99999", NULL, NULL, 0},
        {"1http://example.com", NULL, NULL, 0},
        {"h_p://example.com", NULL, NULL, 0},
        {"ht tp://example.com", NULL, NULL, 0},
        {"http://exam\xe2\x84\xaa"
         "le.com",
         NULL, NULL, 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct wire_origin origin;
        bool good = wire_origin_parse(&origin, at_guard(&guard, table[i].text));

        if (good != (table[i].scheme != NULL))
            fail_msg("%s", table[i].text);
        if (!good)
            continue;
        assert_true(wire_text_equal(origin.scheme, wire_text_of(table[i].scheme)));
        assert_true(wire_text_equal(origin.host.name, wire_text_of(table[i].name)));
        assert_int_equal(origin.host.port, table[i].port);
    }
}

static void test_same(void **state)
{
    static const struct {
        const char *origin;
        const char *host;
        bool tls;
        bool same;
    } table[] = {
        /* B136 */
        {"http://example.COM:8080", "Example.com:8080", false, true},
        {"https://example.com:8080", "Example.com:8080", false, false},
        {"http://example.com", "Example.com:8080", false, false},
        {"null", "Example.com:8080", false, false},
        {"http://exam\xe2\x84\xaa"
         "e.com",
         "examke.com", false, false},
        {"http://exampKe.com", "exampke.com", false, true},
        /* The port that goes without saying. */
        {"http://a", "a", false, true},
        {"http://a:80", "a", false, true},
        {"http://a", "a:80", false, true},
        {"http://a", "a:443", false, false},
        {"https://a", "a", true, true},
        {"https://a", "a:443", true, true},
        {"https://a:443", "a:", true, true},
        {"https://a", "a:80", true, false},
        {"https://a", "a", false, false},
        {"http://a", "a", true, false},
        {"http://a:443", "a", true, false},
        /* Hosts. */
        {"http://ab", "a", false, false},
        {"http://a", "ab", false, false},
        {"http://a.", "a", false, false},
        {"http://[::1]:1", "[::1]:1", false, true},
        {"http://[::A]", "[::a]", false, true},
        {"ws://a", "a", false, false},
        {"wss://a", "a", true, false},
        {"chrome-extension://a", "a", false, false},
        {"http://a", "", false, false},
        {"", "a", false, false},
        {"http://a", "a@b", false, false},
        {"http://a/", "a", false, false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++)
        if (wire_origin_same(at_guard(&guard, table[i].origin), at_guard(&guard2, table[i].host),
                             table[i].tls) != table[i].same)
            fail_msg("%s and %s, tls %d", table[i].origin, table[i].host, table[i].tls);
}

static void test_patterns(void **state)
{
    static const struct {
        const char *pattern;
        const char *origin;
        bool match;
    } table[] = {
        {"*", "https://example.com", true},
        {"*", "http://[::1]:3", true},
        {"*", "null", true},
        {"*", "nonsense", false},
        {"*", "", false},
        {"null", "null", true},
        {"null", "http://null", false},
        {"null", "Null", false}, /* no browser writes it so */
        {"https://example.com", "https://example.com", true},
        {"https://example.com", "HTTPS://Example.COM:443", true},
        {"https://example.com:443", "https://example.com", true},
        {"https://example.com", "http://example.com", false},
        {"https://example.com", "https://example.com:8443", false},
        {"https://example.com", "https://example.com.evil.example", false},
        {"https://example.com", "https://evilexample.com", false},
        {"https://example.com", "https://sub.example.com", false},
        {"https://example.com", "null", false},
        {"example.com", "https://example.com", true},
        {"example.com", "http://example.com", true},
        {"example.com", "http://example.com:8080", false},
        {"example.com:8080", "http://example.com:8080", true},
        {"example.com:8080", "https://example.com:8080", true},
        {"example.com:*", "https://example.com:1", true},
        {"example.com:*", "https://example.com", true},
        {"http://localhost:*", "http://localhost:3000", true},
        {"http://localhost:*", "https://localhost:3000", false},
        {"*.example.com", "https://a.example.com", true},
        {"*.example.com", "http://a.b.EXAMPLE.com", true},
        {"*.example.com", "https://example.com", false},
        {"*.example.com", "https://.example.com", false},
        {"*.example.com", "https://aexample.com", false},
        {"*.example.com", "https://aaexample.com", false},
        {"*.example.com", "https://[::1]", false},
        {"[::1]", "http://a", false},
        {"*.example.com", "https://a.example.com:8443", false},
        {"https://*.example.com:8443", "https://a.example.com:8443", true},
        {"https://*.example.com:8443", "https://a.example.com", false},
        {"https://*.example.com:8443", "http://a.example.com:8443", false},
        {"https://*.example.com:8443", "https://example.com:8443", false},
        {"*.k.example", "http://a.\xe2\x84\xaa.example", false},
        {"https://[2001:db8::1]", "https://[2001:DB8::1]", true},
        {"https://[2001:db8::1]", "https://[2001:db8::2]", false},
        {"[::1]:*", "http://[::1]:3000", true},
        {"chrome-extension://abc", "chrome-extension://abc", true},
        {"abc", "chrome-extension://abc", true},
        {"chrome-extension://abc", "chrome-extension://abd", false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        assert_true(wire_origin_pattern_valid(at_guard(&guard2, table[i].pattern)));
        if (wire_origin_matches(at_guard(&guard, table[i].origin),
                                at_guard(&guard2, table[i].pattern)) != table[i].match)
            fail_msg("%s against %s", table[i].origin, table[i].pattern);
    }
}

/* A pattern that can never match is told, not kept in silence. */
static void test_malformed_patterns(void **state)
{
    static const char *const bad[] = {
        "",
        "*.",
        "**",
        "*.*.example",
        "a.*.example",
        "ex*mple.com",
        "https://*",
        "https://",
        "https://example.com/",
        "example.com/x",
        "example.com:x",
        "example.com:0",
        "example.com:1*",
        "*.[::1]",
        "https:example.com",
        "a b",
        "://a",
        "example.com:*:*",
        "example.com:1:*",
        "*:80",
    };

    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++) {
        if (wire_origin_pattern_valid(at_guard(&guard2, bad[i])))
            fail_msg("%s", bad[i]);
        assert_false(
            wire_origin_matches(wire_text_of("https://example.com"), at_guard(&guard2, bad[i])));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts),    cmocka_unit_test(test_ipv6),
        cmocka_unit_test(test_origins),  cmocka_unit_test(test_same),
        cmocka_unit_test(test_patterns), cmocka_unit_test(test_malformed_patterns),
    };

    return cmocka_run_group_tests(tests, open_guards, close_guards);
}
