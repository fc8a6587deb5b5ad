/*
 * How connections end: closed by either side, from any thread, cut, and what is said about it
 * afterwards.
 */
#include "support.h"

#include "conn/conn.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

/* ---- From handlers ---- */

/* From a close handler one can still write, and begin to close with a code of one's own. */
static void close_differently(tws_conn *c, uint16_t code, const char *reason, void *arg)
{
    tws_err *err = arg;

    (void)code;
    (void)reason;
    err[0] = tws_write_text(c, "last words");
    err[1] = tws_close(c, 4001, "ours");
}

static void test_close_in_close_handler(void **state)
{
    tws_err err[2] = {TWS_ERR_STATE, TWS_ERR_STATE};
    tws_message m;
    tws_error e;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    tws_set_close_handler(r.conn, close_differently, err);
    client_send_close(&r.client, 1000, "theirs");
    assert_err(tws_read_message(r.conn, &m), TWS_ERR_CLOSED);
    assert_int_equal(err[0], TWS_OK);
    assert_int_equal(err[1], TWS_OK);
    client_expect_text(&r.client, "last words");
    client_expect_close(&r.client, 4001, "ours");
    tws_conn_error(r.conn, &e);
    assert_int_equal(e.close_code, 4001);
    assert_true(e.clean);
    rig_close(&r);
}

static bool close_in_ping(tws_conn *c, const void *data, size_t len, void *arg)
{
    (void)data;
    (void)len;
    *(tws_err *)arg = tws_close(c, 1001, "in a ping");
    return true;
}

/* From a ping handler tws_close() only begins. */
static void test_close_in_ping_handler(void **state)
{
    tws_err err = TWS_ERR_STATE;
    tws_message m;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    tws_set_ping_handler(r.conn, close_in_ping, &err);
    client_send(&r.client, CLIENT_FIN | CLIENT_PING, "x", 1);
    assert_err(tws_read_message(r.conn, &m), TWS_ERR_CLOSED);
    assert_int_equal(err, TWS_OK);
    client_expect_close(&r.client, 1001, "in a ping");
    client_send_close(&r.client, 1001, NULL);
    rig_release(&r);
    client_expect_eof(&r.client);
    client_close(&r.client);
    assert_ok(tws_close(r.conn, 1000, NULL));
    rig_close(&r);
}

/* ---- By us ---- */

/* A thread that plays the peer of a close: waits for the frame and answers as told. */
struct answerer {
    struct client *client;
    pthread_t thread;
    bool answer; /* with a close frame; else never */
    int after_ms;
    bool data_first;
    bool stay;     /* keeps its side open until the server has closed */
    unsigned code; /* seen */
    char reason[TWS_REASON_MAX + 1];
    bool eof; /* seen */
};

static bool answer_once(struct answerer *a, const struct client_frame *f)
{
    uint8_t wire[600 + CLIENT_HEAD_MAX], zeros[600] = {0};

    if (f->opcode != CLIENT_CLOSE)
        return true;
    a->code = f->len >= 2 ? (unsigned)(f->data[0] << 8 | f->data[1]) : 0;
    if (f->len > 2)
        memcpy(a->reason, f->data + 2, f->len - 2);
    if (a->after_ms)
        support_pause_ms(a->after_ms);
    for (int i = 0; a->data_first && i < 50; i++)
        if (!client_send_bytes(a->client->fd, wire,
                               client_frame(wire, CLIENT_FIN | CLIENT_BINARY, zeros, 600)))
            return false;
    if (!a->answer)
        return true;
    return client_send_bytes(a->client->fd, wire,
                             client_frame(wire, CLIENT_FIN | CLIENT_CLOSE, f->data, f->len));
}

static void *answerer_main(void *arg)
{
    struct answerer *a = arg;
    struct client_frame f;
    int n;

    while ((n = client_try_next(a->client, &f)) == 1 && answer_once(a, &f)) {
    }
    a->eof = n == 0;
    if (!a->stay)
        shutdown(a->client->fd, SHUT_WR);
    return NULL;
}

static void answerer_start(struct answerer *a, struct rig *r)
{
    a->client = &r->client;
    support_thread(&a->thread, answerer_main, a);
}

static void check_record(tws_conn *c, tws_err code, unsigned close_code, const char *reason,
                         bool clean)
{
    tws_error e;

    tws_conn_error(c, &e);
    assert_int_equal(e.code, code);
    assert_int_equal(e.phase, TWS_PHASE_CLOSE);
    assert_int_equal(e.cause, code == TWS_ERR_CLOSE_TIMEOUT ? TWS_CAUSE_TIMEOUT : TWS_CAUSE_LOCAL);
    assert_int_equal(e.close_code, close_code);
    assert_string_equal(e.reason, reason);
    assert_int_equal(e.clean, clean);
    assert_int_equal(e.sys_errno, 0);
    assert_int_equal(e.http_status, 0);
    assert_non_null(strstr(e.text, tws_err_text(code)));
}

static void test_close(void **state)
{
    static const unsigned codes[] = {1000, 1001, 1011, 3000, 4999, 0, 1005};

    (void)state;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        unsigned wire = codes[i] == 1005 ? 0 : codes[i];
        const char *reason = wire && i % 2 ? "good bye" : "";
        struct answerer a = {.answer = true, .data_first = i % 3 == 1};
        struct rig r;

        rig_open(&r, NULL);
        answerer_start(&a, &r);
        assert_ok(tws_close(r.conn, (uint16_t)codes[i], reason));
        pthread_join(a.thread, NULL);
        assert_true(a.eof);
        assert_int_equal(a.code, wire);
        assert_string_equal(a.reason, reason);
        check_record(r.conn, TWS_ERR_CLOSED, wire ? wire : 1005, reason, true);
        assert_ok(tws_close(r.conn, 4000, "again")); /* the same, for ever */
        assert_ok(tws_close_start(r.conn, 4000, "again"));
        check_record(r.conn, TWS_ERR_CLOSED, wire ? wire : 1005, reason, true);
        assert_err(tws_write_text(r.conn, "x"), TWS_ERR_CLOSED);
        rig_close(&r);
    }
}

/* The longest reason there is. */
static void test_longest_reason(void **state)
{
    char reason[TWS_REASON_MAX + 1];
    struct answerer a = {.answer = true};
    struct rig r;

    (void)state;
    memset(reason, 'r', TWS_REASON_MAX);
    reason[TWS_REASON_MAX] = 0;
    rig_open(&r, NULL);
    answerer_start(&a, &r);
    assert_ok(tws_close(r.conn, 1000, reason));
    pthread_join(a.thread, NULL);
    assert_string_equal(a.reason, reason);
    check_record(r.conn, TWS_ERR_CLOSED, 1000, reason, true);
    rig_close(&r);
}

/* A peer that never answers, only sends data, or ends without a close frame. */
static void test_close_not_answered(void **state)
{
    tws_server_options opt;
    struct answerer silent = {.answer = false, .stay = true};
    struct answerer chatty = {.answer = false, .stay = true, .data_first = true};
    tws_error e;
    struct rig r;

    (void)state;
    rig_options(&opt);
    opt.upgrade.conn.close_timeout = 60;
    for (int i = 0; i < 2; i++) {
        struct answerer *a = i ? &chatty : &silent;

        rig_open(&r, &opt);
        answerer_start(a, &r);
        assert_err(tws_close(r.conn, 1000, "now"), TWS_ERR_CLOSE_TIMEOUT);
        check_record(r.conn, TWS_ERR_CLOSE_TIMEOUT, 1000, "now", false);
        assert_err(tws_close(r.conn, 1000, NULL), TWS_ERR_CLOSE_TIMEOUT);
        pthread_join(a->thread, NULL);
        assert_int_equal(a->code, 1000);
        rig_close(&r);
    }
    rig_open(&r, NULL);
    assert_ok(tws_close_start(r.conn, 1000, NULL));
    client_expect_close(&r.client, 1000, NULL);
    client_close(&r.client);
    assert_err(tws_close(r.conn, 1000, NULL), TWS_ERR_EOF);
    tws_conn_error(r.conn, &e);
    assert_int_equal(e.code, TWS_ERR_EOF);
    assert_false(e.clean);
    rig_close(&r);
}

/* A late answer is waited for, within the close timeout. */
static void test_close_answered_late(void **state)
{
    struct answerer a = {.answer = true, .after_ms = 200};
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    assert_ok(tws_set_timeout(r.conn, TWS_TIMEOUT_CLOSE, 60000)); /* however busy the machine is */
    answerer_start(&a, &r);
    assert_ok(tws_close(r.conn, 1000, NULL));
    pthread_join(a.thread, NULL);
    rig_close(&r);
}

/*
 * Our side ends when the peer has answered, not before: proxies in between take the end of one
 * direction for the end of both. Then the peer reads end of file, not a reset.
 */
static void test_half_close(void **state)
{
    struct pollfd ended = {.events = POLLRDHUP};
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    rig_release(&r); /* the handler returns: closed with 1000 */
    client_expect_close(&r.client, 1000, "");
    client_send_text(&r.client, "still to be said"); /* is read and dropped */
    ended.fd = r.client.fd;
    assert_int_equal(poll(&ended, 1, 100), 0);
    client_send_close(&r.client, 1000, NULL);
    client_expect_eof(&r.client);
    client_close(&r.client);
    assert_ok(tws_close(r.conn, 1000, NULL));
    check_record(r.conn, TWS_ERR_CLOSED, 1000, "", true);
    rig_close(&r);
}

/* Closing in the middle of a message that is being received: its rest is dropped, in step. */
static void test_close_inside_a_message(void **state)
{
    static const size_t lengths[] = {80, 20000};
    static uint8_t data[20000], wire[20000 + CLIENT_HEAD_MAX];

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        size_t len = client_frame(wire, CLIENT_FIN | CLIENT_BINARY, data, lengths[i]);
        struct reader rd;
        tws_stats st;
        struct rig r;

        rig_open(&r, NULL);
        reader_start(&rd, r.conn);
        assert_true(client_send_bytes(r.client.fd, wire, len / 2));
        WAIT_FOR((tws_conn_stats(r.conn, &st), st.wire_in == len / 2));
        assert_ok(tws_close_start(r.conn, 1000, NULL));
        assert_err(reader_join(&rd), TWS_ERR_CLOSED);
        rig_release(&r);
        assert_true(client_send_bytes(r.client.fd, wire + len / 2, len - len / 2));
        client_send_close(&r.client, 1000, NULL);
        client_expect_close(&r.client, 1000, NULL);
        client_expect_eof(&r.client);
        client_close(&r.client);
        assert_ok(tws_close(r.conn, 1000, NULL));
        rig_close(&r);
    }
}

/* ---- From other threads ---- */

/* Wakes a reader at once: it does not wait for the peer, nor for any timeout. */
static void test_close_wakes_reader(void **state)
{
    struct reader rd;
    int64_t begin;
    struct rig r;

    (void)state;
    for (int i = 0; i < 3; i++) {
        rig_open(&r, NULL);
        reader_start(&rd, r.conn);
        reader_await(&rd);
        begin = support_now_ms();
        if (i == 0)
            assert_ok(tws_close_start(r.conn, 1000, NULL));
        else if (i == 1)
            tws_abort(r.conn);
        else
            client_send_close(&r.client, 1000, NULL);
        assert_err(reader_join(&rd), i == 2 ? TWS_ERR_PEER_CLOSED : TWS_ERR_CLOSED);
        /* The close timeout is 5 s, the ping interval 30 s: neither was waited for. */
        assert_in_range(support_now_ms() - begin, 0, 4000);
        if (i == 1)
            client_expect_eof(&r.client);
        rig_close(&r);
    }
}

/* Over a Unix socket too, where an interrupt must not take the peer's answer away. */
static void test_close_unix(void **state)
{
    const char *const listen[] = {support_unix_address("close")};
    struct answerer a = {.answer = true};
    tws_server_options opt;
    struct reader rd;
    struct rig r;

    (void)state;
    rig_options(&opt);
    opt.listen = listen;
    rig_open(&r, &opt);
    answerer_start(&a, &r);
    assert_ok(tws_close(r.conn, 1001, "nobody reads"));
    pthread_join(a.thread, NULL);
    rig_close(&r);

    a = (struct answerer){.answer = true};
    rig_open(&r, &opt);
    reader_start(&rd, r.conn);
    reader_await(&rd);
    answerer_start(&a, &r);
    assert_ok(tws_close(r.conn, 1001, "somebody reads"));
    assert_err(reader_join(&rd), TWS_ERR_CLOSED);
    pthread_join(a.thread, NULL);
    assert_int_equal(a.code, 1001);
    assert_string_equal(a.reason, "somebody reads");
    rig_close(&r);
}

/* The reader is woken at once even while the closing thread waits for a silent peer. */
static void test_close_from_other_thread(void **state)
{
    struct answerer a = {.answer = true};
    struct reader rd;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    reader_start(&rd, r.conn);
    reader_await(&rd);
    answerer_start(&a, &r);
    assert_ok(tws_close(r.conn, 1001, "from another thread"));
    assert_err(reader_join(&rd), TWS_ERR_CLOSED);
    pthread_join(a.thread, NULL);
    assert_int_equal(a.code, 1001);
    assert_string_equal(a.reason, "from another thread");
    check_record(r.conn, TWS_ERR_CLOSED, 1001, "from another thread", true);
    rig_close(&r);
}

/* A write stuck inside a frame: close does not wait behind it. */
static void test_close_wakes_writer(void **state)
{
    const size_t len = 24 << 20;
    uint8_t *data = calloc(1, len);

    (void)state;
    assert_non_null(data);
    for (int i = 0; i < 3; i++) {
        struct writer_thread w;
        tws_error e;
        struct rig r;

        rig_open(&r, NULL);
        assert_ok(tws_set_timeout(r.conn, TWS_TIMEOUT_WRITE, TWS_NO_LIMIT));
        writer_thread_start(&w, r.conn, data, len);
        support_await_blocked_write(r.conn);
        if (i == 0)
            assert_err(tws_close(r.conn, 1000, NULL), TWS_ERR_CLOSED);
        else if (i == 1)
            assert_ok(tws_close_start(r.conn, 1000, NULL));
        else
            tws_abort(r.conn);
        assert_err(writer_thread_join(&w), TWS_ERR_CLOSED);
        tws_conn_error(r.conn, &e);
        assert_int_equal(e.code, TWS_ERR_CLOSED);
        assert_int_equal(e.cause, TWS_CAUSE_LOCAL);
        assert_false(e.clean);
        rig_close(&r);
    }
    free(data);
}

/* Threads that wait for their turn behind a stuck write are woken too. */
static void test_close_wakes_queue(void **state)
{
    enum { WAITING = 4 };
    const size_t len = 24 << 20;
    uint8_t *data = calloc(1, len);
    struct writer_thread w, waiting[WAITING];
    struct rig r;

    (void)state;
    assert_non_null(data);
    rig_open(&r, NULL);
    assert_ok(tws_set_timeout(r.conn, TWS_TIMEOUT_WRITE, TWS_NO_LIMIT));
    writer_thread_start(&w, r.conn, data, len);
    support_await_blocked_write(r.conn);
    for (int i = 0; i < WAITING; i++)
        writer_thread_start(&waiting[i], r.conn, "x", 1);
    tws_close_start(r.conn, 1000, NULL);
    assert_err(writer_thread_join(&w), TWS_ERR_CLOSED);
    for (int i = 0; i < WAITING; i++)
        assert_err(writer_thread_join(&waiting[i]), TWS_ERR_CLOSED);
    rig_close(&r);
    free(data);
}

struct closer {
    tws_conn *conn;
    pthread_t thread;
    bool abort;
    tws_err err;
};

static void *closer_main(void *arg)
{
    struct closer *cl = arg;

    if (cl->abort)
        tws_abort(cl->conn);
    else
        cl->err = tws_close(cl->conn, 1000, "one of many");
    return NULL;
}

/* From eight threads at once; all are told the same. */
static void test_close_by_many(void **state)
{
    (void)state;
    for (int with_abort = 0; with_abort < 2; with_abort++) {
        struct answerer a = {.answer = true};
        struct closer closers[8];
        struct reader rd;
        struct rig r;

        rig_open(&r, NULL);
        reader_start(&rd, r.conn);
        answerer_start(&a, &r);
        for (int i = 0; i < 8; i++) {
            closers[i] = (struct closer){.conn = r.conn, .abort = with_abort && i == 5};
            support_thread(&closers[i].thread, closer_main, &closers[i]);
        }
        for (int i = 0; i < 8; i++)
            pthread_join(closers[i].thread, NULL);
        for (int i = 0; i < 8 && !with_abort; i++)
            assert_int_equal(closers[i].err, TWS_OK);
        assert_err(reader_join(&rd), TWS_ERR_CLOSED);
        pthread_join(a.thread, NULL);
        if (!with_abort)
            assert_string_equal(a.reason, "one of many");
        rig_close(&r);
    }
}

/* The handler computes and reads nothing: whoever closes finishes the handshake. */
static void test_close_while_handler_computes(void **state)
{
    struct answerer a = {.answer = true};
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    answerer_start(&a, &r);
    assert_ok(tws_close(r.conn, 1000, NULL)); /* the rig's handler does not read */
    pthread_join(a.thread, NULL);
    check_record(r.conn, TWS_ERR_CLOSED, 1000, "", true);
    rig_close(&r);
}

static void test_abort(void **state)
{
    tws_message m;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    client_send_text(&r.client, "unread");
    tws_abort(r.conn);
    tws_abort(r.conn);
    assert_err(tws_read_message(r.conn, &m), TWS_ERR_CLOSED);
    assert_err(tws_write_text(r.conn, "x"), TWS_ERR_CLOSED);
    assert_err(tws_close(r.conn, 1000, NULL), TWS_ERR_CLOSED);
    assert_err(tws_close_start(r.conn, 1000, NULL), TWS_OK);
    check_record(r.conn, TWS_ERR_CLOSED, 1006, "", false);
    client_drain(&r.client);
    rig_close(&r);
}

/* An abort ends a closing handshake that waits for a silent peer, however long it may. */
static void test_abort_while_closing(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct closer closer;
        struct reader rd;
        struct rig r;

        rig_open(&r, NULL);
        assert_ok(tws_set_timeout(r.conn, TWS_TIMEOUT_CLOSE, TWS_NO_LIMIT));
        if (i == 1) { /* with a reader that had to be interrupted */
            reader_start(&rd, r.conn);
            reader_await(&rd);
        }
        closer = (struct closer){.conn = r.conn};
        support_thread(&closer.thread, closer_main, &closer);
        client_expect_close(&r.client, 1000, "one of many");
        if (i == 1)
            assert_err(reader_join(&rd), TWS_ERR_CLOSED);
        WAIT_FOR(atomic_load(&r.conn->reading)); /* it waits for the answer */
        tws_abort(r.conn);
        pthread_join(closer.thread, NULL);
        assert_int_equal(closer.err, TWS_ERR_CLOSED);
        check_record(r.conn, TWS_ERR_CLOSED, 1000, "one of many", false);
        rig_close(&r);
    }
}

/* B131: a handle may be given back by any thread, in any order, while the peer closes. */
static void test_last_reference(void **state)
{
    struct rig r;
    tws_conn *extra;
    tws_error e;

    (void)state;
    rig_open(&r, NULL);
    extra = tws_conn_ref(r.conn);
    client_send_close(&r.client, 1000, NULL);
    rig_end(&r); /* server, handler and rig have let go */
    tws_conn_error(extra, &e);
    assert_true(tws_err_is_final(e.code));
    assert_err(tws_write_text(extra, "x"), e.code);
    tws_abort(extra);
    assert_true(tws_conn_id(extra) > 0);
    tws_conn_unref(extra);
    tws_conn_unref(NULL);
    support_assert_census(r.before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_close_in_close_handler),
        cmocka_unit_test(test_close_in_ping_handler),
        cmocka_unit_test(test_close),
        cmocka_unit_test(test_longest_reason),
        cmocka_unit_test(test_close_not_answered),
        cmocka_unit_test(test_close_answered_late),
        cmocka_unit_test(test_half_close),
        cmocka_unit_test(test_close_inside_a_message),
        cmocka_unit_test(test_close_wakes_reader),
        cmocka_unit_test(test_close_from_other_thread),
        cmocka_unit_test(test_close_unix),
        cmocka_unit_test(test_close_wakes_writer),
        cmocka_unit_test(test_close_wakes_queue),
        cmocka_unit_test(test_close_by_many),
        cmocka_unit_test(test_close_while_handler_computes),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_abort_while_closing),
        cmocka_unit_test(test_last_reference),
    };

    return cmocka_run_group_tests_name("conn_close", tests, NULL, NULL);
}
