/*
 * Through HTTP proxies that follow a script: what is asked of them, byte for byte, and what is made
 * of answers that are right, refusing, malformed, endless or never whole.
 */
#include "support_proxy.h"

#include <errno.h>

#define ASKED "CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n"
static const struct attempt plain = {.proxy = "http://p", .url = "ws://h/"};

/* B185: what is asked for, with port and brackets, for ws as for wss. */
static void test_b185_request(void **state)
{
    static const struct {
        const char *url, *request;
    } table[] = {
        {"ws://h/", ASKED},
        {"wss://h/", "CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n"},
        {"ws://[::1]:9001/", "CONNECT [::1]:9001 HTTP/1.1\r\nHost: [::1]:9001\r\n\r\n"},
        {"wss://u:p@h/secret?path", "CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        const struct step script[] = {{TAKE, table[i].request, strlen(table[i].request)},
                                      {SEND, BYTES("HTTP/1.1 200 OK\r\n\r\n")},
                                      {END, NULL, 0}};

        assert_opens(&(struct attempt){.proxy = "http://p", .url = table[i].url}, script);
    }
}

static void test_headers(void **state)
{
    static const tws_header headers[] = {{"User-Agent", "x"}, {"X-Two", ""}};
    static const tws_header own[] = {{"proxy-authorization", "Bearer t"}};
    static const struct step with[] = {
        {TAKE, BYTES("CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n"
                     "Proxy-Authorization: Basic dTpwOkAg\r\n" /* u:p:@ and a blank */
                     "User-Agent: x\r\nX-Two: \r\n\r\n")},
        {SEND, BYTES("HTTP/1.1 200 OK\r\n\r\n")},
        {END, NULL, 0}};
    static const struct step bearer[] = {
        {TAKE,
         BYTES("CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\nproxy-authorization: Bearer t\r\n\r\n")},
        {SEND, BYTES("HTTP/1.1 200 OK\r\n\r\n")},
        {END, NULL, 0}};
    struct attempt a = {
        .proxy = "http://u:p:%40%20@p", .url = "ws://h/", .headers = headers, .header_count = 2};

    (void)state;
    assert_opens(&a, with);
    a.headers = own;
    a.header_count = 1;
    assert_opens(&a, bearer);
}

static void test_forbidden_headers(void **state)
{
    static const tws_header headers[] = {
        {"Host", "x"}, {"A", "b\r\nC: d"}, {"Content-Length", "3"}, {"A B", "c"}, {"", "c"}};
    static const struct step nothing[] = {{SILENCE, NULL, 0}, {END, NULL, 0}};

    (void)state;
    for (size_t i = 0; i < COUNT(headers); i++)
        assert_refused(
            &(struct attempt){
                .proxy = "p", .url = "ws://h/", .headers = &headers[i], .header_count = 1},
            nothing, -EINVAL, "header", 0);
    assert_refused(
        &(struct attempt){
            .proxy = "p", .url = "ws://h/", .headers = &(tws_header){"A", NULL}, .header_count = 1},
        nothing, -EINVAL, "header", 0);
}

/* Every success is one; length fields in it mean nothing (RFC 9110 9.3.6). */
static void test_accepted(void **state)
{
    static const char *const answers[] = {
        "HTTP/1.1 200 Connection established\r\n\r\n",
        "HTTP/1.0 200 OK\r\nVia: 1.0 old\r\n\r\n", /* B187 */
        "HTTP/1.1 200\r\n\r\n",
        "HTTP/1.1 299 Odd\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nA: b\r\n\r\nHTTP/1.1 200 "
        "OK\r\n\r\n",
    };

    (void)state;
    for (size_t i = 0; i < COUNT(answers); i++)
        for (int drip = 0; drip < 2; drip++) {
            const struct step script[] = {{TAKE, BYTES(ASKED)},
                                          {drip ? DRIP : SEND, answers[i], strlen(answers[i])},
                                          {END, NULL, 0}};

            assert_opens(&plain, script);
        }
}

/* B183: the error names the status and what would be taken; the body is never read as anything. */
static void test_b183_authorization_required(void **state)
{
    static const struct step script[] = {
        {TAKE, BYTES(ASKED)},
        {SEND, BYTES("HTTP/1.1 407 Proxy Authentication Required\r\n"
                     "Proxy-Authenticate: Basic realm=\"office\"\r\n"
                     "Content-Length: 11\r\n\r\nnot allowed")},
        {SILENCE, NULL, 0},
        {END, NULL, 0}};

    (void)state;
    assert_refused(&plain, script, -EPROTO,
                   "407 Proxy Authentication Required: it wants authorisation "
                   "(Basic realm=\"office\")",
                   407);
}

static void test_refusals(void **state)
{
    static const struct {
        const char *answer, *text;
        int status;
    } table[] = {
        {"HTTP/1.1 403 Forbidden\r\n\r\n", "answered 403 Forbidden", 403},
        {"HTTP/1.1 502 Bad\x1b[31m\x80\r\n\r\n", "HTTP/1", 0},
        {"HTTP/1.1 502 Bad \x80\r\n\r\n", "answered 502 Bad ?", 502},
        {"HTTP/1.1 407 No\r\n\r\n", "(no scheme named)", 407},
        {"HTTP/1.1 101 Switching Protocols\r\n\r\n", "answered 101", 101},
        {"HTTP/1.1 302 Found\r\nLocation: ws://evil/\r\n\r\n", "answered 302", 302},
        {"HTTP/2 200\r\n\r\n", "HTTP/1", 0},
        {"\x05\x00", "HTTP/1", 0},
        {"SSH-2.0-OpenSSH\r\n", "HTTP/1", 0},
        {"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 101 Switching Protocols\r\n", "cannot be the server's",
         0},
        {"HTTP/1.1 200 OK\r\nA: b", "closed the connection", 0},
        {"", "closed the connection", 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        const struct step script[] = {
            {TAKE, BYTES(ASKED)}, {SEND, table[i].answer, strlen(table[i].answer)}, {END, NULL, 0}};

        assert_refused(&plain, script, -EPROTO, table[i].text, table[i].status);
    }
}

/* B187: an answer without end is cut by its size, whatever it is made of. */
static void test_b187_endless(void **state)
{
    static const struct {
        const char *begin, *more;
    } table[] = {
        {"HTTP/1.1 200 OK\r\n", "A: 0123456789012345678901234567890123456789\r\n"},
        {"HTTP/1.1 200 OK\r\nA: ", "0123456789"},
        {"HTTP/1.1 200 ", "0123456789"},
        {"", "HTTP/1.1 100 Continue\r\n\r\n"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        const struct step script[] = {{TAKE, BYTES(ASKED)},
                                      {SEND, table[i].begin, strlen(table[i].begin)},
                                      {FLOOD, table[i].more, 64 << 20},
                                      {END, NULL, 0}};

        assert_refused(&plain, script, -EPROTO, "larger than 16384 bytes or 100 fields", 0);
    }
}

/* B187: silence, and an answer that stops in its middle, are cut by the deadline. */
static void test_b187_never_whole(void **state)
{
    static const char *const answers[] = {"", "HTTP/1.1 200 OK\r\nA: b\r\n", "\x05", "\x05\x00"};
    static const char *const proxies[] = {"http://p", "http://p", "socks5h://p", "socks5h://p"};

    (void)state;
    for (size_t i = 0; i < COUNT(answers); i++) {
        size_t len = i == 3 ? 2 : strlen(answers[i]);
        const struct step http[] = {
            {TAKE, BYTES(ASKED)}, {SEND, answers[i], len}, {SILENCE, NULL, 0}, {END, NULL, 0}};
        const struct step socks[] = {{TAKE, BYTES("\x05\x01\x00")},
                                     {SEND, answers[i], len},
                                     {TAKE, BYTES("\x05\x01\x00\x03\x01h\x00\x50")},
                                     {SILENCE, NULL, 0},
                                     {END, NULL, 0}};
        const struct step half[] = {{TAKE, BYTES("\x05\x01\x00")},
                                    {SEND, answers[i], len},
                                    {SILENCE, NULL, 0},
                                    {END, NULL, 0}};

        assert_refused(&(struct attempt){.proxy = proxies[i], .url = "ws://h/", .timeout = 30},
                       i < 2    ? http
                       : i == 2 ? half
                                : socks,
                       -ETIMEDOUT, "did not answer in time", 0);
    }
}

static void test_heads_are_shown(void **state)
{
    static const struct step script[] = {
        {TAKE, BYTES(ASKED)},
        {SEND, BYTES("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 403 No\r\nA: b\r\n\r\nbody")},
        {END, NULL, 0}};
    static const struct step cut[] = {
        {TAKE, BYTES(ASKED)}, {SEND, BYTES("HTTP/1.1 200 OK\r\nA")}, {END, NULL, 0}};
    struct seen seen = {"", ""};
    struct attempt a = {.proxy = "p", .url = "ws://h/", .seen = &seen};

    (void)state;
    assert_refused(&a, script, -EPROTO, "403", 403);
    assert_string_equal(seen.sent, ASKED);
    assert_string_equal(seen.received,
                        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 403 No\r\nA: b\r\n\r\n");
    memset(&seen, 0, sizeof seen);
    assert_refused(&a, cut, -EPROTO, "closed", 0);
    assert_string_equal(seen.received, "HTTP/1.1 200 OK\r\nA");
}

static void test_unix_target(void **state)
{
    struct proxy p = {.kind = PROXY_HTTP};
    struct wire_url url;
    struct proxy_target target = {.url = &url};
    struct proxy_error err;

    (void)state;
    assert_int_equal(wire_url_parse(&url, wire_text_of("ws+unix:/s")), WIRE_URL_OK);
    assert_int_equal(proxy_open(NULL, &p, &target, TASK_FOREVER, &err), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_b185_request),
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_forbidden_headers),
        cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_b183_authorization_required),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_b187_endless),
        cmocka_unit_test(test_b187_never_whole),
        cmocka_unit_test(test_heads_are_shown),
        cmocka_unit_test(test_unix_target),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
