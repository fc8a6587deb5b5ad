/*
 * The client's side of the opening handshake: the request it writes, and its verdict on the answer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "head_script.h"
#include "wire/handshake.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const char key[] = "dGhlIHNhbXBsZSBub25jZQ==";

static struct wire_url url_of(const char *text)
{
    struct wire_url url;

    assert_int_equal(wire_url_parse(&url, wire_text_of(text)), WIRE_URL_OK);
    return url;
}

/* With room for everything, and with every smaller room ending at a guard page. */
static void assert_requests(const struct handshake_offer *offer, const char *expected)
{
    size_t len = strlen(expected);
    struct guard g;

    guard_open(&g, len);
    for (size_t cap = 0; cap <= len; cap++) {
        char *out = (char *)guard_tail(&g, NULL, cap);

        assert_int_equal(handshake_write_request(out, cap, offer), len);
        if (memcmp(out, expected, cap) != 0)
            fail_msg("got %.*s instead of %s", (int)cap, out, expected);
    }
    guard_close(&g);
}

#define TAIL                                                                                       \
    "Upgrade: websocket\r\nConnection: Upgrade\r\n"                                                \
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"

static void test_request_lines(void **state)
{
    static const struct {
        const char *url;
        const char *text;
    } table[] = {
        {"ws://[::1]:9001/", "GET / HTTP/1.1\r\nHost: [::1]:9001\r\n" TAIL "\r\n"}, /* B160 */
        {"ws://localhost:9000/",
         "GET / HTTP/1.1\r\nHost: localhost:9000\r\n" TAIL "\r\n"},      /* B162 */
        {"ws://h", "GET / HTTP/1.1\r\nHost: h\r\n" TAIL "\r\n"},         /* B164 */
        {"ws://h?x=1", "GET /?x=1 HTTP/1.1\r\nHost: h\r\n" TAIL "\r\n"}, /* B164 */
        {"wss://h:443/a/b?c", "GET /a/b?c HTTP/1.1\r\nHost: h\r\n" TAIL "\r\n"},
        {"ws+unix:/run/x:/a", "GET /a HTTP/1.1\r\nHost: localhost\r\n" TAIL "\r\n"},
        {"ws://Aladdin:open%20sesame@h",
         "GET / HTTP/1.1\r\nHost: h\r\n" TAIL
         "Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n\r\n"},
        {"ws://ab@h", "GET / HTTP/1.1\r\nHost: h\r\n" TAIL "Authorization: Basic YWI6\r\n\r\n"},
        {"ws://a:%3a@h", "GET / HTTP/1.1\r\nHost: h\r\n" TAIL "Authorization: Basic YTo6\r\n\r\n"},
        {"ws://@h", "GET / HTTP/1.1\r\nHost: h\r\n" TAIL "Authorization: Basic Og==\r\n\r\n"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        const struct wire_url url = url_of(table[i].url);
        const struct handshake_offer offer = {.url = &url, .key = key};

        assert_requests(&offer, table[i].text);
    }
}

static void test_whole_request(void **state)
{
    const char *const protocols[] = {"v2.chat", "v1.chat"};
    const tws_header headers[] = {
        {"Cookie", "a=1; b=2"}, {"authorization", "Bearer x"}, {"X-A", "1"}, {"X-A", "2"}};
    const struct wire_url url = url_of("wss://user:pw@h:8443/chat");
    const struct handshake_offer offer = {
        .url = &url,
        .key = key,
        .host = "virtual.example:1",
        .protocols = protocols,
        .nprotocols = 2,
        .extensions = "permessage-deflate; client_max_window_bits",
        .origin = "https://h",
        .headers = headers,
        .nheaders = 4,
    };

    (void)state;
    assert_requests(&offer,
                    "GET /chat HTTP/1.1\r\nHost: virtual.example:1\r\n" TAIL "Origin: https://h\r\n"
                    "Sec-WebSocket-Protocol: v2.chat, v1.chat\r\n"
                    "Sec-WebSocket-Extensions: permessage-deflate; "
                    "client_max_window_bits\r\n"
                    "Cookie: a=1; b=2\r\n"
                    "authorization: Bearer x\r\n"
                    "X-A: 1\r\n"
                    "X-A: 2\r\n"
                    "\r\n");
}

static void test_one_protocol(void **state)
{
    const char *const protocols[] = {"chat"};
    const struct wire_url url = url_of("ws://h");
    const struct handshake_offer offer = {
        .url = &url, .key = key, .protocols = protocols, .nprotocols = 1};

    (void)state;
    assert_requests(&offer,
                    "GET / HTTP/1.1\r\nHost: h\r\n" TAIL "Sec-WebSocket-Protocol: chat\r\n\r\n");
}

/* What this client writes, this server takes. */
static void test_request_is_examined(void **state)
{
    static const char *const protocols[] = {"a", "b"};
    static const char *const supported[] = {"b"};
    const struct wire_url url = url_of("ws://u:p@[::1]:9001/p%20q?r=s");
    const struct handshake_offer offer = {.url = &url,
                                          .key = key,
                                          .protocols = protocols,
                                          .nprotocols = 2,
                                          .origin = "http://[::1]:9001"};
    struct handshake_request r;
    struct head_script s;
    char out[1024];
    ptrdiff_t len = handshake_write_request(out, sizeof out - 1, &offer);

    (void)state;
    assert_in_range(len, 1, sizeof out - 1);
    out[len] = '\0';
    head_script_request(&s, out);
    handshake_examine(&s.head, s.buf, &r);
    assert_int_equal(r.verdict, HANDSHAKE_UPGRADE);
    assert_true(wire_text_equal(r.path, wire_text_of("/p%20q")));
    assert_true(wire_text_equal(r.query, wire_text_of("r=s")));
    assert_true(wire_origin_same(r.origin, r.host, false));
    assert_int_equal(handshake_choose_protocol(&s.head, s.buf, supported, 1), 0);
    head_script_end(&s);
}

/* B166 and the headers that belong to the handshake. */
static void test_bad_headers(void **state)
{
    static const struct {
        tws_header header;
        enum handshake_fault fault;
    } table[] = {
        {{"X", "a\nX-Evil: 1"}, HANDSHAKE_FAULT_VALUE},
        {{"X", "a\r\nX-Evil: 1"}, HANDSHAKE_FAULT_VALUE},
        {{"X", "a "}, HANDSHAKE_FAULT_VALUE},
        {{"X", NULL}, HANDSHAKE_FAULT_VALUE},
        {{"X Y", "a"}, HANDSHAKE_FAULT_NAME},
        {{"", "a"}, HANDSHAKE_FAULT_NAME},
        {{"Host", "h"}, HANDSHAKE_FAULT_FORBIDDEN},
        {{"upgrade", "websocket"}, HANDSHAKE_FAULT_FORBIDDEN},
        {{"Connection", "keep-alive"}, HANDSHAKE_FAULT_FORBIDDEN},
        {{"Content-Length", "0"}, HANDSHAKE_FAULT_FORBIDDEN},
        {{"Transfer-Encoding", "chunked"}, HANDSHAKE_FAULT_FORBIDDEN},
        {{"Sec-WebSocket-Key", "x"}, HANDSHAKE_FAULT_FORBIDDEN},
        {{"sec-websocket-version", "8"}, HANDSHAKE_FAULT_FORBIDDEN},
        {{"Sec-WebSocket-Anything", "x"}, HANDSHAKE_FAULT_FORBIDDEN},
        {{"origin", "http://h"}, HANDSHAKE_FAULT_FORBIDDEN}, /* beside `origin` */
    };
    const struct wire_url url = url_of("ws://h");
    char out[1024];

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct handshake_offer offer = {.url = &url,
                                        .key = key,
                                        .origin = "http://h",
                                        .headers = &table[i].header,
                                        .nheaders = 1};

        assert_int_equal(handshake_write_request(out, sizeof out, &offer),
                         -(ptrdiff_t)table[i].fault);
        assert_int_equal(handshake_write_connect(out, sizeof out, &url, &table[i].header, 1) < 0,
                         strcmp("origin", table[i].header.name) != 0);
    }

    /* Origin as an ordinary header is fine when it is the only one. */
    const tws_header own = {"Origin", "http://h"};
    const struct handshake_offer offer = {.url = &url, .key = key, .headers = &own, .nheaders = 1};

    assert_true(handshake_write_request(out, sizeof out, &offer) > 0);
}

static void test_bad_parts(void **state)
{
    static const char *const injected[] = {"a\r\nX-Evil: 1"}; /* B166 */
    static const char *const twice[] = {"a", "b", "a"};
    static const char *const empty[] = {""};
    static const char *const list[] = {"a, b"};
    const struct wire_url url = url_of("ws://h");
    const struct {
        struct handshake_offer offer;
        enum handshake_fault fault;
    } table[] = {
        {{.key = key, .protocols = injected, .nprotocols = 1}, HANDSHAKE_FAULT_PROTOCOL},
        {{.key = key, .protocols = twice, .nprotocols = 3}, HANDSHAKE_FAULT_PROTOCOL},
        {{.key = key, .protocols = empty, .nprotocols = 1}, HANDSHAKE_FAULT_PROTOCOL},
        {{.key = key, .protocols = list, .nprotocols = 1}, HANDSHAKE_FAULT_PROTOCOL},
        {{.key = key, .extensions = ""}, HANDSHAKE_FAULT_EXTENSION},
        {{.key = key, .extensions = "a;b=\"\r\n\""}, HANDSHAKE_FAULT_EXTENSION},
        {{.key = key, .extensions = "a b"}, HANDSHAKE_FAULT_EXTENSION},
        {{.key = key, .origin = "a\r\nb: c"}, HANDSHAKE_FAULT_VALUE},
        {{.key = key, .host = "a\r\nb: c"}, HANDSHAKE_FAULT_HOST},
        {{.key = key, .host = "a:b"}, HANDSHAKE_FAULT_HOST},
        {{.key = key, .host = ""}, HANDSHAKE_FAULT_HOST},
        {{.key = "dGhlIHNhbXBsZSBub25jZQ="}, HANDSHAKE_FAULT_KEY},
        {{.key = NULL}, HANDSHAKE_FAULT_KEY},
    };
    char out[1024];

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct handshake_offer offer = table[i].offer;

        offer.url = &url;
        if (handshake_write_request(out, sizeof out, &offer) != -(ptrdiff_t)table[i].fault)
            fail_msg("row %zu", i);
    }
}

/* B185, where it is text: the form, the port always there, IPv6 in brackets. */
static void test_connect(void **state)
{
    static const struct {
        const char *url;
        const char *authority;
    } table[] = {
        {"ws://h/", "h:80"},
        {"wss://h/", "h:443"},
        {"ws://[::1]:9001/", "[::1]:9001"},
        {"ws://user:pw@h:1/x?y", "h:1"}, /* the origin's credentials are not the proxy's */
    };
    const tws_header auth = {"Proxy-Authorization", "Basic eDp5"};
    const struct wire_url local = url_of("ws+unix:/run/x");
    char expected[256];
    char out[256];

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        const struct wire_url url = url_of(table[i].url);
        size_t len = (size_t)snprintf(expected, sizeof expected,
                                      "CONNECT %s HTTP/1.1\r\nHost: %s\r\n"
                                      "Proxy-Authorization: Basic eDp5\r\n\r\n",
                                      table[i].authority, table[i].authority);
        struct head_script s;

        assert_int_equal(handshake_write_connect(out, sizeof out, &url, &auth, 1), len);
        assert_memory_equal(out, expected, len);
        head_script_request(&s, expected);
        assert_int_equal(s.head.target_form, HTTP_TARGET_AUTHORITY);
        head_script_end(&s);
    }
    assert_int_equal(handshake_write_connect(out, sizeof out, &local, NULL, 0),
                     -(ptrdiff_t)HANDSHAKE_FAULT_HOST);
}

#define SWITCH "HTTP/1.1 101 Switching Protocols\r\n"
#define UPGRADE "Upgrade: websocket\r\n"
#define CONNECTION "Connection: Upgrade\r\n"
#define ACCEPT "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
#define GOOD SWITCH UPGRADE CONNECTION ACCEPT

static const char *const offered[] = {"v2.chat", "v1.chat"};

/* Notes the names it is asked for; takes all but "bad". */
static bool note(void *arg, struct extension *ext)
{
    struct wire_out *out = arg;

    wire_put(out, ext->name);
    wire_put_char(out, '|');
    return !wire_text_is(ext->name, "bad");
}

static enum handshake_fault verify(const char *lines, size_t nprotocols, bool extensions,
                                   struct handshake_answer *answer, struct wire_out *names)
{
    const struct wire_url url = url_of("ws://h");
    const struct handshake_offer offer = {
        .url = &url, .key = key, .protocols = offered, .nprotocols = nprotocols};
    struct head_script s;
    enum handshake_fault fault;
    char text[1024];

    snprintf(text, sizeof text, "%s\r\n", lines);
    head_script_response(&s, text);
    fault = handshake_verify(&s.head, s.buf, &offer, extensions ? note : NULL, names, answer);
    head_script_end(&s);
    return fault;
}

static void test_good_answers(void **state)
{
    static const struct {
        const char *lines;
        int protocol;
        const char *names;
    } table[] = {
        {GOOD, -1, ""},
        {SWITCH UPGRADE "Connection: keep-alive, Upgrade\r\n" ACCEPT, -1, ""}, /* B168 */
        {SWITCH "upgrade: WebSocket\r\n" CONNECTION ACCEPT, -1, ""},           /* B168 */
        {SWITCH "Upgrade:websocket\r\nConnection:Upgrade\r\n"
                "Sec-WebSocket-Accept:s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n",
         -1, ""}, /* B168 */
        {"HTTP/1.1 101\r\n" UPGRADE CONNECTION ACCEPT, -1, ""},
        {GOOD "Sec-WebSocket-Protocol: v1.chat\r\n", 1, ""},
        {GOOD "Sec-WebSocket-Protocol: v2.chat\r\n", 0, ""},
        {GOOD "Sec-WebSocket-Extensions: x-foo; a=1, x-bar\r\n", -1, "x-foo|x-bar|"},
        {GOOD "Content-Length: 0\r\nServer: x\r\n", -1, ""},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct handshake_answer answer;
        char names[64];
        struct wire_out out = {names, sizeof names, 0};
        enum handshake_fault fault = verify(table[i].lines, 2, true, &answer, &out);

        if (fault != HANDSHAKE_OK)
            fail_msg("%s: %s", table[i].lines, handshake_fault_text(fault));
        assert_int_equal(answer.protocol, table[i].protocol);
        assert_int_equal(out.len, strlen(table[i].names));
        assert_memory_equal(names, table[i].names, out.len);
    }
}

static void test_bad_answers(void **state)
{
    static const struct {
        const char *lines;
        enum handshake_fault fault;
    } table[] = {
        {"HTTP/1.1 200 OK\r\n" UPGRADE CONNECTION ACCEPT, HANDSHAKE_FAULT_NOT_101},
        {"HTTP/1.1 301 Moved\r\nLocation: /\r\n", HANDSHAKE_FAULT_NOT_101},
        {"HTTP/1.1 100 Continue\r\n", HANDSHAKE_FAULT_NOT_101},
        {"HTTP/1.0 101 x\r\n" UPGRADE CONNECTION ACCEPT, HANDSHAKE_FAULT_HTTP},
        {SWITCH CONNECTION ACCEPT, HANDSHAKE_FAULT_UPGRADE},
        {SWITCH "Upgrade:\r\n" CONNECTION ACCEPT, HANDSHAKE_FAULT_UPGRADE},
        {SWITCH "Upgrade: websockets\r\n" CONNECTION ACCEPT, HANDSHAKE_FAULT_UPGRADE},
        {SWITCH "Upgrade: websocket, h2c\r\n" CONNECTION ACCEPT, HANDSHAKE_FAULT_UPGRADE},
        {SWITCH "Upgrade: h2c\r\nUpgrade: websocket\r\n" CONNECTION ACCEPT,
         HANDSHAKE_FAULT_UPGRADE},
        {SWITCH UPGRADE "Upgrade: websocket\r\n" CONNECTION ACCEPT, HANDSHAKE_FAULT_UPGRADE},
        {SWITCH UPGRADE ACCEPT, HANDSHAKE_FAULT_CONNECTION},
        {SWITCH UPGRADE "Connection: upgraded\r\n" ACCEPT, HANDSHAKE_FAULT_CONNECTION},
        {SWITCH UPGRADE "Connection: close\r\n" ACCEPT, HANDSHAKE_FAULT_CONNECTION},
        {SWITCH UPGRADE CONNECTION, HANDSHAKE_FAULT_ACCEPT},
        {GOOD ACCEPT, HANDSHAKE_FAULT_ACCEPT},
        {SWITCH UPGRADE CONNECTION "Sec-WebSocket-Accept:\r\n", HANDSHAKE_FAULT_ACCEPT},
        {SWITCH UPGRADE CONNECTION "Sec-WebSocket-Accept: S3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n",
         HANDSHAKE_FAULT_ACCEPT},
        {SWITCH UPGRADE CONNECTION "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo\r\n",
         HANDSHAKE_FAULT_ACCEPT},
        {SWITCH UPGRADE CONNECTION "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo==\r\n",
         HANDSHAKE_FAULT_ACCEPT},
        {SWITCH UPGRADE CONNECTION "Sec-WebSocket-Accept: dGhlIHNhbXBsZSBub25jZQ==\r\n",
         HANDSHAKE_FAULT_ACCEPT},
        {GOOD "Sec-WebSocket-Protocol: v3.chat\r\n", HANDSHAKE_FAULT_ANSWERED_PROTOCOL},
        {GOOD "Sec-WebSocket-Protocol: V1.chat\r\n", HANDSHAKE_FAULT_ANSWERED_PROTOCOL},
        {GOOD "Sec-WebSocket-Protocol: v1.chat, v2.chat\r\n", HANDSHAKE_FAULT_ANSWERED_PROTOCOL},
        {GOOD "Sec-WebSocket-Protocol: v1.chat\r\nSec-WebSocket-Protocol: v1.chat\r\n",
         HANDSHAKE_FAULT_ANSWERED_PROTOCOL},
        {GOOD "Sec-WebSocket-Protocol:\r\n", HANDSHAKE_FAULT_ANSWERED_PROTOCOL},
        {GOOD "Sec-WebSocket-Extensions:\r\n", HANDSHAKE_FAULT_ANSWERED_EXTENSION},
        {GOOD "Sec-WebSocket-Extensions: ,\r\n", HANDSHAKE_FAULT_ANSWERED_EXTENSION},
        {GOOD "Sec-WebSocket-Extensions: x;\r\n", HANDSHAKE_FAULT_ANSWERED_EXTENSION},
        {GOOD "Sec-WebSocket-Extensions: x, bad\r\n", HANDSHAKE_FAULT_ANSWERED_EXTENSION},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct handshake_answer answer;
        char names[64];
        struct wire_out out = {names, sizeof names, 0};
        enum handshake_fault fault = verify(table[i].lines, 2, true, &answer, &out);

        if (fault != table[i].fault)
            fail_msg("%s: %s", table[i].lines, handshake_fault_text(fault));
        assert_int_equal(answer.protocol, -1);
    }
}

/* B170: nothing was offered. */
static void test_unrequested(void **state)
{
    static const struct {
        const char *lines;
        enum handshake_fault fault;
    } table[] = {
        {GOOD, HANDSHAKE_OK},
        {GOOD "Sec-WebSocket-Extensions: x-foo\r\n", HANDSHAKE_FAULT_ANSWERED_EXTENSION},
        {GOOD "Sec-WebSocket-Protocol: chat\r\n", HANDSHAKE_FAULT_ANSWERED_PROTOCOL},
        {GOOD "Sec-WebSocket-Protocol: v1.chat\r\n", HANDSHAKE_FAULT_ANSWERED_PROTOCOL},
        {GOOD "Sec-WebSocket-Protocol:\r\nSec-WebSocket-Extensions:\r\n",
         HANDSHAKE_FAULT_ANSWERED_PROTOCOL},
        {GOOD "Sec-WebSocket-Extensions:\r\n", HANDSHAKE_FAULT_ANSWERED_EXTENSION},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct handshake_answer answer;

        assert_int_equal(verify(table[i].lines, 0, false, &answer, NULL), table[i].fault);
    }
}

/* What this server writes, this client takes. */
static void test_switch_is_verified(void **state)
{
    const struct handshake_switch sw = {
        .key = wire_text_of(key), .protocol = "v1.chat", .extensions = "x-foo; a=\"b\""};
    struct handshake_answer answer;
    char names[64];
    struct wire_out out = {names, sizeof names, 0};
    char text[512];
    ptrdiff_t len = handshake_write_switch(text, sizeof text, &sw);

    (void)state;
    assert_in_range(len, 1, sizeof text);
    text[len - 2] = '\0'; /* verify() adds the empty line */
    assert_int_equal(verify(text, 2, true, &answer, &out), HANDSHAKE_OK);
    assert_int_equal(answer.protocol, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_request_lines),
        cmocka_unit_test(test_whole_request),
        cmocka_unit_test(test_one_protocol),
        cmocka_unit_test(test_request_is_examined),
        cmocka_unit_test(test_bad_headers),
        cmocka_unit_test(test_bad_parts),
        cmocka_unit_test(test_connect),
        cmocka_unit_test(test_good_answers),
        cmocka_unit_test(test_bad_answers),
        cmocka_unit_test(test_unrequested),
        cmocka_unit_test(test_switch_is_verified),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
