/*
 * Connections that go from one server to another over a Unix socket. Both are in this process here;
 * examples_restart.py has two.
 */
#include "support.h"

#include "support_deflate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- The other process ---- */

/* Serves all that comes over h. */
struct taker {
    tws_handoff *h, *other; /* other: the sender's end */
    tws_server *server;
    pthread_t thread;
    _Atomic unsigned taken, refused;
    tws_err last;
};

static void *taker_main(void *arg)
{
    struct taker *t = arg;
    tws_err err;

    for (;;) {
        err = tws_handoff_serve(t->h, t->server, 0, NULL);
        if (err == TWS_OK)
            t->taken++;
        else if (err == TWS_ERR_REFUSED)
            t->refused++;
        else
            break;
    }
    t->last = err;
    return NULL;
}

static void way(tws_handoff **a, tws_handoff **b)
{
    int fd[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
    assert_ok(tws_handoff_new(a, fd[0]));
    assert_ok(tws_handoff_new(b, fd[1]));
}

static void taker_start(struct taker *t, tws_server *server)
{
    memset(t, 0, sizeof *t);
    t->server = server;
    way(&t->h, &t->other);
    support_thread(&t->thread, taker_main, t);
}

/* The sender's end is closed, and the thread ends by that. */
static void taker_stop(struct taker *t)
{
    tws_handoff_free(t->other);
    pthread_join(t->thread, NULL);
    tws_handoff_free(t->h);
    assert_int_equal(t->last, TWS_ERR_EOF);
}

/* Echoes, and says first what it is that came. */
static void introduce(tws_conn *c, void *arg)
{
    char text[256];
    size_t len = 0;
    const char *data = tws_handoff_data(c, &len);

    (void)arg;
    snprintf(text, sizeof text, "%s %s %s %.*s", tws_request_path(tws_conn_request(c)),
             tws_request_header(tws_conn_request(c), "Host"),
             tws_conn_subprotocol(c) ? tws_conn_subprotocol(c) : "none", (int)len,
             data ? data : "nothing");
    tws_write_text(c, text);
    support_echo(c, NULL);
}

/* ---- One connection ---- */

static void test_goes_on(void **state)
{
    static const char *const protocols[] = {"chat"};
    struct support_census before = support_census();
    tws_server_options opt;
    tws_server_stats st;
    struct support_server b;
    struct taker t;
    struct rig r;
    uint8_t frames[256];
    size_t len = 0;
    tws_message m;
    tws_error e;

    (void)state;
    support_handoff_server(&b, introduce, true);
    taker_start(&t, b.server);
    rig_options(&opt);
    opt.upgrade.subprotocols = protocols, opt.upgrade.subprotocol_count = 1;
    rig_open_asking(&r, &opt, "Sec-WebSocket-Protocol: chat\r\n");
    /* Two messages and a half in one piece, of which one is read. */
    len += client_frame(frames, CLIENT_FIN | CLIENT_TEXT, "one", 3);
    len += client_frame(frames + len, CLIENT_FIN | CLIENT_TEXT, "two", 3);
    len += client_frame(frames + len, CLIENT_FIN | CLIENT_TEXT, "three", 5);
    assert_true(client_send_bytes(r.client.fd, frames, len - 4));
    assert_ok(tws_read_message(r.conn, &m));
    assert_string_equal(m.data, "one");
    assert_ok(tws_write_text(r.conn, "first"));
    assert_ok(tws_handoff_send(t.other, r.conn, "a\0b", 3, 5000, &e));
    assert_int_equal(e.code, TWS_OK);

    assert_err(support_ending(r.conn), TWS_ERR_HANDED_OVER);
    tws_conn_error(r.conn, &e);
    assert_int_equal(e.cause, TWS_CAUSE_LOCAL);
    assert_int_equal(e.close_code, 0);
    assert_err(tws_read_message(r.conn, &m), TWS_ERR_HANDED_OVER);
    assert_err(tws_write_text(r.conn, "x"), TWS_ERR_HANDED_OVER);
    assert_err(tws_close(r.conn, 1000, NULL), TWS_ERR_HANDED_OVER);
    tws_abort(r.conn); /* reaches nobody */
    rig_release(&r);
    client_expect_text(&r.client, "first");
    client_expect_text(&r.client, "/test test.example:8080 chat a");
    client_expect_text(&r.client, "two");
    assert_true(client_send_bytes(r.client.fd, frames + len - 4, 4));
    client_expect_text(&r.client, "three");
    WAIT_FOR((tws_server_get_stats(b.server, &st), st.open == 1));
    client_send_close(&r.client, 1000, NULL);
    client_expect_close(&r.client, 1000, NULL);
    client_expect_eof(&r.client);
    taker_stop(&t);
    rig_end(&r);
    tws_server_free(b.server);
    support_assert_census(before);
}

static void test_not_now(void **state)
{
    uint8_t frame[64];
    size_t len = client_frame(frame, CLIENT_FIN | CLIENT_TEXT, "hello", 5);
    struct support_server b;
    struct taker t;
    struct rig r;
    tws_message m;
    tws_writer *w;
    tws_error e;

    (void)state;
    support_handoff_server(&b, support_echo, true);
    taker_start(&t, b.server);
    rig_open(&r, NULL);
    assert_ok(tws_set_timeout(r.conn, TWS_TIMEOUT_READ, 20));
    /* In the middle of a message that is being received. */
    assert_true(client_send_bytes(r.client.fd, frame, len - 2));
    assert_err(tws_read_message(r.conn, &m), TWS_ERR_TIMEOUT);
    assert_err(tws_handoff_send(t.other, r.conn, NULL, 0, 5000, &e), TWS_ERR_STATE);
    assert_non_null(strstr(e.text, "middle of a message"));
    assert_true(client_send_bytes(r.client.fd, frame + len - 2, 2));
    assert_ok(tws_set_timeout(r.conn, TWS_TIMEOUT_READ, 0));
    assert_ok(tws_read_message(r.conn, &m));
    assert_string_equal(m.data, "hello");
    /* Or sent. */
    assert_ok(tws_next_writer(r.conn, TWS_TEXT, &w));
    assert_ok(tws_writer_write(w, "ab", 2));
    assert_err(tws_handoff_send(t.other, r.conn, NULL, 0, 5000, &e), TWS_ERR_STATE);
    assert_ok(tws_writer_close(w));
    client_expect_text(&r.client, "ab");
    assert_err(tws_handoff_send(t.other, r.conn, NULL, 1, 5000, &e), TWS_ERR_ARGUMENT);
    assert_err(tws_handoff_send(t.other, r.conn, frame, TWS_HANDOFF_DATA_MAX + 1, 0, &e),
               TWS_ERR_ARGUMENT);
    assert_err(tws_handoff_send(t.other, r.conn, NULL, 0, TWS_NOWAIT, &e), TWS_ERR_ARGUMENT);
    assert_ok(tws_handoff_send(t.other, r.conn, NULL, 0, 5000, &e));
    client_send_text(&r.client, "there");
    client_expect_text(&r.client, "there");
    client_close(&r.client);
    taker_stop(&t);
    rig_close(&r);
    tws_server_free(b.server);
}

/* What is queued leaves first; what does not leave keeps the connection here. */
static void test_queue(void **state)
{
    enum { LEN = 1 << 20, SMALL = 4096 };
    char *data = support_alloc(LEN);
    struct support_server b;
    tws_server_options opt;
    struct client_frame f;
    struct taker t;
    struct rig r;
    tws_error e;
    size_t got = 0;

    (void)state;
    support_fill(data, LEN, 1);
    support_handoff_server(&b, support_echo, true);
    taker_start(&t, b.server);
    rig_options(&opt);
    opt.upgrade.conn.queue.max_bytes = 64 << 20;
    rig_open(&r, &opt);
    for (int i = 0; i < 16; i++)
        assert_ok(tws_write_async(r.conn, TWS_TEXT, data, LEN, NULL, NULL));
    assert_err(tws_handoff_send(t.other, r.conn, NULL, 0, 50, &e), TWS_ERR_TIMEOUT);
    assert_err(support_ending(r.conn), TWS_OK);
    for (int i = 0; i < 16; i++) {
        assert_true(client_next(&r.client, &f));
        assert_int_equal(f.len, LEN);
        got += f.len;
    }
    assert_ok(tws_write_async(r.conn, TWS_TEXT, data, SMALL, NULL, NULL));
    assert_ok(tws_handoff_send(t.other, r.conn, NULL, 0, 5000, &e));
    assert_true(client_next(&r.client, &f));
    assert_int_equal(f.len, SMALL);
    client_send_text(&r.client, "there");
    client_expect_text(&r.client, "there");
    assert_int_equal(got, 16u * LEN);
    client_close(&r.client);
    taker_stop(&t);
    rig_close(&r);
    tws_server_free(b.server);
    free(data);
}

/* ---- Compression and roles ---- */

static void check_deflate(bool takeover, tws_err wanted)
{
    tws_deflate_options deflate;
    tws_server_options opt;
    struct support_server b;
    struct peer_deflate p;
    uint8_t out[4096];
    char data[3000];
    struct taker t;
    bool compressed;
    unsigned fragments;
    struct rig r;
    tws_error e;

    support_fill(data, sizeof data, 1);
    tws_deflate_options_init(&deflate);
    support_server_options(&opt, support_echo, NULL);
    opt.upgrade.deflate = &deflate;
    support_server_start(&b, &opt);
    taker_start(&t, b.server);
    deflate.server_no_context_takeover = !takeover;
    deflate.client_no_context_takeover = !takeover;
    rig_open_deflate(&r, &deflate);
    peer_deflate_init(&p, 6, 12, takeover);
    assert_err(tws_handoff_send(t.other, r.conn, NULL, 0, 5000, &e), wanted);
    if (wanted == TWS_OK) {
        for (int i = 0; i < 3; i++) {
            client_send_deflated(&r.client, &p, CLIENT_TEXT, data, sizeof data, 2);
            assert_int_equal(
                client_next_inflated(&r.client, &p, out, sizeof out, &compressed, &fragments),
                sizeof data);
            assert_true(compressed);
            assert_memory_equal(out, data, sizeof data);
        }
    }
    peer_deflate_end(&p);
    client_close(&r.client);
    taker_stop(&t);
    rig_end(&r);
    tws_server_free(b.server);
}

static void test_deflate(void **state)
{
    (void)state;
    check_deflate(false, TWS_OK);
    check_deflate(true, TWS_ERR_UNSUPPORTED);
}

/* One that compresses does not go where nobody does, and stays. */
static void test_refused(void **state)
{
    struct support_server b;
    tws_server_options opt;
    struct client other;
    struct taker t;
    struct rig r;
    tws_error e;

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    opt.max_connections = 1;
    support_server_start(&b, &opt);
    taker_start(&t, b.server);
    rig_open_deflate(&r, NULL);
    assert_err(tws_handoff_send(t.other, r.conn, NULL, 0, 5000, &e), TWS_ERR_SYSTEM);
    assert_non_null(strstr(e.text, "refused"));
    WAIT_FOR(t.refused == 1);
    client_send_text(&r.client, "still here");
    tws_message m;
    assert_ok(tws_read_message(r.conn, &m));
    assert_string_equal(m.data, "still here");
    assert_ok(tws_write_text(r.conn, "yes"));
    client_expect_text(&r.client, "yes");
    client_close(&r.client);
    rig_end(&r);

    client_open(&other, b.address);
    client_send_text(&other, "x");
    client_expect_text(&other, "x");
    rig_open(&r, NULL); /* and none goes where it is full */
    assert_err(tws_handoff_send(t.other, r.conn, NULL, 0, 5000, &e), TWS_ERR_SYSTEM);
    WAIT_FOR(t.refused == 2);
    client_close(&other);
    tws_server_stats st;
    WAIT_FOR((tws_server_get_stats(b.server, &st), st.open == 0));
    while (tws_handoff_send(t.other, r.conn, NULL, 0, 5000, &e) == TWS_ERR_SYSTEM)
        support_pause_ms(1); /* its thread is about to end */
    client_send_text(&r.client, "there");
    client_expect_text(&r.client, "there");
    client_close(&r.client);
    taker_stop(&t);
    rig_close(&r);
    tws_server_free(b.server);
}

/* Receives one connection for this thread. */
struct receiver {
    tws_handoff *h;
    pthread_t thread;
    tws_conn *conn;
    tws_err err;
};

static void *receiver_main(void *arg)
{
    struct receiver *r = arg;

    r->err = tws_handoff_receive(&r->conn, r->h, NULL, SUPPORT_HANG_MS, NULL);
    return NULL;
}

/* A client's connection is handed over three times, and serves no server. */
static void test_client_role(void **state)
{
    struct support_census before = support_census();
    struct support_server s;
    struct receiver r;
    tws_handoff *a;
    tws_conn *c;
    char url[200];
    tws_message m;
    struct taker t;
    tws_error e;

    (void)state;
    support_handoff_server(&s, support_echo, true);
    snprintf(url, sizeof url, "ws://%s/", s.address);
    assert_ok(tws_dial(&c, url, NULL, NULL, &e));
    way(&a, &r.h);
    for (int i = 0; i < 3; i++) {
        support_thread(&r.thread, receiver_main, &r);
        assert_ok(tws_handoff_send(a, c, "xyz", (size_t)i, 5000, &e));
        pthread_join(r.thread, NULL);
        assert_ok(r.err);
        tws_conn_unref(c);
        c = r.conn;
        assert_ok(tws_write_text(c, "hello"));
        assert_ok(tws_read_message(c, &m));
        assert_string_equal(m.data, "hello");
    }
    taker_start(&t, s.server);
    assert_err(tws_handoff_send(t.other, c, NULL, 0, 5000, &e), TWS_ERR_SYSTEM);
    WAIT_FOR(t.refused == 1);
    assert_ok(tws_write_text(c, "still"));
    assert_ok(tws_read_message(c, &m));
    assert_string_equal(m.data, "still");
    taker_stop(&t);
    assert_err(tws_handoff_receive(&r.conn, r.h, NULL, TWS_NOWAIT, NULL), TWS_ERR_TIMEOUT);
    tws_handoff_free(a);
    assert_err(tws_handoff_receive(&r.conn, r.h, NULL, 0, NULL), TWS_ERR_EOF);
    tws_handoff_free(r.h);
    assert_ok(tws_close(c, 1000, NULL));
    tws_conn_unref(c);
    tws_server_free(s.server);
    support_assert_census(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goes_on), cmocka_unit_test(test_not_now),
        cmocka_unit_test(test_queue),   cmocka_unit_test(test_deflate),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_client_role),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
