/* A dialled connection's frames, both ways: masking keys, what a server may not send, timeouts. */
#include "support_dial.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- B176: masking keys ---- */

#define CONNECTIONS 10
#define ROUNDS 50 /* more than a batch, and more than are drawn one by one */

static int compare_keys(const void *a, const void *b)
{
    return memcmp(a, b, 4);
}

static void collect_keys(int fd, int count, uint8_t (*keys)[4], size_t *n)
{
    struct fake_frame *f = support_alloc(sizeof *f);

    for (int i = 0; i < count; i++) {
        assert_true(fake_read_frame(fd, f));
        assert_int_equal(f->len, 5);
        assert_memory_equal(f->data, "hello", 5);
        memcpy(keys[(*n)++], f->key, 4);
    }
    free(f);
}

static void send_round(struct dialing *d)
{
    for (int i = 0; i < CONNECTIONS; i++)
        for (int j = 0; j < ROUNDS; j++)
            if (tws_write_text(d[i].conn, "hello") != TWS_OK)
                _exit(9);
}

/* A fresh key for each frame, over connections that share what they share, and over a fork. */
static void test_mask_keys(void **state)
{
    static uint8_t keys[3 * CONNECTIONS * ROUNDS][4];
    struct dialing d[CONNECTIONS];
    struct fake_request r;
    tws_group *g = dialing_group();
    char url[256];
    int fds[CONNECTIONS];
    size_t n = 0, repeats = 0;
    int status;
    pid_t child;

    (void)state;
    snprintf(url, sizeof url, "ws://%s/", group_fake.host);
    for (int i = 0; i < CONNECTIONS; i++) {
        dialing_start_in(&d[i], g, url, NULL);
        fds[i] = fake_accept(&group_fake);
        assert_true(fake_read_request(fds[i], &r));
        fake_upgrade(fds[i], &r, "", NULL, 0);
        dialing_join(&d[i], TWS_OK);
    }
    send_round(d);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        send_round(d);
        raise(SIGKILL); /* an exit would have the sanitizers look for the parent's threads */
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    send_round(d);
    for (int i = 0; i < CONNECTIONS; i++)
        collect_keys(fds[i], 3 * ROUNDS, keys, &n);
    assert_int_equal(n, 3 * CONNECTIONS * ROUNDS);
    qsort(keys, n, 4, compare_keys);
    for (size_t i = 1; i < n; i++)
        repeats += memcmp(keys[i - 1], keys[i], 4) == 0;
    /* By chance one in 4,000 runs has a repeat; what is reused shows by the hundred. */
    assert_in_range(repeats, 0, 2);
    for (int i = 0; i < CONNECTIONS; i++) {
        close(fds[i]);
        dialing_end(&d[i]);
    }
    tws_group_free(g);
}

/* ---- What a server may not send ---- */

static void expect_end(const void *bytes, size_t len, tws_err wanted, unsigned code)
{
    struct dialing d;
    tws_message m;
    tws_error e;
    int fd = dialing_open(&d, &group_fake, NULL);

    assert_true(client_send_bytes(fd, bytes, len));
    assert_err(tws_read_message(d.conn, &m), wanted);
    assert_int_equal(m.len, 0);
    assert_int_equal(fake_finish(fd), code);
    tws_conn_error(d.conn, &e);
    assert_int_equal(e.code, wanted);
    dialing_end(&d);
}

/* B178: lengths of 64 bits. */
static void test_huge_lengths(void **state)
{
    (void)state;
    expect_end("\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff", 10, TWS_ERR_PROTOCOL, 1002);
    expect_end("\x82\x7f\x80\x00\x00\x00\x00\x00\x00\x00", 10, TWS_ERR_PROTOCOL, 1002);
    expect_end("\x82\x7f\x7f\xff\xff\xff\xff\xff\xff\xff"
               "abc",
               13, TWS_ERR_TOO_BIG, 1009);
}

/* B180, without compression: reserved bits on a first frame and on a continuation. */
static void test_reserved_bits(void **state)
{
    (void)state;
    expect_end("\x41\x03\xf2\x48\xcd\xc0\x04\xc9\xc9\x07\x00", 11, TWS_ERR_PROTOCOL, 1002);
    expect_end("\x01\x03"
               "abc"
               "\xc0\x04\xc9\xc9\x07\x00",
               11, TWS_ERR_PROTOCOL, 1002);
    expect_end("\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00", 9, TWS_ERR_PROTOCOL, 1002);
}

/* RFC 6455 5.1: a server does not mask. */
static void test_masked_frame(void **state)
{
    (void)state;
    expect_end("\x81\x82\x01\x02\x03\x04\x69\x6b", 8, TWS_ERR_PROTOCOL, 1002);
}

/* ---- B189: pongs while a message is written in pieces ---- */

struct pinger {
    int fd;
    _Atomic bool stop;
    _Atomic int sent;
    bool ok;
};

static void *ping_on(void *arg)
{
    struct pinger *p = arg;

    p->ok = true;
    while (!atomic_load(&p->stop) && p->ok) {
        p->ok = client_send_bytes(p->fd, "\x89\x03xyz", 5);
        atomic_fetch_add(&p->sent, 1);
        support_pause_ms(1);
    }
    return NULL;
}

struct streamer {
    tws_conn *conn;
    const uint8_t *data;
    tws_err err;
    _Atomic bool ponged; /* a pong has come; half-way the stream waits for that */
};

#define STREAMED (1 << 20)

static void *stream(void *arg)
{
    struct streamer *s = arg;
    tws_writer *w;

    s->err = tws_next_writer(s->conn, TWS_BINARY, &w);
    for (size_t at = 0; at < STREAMED && !s->err; at += 4096) {
        s->err = tws_writer_write(w, s->data + at, 4096);
        if (at % 65536 == 0)
            support_pause_ms(1);
        while (at == STREAMED / 2 && !atomic_load(&s->ponged))
            support_pause_ms(1);
    }
    if (!s->err)
        s->err = tws_writer_close(w);
    return NULL;
}

static void test_pongs_between_fragments(void **state)
{
    uint8_t *data = support_alloc(STREAMED);
    struct fake_frame *f = support_alloc(sizeof *f);
    struct dialing d;
    struct reader reader;
    struct pinger pinger = {.fd = -1};
    struct streamer streamer;
    pthread_t ping_thread, stream_thread;
    size_t got = 0;
    int pongs = 0;

    (void)state;
    support_fill(data, STREAMED, 3);
    pinger.fd = dialing_open(&d, &group_fake, NULL);
    streamer = (struct streamer){.conn = d.conn, .data = data};
    reader_start(&reader, d.conn);
    support_thread(&ping_thread, ping_on, &pinger);
    WAIT_FOR(atomic_load(&pinger.sent) > 0);
    support_thread(&stream_thread, stream, &streamer);
    for (bool last = false; !last;) {
        assert_true(fake_read_frame(pinger.fd, f));
        if ((f->first & 15) == CLIENT_PONG) {
            assert_int_equal(f->len, 3);
            assert_memory_equal(f->data, "xyz", 3);
            pongs++;
            atomic_store(&streamer.ponged, true);
            continue;
        }
        assert_int_equal(f->first & 15, got == 0 ? CLIENT_BINARY : CLIENT_CONT);
        assert_in_range(f->len, 0, STREAMED - got);
        assert_memory_equal(f->data, data + got, f->len);
        got += f->len;
        last = f->first & CLIENT_FIN;
    }
    assert_int_equal(got, STREAMED);
    assert_in_range(pongs, 1, 1000000);
    atomic_store(&pinger.stop, true);
    pthread_join(ping_thread, NULL);
    pthread_join(stream_thread, NULL);
    assert_true(pinger.ok);
    assert_ok(streamer.err);
    close(pinger.fd);
    reader_join(&reader);
    dialing_end(&d);
    free(f);
    free(data);
}

/* ---- Timeouts ---- */

/* A busy machine may need more than one short timeout. */
static tws_err read_in_time(tws_conn *c, tws_message *m)
{
    tws_err err;

    do
        err = tws_read_message(c, m);
    while (err == TWS_ERR_TIMEOUT);
    return err;
}

/* B192: half a frame, a receive timeout, the rest. */
static void test_timeout_in_frame(void **state)
{
    struct dialing d;
    tws_dial_options opt;
    uint8_t frame[82] = {0x82, 80};
    tws_message m;
    int fd;

    (void)state;
    support_fill(frame + 2, 80, 5);
    tws_dial_options_init(&opt);
    opt.conn.read_timeout = 30;
    fd = dialing_open(&d, &group_fake, &opt);
    for (size_t cut = 0; cut < sizeof frame; cut += 9) {
        if (cut > 0)
            assert_true(client_send_bytes(fd, frame, cut));
        assert_err(tws_read_message(d.conn, &m), TWS_ERR_TIMEOUT);
        assert_true(client_send_bytes(fd, frame + cut, sizeof frame - cut));
        assert_ok(read_in_time(d.conn, &m));
        assert_int_equal(m.len, 80);
        assert_true(support_filled(m.data, 80, 5));
    }
    close(fd);
    dialing_end(&d);
}

/* Keepalive and the idle timeout are kept as by a server's connections. */
static void test_keepalive(void **state)
{
    struct fake_frame *f = support_alloc(sizeof *f);
    struct dialing d;
    struct reader reader;
    tws_dial_options opt;
    tws_stats st;
    int fd;

    (void)state;
    tws_dial_options_init(&opt);
    opt.conn.ping_interval = 20;
    fd = dialing_open(&d, &group_fake, &opt);
    reader_start(&reader, d.conn);
    assert_true(fake_read_frame(fd, f));
    assert_int_equal(f->first, CLIENT_FIN | CLIENT_PING);
    fake_send_frame(fd, CLIENT_FIN | CLIENT_PONG, f->data, f->len);
    WAIT_FOR((tws_conn_stats(d.conn, &st), st.pongs_in > 0));
    assert_true(st.rtt_us >= 0);
    assert_ok(tws_set_timeout(d.conn, TWS_TIMEOUT_PING, 30));
    assert_err(reader_join(&reader), TWS_ERR_PEER_SILENT);
    close(fd);
    dialing_end(&d);

    opt.conn.ping_interval = 0;
    opt.conn.idle_timeout = 30;
    fd = dialing_open(&d, &group_fake, &opt);
    reader_start(&reader, d.conn);
    assert_int_equal(fake_finish(fd), 1001);
    assert_err(reader_join(&reader), TWS_ERR_IDLE);
    dialing_end(&d);
    free(f);
}

/* The server closes: the client answers by itself. */
static void test_close(void **state)
{
    struct dialing d;
    tws_message m;
    tws_error e;
    int fd;

    (void)state;
    fd = dialing_open(&d, &group_fake, NULL);
    fake_send_frame(fd, CLIENT_FIN | CLIENT_CLOSE, "\x0f\xa0why", 5);
    assert_err(tws_read_message(d.conn, &m), TWS_ERR_PEER_CLOSED);
    assert_int_equal(fake_finish(fd), 4000);
    assert_err(tws_close(d.conn, 1000, NULL), TWS_ERR_PEER_CLOSED);
    tws_conn_error(d.conn, &e);
    assert_int_equal(e.close_code, 4000);
    assert_string_equal(e.reason, "why");
    assert_true(e.clean);
    dialing_end(&d);
}

struct closer {
    tws_conn *conn;
    tws_err err;
};

static void *close_it(void *arg)
{
    struct closer *k = arg;

    k->err = tws_close(k->conn, 1000, NULL);
    return NULL;
}

/* RFC 6455 7.1.1: the server ends TCP first. The client's end comes when the server's has, or when it
 * does not come. */
static void test_server_ends_first(void **state)
{
    struct fake_frame *f = support_alloc(sizeof *f);
    struct pollfd p = {.events = POLLIN};
    char byte;

    (void)state;
    for (int waits = 0; waits < 2; waits++) {
        struct dialing d;
        struct closer k;
        pthread_t thread;

        p.fd = dialing_open(&d, &group_fake, NULL);
        k.conn = d.conn;
        support_thread(&thread, close_it, &k);
        assert_true(fake_read_frame(p.fd, f));
        fake_send_frame(p.fd, CLIENT_FIN | CLIENT_CLOSE, f->data, f->len);
        if (!waits) {
            assert_int_equal(poll(&p, 1, 20), 0); /* not yet */
            shutdown(p.fd, SHUT_WR);
        }
        assert_int_equal(recv(p.fd, &byte, 1, 0), 0);
        close(p.fd);
        pthread_join(thread, NULL);
        assert_ok(k.err);
        dialing_end(&d);
    }
    free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mask_keys),
        cmocka_unit_test(test_huge_lengths),
        cmocka_unit_test(test_reserved_bits),
        cmocka_unit_test(test_masked_frame),
        cmocka_unit_test(test_pongs_between_fragments),
        cmocka_unit_test(test_timeout_in_frame),
        cmocka_unit_test(test_keepalive),
        cmocka_unit_test(test_close),
        cmocka_unit_test(test_server_ends_first),
    };

    return cmocka_run_group_tests_name("client_frames", tests, group_fake_listen, group_fake_close);
}
