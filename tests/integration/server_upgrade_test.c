/*
 * The opening handshake as the hooks of a C program see it: upgrades, refusals, pages, origins,
 * subprotocols; and tws_upgrade() on a socket that somebody else accepted.
 */
#include "support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* What the last handshake that was no upgrade ended with. */
struct seen {
    pthread_mutex_t mu;
    unsigned count;
    tws_error error;
    bool had_request;
    char path[64];
    void *user;
};

static struct seen seen = {.mu = PTHREAD_MUTEX_INITIALIZER};

static void on_end(const tws_error *e, const tws_request *r, void *user, void *arg)
{
    (void)arg;
    pthread_mutex_lock(&seen.mu);
    seen.count++;
    seen.error = *e;
    seen.had_request = r != NULL;
    snprintf(seen.path, sizeof seen.path, "%s", r ? tws_request_path(r) : "");
    seen.user = user;
    pthread_mutex_unlock(&seen.mu);
}

static unsigned ends_seen(void)
{
    unsigned n;

    pthread_mutex_lock(&seen.mu);
    n = seen.count;
    pthread_mutex_unlock(&seen.mu);
    return n;
}

/* Sends a request and looks at the answer; *answer is static. */
static int ask(const char *address, const char *headers, const char **answer)
{
    static char text[8192];
    char request[4096];
    unsigned before = ends_seen();
    int status;

    client_request(request, sizeof request, headers);
    status = client_http(address, request, text, sizeof text);
    *answer = text;
    WAIT_FOR(ends_seen() > before);
    return status;
}

static void start(struct support_server *s, tws_server_options *opt)
{
    opt->upgrade.on_handshake_end = on_end;
    support_server_start(s, opt);
}

/* ---- Upgrade hook ---- */

static bool choose(const tws_request *r, tws_reply *a, void *arg)
{
    char text[64], name[32];
    const char *n, *v;
    size_t headers = 0;
    bool ok;

    *(int *)arg = 0;
    while (tws_request_header_at(r, headers, &n, &v))
        headers++;
    ok = strcmp(tws_request_method(r), "GET") == 0 && strcmp(tws_request_path(r), "/test") == 0 &&
         strcmp(tws_request_query(r), "x=1") == 0 && tws_request_param(r, "x", text, 64) == 1 &&
         strcmp(text, "1") == 0 && tws_request_param(r, "y", text, 64) == -1 &&
         strcmp(tws_request_header(r, "HOST"), "test.example:8080") == 0 &&
         !tws_request_header(r, "None") && tws_request_cookie(r, "id", text, 64) == 5 &&
         strcmp(text, "abc d") == 0 && tws_request_cookie(r, "nope", text, 64) == -1 &&
         tws_request_subprotocol_at(r, 0, text, 64) == 4 && strcmp(text, "chat") == 0 &&
         tws_request_subprotocol_at(r, 1, name, 32) == 9 && strcmp(name, "superchat") == 0 &&
         tws_request_subprotocol_at(r, 2, name, 32) == -1 && headers == 7 &&
         tws_request_peer_address(r, text, 64) > 10 && strncmp(text, "127.0.0.1:", 10) == 0 &&
         tws_request_local_address(r, text, 64) > 10;
    if (!ok)
        return false;
    /* Nothing may be smuggled into the answer. */
    ok = tws_reply_header(a, "X-Good", "yes") == TWS_OK &&
         tws_reply_header(a, "X-Bad", "a\r\nX-Injected: b") == TWS_ERR_ARGUMENT &&
         tws_reply_header(a, "X-Bad\r\nX-Injected", "b") == TWS_ERR_ARGUMENT &&
         tws_reply_header(a, "X Bad", "b") == TWS_ERR_ARGUMENT &&
         tws_reply_header(a, "Content-Length", "5") == TWS_ERR_ARGUMENT &&
         tws_reply_header(a, "sec-websocket-protocol", "x") == TWS_ERR_ARGUMENT &&
         tws_reply_header(a, NULL, "x") == TWS_ERR_ARGUMENT &&
         tws_reply_subprotocol(a, "unoffered") == TWS_ERR_ARGUMENT &&
         tws_reply_subprotocol(a, "superchat") == TWS_OK;
    tws_reply_user(a, arg);
    *(int *)arg = ok;
    return ok;
}

static void tell(tws_conn *c, void *arg)
{
    char text[128];

    (void)arg;
    snprintf(text, sizeof text, "%s %d", tws_conn_subprotocol(c) ? tws_conn_subprotocol(c) : "none",
             tws_conn_user(c) ? *(int *)tws_conn_user(c) : -1);
    tws_write_text(c, text);
    support_echo(c, NULL);
}

static void test_hook_upgrades(void **state)
{
    int user = 7;
    tws_server_options opt;
    struct support_server s;
    struct client c;

    (void)state;
    support_server_options(&opt, tell, NULL);
    opt.upgrade.on_upgrade = choose;
    opt.upgrade.hook_arg = &user;
    start(&s, &opt);
    assert_int_equal(client_upgrade(&c, client_dial(s.address),
                                    "Cookie: a=b; id=abc d\r\n"
                                    "Sec-WebSocket-Protocol: chat, superchat\r\n"),
                     101);
    assert_non_null(strstr(c.head, "\r\nX-Good: yes\r\n"));
    assert_non_null(strstr(c.head, "\r\nSec-WebSocket-Protocol: superchat\r\n"));
    assert_non_null(strstr(c.head, "\r\nServer: libtws\r\n"));
    assert_null(strstr(c.head, "Injected"));
    client_expect_text(&c, "superchat 1");
    client_close(&c);
    tws_server_free(s.server);
}

static bool refuse(const tws_request *r, tws_reply *a, void *arg)
{
    (void)arg;
    if (tws_request_header(r, "X-Plain"))
        return false;
    tws_reply_user(a, &seen);
    tws_reply_header(a, "WWW-Authenticate", "Basic realm=\"x\"");
    if (tws_request_header(r, "X-Wrong"))
        return tws_reply_status(a, 199) != TWS_ERR_ARGUMENT;
    return tws_reply_status(a, 401) != TWS_OK ||
           tws_reply_body(a, "text/html", "<p>who?", 7) != TWS_OK;
}

static void never(tws_conn *c, void *arg)
{
    (void)c;
    atomic_fetch_add((_Atomic int *)arg, 1);
}

static void test_hook_refuses(void **state)
{
    _Atomic int called = 0;
    tws_server_options opt;
    struct support_server s;
    const char *answer;

    (void)state;
    support_server_options(&opt, never, &called);
    opt.upgrade.on_upgrade = refuse;
    start(&s, &opt);
    assert_int_equal(ask(s.address, NULL, &answer), 401);
    assert_non_null(strstr(answer, "\r\nWWW-Authenticate: Basic realm=\"x\"\r\n"));
    assert_non_null(strstr(answer, "\r\nContent-Type: text/html\r\n"));
    assert_non_null(strstr(answer, "\r\nContent-Length: 7\r\n"));
    assert_non_null(strstr(answer, "\r\nConnection: close\r\n"));
    assert_string_equal(strstr(answer, "\r\n\r\n") + 4, "<p>who?");
    assert_int_equal(seen.error.code, TWS_ERR_REFUSED);
    assert_int_equal(seen.error.http_status, 401);
    assert_int_equal(seen.error.phase, TWS_PHASE_HANDSHAKE);
    assert_int_equal(seen.error.cause, TWS_CAUSE_LOCAL);
    assert_ptr_equal(seen.user, &seen);
    assert_string_equal(seen.path, "/test");
    assert_int_equal(ask(s.address, "X-Plain: 1\r\n", &answer), 403);
    assert_null(seen.user);
    assert_int_equal(ask(s.address, "X-Wrong: 1\r\n", &answer), 500);
    tws_server_free(s.server);
    assert_int_equal(atomic_load(&called), 0);
}

/* ---- Subprotocols ---- */

/* B134: what one connection agreed is not what the next one gets. */
static void test_subprotocols(void **state)
{
    static const char *const known[] = {"b", "a"};
    static const struct {
        const char *headers, *agreed;
    } cases[] = {{"Sec-WebSocket-Protocol: a\r\n", "a"},
                 {"", NULL},
                 {"Sec-WebSocket-Protocol: x, a\r\nSec-WebSocket-Protocol: b\r\n", "b"},
                 {"Sec-WebSocket-Protocol: A, unknown\r\n", NULL},
                 {"", NULL}};
    tws_server_options opt;
    struct support_server s;

    (void)state;
    support_server_options(&opt, tell, NULL);
    opt.upgrade.subprotocols = known;
    opt.upgrade.subprotocol_count = 2;
    start(&s, &opt);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char header[64], text[32];
        struct client c;

        assert_int_equal(client_upgrade(&c, client_dial(s.address), cases[i].headers), 101);
        snprintf(header, sizeof header, "\r\nSec-WebSocket-Protocol: %s\r\n",
                 cases[i].agreed ? cases[i].agreed : "");
        snprintf(text, sizeof text, "%s -1", cases[i].agreed ? cases[i].agreed : "none");
        if (cases[i].agreed)
            assert_non_null(strstr(c.head, header));
        else
            assert_null(strstr(c.head, "Sec-WebSocket-Protocol"));
        client_expect_text(&c, text);
        client_close(&c);
    }
    tws_server_free(s.server);
}

/* ---- Origins ---- */

struct origin_case {
    const char *origin;
    int status;
};

static void check_origins(tws_server_options *opt, const struct origin_case *cases, size_t n)
{
    struct support_server s;

    start(&s, opt);
    for (size_t i = 0; i < n; i++) {
        char header[128];
        struct client c;
        const char *answer;
        int status;

        snprintf(header, sizeof header, "Origin: %s\r\n", cases[i].origin);
        if (cases[i].status == 101) {
            status = client_upgrade(&c, client_dial(s.address), cases[i].origin ? header : NULL);
            client_close(&c);
        } else {
            status = ask(s.address, header, &answer);
            assert_int_equal(seen.error.code, TWS_ERR_REFUSED);
        }
        if (status != cases[i].status)
            fail_msg("Origin %s: %d", cases[i].origin ? cases[i].origin : "none", status);
    }
    tws_server_free(s.server);
}

/* B136: scheme, host and port must be the server's own, letters in any case */
static void test_same_origin(void **state)
{
    static const struct origin_case cases[] = {
        {NULL, 101},
        {"http://test.example:8080", 101},
        {"http://TEST.example:8080", 101},
        {"https://test.example:8080", 403},
        {"http://test.example", 403},
        {"http://test.example:80", 403},
        {"http://other.example:8080", 403},
        {"http://te\xc5\xbft.example:8080", 403}, /* a long s, which Unicode folds to s */
        {"http://test.example:8080.evil.example", 403},
        {"null", 403},
    };
    tws_server_options opt;

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    check_origins(&opt, cases, sizeof cases / sizeof *cases);
}

static void test_origin_list(void **state)
{
    static const char *const allowed[] = {"https://example.com", "*.example.org",
                                          "http://localhost:*"};
    static const struct origin_case cases[] = {
        {"http://test.example:8080", 101},
        {"https://example.com", 101},
        {"https://EXAMPLE.com", 101},
        {"http://example.com", 403},
        {"https://a.example.org", 101},
        {"https://example.org", 403},
        {"http://localhost:3000", 101},
        {"https://localhost:3000", 403},
        {"null", 403},
    };
    static const struct origin_case any[] = {{"null", 101}, {"https://who.knows", 101}};
    tws_server_options opt;

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    opt.upgrade.origins = allowed;
    opt.upgrade.origin_count = 3;
    check_origins(&opt, cases, sizeof cases / sizeof *cases);
    support_server_options(&opt, support_echo, NULL);
    opt.upgrade.any_origin = true;
    check_origins(&opt, any, 2);
}

/* ---- Pages ---- */

static bool page(const tws_request *r, tws_reply *a, void *arg)
{
    static const char text[] = "all is well\n";

    (void)arg;
    if (strcmp(tws_request_path(r), "/nothing") == 0) {
        tws_reply_header(a, "X-Dropped", "1");
        tws_reply_status(a, 200);
        return false;
    }
    if (strcmp(tws_request_path(r), "/health") == 0)
        return tws_reply_header(a, "X-Page", "1") == TWS_OK &&
               tws_reply_body(a, "text/plain", text, sizeof text - 1) == TWS_OK;
    tws_reply_status(a, 404);
    return tws_reply_body(a, "text/plain", "no such page\n", 13) == TWS_OK;
}

static void test_pages(void **state)
{
    tws_server_options opt;
    tws_server_stats st;
    struct support_server s;
    char answer[2048];

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    opt.upgrade.on_page = page;
    opt.upgrade.server_name = "";
    start(&s, &opt);
    assert_int_equal(
        client_http(s.address, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n", answer, sizeof answer),
        200);
    assert_non_null(strstr(answer, "\r\nContent-Length: 12\r\n"));
    assert_non_null(strstr(answer, "\r\nX-Page: 1\r\n"));
    assert_non_null(strstr(answer, "\r\nConnection: close\r\n"));
    assert_null(strstr(answer, "\r\nServer:"));
    assert_string_equal(strstr(answer, "\r\n\r\n") + 4, "all is well\n");
    assert_int_equal(
        client_http(s.address, "HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n", answer, sizeof answer),
        200);
    assert_non_null(strstr(answer, "\r\nContent-Length: 12\r\n"));
    assert_string_equal(strstr(answer, "\r\n\r\n") + 4, "");
    assert_int_equal(client_http(s.address, "GET /health HTTP/1.0\r\n\r\n", answer, sizeof answer),
                     200); /* a proxy's health check */
    assert_int_equal(
        client_http(s.address, "GET /else HTTP/1.1\r\nHost: x\r\n\r\n", answer, sizeof answer),
        404);
    assert_string_equal(strstr(answer, "\r\n\r\n") + 4, "no such page\n");
    WAIT_FOR((tws_server_get_stats(s.server, &st), st.pages == 4));
    assert_int_equal(seen.error.code, TWS_ERR_NOT_UPGRADE);
    assert_string_equal(seen.error.text,
                        "the request was plain HTTP and has been answered: 404, by on_page");
    assert_int_equal(
        client_http(s.address, "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", answer, sizeof answer),
        426);
    assert_null(strstr(answer, "X-Dropped"));
    assert_non_null(strstr(answer, "\r\nUpgrade: websocket\r\n"));
    assert_int_equal(
        client_http(s.address, "POST /health HTTP/1.1\r\nHost: x\r\n\r\n", answer, sizeof answer),
        405);
    assert_non_null(strstr(answer, "\r\nAllow: GET"));
    tws_server_free(s.server);

    support_server_options(&opt, support_echo, NULL);
    start(&s, &opt);
    assert_int_equal(
        client_http(s.address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", answer, sizeof answer), 426);
    assert_non_null(strstr(answer, "\r\nUpgrade: websocket\r\n"));
    tws_server_free(s.server);
}

/* ---- tws_upgrade() ---- */

/* Two ends of a connected stream socket. */
static int socket_pair(struct client *c)
{
    int fd[2];

    memset(c, 0, sizeof *c);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
    c->fd = fd[0];
    return fd[1];
}

/* A request and a frame behind it, of which any number of bytes have been read already. */
static void test_upgrade_split(void **state)
{
    struct support_census before = support_census();
    uint8_t bytes[1024];
    size_t request, len;

    (void)state;
    request = client_request((char *)bytes, sizeof bytes, NULL);
    len = request + client_frame(bytes + request, CLIENT_FIN | CLIENT_TEXT, "first", 5);
    for (size_t cut = 0; cut <= len; cut++) {
        struct client c;
        int fd = socket_pair(&c);
        tws_message m;
        tws_conn *conn;
        tws_error e;

        assert_true(client_send_bytes(c.fd, bytes + cut, len - cut));
        assert_ok(tws_upgrade(&conn, fd, cut ? bytes : NULL, cut, NULL, &e));
        assert_int_equal(e.code, TWS_OK);
        assert_ok(tws_read_message(conn, &m));
        assert_string_equal(m.data, "first");
        assert_int_equal(client_read_head(&c), 101);
        assert_ok(tws_write_text(conn, "answer"));
        client_expect_text(&c, "answer");
        if (cut % 2)
            tws_conn_unref(conn); /* cuts an open connection */
        client_close(&c);
        if (cut % 2 == 0)
            tws_conn_unref(conn);
    }
    support_assert_census(before);
}

/* Frames behind the request that fill more than the small receive area. */
static void test_upgrade_much_behind(void **state)
{
    static uint8_t bytes[16383];
    char payload[1000];
    struct client c;
    int fd = socket_pair(&c);
    size_t len = client_request((char *)bytes, sizeof bytes, NULL);
    unsigned frames = 0;
    tws_conn *conn;

    (void)state;
    support_fill(payload, sizeof payload, 1);
    while (len + 1000 + 8 <= sizeof bytes) {
        len += client_frame(bytes + len, CLIENT_FIN | CLIENT_TEXT, payload, sizeof payload);
        frames++;
    }
    assert_true(frames > 10);
    assert_ok(tws_upgrade(&conn, fd, bytes, len, NULL, NULL));
    for (unsigned i = 0; i < frames; i++) {
        tws_message m;

        assert_ok(tws_read_message(conn, &m));
        assert_int_equal(m.len, 1000);
        assert_true(support_filled(m.data, m.len, 1));
    }
    tws_conn_unref(conn);
    client_close(&c);
}

static void check_upgrade_fails(const char *bytes, bool end, int status, tws_err code)
{
    tws_upgrade_options opt;
    struct client c;
    int fd = socket_pair(&c);
    tws_conn *conn = (void *)1;
    tws_error e;

    tws_upgrade_options_init(&opt);
    opt.handshake_timeout = 60;
    assert_true(client_send_bytes(c.fd, bytes, strlen(bytes)));
    if (end)
        shutdown(c.fd, SHUT_WR);
    assert_err(tws_upgrade(&conn, fd, NULL, 0, &opt, &e), code);
    assert_null(conn);
    assert_int_equal(e.code, code);
    assert_int_equal(e.http_status, status);
    assert_int_equal(e.phase, TWS_PHASE_HANDSHAKE);
    assert_int_equal(client_read_head(&c), status);
    client_close(&c);
}

static void test_upgrade_fails(void **state)
{
    struct support_census before = support_census();
    tws_upgrade_options opt;
    struct client c;
    tws_conn *conn;
    tws_error e;

    (void)state;
    check_upgrade_fails("GET / HTTP/1.1\r\nHost: x\r\n\r\n", true, 426, TWS_ERR_NOT_UPGRADE);
    check_upgrade_fails("GET / HTTP/1.1\r\n\r\n", true, 400, TWS_ERR_HANDSHAKE);
    check_upgrade_fails("not http\r\n\r\n", true, 400, TWS_ERR_HANDSHAKE);
    check_upgrade_fails("GET / HTTP/1.1\r\nHo", true, 0, TWS_ERR_EOF);
    check_upgrade_fails("", true, 0, TWS_ERR_EOF);
    check_upgrade_fails("GET / HTTP/1.1\r\nHo", false, 0, TWS_ERR_HANDSHAKE_TIMEOUT);
    assert_err(tws_upgrade(&conn, -1, NULL, 0, NULL, &e), TWS_ERR_ARGUMENT);
    assert_err(tws_upgrade(&conn, socket_pair(&c), NULL, 5, NULL, &e), TWS_ERR_ARGUMENT);
    client_close(&c);
    memset(&opt, 0, sizeof opt);
    assert_err(tws_upgrade(&conn, socket_pair(&c), NULL, 0, &opt, NULL), TWS_ERR_ARGUMENT);
    client_close(&c);
    support_assert_census(before); /* the descriptor is closed on every failure */
}

/* The whole life of such a connection: closed with tws_close(), counted by no server. */
static void test_upgrade_and_close(void **state)
{
    char request[1024];
    struct client c;
    int fd = socket_pair(&c);
    tws_conn *conn;
    tws_error e;

    (void)state;
    client_request(request, sizeof request, NULL);
    assert_ok(tws_upgrade(&conn, fd, request, strlen(request), NULL, NULL));
    assert_int_equal(client_read_head(&c), 101);
    client_send_close(&c, 1000, "first");
    /* The peer keeps its side open for as long as the close timeout; both frames were exchanged. */
    assert_ok(tws_set_timeout(conn, TWS_TIMEOUT_CLOSE, 100));
    assert_ok(tws_close(conn, 4000, "at the same time"));
    client_expect_close(&c, 4000, "at the same time");
    tws_conn_error(conn, &e);
    assert_int_equal(e.code, TWS_ERR_CLOSED);
    assert_true(e.clean);
    client_expect_eof(&c);
    tws_conn_unref(conn);
    client_close(&c);
}

/* An odd number of bytes: what stands behind a head in memory is aligned all the same. */
static void test_limits_of_a_head(void **state)
{
    static const char *const fields =
        "A: 1\r\nB: 2\r\nC: 3\r\n"; /* eight with those that must be */
    struct support_server s;
    tws_server_options opt;
    const char *answer;
    struct client c;
    char headers[512];
    size_t room;

    (void)state;
    support_server_options(&opt, tell, NULL);
    opt.upgrade.max_head_bytes = 301;
    opt.upgrade.max_head_fields = 8;
    start(&s, &opt);
    room = 301 - client_request((char[512]){0}, 512, "A: \r\n");
    snprintf(headers, sizeof headers, "A: %0*d\r\n", (int)room - 1, 0);
    assert_int_equal(client_upgrade(&c, client_dial(s.address), headers), 101);
    client_close(&c);
    snprintf(headers, sizeof headers, "A: %0*d\r\n", (int)room + 1, 0);
    assert_int_equal(ask(s.address, headers, &answer), 431);
    assert_int_equal(client_upgrade(&c, client_dial(s.address), fields), 101);
    client_close(&c);
    snprintf(headers, sizeof headers, "%sD: 4\r\n", fields);
    assert_int_equal(ask(s.address, headers, &answer), 431);
    tws_server_free(s.server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hook_upgrades),     cmocka_unit_test(test_hook_refuses),
        cmocka_unit_test(test_subprotocols),      cmocka_unit_test(test_same_origin),
        cmocka_unit_test(test_origin_list),       cmocka_unit_test(test_pages),
        cmocka_unit_test(test_upgrade_split),     cmocka_unit_test(test_upgrade_much_behind),
        cmocka_unit_test(test_limits_of_a_head),  cmocka_unit_test(test_upgrade_fails),
        cmocka_unit_test(test_upgrade_and_close),
    };

    return cmocka_run_group_tests_name("server_upgrade", tests, NULL, NULL);
}
