/*
 * Requests that another HTTP server has parsed: judged as the library's own parser would have, answered
 * here or by that server.
 */
#include "support.h"

#include "support_tls.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define KEY "dGhlIHNhbXBsZSBub25jZQ=="
#define ACCEPT "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="

static const tws_header good[] = {
    {"Host", "test.example:8080"},
    {"Upgrade", "websocket"},
    {"Connection", "keep-alive, Upgrade"},
    {"Sec-WebSocket-Key", KEY},
    {"Sec-WebSocket-Version", "13"},
    {"Sec-WebSocket-Protocol", "chat, superchat"},
    {"Cookie", "id=abc"},
};
#define GOOD (sizeof good / sizeof *good)

static int socket_pair(struct client *c)
{
    int fd[2];

    memset(c, 0, sizeof *c);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
    c->fd = fd[0];
    return fd[1];
}

static void good_request(tws_parsed_request *r)
{
    tws_parsed_request_init(r);
    r->target = "/test?x=1";
    r->headers = good;
    r->header_count = GOOD;
}

/* ---- Answered here ---- */

static void test_upgrade(void **state)
{
    static const char *const protocols[] = {"superchat"};
    struct support_census before = support_census();
    tws_upgrade_options opt;
    tws_parsed_request r;
    uint8_t frame[64];
    struct client c;
    int fd = socket_pair(&c);
    size_t len = client_frame(frame, CLIENT_FIN | CLIENT_TEXT, "early", 5);
    char text[64];
    tws_message m;
    tws_conn *conn;
    tws_error e;

    (void)state;
    good_request(&r);
    tws_upgrade_options_init(&opt);
    opt.subprotocols = protocols, opt.subprotocol_count = 1;
    assert_ok(tws_upgrade_parsed(&conn, fd, frame, len, &r, &opt, &e));
    assert_int_equal(client_read_head(&c), 101);
    assert_non_null(strstr(c.head, "Sec-WebSocket-Accept: " ACCEPT "\r\n"));
    assert_non_null(strstr(c.head, "Sec-WebSocket-Protocol: superchat\r\n"));
    assert_ok(tws_read_message(conn, &m));
    assert_string_equal(m.data, "early");
    client_send_text(&c, "later");
    assert_ok(tws_read_message(conn, &m));
    assert_string_equal(m.data, "later");

    const tws_request *kept = tws_conn_request(conn);
    assert_string_equal(tws_request_method(kept), "GET");
    assert_string_equal(tws_request_path(kept), "/test");
    assert_string_equal(tws_request_query(kept), "x=1");
    assert_string_equal(tws_request_header(kept, "host"), "test.example:8080");
    assert_int_equal(tws_request_cookie(kept, "id", text, sizeof text), 3);
    assert_int_equal(tws_request_subprotocol_at(kept, 0, text, sizeof text), 4);
    tws_conn_unref(conn);
    client_close(&c);
    support_assert_census(before);
}

/* One thing is wrong with it: one header more, or other parts of the request line. */
struct bad {
    const char *method, *target, *version, *name, *value;
    int status;
};

static void check_bad(const struct bad *b)
{
    tws_header headers[GOOD + 1];
    tws_parsed_request r;
    struct client c;
    int fd = socket_pair(&c);
    tws_conn *conn = (void *)1;
    tws_verdict *v;
    tws_error e;

    good_request(&r);
    memcpy(headers, good, sizeof good);
    headers[GOOD] = (tws_header){b->name, b->value};
    r.headers = headers;
    r.header_count = GOOD + (b->name || b->value);
    r.method = b->method ? b->method : "GET";
    r.target = b->target ? b->target : "/";
    r.version = b->version ? b->version : "HTTP/1.1";
    shutdown(c.fd, SHUT_WR); /* so that nobody waits for it to have read the answer */
    if (tws_upgrade_parsed(&conn, fd, NULL, 0, &r, NULL, &e) != TWS_ERR_HANDSHAKE)
        fail_msg("%s %s %s, %s: %s: let in", r.method, r.target, r.version, b->name, b->value);
    assert_null(conn);
    assert_int_equal(e.http_status, b->status);
    assert_int_equal(client_read_head(&c), b->status);
    client_close(&c);
    /* The same when somebody else answers. */
    assert_err(tws_upgrade_judge(&v, &r, NULL, NULL), TWS_ERR_HANDSHAKE);
    assert_int_equal(tws_verdict_status(v), b->status);
    fd = socket_pair(&c);
    assert_err(tws_verdict_open(&conn, v, fd, NULL, 0, NULL), TWS_ERR_STATE);
    client_close(&c);
}

static void test_refused(void **state)
{
    static const struct bad bad[] = {
        {.name = "X", .value = "a\r\nX-Smuggled: b", .status = 400},
        {.name = "X", .value = "a\nb", .status = 400},
        {.name = "X", .value = "a\rb", .status = 400},
        {.name = "X", .value = "a\001b", .status = 400},
        {.name = "X: y\r\nZ", .value = "a", .status = 400},
        {.name = "X:", .value = "a", .status = 400},
        {.name = "X ", .value = "a", .status = 400},
        {.name = " X", .value = "a", .status = 400},
        {.name = "", .value = "a", .status = 400},
        {.name = NULL, .value = "a", .status = 400},
        {.name = "X", .value = NULL, .status = 400},
        {.name = "Host", .value = "other.example", .status = 400},
        {.name = "Sec-WebSocket-Key", .value = KEY, .status = 400},
        {.name = "sec-websocket-version", .value = "13", .status = 400},
        {.name = "Content-Length", .value = "5", .status = 400},
        {.name = "Transfer-Encoding", .value = "chunked", .status = 400},
        {.name = "Sec-WebSocket-Protocol", .value = "chat", .status = 400},
        {.name = "Sec-WebSocket-Extensions", .value = "a;;", .status = 400},
        {.method = "GET / HTTP/1.1\r\nX: y\r\n", .status = 400},
        {.method = "POST", .status = 405},
        {.method = "", .status = 400},
        {.target = "/ HTTP/1.1\r\nX: y\r\n", .status = 400},
        {.target = "/a b", .status = 400},
        {.target = "/a#b", .status = 400},
        {.target = "/\303\244", .status = 400},
        {.target = "test", .status = 400},
        {.target = "", .status = 400},
        {.version = "HTTP/1.1\r\nX: y", .status = 400},
        {.version = "HTTP/1.1x", .status = 400},
        {.version = "HTTP/2.0", .status = 505},
        {.version = "HTTP/1.0", .status = 426},
    };
    struct support_census before = support_census();

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        check_bad(&bad[i]);
    }
    support_assert_census(before);
}

/* Sizes and counts are those of the options, to the byte. */
static void test_limits(void **state)
{
    enum { MANY = 200 };
    tws_header headers[MANY];
    tws_upgrade_options opt;
    tws_parsed_request r;
    char longish[512];
    tws_verdict *v;

    (void)state;
    good_request(&r);
    tws_upgrade_options_init(&opt);
    memcpy(headers, good, sizeof good);
    for (size_t i = GOOD; i < MANY; i++)
        headers[i] = (tws_header){"X", "y"};
    r.headers = headers;
    r.header_count = opt.max_head_fields;
    assert_ok(tws_upgrade_judge(&v, &r, &opt, NULL));
    tws_verdict_free(v);
    r.header_count++;
    assert_err(tws_upgrade_judge(&v, &r, &opt, NULL), TWS_ERR_HANDSHAKE);
    assert_int_equal(tws_verdict_status(v), 431);
    tws_verdict_free(v);

    size_t whole = strlen("GET /test?x=1 HTTP/1.1\r\n\r\n");
    for (size_t i = 0; i < GOOD; i++)
        whole += strlen(good[i].name) + strlen(good[i].value) + 4;
    memset(longish, 'a', sizeof longish - 1);
    longish[511] = 0;
    whole += strlen("X: \r\n") + 511;
    headers[GOOD] = (tws_header){"X", longish};
    r.header_count = GOOD + 1;
    opt.max_head_bytes = (uint32_t)whole;
    assert_ok(tws_upgrade_judge(&v, &r, &opt, NULL));
    tws_verdict_free(v);
    opt.max_head_bytes--;
    assert_err(tws_upgrade_judge(&v, &r, &opt, NULL), TWS_ERR_HANDSHAKE);
    assert_int_equal(tws_verdict_status(v), 431);
    tws_verdict_free(v);
}

/* TLS that ended before this socket is told, and so is the peer behind it. */
static void test_origin_and_peer(void **state)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(4711)};
    tws_header headers[GOOD + 1];
    tws_parsed_request r;
    struct client c;
    char text[64];
    tws_verdict *v;
    tws_conn *conn;

    (void)state;
    good_request(&r);
    memcpy(headers, good, sizeof good);
    headers[GOOD] = (tws_header){"Origin", "https://test.example:8080"};
    r.headers = headers;
    r.header_count = GOOD + 1;
    assert_err(tws_upgrade_judge(&v, &r, NULL, NULL), TWS_ERR_REFUSED);
    assert_int_equal(tws_verdict_status(v), 403);
    tws_verdict_free(v);
    r.secure = true;
    inet_pton(AF_INET, "192.0.2.7", &in.sin_addr);
    r.peer = (struct sockaddr *)&in;
    r.peer_len = sizeof in;
    assert_ok(tws_upgrade_parsed(&conn, socket_pair(&c), NULL, 0, &r, NULL, NULL));
    tws_conn_peer_address(conn, text, sizeof text);
    assert_string_equal(text, "192.0.2.7:4711");
    tws_request_peer_address(tws_conn_request(conn), text, sizeof text);
    assert_string_equal(text, "192.0.2.7:4711");
    tws_conn_unref(conn);
    client_close(&c);
    r.peer_len = 4; /* cannot be one */
    assert_ok(tws_upgrade_parsed(&conn, socket_pair(&c), NULL, 0, &r, NULL, NULL));
    tws_conn_peer_address(conn, text, sizeof text);
    assert_string_equal(text, "unix");
    tws_conn_unref(conn);
    client_close(&c);
}

/* ---- Over TLS that somebody else has set up ---- */

static void *tls_client_main(void *arg)
{
    SSL *ssl = arg;

    return SSL_connect(ssl) == 1 ? ssl : NULL;
}

static void test_over_ssl(void **state)
{
    SSL_CTX *server_ctx = SSL_CTX_new(TLS_server_method());
    SSL_CTX *client_ctx = SSL_CTX_new(TLS_client_method());
    SSL *client = SSL_new(client_ctx), *ssl;
    tws_upgrade_options opt;
    tws_header headers[GOOD + 1];
    tws_parsed_request r;
    char text[1024];
    int fds[2], way[2], n;
    tws_handoff *h;
    pthread_t thread;
    void *connected;
    tws_conn *c;
    tws_error e;

    (void)state;
    assert_int_equal(SSL_CTX_use_certificate(server_ctx, support_tls_leaf()->x509), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(server_ctx, support_tls_leaf()->pkey), 1);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    ssl = SSL_new(server_ctx);
    SSL_set_fd(ssl, fds[0]);
    SSL_set_fd(client, fds[1]);
    support_thread(&thread, tls_client_main, client);
    assert_int_equal(SSL_accept(ssl), 1);
    pthread_join(thread, &connected);
    assert_non_null(connected);

    good_request(&r);
    memcpy(headers, good, sizeof good);
    headers[GOOD] = (tws_header){"Origin", "https://test.example:8080"}; /* its own, over TLS */
    r.headers = headers;
    r.header_count = GOOD + 1;
    tws_upgrade_options_init(&opt);
    opt.parsed = &r;
    assert_ok(tws_upgrade_ssl(&c, ssl, fds[0], NULL, 0, &opt, &e));
    n = SSL_read(client, text, sizeof text - 1);
    assert_true(n > 0);
    text[n] = 0;
    assert_non_null(strstr(text, "Sec-WebSocket-Accept: " ACCEPT));
    assert_string_equal(tws_request_path(tws_conn_request(c)), "/test");
    assert_ok(tws_write_text(c, "hi"));
    assert_int_equal(SSL_read(client, text, sizeof text), 4);
    assert_memory_equal(text, "\x81\x02hi", 4);

    /* Its keys are in this process: it cannot go to another one. */
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, way), 0);
    assert_ok(tws_handoff_new(&h, way[0]));
    assert_err(tws_handoff_send(h, c, NULL, 0, 5000, &e), TWS_ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "TLS"));
    assert_ok(tws_write_text(c, "on"));
    assert_int_equal(SSL_read(client, text, sizeof text), 4);
    tws_handoff_free(h);
    close(way[1]);
    tws_conn_unref(c);
    SSL_free(client);
    close(fds[1]);
    SSL_CTX_free(server_ctx);
    SSL_CTX_free(client_ctx);
}

/* ---- Answered by somebody else ---- */

static bool hook(const tws_request *r, tws_reply *a, void *arg)
{
    char text[64];

    tws_request_local_address(r, text, sizeof text);
    tws_reply_header(a, "X-Hook", "1");
    tws_reply_user(a, arg);
    return strcmp(tws_request_path(r), "/test") == 0;
}

static const char *find(const tws_verdict *v, const char *wanted)
{
    const char *name, *value;

    for (size_t i = 0; tws_verdict_header_at(v, i, &name, &value); i++)
        if (strcmp(name, wanted) == 0)
            return value;
    return NULL;
}

static void test_verdict(void **state)
{
    struct support_census before = support_census();
    tws_upgrade_options opt;
    tws_parsed_request r;
    uint8_t frame[64];
    size_t frame_len = client_frame(frame, CLIENT_FIN | CLIENT_TEXT, "early", 5);
    struct client c;
    size_t len;
    tws_verdict *v;
    tws_conn *conn;
    tws_message m;
    tws_error e;

    (void)state;
    good_request(&r);
    tws_upgrade_options_init(&opt);
    opt.on_upgrade = hook;
    opt.hook_arg = &opt;
    assert_ok(tws_upgrade_judge(&v, &r, &opt, &e));
    assert_int_equal(e.code, TWS_OK);
    assert_int_equal(tws_verdict_status(v), 101);
    assert_string_equal(find(v, "Sec-WebSocket-Accept"), ACCEPT);
    assert_string_equal(find(v, "X-Hook"), "1");
    assert_string_equal(find(v, "Upgrade"), "websocket");
    tws_verdict_body(v, &len);
    assert_int_equal(len, 0);
    memset(&r, 0, sizeof r); /* nothing of it is needed any more */
    assert_ok(tws_verdict_open(&conn, v, socket_pair(&c), frame, frame_len, &e));
    assert_ptr_equal(tws_conn_user(conn), &opt);
    assert_string_equal(tws_request_query(tws_conn_request(conn)), "x=1");
    assert_ok(tws_read_message(conn, &m));
    assert_string_equal(m.data, "early");
    assert_ok(tws_write_text(conn, "first")); /* nothing was sent before it */
    client_expect_text(&c, "first");
    tws_conn_unref(conn);
    client_close(&c);

    good_request(&r);
    r.target = "/else";
    assert_err(tws_upgrade_judge(&v, &r, &opt, &e), TWS_ERR_REFUSED);
    assert_int_equal(tws_verdict_status(v), 403);
    assert_non_null(strstr(tws_verdict_body(v, NULL), "403 Forbidden"));
    assert_string_equal(find(v, "Content-Type"), "text/plain; charset=utf-8");
    tws_verdict_free(v);
    support_assert_census(before);
}

/* A server that listens nowhere runs its handler for what comes this way. */
static void test_served(void **state)
{
    static const char *const nowhere[] = {"none"};
    struct support_census before = support_census();
    tws_server_options so;
    tws_parsed_request r;
    uint8_t frame[64];
    size_t len = client_frame(frame, CLIENT_FIN | CLIENT_TEXT, "early", 5);
    struct client c, second;
    tws_server_stats st;
    tws_server *server;
    tws_verdict *v;
    tws_error e;
    char text[8];

    (void)state;
    good_request(&r);
    support_server_options(&so, support_echo, NULL);
    so.listen = nowhere;
    so.listen_count = 1;
    so.max_connections = 1;
    assert_ok(tws_server_start(&server, &so, NULL));
    assert_int_equal(tws_server_address(server, 0, text, sizeof text), 0);
    assert_ok(tws_upgrade_judge(&v, &r, NULL, NULL));
    assert_ok(tws_verdict_serve(server, v, socket_pair(&c), frame, len, &e));
    client_expect_text(&c, "early");
    tws_server_get_stats(server, &st);
    assert_int_equal(st.open, 1);
    assert_ok(tws_upgrade_judge(&v, &r, NULL, NULL));
    assert_err(tws_verdict_serve(server, v, socket_pair(&second), NULL, 0, &e), TWS_ERR_REFUSED);
    assert_non_null(strstr(e.text, "full"));
    client_expect_eof(&second);
    client_close(&second);
    assert_ok(tws_upgrade_judge(&v, &r, NULL, NULL));
    assert_err(tws_verdict_serve(server, v, -1, NULL, 0, &e), TWS_ERR_ARGUMENT);
    client_send_text(&c, "later");
    client_expect_text(&c, "later");
    client_close(&c);
    tws_server_free(server);
    support_assert_census(before);
}

static void echo_once(tws_conn *c, void *arg)
{
    tws_message m;

    (void)arg;
    if (tws_read_message(c, &m) == TWS_OK)
        tws_write_message(c, m.opcode, m.data, m.len);
    tws_read_message(c, &m);
    tws_abort(c); /* at once, while the peer is still there */
}

/* A connection that such a server runs, over a socket of which *second is one more descriptor. */
static void serve_pair(tws_server *server, struct client *c, int *second)
{
    tws_parsed_request r;
    tws_verdict *v;
    int fd = socket_pair(c);

    good_request(&r);
    *second = dup(fd);
    assert_true(*second >= 0);
    assert_ok(tws_upgrade_judge(&v, &r, NULL, NULL));
    assert_ok(tws_verdict_serve(server, v, fd, NULL, 0, NULL));
    client_send_text(c, "hello");
    client_expect_text(c, "hello");
}

/* Who gave a dup() keeps a descriptor, as a forked child does: what the peer does after the end of the
 * connection reaches nobody. */
static void test_second_descriptor(void **state)
{
    static const char *const nowhere[] = {"none"};
    enum { N = 4 };
    struct support_census before = support_census();
    struct client first[N], other;
    int second[N], other_second;
    tws_server_options so;
    tws_server *server;

    (void)state;
    support_server_options(&so, echo_once, NULL);
    so.listen = nowhere;
    so.listen_count = 1;
    so.carriers = 1;
    assert_ok(tws_server_start(&server, &so, NULL));
    for (int i = 0; i < N; i++) {
        serve_pair(server, &first[i], &second[i]);
        client_send_text(&first[i], "enough");
        client_expect_eof(&first[i]);
    }
    serve_pair(server, &other, &other_second); /* what belonged to those has been freed meanwhile */
    for (int i = 0; i < N; i++)
        client_close(&first[i]);
    client_send_text(&other, "enough"); /* their ends have been seen when this is answered */
    client_expect_eof(&other);
    client_close(&other);
    close(other_second);
    for (int i = 0; i < N; i++)
        close(second[i]);
    tws_server_free(server);
    support_assert_census(before);
}

static void test_arguments(void **state)
{
    struct support_census before = support_census();
    tws_parsed_request r = {.size = 0};
    tws_server_options so;
    tws_server *server;
    struct client c;
    tws_conn *conn;
    tws_verdict *v;

    (void)state;
    assert_err(tws_upgrade_judge(&v, &r, NULL, NULL), TWS_ERR_ARGUMENT);
    assert_null(v);
    assert_err(tws_upgrade_judge(&v, NULL, NULL, NULL), TWS_ERR_ARGUMENT);
    assert_err(tws_upgrade_parsed(&conn, socket_pair(&c), NULL, 0, &r, NULL, NULL),
               TWS_ERR_ARGUMENT);
    client_close(&c);
    good_request(&r);
    r.headers = NULL;
    assert_err(tws_upgrade_judge(&v, &r, NULL, NULL), TWS_ERR_ARGUMENT);
    good_request(&r);
    assert_ok(tws_upgrade_judge(&v, &r, NULL, NULL));
    assert_err(tws_verdict_open(&conn, v, -1, NULL, 0, NULL), TWS_ERR_ARGUMENT);
    assert_null(conn);
    assert_ok(tws_upgrade_judge(&v, &r, NULL, NULL));
    assert_err(tws_verdict_open(&conn, v, socket_pair(&c), NULL, 1, NULL), TWS_ERR_ARGUMENT);
    client_close(&c);
    tws_verdict_free(NULL);
    support_server_options(&so, support_echo, NULL);
    so.upgrade.parsed = &r;
    assert_err(tws_server_start(&server, &so, NULL), TWS_ERR_ARGUMENT);
    support_assert_census(before);
}

static void test_is_upgrade(void **state)
{
    static const tws_header split[] = {{"upgrade", "h2c"},
                                       {"UPGRADE", "WebSocket"},
                                       {"connection", "close"},
                                       {"Connection", ",Upgrade"}};
    static const tws_header broken[] = {{"Upgrade", "websocket"}, {"Connection", "upgrade, \"a"}};

    (void)state;
    assert_true(tws_is_upgrade_request("GET", good, GOOD));
    assert_true(tws_is_upgrade_request("GET", split, 4));
    assert_false(tws_is_upgrade_request("GET", split, 3));
    assert_false(tws_is_upgrade_request("POST", good, GOOD));
    assert_false(tws_is_upgrade_request("get", good, GOOD));
    assert_false(tws_is_upgrade_request(NULL, good, GOOD));
    assert_false(tws_is_upgrade_request("GET", NULL, 0));
    assert_false(tws_is_upgrade_request("GET", broken, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_upgrade),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_origin_and_peer),
        cmocka_unit_test(test_verdict),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_is_upgrade),
        cmocka_unit_test(test_served),
        cmocka_unit_test(test_second_descriptor),
        cmocka_unit_test(test_over_ssl),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
