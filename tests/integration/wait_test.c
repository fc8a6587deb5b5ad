/* Waiting for one connection and descriptors beside it, with a raw client at the other end. */
#include "support_flood.h"

#include "conn/conn.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

/* The wait on another thread. */
struct waiter {
    pthread_t thread;
    tws_wait_item *items;
    size_t count, ready;
    tws_ms ms;
    tws_err err;
    _Atomic bool done;
};

static void *wait_main(void *arg)
{
    struct waiter *w = arg;

    w->err = tws_wait_any(w->items, w->count, w->ms, &w->ready);
    atomic_store(&w->done, true);
    return NULL;
}

static void waiter_start(struct waiter *w, tws_wait_item *items, size_t count)
{
    *w = (struct waiter){.items = items, .count = count};
    support_thread(&w->thread, wait_main, w);
}

static tws_err waiter_join(struct waiter *w)
{
    WAIT_FOR(atomic_load(&w->done));
    pthread_join(w->thread, NULL);
    return w->err;
}

/* Whether a message becomes ready, however long that takes. */
static void expect_ready(tws_conn *c)
{
    tws_wait_item item = {.conn = c};
    size_t ready = 0;

    assert_ok(tws_wait_any(&item, 1, SUPPORT_HANG_MS, &ready));
    assert_int_equal(ready, 1);
    assert_true(item.ready);
    assert_int_equal(item.revents, POLLIN);
}

static void expect_none(tws_conn *c, tws_ms ms)
{
    tws_wait_item item = {.conn = c};
    size_t ready = 1;

    assert_err(tws_wait_any(&item, 1, ms, &ready), TWS_ERR_TIMEOUT);
    assert_int_equal(ready, 0);
    assert_false(item.ready);
}

/* ---- Messages ---- */

static void test_messages(void **state)
{
    tws_message m;
    tws_stats st;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    expect_none(r.conn, TWS_NOWAIT);
    expect_none(r.conn, 20);
    client_send_text(&r.client, "one");
    expect_ready(r.conn);
    expect_ready(r.conn); /* it is still there */
    assert_ok(tws_read_message_within(r.conn, &m, TWS_NOWAIT));
    assert_string_equal(m.data, "one");
    expect_none(r.conn, TWS_NOWAIT);
    tws_conn_stats(r.conn, &st);
    assert_int_equal(st.timeouts, 0); /* looking is no read that timed out */
    client_send(&r.client, CLIENT_FIN | CLIENT_TEXT, NULL, 0);
    expect_ready(r.conn);
    assert_ok(tws_read_message_within(r.conn, &m, TWS_NOWAIT));
    assert_int_equal(m.len, 0);
    rig_close(&r);
}

/* What the library has received with the message before does not show at the socket. */
static void test_buffered(void **state)
{
    uint8_t frames[64];
    tws_message m;
    size_t len = 0;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    for (int i = 0; i < 3; i++)
        len += client_frame(frames + len, CLIENT_FIN | CLIENT_TEXT, "abc", 3);
    assert_true(client_send_bytes(r.client.fd, frames, len));
    for (int i = 0; i < 3; i++) {
        expect_ready(r.conn);
        assert_ok(tws_read_message(r.conn, &m));
        assert_string_equal(m.data, "abc");
    }
    expect_none(r.conn, TWS_NOWAIT);
    rig_close(&r);
}

/* Ready with each new piece, and not again before the next. */
static void drip(const char *text, size_t pieces)
{
    uint8_t frame[512];
    size_t len = client_frame(frame, CLIENT_FIN | CLIENT_TEXT, text, strlen(text));
    size_t at = 0;
    tws_message m;
    tws_err err = TWS_ERR_TIMEOUT;
    struct rig r;

    rig_open(&r, NULL);
    assert_true(client_send_bytes(r.client.fd, frame, 6 + 1)); /* header, key, a byte */
    for (at = 7; err == TWS_ERR_TIMEOUT;) {
        size_t n = (len - at) < pieces ? len - at : pieces;

        expect_ready(r.conn);
        err = tws_read_message_within(r.conn, &m, TWS_NOWAIT);
        if (!err)
            break;
        assert_int_equal(err, TWS_ERR_TIMEOUT);
        expect_none(r.conn, TWS_NOWAIT);
        assert_true(n > 0);
        assert_true(client_send_bytes(r.client.fd, frame + at, n));
        at += n;
    }
    assert_ok(err);
    assert_string_equal(m.data, text);
    rig_close(&r);
}

static void test_half_read(void **state)
{
    (void)state;
    drip("a message that comes in pieces", 11);
    drip("and another one", 1);
}

/* Part of a header is no beginning of a message. */
static void test_part_of_header(void **state)
{
    uint8_t frame[64];
    size_t len = client_frame(frame, CLIENT_FIN | CLIENT_TEXT, "x", 1);
    tws_message m;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    for (size_t i = 0; i < len - 2; i++) {
        assert_true(client_send_bytes(r.client.fd, frame + i, 1));
        expect_none(r.conn, TWS_NOWAIT);
    }
    assert_true(client_send_bytes(r.client.fd, frame + len - 2, 2));
    expect_ready(r.conn);
    assert_ok(tws_read_message(r.conn, &m));
    assert_string_equal(m.data, "x");
    rig_close(&r);
}

static void test_fragments_and_streams(void **state)
{
    tws_opcode op;
    char buf[16];
    size_t n;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    client_send(&r.client, CLIENT_TEXT, "abc", 3);
    expect_ready(r.conn);
    assert_ok(tws_next_reader(r.conn, &op));
    expect_ready(r.conn);
    assert_ok(tws_reader_read(r.conn, buf, sizeof buf, &n));
    assert_int_equal(n, 3);
    /* Whether the first frame's end has been taken or not: nothing more to read. */
    tws_set_timeout(r.conn, TWS_TIMEOUT_READ, TWS_NOWAIT);
    assert_err(tws_reader_read(r.conn, buf, sizeof buf, &n), TWS_ERR_TIMEOUT);
    expect_none(r.conn, TWS_NOWAIT);
    client_send(&r.client, CLIENT_FIN | CLIENT_PING, "p", 1);
    client_send(&r.client, CLIENT_FIN | CLIENT_CONT, "d", 1);
    expect_ready(r.conn);
    client_expect(&r.client, CLIENT_FIN | CLIENT_PONG, "p", 1);
    assert_ok(tws_reader_read(r.conn, buf, sizeof buf, &n));
    assert_int_equal(n, 1);
    expect_ready(r.conn); /* its end */
    assert_ok(tws_reader_read(r.conn, buf, sizeof buf, &n));
    assert_int_equal(n, 0);
    expect_none(r.conn, TWS_NOWAIT);
    rig_close(&r);
}

/* ---- Control frames are handled, and are no message ---- */

static void test_control_frames(void **state)
{
    tws_wait_item item = {0};
    struct waiter w;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    item.conn = r.conn;
    waiter_start(&w, &item, 1);
    WAIT_FOR(support_watched(r.conn));
    for (int i = 0; i < 10; i++) {
        client_send(&r.client, CLIENT_FIN | CLIENT_PING, "p", 1);
        client_expect(&r.client, CLIENT_FIN | CLIENT_PONG, "p", 1);
        client_send(&r.client, CLIENT_FIN | CLIENT_PONG, "q", 1);
    }
    assert_false(atomic_load(&w.done));
    client_send_text(&r.client, "m");
    assert_ok(waiter_join(&w));
    assert_int_equal(w.ready, 1);
    rig_close(&r);
}

/* A peer that is silent is pinged from within the wait, and given up. */
static void test_keepalive(void **state)
{
    tws_server_options opt;
    tws_error e;
    struct rig r;

    (void)state;
    rig_options(&opt);
    opt.upgrade.conn.ping_interval = 30;
    opt.upgrade.conn.ping_timeout = 60;
    rig_open(&r, &opt);
    expect_ready(r.conn);
    tws_conn_error(r.conn, &e);
    assert_int_equal(e.code, TWS_ERR_PEER_SILENT);
    rig_close(&r);
}

static void test_idle(void **state)
{
    tws_server_options opt;
    tws_error e;
    struct rig r;

    (void)state;
    rig_options(&opt);
    opt.upgrade.conn.idle_timeout = 40;
    rig_open(&r, &opt);
    expect_ready(r.conn);
    tws_conn_error(r.conn, &e);
    assert_int_equal(e.code, TWS_ERR_IDLE);
    client_expect_close(&r.client, 1001, NULL);
    rig_close(&r);
}

/* What was held back to be joined leaves before the wait. */
static void test_held_replies(void **state)
{
    uint8_t frames[64];
    tws_message m;
    size_t len;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    len = client_frame(frames, CLIENT_FIN | CLIENT_TEXT, "a", 1);
    len += client_frame(frames + len, CLIENT_FIN | CLIENT_TEXT, "b", 1);
    assert_true(client_send_bytes(r.client.fd, frames, len));
    assert_ok(tws_read_message(r.conn, &m));
    assert_ok(tws_write_text(r.conn, "reply"));
    expect_ready(r.conn);
    client_expect_text(&r.client, "reply");
    rig_close(&r);
}

/* Control frames without end: neither time nor others are forgotten over them. */
static void test_flood(void **state)
{
    struct flood f;
    struct waiter w;
    int fds[2];

    (void)state;
    assert_int_equal(pipe(fds), 0);
    flood_open(&f);
    tws_wait_item items[] = {{.conn = f.rig.conn}, {.fd = fds[0], .events = POLLIN}};
    assert_err(tws_wait_any(items, 2, 100, NULL), TWS_ERR_TIMEOUT);
    waiter_start(&w, items, 2);
    WAIT_FOR(support_watched(f.rig.conn));
    assert_int_equal(write(fds[1], "x", 1), 1);
    assert_ok(waiter_join(&w));
    assert_true(items[1].ready);
    assert_false(items[0].ready);
    flood_close(&f);
    close(fds[0]);
    close(fds[1]);
}

/* ---- Endings ---- */

static void test_peer_ends(void **state)
{
    tws_message m;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    client_send_close(&r.client, 4001, "x");
    expect_ready(r.conn);
    assert_err(tws_read_message(r.conn, &m), TWS_ERR_PEER_CLOSED);
    expect_ready(r.conn); /* and stays so */
    rig_close(&r);

    rig_open(&r, NULL);
    client_send(&r.client, 0x70 | CLIENT_TEXT, "x", 1); /* not allowed */
    expect_ready(r.conn);
    assert_err(tws_read_message(r.conn, &m), TWS_ERR_PROTOCOL);
    rig_close(&r);

    rig_open(&r, NULL);
    client_reset(&r.client);
    expect_ready(r.conn);
    assert_true(tws_err_is_final(tws_read_message(r.conn, &m)));
    rig_close(&r);
}

static void ended_meanwhile(void (*end)(tws_conn *c))
{
    int fds[2];
    tws_message m;
    struct waiter w;
    struct rig r;

    assert_int_equal(pipe(fds), 0);
    rig_open(&r, NULL);
    tws_wait_item items[] = {{.fd = fds[0], .events = POLLIN}, {.conn = r.conn}};
    waiter_start(&w, items, 2);
    WAIT_FOR(support_watched(r.conn));
    end(r.conn);
    assert_ok(waiter_join(&w));
    assert_true(items[1].ready);
    assert_false(items[0].ready);
    assert_err(tws_read_message(r.conn, &m), TWS_ERR_CLOSED);
    rig_close(&r);
    close(fds[0]);
    close(fds[1]);
}

static void close_start(tws_conn *c)
{
    assert_ok(tws_close_start(c, 1000, NULL));
}

static void test_closed_by_other_thread(void **state)
{
    (void)state;
    ended_meanwhile(close_start);
    ended_meanwhile(tws_abort);
}

/* ---- Who reads ---- */

static void test_busy(void **state)
{
    struct reader rd;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    reader_start(&rd, r.conn);
    reader_await(&rd);
    tws_wait_item items[] = {{.fd = -1}, {.conn = r.conn}};
    assert_err(tws_wait_any(items, 2, TWS_NO_LIMIT, NULL), TWS_ERR_BUSY);
    assert_false(items[0].ready);
    assert_true(items[1].ready);
    tws_abort(r.conn);
    reader_join(&rd);
    rig_close(&r);
}

static void *ping_main(void *arg)
{
    tws_ping_wait(arg, "x", 1, 0, NULL);
    return NULL;
}

/* A thread that waits for its pong has the reader's role: the wait takes over from it. */
static void test_behind_a_ping(void **state)
{
    tws_message m;
    struct waiter w;
    pthread_t t;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    support_thread(&t, ping_main, r.conn);
    WAIT_FOR(support_pumping(r.conn));
    expect_none(r.conn, TWS_NOWAIT);
    expect_none(r.conn, 20);
    tws_wait_item item = {.conn = r.conn};
    waiter_start(&w, &item, 1);
    WAIT_FOR(support_watched(r.conn));
    client_send_text(&r.client, "m");
    assert_ok(waiter_join(&w));
    assert_true(item.ready);
    assert_ok(tws_read_message_within(r.conn, &m, SUPPORT_HANG_MS));
    assert_string_equal(m.data, "m");
    tws_abort(r.conn);
    pthread_join(t, NULL);
    rig_close(&r);
}

struct pump {
    struct client *client;
    bool more; /* a message comes with the pong */
    pthread_t thread;
};

/* Ends the other connection's pump, in the middle of somebody's call. */
static bool end_pump(tws_conn *c, const void *data, size_t len, void *arg)
{
    struct pump *p = arg;
    uint8_t frames[64];
    size_t n = client_frame(frames, CLIENT_FIN | CLIENT_PONG, "x", 1);

    (void)c;
    (void)data;
    (void)len;
    if (p->more)
        n += client_frame(frames + n, CLIENT_FIN | CLIENT_TEXT, "m", 1);
    assert_true(client_send_bytes(p->client->fd, frames, n));
    pthread_join(p->thread, NULL);
    return true;
}

/* The same connection twice, and between the two its pump ends: the first is no less the second's twin. */
static void twice_behind_a_ping(bool more)
{
    struct rig r, other;
    uint8_t frames[64];
    size_t len, ready = 0;
    tws_message m;
    struct pump p = {.client = &r.client, .more = more};

    rig_open(&r, NULL);
    rig_open(&other, NULL);
    len = client_frame(frames, CLIENT_FIN | CLIENT_TEXT, "abc", 3);
    len += client_frame(frames + len, CLIENT_FIN | CLIENT_PING, "now", 3);
    assert_true(client_send_bytes(other.client.fd, frames, len));
    assert_ok(tws_read_message(other.conn, &m)); /* the ping has come with it */
    tws_set_ping_handler(other.conn, end_pump, &p);
    support_thread(&p.thread, ping_main, r.conn);
    WAIT_FOR(support_pumping(r.conn));
    tws_wait_item items[] = {{.conn = r.conn}, {.conn = other.conn}, {.conn = r.conn}};
    if (!more) {
        assert_err(tws_wait_any(items, 3, 20, &ready), TWS_ERR_TIMEOUT);
        client_send_text(&r.client, "m");
    }
    assert_ok(tws_wait_any(items, 3, SUPPORT_HANG_MS, &ready));
    assert_int_equal(ready, 2);
    assert_true(items[0].ready);
    assert_false(items[1].ready);
    assert_true(items[2].ready);
    rig_close(&other);
    rig_close(&r);
}

static void test_twice_behind_a_ping(void **state)
{
    (void)state;
    twice_behind_a_ping(false);
    twice_behind_a_ping(true);
}

/* So does a thread that reads; then the wait is refused, and nobody is thought to wait any more. */
static void test_behind_a_reader(void **state)
{
    struct waiter w;
    struct reader rd;
    pthread_t t;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    support_thread(&t, ping_main, r.conn);
    WAIT_FOR(support_pumping(r.conn));
    reader_start(&rd, r.conn);
    WAIT_FOR(support_behind(r.conn) == 1);
    tws_wait_item item = {.conn = r.conn};
    waiter_start(&w, &item, 1);
    WAIT_FOR(support_behind(r.conn) == 2);
    client_send(&r.client, CLIENT_FIN | CLIENT_PONG, "x", 1);
    pthread_join(t, NULL);
    client_send_text(&r.client, "m");
    waiter_join(&w); /* BUSY, or the reader was later and got that */
    tws_abort(r.conn);
    reader_join(&rd);
    assert_int_equal(support_behind(r.conn), 0);
    rig_close(&r);
}

/* ---- Descriptors and arguments ---- */

static void test_descriptors(void **state)
{
    int fds[2], file = open("/dev/zero", O_RDONLY | O_CLOEXEC),
                gone = 1 << 20; /* nobody has so many */
    size_t ready;
    struct rig r;

    (void)state;
    assert_int_equal(pipe(fds), 0);
    rig_open(&r, NULL);
    tws_wait_item items[] = {{.fd = fds[0], .events = POLLIN},
                             {.fd = fds[1], .events = POLLOUT},
                             {.fd = gone, .events = POLLIN},
                             {.fd = file, .events = POLLIN},
                             {.fd = -1},
                             {.conn = r.conn},
                             {.conn = r.conn}};
    size_t count = sizeof items / sizeof *items;

    assert_ok(tws_wait_any(items, count, TWS_NO_LIMIT, &ready));
    assert_int_equal(ready, 3);
    assert_false(items[0].ready || items[4].ready || items[5].ready || items[6].ready);
    assert_int_equal(items[1].revents, POLLOUT);
    assert_int_equal(items[2].revents, POLLNVAL);
    assert_int_equal(items[3].revents, POLLIN);

    items[1].fd = items[2].fd = items[3].fd = -1;
    assert_err(tws_wait_any(items, count, 10, &ready), TWS_ERR_TIMEOUT);
    assert_int_equal(write(fds[1], "x", 1), 1);
    assert_ok(tws_wait_any(items, count, TWS_NO_LIMIT, &ready));
    assert_int_equal(ready, 1);
    assert_true(items[0].ready);
    client_send_text(&r.client, "m");
    WAIT_FOR(tws_wait_any(items, count, TWS_NO_LIMIT, &ready) == TWS_OK && ready == 3);
    assert_true(items[5].ready && items[6].ready); /* one connection, twice */
    close(fds[1]);
    close(fds[0]);
    close(file);
    rig_close(&r);
}

static void test_arguments(void **state)
{
    tws_wait_item item = {.fd = -1};

    (void)state;
    assert_err(tws_wait_any(NULL, 0, TWS_NO_LIMIT, NULL), TWS_ERR_ARGUMENT);
    assert_err(tws_wait_any(&item, 1, TWS_NO_LIMIT, NULL), TWS_ERR_ARGUMENT);
    assert_err(tws_wait_any(&item, 1, -2, NULL), TWS_ERR_ARGUMENT);
    assert_err(tws_wait_any(&item, 1, 10, NULL), TWS_ERR_TIMEOUT);
    assert_err(tws_wait_any(NULL, 0, TWS_NOWAIT, NULL), TWS_ERR_TIMEOUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_buffered),
        cmocka_unit_test(test_half_read),
        cmocka_unit_test(test_part_of_header),
        cmocka_unit_test(test_fragments_and_streams),
        cmocka_unit_test(test_control_frames),
        cmocka_unit_test(test_keepalive),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_held_replies),
        cmocka_unit_test(test_flood),
        cmocka_unit_test(test_peer_ends),
        cmocka_unit_test(test_closed_by_other_thread),
        cmocka_unit_test(test_busy),
        cmocka_unit_test(test_behind_a_ping),
        cmocka_unit_test(test_twice_behind_a_ping),
        cmocka_unit_test(test_behind_a_reader),
        cmocka_unit_test(test_descriptors),
        cmocka_unit_test(test_arguments),
    };

    return cmocka_run_group_tests_name("wait", tests, NULL, NULL);
}
