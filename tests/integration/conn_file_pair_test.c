/* Files between two connections of the library, sent on the connections' own kind of thread. */
#include "support_pair.h"

#include "conn/conn.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define BIG ((size_t)1 << 20)

struct sending {
    struct job job;
    tws_conn *conn;
    tws_opcode opcode;
    int fd;
    size_t fragment;
    tws_err err;
};

static void send_main(void *arg)
{
    struct sending *s = arg;

    s->err = tws_write_file(s->conn, s->opcode, s->fd, 0, TWS_FILE_REST, s->fragment);
}

struct receiving {
    struct job job;
    tws_conn *conn;
    size_t len;
    unsigned flags;
    tws_err err;
    bool same;
};

static void receive_main(void *arg)
{
    struct receiving *r = arg;
    tws_message m;

    r->err = tws_read_message(r->conn, &m);
    r->same = !r->err && m.len == r->len && support_filled(m.data, m.len, 6);
    r->flags = m.flags;
}

static FILE *make_file(size_t len)
{
    char *data = support_alloc(len);
    FILE *f = tmpfile();

    assert_non_null(f);
    support_fill(data, len, 6);
    assert_int_equal(fwrite(data, 1, len, f), len);
    assert_int_equal(fflush(f), 0);
    free(data);
    return f;
}

static void through(const tws_deflate_options *deflate, bool from_server, tws_opcode opcode,
                    size_t fragment)
{
    struct sending s = {.opcode = opcode, .fragment = fragment};
    struct receiving r = {.len = BIG};
    FILE *f = make_file(BIG);
    tws_pair_options opt;
    struct couple p;

    tws_pair_options_init(&opt);
    opt.deflate = deflate;
    couple_open(&p, &opt);
    s.conn = from_server ? p.server : p.client;
    r.conn = from_server ? p.client : p.server;
    s.fd = fileno(f);
    job_start(&r.job, &p, receive_main, &r);
    job_start(&s.job, &p, send_main, &s);
    job_join(&s.job);
    job_join(&r.job);
    assert_ok(s.err);
    assert_ok(r.err);
    assert_true(r.same);
    assert_int_equal(r.flags, deflate ? TWS_MESSAGE_COMPRESSED : 0);
    couple_close(&p);
    fclose(f);
}

static void test_plain(void **state)
{
    (void)state;
    for (int server = 0; server < 2; server++)
        for (size_t fragment = 0; fragment <= 100000; fragment += 50000) {
            through(NULL, server, TWS_BINARY, fragment);
            through(NULL, server, TWS_TEXT, fragment);
        }
}

static void test_compressed(void **state)
{
    tws_deflate_options deflate;

    (void)state;
    tws_deflate_options_init(&deflate);
    for (int server = 0; server < 2; server++) {
        through(&deflate, server, TWS_TEXT, 0);
        through(&deflate, server, TWS_BINARY, 1000);
    }
    deflate.server_no_context_takeover = false;
    deflate.client_no_context_takeover = false;
    through(&deflate, true, TWS_BINARY, 0);
}

/* The thread that waits for a pipe is woken by it, and by the connection's end. */
static void test_pipe(void **state)
{
    char data[3000];
    struct sending s = {.opcode = TWS_BINARY};
    struct receiving r = {.len = sizeof data};
    struct couple p;
    int fds[2];

    (void)state;
    support_fill(data, sizeof data, 6);
    couple_open(&p, NULL);
    assert_int_equal(pipe(fds), 0);
    s.conn = p.server;
    r.conn = p.client;
    s.fd = fds[0];
    job_start(&r.job, &p, receive_main, &r);
    job_start(&s.job, &p, send_main, &s);
    for (size_t at = 0; at < sizeof data; at += 1000) {
        WAIT_FOR(support_watched(p.server));
        assert_int_equal(write(fds[1], data + at, 1000), 1000);
    }
    close(fds[1]);
    job_join(&s.job);
    job_join(&r.job);
    assert_ok(s.err);
    assert_true(r.same);
    close(fds[0]);

    assert_int_equal(pipe(fds), 0);
    s.fd = fds[0];
    job_start(&s.job, &p, send_main, &s);
    WAIT_FOR(support_watched(p.server));
    assert_ok(tws_close_start(p.server, 1000, NULL));
    job_join(&s.job);
    assert_err(s.err, TWS_ERR_CLOSED);
    close(fds[0]);
    close(fds[1]);
    couple_close(&p);
}

static _Atomic int raised;

static void note_signal(int number)
{
    (void)number;
    atomic_fetch_add(&raised, 1);
}

/* On a thread of the application's, where no signal is blocked. */
static void *send_plainly(void *arg)
{
    send_main(arg);
    return NULL;
}

/* A peer that goes while a file is on its way to it raises no SIGPIPE. */
static void test_no_signal(void **state)
{
    struct sigaction note = {.sa_handler = note_signal}, old;
    FILE *f = make_file(BIG);
    struct sending s = {.opcode = TWS_BINARY, .fd = fileno(f)};
    struct couple p;
    pthread_t thread;
    sigset_t waiting;
    tws_stats st;

    (void)state;
    assert_int_equal(sigaction(SIGPIPE, &note, &old), 0);
    couple_open(&p, NULL);
    s.conn = p.server;
    assert_ok(tws_set_timeout(p.server, TWS_TIMEOUT_WRITE, TWS_NO_LIMIT));
    support_thread(&thread, send_plainly, &s);
    do
        tws_conn_stats(p.server, &st);
    while (st.wire_out < 65536); /* inside the file, and soon waiting for the peer */
    tws_abort(p.client);
    pthread_join(thread, NULL);
    assert_true(tws_err_is_final(s.err));
    assert_int_equal(sigpending(&waiting), 0);
    assert_int_equal(atomic_load(&raised) + sigismember(&waiting, SIGPIPE), 0);
    assert_int_equal(sigaction(SIGPIPE, &old, NULL), 0);
    couple_close(&p);
    fclose(f);
}

/* No room for another fragment: between two of them the message is abandoned, and the connection. */
static void test_writer_without_room(void **state)
{
    const int room = 40000;
    char data[16384] = {0};
    tws_writer *w;
    tws_err err;
    tws_error e;
    struct couple p;

    (void)state;
    couple_open(&p, NULL);
    assert_int_equal(
        setsockopt(p.server->stream.sock.fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
    assert_ok(tws_set_timeout(p.server, TWS_TIMEOUT_WRITE, TWS_NOWAIT));
    assert_ok(tws_next_writer(p.server, TWS_BINARY, &w));
    while ((err = tws_writer_write(w, data, sizeof data)) == TWS_OK) {
    }
    assert_err(err, TWS_ERR_TIMEOUT);
    assert_err(tws_writer_close(w), TWS_ERR_STALLED);
    tws_conn_error(p.server, &e);
    assert_err(e.code, TWS_ERR_CLOSED);
    assert_int_equal(e.close_code, TWS_CLOSE_INTERNAL_ERROR);
    couple_close(&p);

    /* Before the first it is as if nothing had been asked for. */
    couple_open(&p, NULL);
    assert_ok(tws_set_timeout(p.server, TWS_TIMEOUT_WRITE, TWS_NOWAIT));
    while ((err = tws_write_message(p.server, TWS_BINARY, data, 1000)) == TWS_OK) {
    }
    assert_err(err, TWS_ERR_TIMEOUT);
    assert_ok(tws_next_writer(p.server, TWS_BINARY, &w));
    assert_err(tws_writer_close(w), TWS_ERR_TIMEOUT);
    tws_conn_error(p.server, &e);
    assert_err(e.code, TWS_OK);
    couple_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_compressed),
        cmocka_unit_test(test_pipe),
        cmocka_unit_test(test_no_signal),
        cmocka_unit_test(test_writer_without_room),
    };

    return cmocka_run_group_tests_name("conn_file_pair", tests, NULL, NULL);
}
