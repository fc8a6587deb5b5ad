/* Pings that wait for their pongs: who reads meanwhile, which pong answers, what ends the wait. */
#include "support_flood.h"

#include "conn/conn.h"

#include <stdlib.h>

struct pinger {
    pthread_t thread;
    tws_conn *conn;
    const char *data; /* NULL: the library's */
    tws_ms ms;
    _Atomic bool done;
    tws_err err;
    int64_t rtt;
};

static void *ping_main(void *arg)
{
    struct pinger *p = arg;

    p->err = tws_ping_wait(p->conn, p->data, p->data ? strlen(p->data) : 0, p->ms, &p->rtt);
    atomic_store(&p->done, true);
    return NULL;
}

static void pinger_start(struct pinger *p, tws_conn *c, const char *data)
{
    *p = (struct pinger){.conn = c, .data = data};
    support_thread(&p->thread, ping_main, p);
}

static tws_err pinger_join(struct pinger *p)
{
    WAIT_FOR(atomic_load(&p->done));
    pthread_join(p->thread, NULL);
    if ((p->err == TWS_OK) != (p->rtt >= 0))
        fail_msg("%s with a round trip of %lld us", tws_err_name(p->err), (long long)p->rtt);
    return p->err;
}

static void expect_ping(struct client *c, char data[126], size_t *len)
{
    struct client_frame f;

    assert_true(client_next(c, &f));
    assert_int_equal(f.opcode, CLIENT_PING);
    memcpy(data, f.data, f.len);
    *len = f.len;
}

static void answer(struct client *c)
{
    char data[126];
    size_t len;

    expect_ping(c, data, &len);
    client_send(c, CLIENT_FIN | CLIENT_PONG, data, len);
}

/* ---- Somebody else reads ---- */

static void test_another_reads(void **state)
{
    struct pinger p;
    struct reader rd;
    tws_stats st;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    reader_start(&rd, r.conn);
    reader_await(&rd);
    pinger_start(&p, r.conn, NULL);
    answer(&r.client);
    assert_ok(pinger_join(&p));
    pinger_start(&p, r.conn, "payload");
    client_expect(&r.client, CLIENT_FIN | CLIENT_PING, "payload", 7);
    client_send(&r.client, CLIENT_FIN | CLIENT_PONG, "payloaD", 7);
    client_send(&r.client, CLIENT_FIN | CLIENT_PONG, "payload ", 8);
    client_send(&r.client, CLIENT_FIN | CLIENT_PONG, NULL, 0);
    client_send(&r.client, CLIENT_FIN | CLIENT_PING, "behind", 6);
    client_expect(&r.client, CLIENT_FIN | CLIENT_PONG, "behind", 6);
    assert_false(atomic_load(&p.done)); /* none of these was its own */
    client_send(&r.client, CLIENT_FIN | CLIENT_PONG, "payload", 7);
    assert_ok(pinger_join(&p));
    tws_conn_stats(r.conn, &st);
    assert_int_equal(st.pings_out, 2);
    tws_abort(r.conn);
    reader_join(&rd);
    rig_close(&r);
}

/* A peer may answer only the last of several: it has read them all. */
static void test_last_is_answered(void **state)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    struct pinger p[4];
    struct reader rd;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    reader_start(&rd, r.conn);
    for (int i = 0; i < 4; i++) {
        pinger_start(&p[i], r.conn, names[i]);
        client_expect(&r.client, CLIENT_FIN | CLIENT_PING, names[i], 1);
    }
    client_send(&r.client, CLIENT_FIN | CLIENT_PONG, "c", 1);
    for (int i = 0; i < 3; i++)
        assert_ok(pinger_join(&p[i]));
    assert_false(atomic_load(&p[3].done));
    client_send(&r.client, CLIENT_FIN | CLIENT_PONG, "d", 1);
    assert_ok(pinger_join(&p[3]));
    tws_abort(r.conn);
    reader_join(&rd);
    rig_close(&r);
}

/* Keepalive's pong, too, answers what was asked before. */
static void test_keepalive_answers(void **state)
{
    tws_server_options opt;
    struct pinger p;
    char data[126];
    size_t len;
    struct reader rd;
    struct rig r;

    (void)state;
    rig_options(&opt);
    opt.upgrade.conn.ping_interval = 50;
    rig_open(&r, &opt);
    reader_start(&rd, r.conn);
    pinger_start(&p, r.conn, "mine");
    for (;;) {
        expect_ping(&r.client, data, &len);
        if (len == 4)
            break;
        client_send(&r.client, CLIENT_FIN | CLIENT_PONG, data, len);
    }
    expect_ping(&r.client, data, &len);
    client_send(&r.client, CLIENT_FIN | CLIENT_PONG, data, len);
    assert_ok(pinger_join(&p));
    tws_abort(r.conn);
    reader_join(&rd);
    rig_close(&r);
}

/* ---- Nobody else reads ---- */

static void test_reads_for_itself(void **state)
{
    struct pinger p;
    tws_message m;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    pinger_start(&p, r.conn, NULL);
    client_send(&r.client, CLIENT_FIN | CLIENT_PING, "q", 1);
    answer(&r.client);
    client_expect(&r.client, CLIENT_FIN | CLIENT_PONG, "q", 1);
    assert_ok(pinger_join(&p));
    client_send_text(&r.client, "m");
    assert_ok(tws_read_message(r.conn, &m));
    assert_string_equal(m.data, "m");
    rig_close(&r);
}

/* A message that comes first is left whole. */
static void test_message_comes_first(void **state)
{
    int64_t rtt = 0;
    tws_message m;
    tws_opcode op;
    char buf[8];
    size_t n;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    client_send_text(&r.client, "first");
    client_send(&r.client, CLIENT_FIN | CLIENT_PING, "q", 1);
    client_send(&r.client, CLIENT_TEXT, "be", 2);
    assert_err(tws_ping_wait(r.conn, "a", 1, 0, &rtt), TWS_ERR_STATE);
    assert_int_equal(rtt, -1);
    assert_ok(tws_next_reader(r.conn, &op));
    assert_ok(tws_reader_read(r.conn, buf, sizeof buf, &n));
    assert_int_equal(n, 5);
    assert_err(tws_ping_wait(r.conn, "b", 1, 0, NULL), TWS_ERR_STATE);
    do /* until the first fragment has been read */
        assert_err(tws_read_message_within(r.conn, &m, 10), TWS_ERR_TIMEOUT);
    while (!r.conn->msg.in_message || r.conn->msg.in_frame);
    client_expect(&r.client, CLIENT_FIN | CLIENT_PING, "a", 1);
    client_expect(&r.client, CLIENT_FIN | CLIENT_PING, "b", 1);
    client_expect(&r.client, CLIENT_FIN | CLIENT_PONG, "q", 1);
    /* Between two fragments there is room for a pong. */
    client_send(&r.client, CLIENT_FIN | CLIENT_PONG, "c", 1);
    assert_ok(tws_ping_wait(r.conn, "c", 1, 0, &rtt));
    client_send(&r.client, CLIENT_FIN | CLIENT_CONT, "hind", 4);
    assert_ok(tws_read_message(r.conn, &m));
    assert_string_equal(m.data, "behind");
    rig_close(&r);
}

/* Half a frame is no place for it. */
static void test_half_a_frame(void **state)
{
    uint8_t frame[64];
    size_t len = client_frame(frame, CLIENT_FIN | CLIENT_TEXT, "a whole message", 15);
    tws_message m;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    assert_true(client_send_bytes(r.client.fd, frame, 10));
    assert_err(tws_read_message_within(r.conn, &m, 20), TWS_ERR_TIMEOUT);
    WAIT_FOR(tws_ping_wait(r.conn, NULL, 0, 1000, NULL) == TWS_ERR_STATE);
    assert_true(client_send_bytes(r.client.fd, frame + 10, len - 10));
    assert_ok(tws_read_message(r.conn, &m));
    assert_string_equal(m.data, "a whole message");
    rig_close(&r);
}

/* Who comes to read waits for the pump to step aside, and gets what was meant for it. */
static void test_reader_comes(void **state)
{
    struct pinger p, q;
    struct reader rd;
    tws_message m;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    pinger_start(&p, r.conn, "p");
    WAIT_FOR(support_pumping(r.conn));
    assert_err(tws_read_message_within(r.conn, &m, 20), TWS_ERR_TIMEOUT);
    assert_err(tws_read_message_within(r.conn, &m, TWS_NOWAIT), TWS_ERR_TIMEOUT);
    assert_true(support_pumping(r.conn));
    pinger_start(&q, r.conn, "q");
    client_expect(&r.client, CLIENT_FIN | CLIENT_PING, "p", 1);
    client_expect(&r.client, CLIENT_FIN | CLIENT_PING, "q", 1);
    reader_start(&rd, r.conn);
    WAIT_FOR(atomic_load(&r.conn->reader_wanted) > 0);
    client_send_text(&r.client, "for the reader");
    WAIT_FOR(atomic_load(&rd.messages) == 1);
    assert_false(atomic_load(&p.done) || atomic_load(&q.done));
    client_send(&r.client, CLIENT_FIN | CLIENT_PONG, "p", 1);
    client_send(&r.client, CLIENT_FIN | CLIENT_PONG, "q", 1);
    assert_ok(pinger_join(&p));
    assert_ok(pinger_join(&q));
    tws_abort(r.conn);
    reader_join(&rd);
    rig_close(&r);
}

/* The one that pumps has its pong and goes; the next one takes over. */
static void test_pump_is_handed_on(void **state)
{
    struct pinger p, q;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    pinger_start(&p, r.conn, "p");
    client_expect(&r.client, CLIENT_FIN | CLIENT_PING, "p", 1);
    WAIT_FOR(support_pumping(r.conn));
    pinger_start(&q, r.conn, "q");
    client_expect(&r.client, CLIENT_FIN | CLIENT_PING, "q", 1);
    client_send(&r.client, CLIENT_FIN | CLIENT_PONG, "p", 1);
    assert_ok(pinger_join(&p));
    client_send(&r.client, CLIENT_FIN | CLIENT_PONG, "q", 1);
    assert_ok(pinger_join(&q));
    rig_close(&r);
}

/* ---- Endings ---- */

static void test_timeout(void **state)
{
    tws_message m;
    struct reader rd;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    assert_err(tws_ping_wait(r.conn, "a", 1, 30, NULL), TWS_ERR_TIMEOUT);
    client_send(&r.client, CLIENT_FIN | CLIENT_PONG, "a", 1); /* too late, and harmless */
    client_send_text(&r.client, "m");
    assert_ok(tws_read_message(r.conn, &m));
    reader_start(&rd, r.conn);
    reader_await(&rd);
    assert_err(tws_ping_wait(r.conn, "a", 1, 30, NULL), TWS_ERR_TIMEOUT);
    tws_abort(r.conn);
    reader_join(&rd);
    assert_err(tws_ping_wait(r.conn, "a", 1, 30, NULL), TWS_ERR_CLOSED);
    rig_close(&r);
}

/* Frames without end, none of which is the pong. */
static void test_flood(void **state)
{
    struct flood f;

    (void)state;
    flood_open(&f);
    assert_err(tws_ping_wait(f.rig.conn, "a", 1, 100, NULL), TWS_ERR_TIMEOUT);
    flood_close(&f);
}

static void close_it(struct rig *r)
{
    assert_ok(tws_close_start(r->conn, 1000, NULL));
}

static void abort_it(struct rig *r)
{
    tws_abort(r->conn);
}

static void peer_closes(struct rig *r)
{
    client_send_close(&r->client, 1000, NULL);
}

static void peer_breaks_rules(struct rig *r)
{
    client_send(&r->client, CLIENT_FIN | 3, "x", 1);
}

static void ends(void (*end)(struct rig *r), tws_err wanted, bool with_reader)
{
    struct pinger p;
    struct reader rd;
    struct rig r;

    rig_open(&r, NULL);
    if (with_reader) {
        reader_start(&rd, r.conn);
        reader_await(&rd);
    }
    pinger_start(&p, r.conn, "p");
    client_expect(&r.client, CLIENT_FIN | CLIENT_PING, "p", 1);
    end(&r);
    assert_err(pinger_join(&p), wanted);
    if (with_reader)
        assert_err(reader_join(&rd), wanted);
    rig_close(&r);
}

static void test_endings(void **state)
{
    (void)state;
    for (int reader = 0; reader < 2; reader++) {
        ends(close_it, TWS_ERR_CLOSED, reader);
        ends(abort_it, TWS_ERR_CLOSED, reader);
        ends(peer_closes, TWS_ERR_PEER_CLOSED, reader);
        ends(peer_breaks_rules, TWS_ERR_PROTOCOL, reader);
    }
}

/* ---- Arguments ---- */

static bool ping_inside(tws_conn *c, const void *data, size_t len, void *arg)
{
    tws_err *err = arg;

    *err = tws_ping_wait(c, data, len, 0, NULL);
    return true;
}

static void test_refused(void **state)
{
    tws_err inside = TWS_OK;
    tws_message m;
    uint8_t data[126] = {0};
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    assert_err(tws_ping_wait(r.conn, data, 126, 0, NULL), TWS_ERR_CONTROL_SIZE);
    assert_err(tws_ping_wait(r.conn, NULL, 1, 0, NULL), TWS_ERR_ARGUMENT);
    assert_err(tws_ping_wait(r.conn, NULL, 0, TWS_NOWAIT, NULL), TWS_ERR_ARGUMENT);
    tws_set_ping_handler(r.conn, ping_inside, &inside);
    client_send(&r.client, CLIENT_FIN | CLIENT_PING, "x", 1);
    client_send_text(&r.client, "m");
    assert_ok(tws_read_message(r.conn, &m));
    assert_int_equal(inside, TWS_ERR_STATE);
    client_expect(&r.client, CLIENT_FIN | CLIENT_PONG, "x", 1); /* and no ping before it */
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_another_reads),
        cmocka_unit_test(test_last_is_answered),
        cmocka_unit_test(test_keepalive_answers),
        cmocka_unit_test(test_reads_for_itself),
        cmocka_unit_test(test_message_comes_first),
        cmocka_unit_test(test_half_a_frame),
        cmocka_unit_test(test_reader_comes),
        cmocka_unit_test(test_pump_is_handed_on),
        cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_flood),
        cmocka_unit_test(test_endings),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests_name("conn_ping_wait", tests, NULL, NULL);
}
