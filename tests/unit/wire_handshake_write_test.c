/*
 * The server's messages of the opening handshake: exact text, room to the byte, and what may not
 * be written.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "head_script.h"
#include "wire/handshake.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const char key[] = "dGhlIHNhbXBsZSBub25jZQ==";

typedef ptrdiff_t writer(char *out, size_t cap, const void *what);

static ptrdiff_t write_switch(char *out, size_t cap, const void *what)
{
    return handshake_write_switch(out, cap, what);
}

static ptrdiff_t write_response(char *out, size_t cap, const void *what)
{
    return handshake_write_response(out, cap, what);
}

/* With room for everything, and with every smaller room ending at a guard page. */
static void assert_writes(writer *write, const void *what, const char *expected)
{
    size_t len = strlen(expected);
    struct guard g;

    guard_open(&g, len);
    for (size_t cap = 0; cap <= len; cap++) {
        char *out = (char *)guard_tail(&g, NULL, cap);

        assert_int_equal(write(out, cap, what), len);
        if (memcmp(out, expected, cap) != 0)
            fail_msg("got %.*s instead of %s", (int)cap, out, expected);
    }
    guard_close(&g);
}

static void test_switch(void **state)
{
    const tws_header headers[] = {
        {"Set-Cookie", "a=1; Path=/"}, {"Set-Cookie", "b=2"}, {"X-Empty", ""}};
    struct handshake_switch s = {.key = wire_text_of(key)};

    (void)state;
    /* B029: nothing asked for, nothing said about it. */
    assert_writes(write_switch, &s,
                  "HTTP/1.1 101 Switching Protocols\r\n"
                  "Upgrade: websocket\r\n"
                  "Connection: Upgrade\r\n"
                  "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
                  "\r\n");
    s.protocol = "chat";
    s.extensions = "permessage-deflate; server_no_context_takeover";
    s.server = "libtws";
    s.headers = headers;
    s.nheaders = COUNT(headers);
    assert_writes(write_switch, &s,
                  "HTTP/1.1 101 Switching Protocols\r\n"
                  "Upgrade: websocket\r\n"
                  "Connection: Upgrade\r\n"
                  "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
                  "Sec-WebSocket-Protocol: chat\r\n"
                  "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover\r\n"
                  "Server: libtws\r\n"
                  "Set-Cookie: a=1; Path=/\r\n"
                  "Set-Cookie: b=2\r\n"
                  "X-Empty: \r\n"
                  "\r\n");
}

static void test_responses(void **state)
{
    const tws_header retry[] = {{"Retry-After", "5"}};
    const tws_header own[] = {{"content-type", "text/html"}, {"allow", "GET"}, {"server", "mine"}};
    const struct {
        struct handshake_response r;
        const char *text;
    } table[] = {
        {{.status = 200, .content_type = "text/html", .body = "<p>", .body_len = 3},
         "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/html\r\n"
         "Content-Length: 3\r\n\r\n<p>"},
        {{.status = 200, .body = "abc", .body_len = 3, .is_head = true},
         "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n"
         "Content-Length: 3\r\n\r\n"},
        {{.status = 200, .body_len = 70000},
         "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n"
         "Content-Length: 70000\r\n\r\n"},
        {{.status = 426, .server = "libtws", .body = "no\n", .body_len = 3},
         "HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: Upgrade, close\r\n"
         "Sec-WebSocket-Version: 13\r\nServer: libtws\r\n"
         "Content-Type: text/plain; charset=utf-8\r\nContent-Length: 3\r\n\r\nno\n"},
        {{.status = 405},
         "HTTP/1.1 405 Method Not Allowed\r\nConnection: close\r\nAllow: GET, HEAD\r\n"
         "Content-Type: text/plain; charset=utf-8\r\nContent-Length: 0\r\n\r\n"},
        {{.status = 405, .server = "libtws", .headers = own, .nheaders = 3},
         "HTTP/1.1 405 Method Not Allowed\r\nConnection: close\r\nContent-Length: 0\r\n"
         "content-type: text/html\r\nallow: GET\r\nserver: mine\r\n\r\n"},
        {{.status = 503, .headers = retry, .nheaders = 1},
         "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n"
         "Content-Type: text/plain; charset=utf-8\r\nContent-Length: 0\r\nRetry-After: 5\r\n\r\n"},
        {{.status = 204, .body = "x", .body_len = 1},
         "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"},
        {{.status = 304, .body = "x", .body_len = 1},
         "HTTP/1.1 304 Not Modified\r\nConnection: close\r\n\r\n"},
        {{.status = 205, .body = "x", .body_len = 1},
         "HTTP/1.1 205 Reset Content\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"},
        {{.status = 599},
         "HTTP/1.1 599 Unknown\r\nConnection: close\r\n"
         "Content-Type: text/plain; charset=utf-8\r\nContent-Length: 0\r\n\r\n"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++)
        assert_writes(write_response, &table[i].r, table[i].text);
}

/* B166 at the server's end: neither a header nor anything else a caller gives may start a line. */
static const struct {
    tws_header header;
    enum handshake_fault fault;
} bad_headers[] = {
    {{"X", "a\nX-Evil: 1"}, HANDSHAKE_FAULT_VALUE},
    {{"X", "a\r\nX-Evil: 1"}, HANDSHAKE_FAULT_VALUE},
    {{"X", "a\rb"}, HANDSHAKE_FAULT_VALUE},
    {{"X", "a\x7f"}, HANDSHAKE_FAULT_VALUE},
    {{"X", " a"}, HANDSHAKE_FAULT_VALUE},
    {{"X", "a\t"}, HANDSHAKE_FAULT_VALUE},
    {{"X", NULL}, HANDSHAKE_FAULT_VALUE},
    {{"X Y", "a"}, HANDSHAKE_FAULT_NAME},
    {{"X:", "a"}, HANDSHAKE_FAULT_NAME},
    {{"X\r\nY", "a"}, HANDSHAKE_FAULT_NAME},
    {{"", "a"}, HANDSHAKE_FAULT_NAME},
    {{NULL, "a"}, HANDSHAKE_FAULT_NAME},
    {{"connection", "close"}, HANDSHAKE_FAULT_FORBIDDEN},
    {{"UPGRADE", "h2c"}, HANDSHAKE_FAULT_FORBIDDEN},
    {{"Content-Length", "1"}, HANDSHAKE_FAULT_FORBIDDEN},
    {{"Transfer-Encoding", "chunked"}, HANDSHAKE_FAULT_FORBIDDEN},
    {{"sec-websocket-accept", "x"}, HANDSHAKE_FAULT_FORBIDDEN},
    {{"Sec-WebSocket-Protocol", "x"}, HANDSHAKE_FAULT_FORBIDDEN},
    {{"Sec-WebSocket-Extensions", "x"}, HANDSHAKE_FAULT_FORBIDDEN},
};

static void test_bad_headers(void **state)
{
    char out[1024];

    (void)state;
    for (size_t i = 0; i < COUNT(bad_headers); i++) {
        const tws_header headers[] = {{"Fine", "yes"}, bad_headers[i].header};
        const struct handshake_switch s = {
            .key = wire_text_of(key), .headers = headers, .nheaders = 2};
        const struct handshake_response r = {.status = 403, .headers = headers, .nheaders = 2};

        assert_int_equal(handshake_write_switch(out, sizeof out, &s),
                         -(ptrdiff_t)bad_headers[i].fault);
        assert_int_equal(handshake_write_response(out, sizeof out, &r),
                         -(ptrdiff_t)bad_headers[i].fault);
    }
}

static void test_bad_parts(void **state)
{
    static const struct {
        const char *key;
        const char *protocol;
        const char *extensions;
        const char *server;
        enum handshake_fault fault;
    } table[] = {
        {"dGhlIHNhbXBsZSBub25jZR==", NULL, NULL, NULL, HANDSHAKE_FAULT_KEY},
        {"", NULL, NULL, NULL, HANDSHAKE_FAULT_KEY},
        {key, "a\r\nX-Evil: 1", NULL, NULL, HANDSHAKE_FAULT_PROTOCOL},
        {key, "a, b", NULL, NULL, HANDSHAKE_FAULT_PROTOCOL},
        {key, "", NULL, NULL, HANDSHAKE_FAULT_PROTOCOL},
        {key, NULL, "a\r\nX-Evil: 1", NULL, HANDSHAKE_FAULT_EXTENSION},
        {key, NULL, "a;", NULL, HANDSHAKE_FAULT_EXTENSION},
        {key, NULL, "", NULL, HANDSHAKE_FAULT_EXTENSION},
        {key, NULL, ",", NULL, HANDSHAKE_FAULT_EXTENSION},
        {key, NULL, NULL, "a\r\nX-Evil: 1", HANDSHAKE_FAULT_VALUE},
    };
    const int bad_statuses[] = {101, 199, 600, 0, -200};
    char out[1024];

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        const struct handshake_switch s = {.key = wire_text_of(table[i].key),
                                           .protocol = table[i].protocol,
                                           .extensions = table[i].extensions,
                                           .server = table[i].server};

        assert_int_equal(handshake_write_switch(out, sizeof out, &s), -(ptrdiff_t)table[i].fault);
    }
    for (size_t i = 0; i < COUNT(bad_statuses); i++) {
        const struct handshake_response r = {.status = bad_statuses[i]};

        assert_int_equal(handshake_write_response(out, sizeof out, &r),
                         -(ptrdiff_t)HANDSHAKE_FAULT_STATUS);
    }

    const struct handshake_response r = {.status = 200, .content_type = "a\nb: c"};

    assert_int_equal(handshake_write_response(out, sizeof out, &r),
                     -(ptrdiff_t)HANDSHAKE_FAULT_VALUE);
}

/* Each thing that can be written comes back from the parser. */
static void test_parses_back(void **state)
{
    char out[1024];
    struct head_script s;

    (void)state;
    for (int status = 200; status < 600; status++) {
        const struct handshake_response r = {.status = status, .body = "four", .body_len = 4};
        ptrdiff_t len = handshake_write_response(out, sizeof out - 1, &r);

        assert_in_range(len, 1, sizeof out - 1);
        out[len] = '\0';
        head_script_response(&s, out);
        assert_int_equal(s.head.status, status);
        assert_true(wire_text_is(http_text(s.buf, s.head.reason), http_status_text(status)));
        assert_int_equal(len - s.head.head_len,
                         status == 204 || status == 205 || status == 304 ? 0 : 4);
        head_script_end(&s);
    }
}

static void test_fault_texts(void **state)
{
    (void)state;
    for (int f = HANDSHAKE_OK; f <= HANDSHAKE_FAULT_ANSWERED_EXTENSION; f++) {
        const char *text = handshake_fault_text((enum handshake_fault)f);

        assert_non_null(text);
        assert_true(strlen(text) > 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_switch),      cmocka_unit_test(test_responses),
        cmocka_unit_test(test_bad_headers), cmocka_unit_test(test_bad_parts),
        cmocka_unit_test(test_parses_back), cmocka_unit_test(test_fault_texts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
