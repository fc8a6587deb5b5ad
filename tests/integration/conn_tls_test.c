/* What TLS adds to a connection: how it ends, what is known about it, who may have set it up. */
#include "support.h"
#include "support_tls.h"

#include "conn/conn.h"

#include <openssl/err.h>

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- A client that is OpenSSL alone ---- */

struct secure {
    SSL_CTX *ctx;
    SSL *ssl;
    int fd;
};

/* A bare TCP connection to the server, TLS not begun. */
static int dial_bare(const char *address)
{
    setenv("TWS_TEST_TLS", "", 1); /* no bridge: the test speaks TLS itself */
    int fd = client_dial(address);

    assert_true(fd >= 0);
    return fd;
}

static bool secure_connect(struct secure *s, const char *address)
{
    s->fd = dial_bare(address);
    s->ctx = SSL_CTX_new(TLS_client_method());
    s->ssl = SSL_new(s->ctx);
    SSL_set_fd(s->ssl, s->fd);
    SSL_set_tlsext_host_name(s->ssl, "localhost");
    return SSL_connect(s->ssl) == 1;
}

static void secure_upgrade(struct secure *s)
{
    char text[4096];
    size_t len = client_request(text, sizeof text, NULL), have = 0;

    assert_int_equal(SSL_write(s->ssl, text, (int)len), len);
    do {
        int n = SSL_read(s->ssl, text + have, (int)(sizeof text - 1 - have));

        assert_true(n > 0);
        have += (size_t)n;
        text[have] = 0;
    } while (!strstr(text, "\r\n\r\n"));
    assert_int_equal(strncmp(text, "HTTP/1.1 101 ", 13), 0);
}

static void secure_end(struct secure *s)
{
    SSL_free(s->ssl);
    SSL_CTX_free(s->ctx);
    if (s->fd >= 0)
        close(s->fd);
    memset(s, 0, sizeof *s);
    s->fd = -1;
    ERR_clear_error();
}

static void secure_send(struct secure *s, const char *text)
{
    uint8_t wire[256];
    size_t len = client_frame(wire, CLIENT_FIN | CLIENT_TEXT, text, strlen(text));

    assert_int_equal(SSL_write(s->ssl, wire, (int)len), len);
}

/* ---- A server whose connection is the test's ---- */

struct desk {
    struct support_server s;
    struct support_census before;
    struct secure client;
    tws_mutex *mu;
    tws_cond *changed;
    tws_conn *arrived; /* mu */
    bool released;     /* mu */
    tws_conn *conn;
};

static void desk_handler(tws_conn *c, void *arg)
{
    struct desk *d = arg;

    tws_mutex_lock(d->mu, 0);
    d->arrived = tws_conn_ref(c);
    tws_cond_broadcast(d->changed);
    while (!d->released)
        tws_cond_wait(d->changed, d->mu, 0);
    tws_mutex_unlock(d->mu);
}

static void desk_open(struct desk *d)
{
    tws_server_options opt;

    support_tls_server(); /* so that what it costs is not taken for something left behind */
    memset(d, 0, sizeof *d);
    d->before = support_census();
    d->mu = tws_mutex_new();
    d->changed = tws_cond_new();
    support_server_options(&opt, desk_handler, d);
    opt.tls = support_tls_server();
    support_server_start(&d->s, &opt);
    assert_true(secure_connect(&d->client, d->s.address));
    secure_upgrade(&d->client);
    tws_mutex_lock(d->mu, 0);
    while (!d->arrived)
        tws_cond_wait(d->changed, d->mu, 0);
    d->conn = d->arrived;
    tws_mutex_unlock(d->mu);
}

static void desk_close(struct desk *d)
{
    tws_mutex_lock(d->mu, 0);
    d->released = true;
    tws_cond_broadcast(d->changed);
    tws_mutex_unlock(d->mu);
    secure_end(&d->client);
    tws_conn_unref(d->conn);
    tws_server_free(d->s.server);
    tws_cond_free(d->changed);
    tws_mutex_free(d->mu);
    support_assert_census(d->before);
}

static void expect_text(tws_conn *c, const char *text)
{
    tws_message m;

    assert_ok(tws_read_message(c, &m));
    assert_string_equal(m.data, text);
}

/* ---- Reading ---- */

/* B150: two messages in one record are both there at once. */
static void two_messages_in_one_record(void **state)
{
    struct desk d;
    uint8_t wire[64];
    size_t len;

    (void)state;
    desk_open(&d);
    len = client_frame(wire, CLIENT_FIN | CLIENT_TEXT, "one", 3);
    len += client_frame(wire + len, CLIENT_FIN | CLIENT_TEXT, "two", 3);
    assert_int_equal(SSL_write(d.client.ssl, wire, (int)len), len);
    expect_text(d.conn, "one");
    tws_set_timeout(d.conn, TWS_TIMEOUT_READ, TWS_NOWAIT);
    expect_text(d.conn, "two");
    desk_close(&d);
}

/* B152: the read timeout runs out inside a record, and the next call goes on. */
static void a_read_timeout_inside_a_record(void **state)
{
    struct desk d;
    BIO *wire = BIO_new(BIO_s_mem());
    char record[256];
    tws_message m;
    int len;

    (void)state;
    desk_open(&d);
    SSL_set0_wbio(d.client.ssl, wire);
    secure_send(&d.client, "in two halves");
    len = BIO_read(wire, record, sizeof record);
    tws_set_timeout(d.conn, TWS_TIMEOUT_READ, 20);
    for (int half = 0; half < 2; half++) {
        int begin = half ? len / 2 : 0, end = half ? len : len / 2;

        assert_err(tws_read_message(d.conn, &m), TWS_ERR_TIMEOUT);
        assert_true(client_send_bytes(d.client.fd, record + begin, (size_t)(end - begin)));
    }
    tws_set_timeout(d.conn, TWS_TIMEOUT_READ, 0);
    expect_text(d.conn, "in two halves");
    desk_close(&d);
}

static void too_many_key_updates_end_the_connection(void **state)
{
    struct desk d;
    tws_message m;
    tws_error e;

    (void)state;
    desk_open(&d);
    for (int i = 0; i < 64; i++) {
        assert_int_equal(SSL_key_update(d.client.ssl, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
        secure_send(&d.client, "each with a message");
    }
    for (int i = 0; i < 64; i++)
        expect_text(d.conn, "each with a message");
    assert_int_equal(SSL_key_update(d.client.ssl, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
    secure_send(&d.client, "came together with it");
    expect_text(d.conn, "came together with it");
    assert_err(tws_read_message(d.conn, &m), TWS_ERR_FLOOD);
    tws_conn_error(d.conn, &e);
    assert_int_equal(e.cause, TWS_CAUSE_LIMIT);
    assert_int_equal(e.close_code, 1008);
    assert_non_null(strstr(e.text, "key updates or renegotiations in 10 seconds: 65, "
                                   "the limit is 64"));
    desk_close(&d);
}

/* ---- Ends ---- */

static void a_truncated_stream_is_told_from_an_ended_one(void **state)
{
    static const tws_err wanted[] = {TWS_ERR_TRUNCATED, TWS_ERR_EOF};
    tws_message m;
    tws_error e;

    (void)state;
    for (int proper = 0; proper < 2; proper++) {
        struct desk d;

        desk_open(&d);
        secure_send(&d.client, "last");
        if (proper)
            SSL_shutdown(d.client.ssl);
        shutdown(d.client.fd, SHUT_WR);
        expect_text(d.conn, "last");
        assert_err(tws_read_message(d.conn, &m), wanted[proper]);
        tws_conn_error(d.conn, &e);
        assert_int_equal(e.code, wanted[proper]);
        assert_int_equal(e.cause, TWS_CAUSE_PEER);
        assert_int_equal(e.phase, TWS_PHASE_READ);
        assert_int_equal(e.close_code, TWS_CLOSE_ABNORMAL);
        assert_int_equal(e.sys_errno, 0);
        desk_close(&d);
    }
}

static void a_forged_record_has_a_reason_of_its_own(void **state)
{
    static const uint8_t forged[] = {23, 3, 3, 0, 20, 1, 2, 3, 4, 5, 6, 7, 8,
                                     9,  0, 1, 2, 3,  4, 5, 6, 7, 8, 9, 0};
    struct desk d;
    tws_message m;
    tws_error e;

    (void)state;
    desk_open(&d);
    assert_true(client_send_bytes(d.client.fd, forged, sizeof forged));
    assert_err(tws_read_message(d.conn, &m), TWS_ERR_TLS);
    assert_err(tws_write_text(d.conn, "x"), TWS_ERR_TLS);
    tws_conn_error(d.conn, &e);
    assert_int_equal(e.code, TWS_ERR_TLS);
    assert_int_not_equal(e.tls_error, 0);
    assert_non_null(strstr(e.text, "damaged or forged"));
    desk_close(&d);
}

/* B154: a reader is blocked inside while others close and let go. */
static void closing_while_a_reader_is_inside(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct desk d;
        struct reader rd;

        desk_open(&d);
        reader_start(&rd, d.conn);
        reader_await(&rd);
        if (i % 2)
            tws_abort(d.conn);
        else
            assert_ok(tws_close_start(d.conn, TWS_CLOSE_NORMAL, NULL));
        assert_err(reader_join(&rd), TWS_ERR_CLOSED);
        desk_close(&d);
    }
}

/* B148: the peer asks for new keys fifty times while a write of 8 MiB waits for it. */
static void key_updates_while_a_write_waits(void **state)
{
    size_t len = 8 << 20, have = 0, total = len + 10;
    uint8_t *data = support_alloc(len), *got = support_alloc(total);
    struct writer_thread w;
    struct desk d;

    (void)state;
    support_fill(data, len, 1);
    desk_open(&d);
    writer_thread_start(&w, d.conn, data, len);
    support_await_blocked_write(d.conn);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(SSL_key_update(d.client.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
        secure_send(&d.client, "still here");
        expect_text(d.conn, "still here");
    }
    while (have < total) {
        int n = SSL_read(d.client.ssl, got + have, (int)(total - have));

        assert_true(n > 0);
        have += (size_t)n;
    }
    assert_ok(writer_thread_join(&w));
    assert_memory_equal(got + 10, data, len);
    desk_close(&d);
    free(data);
    free(got);
}

/* ---- What is known ---- */

static void ask(SSL *ssl, void *arg)
{
    *(int *)arg = SSL_is_server(ssl);
}

static void what_was_agreed_can_be_asked(void **state)
{
    struct desk d;
    tws_tls_info info;
    int server = 0;

    (void)state;
    desk_open(&d);
    assert_true(tws_conn_tls(d.conn, &info));
    assert_int_equal(info.version, TWS_TLS_1_3);
    assert_string_equal(info.server_name, "localhost");
    assert_false(info.has_certificate || info.verified || info.ktls || info.resumed);
    assert_int_not_equal(info.cipher[0], 0);
    assert_err(tws_conn_ssl_do(d.conn, NULL, NULL), TWS_ERR_ARGUMENT);
    assert_ok(tws_conn_ssl_do(d.conn, ask, &server));
    assert_int_equal(server, 1);
    desk_close(&d);
}

static void a_plain_connection_has_none_of_it(void **state)
{
    struct rig r;
    tws_tls_info info;
    int server = 0;

    (void)state;
    rig_open(&r, NULL);
    assert_false(tws_conn_tls(r.conn, &info));
    assert_int_equal(info.version, 0);
    assert_err(tws_conn_ssl_do(r.conn, ask, &server), TWS_ERR_STATE);
    rig_close(&r);
}

/* ---- Servers ---- */

static void an_address_may_be_plain(void **state)
{
    static const char *const listen[] = {"127.0.0.1:0", "plain:127.0.0.1:0"};
    tws_server_options opt;
    struct support_server s;
    tws_server_stats stats;
    struct secure secure;
    struct client plain;
    char address[64], answer[256];

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    opt.listen = listen;
    opt.listen_count = 2;
    opt.tls = support_tls_server();
    support_server_start(&s, &opt);
    assert_true(secure_connect(&secure, s.address));
    secure_upgrade(&secure);
    tws_server_address(s.server, 1, address, sizeof address);
    client_open(&plain, address);
    client_send_text(&plain, "plain");
    client_expect_text(&plain, "plain");
    assert_int_equal(client_http(s.address, "GET / HTTP/1.1\r\n\r\n", answer, sizeof answer), 400);
    WAIT_FOR((tws_server_get_stats(s.server, &stats), stats.tls_failed == 1));
    assert_int_equal(stats.tls_handshakes, 1);
    secure_end(&secure);
    client_close(&plain);
    tws_server_free(s.server);
}

/* A full server says so in TLS's own words, before any handshake. */
static void a_full_server_sends_an_alert(void **state)
{
    tws_server_options opt;
    struct support_server s;
    struct secure first, second;

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    opt.max_connections = 1;
    opt.tls = support_tls_server();
    support_server_start(&s, &opt);
    assert_true(secure_connect(&first, s.address));
    secure_upgrade(&first);
    assert_false(secure_connect(&second, s.address));
    assert_int_equal(ERR_GET_REASON(ERR_peek_error()), SSL_R_TLSV1_ALERT_INTERNAL_ERROR);
    secure_end(&first);
    secure_end(&second);
    tws_server_free(s.server);
}

/* Light stacks are 64 KiB; the handshake and a message must leave most of it to the handler. */
static void the_handshake_fits_into_a_light_stack(void **state)
{
    tws_server_options opt;
    struct support_server s;
    tws_server_stats stats;
    struct secure client;

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    opt.threads = TWS_THREADS_LIGHT;
    opt.measure_stacks = true;
    opt.tls = support_tls_server();
    support_server_start(&s, &opt);
    assert_true(secure_connect(&client, s.address));
    secure_upgrade(&client);
    secure_send(&client, "deep");
    char buf[16];
    assert_int_equal(SSL_read(client.ssl, buf, sizeof buf), 6);
    secure_end(&client);
    tws_server_drain(s.server, 0);
    tws_server_get_stats(s.server, &stats);
    assert_in_range(stats.deepest_stack, 1000, 40 * 1024);
    tws_server_free(s.server);
}

/* ---- TLS that somebody else has set up ---- */

struct adoption {
    int fd;
    bool read_first; /* the application has read part of the request */
    SSL_CTX *ctx;
    SSL **kept; /* NULL, or set to the SSL, with a reference */
    tws_err err;
    tws_error error;
};

static void *adopt_main(void *arg)
{
    struct adoption *a = arg;
    SSL *ssl = SSL_new(a->ctx);
    char early[20];
    int n = 0;
    tws_upgrade_options opt;
    tws_message m;
    tws_conn *c;

    SSL_set_fd(ssl, a->fd);
    SSL_set_read_ahead(ssl, 1); /* so that OpenSSL holds more than it was asked for */
    if (SSL_accept(ssl) != 1)
        abort();
    if (a->kept && SSL_up_ref(ssl))
        *a->kept = ssl;
    if (a->read_first)
        n = SSL_read(ssl, early, sizeof early);
    tws_upgrade_options_init(&opt);
    a->err = tws_upgrade_ssl(&c, ssl, a->fd, n > 0 ? early : NULL, n > 0 ? (size_t)n : 0, &opt,
                             &a->error);
    if (a->err)
        return NULL;
    while (tws_read_message(c, &m) == TWS_OK)
        tws_write_message(c, m.opcode, m.data, m.len);
    tws_conn_unref(c);
    return NULL;
}

static void an_ssl_of_the_application_is_taken_over(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct adoption a = {.read_first = i == 1, .ctx = SSL_CTX_new(TLS_server_method())};
        struct secure client;
        pthread_t thread;
        uint8_t buf[64], echo[] = {0x81, 5, 'h', 'e', 'l', 'l', 'o'};
        int fds[2];

        SSL_CTX_use_certificate(a.ctx, support_tls_leaf()->x509);
        SSL_CTX_use_PrivateKey(a.ctx, support_tls_leaf()->pkey);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        a.fd = fds[0];
        client.fd = fds[1];
        client.ctx = SSL_CTX_new(TLS_client_method());
        client.ssl = SSL_new(client.ctx);
        SSL_set_fd(client.ssl, client.fd);
        support_thread(&thread, adopt_main, &a);
        assert_int_equal(SSL_connect(client.ssl), 1);
        secure_upgrade(&client);
        for (int k = 0; k < 3; k++) {
            secure_send(&client, "hello");
            assert_int_equal(SSL_read(client.ssl, buf, sizeof buf), sizeof echo);
            assert_memory_equal(buf, echo, sizeof echo);
        }
        secure_end(&client);
        pthread_join(thread, NULL);
        assert_int_equal(a.err, TWS_OK);
        SSL_CTX_free(a.ctx);
    }
}

static void an_ssl_without_handshake_is_refused(void **state)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    tws_conn *c;
    tws_error e;
    int fds[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_err(tws_upgrade_ssl(&c, SSL_new(ctx), fds[0], NULL, 0, NULL, &e), TWS_ERR_STATE);
    assert_null(c);
    close(fds[1]);
    SSL_CTX_free(ctx);
}

/* The connection is gone before the caller's reference is: what it put into the SSL is, too. */
static void a_refused_request_leaves_nothing_in_the_ssl(void **state)
{
    struct adoption a = {.ctx = SSL_CTX_new(TLS_server_method())};
    struct secure client = {.ctx = SSL_CTX_new(TLS_client_method())};
    SSL *ssl;
    pthread_t thread;
    int fds[2];

    (void)state;
    SSL_CTX_use_certificate(a.ctx, support_tls_leaf()->x509);
    SSL_CTX_use_PrivateKey(a.ctx, support_tls_leaf()->pkey);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    a.fd = fds[0];
    a.kept = &ssl;
    client.fd = fds[1];
    client.ssl = SSL_new(client.ctx);
    SSL_set_fd(client.ssl, client.fd);
    support_thread(&thread, adopt_main, &a);
    assert_int_equal(SSL_connect(client.ssl), 1);
    assert_int_equal(SSL_write(client.ssl, "GET / HTTP/1.0\r\n\r\n", 18), 18);
    SSL_shutdown(client.ssl);
    pthread_join(thread, NULL);
    assert_int_not_equal(a.err, TWS_OK);
    assert_null(SSL_get_rbio(ssl));
    SSL_free(ssl);
    secure_end(&client);
    SSL_CTX_free(a.ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_messages_in_one_record),
        cmocka_unit_test(a_read_timeout_inside_a_record),
        cmocka_unit_test(a_truncated_stream_is_told_from_an_ended_one),
        cmocka_unit_test(a_forged_record_has_a_reason_of_its_own),
        cmocka_unit_test(closing_while_a_reader_is_inside),
        cmocka_unit_test(key_updates_while_a_write_waits),
        cmocka_unit_test(too_many_key_updates_end_the_connection),
        cmocka_unit_test(what_was_agreed_can_be_asked),
        cmocka_unit_test(a_plain_connection_has_none_of_it),
        cmocka_unit_test(an_address_may_be_plain),
        cmocka_unit_test(a_full_server_sends_an_alert),
        cmocka_unit_test(the_handshake_fits_into_a_light_stack),
        cmocka_unit_test(an_ssl_of_the_application_is_taken_over),
        cmocka_unit_test(an_ssl_without_handshake_is_refused),
        cmocka_unit_test(a_refused_request_leaves_nothing_in_the_ssl),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
