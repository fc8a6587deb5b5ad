/* TLS streams on a pair of sockets: records cut anywhere, full sockets, key updates, ends of all kinds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "tls_pair.h"

#include <openssl/err.h>

static struct pki ca, leaf;
static tws_tls *server_tls, *client_tls;

static int set_up(void **state)
{
    struct pki_spec authority = {.name = "Test CA", .ca = true};
    struct pki_spec server = {.name = "server", .alt = "DNS:server.test", .issuer = &ca};

    (void)state;
    pki_make(&ca, &authority);
    pki_make(&leaf, &server);
    server_tls = pair_server(&leaf);
    client_tls = pair_client(ca.cert);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tws_tls_unref(server_tls);
    tws_tls_unref(client_tls);
    pki_free(&ca);
    pki_free(&leaf);
    return 0;
}

static void fill(uint8_t *buf, size_t len, unsigned seed)
{
    uint32_t x = seed * 2654435761U + 1;

    for (size_t i = 0; i < len; i++) {
        x = x * 1664525U + 1013904223U;
        buf[i] = (uint8_t)(x >> 24);
    }
}

static uint8_t *filled(size_t len, unsigned seed)
{
    uint8_t *buf = malloc(len);

    assert_non_null(buf);
    fill(buf, len, seed);
    return buf;
}

static bool await_now(struct net_stream *st)
{
    return net_stream_await(st, TASK_NOW, 0) == 0;
}

static void a_message_goes_both_ways(void **state)
{
    struct pair p;
    tws_tls_info info;

    (void)state;
    pair_open(&p, server_tls, client_tls, "server.test");
    assert_int_equal(pair_send(&p.client.st, "hello", 5), 0);
    pair_expect(&p.server.st, "hello");
    assert_int_equal(pair_send(&p.server.st, "world", 5), 0);
    pair_expect(&p.client.st, "world");
    net_tls_describe(&p.client.st, &info);
    assert_int_equal(info.version, TWS_TLS_1_3);
    assert_string_equal(info.alpn, "http/1.1");
    assert_string_equal(info.peer_subject, "CN=server");
    net_tls_describe(&p.server.st, &info);
    assert_string_equal(info.server_name, "server.test");
    assert_false(info.has_certificate);
    pair_close(&p);
}

/* What other code left in this thread's error queue is no failure. */
static void others_errors_do_no_harm(void **state)
{
    struct pair p;

    (void)state;
    ERR_raise(ERR_LIB_SSL, SSL_R_BAD_LENGTH);
    pair_open(&p, server_tls, client_tls, "server.test");
    ERR_raise(ERR_LIB_SSL, SSL_R_BAD_LENGTH);
    assert_int_equal(pair_send(&p.client.st, "a", 1), 0);
    ERR_raise(ERR_LIB_SSL, SSL_R_BAD_LENGTH);
    pair_expect(&p.server.st, "a");
    ERR_raise(ERR_LIB_SSL, SSL_R_BAD_LENGTH);
    assert_int_equal(net_stream_await(&p.server.st, TASK_NOW, 0), -ETIMEDOUT);
    net_stream_shutdown(&p.client.st, SHUT_WR);
    ERR_raise(ERR_LIB_SSL, SSL_R_BAD_LENGTH);
    assert_int_equal(pair_receive(&p.server.st, (char[8]){0}, 8), 0);
    ERR_clear_error();
    pair_close(&p);
}

/* ---- Records cut anywhere ---- */

struct relay {
    int from, to;
    size_t piece;
    pthread_t thread;
};

static void *relay_main(void *arg)
{
    struct relay *r = arg;
    char buf[65536];
    ssize_t n;

    while ((n = recv(r->from, buf, r->piece, 0)) > 0) {
        for (ssize_t done = 0, k; done < n; done += k)
            if ((k = send(r->to, buf + done, (size_t)(n - done), MSG_NOSIGNAL)) <= 0)
                return NULL;
    }
    shutdown(r->to, SHUT_WR);
    return NULL;
}

/* A pair with relays between its ends that pass on so many bytes at a time. */
static void relayed_pair(struct pair *p, struct relay relays[2], size_t piece)
{
    int a[2], b[2];

    memset(p, 0, sizeof *p);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, a), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, b), 0);
    net_stream_init(&p->server.st, NULL, a[0], NULL);
    net_stream_init(&p->client.st, NULL, b[0], NULL);
    relays[0] = (struct relay){.from = a[1], .to = b[1], .piece = piece};
    relays[1] = (struct relay){.from = b[1], .to = a[1], .piece = piece};
    for (int i = 0; i < 2; i++)
        pthread_create(&relays[i].thread, NULL, relay_main, &relays[i]);
    p->server.params.server = true;
    p->server.params.tls = server_tls;
    p->client.params.tls = client_tls;
    p->client.params.host = "server.test";
    end_start(&p->server);
    end_start(&p->client);
    if (end_join(&p->server) < 0 || end_join(&p->client) < 0)
        fail_msg("server: %s; client: %s", p->server.error.text, p->client.error.text);
}

static void relayed_close(struct pair *p, struct relay relays[2])
{
    pair_close(p);
    for (int i = 0; i < 2; i++)
        pthread_join(relays[i].thread, NULL);
    for (int i = 0; i < 2; i++) /* only now: each is read by the other's thread */
        close(relays[i].to);
}

struct sending {
    struct net_stream *st;
    const uint8_t *data;
    size_t len, step;
    int result;
    pthread_t thread;
};

static void *sending_main(void *arg)
{
    struct sending *s = arg;

    for (size_t done = 0; done < s->len && s->result == 0;) {
        size_t n = s->len - done < s->step ? s->len - done : s->step;

        s->result = pair_send(s->st, s->data + done, n);
        done += n;
    }
    return NULL;
}

/* Receives len bytes with a buffer of `room`; returns whether they are `want`. */
static bool receive_all(struct net_stream *st, const uint8_t *want, size_t len, size_t room)
{
    uint8_t *buf = malloc(room);
    bool same = true;

    for (size_t done = 0; done < len && same;) {
        size_t size = len - done < room ? len - done : room;
        ssize_t n = pair_receive(st, buf, size);

        same = n > 0 && memcmp(buf, want + done, (size_t)n) == 0;
        done += n > 0 ? (size_t)n : 0;
    }
    free(buf);
    return same;
}

static void transfer(struct net_stream *from, struct net_stream *to, size_t len, size_t step,
                     size_t room)
{
    uint8_t *data = filled(len, (unsigned)(len + step + room));
    struct sending s = {.st = from, .data = data, .len = len, .step = step};

    pthread_create(&s.thread, NULL, sending_main, &s);
    bool same = receive_all(to, data, len, room);
    pthread_join(s.thread, NULL);
    free(data);
    if (!same || s.result != 0)
        fail_msg("%zu bytes, %zu at once, into %zu", len, step, room);
}

static void records_may_be_cut_anywhere(void **state)
{
    static const size_t pieces[] = {1, 2, 5, 21, 1000, 16400, 65536};
    static const size_t rooms[] = {1, 7, 100, 1024, 4000, 16384, 70000};

    (void)state;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        size_t len = pieces[i] < 100 ? 4000 : 200000;
        struct relay relays[2];
        struct pair p;

        relayed_pair(&p, relays, pieces[i]);
        for (size_t k = 0; k < sizeof rooms / sizeof *rooms; k++) {
            size_t n = rooms[k] < 100 ? 3000 : len;

            transfer(&p.client.st, &p.server.st, n, 1 + n / 3, rooms[k]);
            transfer(&p.server.st, &p.client.st, n, 40, rooms[k]);
        }
        relayed_close(&p, relays);
    }
}

/* B150: what has been decrypted is there without waiting for the network. */
static void bytes_that_were_decrypted_need_no_network(void **state)
{
    struct raw raw;
    struct end server;
    char buf[4];

    (void)state;
    raw_open(&raw, &server, server_tls, 0);
    assert_int_equal(SSL_write(raw.ssl, "onetwo", 6), 6);
    assert_int_equal(net_stream_await(&server.st, pair_soon(), 0), 0);
    assert_int_equal(net_stream_recv(&server.st, buf, 3), 3);
    assert_memory_equal(buf, "one", 3);
    assert_true(await_now(&server.st));
    assert_false(net_stream_recv_waits(&server.st));
    assert_int_equal(net_stream_recv(&server.st, buf, 3), 3);
    assert_memory_equal(buf, "two", 3);
    assert_false(await_now(&server.st));
    net_stream_close(&server.st);
    raw_close(&raw);
}

/* B152: a wait may end inside a record, and the record is still whole later. */
static void a_wait_may_end_inside_a_record(void **state)
{
    struct raw raw;
    struct end server;
    BIO *wire = BIO_new(BIO_s_mem());
    char record[256], buf[64];
    int len;

    (void)state;
    raw_open(&raw, &server, server_tls, 0);
    SSL_set0_wbio(raw.ssl, wire);
    assert_int_equal(SSL_write(raw.ssl, "a whole record", 14), 14);
    len = BIO_read(wire, record, sizeof record);
    for (int i = 0; i < len - 1; i++) {
        assert_int_equal(send(raw.fd, record + i, 1, MSG_NOSIGNAL), 1);
        assert_int_equal(net_stream_await(&server.st, pair_soon(), 0), 0);
        assert_int_equal(net_stream_recv(&server.st, buf, sizeof buf), -EAGAIN);
        assert_int_equal(net_stream_await(&server.st, TASK_NOW, 0), -ETIMEDOUT);
    }
    assert_int_equal(send(raw.fd, record + len - 1, 1, MSG_NOSIGNAL), 1);
    pair_expect(&server.st, "a whole record");
    net_stream_close(&server.st);
    raw_close(&raw);
}

/* ---- Full sockets ---- */

static ssize_t offer(struct net_stream *st, const uint8_t *data, size_t len)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};

    return net_stream_send(st, &iov, 1);
}

/* A send that the socket does not take whole is not told as whole, so that its caller goes on. */
static void a_full_socket_takes_less_than_is_offered(void **state)
{
    size_t len = 4 << 20, taken = 0;
    uint8_t *data = filled(len, 3), *buf = malloc(len);
    struct pair p;
    ssize_t n;

    (void)state;
    pair_open(&p, server_tls, client_tls, "server.test");
    while ((n = offer(&p.server.st, data + taken, len - taken)) > 0)
        taken += (size_t)n;
    assert_int_equal(n, -EAGAIN);
    assert_in_range(taken, 1, len - 1);
    assert_int_equal(net_stream_await_send(&p.server.st, TASK_NOW), -ETIMEDOUT);

    /* All that was told as taken arrives, and at most one record more is in between. */
    size_t got = 0;
    while (got < taken) {
        n = pair_receive(&p.client.st, buf + got, len - got);
        assert_true(n > 0);
        got += (size_t)n;
        if (got < taken && !await_now(&p.client.st)) { /* the rest is on our side */
            assert_int_equal(net_stream_await_send(&p.server.st, pair_soon()), 0);
            n = offer(&p.server.st, data + taken, len - taken);
            assert_true(n > 0 || n == -EAGAIN);
            taken += n > 0 ? (size_t)n : 0;
        }
    }
    assert_memory_equal(buf, data, got);
    pair_close(&p);
    free(data);
    free(buf);
}

/* Pieces of every length in all combinations, so that records end at every place of a piece. */
static void pieces_are_joined_in_order(void **state)
{
    static const size_t sizes[] = {0, 1, 2, 14, 1000, 16383, 16384, 16385};
    enum { N = sizeof sizes / sizeof *sizes, TOTAL = 3 * 16385 };
    uint8_t *data = filled(TOTAL, 9), *buf = malloc(TOTAL);
    struct pair p;

    (void)state;
    pair_open(&p, server_tls, client_tls, "server.test");
    for (int i = 0; i < N * N * N; i++) {
        size_t a = sizes[i % N], b = sizes[i / N % N], c = sizes[i / N / N];
        struct iovec iov[] = {{data, a}, {data + a, b}, {data + a + b, c}};
        size_t done = 0, got = 0;

        while (done < a + b + c) {
            struct iovec rest[3];
            size_t skip = done;

            for (int k = 0; k < 3; k++) {
                size_t n = skip < iov[k].iov_len ? skip : iov[k].iov_len;

                rest[k].iov_base = (uint8_t *)iov[k].iov_base + n;
                rest[k].iov_len = iov[k].iov_len - n;
                skip -= n;
            }
            ssize_t n = net_stream_send(&p.server.st, rest, 3);
            if (n < 0)
                assert_int_equal(n, -EAGAIN);
            else
                done += (size_t)n;
            while (await_now(&p.client.st)) {
                n = net_stream_recv(&p.client.st, buf + got, TOTAL - got);
                got += n > 0 ? (size_t)n : 0;
            }
        }
        while (got < done)
            got += (size_t)pair_receive(&p.client.st, buf + got, TOTAL - got);
        assert_int_equal(got, done);
        assert_memory_equal(buf, data, got);
    }
    pair_close(&p);
    free(data);
    free(buf);
}

/* ---- Key updates ---- */

static void update_keys(SSL *ssl, void *arg)
{
    *(int *)arg = SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED);
}

static void keys_change_while_data_flows(void **state)
{
    struct pair p;
    int ok = 0;

    (void)state;
    pair_open(&p, server_tls, client_tls, "server.test");
    net_tls_limit_updates(&p.server.st, 0);
    net_tls_limit_updates(&p.client.st, 0);
    for (int i = 0; i < 100; i++) {
        assert_true(net_tls_do(i % 2 ? &p.server.st : &p.client.st, update_keys, &ok) && ok == 1);
        assert_int_equal(pair_send(&p.client.st, "ping", 4), 0);
        pair_expect(&p.server.st, "ping");
        assert_int_equal(pair_send(&p.server.st, "pong", 4), 0);
        pair_expect(&p.client.st, "pong");
    }
    pair_close(&p);
}

/* B148: the peer asks for new keys while our sending side is full, fifty times. Reading goes on, and
 * what has to be answered leaves in order once there is room. */
static void key_updates_come_while_a_write_waits(void **state)
{
    size_t len = 8 << 20;
    uint8_t *data = filled(len, 5);
    struct sending s;
    struct pair p;
    int ok = 0;

    (void)state;
    pair_open(&p, server_tls, client_tls, "server.test");
    s = (struct sending){.st = &p.server.st, .data = data, .len = len, .step = len};
    pthread_create(&s.thread, NULL, sending_main, &s);
    for (int i = 0; i < 50; i++) {
        net_tls_do(&p.client.st, update_keys, &ok);
        assert_int_equal(ok, 1);
        assert_int_equal(pair_send(&p.client.st, "new keys", 8), 0);
        pair_expect(&p.server.st, "new keys");
    }
    assert_true(receive_all(&p.client.st, data, len, 50000));
    pthread_join(s.thread, NULL);
    assert_int_equal(s.result, 0);
    pair_close(&p);
    free(data);
}

/* An answer that only reading gave rise to, and for which the socket had no room, leaves although
 * nobody writes any more: when the reader waits. */
static void what_reading_gives_rise_to_leaves_by_itself(void **state)
{
    uint8_t *data = filled(1 << 20, 6), *buf = malloc(1 << 20), small[1000];
    struct pair p;
    size_t taken = 0, got = 0;
    int ok = 0;
    ssize_t n;

    (void)state;
    pair_open(&p, server_tls, client_tls, "server.test");
    /* Full to the brim, with all that was taken on its way. */
    while ((n = offer(&p.server.st, data + taken, 512)) > 0)
        taken += (size_t)n;
    net_tls_do(&p.client.st, update_keys, &ok);
    assert_int_equal(pair_send(&p.client.st, "x", 1), 0);
    pair_expect(&p.server.st, "x");
    /* The server's reader waits, for nothing; what was pending leaves meanwhile. */
    taken = (taken + 511) / 512 * 512;
    for (int64_t end = pair_soon(); got < taken && base_clock_ns() < end;) {
        while (await_now(&p.client.st)) {
            n = net_stream_recv(&p.client.st, buf + got, (1 << 20) - got);
            got += n > 0 ? (size_t)n : 0;
        }
        if (net_stream_await(&p.server.st, TASK_FOREVER, 1) == 0)
            assert_int_equal(net_stream_recv(&p.server.st, small, sizeof small), -EAGAIN);
    }
    assert_int_equal(got, taken);
    assert_memory_equal(buf, data, got);
    free(buf);
    pair_close(&p);
    free(data);
}

/* ---- Ends ---- */

static void a_proper_end_and_a_truncated_one_differ(void **state)
{
    struct raw raw;
    struct end server;
    struct net_tls_error e;
    char buf[8];

    (void)state;
    for (int proper = 0; proper < 2; proper++) {
        raw_open(&raw, &server, server_tls, 0);
        assert_int_equal(SSL_write(raw.ssl, "bye", 3), 3);
        if (proper)
            SSL_shutdown(raw.ssl);
        shutdown(raw.fd, SHUT_WR);
        pair_expect(&server.st, "bye");
        for (int i = 0; i < 3; i++) /* and stays so */
            assert_int_equal(pair_receive(&server.st, buf, sizeof buf), proper ? 0 : -ECONNABORTED);
        net_tls_last_error(&server.st, &e);
        assert_int_equal(strlen(e.text) > 0, !proper);
        /* Our side can still be written. */
        if (proper) {
            assert_int_equal(pair_send(&server.st, "you too", 7), 0);
            assert_int_equal(SSL_read(raw.ssl, buf, sizeof buf), 7);
        }
        net_stream_close(&server.st);
        raw_close(&raw);
    }
}

static void a_half_close_sends_close_notify_behind_the_data(void **state)
{
    struct raw raw;
    struct end server;
    char buf[8];

    (void)state;
    raw_open(&raw, &server, server_tls, 0);
    assert_int_equal(pair_send(&server.st, "last", 4), 0);
    net_stream_shutdown(&server.st, SHUT_WR);
    assert_int_equal(pair_send(&server.st, "more", 4), -EPIPE);
    assert_int_equal(SSL_read(raw.ssl, buf, sizeof buf), 4);
    assert_int_equal(SSL_read(raw.ssl, buf, sizeof buf), 0);
    assert_int_equal(SSL_get_error(raw.ssl, 0), SSL_ERROR_ZERO_RETURN);
    assert_int_equal(SSL_write(raw.ssl, "ok", 2), 2);
    pair_expect(&server.st, "ok");
    net_stream_close(&server.st);
    raw_close(&raw);
}

/* Status 141 would end the test: SIGPIPE has its default. */
static void a_peer_that_is_gone_is_an_error_not_a_signal(void **state)
{
    struct raw raw;
    struct end server;
    int r = 0;

    (void)state;
    raw_open(&raw, &server, server_tls, 0);
    close(raw.fd);
    raw.fd = -1;
    for (int i = 0; i < 10 && r == 0; i++)
        r = pair_send(&server.st, "anybody?", 8);
    assert_int_equal(r, -EPIPE);
    net_stream_shutdown(&server.st, SHUT_RDWR);
    net_stream_close(&server.st);
    raw_close(&raw);
}

static void a_forged_record_ends_it_with_a_reason(void **state)
{
    static const uint8_t forged[] = {23, 3, 3, 0, 20, 1, 2, 3, 4, 5, 6, 7, 8,
                                     9,  0, 1, 2, 3,  4, 5, 6, 7, 8, 9, 0};
    struct raw raw;
    struct end server;
    struct net_tls_error e;
    char buf[64];

    (void)state;
    raw_open(&raw, &server, server_tls, 0);
    assert_int_equal(SSL_write(raw.ssl, "good", 4), 4);
    assert_int_equal(send(raw.fd, forged, sizeof forged, 0), sizeof forged);
    pair_expect(&server.st, "good");
    assert_int_equal(pair_receive(&server.st, buf, sizeof buf), -EPROTO);
    net_tls_last_error(&server.st, &e);
    assert_non_null(strstr(e.text, "damaged or forged"));
    assert_int_not_equal(e.code, 0);
    /* The peer is told by an alert. */
    assert_true(SSL_read(raw.ssl, buf, sizeof buf) <= 0);
    assert_int_equal(ERR_GET_REASON(ERR_peek_error()), SSL_R_SSLV3_ALERT_BAD_RECORD_MAC);
    net_stream_close(&server.st);
    raw_close(&raw);
}

/* Whatever a handshake began with, the rest of a segment belongs to the stream behind it. */
static void data_may_come_with_the_end_of_the_handshake(void **state)
{
    struct pair p;
    struct relay relays[2];

    (void)state;
    for (int i = 0; i < 20; i++) {
        relayed_pair(&p, relays, 65536);
        assert_int_equal(pair_send(&p.client.st, "early bird", 10), 0);
        pair_expect(&p.server.st, "early bird");
        relayed_close(&p, relays);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_goes_both_ways),
        cmocka_unit_test(others_errors_do_no_harm),
        cmocka_unit_test(records_may_be_cut_anywhere),
        cmocka_unit_test(bytes_that_were_decrypted_need_no_network),
        cmocka_unit_test(a_wait_may_end_inside_a_record),
        cmocka_unit_test(a_full_socket_takes_less_than_is_offered),
        cmocka_unit_test(pieces_are_joined_in_order),
        cmocka_unit_test(keys_change_while_data_flows),
        cmocka_unit_test(key_updates_come_while_a_write_waits),
        cmocka_unit_test(what_reading_gives_rise_to_leaves_by_itself),
        cmocka_unit_test(a_proper_end_and_a_truncated_one_differ),
        cmocka_unit_test(a_half_close_sends_close_notify_behind_the_data),
        cmocka_unit_test(a_peer_that_is_gone_is_an_error_not_a_signal),
        cmocka_unit_test(a_forged_record_ends_it_with_a_reason),
        cmocka_unit_test(data_may_come_with_the_end_of_the_handshake),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
