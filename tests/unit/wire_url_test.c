/*
 * ws:, wss: and ws+unix: addresses, RFC 6455 section 3 and RFC 3986. Every text ends at a guard
 * page.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "guard.h"
#include "rng.h"
#include "wire/url.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static struct guard guard;

static int open_guard(void **state)
{
    (void)state;
    guard_open(&guard, WIRE_URL_MAX + 1);
    return 0;
}

static int close_guard(void **state)
{
    (void)state;
    guard_close(&guard);
    return 0;
}

static enum wire_url_error parse(struct wire_url *url, const char *string)
{
    size_t len = strlen(string);

    return wire_url_parse(url,
                          (struct wire_text){(const char *)guard_tail(&guard, string, len), len});
}

typedef size_t writer(const struct wire_url *url, char *out, size_t cap);

static void assert_writes(const struct wire_url *url, writer *write, const char *expected)
{
    char got[256];
    size_t len = strlen(expected);

    assert_int_equal(write(url, got, sizeof got), len);
    assert_memory_equal(got, expected, len);
    /* With too little room it tells the same length and writes nothing behind the room. */
    for (size_t cap = 0; cap < len; cap++) {
        memset(got, '#', sizeof got);
        assert_int_equal(write(url, cap > 0 ? got : NULL, cap), len);
        assert_memory_equal(got, expected, cap);
        assert_int_equal(got[cap], '#');
    }
}

static void test_network(void **state)
{
    static const struct {
        const char *text;
        bool tls;
        const char *name;
        int port;
        const char *host; /* the Host header */
        const char *authority;
        const char *target;
    } table[] = {
        {"ws://h", false, "h", 80, "h", "h:80", "/"},         /* B164, B185 */
        {"ws://h?x=1", false, "h", 80, "h", "h:80", "/?x=1"}, /* B164 */
        {"wss://h/", true, "h", 443, "h", "h:443", "/"},      /* B185 */
        {"ws://localhost:9000/", false, "localhost", 9000, "localhost:9000", "localhost:9000",
         "/"},                                                                     /* B162 */
        {"ws://[::1]:9001/", false, "::1", 9001, "[::1]:9001", "[::1]:9001", "/"}, /* B160, B185 */
        {"wss://[2001:db8::1]", true, "2001:db8::1", 443, "[2001:db8::1]", "[2001:db8::1]:443",
         "/"},
        {"ws://h:80", false, "h", 80, "h", "h:80", "/"},
        {"wss://h:443", true, "h", 443, "h", "h:443", "/"},
        {"wss://h:80", true, "h", 80, "h:80", "h:80", "/"},
        {"ws://h:443", false, "h", 443, "h:443", "h:443", "/"},
        {"ws://h:/", false, "h", 80, "h", "h:80", "/"},
        {"WSS://Example.COM/A/b?C", true, "Example.COM", 443, "Example.COM", "Example.COM:443",
         "/A/b?C"},
        {"ws://127.0.0.1:65535/a//b/../c;d=e,f", false, "127.0.0.1", 65535, "127.0.0.1:65535",
         "127.0.0.1:65535", "/a//b/../c;d=e,f"},
        {"ws://h/%20%c3%A9%00?q=a?b/c@d:e[]", false, "h", 80, "h", "h:80",
         "/%20%c3%A9%00?q=a?b/c@d:e[]"},
        {"ws://h/~?", false, "h", 80, "h", "h:80", "/~?"},
        {"ws://my_host-1.example./x", false, "my_host-1.example.", 80, "my_host-1.example.",
         "my_host-1.example.:80", "/x"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct wire_url url;

        if (parse(&url, table[i].text) != WIRE_URL_OK)
            fail_msg("%s", table[i].text);
        assert_int_equal(url.tls, table[i].tls);
        assert_false(url.is_unix);
        assert_false(url.has_userinfo);
        assert_true(wire_text_equal(url.host.name, wire_text_of(table[i].name)));
        assert_int_equal(url.host.port, table[i].port);
        assert_int_equal(url.host.ipv6, strchr(table[i].name, ':') != NULL);
        assert_writes(&url, wire_url_host, table[i].host);
        assert_writes(&url, wire_url_authority, table[i].authority);
        assert_writes(&url, wire_url_target, table[i].target);
    }
}

static const struct {
    const char *text;
    enum wire_url_error error;
} errors[] = {
    {"", WIRE_URL_SCHEME},
    {"ws", WIRE_URL_SCHEME},
    {"ws:", WIRE_URL_SCHEME},
    {"ws:/h", WIRE_URL_SCHEME},
    {"//h", WIRE_URL_SCHEME},
    {"h:80", WIRE_URL_SCHEME},
    {"http://h", WIRE_URL_SCHEME},
    {"https://h", WIRE_URL_SCHEME},
    {"wsx://h", WIRE_URL_SCHEME},
    {"wssx://h", WIRE_URL_SCHEME},
    {"ws+unixx:/h", WIRE_URL_SCHEME},
    {"ws://h/a#f", WIRE_URL_FRAGMENT}, /* B164 */
    {"ws://h#", WIRE_URL_FRAGMENT},
    {"ws://h/a b", WIRE_URL_CHARACTER},
    {" ws://h", WIRE_URL_CHARACTER},
    {"ws://h/\r\nX-Evil: 1", WIRE_URL_CHARACTER},
    {"ws://h/\t", WIRE_URL_CHARACTER},
    {"ws://h/\x7f", WIRE_URL_CHARACTER},
    {"ws://h/\xc3\xa9", WIRE_URL_CHARACTER},
    {"ws://\xe2\x84\xaa/", WIRE_URL_CHARACTER},
    {"ws://h\\a", WIRE_URL_CHARACTER},
    {"ws://h/\"", WIRE_URL_CHARACTER},
    {"ws://h/?<a>", WIRE_URL_CHARACTER},
    {"ws://h/%", WIRE_URL_ESCAPE},
    {"ws://h/%4", WIRE_URL_ESCAPE},
    {"ws://h/%4g", WIRE_URL_ESCAPE},
    {"ws://h/?%%20", WIRE_URL_ESCAPE},
    {"ws://", WIRE_URL_HOST},
    {"ws:///path", WIRE_URL_HOST},
    {"ws://?q", WIRE_URL_HOST},
    {"ws://:80/", WIRE_URL_HOST},
    {"ws://a%20b/", WIRE_URL_HOST},
    {"ws://a,b/", WIRE_URL_HOST},
    {"ws://!/", WIRE_URL_HOST},
    {"ws://::1/", WIRE_URL_HOST},
    {"ws://[::1/", WIRE_URL_HOST},
    {"ws://[::x]/", WIRE_URL_HOST},
    {"ws://[fe80::1%25eth0]/", WIRE_URL_HOST},
    {"ws://[::1]x/", WIRE_URL_HOST},
    {"ws://h:0/", WIRE_URL_PORT},
    {"ws://h:65536/", WIRE_URL_PORT},
    {"ws://h:99999999999/", WIRE_URL_PORT},
    {"ws://h:http/", WIRE_URL_PORT},
    {"ws://h:80x/", WIRE_URL_PORT},
    {"ws://[::1]:/x:0", WIRE_URL_OK},
    {"ws://[::1]:0/", WIRE_URL_PORT},
    {"ws://a@b@h/", WIRE_URL_USERINFO},
    {"ws://a%3Ab@h/", WIRE_URL_USERINFO},
    {"ws://[a]@h/", WIRE_URL_USERINFO},
    {"ws://a%0d%0ab@h/", WIRE_URL_ESCAPE},
    {"ws://a:b%00@h/", WIRE_URL_ESCAPE},
    {"ws://a:b%7f@h/", WIRE_URL_ESCAPE},
    {"ws://u@/", WIRE_URL_HOST},
};

static void test_errors(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(errors); i++) {
        struct wire_url url;
        enum wire_url_error error = parse(&url, errors[i].text);

        if (error != errors[i].error)
            fail_msg("%s: %s", errors[i].text, wire_url_error_text(error));
    }
    for (int e = WIRE_URL_OK; e <= WIRE_URL_UNIX_PATH; e++)
        assert_true(strlen(wire_url_error_text((enum wire_url_error)e)) > 5);
}

static void assert_decodes(struct wire_text text, const char *expected)
{
    char got[WIRE_URL_MAX];

    assert_int_equal(wire_url_decode(text, got, sizeof got), strlen(expected));
    assert_memory_equal(got, expected, strlen(expected));
}

static void test_userinfo(void **state)
{
    static const struct {
        const char *text;
        const char *user;
        const char *password;
    } table[] = {
        {"ws://user@h", "user", ""},
        {"ws://user:@h", "user", ""},
        {"ws://:secret@h", "", "secret"},
        {"ws://@h", "", ""},
        {"wss://us%65r:p%40ss:w%2Ford%25@h:1/x@y", "user", "p@ss:w/ord%"},
        {"ws://%C3%a9:%e2%82%ac@[::1]/", "\xc3\xa9", "\xe2\x82\xac"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct wire_url url;

        assert_int_equal(parse(&url, table[i].text), WIRE_URL_OK);
        assert_true(url.has_userinfo);
        assert_decodes(url.user, table[i].user);
        assert_decodes(url.password, table[i].password);
    }
}

static void test_unix(void **state)
{
    static const struct {
        const char *text;
        bool tls;
        const char *path;
        const char *target;
    } table[] = {
        {"ws+unix:/run/x.sock", false, "/run/x.sock", "/"},
        {"ws+unix:/run/x.sock:/chat?a=b:c", false, "/run/x.sock", "/chat?a=b:c"},
        {"ws+unix:///run/x.sock:/chat:1", false, "/run/x.sock", "/chat:1"},
        {"wss+unix:/run/x.sock:", true, "/run/x.sock", "/"},
        {"WS+UNIX:/run/x.sock:?a", false, "/run/x.sock", "/?a"},
        {"ws+unix:/run/x.sock?a", false, "/run/x.sock", "/?a"},
        {"ws+unix:/run/a%3Ab%20c@d:/", false, "/run/a:b c@d", "/"},
    };
    static const struct {
        const char *text;
        enum wire_url_error error;
    } bad[] = {
        {"ws+unix:", WIRE_URL_UNIX_PATH},       {"ws+unix:run/x.sock", WIRE_URL_UNIX_PATH},
        {"ws+unix:://", WIRE_URL_UNIX_PATH},    {"ws+unix://host/x.sock", WIRE_URL_UNIX_PATH},
        {"ws+unix:/a:b", WIRE_URL_CHARACTER},   {"ws+unix:/a%00b", WIRE_URL_ESCAPE},
        {"ws+unix:/a:/b#c", WIRE_URL_FRAGMENT},
    };
    struct wire_url url;

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        if (parse(&url, table[i].text) != WIRE_URL_OK)
            fail_msg("%s", table[i].text);
        assert_true(url.is_unix);
        assert_true(url.default_port);
        assert_int_equal(url.tls, table[i].tls);
        assert_decodes(url.unix_path, table[i].path);
        assert_writes(&url, wire_url_target, table[i].target);
        assert_writes(&url, wire_url_host, "localhost");
    }
    for (size_t i = 0; i < COUNT(bad); i++)
        if (parse(&url, bad[i].text) != bad[i].error)
            fail_msg("%s", bad[i].text);
}

/* Builds prefix, n times x, suffix. */
static const char *stretched(const char *prefix, size_t n, const char *suffix)
{
    static char text[WIRE_URL_MAX + 64];

    memset(text, 'x', sizeof text);
    memcpy(text, prefix, strlen(prefix));
    memcpy(text + strlen(prefix) + n, suffix, strlen(suffix) + 1);
    return text;
}

static void test_lengths(void **state)
{
    struct wire_url url;

    (void)state;
    assert_int_equal(parse(&url, stretched("ws://h/", WIRE_URL_MAX - 7, "")), WIRE_URL_OK);
    assert_int_equal(parse(&url, stretched("ws://h/", WIRE_URL_MAX - 6, "")), WIRE_URL_TOO_LONG);
    assert_int_equal(parse(&url, stretched("ws://", WIRE_URL_HOST_MAX, "/")), WIRE_URL_OK);
    assert_int_equal(parse(&url, stretched("ws://", WIRE_URL_HOST_MAX + 1, "/")), WIRE_URL_HOST);
    assert_int_equal(parse(&url, stretched("ws+unix:/%41", WIRE_UNIX_PATH_MAX - 2, ":/")),
                     WIRE_URL_OK);
    assert_int_equal(parse(&url, stretched("ws+unix:/%41", WIRE_UNIX_PATH_MAX - 1, ":/")),
                     WIRE_URL_UNIX_PATH);
}

/* What passes is fit for a request line, whatever it was made of. */
static void test_random(void **state)
{
    static const char *const parts[] = {"ws", "wss", "+unix", ":",   "//",  "/",    "?",
                                        "#",  "@",   "[",     "]",   "::1", "h",    ".",
                                        "80", "%4",  "%41",   "%00", " ",   "\r\n", "\xc3"};
    struct rng rng = {3986};
    unsigned passed = 0;

    (void)state;
    for (int round = 0; round < 200000; round++) {
        char text[128];
        char out[256];
        struct wire_url url;
        size_t n = rng_below(&rng, 8);

        strcpy(text, rng_below(&rng, 4) ? "ws://" : "ws+unix:/");
        for (size_t i = 0; i < n; i++)
            strcat(text, parts[rng_below(&rng, COUNT(parts))]);
        if (parse(&url, text) != WIRE_URL_OK)
            continue;
        passed++;

        size_t len = wire_url_target(&url, out, sizeof out);

        assert_int_equal(out[0], '/');
        len += wire_url_host(&url, out + len, sizeof out - len);
        for (size_t i = 0; i < len; i++)
            assert_true(out[i] > ' ' && out[i] < 127 && out[i] != '#');
    }
    assert_true(passed > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_network),  cmocka_unit_test(test_errors),
        cmocka_unit_test(test_userinfo), cmocka_unit_test(test_unix),
        cmocka_unit_test(test_lengths),  cmocka_unit_test(test_random),
    };

    return cmocka_run_group_tests(tests, open_guard, close_guard);
}
