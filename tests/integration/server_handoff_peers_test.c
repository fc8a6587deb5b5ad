/*
 * Hand-offs as others may spoil them: peers that go on sending, other threads that read, close and cut,
 * and a process on the other side that lies, leaves, or does not answer.
 */
#include "support.h"

#include <sys/socket.h>
#include <unistd.h>

/* ---- Under traffic ---- */

/* Two servers, and a way from each to the other. */
struct side {
    struct support_server s;
    tws_handoff *in, *out;
    pthread_t thread;
    _Atomic unsigned taken;
};

static void *side_main(void *arg)
{
    struct side *side = arg;
    tws_err err;

    while ((err = tws_handoff_serve(side->in, side->s.server, 0, NULL)) == TWS_OK)
        side->taken++;
    return NULL;
}

static void sides_start(struct side side[2])
{
    for (int i = 0; i < 2; i++) {
        int fd[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
        assert_ok(tws_handoff_new(&side[i].in, fd[0]));
        assert_ok(tws_handoff_new(&side[!i].out, fd[1]));
        side[i].taken = 0;
        support_handoff_server(&side[i].s, support_echo, true);
        support_thread(&side[i].thread, side_main, &side[i]);
    }
}

static void sides_stop(struct side side[2])
{
    for (int i = 0; i < 2; i++)
        tws_handoff_free(side[i].out);
    for (int i = 0; i < 2; i++) {
        pthread_join(side[i].thread, NULL);
        tws_handoff_free(side[i].in);
        tws_server_free(side[i].s.server);
    }
}

/* Sends numbered messages and wants each of them back, in order. */
struct echoing {
    pthread_t thread;
    struct client c;
    _Atomic bool stop;
    _Atomic unsigned done;
    bool ok;
};

static void *echoing_main(void *arg)
{
    enum { AT_ONCE = 4, LEN = 700 };
    struct echoing *e = arg;
    uint8_t frame[LEN + CLIENT_HEAD_MAX];
    char payload[LEN];
    struct client_frame f;

    e->ok = true;
    for (unsigned n = 0; e->ok && !e->stop; n += AT_ONCE) {
        for (unsigned i = 0; i < AT_ONCE && e->ok; i++) {
            size_t len;

            support_fill(payload, LEN, n + i);
            len = client_frame(frame, CLIENT_FIN | CLIENT_TEXT, payload, LEN);
            /* Cut in two, so that frames are in the middle when the connection goes. */
            e->ok = client_send_bytes(e->c.fd, frame, len / 2) &&
                    client_send_bytes(e->c.fd, frame + len / 2, len - len / 2);
        }
        for (unsigned i = 0; i < AT_ONCE && e->ok; i++)
            e->ok = client_try_next(&e->c, &f) == 1 && f.opcode == CLIENT_TEXT && f.len == LEN &&
                    support_filled(f.data, f.len, n + i);
        e->done += AT_ONCE;
    }
    return NULL;
}

static bool send_one(tws_conn *c, void *h)
{
    tws_handoff_send(h, c, NULL, 0, 5000, NULL); /* not in the middle of a message: the next time */
    return true;
}

static void test_echoing(void **state)
{
    enum { CLIENTS = 6, ROUNDS = 12 };
    struct support_census before = support_census();
    static struct echoing e[CLIENTS];
    static struct side side[2];
    tws_server_stats st;

    (void)state;
    memset(e, 0, sizeof e);
    sides_start(side);
    for (int i = 0; i < CLIENTS; i++) {
        client_open(&e[i].c, side[0].s.address);
        support_thread(&e[i].thread, echoing_main, &e[i]);
    }
    for (int round = 0; round < ROUNDS; round++) {
        struct side *from = &side[round % 2];
        unsigned done = e[0].done;

        do {
            tws_server_each(from->s.server, send_one, from->out);
            tws_server_get_stats(from->s.server, &st);
        } while (st.open > 0 || st.handshaking > 0);
        WAIT_FOR(e[0].done > done + 8 || e[0].stop);
    }
    for (int i = 0; i < CLIENTS; i++)
        e[i].stop = true;
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(e[i].thread, NULL);
        assert_true(e[i].ok);
        assert_true(e[i].done > 0);
        client_close(&e[i].c);
    }
    assert_int_equal(side[1].taken, CLIENTS * ROUNDS / 2);
    assert_int_equal(side[0].taken, CLIENTS * ROUNDS / 2);
    sides_stop(side);
    support_assert_census(before);
}

/* ---- The other side, byte by byte ---- */

/* A receiver that answers in its own way. The connection goes on here. */
struct receiver {
    pthread_t thread;
    int fd;
    const char *answer; /* NULL: it leaves */
    size_t len;
};

static void *receiver_main(void *arg)
{
    struct receiver *r = arg;
    uint8_t bytes[65536];

    if (recv(r->fd, bytes, sizeof bytes, 0) > 0 && r->answer)
        send(r->fd, r->answer, r->len, MSG_NOSIGNAL);
    if (!r->answer)
        shutdown(r->fd, SHUT_RDWR);
    return NULL;
}

static void test_lying_receiver(void **state)
{
    static const struct {
        const char *answer;
        size_t len;
        tws_err err;
    } cases[] = {
        {NULL, 0, TWS_ERR_SYSTEM},           {"TWSA\xff\xff\xff\xff", 8, TWS_ERR_SYSTEM},
        {"TWSA\1\0\0\0", 8, TWS_ERR_SYSTEM}, {"XWSA\0\0\0\0", 8, TWS_ERR_SYSTEM},
        {"TWSA", 4, TWS_ERR_TIMEOUT},        {"", 0, TWS_ERR_TIMEOUT},
    };
    tws_message m;
    struct rig r;
    tws_error e;

    (void)state;
    rig_open(&r, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct receiver other = {.answer = cases[i].answer, .len = cases[i].len};
        tws_handoff *h = support_handoff_half(&other.fd);

        support_thread(&other.thread, receiver_main, &other);
        /* Little time only for the answer that never comes. */
        assert_err(
            tws_handoff_send(h, r.conn, NULL, 0, cases[i].err == TWS_ERR_TIMEOUT ? 100 : 10000, &e),
            cases[i].err);
        pthread_join(other.thread, NULL);
        client_send_text(&r.client, "still here");
        assert_ok(tws_read_message(r.conn, &m));
        assert_string_equal(m.data, "still here");
        if (cases[i].err == TWS_ERR_TIMEOUT) /* too late: it cannot say yes any more */
            assert_int_equal(send(other.fd, "TWSA\0\0\0\0", 8, MSG_NOSIGNAL), -1);
        close(other.fd);
        tws_handoff_free(h);
    }
    client_close(&r.client);
    rig_close(&r);
}

/* ---- Other threads ---- */

struct call {
    pthread_t thread;
    tws_conn *conn;
    tws_handoff *h;
    tws_err err;
    _Atomic bool done;
};

static void *send_main(void *arg)
{
    struct call *call = arg;

    call->err = tws_handoff_send(call->h, call->conn, NULL, 0, SUPPORT_HANG_MS, NULL);
    call->done = true;
    return NULL;
}

static void test_other_thread_reads(void **state)
{
    static struct side side[2];
    struct reader rd;
    struct rig r;
    tws_server_options opt;
    tws_error e;

    (void)state;
    sides_start(side);
    rig_options(&opt);
    opt.upgrade.conn.handoff = true;
    rig_open(&r, &opt);
    reader_start(&rd, r.conn);
    reader_await(&rd);
    assert_ok(tws_handoff_send(side[0].out, r.conn, NULL, 0, 5000, &e));
    assert_err(reader_join(&rd), TWS_ERR_HANDED_OVER);
    client_send_text(&r.client, "there");
    client_expect_text(&r.client, "there");
    client_close(&r.client);
    rig_end(&r);

    /* Without the option a kernel thread cannot be asked, but comes by for its next message. */
    struct call call = {.h = side[0].out};
    struct client_frame f;

    rig_open(&r, NULL);
    reader_start(&rd, r.conn);
    reader_await(&rd);
    call.conn = r.conn;
    if (!support_light()) {
        assert_err(tws_handoff_send(side[0].out, r.conn, NULL, 0, 50, &e), TWS_ERR_TIMEOUT);
        assert_err(support_ending(r.conn), TWS_OK);
    }
    support_thread(&call.thread, send_main, &call);
    while (!call.done && !support_light()) {
        client_send_text(&r.client, "x");
        support_pause_ms(1);
    }
    pthread_join(call.thread, NULL);
    assert_err(call.err, TWS_OK);
    assert_err(reader_join(&rd), TWS_ERR_HANDED_OVER);
    client_send_text(&r.client, "there");
    do
        assert_true(client_next(&r.client, &f));
    while (f.len == 1);
    assert_int_equal(f.len, 5);
    client_close(&r.client);
    rig_end(&r);
    sides_stop(side);
}

static void *close_main(void *arg)
{
    struct call *call = arg;

    call->err = tws_close(call->conn, 1000, NULL);
    call->done = true;
    return NULL;
}

/* Closed while the other process is thinking: the close is done once it has refused, and not at all
 * when it has the connection. */
static void check_close(bool taken)
{
    struct call send_call, close_call;
    struct client_frame f;
    uint8_t bytes[65536];
    struct rig r;
    int fd;

    memset(&send_call, 0, sizeof send_call);
    memset(&close_call, 0, sizeof close_call);
    rig_open(&r, NULL);
    send_call.conn = close_call.conn = r.conn;
    send_call.h = support_handoff_half(&fd);
    support_thread(&send_call.thread, send_main, &send_call);
    assert_true(recv(fd, bytes, sizeof bytes, 0) > 0);
    support_thread(&close_call.thread, close_main, &close_call);
    WAIT_FOR(tws_write_text(r.conn, "x") != TWS_ERR_TIMEOUT || close_call.done);
    assert_true(client_is_quiet(&r.client));
    assert_false(send_call.done);
    assert_int_equal(send(fd, taken ? "TWSA\0\0\0\0" : "TWSA\xff\xff\xff\xff", 8, 0), 8);
    pthread_join(send_call.thread, NULL);
    if (taken) {
        pthread_join(close_call.thread, NULL);
        assert_err(send_call.err, TWS_OK);
        assert_err(close_call.err, TWS_ERR_HANDED_OVER);
        rig_release(&r);
        client_expect_eof(&r.client); /* the copy in flight was dropped: nobody has it */
    } else {
        assert_true(client_next(&r.client, &f));
        assert_int_equal(f.opcode, CLIENT_CLOSE);
        client_send_close(&r.client, 1000, NULL);
        client_expect_eof(&r.client);
        client_close(&r.client);
        pthread_join(close_call.thread, NULL);
        assert_err(close_call.err, TWS_OK);
    }
    client_close(&r.client);
    close(fd);
    tws_handoff_free(send_call.h);
    rig_close(&r);
}

static void test_closed_meanwhile(void **state)
{
    (void)state;
    check_close(false);
    check_close(true);
}

static void test_cut_meanwhile(void **state)
{
    struct call call;
    uint8_t bytes[65536];
    struct rig r;
    int fd;

    (void)state;
    memset(&call, 0, sizeof call);
    rig_open(&r, NULL);
    call.conn = r.conn;
    call.h = support_handoff_half(&fd);
    support_thread(&call.thread, send_main, &call);
    assert_true(recv(fd, bytes, sizeof bytes, 0) > 0);
    tws_abort(r.conn);
    client_expect_eof(&r.client);
    assert_int_equal(send(fd, "TWSA\0\0\0\0", 8, 0), 8);
    pthread_join(call.thread, NULL);
    assert_err(call.err, TWS_ERR_CLOSED);
    client_close(&r.client);
    close(fd);
    tws_handoff_free(call.h);
    rig_close(&r);
}

static void test_new(void **state)
{
    tws_handoff *h = (void *)1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)state;
    assert_err(tws_handoff_new(&h, fd), TWS_ERR_ARGUMENT);
    assert_null(h);
    close(fd);
    assert_err(tws_handoff_new(&h, -1), TWS_ERR_ARGUMENT);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_err(tws_handoff_new(&h, fd), TWS_ERR_ARGUMENT); /* not connected */
    close(fd);
    tws_handoff_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new),
        cmocka_unit_test(test_echoing),
        cmocka_unit_test(test_lying_receiver),
        cmocka_unit_test(test_other_thread_reads),
        cmocka_unit_test(test_closed_meanwhile),
        cmocka_unit_test(test_cut_meanwhile),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
