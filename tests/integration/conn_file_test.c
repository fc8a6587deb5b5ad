/* Messages from files and pipes: how they leave, what passes between, how it fails. */
#include "support.h"

#include "conn/conn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BIG ((size_t)6 << 20)

/* An unlinked file of the pattern. */
static int make_file(size_t len, unsigned seed)
{
    FILE *f = tmpfile();
    char *data = support_alloc(len);
    int fd;

    assert_non_null(f);
    support_fill(data, len, seed);
    assert_int_equal(fwrite(data, 1, len, f), len);
    assert_int_equal(fflush(f), 0);
    fd = fcntl(fileno(f), F_DUPFD_CLOEXEC, 0);
    fclose(f);
    free(data);
    assert_true(fd >= 0);
    return fd;
}

struct file_writer {
    pthread_t thread;
    tws_conn *conn;
    tws_opcode opcode;
    int fd;
    int64_t offset, length;
    size_t fragment;
    _Atomic bool done;
    tws_err err;
    int error;
};

static void *file_main(void *arg)
{
    struct file_writer *w = arg;

    errno = 0;
    w->err = tws_write_file(w->conn, w->opcode, w->fd, w->offset, w->length, w->fragment);
    w->error = errno;
    atomic_store(&w->done, true);
    return NULL;
}

static void file_start(struct file_writer *w, tws_conn *c, int fd, size_t fragment)
{
    *w = (struct file_writer){
        .conn = c, .opcode = TWS_BINARY, .fd = fd, .length = TWS_FILE_REST, .fragment = fragment};
    support_thread(&w->thread, file_main, w);
}

static tws_err file_join(struct file_writer *w)
{
    WAIT_FOR(atomic_load(&w->done));
    pthread_join(w->thread, NULL);
    return w->err;
}

/* Receives a message; how many frames it had, and the largest of them. */
struct received {
    char *data;
    size_t len, frames, largest, pings;
};

static void receive(struct client *c, struct received *got)
{
    struct client_frame f = {.fin = false};

    *got = (struct received){.data = support_alloc(BIG)};
    while (!f.fin || f.opcode == CLIENT_PING) {
        assert_true(client_next(c, &f));
        if (f.opcode == CLIENT_PING) {
            got->pings++;
            continue;
        }
        assert_int_equal(f.opcode == CLIENT_CONT, got->frames > 0);
        assert_true(got->len + f.len <= BIG);
        memcpy(got->data + got->len, f.data, f.len);
        got->len += f.len;
        got->frames++;
        if (f.len > got->largest)
            got->largest = f.len;
    }
}

/* ---- Whole files ---- */

static void check_file(struct rig *r, size_t size, int64_t offset, int64_t length, size_t fragment)
{
    int fd = make_file(size, 7);
    size_t len = length < 0 ? size - (size_t)offset : (size_t)length;
    size_t frames = fragment > 0 && len > 0 ? (len - 1) / fragment + 1 : 1;
    struct file_writer w;
    struct received got;

    w = (struct file_writer){.conn = r->conn,
                             .opcode = TWS_BINARY,
                             .fd = fd,
                             .offset = offset,
                             .length = length,
                             .fragment = fragment};
    support_thread(&w.thread, file_main, &w);
    receive(&r->client, &got);
    assert_ok(file_join(&w));
    assert_int_equal(got.len, len);
    assert_true(support_filled(got.data, len, 7 + (unsigned)offset));
    assert_int_equal(got.frames, frames);
    free(got.data);
    close(fd);
}

static void test_sizes(void **state)
{
    static const size_t sizes[] = {0,     1,     125,   126,   16369, 16370,
                                   16371, 16384, 65535, 65536, 65537, 300000};
    tws_stats st;
    struct rig r;
    uint64_t sum = 0;

    (void)state;
    rig_open(&r, NULL);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_file(&r, sizes[i], 0, TWS_FILE_REST, 0);
        sum += sizes[i];
    }
    tws_conn_stats(r.conn, &st);
    assert_int_equal(st.messages_out, sizeof sizes / sizeof *sizes);
    assert_int_equal(st.bytes_out, sum);
    rig_close(&r);
}

static void test_parts(void **state)
{
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    check_file(&r, 200000, 77, 150000, 0);
    check_file(&r, 200000, 77, 10, 0);
    check_file(&r, 200000, 200000, TWS_FILE_REST, 0);
    check_file(&r, 200000, 199999, 1, 10);
    check_file(&r, 200000, 3, 0, 10);
    rig_close(&r);
}

static void test_fragments(void **state)
{
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    check_file(&r, 1000, 0, TWS_FILE_REST, 1);
    check_file(&r, 100000, 0, TWS_FILE_REST, 1000);
    check_file(&r, 100000, 5, TWS_FILE_REST, 16384);
    check_file(&r, 1000000, 0, TWS_FILE_REST, 70000);
    check_file(&r, 131072, 0, TWS_FILE_REST, 65536);
    check_file(&r, 100000, 0, TWS_FILE_REST, SIZE_MAX);
    rig_close(&r);
}

/* One that is larger than what the peer takes at once, in one frame and in many. */
static void test_slow_peer(void **state)
{
    struct rig r;

    (void)state;
    for (size_t fragment = 0; fragment <= 65536; fragment += 65536) {
        struct file_writer w;
        struct received got;
        int fd = make_file(BIG, 9);

        rig_open(&r, NULL);
        file_start(&w, r.conn, fd, fragment);
        support_await_blocked_write(r.conn);
        receive(&r.client, &got);
        assert_ok(file_join(&w));
        assert_int_equal(got.len, BIG);
        assert_true(support_filled(got.data, BIG, 9));
        assert_int_equal(got.frames, fragment ? BIG / fragment : 1);
        client_send_text(&r.client, "back"); /* the socket still waits as it should */
        tws_message m;
        assert_ok(tws_read_message(r.conn, &m));
        rig_close(&r);
        free(got.data);
        close(fd);
    }
}

/* Another thread reads while the socket is made non-blocking for moments. */
static void test_read_meanwhile(void **state)
{
    int fd = make_file(BIG, 9);
    struct file_writer w;
    struct received got;
    struct reader rd;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    reader_start(&rd, r.conn);
    file_start(&w, r.conn, fd, 65536);
    for (int i = 0; i < 50; i++)
        client_send_text(&r.client, "something to read");
    receive(&r.client, &got);
    assert_ok(file_join(&w));
    assert_true(got.len == BIG && support_filled(got.data, BIG, 9));
    client_send_text(&r.client, "more");
    WAIT_FOR(atomic_load(&rd.messages) == 51);
    tws_abort(r.conn);
    reader_join(&rd);
    rig_close(&r);
    free(got.data);
    close(fd);
}

/* ---- Others meanwhile ---- */

struct pinger {
    tws_conn *conn;
    tws_err err;
    _Atomic bool done;
};

static void *ping_main(void *arg)
{
    struct pinger *p = arg;

    p->err = tws_ping(p->conn, "p", 1);
    atomic_store(&p->done, true);
    return NULL;
}

static bool asks_for_the_role(tws_conn *c)
{
    bool yes;

    pthread_mutex_lock(&c->mu);
    yes = c->turns.head != NULL;
    pthread_mutex_unlock(&c->mu);
    return yes;
}

static void test_ping_passes(void **state)
{
    struct pinger ping;
    struct writer_thread after;
    int fd = make_file(BIG, 9);
    struct file_writer w;
    struct received got;
    pthread_t t;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    file_start(&w, r.conn, fd, 65536);
    support_await_blocked_write(r.conn);
    ping = (struct pinger){.conn = r.conn};
    support_thread(&t, ping_main, &ping);
    /* A socket's buffer may have grown meanwhile, and let it pass before anybody looked. */
    WAIT_FOR(asks_for_the_role(r.conn) || atomic_load(&ping.done));
    writer_thread_start(&after, r.conn, "after", 5);
    receive(&r.client, &got);
    pthread_join(t, NULL);
    assert_ok(ping.err);
    assert_int_equal(got.pings, 1); /* before the last fragment */
    assert_ok(file_join(&w));
    assert_ok(writer_thread_join(&after));
    client_expect(&r.client, CLIENT_FIN | CLIENT_BINARY, "after", 5);
    rig_close(&r);
    free(got.data);
    close(fd);
}

static void test_close_does_not_wait(void **state)
{
    (void)state;
    for (size_t fragment = 0; fragment <= 65536; fragment += 65536) {
        int fd = make_file(BIG, 9);
        struct file_writer w;
        struct rig r;

        rig_open(&r, NULL);
        file_start(&w, r.conn, fd, fragment);
        support_await_blocked_write(r.conn);
        assert_err(tws_close(r.conn, 1000, NULL), TWS_ERR_CLOSED);
        assert_err(file_join(&w), TWS_ERR_CLOSED);
        rig_close(&r);
        close(fd);
    }
}

static void test_write_timeout(void **state)
{
    int fd = make_file(BIG, 9);
    struct file_writer w;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    tws_set_timeout(r.conn, TWS_TIMEOUT_WRITE, 50);
    file_start(&w, r.conn, fd, 65536);
    assert_err(file_join(&w), TWS_ERR_STALLED);
    rig_close(&r);
    close(fd);
}

/* ---- Pipes ---- */

static void test_pipe(void **state)
{
    char data[40000];
    struct file_writer w;
    struct received got;
    int fds[2];
    struct rig r;

    (void)state;
    support_fill(data, sizeof data, 4);
    rig_open(&r, NULL);
    assert_int_equal(pipe(fds), 0);
    file_start(&w, r.conn, fds[0], 0);
    assert_int_equal(write(fds[1], "abc", 3), 3);
    client_expect(&r.client, CLIENT_BINARY, "abc", 3); /* at once, and not the end */
    WAIT_FOR(support_watched(r.conn));
    assert_ok(tws_ping(r.conn, "p", 1)); /* nobody holds the line while it is silent */
    client_expect(&r.client, CLIENT_FIN | CLIENT_PING, "p", 1);
    assert_int_equal(write(fds[1], "de", 2), 2);
    client_expect(&r.client, CLIENT_CONT, "de", 2);
    close(fds[1]);
    client_expect(&r.client, CLIENT_FIN | CLIENT_CONT, NULL, 0);
    assert_ok(file_join(&w));
    close(fds[0]);

    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], data, sizeof data), sizeof data);
    close(fds[1]);
    file_start(&w, r.conn, fds[0], 1000);
    receive(&r.client, &got);
    assert_ok(file_join(&w));
    assert_int_equal(got.len, sizeof data);
    assert_memory_equal(got.data, data, sizeof data);
    assert_int_equal(got.largest, 1000);
    free(got.data);
    close(fds[0]);
    rig_close(&r);
}

static void close_start(tws_conn *c)
{
    assert_ok(tws_close_start(c, 1000, NULL));
}

static void pipe_ended(void (*end)(tws_conn *c))
{
    struct file_writer w;
    int fds[2];
    struct rig r;

    rig_open(&r, NULL);
    assert_int_equal(pipe(fds), 0);
    file_start(&w, r.conn, fds[0], 0);
    WAIT_FOR(support_watched(r.conn));
    end(r.conn);
    assert_err(file_join(&w), TWS_ERR_CLOSED);
    close(fds[0]);
    close(fds[1]);
    rig_close(&r);
}

static void test_close_ends_silent_pipe(void **state)
{
    (void)state;
    pipe_ended(close_start);
    pipe_ended(tws_abort);
}

static void test_pipe_with_length(void **state)
{
    struct file_writer w;
    int fds[2];
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], "abcdef", 6), 6);
    assert_ok(tws_write_file(r.conn, TWS_BINARY, fds[0], 0, 4, 0));
    client_expect(&r.client, CLIENT_FIN | CLIENT_BINARY, "abcd", 4);
    assert_err(tws_write_file(r.conn, TWS_BINARY, fds[0], 1, 1, 0), TWS_ERR_ARGUMENT);
    /* Of four bytes that are asked for two have left when the pipe ends. */
    w = (struct file_writer){.conn = r.conn, .opcode = TWS_BINARY, .fd = fds[0], .length = 4};
    support_thread(&w.thread, file_main, &w);
    client_expect(&r.client, CLIENT_BINARY, "ef", 2);
    close(fds[1]);
    assert_err(file_join(&w), TWS_ERR_FILE);
    assert_int_equal(w.error, 0);
    client_expect_close(&r.client, 1011, NULL);
    close(fds[0]);
    rig_close(&r);
}

/* ---- What cannot be sent ---- */

static void test_refused_before(void **state)
{
    int fd = make_file(100, 1), dir = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC), hole;
    tws_writer *writer;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    errno = EIO;
    assert_err(tws_write_file(r.conn, TWS_BINARY, fd, 0, 101, 0), TWS_ERR_FILE);
    assert_int_equal(errno, 0);
    assert_err(tws_write_file(r.conn, TWS_BINARY, fd, 99, 2, 0), TWS_ERR_FILE);
    assert_err(tws_write_file(r.conn, TWS_BINARY, fd, 101, TWS_FILE_REST, 0), TWS_ERR_FILE);
    assert_err(tws_write_file(r.conn, TWS_BINARY, fd, INT64_MAX, INT64_MAX, 0), TWS_ERR_FILE);
    assert_err(tws_write_file(r.conn, TWS_BINARY, fd, -1, 1, 0), TWS_ERR_ARGUMENT);
    assert_err(tws_write_file(r.conn, TWS_BINARY, fd, 0, -2, 0), TWS_ERR_ARGUMENT);
    assert_err(tws_write_file(r.conn, (tws_opcode)8, fd, 0, 1, 0), TWS_ERR_ARGUMENT);
    assert_err(tws_write_file(r.conn, TWS_BINARY, -1, 0, 1, 0), TWS_ERR_FILE);
    assert_int_equal(errno, EBADF);
    assert_err(tws_write_file(r.conn, TWS_BINARY, dir, 0, 1, 0), TWS_ERR_FILE);
    assert_int_equal(errno, EISDIR);
    assert_err(tws_write_file(r.conn, TWS_BINARY, null, 0, 1, 0), TWS_ERR_FILE);
    assert_int_equal(errno, EBADF);
    tws_set_limit(r.conn, TWS_LIMIT_WRITE, 99);
    assert_err(tws_write_file(r.conn, TWS_BINARY, fd, 0, 100, 0), TWS_ERR_MESSAGE_SIZE);
    tws_set_limit(r.conn, TWS_LIMIT_WRITE, 0);
    assert_ok(tws_next_writer(r.conn, TWS_TEXT, &writer));
    assert_err(tws_write_file(r.conn, TWS_BINARY, fd, 0, 100, 0), TWS_ERR_STATE);
    assert_err(tws_write_file(r.conn, TWS_BINARY, fd, 0, 100, 10), TWS_ERR_STATE);
    assert_ok(tws_writer_close(writer));
    client_expect(&r.client, CLIENT_FIN | CLIENT_TEXT, NULL, 0);
    hole = open("/proc/self/comm", O_RDONLY | O_CLOEXEC); /* of a size that stat does not tell */
    assert_ok(tws_write_file(r.conn, TWS_TEXT, hole, 0, TWS_FILE_REST, 0));
    client_expect_text(&r.client, "conn_file_test\n");
    close(fd);
    close(dir);
    close(null);
    close(hole);
    rig_close(&r);
}

/* Also where sendfile would read it, behind a header that cannot be taken back. */
static void test_not_readable(void **state)
{
    int fd = make_file(100000, 1), written;
    char path[64];
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    written = open(path, O_WRONLY | O_CLOEXEC);
    for (size_t fragment = 0; fragment <= 70000; fragment += 70000) {
        assert_err(tws_write_file(r.conn, TWS_BINARY, written, 0, TWS_FILE_REST, fragment),
                   TWS_ERR_FILE);
        assert_int_equal(errno, EBADF);
    }
    assert_ok(tws_write_text(r.conn, "healthy"));
    client_expect_text(&r.client, "healthy");
    close(fd);
    close(written);
    rig_close(&r);
}

/* In one frame the peer cannot be told: the connection is cut. Between fragments it can. */
static void test_shrinks(void **state)
{
    (void)state;
    for (size_t fragment = 0; fragment <= 16000; fragment += 16000) {
        int fd = make_file(BIG, 9);
        struct file_writer w;
        struct client_frame f;
        tws_error e;
        int more;
        struct rig r;

        rig_open(&r, NULL);
        file_start(&w, r.conn, fd, fragment);
        support_await_blocked_write(r.conn);
        assert_int_equal(ftruncate(fd, 10), 0);
        while ((more = client_try_next(&r.client, &f)) == 1 && f.opcode != CLIENT_CLOSE)
            assert_false(f.fin);
        assert_int_equal(more, fragment ? 1 : 0);
        if (fragment) {
            assert_int_equal(f.data[0] << 8 | f.data[1], 1011);
        } else {
            tws_conn_error(r.conn, &e);
            assert_int_equal(e.code, TWS_ERR_CLOSED);
            assert_int_equal(e.phase, TWS_PHASE_WRITE);
        }
        assert_err(file_join(&w), TWS_ERR_FILE);
        assert_int_equal(w.error, 0);
        rig_close(&r);
        close(fd);
    }
}

static int text_file(size_t good, const char *bad)
{
    int fd = make_file(good, 2);

    assert_int_equal(pwrite(fd, bad, strlen(bad), (off_t)good), strlen(bad));
    return fd;
}

static void test_text(void **state)
{
    int fd = text_file(100000, "\xc3\xa4");
    struct file_writer w;
    struct received got;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    w = (struct file_writer){
        .conn = r.conn, .opcode = TWS_TEXT, .fd = fd, .length = TWS_FILE_REST, .fragment = 99};
    support_thread(&w.thread, file_main, &w);
    receive(&r.client, &got);
    assert_ok(file_join(&w));
    assert_int_equal(got.len, 100002);
    assert_memory_equal(got.data + 100000, "\xc3\xa4", 2);
    free(got.data);
    /* Not whole: a small one is found out before anything has left. */
    assert_err(tws_write_file(r.conn, TWS_TEXT, fd, 99000, 1001, 0), TWS_ERR_TEXT);
    client_send(&r.client, CLIENT_FIN | CLIENT_PING, "p", 1);
    client_send_text(&r.client, "still here");
    tws_message m;
    assert_ok(tws_read_message(r.conn, &m));
    client_expect(&r.client, CLIENT_FIN | CLIENT_PONG, "p", 1);
    assert_err(tws_write_file(r.conn, TWS_TEXT, fd, 99000, 1001, 1000), TWS_ERR_TEXT);
    assert_true(client_next(&r.client, &(struct client_frame){.fin = false}));
    client_expect_close(&r.client, 1011, NULL);
    rig_close(&r);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_fragments),
        cmocka_unit_test(test_slow_peer),
        cmocka_unit_test(test_read_meanwhile),
        cmocka_unit_test(test_ping_passes),
        cmocka_unit_test(test_close_does_not_wait),
        cmocka_unit_test(test_write_timeout),
        cmocka_unit_test(test_pipe),
        cmocka_unit_test(test_close_ends_silent_pipe),
        cmocka_unit_test(test_pipe_with_length),
        cmocka_unit_test(test_refused_before),
        cmocka_unit_test(test_not_readable),
        cmocka_unit_test(test_shrinks),
        cmocka_unit_test(test_text),
    };

    return cmocka_run_group_tests_name("conn_file", tests, NULL, NULL);
}
