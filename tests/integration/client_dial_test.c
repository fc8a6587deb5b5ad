/* The client's opening handshake: what is asked for, and what is accepted as an answer. */
#include "support_dial.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- Against the library's own server ---- */

static void test_echo(void **state)
{
    struct support_census before = support_census();
    tws_server_options opt;
    struct support_server s;
    struct dialing d;
    char url[256];
    uint8_t *data = support_alloc(1 << 20);
    static const size_t sizes[] = {0, 1, 125, 126, 4000, 16000, 65536, 1 << 20};

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    support_server_start(&s, &opt);
    snprintf(url, sizeof url, "ws://%s/some/path?x=1", s.address);
    dialing_start(&d, url, NULL);
    dialing_join(&d, TWS_OK);
    assert_int_equal(tws_response_status(d.response), 101);
    assert_string_equal(tws_response_url(d.response), url);
    assert_string_equal(tws_response_header(d.response, "upgrade"), "websocket");
    assert_null(tws_conn_subprotocol(d.conn));
    assert_null(tws_conn_request(d.conn));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        tws_message m;

        support_fill(data, sizes[i], (unsigned)i);
        assert_ok(tws_write_message(d.conn, TWS_BINARY, data, sizes[i]));
        assert_ok(tws_read_message(d.conn, &m));
        assert_int_equal(m.len, sizes[i]);
        assert_true(support_filled(m.data, m.len, (unsigned)i));
    }
    assert_ok(tws_close(d.conn, 1000, "done"));
    dialing_end(&d);
    tws_server_free(s.server);
    free(data);
    support_assert_census(before);
}

/* ---- The request ---- */

static void expect_request(const char *url, const tws_dial_options *opt, const char *target,
                           const char *host)
{
    struct fake_request r;
    struct dialing d;
    int fd;

    dialing_start(&d, url, opt);
    fd = fake_accept(&group_fake);
    assert_true(fake_read_request(fd, &r));
    assert_string_equal(r.target, target);
    assert_string_equal(r.host, host);
    assert_string_equal(fake_header(r.text, "Upgrade"), "websocket");
    assert_string_equal(fake_header(r.text, "Connection"), "Upgrade");
    assert_string_equal(fake_header(r.text, "Sec-WebSocket-Version"), "13");
    assert_null(fake_header(r.text, "Origin"));
    assert_null(fake_header(r.text, "Sec-WebSocket-Extensions"));
    fake_upgrade(fd, &r, "", NULL, 0);
    dialing_join(&d, TWS_OK);
    close(fd);
    dialing_end(&d);
}

/* B162, B164: the port that is not the default stands in Host; no path, only a query, a fragment. */
static void test_request_target(void **state)
{
    static const struct {
        const char *rest, *target;
    } cases[] = {
        {"", "/"}, {"?x=1", "/?x=1"}, {"/", "/"}, {"/a/b?c=d&e", "/a/b?c=d&e"}, {"/%20", "/%20"},
    };
    char url[256], host[64];
    tws_conn *c;
    tws_error e;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(url, sizeof url, "ws://127.0.0.1:%u%s", group_fake.port, cases[i].rest);
        expect_request(url, NULL, cases[i].target, group_fake.host);
    }
    snprintf(url, sizeof url, "ws://localhost:%u/", group_fake.port);
    snprintf(host, sizeof host, "localhost:%u", group_fake.port);
    expect_request(url, NULL, "/", host);
    snprintf(url, sizeof url, "ws://%s/a#f", group_fake.host);
    assert_err(tws_dial(&c, url, NULL, NULL, &e), TWS_ERR_ADDRESS);
    assert_null(c);
    assert_non_null(strstr(e.text, "fragment"));
    assert_false(fake_has_caller(&group_fake));
}

/* B160: an IPv6 literal keeps its brackets and its port in Host, and is connected to without them. */
static void test_request_ipv6(void **state)
{
    struct fake saved = group_fake;
    char url[256];

    (void)state;
    fake_listen(&group_fake, AF_INET6);
    snprintf(url, sizeof url, "ws://[::1]:%u/", group_fake.port);
    expect_request(url, NULL, "/", group_fake.host);
    fake_close(&group_fake);
    group_fake = saved;
}

static void test_request_options(void **state)
{
    static const tws_header headers[] = {{"X-One", "1"}, {"x-two", "a, b"}, {"X-One", "again"}};
    static const char *const protocols[] = {"chat", "superchat"};
    tws_dial_options opt;
    struct fake_request r;
    struct dialing d;
    char url[256];
    int fd;

    (void)state;
    tws_dial_options_init(&opt);
    opt.headers = headers;
    opt.header_count = 3;
    opt.subprotocols = protocols;
    opt.subprotocol_count = 2;
    opt.origin = "https://example.com";
    opt.host = "inner.example:81";
    opt.cookie = "a=1; b=2";
    opt.conn.user = &opt;
    snprintf(url, sizeof url, "ws://us%%3Aer:p%%20w@%s/", group_fake.host);
    /* A colon in the name cannot be said in basic authorisation. */
    dialing_start(&d, url, &opt);
    dialing_join(&d, TWS_ERR_ADDRESS);
    dialing_end(&d);
    snprintf(url, sizeof url, "ws://user:p%%20w@%s/", group_fake.host);
    dialing_start(&d, url, &opt);
    fd = fake_accept(&group_fake);
    assert_true(fake_read_request(fd, &r));
    assert_string_equal(r.host, "inner.example:81");
    assert_non_null(strstr(r.text, "\r\nX-One: 1\r\nx-two: a, b\r\nX-One: again\r\n"));
    assert_string_equal(fake_header(r.text, "Sec-WebSocket-Protocol"), "chat, superchat");
    assert_string_equal(fake_header(r.text, "Origin"), "https://example.com");
    assert_string_equal(fake_header(r.text, "Cookie"), "a=1; b=2");
    assert_string_equal(fake_header(r.text, "Authorization"), "Basic dXNlcjpwIHc=");
    fake_upgrade(fd, &r, "Sec-WebSocket-Protocol: superchat\r\n", NULL, 0);
    dialing_join(&d, TWS_OK);
    assert_string_equal(tws_conn_subprotocol(d.conn), "superchat");
    assert_ptr_equal(tws_conn_user(d.conn), &opt);
    assert_null(strstr(tws_response_url(d.response), "user"));
    close(fd);
    dialing_end(&d);
}

/* Refused before anything is sent, with an error that names what is wrong. */
static void expect_refused_options(const tws_dial_options *opt, const char *word)
{
    tws_conn *c = (tws_conn *)(uintptr_t)1;
    tws_response *r = (tws_response *)(uintptr_t)1;
    tws_error e;
    char url[256];

    snprintf(url, sizeof url, "ws://%s/", group_fake.host);
    assert_err(tws_dial(&c, url, opt, &r, &e), TWS_ERR_ARGUMENT);
    assert_null(c);
    assert_null(r);
    assert_int_equal(e.code, TWS_ERR_ARGUMENT);
    assert_int_equal(e.cause, TWS_CAUSE_LOCAL);
    if (!strstr(e.text, word))
        fail_msg("'%s' is not in: %s", word, e.text);
    for (const char *p = e.text; *p; p++)
        assert_true((unsigned char)*p >= 0x20);
    assert_false(fake_has_caller(&group_fake));
}

/* B166: line ends in what goes into the head. Headers of the handshake are refused by name. */
static void test_refused_headers(void **state)
{
    static const tws_header bad[] = {
        {"Host", "x"},
        {"upgrade", "h2c"},
        {"Connection", "close"},
        {"content-length", "1"},
        {"Transfer-Encoding", "chunked"},
        {"Sec-WebSocket-Key", "x"},
        {"sec-websocket-anything", "x"},
        {"Origin", "x"},
        {"Cookie", "x"},
        {"X Blank", "x"},
        {"X-Colon:", "x"},
        {"X-Line\r\nX-Evil", "1"},
        {"", "x"},
        {NULL, "x"},
        {"X-Value", "a\nX-Evil: 1"},
        {"X-Value", "a\r\nX-Evil: 1"},
        {"X-Value", " padded"},
        {"X-Value", NULL},
    };
    static const char *const words[] = {"a\r\nX-Evil: 1", "a b", "", NULL, "a,b"};
    static const char *const twice[] = {"a", "b", "a"};
    tws_dial_options opt;

    (void)state;
    tws_dial_options_init(&opt);
    opt.origin = "http://x";
    opt.cookie = "a=b";
    opt.header_count = 1;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char shown[64];

        opt.headers = &bad[i];
        snprintf(shown, sizeof shown, "header '%.*s",
                 (int)(bad[i].name ? strcspn(bad[i].name, "\r") : 0),
                 bad[i].name ? bad[i].name : "");
        expect_refused_options(&opt, shown);
    }
    opt.header_count = 0;
    opt.subprotocol_count = 1;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        opt.subprotocols = &words[i];
        expect_refused_options(&opt, "subprotocol '");
    }
    opt.subprotocols = twice;
    opt.subprotocol_count = 3;
    expect_refused_options(&opt, "subprotocol 'a' is there twice");
}

static void test_refused_options(void **state)
{
    tws_dial_options good, opt;

    (void)state;
    tws_dial_options_init(&good);
#define REFUSED(member, value, word)                                                               \
    do {                                                                                           \
        opt = good;                                                                                \
        opt.member = (value);                                                                      \
        expect_refused_options(&opt, word);                                                        \
    } while (0)
    REFUSED(size, 0, "initialised");
    REFUSED(timeout, -1, ": timeout is");
    REFUSED(resolve_timeout, -1, "resolve_timeout");
    REFUSED(connect_timeout, -1, "connect_timeout");
    REFUSED(tls_timeout, -1, "tls_timeout");
    REFUSED(handshake_timeout, -2, "handshake_timeout");
    REFUSED(conn.read_timeout, -2, "read_timeout");
    REFUSED(conn.write_timeout, -2, "write_timeout");
    REFUSED(conn.close_timeout, -1, "close_timeout");
    REFUSED(conn.idle_timeout, -1, "idle_timeout");
    REFUSED(conn.ping_interval, -1, "ping_interval");
    REFUSED(conn.ping_timeout, -1, "ping_timeout");
    REFUSED(attempt_delay, 9, "attempt_delay");
    REFUSED(attempt_delay, 60001, "attempt_delay");
    REFUSED(max_head_bytes, 255, "max_head_bytes");
    REFUSED(max_head_bytes, 65536, "max_head_bytes");
    REFUSED(max_head_fields, 7, "max_head_fields");
    REFUSED(max_head_fields, 1001, "max_head_fields");
    REFUSED(origin, "a\r\nb: c", "origin");
    REFUSED(cookie, "a\nb", "cookie");
    REFUSED(host, "a b", "host");
    REFUSED(host, "a\r\nb", "host");
    REFUSED(host, "user@a", "host");
    REFUSED(source_address, "localhost", "source_address");
    REFUSED(fd, -2, "fd");
    REFUSED(header_count, 1, "headers");
    REFUSED(subprotocol_count, 1, "subprotocols");
    REFUSED(proxy_header_count, 1, "proxy_headers");
    REFUSED(proxy, "gopher://x", "proxy");
#undef REFUSED
}

/* A program that was compiled when the options were shorter. */
static void test_shorter_options(void **state)
{
    size_t size = offsetof(tws_dial_options, cookie);
    struct fake_request r;
    tws_dial_options *opt = support_alloc(size);
    struct dialing d;
    int fd;

    (void)state;
    tws_dial_options_init_sized(opt, size);
    opt->origin = "http://x";
    dialing_start_fake(&d, &group_fake, "/", opt);
    fd = fake_accept(&group_fake);
    assert_true(fake_read_request(fd, &r));
    assert_string_equal(fake_header(r.text, "Origin"), "http://x");
    fake_upgrade(fd, &r, "", NULL, 0);
    dialing_join(&d, TWS_OK);
    close(fd);
    dialing_end(&d);
    free(opt);
}

/* ---- The answer ---- */

/* What becomes of an answer with the right accept key and these lines. */
static void expect_answer(const tws_dial_options *opt, const char *lines, tws_err wanted,
                          const char *word)
{
    struct fake_request r;
    struct dialing d;
    int fd;

    dialing_start_fake(&d, &group_fake, "/", opt);
    fd = fake_accept(&group_fake);
    assert_true(fake_read_request(fd, &r));
    fake_upgrade_bare(fd, &r, lines);
    dialing_join(&d, wanted);
    if (word && !strstr(d.error.text, word))
        fail_msg("'%s' is not in: %s", word, d.error.text);
    if (wanted) {
        char c;

        assert_int_equal(d.error.phase, TWS_PHASE_HANDSHAKE);
        assert_int_equal(tws_response_status(d.response), 101);
        assert_int_equal(recv(fd, &c, 1, 0), 0); /* nothing more, no frame above all */
    }
    close(fd);
    dialing_end(&d);
}

#define UPGRADE "Upgrade: websocket\r\nConnection: Upgrade\r\n"

/* B168: lists, other cases, no blanks. */
static void test_answer_forms(void **state)
{
    (void)state;
    expect_answer(NULL, UPGRADE, TWS_OK, NULL);
    expect_answer(NULL, "Connection: keep-alive, Upgrade\r\nupgrade: WebSocket\r\n", TWS_OK, NULL);
    expect_answer(NULL, "connection:upgrade\r\nupgrade:websocket\r\n", TWS_OK, NULL);
    expect_answer(NULL, "Connection: keep-alive\r\nConnection: UPGRADE\r\nUpgrade: websocket\r\n",
                  TWS_OK, NULL);
    expect_answer(NULL, "Connection: Upgrade\r\n", TWS_ERR_HANDSHAKE, "Upgrade");
    expect_answer(NULL, "Upgrade: websocket\r\n", TWS_ERR_HANDSHAKE, "Connection");
    expect_answer(NULL, "Upgrade: h2c\r\nConnection: Upgrade\r\n", TWS_ERR_HANDSHAKE, "Upgrade");
    expect_answer(NULL, UPGRADE "Sec-WebSocket-Accept: x\r\n", TWS_ERR_HANDSHAKE, "Accept");
}

/* B170: nothing that was not asked for. */
static void test_unrequested(void **state)
{
    static const char *const protocols[] = {"a", "b"};
    tws_dial_options opt;

    (void)state;
    tws_dial_options_init(&opt);
    opt.subprotocols = protocols;
    opt.subprotocol_count = 2;
    expect_answer(NULL, UPGRADE "Sec-WebSocket-Extensions: x-foo\r\n", TWS_ERR_HANDSHAKE,
                  "extension");
    expect_answer(NULL, UPGRADE "Sec-WebSocket-Extensions: permessage-deflate\r\n",
                  TWS_ERR_HANDSHAKE, "extension");
    expect_answer(NULL, UPGRADE "Sec-WebSocket-Extensions:\r\n", TWS_ERR_HANDSHAKE, "extension");
    expect_answer(NULL, UPGRADE "Sec-WebSocket-Protocol: chat\r\n", TWS_ERR_HANDSHAKE,
                  "subprotocol");
    expect_answer(NULL, UPGRADE "Sec-WebSocket-Protocol:\r\n", TWS_ERR_HANDSHAKE, "subprotocol");
    expect_answer(&opt, UPGRADE "Sec-WebSocket-Protocol: c\r\n", TWS_ERR_HANDSHAKE, "subprotocol");
    expect_answer(&opt, UPGRADE "Sec-WebSocket-Protocol: a, b\r\n", TWS_ERR_HANDSHAKE,
                  "subprotocol");
    expect_answer(&opt, UPGRADE "Sec-WebSocket-Protocol: a\r\nSec-WebSocket-Protocol: a\r\n",
                  TWS_ERR_HANDSHAKE, "subprotocol");
    expect_answer(&opt, UPGRADE "Sec-WebSocket-Protocol: A\r\n", TWS_ERR_HANDSHAKE, "subprotocol");
    expect_answer(&opt, UPGRADE "Sec-WebSocket-Protocol: b\r\n", TWS_OK, NULL);
    expect_answer(&opt, UPGRADE, TWS_OK, NULL);
}

/* Whatever bytes the server sends, and then closes. */
static void expect_bytes(const tws_dial_options *opt, const char *bytes, tws_err wanted,
                         const char *word)
{
    struct fake_request r;
    struct dialing d;
    int fd;

    dialing_start_fake(&d, &group_fake, "/", opt);
    fd = fake_accept(&group_fake);
    assert_true(fake_read_request(fd, &r));
    if (bytes[0])
        fake_say(fd, bytes);
    close(fd);
    dialing_join(&d, wanted);
    assert_null(d.response);
    if (!strstr(d.error.text, word))
        fail_msg("'%s' is not in: %s", word, d.error.text);
    dialing_end(&d);
}

static void test_broken_answers(void **state)
{
    char *large = support_alloc(3000);
    tws_dial_options opt;

    (void)state;
    tws_dial_options_init(&opt);
    opt.max_head_bytes = 1023; /* odd: what stands behind it in memory is aligned all the same */
    opt.max_head_fields = 8;
    expect_bytes(NULL, "", TWS_ERR_EOF, "before it had answered");
    expect_bytes(NULL, "HTTP/1.1 101 Swi", TWS_ERR_EOF, "before it had answered");
    expect_bytes(NULL, "SSH-2.0-OpenSSH_9.2\r\n", TWS_ERR_HANDSHAKE, "HTTP");
    expect_bytes(NULL, "HTTP/2 101\r\n\r\n", TWS_ERR_HANDSHAKE, "HTTP");
    expect_bytes(NULL, "HTTP/1.1 101 X\r\nA : b\r\n\r\n", TWS_ERR_HANDSHAKE, "HTTP");
    memset(large, 'a', 2999);
    large[2999] = 0;
    memcpy(large, "HTTP/1.1 200 OK\r\nX: ", 20);
    expect_bytes(&opt, large, TWS_ERR_HANDSHAKE, "HTTP");
    strcpy(large, "HTTP/1.1 200 OK\r\n");
    for (int i = 0; i < 9; i++)
        strcat(large, "X: y\r\n");
    strcat(large, "\r\n");
    expect_bytes(&opt, large, TWS_ERR_HANDSHAKE, "HTTP");
    free(large);
}

/* A 101 that is for another key, or in HTTP/1.0. */
static void test_wrong_answers(void **state)
{
    static const char *const answers[] = {
        "HTTP/1.1 101 X\r\n" UPGRADE "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
        "HTTP/1.1 101 X\r\n" UPGRADE "\r\n",
        "HTTP/1.0 101 X\r\n" UPGRADE "\r\n",
    };
    static const char *const words[] = {"Accept", "Accept", "HTTP/1.0"};

    (void)state;
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        struct fake_request r;
        struct dialing d;
        int fd;

        dialing_start_fake(&d, &group_fake, "/", NULL);
        fd = fake_accept(&group_fake);
        assert_true(fake_read_request(fd, &r));
        fake_say(fd, answers[i]);
        dialing_join(&d, TWS_ERR_HANDSHAKE);
        assert_non_null(strstr(d.error.text, words[i]));
        close(fd);
        dialing_end(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_echo),
        cmocka_unit_test(test_request_target),
        cmocka_unit_test(test_request_ipv6),
        cmocka_unit_test(test_request_options),
        cmocka_unit_test(test_refused_headers),
        cmocka_unit_test(test_refused_options),
        cmocka_unit_test(test_shorter_options),
        cmocka_unit_test(test_answer_forms),
        cmocka_unit_test(test_unrequested),
        cmocka_unit_test(test_broken_answers),
        cmocka_unit_test(test_wrong_answers),
    };

    return cmocka_run_group_tests_name("client_dial", tests, group_fake_listen, group_fake_close);
}
