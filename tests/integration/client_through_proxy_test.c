/* tws_dial() through a proxy, with the test in the place of the proxy and of the server behind it. */
#include "support_dial.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

struct through {
    struct fake proxy;
    struct dialing d;
    tws_dial_options opt;
    char address[200]; /* the option `proxy` */
};

static void through_init(struct through *t, const char *scheme)
{
    fake_listen(&t->proxy, AF_INET);
    tws_dial_options_init(&t->opt);
    snprintf(t->address, sizeof t->address, "%s%s", scheme, t->proxy.host);
    t->opt.proxy = t->address;
}

static void through_end(struct through *t)
{
    dialing_end(&t->d);
    fake_close(&t->proxy);
}

static void read_bytes(int fd, void *buf, size_t len)
{
    assert_int_equal(recv(fd, buf, len, MSG_WAITALL), (ssize_t)len);
}

/* The server's part, on the same connection. */
static void serve(struct through *t, int fd, const char *host)
{
    struct fake_request r;

    assert_true(fake_read_request(fd, &r));
    assert_string_equal(r.target, "/path");
    assert_string_equal(r.host, host);
    assert_null(fake_header(r.text, "Proxy-Authorization"));
    fake_upgrade(fd, &r, "", NULL, 0);
    dialing_join(&t->d, TWS_OK);
    assert_int_equal(t->d.error.code, TWS_OK);
    fake_send_frame(fd, 0x81, "hello", 5);

    tws_message m;

    assert_ok(tws_read_message(t->d.conn, &m));
    assert_string_equal(m.data, "hello");
    tws_abort(t->d.conn);
    close(fd);
}

static void test_connect(void **state)
{
    static const tws_header extra = {"X-Extra", "1"};
    struct fake_request r;
    struct through t;
    int fd;

    (void)state;
    through_init(&t, "http://user:pass@");
    t.opt.proxy_headers = &extra;
    t.opt.proxy_header_count = 1;
    dialing_start(&t.d, "ws://server.example:81/path", &t.opt);
    fd = fake_accept(&t.proxy);
    assert_true(fake_read_request(fd, &r));
    assert_string_equal(r.text, "CONNECT server.example:81 HTTP/1.1\r\nHost: server.example:81\r\n"
                                "Proxy-Authorization: Basic dXNlcjpwYXNz\r\nX-Extra: 1\r\n\r\n");
    fake_say(fd, "HTTP/1.1 200 OK\r\n\r\n");
    serve(&t, fd, "server.example:81");
    through_end(&t);
}

static void test_environment(void **state)
{
    struct fake_request r;
    struct through t;
    int fd;

    (void)state;
    through_init(&t, "");
    t.opt.proxy = NULL;
    t.opt.proxy_from_environment = true;
    unsetenv("ws_proxy");
    unsetenv("WS_PROXY");
    setenv("http_proxy", t.address, 1);
    setenv("no_proxy", "elsewhere.example", 1);
    dialing_start(&t.d, "ws://server.example/path", &t.opt);
    fd = fake_accept(&t.proxy);
    assert_true(fake_read_request(fd, &r));
    assert_string_equal(r.target, "server.example:80");
    fake_say(fd, "HTTP/1.0 200 OK\r\n\r\n");
    serve(&t, fd, "server.example");
    dialing_end(&t.d);

    /* An exception: straight to the server, which happens to be at the same place. */
    setenv("no_proxy", "127.0.0.1", 1);
    dialing_start_fake(&t.d, &t.proxy, "/path", &t.opt);
    serve(&t, fake_accept(&t.proxy), t.proxy.host);
    unsetenv("http_proxy");
    unsetenv("no_proxy");
    through_end(&t);
}

/* B183: the error has the proxy's status and its name, but no password. */
static void test_b183_authorization_required(void **state)
{
    struct fake_request r;
    struct through t;
    int fd;

    (void)state;
    through_init(&t, "http://user:secret@");
    dialing_start(&t.d, "ws://server.example/path", &t.opt);
    fd = fake_accept(&t.proxy);
    assert_true(fake_read_request(fd, &r));
    fake_say(fd, "HTTP/1.1 407 Who are you\r\nProxy-Authenticate: Negotiate\r\n"
                 "Content-Length: 11\r\n\r\nnot allowed");
    dialing_join(&t.d, TWS_ERR_PROXY);
    close(fd);
    assert_int_equal(t.d.error.phase, TWS_PHASE_PROXY);
    assert_int_equal(t.d.error.http_status, 407);
    assert_non_null(strstr(t.d.error.text, t.proxy.host));
    assert_non_null(strstr(t.d.error.text, "Negotiate"));
    assert_null(strstr(t.d.error.text, "secret"));
    through_end(&t);
}

/* B187: the total and the handshake's own time hold for a proxy too; each by itself cuts it. */
static void test_b187_silent_proxy(void **state)
{
    static const char *const schemes[] = {"http://", "socks5h://"};

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct through t;
        int fd;

        through_init(&t, schemes[i % 2]);
        t.opt.timeout = i < 2 ? 50 : TWS_NO_LIMIT;
        t.opt.handshake_timeout = i < 2 ? TWS_NO_LIMIT : 50;
        dialing_start(&t.d, "ws://server.example/path", &t.opt);
        fd = fake_accept(&t.proxy);
        dialing_join(&t.d, TWS_ERR_HANDSHAKE_TIMEOUT);
        close(fd);
        assert_int_equal(t.d.error.phase, TWS_PHASE_PROXY);
        through_end(&t);
    }
}

static void test_cancel(void **state)
{
    static const char *const schemes[] = {"http://", "socks5h://"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        char first[4];
        struct through t;
        int fd;

        through_init(&t, schemes[i]);
        t.opt.timeout = TWS_NO_LIMIT;
        t.opt.cancel = tws_cancel_new();
        dialing_start(&t.d, "ws://server.example/path", &t.opt);
        fd = fake_accept(&t.proxy);
        read_bytes(fd, first, 3); /* it waits for the answer now, or is about to */
        tws_cancel_now(t.opt.cancel);
        dialing_join(&t.d, TWS_ERR_CANCELLED);
        close(fd);
        through_end(&t);
        tws_cancel_free(t.opt.cancel);
    }
}

/* With names resolved here, an address that the proxy cannot reach is not the last word. */
static void test_socks_next_address(void **state)
{
    char message[64], first;
    struct through t;
    int fd;

    (void)state;
    through_init(&t, "socks5://");
    dialing_start(&t.d, "ws://localhost/path", &t.opt); /* both loopbacks */
    fd = fake_accept(&t.proxy);
    read_bytes(fd, message, 3);
    assert_int_equal(send(fd, "\x05\x00", 2, MSG_NOSIGNAL), 2);
    read_bytes(fd, message, 4);
    first = message[3];
    read_bytes(fd, message, first == 1 ? 6 : 18);
    assert_int_equal(send(fd, "\x05\x05\x00\x01\0\0\0\0\0\0", 10, MSG_NOSIGNAL), 10);
    close(fd);

    fd = fake_accept(&t.proxy);
    read_bytes(fd, message, 3);
    assert_int_equal(send(fd, "\x05\x00", 2, MSG_NOSIGNAL), 2);
    read_bytes(fd, message, 4);
    assert_int_equal(first + message[3], 1 + 4); /* one is IPv4, the other IPv6 */
    read_bytes(fd, message, message[3] == 1 ? 6 : 18);
    assert_int_equal(send(fd, "\x05\x00\x00\x01\0\0\0\0\0\0", 10, MSG_NOSIGNAL), 10);
    serve(&t, fd, "localhost");
    through_end(&t);
}

/* What its rules forbid is forbidden for every address. */
static void test_socks_not_allowed(void **state)
{
    char message[64];
    struct through t;
    int fd;

    (void)state;
    through_init(&t, "socks5://");
    dialing_start(&t.d, "ws://localhost/path", &t.opt);
    fd = fake_accept(&t.proxy);
    read_bytes(fd, message, 3);
    assert_int_equal(send(fd, "\x05\x00", 2, MSG_NOSIGNAL), 2);
    read_bytes(fd, message, 4);
    assert_int_equal(send(fd, "\x05\x02\x00\x01\0\0\0\0\0\0", 10, MSG_NOSIGNAL), 10);
    dialing_join(&t.d, TWS_ERR_PROXY);
    close(fd);
    assert_false(fake_has_caller(&t.proxy));
    assert_non_null(strstr(t.d.error.text, "not allowed"));
    through_end(&t);
}

static void test_faults_of_the_caller(void **state)
{
    static const tws_header bad = {"Host", "x"};
    struct fake_request r;
    struct through t;
    int fd;

    (void)state;
    through_init(&t, "ftp://");
    dialing_start(&t.d, "ws://server.example/path", &t.opt);
    dialing_join(&t.d, TWS_ERR_ARGUMENT);
    dialing_end(&t.d);
    t.opt.proxy = t.proxy.host;
    t.opt.proxy_headers = &bad;
    t.opt.proxy_header_count = 1;
    dialing_start(&t.d, "ws://server.example/path", &t.opt);
    fd = fake_accept(&t.proxy);
    assert_false(fake_read_request(fd, &r));
    dialing_join(&t.d, TWS_ERR_ARGUMENT);
    close(fd);
    through_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_connect),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_b183_authorization_required),
        cmocka_unit_test(test_b187_silent_proxy),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_socks_next_address),
        cmocka_unit_test(test_socks_not_allowed),
        cmocka_unit_test(test_faults_of_the_caller),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
