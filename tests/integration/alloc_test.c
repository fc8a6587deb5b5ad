/*
 * Memory: through the caller's allocator only, none per message in steady state, all of it given
 * back, and no harm done when there is none.
 */
#include "support.h"
#include "support_counter.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- Steady state ---- */

static void echo_many(struct client *c, const uint8_t *data, size_t len, int times)
{
    for (int i = 0; i < times; i++) {
        client_send(c, CLIENT_FIN | CLIENT_BINARY, data, len);
        client_expect(c, CLIENT_FIN | CLIENT_BINARY, data, len);
    }
}

static void steady_state(tws_server_options *opt)
{
    static const size_t lengths[] = {10, 1000, 10000, 50000};
    uint8_t *data = support_alloc(50000);
    struct counter k;
    tws_allocator a = counter_allocator(&k);
    struct support_server s;
    struct client c;

    support_fill(data, 50000, 0);
    opt->upgrade.allocator = &a;
    support_server_start(&s, opt);
    client_open(&c, s.address);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        long before;

        echo_many(&c, data, lengths[i], 20);
        before = atomic_load(&k.calls);
        echo_many(&c, data, lengths[i], lengths[i] > 1000 ? 200 : 1000);
        assert_int_equal(atomic_load(&k.calls) - before, 0);
    }
    assert_true(atomic_load(&k.calls) > 0);
    client_close(&c);
    tws_server_free(s.server);
    assert_int_equal(atomic_load(&k.live), 0);
    free(data);
}

/* By a loop, and by events. */
static void test_steady_state(void **state)
{
    tws_server_options opt;
    tws_events ev;

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    steady_state(&opt);
    tws_events_init(&ev);
    ev.on_message = support_echo_event;
    support_server_options(&opt, NULL, NULL);
    opt.events = &ev;
    steady_state(&opt);
}

/* Connections that come and go take from what others have given back. */
static void test_reuse(void **state)
{
    struct counter k;
    tws_allocator a = counter_allocator(&k);
    tws_server_options opt;
    struct support_server s;
    tws_server_stats st;
    long live = 0;

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    opt.upgrade.allocator = &a;
    opt.max_per_address = 10;
    support_server_start(&s, &opt);
    for (int i = 0; i < 50; i++) {
        struct client c;

        client_open(&c, s.address);
        echo_many(&c, (const uint8_t *)"x", 1, 1);
        client_close(&c);
        WAIT_FOR((tws_server_get_stats(s.server, &st), st.threads == 0));
        if (i == 0)
            live = atomic_load(&k.live);
        assert_int_equal(atomic_load(&k.live), live);
    }
    tws_server_free(s.server);
    assert_int_equal(atomic_load(&k.live), 0);
}

/* ---- No memory ---- */

/* Uses what takes memory: handshake, a large message that is taken, a streamed answer, a reply. */
static void busy_handler(tws_conn *c, void *arg)
{
    tws_message m;
    tws_writer *w;

    (void)arg;
    while (tws_read_message(c, &m) == TWS_OK) {
        tws_message_take(c, &m);
        if (tws_next_writer(c, m.opcode, &w) == TWS_OK) {
            tws_writer_write(w, m.data, m.len);
            tws_writer_close(w);
        } else {
            tws_write_message(c, m.opcode, m.data, m.len);
        }
        tws_message_free(&m);
    }
}

static bool busy_upgrade(const tws_request *r, tws_reply *a, void *arg)
{
    (void)r;
    (void)arg;
    return tws_reply_header(a, "X-A", "b") == TWS_OK;
}

/* One frame out, and frames back until a message is whole. False when the connection ended. */
static bool talk(struct client *c, uint8_t *wire, size_t len)
{
    struct client_frame f = {.fin = false};

    if (!client_send_bytes(c->fd, wire, len))
        return false;
    do
        if (client_try_next(c, &f) != 1 || f.opcode == CLIENT_CLOSE)
            return false; /* and our own close frame answers the server's */
    while (!f.fin || f.opcode > CLIENT_CLOSE);
    return true;
}

/* A whole conversation, as far as it gets. Whether nothing went wrong. */
static bool converse(const char *address)
{
    static uint8_t data[40000], wire[2 * 40000 + 64];
    char headers[1900];
    struct client c;
    struct client_frame f;
    bool ok;
    size_t len;

    /* Headers too long for the connection's own block. */
    memset(headers, 'h', sizeof headers);
    memcpy(headers, "Sec-WebSocket-Protocol: p\r\nX-Long: ", 35);
    memcpy(headers + sizeof headers - 3, "\r\n", 3);
    ok = client_upgrade(&c, client_dial(address), headers) == 101;
    if (ok) {
        support_fill(data, sizeof data, 0);
        ok = talk(&c, wire, client_frame(wire, CLIENT_FIN | CLIENT_TEXT, data, 10));
        len = client_frame(wire, CLIENT_TEXT, data, sizeof data);
        len += client_frame(wire + len, CLIENT_FIN | CLIENT_PING, "p", 1);
        len += client_frame(wire + len, CLIENT_FIN, data, 1000);
        ok = ok && talk(&c, wire, len);
        client_send_bytes(c.fd, wire, client_frame(wire, CLIENT_FIN | CLIENT_CLOSE, "\x03\xe8", 2));
        while (client_try_next(&c, &f) == 1) {
        }
    }
    client_close(&c);
    return ok;
}

static void prepare_busy(tws_server_options *opt)
{
    static const char *const protocols[] = {"p"};

    support_server_options(opt, busy_handler, NULL);
    opt->upgrade.on_upgrade = busy_upgrade;
    opt->upgrade.subprotocols = protocols;
    opt->upgrade.subprotocol_count = 1;
    opt->max_per_address = 10;
}

static void test_one_failure(void **state)
{
    (void)state;
    counter_fail_everywhere(prepare_busy, converse, 1);
}

static void test_failures_from_there_on(void **state)
{
    (void)state;
    counter_fail_everywhere(prepare_busy, converse, 1000000);
}

/* A take that finds no memory leaves message and connection as they were. */
static void test_take_without_memory(void **state)
{
    struct counter k;
    tws_allocator a = counter_allocator(&k);
    tws_server_options opt;
    tws_message m;
    tws_writer *w;
    struct rig r;

    (void)state;
    rig_options(&opt);
    opt.upgrade.allocator = &a;
    rig_open(&r, &opt);
    client_send_text(&r.client, "keep me");
    assert_ok(tws_read_message(r.conn, &m));
    atomic_store(&k.fail_count, 1000000);
    assert_err(tws_message_take(r.conn, &m), TWS_ERR_MEMORY);
    assert_string_equal(m.data, "keep me");
    assert_err(tws_next_writer(r.conn, TWS_TEXT, &w), TWS_ERR_MEMORY);
    assert_ok(tws_write_text(r.conn, "healthy"));
    client_expect_text(&r.client, "healthy");
    atomic_store(&k.fail_count, 0);
    assert_ok(tws_message_take(r.conn, &m));
    assert_string_equal(m.data, "keep me");
    tws_message_free(&m);
    rig_close(&r);
    assert_int_equal(atomic_load(&k.live), 0);
}

/* A message for which there is no memory ends the connection with an error of its own. */
static void test_read_without_memory(void **state)
{
    static uint8_t data[100000], wire[100000 + CLIENT_HEAD_MAX];
    struct sender s = {.piece = 0};
    struct counter k;
    tws_allocator a = counter_allocator(&k);
    tws_server_options opt;
    tws_message m;
    tws_error e;
    struct rig r;

    (void)state;
    rig_options(&opt);
    opt.upgrade.allocator = &a;
    rig_open(&r, &opt);
    sender_start(&s, r.client.fd, wire,
                 client_frame(wire, CLIENT_FIN | CLIENT_BINARY, data, sizeof data));
    atomic_store(&k.fail_count, 1000000);
    assert_err(tws_read_message(r.conn, &m), TWS_ERR_RESOURCE);
    tws_conn_error(r.conn, &e);
    assert_int_equal(e.cause, TWS_CAUSE_LOCAL);
    atomic_store(&k.fail_count, 0);
    rig_release(&r);
    client_drain(&r.client);
    sender_join(&s);
    rig_close(&r);
    assert_int_equal(atomic_load(&k.live), 0);
}

/* ---- A client without memory ---- */

struct dial_run {
    const char *url;
    const tws_dial_options *opt;
    tws_err err;
    bool echoed;
};

static void dial_and_echo(void *arg)
{
    struct dial_run *d = arg;
    tws_response *r;
    tws_conn *c;
    tws_error e;
    tws_message m;

    d->err = tws_dial(&c, d->url, d->opt, &r, &e);
    if (d->err == TWS_OK)
        d->echoed = tws_write_text(c, "hello") == TWS_OK && tws_read_message(c, &m) == TWS_OK &&
                    tws_close(c, 1000, NULL) == TWS_OK;
    tws_conn_unref(c);
    tws_response_free(r);
}

/* Every allocation of a dial fails once, alone and with all later ones. */
static void test_dial_without_memory(void **state)
{
    static const char *const protocols[] = {"chat"};
    static const tws_header header = {"X-One", "1"};
    struct counter k;
    tws_allocator a = counter_allocator(&k);
    tws_server_options so;
    tws_deflate_options deflate;
    tws_dial_options opt;
    struct support_server s;
    char url[256];

    (void)state;
    support_server_options(&so, support_echo, NULL);
    so.upgrade.subprotocols = protocols;
    so.upgrade.subprotocol_count = 1;
    tws_deflate_options_init(&deflate);
    so.upgrade.deflate = &deflate;
    support_server_start(&s, &so);
    snprintf(url, sizeof url, "ws://user@%s/", s.address);
    tws_dial_options_init(&opt);
    opt.allocator = &a;
    opt.headers = &header;
    opt.header_count = 1;
    opt.subprotocols = protocols;
    opt.subprotocol_count = 1;
    opt.deflate = &deflate;
    for (int mode = 0; mode < 4; mode++) { /* one or all; an own thread or a group's */
        struct dial_run d = {.url = url, .opt = &opt, .err = TWS_ERR_MEMORY};
        long n = 0;

        for (; d.err == TWS_ERR_MEMORY && n < 1000; n++) {
            atomic_store(&k.calls, 0);
            atomic_store(&k.fail_count, mode % 2 ? 1 : LONG_MAX / 2);
            atomic_store(&k.fail_from, n);
            if (mode / 2 == 0) {
                dial_and_echo(&d);
            } else {
                tws_group *g = NULL;

                assert_ok(tws_group_new(&g, NULL));
                assert_ok(tws_group_spawn(g, dial_and_echo, &d));
                tws_group_free(g);
            }
            assert_int_equal(atomic_load(&k.live), 0);
        }
        assert_ok(d.err);
        assert_in_range(n, 8, 999);
    }
    tws_server_free(s.server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steady_state),        cmocka_unit_test(test_reuse),
        cmocka_unit_test(test_one_failure),         cmocka_unit_test(test_failures_from_there_on),
        cmocka_unit_test(test_take_without_memory), cmocka_unit_test(test_read_without_memory),
        cmocka_unit_test(test_dial_without_memory),
    };

    return cmocka_run_group_tests_name("alloc", tests, NULL, NULL);
}
