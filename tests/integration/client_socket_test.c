/*
 * Other ways to a server: Unix sockets, descriptors, callbacks, a source address; none left; and a
 * thousand clients at once.
 */
#include "support_dial.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static void test_unix_socket(void **state)
{
    struct support_census before = support_census();
    struct fake f;
    struct dialing d;
    struct fake_request r;
    char text[64];
    tws_message m;
    int fd;

    (void)state;
    fake_listen(&f, AF_UNIX);
    dialing_start_fake(&d, &f, "/x?y", NULL);
    fd = fake_accept(&f);
    assert_true(fake_read_request(fd, &r));
    assert_string_equal(r.target, "/x?y");
    assert_string_equal(r.host, "localhost");
    fake_upgrade(fd, &r, "", "\x81\x02hi", 4);
    dialing_join(&d, TWS_OK);
    assert_ok(tws_read_message(d.conn, &m));
    assert_string_equal(m.data, "hi");
    tws_conn_peer_address(d.conn, text, sizeof text);
    assert_string_equal(text, "unix");
    assert_int_equal(strncmp(tws_response_url(d.response), "ws+unix:/", 9), 0);
    close(fd);
    dialing_end(&d);
    fake_close(&f);
    dialing_start_fake(&d, &f, "/", NULL);
    dialing_join(&d, TWS_ERR_CONNECT);
    assert_int_equal(d.error.sys_errno, ENOENT);
    assert_non_null(strstr(d.error.text, f.host));
    dialing_end(&d);
    support_assert_census(before);
}

static void test_descriptor(void **state)
{
    struct support_census before = support_census();
    tws_dial_options opt;
    struct fake_request r;
    struct dialing d;
    tws_conn *c;
    int pair[2];

    (void)state;
    tws_dial_options_init(&opt);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    opt.fd = pair[0];
    dialing_start(&d, "ws://anything.example:81/", &opt);
    assert_true(fake_read_request(pair[1], &r));
    assert_string_equal(r.host, "anything.example:81");
    fake_upgrade(pair[1], &r, "", NULL, 0);
    dialing_join(&d, TWS_OK);
    close(pair[1]);
    dialing_end(&d);
    /* It is the library's in any case. */
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    opt.fd = pair[0];
    opt.timeout = -1;
    assert_err(tws_dial(&c, "ws://x/", &opt, NULL, NULL), TWS_ERR_ARGUMENT);
    assert_int_equal(fcntl(pair[0], F_GETFD), -1);
    close(pair[1]);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    opt.timeout = 0;
    opt.fd = pair[0];
    assert_err(tws_dial(&c, "nonsense", &opt, NULL, NULL), TWS_ERR_ADDRESS);
    assert_int_equal(fcntl(pair[0], F_GETFD), -1);
    close(pair[1]);
    support_assert_census(before);
}

struct callback {
    int result, calls;
    char host[64];
    uint16_t port;
    tws_ms timeout;
};

static int call_back(const char *host, uint16_t port, tws_ms timeout, void *arg)
{
    struct callback *k = arg;

    k->calls++;
    snprintf(k->host, sizeof k->host, "%s", host);
    k->port = port;
    k->timeout = timeout;
    return k->result;
}

static void test_callback(void **state)
{
    struct callback k = {.calls = 0};
    tws_dial_options opt;
    struct fake_request r;
    struct dialing d;
    int pair[2];

    (void)state;
    tws_dial_options_init(&opt);
    opt.connect = call_back;
    opt.connect_arg = &k;
    opt.connect_timeout = 9000;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    k.result = pair[0];
    dialing_start(&d, "ws://[2001:db8::1]:81/", &opt);
    assert_true(fake_read_request(pair[1], &r));
    assert_string_equal(r.host, "[2001:db8::1]:81");
    fake_upgrade(pair[1], &r, "", NULL, 0);
    dialing_join(&d, TWS_OK);
    assert_string_equal(k.host, "2001:db8::1");
    assert_int_equal(k.port, 81);
    assert_in_range(k.timeout, 1, 9000);
    close(pair[1]);
    dialing_end(&d);
    k.result = -EHOSTUNREACH;
    dialing_start(&d, "ws://x/", &opt);
    dialing_join(&d, TWS_ERR_CONNECT);
    assert_int_equal(d.error.sys_errno, EHOSTUNREACH);
    assert_int_equal(k.port, 80);
    dialing_end(&d);
    dialing_start(&d, "ws+unix:/some/socket:/", &opt);
    dialing_join(&d, TWS_ERR_CONNECT);
    assert_string_equal(k.host, "");
    assert_int_equal(k.port, 0);
    assert_int_equal(k.calls, 3);
    dialing_end(&d);
}

static void test_source_address(void **state)
{
    struct fake f;
    struct dialing d;
    struct fake_request r;
    struct sockaddr_in peer;
    socklen_t len = sizeof peer;
    tws_dial_options opt;
    int fd;

    (void)state;
    fake_listen(&f, AF_INET);
    tws_dial_options_init(&opt);
    opt.source_address = "127.0.0.3";
    dialing_start_fake(&d, &f, "/", &opt);
    fd = fake_accept(&f);
    assert_int_equal(getpeername(fd, (struct sockaddr *)&peer, &len), 0);
    assert_int_equal(ntohl(peer.sin_addr.s_addr), 0x7f000003);
    assert_true(fake_read_request(fd, &r));
    fake_upgrade(fd, &r, "", NULL, 0);
    dialing_join(&d, TWS_OK);
    close(fd);
    dialing_end(&d);

    opt.source_address = "::1";
    dialing_start_fake(&d, &f, "/", &opt);
    dialing_join(&d, TWS_ERR_CONNECT);
    assert_non_null(strstr(d.error.text, "::1"));
    dialing_end(&d);
    fake_close(&f);
}

/* ---- Resources ---- */

static void test_no_descriptors(void **state)
{
    struct rlimit was, low;
    struct fake f;
    tws_conn *c;
    tws_error e;
    char url[256];
    int held[256];
    int n = 0;

    (void)state;
    fake_listen(&f, AF_INET);
    snprintf(url, sizeof url, "ws://%s/", f.host);
    getrlimit(RLIMIT_NOFILE, &was);
    low = was;
    low.rlim_cur = 128;
    setrlimit(RLIMIT_NOFILE, &low);
    while (n < 256 && (held[n] = dup(f.fd)) >= 0)
        n++;
    tws_err err = tws_dial(&c, url, NULL, NULL, &e);
    for (int i = 0; i < n; i++)
        close(held[i]);
    setrlimit(RLIMIT_NOFILE, &was);
    fake_close(&f);
    assert_int_equal(err, TWS_ERR_SYSTEM);
    assert_int_equal(e.sys_errno, EMFILE);
    assert_null(c);
}

/* ---- Many ---- */

#define CLIENTS 1000

struct crowd {
    const char *url;
    _Atomic int open, good;
    tws_mutex *mu;
    tws_cond *all;
};

static void crowd_client(void *arg)
{
    struct crowd *k = arg;
    tws_conn *c;
    tws_message m;
    bool ok = tws_dial(&c, k->url, NULL, NULL, NULL) == TWS_OK;

    tws_mutex_lock(k->mu, 0);
    if (atomic_fetch_add(&k->open, 1) + 1 == CLIENTS)
        tws_cond_broadcast(k->all);
    while (atomic_load(&k->open) < CLIENTS) /* all of them at once */
        tws_cond_wait(k->all, k->mu, 0);
    tws_mutex_unlock(k->mu);
    for (int i = 0; i < 3 && ok; i++)
        ok = tws_write_text(c, "around") == TWS_OK && tws_read_message(c, &m) == TWS_OK &&
             strcmp(m.data, "around") == 0;
    ok = ok && tws_close(c, 1000, NULL) == TWS_OK;
    if (c)
        tws_conn_unref(c);
    atomic_fetch_add(&k->good, ok);
}

/* A thousand light threads, each with a connection of its own, of one process. */
static void test_thousand(void **state)
{
    struct support_census before = support_census();
    tws_server_options opt;
    tws_group_options go;
    tws_group *g;
    struct support_server s;
    struct crowd k = {.mu = tws_mutex_new(), .all = tws_cond_new()};
    char url[256];
    struct rlimit files;

    (void)state;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    support_server_options(&opt, support_echo, NULL);
    opt.threads = TWS_THREADS_LIGHT;
    support_server_start(&s, &opt);
    snprintf(url, sizeof url, "ws://%s/", s.address);
    k.url = url;
    tws_group_options_init(&go);
    go.threads = TWS_THREADS_LIGHT;
    assert_ok(tws_group_new(&g, &go));
    for (int i = 0; i < CLIENTS; i++)
        assert_ok(tws_group_spawn(g, crowd_client, &k));
    assert_ok(tws_group_wait(g, 0));
    assert_int_equal(tws_group_count(g), 0);
    assert_int_equal(atomic_load(&k.good), CLIENTS);
    tws_group_free(g);
    tws_server_free(s.server);
    tws_cond_free(k.all);
    tws_mutex_free(k.mu);
    support_assert_census(before);
}

/* ---- From a handler ---- */

/* Each message goes on to another server, over a connection of the handler's own. */
static void relay(tws_conn *c, void *arg)
{
    tws_message m;
    tws_conn *up;

    if (tws_dial(&up, arg, NULL, NULL, NULL) != TWS_OK)
        return;
    while (tws_read_message(c, &m) == TWS_OK) {
        if (tws_write_message(up, m.opcode, m.data, m.len) != TWS_OK ||
            tws_read_message(up, &m) != TWS_OK ||
            tws_write_message(c, m.opcode, m.data, m.len) != TWS_OK)
            break;
    }
    tws_close(up, TWS_CLOSE_GOING_AWAY, NULL);
    tws_conn_unref(up);
}

/* A server whose handlers dial, on their own kind of thread, and that is drained meanwhile. */
static void test_from_handlers(void **state)
{
    struct support_census before = support_census();
    tws_server_options opt;
    struct support_server echo, front;
    struct client clients[16];
    char url[256];

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    support_server_start(&echo, &opt);
    snprintf(url, sizeof url, "ws://%s/", echo.address);
    support_server_options(&opt, relay, url);
    support_server_start(&front, &opt);
    for (int i = 0; i < 16; i++)
        client_open(&clients[i], front.address);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 16; i++)
            client_send_text(&clients[i], "through two");
        for (int i = 0; i < 16; i++)
            client_expect_text(&clients[i], "through two");
    }
    assert_err(tws_server_drain(front.server, TWS_NOWAIT), TWS_ERR_TIMEOUT);
    tws_server_free(front.server);
    for (int i = 0; i < 16; i++)
        client_close(&clients[i]);
    tws_server_free(echo.server);
    support_assert_census(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unix_socket),    cmocka_unit_test(test_descriptor),
        cmocka_unit_test(test_callback),       cmocka_unit_test(test_source_address),
        cmocka_unit_test(test_no_descriptors), cmocka_unit_test(test_thousand),
        cmocka_unit_test(test_from_handlers),
    };

    return cmocka_run_group_tests_name("client_socket", tests, NULL, NULL);
}
