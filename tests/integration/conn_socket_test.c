/* What connection options say of the socket: Nagle's algorithm, and what the system holds for it. */
#include "support.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "conn/conn.h"

static int look_up(const tws_conn *c, int level, int name)
{
    int value = -1;
    socklen_t len = sizeof value;

    assert_int_equal(getsockopt(c->stream.sock.fd, level, name, &value, &len), 0);
    return value;
}

static void check(const tws_conn *c, bool delay, int receive, int send)
{
    assert_int_equal(look_up(c, IPPROTO_TCP, TCP_NODELAY) != 0, !delay);
    if (receive > 0)
        assert_int_equal(look_up(c, SOL_SOCKET, SO_RCVBUF), 2 * receive);
    if (send > 0)
        assert_int_equal(look_up(c, SOL_SOCKET, SO_SNDBUF), 2 * send);
}

static void set(tws_conn_options *o, bool delay, uint32_t receive, uint32_t send)
{
    o->tcp_delay = delay;
    o->receive_buffer = receive;
    o->send_buffer = send;
}

static void test_server(void **state)
{
    tws_server_options opt;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    check(r.conn, false, 0, 0);
    rig_close(&r);
    rig_options(&opt);
    set(&opt.upgrade.conn, true, 20000, 30000);
    rig_open(&r, &opt);
    check(r.conn, true, 20000, 30000);
    rig_close(&r);
}

static void test_client(void **state)
{
    struct support_census before = support_census();
    tws_server_options server;
    struct support_server s;
    tws_dial_options opt;
    tws_conn *c;
    char url[200];

    (void)state;
    support_server_options(&server, support_echo, NULL);
    support_server_start(&s, &server);
    snprintf(url, sizeof url, "ws://%s/", s.address);
    assert_ok(tws_dial(&c, url, NULL, NULL, NULL));
    check(c, false, 0, 0);
    tws_close(c, TWS_CLOSE_NORMAL, NULL);
    tws_conn_unref(c);
    tws_dial_options_init(&opt);
    set(&opt.conn, true, 20000, 30000);
    assert_ok(tws_dial(&c, url, &opt, NULL, NULL));
    check(c, true, 20000, 30000);
    tws_close(c, TWS_CLOSE_NORMAL, NULL);
    tws_conn_unref(c);
    tws_server_free(s.server);
    support_assert_census(before);
}

static void test_pair(void **state)
{
    tws_conn *server, *client;
    tws_pair_options opt;

    (void)state;
    tws_pair_options_init(&opt);
    opt.server.send_buffer = 30000;
    opt.client.receive_buffer = 20000;
    assert_ok(tws_pair(&server, &client, &opt));
    assert_int_equal(look_up(server, SOL_SOCKET, SO_SNDBUF), 60000);
    assert_int_equal(look_up(client, SOL_SOCKET, SO_RCVBUF), 40000);
    tws_abort(server);
    tws_conn_unref(server);
    tws_conn_unref(client);
}

/* Bytes of data that a server can write to a peer that reads nothing. */
static size_t taken(uint32_t send_buffer)
{
    enum { PIECE = 16 * 1024, MOST = 8 * 1024 * 1024 };
    tws_server_options opt;
    char *data = support_alloc(PIECE);
    struct rig r;
    size_t sum = 0;

    rig_options(&opt);
    opt.upgrade.conn.send_buffer = send_buffer;
    opt.upgrade.conn.write_timeout = 100;
    rig_open(&r, &opt);
    memset(data, 'x', PIECE);
    while (sum < MOST && tws_write_message(r.conn, TWS_BINARY, data, PIECE) == TWS_OK)
        sum += PIECE;
    free(data);
    tws_abort(r.conn);
    rig_release(&r);
    rig_close(&r);
    return sum;
}

/* The peer's own buffer takes the same both times. */
static void test_send_buffer_bounds_what_is_under_way(void **state)
{
    size_t bounded, free_of_bounds;

    (void)state;
    bounded = taken(16 * 1024);
    free_of_bounds = taken(0);
    if (bounded >= free_of_bounds)
        fail_msg("%zu bytes with a bound, %zu without", bounded, free_of_bounds);
}

static void test_faults(void **state)
{
    tws_server_options server;
    tws_dial_options dial;
    tws_server *s;
    tws_error e;
    tws_conn *c;

    (void)state;
    support_server_options(&server, support_echo, NULL);
    server.upgrade.conn.receive_buffer = (1u << 30) + 1;
    assert_err(tws_server_start(&s, &server, &e), TWS_ERR_ARGUMENT);
    assert_non_null(strstr(e.text, "receive_buffer"));
    tws_dial_options_init(&dial);
    dial.conn.send_buffer = UINT32_MAX;
    assert_err(tws_dial(&c, "ws://127.0.0.1:1/", &dial, NULL, &e), TWS_ERR_ARGUMENT);
    assert_non_null(strstr(e.text, "send_buffer"));
}

/* The system gives up a peer that takes nothing for as long as TCP_USER_TIMEOUT says: that is the end of
 * the connection, and no timeout of a call. */
static void test_given_up_by_the_system(void **state)
{
    static const char filler[65536];
    unsigned ms = 100;
    tws_message m;
    tws_error e;
    struct rig r;
    int fd;

    (void)state;
    rig_open(&r, NULL);
    fd = r.conn->stream.sock.fd;
    assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms), 0);
    for (int idle = 0; idle < 20; idle++) {
        while (send(fd, filler, sizeof filler, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
            idle = 0; /* until nothing has been taken for a while */
    }
    assert_err(tws_read_message(r.conn, &m), TWS_ERR_NETWORK);
    tws_conn_error(r.conn, &e);
    assert_int_equal(e.code, TWS_ERR_NETWORK);
    assert_int_equal(e.sys_errno, ETIMEDOUT);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_server), cmocka_unit_test(test_client),
        cmocka_unit_test(test_pair),   cmocka_unit_test(test_send_buffer_bounds_what_is_under_way),
        cmocka_unit_test(test_faults), cmocka_unit_test(test_given_up_by_the_system),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
