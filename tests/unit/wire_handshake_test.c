/*
 * The server's side of the opening handshake: what a request is judged to be, and what is
 * answered. The names B... are cases of the handed list.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "head_script.h"
#include "wire/handshake.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

#define START "GET / HTTP/1.1\r\nHost: localhost:9001\r\n"
#define UPGRADE "Upgrade: websocket\r\n"
#define CONNECTION "Connection: Upgrade\r\n"
#define KEY "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
#define VERSION "Sec-WebSocket-Version: 13\r\n"
#define GOOD START UPGRADE CONNECTION KEY VERSION

static void examine(struct head_script *s, const char *text, struct handshake_request *r)
{
    head_script_request(s, text);
    memset(r, 0xa5, sizeof *r);
    handshake_examine(&s->head, s->buf, r);
}

static void assert_text(struct wire_text text, const char *expected)
{
    if (!wire_text_equal(text, wire_text_of(expected)))
        fail_msg("got \"%.*s\" instead of \"%s\"", (int)text.len, text.at, expected);
}

/* RFC 6455 1.3. */
static void test_accept_key(void **state)
{
    const uint8_t nonce[16] = {'t', 'h', 'e', ' ', 's', 'a', 'm', 'p',
                               'l', 'e', ' ', 'n', 'o', 'n', 'c', 'e'};
    char key[HANDSHAKE_KEY_LEN];
    char accept[HANDSHAKE_ACCEPT_LEN];

    (void)state;
    handshake_key(key, nonce);
    assert_memory_equal(key, "dGhlIHNhbXBsZSBub25jZQ==", sizeof key);
    handshake_accept(accept, key);
    assert_memory_equal(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", sizeof accept);
}

static void test_upgrades(void **state)
{
    static const char *const good[] = {
        GOOD "\r\n",
        /* B001 */
        START UPGRADE KEY VERSION "Connection: keep-alive, Upgrade\r\n\r\n",
        /* B003 */
        START UPGRADE KEY VERSION "Connection: Upgrade,Keep-Alive\r\n\r\n",
        START UPGRADE KEY VERSION "Connection: ,, upgrade\r\n\r\n",
        /* B005 */
        START "Upgrade: WebSocket\r\nConnection: uPGRADE\r\n" KEY VERSION "\r\n",
        START UPGRADE KEY VERSION "Connection: keep-alive\r\nConnection: upgrade\r\n\r\n",
        START CONNECTION KEY VERSION "Upgrade: h2c, websocket\r\n\r\n",
        GOOD "Content-Length: 0\r\n\r\n",
        GOOD "Origin: null\r\n\r\n",
        GOOD "Sec-WebSocket-Protocol: chat, superchat\r\nSec-WebSocket-Protocol: x\r\n\r\n",
        GOOD "Sec-WebSocket-Protocol:\r\n\r\n",
        GOOD "Sec-WebSocket-Extensions:\r\n\r\n",
        /* B031: unknown extensions are no fault */
        GOOD "Sec-WebSocket-Extensions: constructor\r\n\r\n",
        GOOD "Sec-WebSocket-Extensions: __proto__; a=1\r\n\r\n",
        GOOD "Sec-WebSocket-Extensions: ,,,\r\n\r\n",
        "GET /x?y HTTP/1.2\r\nhost:h\r\nupgrade:websocket\r\nconnection:upgrade\r\n" KEY VERSION
        "\r\n",
    };
    struct head_script s;
    struct handshake_request r;

    (void)state;
    for (size_t i = 0; i < COUNT(good); i++) {
        examine(&s, good[i], &r);
        if (r.verdict != HANDSHAKE_UPGRADE || r.status != 101)
            fail_msg("%s: %s", good[i], r.why);
        assert_text(r.key, "dGhlIHNhbXBsZSBub25jZQ==");
        assert_text(r.method, "GET");
        assert_false(r.is_head);
        head_script_end(&s);
    }
}

struct refusal {
    const char *text;
    enum handshake_verdict verdict;
    int status;
};

#define H1_0 "GET / HTTP/1.0\r\n"

static const struct refusal refusals[] = {
    /* B009 and its kin */
    {START "Host: other.example\r\n" UPGRADE CONNECTION KEY VERSION, HANDSHAKE_BAD_HOST, 400},
    {START "Host: localhost:9001\r\n", HANDSHAKE_BAD_HOST, 400},
    {"GET / HTTP/1.1\r\n" UPGRADE CONNECTION KEY VERSION, HANDSHAKE_BAD_HOST, 400},
    {"GET / HTTP/1.1\r\n", HANDSHAKE_BAD_HOST, 400},
    {"GET / HTTP/1.1\r\nHost:\r\n" UPGRADE CONNECTION KEY VERSION, HANDSHAKE_BAD_HOST, 400},
    {"GET / HTTP/1.1\r\nHost: a b\r\n" UPGRADE CONNECTION KEY VERSION, HANDSHAKE_BAD_HOST, 400},
    {"GET / HTTP/1.1\r\nHost: a/b\r\n", HANDSHAKE_BAD_HOST, 400},
    {"GET / HTTP/1.1\r\nHost: a, b\r\n", HANDSHAKE_BAD_HOST, 400},
    {"GET / HTTP/1.1\r\nHost: @\r\n", HANDSHAKE_BAD_HOST, 400},
    {"GET http://a:x/ HTTP/1.1\r\nHost: a\r\n", HANDSHAKE_BAD_HOST, 400},
    {"GET http://u@a/ HTTP/1.1\r\nHost: a\r\n", HANDSHAKE_BAD_HOST, 400},
    /* B011 */
    {"POST / HTTP/1.1\r\nHost: h\r\n" UPGRADE CONNECTION KEY VERSION "Content-Length: 0\r\n",
     HANDSHAKE_BAD_METHOD, 405},
    {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n", HANDSHAKE_BAD_METHOD, 405},
    {"HEAD / HTTP/1.1\r\nHost: h\r\n" UPGRADE CONNECTION KEY VERSION, HANDSHAKE_BAD_METHOD, 405},
    {"get / HTTP/1.1\r\nHost: h\r\n", HANDSHAKE_BAD_METHOD, 405},
    {"OPTIONS * HTTP/1.1\r\nHost: h\r\n", HANDSHAKE_BAD_METHOD, 405},
    {"CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n", HANDSHAKE_BAD_METHOD, 405},
    /* B027: body bytes are never frames */
    {GOOD "Content-Length: 14\r\n", HANDSHAKE_BAD_BODY, 400},
    {GOOD "Content-Length: 0\r\nContent-Length: 0\r\n", HANDSHAKE_BAD_BODY, 400},
    {GOOD "Content-Length: 0, 14\r\n", HANDSHAKE_BAD_BODY, 400},
    {GOOD "Content-Length: -0\r\n", HANDSHAKE_BAD_BODY, 400},
    {GOOD "Content-Length:\r\n", HANDSHAKE_BAD_BODY, 400},
    {GOOD "Transfer-Encoding: chunked\r\n", HANDSHAKE_BAD_BODY, 400},
    {GOOD "Transfer-Encoding: identity\r\n", HANDSHAKE_BAD_BODY, 400},
    {START "Content-Length: 1\r\n", HANDSHAKE_BAD_BODY, 400},
    /* HTTP/1.0 */
    {H1_0 "Host: h\r\n" UPGRADE CONNECTION KEY VERSION, HANDSHAKE_BAD_HTTP, 426},
    {H1_0 UPGRADE CONNECTION KEY VERSION, HANDSHAKE_BAD_HTTP, 426},
    /* Upgrade */
    {START CONNECTION KEY VERSION, HANDSHAKE_BAD_UPGRADE, 426},
    {START KEY VERSION, HANDSHAKE_BAD_UPGRADE, 426},
    {START VERSION, HANDSHAKE_BAD_UPGRADE, 426},
    {START "Upgrade: websockets\r\n" CONNECTION KEY VERSION, HANDSHAKE_BAD_UPGRADE, 426},
    {START "Upgrade: websocket/13\r\n" CONNECTION KEY VERSION, HANDSHAKE_BAD_UPGRADE, 426},
    {START "Upgrade: h2c\r\n" CONNECTION KEY VERSION, HANDSHAKE_BAD_UPGRADE, 426},
    /* B007 */
    {START UPGRADE "Connection: keep-alive\r\n" KEY VERSION, HANDSHAKE_BAD_CONNECTION, 426},
    {START UPGRADE "Connection: upgrader\r\n" KEY VERSION, HANDSHAKE_BAD_CONNECTION, 426},
    {START UPGRADE KEY VERSION, HANDSHAKE_BAD_CONNECTION, 426},
    {START UPGRADE, HANDSHAKE_BAD_CONNECTION, 426},
    /* B017 and other versions */
    {START UPGRADE CONNECTION KEY, HANDSHAKE_BAD_VERSION, 400},
    {GOOD VERSION, HANDSHAKE_BAD_VERSION, 400},
    {START UPGRADE CONNECTION KEY "Sec-WebSocket-Version:\r\n", HANDSHAKE_BAD_VERSION, 400},
    {START UPGRADE CONNECTION KEY "Sec-WebSocket-Version: 013\r\n", HANDSHAKE_BAD_VERSION, 400},
    {START UPGRADE CONNECTION KEY "Sec-WebSocket-Version: 13, 8\r\n", HANDSHAKE_BAD_VERSION, 400},
    {START UPGRADE CONNECTION KEY "Sec-WebSocket-Version: 1a\r\n", HANDSHAKE_BAD_VERSION, 400},
    {START UPGRADE CONNECTION KEY "Sec-WebSocket-Version: 256\r\n", HANDSHAKE_BAD_VERSION, 400},
    {START UPGRADE CONNECTION KEY "Sec-WebSocket-Version: 1300\r\n", HANDSHAKE_BAD_VERSION, 400},
    {START UPGRADE CONNECTION KEY "Sec-WebSocket-Version: 8\r\n", HANDSHAKE_OTHER_VERSION, 426},
    {START UPGRADE CONNECTION KEY "Sec-WebSocket-Version: 14\r\n", HANDSHAKE_OTHER_VERSION, 426},
    {START UPGRADE CONNECTION KEY "Sec-WebSocket-Version: 255\r\n", HANDSHAKE_OTHER_VERSION, 426},
    {START UPGRADE CONNECTION KEY "Sec-WebSocket-Version: 03\r\n", HANDSHAKE_BAD_VERSION, 400},
    {START UPGRADE CONNECTION KEY "Sec-WebSocket-Version: 1000\r\n", HANDSHAKE_BAD_VERSION, 400},
    {START UPGRADE CONNECTION "Sec-WebSocket-Version: 0\r\n", HANDSHAKE_OTHER_VERSION, 426},
    /* B013 and the rest of what a key is not */
    {START UPGRADE CONNECTION VERSION "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZjEy\r\n",
     HANDSHAKE_BAD_KEY, 400},
    {START UPGRADE CONNECTION VERSION "Sec-WebSocket-Key: dGhlIHN!bXBsZSBub25jZQ==\r\n",
     HANDSHAKE_BAD_KEY, 400},
    {START UPGRADE CONNECTION VERSION "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2Rl\r\n",
     HANDSHAKE_BAD_KEY, 400},
    {START UPGRADE CONNECTION VERSION "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZR==\r\n",
     HANDSHAKE_BAD_KEY, 400}, /* bits left over */
    {START UPGRADE CONNECTION VERSION "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ\r\n",
     HANDSHAKE_BAD_KEY, 400},
    {START UPGRADE CONNECTION VERSION "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZXM=\r\n",
     HANDSHAKE_BAD_KEY, 400}, /* 17 bytes */
    {START UPGRADE CONNECTION VERSION "Sec-WebSocket-Key:\r\n", HANDSHAKE_BAD_KEY, 400},
    {START UPGRADE CONNECTION VERSION, HANDSHAKE_BAD_KEY, 400},
    /* B015 */
    {GOOD "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n", HANDSHAKE_BAD_KEY, 400},
    {GOOD KEY, HANDSHAKE_BAD_KEY, 400},
    /* Lists */
    {GOOD "Sec-WebSocket-Protocol: a, b, a\r\n", HANDSHAKE_BAD_PROTOCOLS, 400},
    {GOOD "Sec-WebSocket-Protocol: a\r\nSec-WebSocket-Protocol: a\r\n", HANDSHAKE_BAD_PROTOCOLS,
     400},
    {GOOD "Sec-WebSocket-Protocol: a b\r\n", HANDSHAKE_BAD_PROTOCOLS, 400},
    {GOOD "Sec-WebSocket-Protocol: \"a\"\r\n", HANDSHAKE_BAD_PROTOCOLS, 400},
    {GOOD "Sec-WebSocket-Protocol: a, \"\r\n", HANDSHAKE_BAD_PROTOCOLS, 400},
    /* B031 */
    {GOOD "Sec-WebSocket-Extensions: ;;;\r\n", HANDSHAKE_BAD_EXTENSIONS, 400},
    {GOOD "Sec-WebSocket-Extensions: permessage-deflate; =8\r\n", HANDSHAKE_BAD_EXTENSIONS, 400},
    {GOOD "Sec-WebSocket-Extensions: permessage-deflate; a=\"\r\n", HANDSHAKE_BAD_EXTENSIONS, 400},
    {GOOD "Origin: http://a\r\nOrigin: http://b\r\n", HANDSHAKE_BAD_ORIGIN, 400},
};

static void test_refusals(void **state)
{
    struct head_script s;
    struct handshake_request r;
    char text[1024];

    (void)state;
    for (size_t i = 0; i < COUNT(refusals); i++) {
        snprintf(text, sizeof text, "%s\r\n", refusals[i].text);
        examine(&s, text, &r);
        if (r.verdict != refusals[i].verdict || r.status != refusals[i].status)
            fail_msg("%s: got %d, %d, %s", text, (int)r.verdict, r.status, r.why);
        assert_true(strlen(r.why) > 10);
        head_script_end(&s);
    }
}

/* B013: 4000 times A as the key. B031: 200 extensions. Subprotocols beyond the bound. */
static void test_long_values(void **state)
{
    static char text[16384];
    struct head_script s;
    struct handshake_request r;
    size_t len = (size_t)snprintf(text, sizeof text,
                                  "%sSec-WebSocket-Key: ", START UPGRADE CONNECTION VERSION);

    (void)state;
    memset(text + len, 'A', 4000);
    strcpy(text + len + 4000, "\r\n\r\n");
    examine(&s, text, &r);
    assert_int_equal(r.verdict, HANDSHAKE_BAD_KEY);
    head_script_end(&s);

    len = (size_t)snprintf(text, sizeof text, "%sSec-WebSocket-Extensions: ", GOOD);
    for (int i = 0; i < 200; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "x-e%d; p=%d,", i, i);
    strcpy(text + len, "\r\n\r\n");
    examine(&s, text, &r);
    assert_int_equal(r.verdict, HANDSHAKE_BAD_EXTENSIONS);
    head_script_end(&s);

    for (int n = HANDSHAKE_PROTOCOLS_MAX; n <= HANDSHAKE_PROTOCOLS_MAX + 1; n++) {
        len = (size_t)snprintf(text, sizeof text, "%sSec-WebSocket-Protocol: ", GOOD);
        for (int i = 0; i < n; i++)
            len += (size_t)snprintf(text + len, sizeof text - len, "p%d,", i);
        strcpy(text + len, "\r\n\r\n");
        examine(&s, text, &r);
        assert_int_equal(r.status, n <= HANDSHAKE_PROTOCOLS_MAX ? 101 : 400);
        assert_int_equal(r.verdict, n <= HANDSHAKE_PROTOCOLS_MAX ? HANDSHAKE_UPGRADE
                                                                 : HANDSHAKE_BAD_PROTOCOLS);
        head_script_end(&s);
    }
}

/* B035 and the health checks of proxies. */
static void test_plain(void **state)
{
    static const struct {
        const char *text;
        bool is_head;
        const char *host;
    } table[] = {
        {"GET / HTTP/1.1\r\nHost: h:1\r\n\r\n", false, "h:1"},
        {"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n", true, "h"},
        {"GET / HTTP/1.0\r\n\r\n", false, ""},
        {"HEAD / HTTP/1.0\r\nHost: h\r\n\r\n", true, "h"},
        {"GET / HTTP/1.1\r\nHost:\r\n\r\n", false, ""},
        {"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
         "HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
         false, "h"},
        {"GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\n\r\n", false, "h"},
    };
    struct head_script s;
    struct handshake_request r;

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        examine(&s, table[i].text, &r);
        if (r.verdict != HANDSHAKE_PLAIN || r.status != 426)
            fail_msg("%s: %s", table[i].text, r.why);
        assert_int_equal(r.is_head, table[i].is_head);
        assert_text(r.host, table[i].host);
        head_script_end(&s);
    }
}

static void test_parts(void **state)
{
    static const struct {
        const char *line;
        const char *path;
        const char *query;
        const char *host;
    } table[] = {
        {"GET /", "/", "", "h:1"},
        {"GET /a/b?c=d?e", "/a/b", "c=d?e", "h:1"},
        {"GET /a?", "/a", "", "h:1"},
        {"GET /a:b//c", "/a:b//c", "", "h:1"},
        {"GET http://other.example:8/x?y", "/x", "y", "other.example:8"},
        {"GET http://other.example?y/z", "/", "y/z", "other.example"},
        {"GET ws://[::1]", "/", "", "[::1]"},
    };
    struct head_script s;
    struct handshake_request r;
    char text[256];

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        snprintf(text, sizeof text, "%s HTTP/1.1\r\nHost: h:1\r\nOrigin: http://h\r\n\r\n",
                 table[i].line);
        examine(&s, text, &r);
        assert_int_equal(r.verdict, HANDSHAKE_PLAIN);
        assert_text(r.path, table[i].path);
        assert_text(r.query, table[i].query);
        assert_text(r.host, table[i].host);
        assert_text(r.origin, "http://h");
        head_script_end(&s);
    }
    examine(&s, START "\r\n", &r);
    assert_null(r.origin.at);
    head_script_end(&s);
}

/* B136, from the request to the answer of the comparison. */
static void test_origin_of_request(void **state)
{
    struct head_script s;
    struct handshake_request r;

    (void)state;
    examine(&s,
            "GET / HTTP/1.1\r\nHost: Example.com:8080\r\n" UPGRADE CONNECTION KEY VERSION
            "Origin: http://example.COM:8080\r\n\r\n",
            &r);
    assert_int_equal(r.verdict, HANDSHAKE_UPGRADE);
    assert_true(wire_origin_same(r.origin, r.host, false));
    assert_false(wire_origin_same(r.origin, r.host, true));
    head_script_end(&s);
}

static void test_choice(void **state)
{
    static const char *const supported[] = {"v2", "v1", "V3"};
    static const struct {
        const char *lines;
        int choice;
    } table[] = {
        {"Sec-WebSocket-Protocol: v1, v2\r\n", 0}, /* the server's order */
        {"Sec-WebSocket-Protocol: v1\r\n", 1},
        {"Sec-WebSocket-Protocol: x\r\nSec-WebSocket-Protocol: V3\r\n", 2},
        {"Sec-WebSocket-Protocol: v3, V1\r\n", -1}, /* names have a case */
        {"Sec-WebSocket-Protocol: v\r\n", -1},
        {"Sec-WebSocket-Protocol: v22\r\n", -1},
        {"Sec-WebSocket-Protocol:\r\n", -1},
        {"", -1}, /* B029, B134 */
    };
    struct head_script s;
    struct handshake_request r;
    char text[512];

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        snprintf(text, sizeof text, "%s%s\r\n", GOOD, table[i].lines);
        examine(&s, text, &r);
        assert_int_equal(r.verdict, HANDSHAKE_UPGRADE);
        assert_int_equal(handshake_choose_protocol(&s.head, s.buf, supported, 3), table[i].choice);
        assert_int_equal(handshake_choose_protocol(&s.head, s.buf, NULL, 0), -1);
        head_script_end(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accept_key),
        cmocka_unit_test(test_upgrades),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_long_values),
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_origin_of_request),
        cmocka_unit_test(test_choice),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
