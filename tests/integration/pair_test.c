/* Connected pairs: real connections without a network, on either kind of thread. */
#include "support_counter.h"
#include "support_pair.h"

#include <stdlib.h>

static void echo_main(void *arg)
{
    support_echo(arg, NULL);
    tws_close(arg, 1000, NULL); /* what a server does when a handler returns */
}

struct asking {
    tws_conn *conn;
    const char *data;
    size_t len;
    tws_err err, close;
    bool same;
    int64_t rtt;
};

static void ask_main(void *arg)
{
    struct asking *a = arg;
    tws_message m;

    a->err = tws_ping_wait(a->conn, NULL, 0, 0, &a->rtt);
    for (int i = 0; !a->err && i < 3; i++) {
        a->err = tws_write_message(a->conn, TWS_BINARY, a->data, a->len);
        if (!a->err)
            a->err = tws_read_message(a->conn, &m);
        a->same = !a->err && m.len == a->len && memcmp(m.data, a->data, m.len) == 0;
    }
    a->close = tws_close(a->conn, 1000, "done");
}

static void echo_through(const tws_pair_options *opt, size_t len)
{
    char *data = support_alloc(len);
    struct asking a = {.data = data, .len = len};
    tws_deflate_info info;
    tws_error e;
    struct job echo;
    struct couple p;

    support_fill(data, len, 3);
    couple_open(&p, opt);
    a.conn = p.client;
    job_start(&echo, &p, echo_main, p.server);
    job_run(&p, ask_main, &a);
    job_join(&echo);
    assert_ok(a.err);
    assert_true(a.same);
    assert_true(a.rtt >= 0);
    assert_ok(a.close);
    tws_conn_error(p.server, &e);
    assert_int_equal(e.code, TWS_ERR_PEER_CLOSED);
    assert_string_equal(e.reason, "done");
    if (opt && opt->deflate) {
        assert_true(tws_conn_deflate(p.server, &info));
        assert_int_equal(info.messages_in, 3);
        assert_int_equal(info.messages_out, 3);
        assert_true(info.compressed_in < info.original_in);
    }
    couple_close(&p);
    free(data);
}

static void test_echo(void **state)
{
    (void)state;
    echo_through(NULL, 5);
    echo_through(NULL, 1 << 20);
}

static void test_deflate(void **state)
{
    tws_deflate_options deflate;
    tws_pair_options opt;

    (void)state;
    tws_deflate_options_init(&deflate);
    tws_pair_options_init(&opt);
    opt.deflate = &deflate;
    echo_through(&opt, 5000);
    deflate.server_no_context_takeover = false;
    deflate.client_no_context_takeover = false;
    echo_through(&opt, 5000);
    deflate.server_max_window_bits = 9;
    deflate.client_max_window_bits = 10;
    echo_through(&opt, 70000);
}

/* Handlers find what they look for. */
static void test_request(void **state)
{
    const tws_header headers[] = {{"Host", "example.com"}, {"X-One", "1"}, {"Cookie", "a=b"}};
    tws_pair_options opt;
    const tws_request *req;
    char address[64];
    struct couple p;

    (void)state;
    tws_pair_options_init(&opt);
    opt.target = "/chat?room=1";
    opt.headers = headers;
    opt.header_count = 3;
    opt.subprotocol = "chat.v2";
    opt.server.user = &opt;
    couple_open(&p, &opt);
    req = tws_conn_request(p.server);
    assert_non_null(req);
    assert_string_equal(tws_request_path(req), "/chat");
    assert_string_equal(tws_request_query(req), "room=1");
    assert_string_equal(tws_request_header(req, "x-one"), "1");
    assert_string_equal(tws_conn_subprotocol(p.server), "chat.v2");
    assert_string_equal(tws_conn_subprotocol(p.client), "chat.v2");
    assert_ptr_equal(tws_conn_user(p.server), &opt);
    assert_null(tws_conn_user(p.client));
    assert_null(tws_conn_request(p.client));
    assert_int_equal(tws_conn_peer_address(p.server, address, sizeof address), 4);
    assert_string_equal(address, "unix");
    couple_close(&p);
    couple_open(&p, NULL);
    assert_string_equal(tws_request_path(tws_conn_request(p.server)), "/");
    couple_close(&p);
}

/* Each side has options of its own, those of its queue too. */
static void test_sides_differ(void **state)
{
    tws_pair_options opt;
    struct couple p;
    tws_message m;

    (void)state;
    tws_pair_options_init(&opt);
    opt.server.max_message = 10;
    opt.client.read_timeout = 20;
    opt.client.queue.max_messages = 1;
    couple_open(&p, &opt);
    assert_err(tws_read_message(p.client, &m), TWS_ERR_TIMEOUT);
    assert_int_equal(tws_get_timeout(p.server, TWS_TIMEOUT_READ), 0);
    assert_ok(tws_write_text(p.client, "more than ten"));
    assert_err(tws_read_message(p.server, &m), TWS_ERR_TOO_BIG);
    assert_err(tws_read_message(p.client, &m), TWS_ERR_PEER_CLOSED);
    couple_close(&p);
}

struct made {
    tws_conn *server, *client;
    tws_err err, read;
};

static void make_main(void *arg)
{
    struct made *m = arg;
    tws_message msg;

    m->err = tws_pair(&m->server, &m->client, NULL);
    if (m->err)
        return;
    m->read = tws_read_message_within(m->server, &msg, 10);
    if (m->read == TWS_ERR_TIMEOUT)
        m->read = tws_write_text(m->client, "x");
    if (!m->read)
        m->read = tws_read_message(m->server, &msg);
    tws_conn_unref(m->client);
    tws_conn_unref(m->server);
}

/* Without a group it is for threads like the caller's. */
static void test_made_where_used(void **state)
{
    struct made m = {.err = TWS_ERR_STATE};
    struct couple p;

    (void)state;
    couple_open(&p, NULL);
    job_run(&p, make_main, &m);
    assert_ok(m.err);
    assert_ok(m.read);
    couple_close(&p);
    make_main(&m);
    assert_ok(m.err);
    assert_ok(m.read);
}

static void test_refused(void **state)
{
    const tws_header broken = {"No token", "x"};
    tws_deflate_options deflate;
    tws_pair_options opt;
    tws_conn *a = (void *)&a, *b = a;

    (void)state;
    tws_pair_options_init(&opt);
    opt.size = 0;
    assert_err(tws_pair(&a, &b, &opt), TWS_ERR_ARGUMENT);
    assert_null(a);
    assert_null(b);
    tws_pair_options_init(&opt);
    opt.server.read_timeout = -5;
    assert_err(tws_pair(&a, &b, &opt), TWS_ERR_ARGUMENT);
    tws_pair_options_init(&opt);
    opt.target = "no path";
    assert_err(tws_pair(&a, &b, &opt), TWS_ERR_ARGUMENT);
    tws_pair_options_init(&opt);
    opt.headers = &broken;
    opt.header_count = 1;
    assert_err(tws_pair(&a, &b, &opt), TWS_ERR_ARGUMENT);
    tws_pair_options_init(&opt);
    tws_deflate_options_init(&deflate);
    deflate.level = 10;
    opt.deflate = &deflate;
    assert_err(tws_pair(&a, &b, &opt), TWS_ERR_ARGUMENT);
}

/* Whatever allocation fails, nothing is left behind. */
static void test_no_memory(void **state)
{
    struct support_census before = support_census();
    struct counter k = {.calls = 0};
    tws_allocator a = counter_allocator(&k);
    tws_deflate_options deflate;
    tws_pair_options opt;
    tws_conn *server, *client;
    tws_err err = TWS_ERR_MEMORY;

    (void)state;
    tws_deflate_options_init(&deflate);
    tws_pair_options_init(&opt);
    opt.deflate = &deflate;
    opt.subprotocol = "x";
    opt.allocator = &a;
    for (long at = 1; err; at++) {
        assert_true(at < 100);
        atomic_store(&k.calls, 0);
        atomic_store(&k.fail_from, at);
        atomic_store(&k.fail_count, 1);
        err = tws_pair(&server, &client, &opt);
        if (err)
            assert_err(err, TWS_ERR_MEMORY);
    }
    tws_conn_unref(server);
    tws_conn_unref(client);
    assert_int_equal(atomic_load(&k.live), 0);
    support_assert_census(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_echo),
        cmocka_unit_test(test_deflate),
        cmocka_unit_test(test_request),
        cmocka_unit_test(test_sides_differ),
        cmocka_unit_test(test_made_where_used),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_memory),
    };

    return cmocka_run_group_tests_name("pair", tests, NULL, NULL);
}
