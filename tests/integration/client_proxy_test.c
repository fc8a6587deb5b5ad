/*
 * Through proxies that follow a script: what is asked of them, byte for byte, and what is made of
 * answers that are right, refusing, malformed, endless or never whole.
 */
#include "support.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/proxy.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* What the proxy does, one line a step. Bytes with their number, since SOCKS has zeros. */
struct step {
    enum { END, TAKE, SEND, DRIP, FLOOD, SILENCE } what;
    const char *bytes; /* of FLOOD: sent again and again */
    size_t len;        /* of FLOOD: bytes in all; of SILENCE: none */
};
#define BYTES(b) (b), sizeof(b) - 1

struct fake {
    pthread_t thread;
    int fd;
    const struct step *script;
    char fault[200]; /* what differed; "" when all was right */
    _Atomic size_t flooded;
};

static bool take(struct fake *f, const struct step *s)
{
    for (size_t i = 0; i < s->len; i++) {
        char c;

        if (recv(f->fd, &c, 1, 0) != 1 || c != s->bytes[i]) {
            snprintf(f->fault, sizeof f->fault, "byte %zu of %zu differs", i, s->len);
            return false;
        }
    }
    return true;
}

static void give(struct fake *f, const struct step *s, size_t piece)
{
    for (size_t i = 0; i < s->len; i += piece) {
        size_t n = s->len - i < piece ? s->len - i : piece;

        if (send(f->fd, s->bytes + i, n, MSG_NOSIGNAL) < 0)
            return;
        if (piece == 1)
            sched_yield();
    }
}

/* Until the client has had enough and closes. */
static void flood(struct fake *f, const struct step *s)
{
    size_t n = strlen(s->bytes);

    while (f->flooded < s->len && send(f->fd, s->bytes, n, MSG_NOSIGNAL) > 0)
        f->flooded += n;
}

static void *play(void *arg)
{
    struct fake *f = arg;
    char c;

    for (const struct step *s = f->script; s->what != END; s++) {
        if (s->what == TAKE && !take(f, s))
            break;
        if (s->what == SEND)
            give(f, s, s->len > 0 ? s->len : 1);
        else if (s->what == DRIP)
            give(f, s, 1);
        else if (s->what == FLOOD)
            flood(f, s);
        else if (s->what == SILENCE) {
            if (recv(f->fd, &c, 1, 0) > 0)
                snprintf(f->fault, sizeof f->fault, "more than the script has");
        }
    }
    close(f->fd);
    return NULL;
}

/* ---- One attempt ---- */

struct seen {
    char sent[2048], received[4096];
};

static void on_head(bool sent, const char *text, size_t len, void *arg)
{
    struct seen *seen = arg;
    char *to = sent ? seen->sent : seen->received;
    size_t room = sent ? sizeof seen->sent : sizeof seen->received;

    if (text[len] == '\0' && len < room - strlen(to))
        strcat(to, text);
}

struct attempt {
    const char *proxy, *url;
    const tws_header *headers;
    size_t header_count;
    const struct sockaddr *address;
    tws_ms timeout;       /* 0: longer than any test */
    const char *leftover; /* what stands in the stream after success */
    struct seen *seen;
};

static void assert_leftover(struct net_stream *st, const char *expected)
{
    char byte;

    for (size_t i = 0; expected[i] != '\0'; i++) {
        ssize_t n;

        do
            n = net_stream_recv(st, &byte, 1);
        while (n == -EAGAIN && net_stream_await(st, task_deadline(SUPPORT_HANG_MS), 0) == 0);
        assert_int_equal(n, 1);
        assert_int_equal(byte, expected[i]);
    }
}

static int attempt(const struct attempt *a, const struct step *script, struct proxy_error *err)
{
    struct fake f = {.script = script};
    struct wire_url url;
    struct proxy p;
    struct proxy_source src = {.option = a->proxy};
    struct net_stream st;
    int pair[2], r;
    struct proxy_target target = {.url = &url,
                                  .address = a->address,
                                  .headers = a->headers,
                                  .header_count = a->header_count,
                                  .max_head_bytes = 16384,
                                  .max_head_fields = 100,
                                  .on_head = a->seen ? on_head : NULL,
                                  .on_head_arg = a->seen};

    *err = (struct proxy_error){0};
    assert_int_equal(wire_url_parse(&url, wire_text_of(a->url)), WIRE_URL_OK);
    assert_int_equal(proxy_choose(&p, &src, &url, err), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    f.fd = pair[1];
    assert_int_equal(net_stream_init(&st, NULL, pair[0], false), 0);
    support_thread(&f.thread, play, &f);
    r = proxy_open(&st, &p, &target, task_deadline(a->timeout ? a->timeout : SUPPORT_HANG_MS), err);
    if (r == 0 && a->leftover)
        assert_leftover(&st, a->leftover);
    net_stream_close(&st);
    pthread_join(f.thread, NULL);
    proxy_release(&p);
    if (f.fault[0] != '\0')
        fail_msg("%s through %s: %s", a->url, a->proxy, f.fault);
    /* Not more was swallowed than an answer may have, and what two socket buffers hold. */
    assert_true(f.flooded < 4 << 20);
    return r;
}

static void assert_opens(const struct attempt *a, const struct step *script)
{
    struct proxy_error err;
    int r = attempt(a, script, &err);

    if (r != 0)
        fail_msg("%s through %s: %d %s", a->url, a->proxy, r, err.text);
}

static void assert_refused(const struct attempt *a, const struct step *script, int result,
                           const char *text, int status)
{
    struct proxy_error err;
    int r = attempt(a, script, &err);

    if (r != result || strstr(err.text, text) == NULL)
        fail_msg("%s through %s: %d '%s'", a->url, a->proxy, r, err.text);
    assert_int_equal(err.status, status);
}

/* ---- CONNECT ---- */

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

/* ---- SOCKS5 ---- */

#define GREETING "\x05\x01\x00"
#define BOUND "\x05\x00\x00\x01\x7f\x00\x00\x01\x12\x34"

static void test_socks_targets(void **state)
{
    static const struct sockaddr_in in = {.sin_family = AF_INET,
                                          .sin_addr = {.s_addr = 0x0100000a}};
    static const struct sockaddr_in6 in6 = {.sin6_family = AF_INET6,
                                            .sin6_addr = {{{0xfd, [15] = 9}}}};
    static const struct {
        const char *proxy, *url;
        const void *address;
        const char *bytes;
        size_t len;
    } table[] = {
        {"socks5h://p", "ws://h/", NULL, BYTES("\x05\x01\x00\x03\x01h\x00\x50")},
        {"socks5h://p", "wss://example/", NULL,
         BYTES("\x05\x01\x00\x03\x07"
               "example\x01\xbb")},
        {"socks5h://p", "ws://10.0.0.1:9001/", NULL,
         BYTES("\x05\x01\x00\x01\x0a\x00\x00\x01\x23\x29")},
        {"socks5h://p", "ws://[::1]/", NULL,
         BYTES("\x05\x01\x00\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x00\x50")},
        {"socks5://p", "ws://h/", &in, BYTES("\x05\x01\x00\x01\x0a\x00\x00\x01\x00\x50")},
        {"socks5://p", "ws://h/", &in6,
         BYTES("\x05\x01\x00\x04\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x09\x00\x50")},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++)
        for (int drip = 0; drip < 2; drip++) {
            const struct step script[] = {{TAKE, BYTES(GREETING)},
                                          {SEND, BYTES("\x05\x00")},
                                          {TAKE, table[i].bytes, table[i].len},
                                          {drip ? DRIP : SEND, BYTES(BOUND "more")},
                                          {END, NULL, 0}};

            /* What follows the answer is the server's, and left where it is. */
            assert_opens(&(struct attempt){.proxy = table[i].proxy,
                                           .url = table[i].url,
                                           .address = table[i].address,
                                           .leftover = "more"},
                         script);
        }
}

static void test_socks_bound_addresses(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
    } table[] = {
        {BYTES("\x05\x00\x00\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x00\x50"
               "more")},
        {BYTES("\x05\x00\x00\x03\x05proxy\x00\x50"
               "more")},
        {BYTES("\x05\x00\x00\x03\x00\x00\x50"
               "more")},
        {BYTES("\x05\x00\xff\x01\0\0\0\0\0\0more")},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        const struct step script[] = {{TAKE, BYTES(GREETING)},
                                      {SEND, BYTES("\x05\x00")},
                                      {TAKE, BYTES("\x05\x01\x00\x03\x01h\x00\x50")},
                                      {SEND, table[i].bytes, table[i].len},
                                      {END, NULL, 0}};

        assert_opens(
            &(struct attempt){.proxy = "socks5h://p", .url = "ws://h/", .leftover = "more"},
            script);
    }
}

/* RFC 1929 */
static void test_socks_password(void **state)
{
    static const struct step asked[] = {{TAKE, BYTES("\x05\x02\x00\x02")},
                                        {SEND, BYTES("\x05\x02")},
                                        {TAKE, BYTES("\x01\x02us\x05p:@ww")},
                                        {SEND, BYTES("\x01\x00")},
                                        {TAKE, BYTES("\x05\x01\x00\x03\x01h\x00\x50")},
                                        {SEND, BYTES(BOUND)},
                                        {END, NULL, 0}};
    static const struct step not_asked[] = {{TAKE, BYTES("\x05\x02\x00\x02")},
                                            {SEND, BYTES("\x05\x00")},
                                            {TAKE, BYTES("\x05\x01\x00\x03\x01h\x00\x50")},
                                            {SEND, BYTES(BOUND)},
                                            {END, NULL, 0}};
    static const struct step refused[] = {{TAKE, BYTES("\x05\x02\x00\x02")},
                                          {SEND, BYTES("\x05\x02")},
                                          {TAKE, BYTES("\x01\x02us\x00")},
                                          {SEND, BYTES("\x01\x01")},
                                          {SILENCE, NULL, 0},
                                          {END, NULL, 0}};

    (void)state;
    assert_opens(&(struct attempt){.proxy = "socks5h://us:p%3A%40%77w@p", .url = "ws://h/"}, asked);
    assert_opens(&(struct attempt){.proxy = "socks5h://us:p%3A%40%77w@p", .url = "ws://h/"},
                 not_asked);
    assert_refused(&(struct attempt){.proxy = "socks5h://us@p", .url = "ws://h/"}, refused, -EPROTO,
                   "did not accept user and password", 0);
}

static void test_socks_refusals(void **state)
{
    static const struct {
        const char *proxy, *greeting, *bytes;
        size_t len;
        const char *text;
    } table[] = {
        {"socks5h://p", "\x05\x01\x00", BYTES("\x05\xff"), "wants authorisation"},
        {"socks5h://u:p@p", "\x05\x02\x00", BYTES("\x05\xff"), "takes no user and password"},
        {"socks5h://p", "\x05\x01\x00", BYTES("\x05\x02"), "method not offered"},
        {"socks5h://u@p", "\x05\x02\x00", BYTES("\x05\x01"), "method not offered"},
        {"socks5h://p", "\x05\x01\x00", BYTES("HTTP/1.1 400 Bad Request\r\n\r\n"), "0x48"},
        {"socks5h://p", "\x05\x01\x00", BYTES("\x04\x5b"), "0x04"},
        {"socks5h://p", "\x05\x01\x00", BYTES("\x05"), "closed the connection"},
        {"socks5h://p", "\x05\x01\x00", BYTES(""), "closed the connection"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        const struct step script[] = {
            {TAKE, table[i].greeting, 3}, {SEND, table[i].bytes, table[i].len}, {END, NULL, 0}};

        assert_refused(&(struct attempt){.proxy = table[i].proxy, .url = "ws://h/"}, script,
                       -EPROTO, table[i].text, 0);
    }
}

static void test_socks_replies(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
        const char *text;
    } table[] = {
        {BYTES("\x05\x01\x00\x01\0\0\0\0\0\0"), "1: general failure"},
        {BYTES("\x05\x02"), "2: not allowed"},
        {BYTES("\x05\x05\x00\x01\0\0\0\0\0\0"), "5: connection refused"},
        {BYTES("\x05\x08"), "8: address type"},
        {BYTES("\x05\x09"), "9: unknown"},
        {BYTES("\x05\xff"), "255: unknown"},
        {BYTES("\x04\x00"), "0x04"},
        {BYTES("\x05\x00\x00\x02\0\0"), "unknown address type"},
        {BYTES("\x05\x00\x00\x01\0\0\0"), "closed the connection"},
        {BYTES("\x05\x00\x00\x03\x09"
               "ab"),
         "closed the connection"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        const struct step script[] = {{TAKE, BYTES(GREETING)},
                                      {SEND, BYTES("\x05\x00")},
                                      {TAKE, BYTES("\x05\x01\x00\x03\x01h\x00\x50")},
                                      {SEND, table[i].bytes, table[i].len},
                                      {END, NULL, 0}};

        assert_refused(&(struct attempt){.proxy = "socks5h://p", .url = "ws://h/"}, script, -EPROTO,
                       table[i].text, 0);
    }
}

static void test_socks_limits(void **state)
{
    static const struct step greeted[] = {{TAKE, BYTES("\x05\x02\x00\x02")},
                                          {SEND, BYTES("\x05\x02")},
                                          {SILENCE, NULL, 0},
                                          {END, NULL, 0}};
    char proxy[600], long_word[257];

    (void)state;
    memset(long_word, 'a', 256);
    long_word[256] = '\0';
    snprintf(proxy, sizeof proxy, "socks5h://%s:p@p", long_word);
    assert_refused(&(struct attempt){.proxy = proxy, .url = "ws://h/"}, greeted, -EINVAL,
                   "over 255 bytes", 0);
    snprintf(proxy, sizeof proxy, "socks5h://u:%s@p", long_word);
    assert_refused(&(struct attempt){.proxy = proxy, .url = "ws://h/"}, greeted, -EINVAL,
                   "over 255 bytes", 0);
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
        cmocka_unit_test(test_socks_targets),
        cmocka_unit_test(test_socks_bound_addresses),
        cmocka_unit_test(test_socks_password),
        cmocka_unit_test(test_socks_refusals),
        cmocka_unit_test(test_socks_replies),
        cmocka_unit_test(test_socks_limits),
        cmocka_unit_test(test_unix_target),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
