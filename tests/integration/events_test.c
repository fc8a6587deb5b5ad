/*
 * Events: in order, each connection's on_close exactly once and last, however it ends.
 */
#include "support_events.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

/* ---- What comes when ---- */

static void finish_from_client(struct stage *st, unsigned code, const char *reason)
{
    client_send_close(&st->client, code, reason);
    client_expect_close(&st->client, code, NULL);
    client_expect_eof(&st->client);
    client_close(&st->client);
    stage_await_close(st);
}

static void test_order(void **state)
{
    struct stage st = {.diary = {.opened = 0}};

    (void)state;
    stage_open(&st, 0, NULL);
    WAIT_FOR(atomic_load(&st.diary.opened) == 1);
    client_send_text(&st.client, "one");
    client_expect_text(&st.client, "one");
    client_send(&st.client, CLIENT_FIN | CLIENT_PING, "hey", 3);
    client_expect(&st.client, CLIENT_FIN | CLIENT_PONG, "hey", 3);
    client_send(&st.client, CLIENT_FIN | CLIENT_PONG, "ho", 2);
    client_send_text(&st.client, "two");
    client_expect_text(&st.client, "two");
    assert_int_equal(atomic_load(&st.diary.pings), 1);
    assert_int_equal(atomic_load(&st.diary.pongs), 1);
    assert_int_equal(atomic_load(&st.diary.messages), 2);
    assert_int_equal(atomic_load(&st.diary.closed), 0);
    finish_from_client(&st, 4001, "bye");
    assert_int_equal(st.diary.error.code, TWS_ERR_PEER_CLOSED);
    assert_int_equal(st.diary.error.close_code, 4001);
    assert_string_equal(st.diary.error.reason, "bye");
    assert_true(st.diary.error.clean);
    stage_close(&st);
}

/* ---- How it ends ---- */

static void ends_by_peer(struct stage *st)
{
    finish_from_client(st, 1000, "");
}

static void ends_by_eof(struct stage *st)
{
    client_close(&st->client);
}

static void ends_by_reset(struct stage *st)
{
    client_reset(&st->client);
}

static void ends_by_reserved_bit(struct stage *st)
{
    client_send(&st->client, CLIENT_FIN | 0x40 | CLIENT_TEXT, "x", 1);
    client_expect_close(&st->client, 1002, NULL);
    client_close(&st->client);
}

static void ends_by_bad_text(struct stage *st)
{
    client_send(&st->client, CLIENT_FIN | CLIENT_TEXT, "\xff", 1);
    client_expect_close(&st->client, 1007, NULL);
    client_close(&st->client);
}

static void ends_by_size(struct stage *st)
{
    client_send(&st->client, CLIENT_FIN | CLIENT_BINARY, "longer than the limit", 21);
    client_expect_close(&st->client, 1009, NULL);
    client_close(&st->client);
}

static void ends_by_abort(struct stage *st)
{
    tws_abort(atomic_load(&st->diary.conn));
}

static void ends_by_close(struct stage *st)
{
    assert_ok(tws_close_start(atomic_load(&st->diary.conn), 4002, "enough"));
    client_expect_close(&st->client, 4002, "enough");
    client_send_close(&st->client, 4002, "");
    client_expect_eof(&st->client);
    client_close(&st->client);
}

static void *drain_main(void *server)
{
    tws_server_drain(server, SUPPORT_HANG_MS);
    return NULL;
}

static void ends_by_drain(struct stage *st)
{
    pthread_t t;

    support_thread(&t, drain_main, st->s.server);
    client_expect_close(&st->client, 1001, NULL);
    client_send_close(&st->client, 1001, "");
    client_expect_eof(&st->client);
    client_close(&st->client);
    pthread_join(t, NULL);
}

static void ends_by_cut(struct stage *st)
{
    tws_server_drain(st->s.server, TWS_NOWAIT);
}

static void ends_by_silence(struct stage *st)
{
    client_drain(&st->client); /* whatever the server says, it is not answered */
    client_close(&st->client);
}

static const struct ending {
    const char *name;
    void (*end)(struct stage *st);
    tws_err code;
    bool any_code; /* what the system makes of it */
    tws_timeout timeout;
} endings[] = {
    {"peer", ends_by_peer, TWS_ERR_PEER_CLOSED, false, 0},
    {"eof", ends_by_eof, TWS_ERR_EOF, false, 0},
    {"reset", ends_by_reset, TWS_ERR_NETWORK, true, 0},
    {"reserved bit", ends_by_reserved_bit, TWS_ERR_PROTOCOL, false, 0},
    {"bad text", ends_by_bad_text, TWS_ERR_UTF8, false, 0},
    {"size", ends_by_size, TWS_ERR_TOO_BIG, false, 0},
    {"abort", ends_by_abort, TWS_ERR_CLOSED, false, 0},
    {"close", ends_by_close, TWS_ERR_CLOSED, false, 0},
    {"drain", ends_by_drain, TWS_ERR_CLOSED, false, 0},
    {"cut", ends_by_cut, TWS_ERR_CLOSED, false, 0},
    {"idle timeout", ends_by_silence, TWS_ERR_IDLE, false, TWS_TIMEOUT_IDLE},
    {"read timeout", ends_by_silence, TWS_ERR_IDLE, false, TWS_TIMEOUT_READ},
    {"keepalive", ends_by_silence, TWS_ERR_PEER_SILENT, false, TWS_TIMEOUT_PING_INTERVAL},
};

static void stage_echo(struct stage *st)
{
    client_send_text(&st->client, "hello");
    client_expect_text(&st->client, "hello");
}

static void end_one(const struct ending *e, uint32_t parallel)
{
    struct stage st = {.diary = {.opened = 0}};
    tws_server_options opt;

    print_message("%s, parallel %u\n", e->name, parallel);
    support_server_options(&opt, NULL, NULL);
    opt.upgrade.conn.max_message = 20;
    opt.upgrade.conn.close_timeout = 200;
    opt.upgrade.conn.ping_timeout = 50;
    stage_open(&st, parallel, &opt);
    stage_echo(&st);
    if (e->timeout) { /* holds from the next read on */
        assert_ok(tws_set_timeout(atomic_load(&st.diary.conn), e->timeout, 50));
        stage_echo(&st);
    }
    e->end(&st);
    stage_await_close(&st);
    if (!e->any_code)
        assert_int_equal(st.diary.error.code, e->code);
    assert_true(tws_err_is_final(st.diary.error.code));
    stage_close(&st);
}

static void test_endings(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        for (uint32_t parallel = 0; parallel <= 4; parallel += 4)
            end_one(&endings[i], parallel);
}

/* ---- What a handler may do ---- */

static void abort_now(tws_conn *c, struct diary *d)
{
    (void)d;
    tws_abort(c);
}

static void close_now(tws_conn *c, struct diary *d)
{
    tws_close(c, 4003, "handler");
    if (atomic_load(&d->closed) > 0) /* not before the handler has returned */
        atomic_store(&d->wrong, true);
    if (tws_events_wait(c, TWS_NO_LIMIT) != TWS_ERR_STATE)
        atomic_store(&d->wrong, true);
}

static void abort_on_message(tws_conn *c, tws_message *m, struct diary *d)
{
    (void)m;
    abort_now(c, d);
}

static void close_on_message(tws_conn *c, tws_message *m, struct diary *d)
{
    (void)m;
    close_now(c, d);
}

static void answer_close(struct stage *st)
{
    client_expect_close(&st->client, 4003, "handler");
    client_send_close(&st->client, 4003, "");
    client_expect_eof(&st->client);
    client_close(&st->client);
    stage_await_close(st);
    assert_int_equal(st->diary.error.code, TWS_ERR_CLOSED);
    assert_int_equal(st->diary.error.close_code, 4003);
    assert_true(st->diary.error.clean);
    stage_close(st);
}

static void test_handler_closes(void **state)
{
    (void)state;
    for (uint32_t parallel = 0; parallel <= 4; parallel += 4) {
        struct stage first = {.diary = {.on_open = close_now}};
        struct stage then = {.diary = {.on_message = close_on_message}};

        stage_open(&first, parallel, NULL);
        answer_close(&first);
        stage_open(&then, parallel, NULL);
        client_send_text(&then.client, "x");
        answer_close(&then);
        assert_int_equal(atomic_load(&then.diary.messages), 1);
    }
}

static void test_handler_aborts(void **state)
{
    (void)state;
    for (uint32_t parallel = 0; parallel <= 4; parallel += 4) {
        struct stage first = {.diary = {.on_open = abort_now}};
        struct stage then = {.diary = {.on_message = abort_on_message}};

        stage_open(&first, parallel, NULL);
        stage_await_close(&first);
        stage_close(&first);
        stage_open(&then, parallel, NULL);
        client_send_text(&then.client, "x");
        stage_await_close(&then);
        stage_close(&then);
    }
}

/* ---- Deadlines ---- */

static void expire(tws_conn *c, struct diary *d)
{
    (void)d;
    tws_set_deadline(c, TWS_TIMEOUT_READ, TWS_NOWAIT);
}

/* As in gws, a read deadline that has passed ends the connection. */
static void test_deadline(void **state)
{
    struct stage st = {.diary = {.on_open = expire}};

    (void)state;
    stage_open(&st, 0, NULL);
    client_expect_close(&st.client, 1001, "read timeout");
    client_close(&st.client);
    stage_await_close(&st);
    assert_int_equal(st.diary.error.code, TWS_ERR_IDLE);
    assert_int_equal(st.diary.error.cause, TWS_CAUSE_TIMEOUT);
    stage_close(&st);
}

static bool renew(tws_conn *c, const void *data, size_t len, void *arg)
{
    (void)data;
    (void)len;
    (void)arg;
    tws_set_deadline(c, TWS_TIMEOUT_READ, TWS_NO_LIMIT);
    return true;
}

static uint64_t timeouts_of(tws_conn *c)
{
    tws_stats st;

    tws_conn_stats(c, &st);
    return st.timeouts;
}

static void begin_short(tws_conn *c, void *arg)
{
    tws_set_deadline(c, TWS_TIMEOUT_READ, 1);
    atomic_store((_Atomic(tws_conn *) *)arg, tws_conn_ref(c));
}

/* One that on_ping moves, inside the read that began with it, does not. */
static void test_deadline_moved(void **state)
{
    _Atomic(tws_conn *) conn = NULL;
    struct support_server s;
    tws_server_options opt;
    tws_events ev;
    struct client c = {.fd = -1};
    char bytes[1024];
    size_t len;

    (void)state;
    tws_events_init(&ev);
    ev.on_open = begin_short;
    ev.on_ping = renew;
    ev.on_message = support_echo_event;
    support_server_options(&opt, NULL, &conn);
    opt.events = &ev;
    support_server_start(&s, &opt);
    len = client_request(bytes, sizeof bytes - 32, NULL); /* the ping comes with the request */
    len += client_frame((uint8_t *)bytes + len, CLIENT_FIN | CLIENT_PING, "p", 1);
    c.fd = client_dial(s.address);
    assert_true(client_send_bytes(c.fd, bytes, len));
    assert_int_equal(client_read_head(&c), 101);
    client_expect(&c, CLIENT_FIN | CLIENT_PONG, "p", 1);
    WAIT_FOR(atomic_load(&conn) && timeouts_of(atomic_load(&conn)) == 1);
    client_send_text(&c, "still here");
    client_expect_text(&c, "still here");
    client_close(&c);
    tws_conn_unref(atomic_load(&conn));
    tws_server_free(s.server);
}

/* ---- Messages ---- */

/* Messages that on_open or on_message reads by itself are no events. */
static void read_on(tws_conn *c, tws_message *m, struct diary *d)
{
    tws_message next;

    (void)m;
    (void)d;
    if (tws_read_message(c, &next) == TWS_OK)
        tws_write_message(c, next.opcode, next.data, next.len);
}

static void test_handler_reads(void **state)
{
    struct stage st = {.diary = {.on_message = read_on}};

    (void)state;
    stage_open(&st, 0, NULL);
    for (int i = 0; i < 2; i++) {
        client_send_text(&st.client, "question");
        client_send_text(&st.client, "answer");
        client_expect_text(&st.client, "answer");
    }
    assert_int_equal(atomic_load(&st.diary.messages), 2);
    finish_from_client(&st, 1000, "");
    stage_close(&st);
}

/* A message outlives its handler when it was taken, and only then has to be freed. */
static void keep(tws_conn *c, tws_message *m, struct diary *d)
{
    tws_message copy = *m, *kept = d->arg;
    bool take = m->len > 4;

    tws_message_free(m); /* not taken: nothing */
    if (take && tws_message_take(c, &copy) == TWS_OK)
        kept[m->data[4] - '0'] = copy;
    tws_write_message(c, m->opcode, m->data, m->len);
}

static void test_take(void **state)
{
    (void)state;
    for (uint32_t parallel = 0; parallel <= 2; parallel += 2) {
        tws_message kept[2] = {TWS_MESSAGE_INIT, TWS_MESSAGE_INIT};
        struct stage st = {.diary = {.on_message = keep, .arg = kept}};

        stage_open(&st, parallel, NULL);
        client_send_text(&st.client, "keep0");
        client_expect_text(&st.client, "keep0");
        client_send_text(&st.client, "drop");
        client_expect_text(&st.client, "drop");
        client_send_text(&st.client, "keep1");
        client_expect_text(&st.client, "keep1");
        finish_from_client(&st, 1000, "");
        stage_close(&st);
        assert_string_equal(kept[0].data, "keep0");
        assert_string_equal(kept[1].data, "keep1");
        tws_message_free(&kept[0]);
        tws_message_free(&kept[1]);
        assert_null(kept[0].owner);
    }
}

/* ---- Others ---- */

/* A handler that takes its time holds up nobody else. */
static void wait_if_slow(tws_conn *c, tws_message *m, void *arg)
{
    if (strcmp(m->data, "slow") == 0)
        gate_wait(arg);
    tws_write_message(c, m->opcode, m->data, m->len);
}

static void test_slow_handler(void **state)
{
    struct support_census before = support_census();
    struct client slow, quick[8];
    struct support_server s;
    tws_server_options opt;
    struct gate gate;
    tws_events ev;

    (void)state;
    gate_make(&gate);
    tws_events_init(&ev);
    ev.on_message = wait_if_slow;
    support_server_options(&opt, NULL, &gate);
    opt.events = &ev;
    support_server_start(&s, &opt);
    client_open(&slow, s.address);
    client_send_text(&slow, "slow");
    WAIT_FOR(gate_inside(&gate) == 1);
    for (int i = 0; i < 8; i++) {
        client_open(&quick[i], s.address);
        client_send_text(&quick[i], "quick");
        client_expect_text(&quick[i], "quick");
        client_close(&quick[i]);
    }
    assert_true(client_is_quiet(&slow));
    gate_open(&gate);
    client_expect_text(&slow, "slow");
    client_close(&slow);
    tws_server_free(s.server);
    gate_free(&gate);
    support_assert_census(before);
}

static bool refuse(const tws_request *r, tws_reply *a, void *arg)
{
    (void)r;
    (void)a;
    (void)arg;
    return false;
}

/* A handshake that fails has no events. */
static void test_no_handshake(void **state)
{
    struct support_census before = support_census();
    struct diary d = {.opened = 0};
    struct support_server s;
    tws_server_options opt;
    char answer[512], request[512];
    tws_events ev;

    (void)state;
    diary_events(&ev, 0);
    support_server_options(&opt, NULL, &d);
    opt.events = &ev;
    opt.upgrade.on_upgrade = refuse;
    support_server_start(&s, &opt);
    client_request(request, sizeof request, NULL);
    assert_int_equal(client_http(s.address, request, answer, sizeof answer), 403);
    assert_int_equal(
        client_http(s.address, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", answer, sizeof answer), 426);
    tws_server_free(s.server);
    assert_int_equal(atomic_load(&d.opened), 0);
    assert_int_equal(atomic_load(&d.closed), 0);
    support_assert_census(before);
}

/* A table without handlers: messages are dropped, pings answered. */
static void test_no_handlers(void **state)
{
    struct support_server s;
    tws_server_options opt;
    struct client c;
    tws_events ev;

    (void)state;
    tws_events_init(&ev);
    ev.parallel = 2;
    support_server_options(&opt, NULL, NULL);
    opt.events = &ev;
    support_server_start(&s, &opt);
    client_open(&c, s.address);
    client_send_text(&c, "nobody cares");
    client_send(&c, CLIENT_FIN | CLIENT_PING, "p", 1);
    client_expect(&c, CLIENT_FIN | CLIENT_PONG, "p", 1);
    client_close(&c);
    tws_server_free(s.server);
}

static bool no_pong(tws_conn *c, const void *data, size_t len, void *arg)
{
    (void)arg;
    tws_write_message(c, TWS_BINARY, data, len);
    return false;
}

static void test_no_pong(void **state)
{
    struct support_server s;
    tws_server_options opt;
    struct client c;
    tws_events ev;

    (void)state;
    tws_events_init(&ev);
    ev.on_ping = no_pong;
    support_server_options(&opt, NULL, NULL);
    opt.events = &ev;
    support_server_start(&s, &opt);
    client_open(&c, s.address);
    client_send(&c, CLIENT_FIN | CLIENT_PING, "p", 1);
    client_expect(&c, CLIENT_FIN | CLIENT_BINARY, "p", 1);
    client_send(&c, CLIENT_FIN | CLIENT_PING, "q", 1);
    client_expect(&c, CLIENT_FIN | CLIENT_BINARY, "q", 1);
    client_close(&c);
    tws_server_free(s.server);
}

/* ---- Options ---- */

static void test_options(void **state)
{
    struct diary d = {.opened = 0};
    tws_server_options opt;
    tws_server *s;
    tws_events ev;

    (void)state;
    diary_events(&ev, 0);
    support_server_options(&opt, NULL, &d);
    assert_err(tws_server_start(&s, &opt, NULL), TWS_ERR_ARGUMENT); /* neither */
    opt.on_connection = support_echo;
    opt.events = &ev;
    assert_err(tws_server_start(&s, &opt, NULL), TWS_ERR_ARGUMENT); /* both */
    opt.on_connection = NULL;
    ev.parallel = TWS_PARALLEL_MAX + 1;
    assert_err(tws_server_start(&s, &opt, NULL), TWS_ERR_ARGUMENT);
    ev.parallel = TWS_PARALLEL_MAX;
    assert_ok(tws_server_start(&s, &opt, NULL));
    tws_server_free(s);
    ev.size = 0;
    assert_err(tws_server_start(&s, &opt, NULL), TWS_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),          cmocka_unit_test(test_endings),
        cmocka_unit_test(test_handler_closes), cmocka_unit_test(test_handler_aborts),
        cmocka_unit_test(test_deadline),       cmocka_unit_test(test_deadline_moved),
        cmocka_unit_test(test_handler_reads),  cmocka_unit_test(test_take),
        cmocka_unit_test(test_slow_handler),   cmocka_unit_test(test_no_handshake),
        cmocka_unit_test(test_no_handlers),    cmocka_unit_test(test_no_pong),
        cmocka_unit_test(test_options),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
