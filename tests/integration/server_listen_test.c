/*
 * Where a server listens, whom it refuses, and how long it waits for a handshake.
 */
#include "support.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static void check_echo(const char *address, const char *text)
{
    struct client c;

    client_open(&c, address);
    client_send_text(&c, text);
    client_expect_text(&c, text);
    client_send_close(&c, 1000, NULL);
    client_expect_close(&c, 1000, NULL);
    client_expect_eof(&c);
    client_close(&c);
}

static tws_server_stats stats_of(tws_server *s)
{
    tws_server_stats st;

    tws_server_get_stats(s, &st);
    return st;
}

/* ---- Addresses ---- */

static void test_addresses(void **state)
{
    char path[] = "/tmp/tws-test-XXXXXX", file[64], unix_address[80];
    const char *addresses[] = {
        "127.0.0.1:0", "[::1]:0", "localhost:0", unix_address, support_unix_address("abstract"),
        ":0"};
    struct support_census before = support_census();
    tws_server_options opt;
    struct support_server s;
    struct stat st;
    char text[160];

    (void)state;
    assert_non_null(mkdtemp(path));
    snprintf(file, sizeof file, "%s/socket", path);
    snprintf(unix_address, sizeof unix_address, "unix:%s", file);
    support_server_options(&opt, support_echo, NULL);
    opt.listen = addresses;
    opt.listen_count = 6;
    support_server_start(&s, &opt);
    for (size_t i = 0; i < 5; i++) {
        size_t len = tws_server_address(s.server, i, text, sizeof text);

        assert_int_equal(len, strlen(text));
        assert_string_not_equal(text, addresses[i] + (i >= 3 ? strlen(addresses[i]) : 0));
        check_echo(text, text);
    }
    assert_string_equal((tws_server_address(s.server, 3, text, sizeof text), text), unix_address);
    assert_string_equal((tws_server_address(s.server, 4, text, sizeof text), text), addresses[4]);
    assert_int_equal(lstat(file, &st), 0);
    assert_true(S_ISSOCK(st.st_mode));
    assert_int_equal(tws_server_address(s.server, 6, text, sizeof text), 0);
    assert_string_equal(text, "");
    assert_int_equal(tws_server_address(s.server, 4, NULL, 0), strlen(addresses[4]));
    assert_int_equal(tws_server_address(s.server, 4, text, 5), strlen(addresses[4]));
    assert_string_equal(text, "unix");
    tws_server_free(s.server);
    assert_int_equal(lstat(file, &st), -1); /* the socket file goes with the server */
    assert_int_equal(rmdir(path), 0);
    support_assert_census(before);
}

/* A socket file that nobody listens on is replaced; a live one, or a file that is none, is not. */
static void test_unix_file(void **state)
{
    char path[] = "/tmp/tws-test-XXXXXX", file[64], address[80];
    const char *addresses[] = {address};
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    tws_server_options opt;
    struct support_server s;
    tws_server *second;
    tws_error e;
    FILE *plain;
    int fd;

    (void)state;
    assert_non_null(mkdtemp(path));
    snprintf(file, sizeof file, "%s/socket", path);
    snprintf(address, sizeof address, "unix:%s", file);
    support_server_options(&opt, support_echo, NULL);
    opt.listen = addresses;

    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    strcpy(un.sun_path, file);
    assert_int_equal(bind(fd, (struct sockaddr *)&un, sizeof un), 0);
    assert_int_equal(listen(fd, 1) ? -1 : close(fd), 0); /* left behind */
    support_server_start(&s, &opt);
    check_echo(address, "replaced");
    assert_err(tws_server_start(&second, &opt, &e), TWS_ERR_ADDRESS);
    assert_int_equal(e.sys_errno, EADDRINUSE);
    assert_null(second);
    check_echo(address, "still there");
    /* Somebody else's file in its place is left alone. */
    assert_int_equal(unlink(file), 0);
    plain = fopen(file, "w");
    assert_non_null(plain);
    fclose(plain);
    tws_server_free(s.server);
    assert_int_equal(access(file, F_OK), 0);
    assert_err(tws_server_start(&second, &opt, &e), TWS_ERR_ADDRESS);
    assert_int_equal(access(file, F_OK), 0);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(rmdir(path), 0);
}

static void test_port_in_use(void **state)
{
    const char *addresses[] = {"127.0.0.1:0", NULL};
    tws_server_options opt;
    struct support_census before;
    struct support_server s;
    tws_server *second = (void *)1;
    tws_error e;

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    support_server_start(&s, &opt);
    addresses[1] = s.address;
    opt.listen = addresses;
    opt.listen_count = 2;
    check_echo(s.address, "its threads have begun");
    WAIT_FOR(stats_of(s.server).threads == 0);
    before = support_census();
    assert_err(tws_server_start(&second, &opt, &e), TWS_ERR_ADDRESS);
    assert_null(second);
    assert_int_equal(e.code, TWS_ERR_ADDRESS);
    assert_int_equal(e.phase, TWS_PHASE_LISTEN);
    assert_int_equal(e.cause, TWS_CAUSE_LOCAL);
    assert_int_equal(e.sys_errno, EADDRINUSE);
    assert_non_null(strstr(e.text, s.address));
    assert_non_null(strstr(e.text, strerror(EADDRINUSE)));
    support_assert_census(before); /* the first listener is closed again */
    assert_err(tws_server_start(&second, &opt, NULL), TWS_ERR_ADDRESS);
    opt.reuse_port = true; /* the first one has not asked for it */
    assert_err(tws_server_start(&second, &opt, NULL), TWS_ERR_ADDRESS);
    tws_server_free(s.server);
}

/* Several servers on one address, when all ask for it. */
static void test_reuse_port(void **state)
{
    const char *addresses[1];
    tws_server_options opt;
    struct support_server s, second;

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    opt.reuse_port = true;
    support_server_start(&s, &opt);
    addresses[0] = s.address;
    opt.listen = addresses;
    support_server_start(&second, &opt);
    assert_string_equal(s.address, second.address);
    tws_server_free(s.server);
    check_echo(second.address, "the second one");
    tws_server_free(second.server);
}

static void test_wrong_options(void **state)
{
    static const char *const wrong[] = {"",
                                        "127.0.0.1",
                                        "127.0.0.1:",
                                        "127.0.0.1:70000",
                                        "127.0.0.1:8x",
                                        "::1:80",
                                        "unix:",
                                        "no.such.host.invalid:1"};
    tws_server_options opt;
    tws_server *s;
    tws_error e;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        support_server_options(&opt, support_echo, NULL);
        opt.listen = &wrong[i];
        assert_err(tws_server_start(&s, &opt, &e), TWS_ERR_ADDRESS);
        assert_true(e.sys_errno == EINVAL || e.sys_errno == EADDRNOTAVAIL);
    }
    support_server_options(&opt, NULL, NULL);
    assert_err(tws_server_start(&s, &opt, &e), TWS_ERR_ARGUMENT);
    assert_non_null(strstr(e.text, "on_connection"));
    support_server_options(&opt, support_echo, NULL);
    opt.listen_count = 0;
    assert_err(tws_server_start(&s, &opt, NULL), TWS_ERR_ARGUMENT);
    support_server_options(&opt, support_echo, NULL);
    opt.backlog = 0;
    assert_err(tws_server_start(&s, &opt, NULL), TWS_ERR_ARGUMENT);
    support_server_options(&opt, support_echo, NULL);
    opt.upgrade.conn.close_timeout = -1;
    assert_err(tws_server_start(&s, &opt, &e), TWS_ERR_ARGUMENT);
    support_server_options(&opt, support_echo, NULL);
    opt.upgrade.server_name = "a\r\nb: c";
    assert_err(tws_server_start(&s, &opt, &e), TWS_ERR_ARGUMENT);
    support_server_options(&opt, support_echo, NULL);
    opt.upgrade.origins = (const char *const[]){"http://"};
    opt.upgrade.origin_count = 1;
    assert_err(tws_server_start(&s, &opt, &e), TWS_ERR_ARGUMENT);
    memset(&opt, 0, sizeof opt);
    assert_err(tws_server_start(&s, &opt, &e), TWS_ERR_ARGUMENT);
    assert_err(tws_server_start(&s, NULL, &e), TWS_ERR_ARGUMENT);
    assert_null(s);
    tws_server_free(NULL);
}

/* ---- What a connection knows ---- */

static void test_addresses_of_a_connection(void **state)
{
    static const char *const addresses[] = {"[::1]:0"};
    const char *const unix_listen[] = {support_unix_address("who")};
    struct sockaddr_in6 in6;
    socklen_t len = sizeof in6;
    tws_server_options opt;
    char text[64], wanted[64];
    struct rig r;

    (void)state;
    rig_options(&opt);
    opt.listen = addresses;
    opt.upgrade.conn.user = &opt;
    rig_open(&r, &opt);
    assert_int_equal(getsockname(r.client.fd, (struct sockaddr *)&in6, &len), 0);
    snprintf(wanted, sizeof wanted, "[::1]:%d", ntohs(in6.sin6_port));
    assert_int_equal(tws_conn_peer_address(r.conn, text, sizeof text), strlen(wanted));
    assert_string_equal(text, wanted);
    assert_int_equal(tws_conn_peer_address(r.conn, text, 4), strlen(wanted));
    assert_string_equal(text, "[::");
    assert_int_equal(tws_conn_local_address(r.conn, text, sizeof text), strlen(r.s.address));
    assert_string_equal(text, r.s.address);
    assert_ptr_equal(tws_conn_user(r.conn), &opt);
    tws_conn_set_user(r.conn, NULL);
    assert_null(tws_conn_user(r.conn));
    assert_string_equal(tws_request_path(tws_conn_request(r.conn)), "/test");
    assert_string_equal(tws_request_query(tws_conn_request(r.conn)), "x=1");
    assert_null(tws_conn_subprotocol(r.conn));
    rig_close(&r);

    rig_options(&opt);
    opt.listen = unix_listen;
    rig_open(&r, &opt);
    assert_int_equal(tws_conn_peer_address(r.conn, text, sizeof text), 4);
    assert_string_equal(text, "unix");
    tws_conn_local_address(r.conn, text, sizeof text);
    assert_string_equal(text, unix_listen[0]);
    rig_close(&r);
}

/* ---- Limits ---- */

/* One more than allowed is answered with 503, readable to its end, and a place that is given up can
 * be taken. */
static void check_limit(tws_server_options *opt)
{
    char answer[1024], request[1024];
    struct support_server s;
    struct client a, b;

    support_server_start(&s, opt);
    client_open(&a, s.address);
    client_open(&b, s.address);
    client_request(request, sizeof request, NULL);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(client_http(s.address, i % 2 ? request : "", answer, sizeof answer), 503);
        assert_non_null(strstr(answer, "\r\nRetry-After: "));
        assert_non_null(strstr(answer, "\r\nConnection: close\r\n"));
        assert_non_null(strstr(answer, "\r\nServer: libtws\r\n"));
    }
    client_send_text(&a, "undisturbed");
    client_expect_text(&a, "undisturbed");
    client_close(&b);
    WAIT_FOR(stats_of(s.server).open == 1 && stats_of(s.server).threads == 1);
    client_open(&b, s.address);
    WAIT_FOR(stats_of(s.server).upgraded == 3);
    client_close(&b);
    client_close(&a);
    assert_int_equal(stats_of(s.server).accepted, 23);
    assert_int_equal(stats_of(s.server).refused_full + stats_of(s.server).refused_address, 20);
    tws_server_free(s.server);
}

static void test_max_connections(void **state)
{
    tws_server_options opt;

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    opt.max_connections = 2;
    check_limit(&opt);
}

static void test_max_per_address(void **state)
{
    tws_server_options opt;

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    opt.max_per_address = 2;
    check_limit(&opt);
}

/* Addresses are counted apart, Unix peers not at all. */
static void test_per_address_apart(void **state)
{
    const char *const addresses[] = {"127.0.0.1:0", "[::1]:0", support_unix_address("apart")};
    tws_server_options opt;
    struct support_server s;
    struct client c[5];
    char v6[64], answer[64];

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    opt.listen = addresses;
    opt.listen_count = 3;
    opt.max_per_address = 1;
    support_server_start(&s, &opt);
    tws_server_address(s.server, 1, v6, sizeof v6);
    client_open(&c[0], s.address);
    client_open(&c[1], v6);
    for (int i = 2; i < 5; i++)
        client_open(&c[i], addresses[2]);
    assert_int_equal(client_http(s.address, "", answer, sizeof answer), 503);
    assert_int_equal(client_http(v6, "", answer, sizeof answer), 503);
    for (int i = 0; i < 5; i++)
        client_close(&c[i]);
    tws_server_free(s.server);
}

/* ---- Slow handshakes ---- */

struct ends {
    _Atomic unsigned timeouts, others;
};

static void count_end(const tws_error *e, const tws_request *r, void *user, void *arg)
{
    struct ends *ends = arg;

    (void)r;
    (void)user;
    if (e->code == TWS_ERR_HANDSHAKE_TIMEOUT && e->cause == TWS_CAUSE_TIMEOUT &&
        e->phase == TWS_PHASE_HANDSHAKE)
        atomic_fetch_add(&ends->timeouts, 1);
    else
        atomic_fetch_add(&ends->others, 1);
}

/* B023: unfinished handshakes keep nobody waiting and are cut by their deadline, also when they
 * drip; a thread of the test drips a byte every 10 ms. */
static void test_slow_handshakes(void **state)
{
    enum { SLOW = 20 };
    static const char part[] = "GET / HTTP/1.1\r\nHost: x\r\nX-a:";
    static char drip[3000];
    struct ends ends = {0};
    struct sender s[SLOW] = {{.piece = 0}};
    tws_server_options opt;
    struct support_server srv;
    int fd[SLOW];
    char byte;

    (void)state;
    memset(drip, 'a', sizeof drip);
    memcpy(drip, part, sizeof part - 1);
    support_server_options(&opt, support_echo, NULL);
    opt.upgrade.handshake_timeout = 1500;
    opt.upgrade.on_handshake_end = count_end;
    opt.upgrade.hook_arg = &ends;
    support_server_start(&srv, &opt);
    for (int i = 0; i < SLOW; i++) {
        fd[i] = client_dial(srv.address);
        assert_true(fd[i] >= 0);
        s[i] = (struct sender){.piece = i % 2 ? 1 : 0, .pause_ms = i % 2 ? 10 : 0};
        sender_start(&s[i], fd[i], drip, i % 2 ? sizeof drip : sizeof part - 1);
    }
    check_echo(srv.address, "served meanwhile");
    assert_int_equal(atomic_load(&ends.timeouts) + atomic_load(&ends.others), 0);
    for (int i = 0; i < SLOW; i++) {
        ssize_t n = recv(fd[i], &byte, 1, 0); /* no answer, just the end */

        assert_true(n == 0 || (n < 0 && errno == ECONNRESET));
    }
    WAIT_FOR(atomic_load(&ends.timeouts) == SLOW);
    for (int i = 0; i < SLOW; i++) {
        bool sent = sender_join(&s[i]);

        assert_int_equal(sent, i % 2 == 0);
        close(fd[i]);
    }
    tws_server_free(srv.server);
    assert_int_equal(atomic_load(&ends.others), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses),         cmocka_unit_test(test_unix_file),
        cmocka_unit_test(test_port_in_use),       cmocka_unit_test(test_reuse_port),
        cmocka_unit_test(test_wrong_options),     cmocka_unit_test(test_addresses_of_a_connection),
        cmocka_unit_test(test_max_connections),   cmocka_unit_test(test_max_per_address),
        cmocka_unit_test(test_per_address_apart), cmocka_unit_test(test_slow_handshakes),
    };

    return cmocka_run_group_tests_name("server_listen", tests, NULL, NULL);
}
