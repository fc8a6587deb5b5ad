/* TLS handshakes: versions, resumption, peers that stall or speak something else, lack of memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tls_pair.h"

#include <openssl/err.h>

static struct pki ca, leaf;

static int set_up(void **state)
{
    struct pki_spec authority = {.name = "Test CA", .ca = true};
    struct pki_spec server = {.name = "server", .alt = "DNS:server.test", .issuer = &ca};

    (void)state;
    pki_make(&ca, &authority);
    pki_make(&leaf, &server);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    pki_free(&ca);
    pki_free(&leaf);
    return 0;
}

/* The defaults of this file's server and client, for a test to change. */
static void options(tws_tls_server_options *so, tws_tls_certificate *c, tws_tls_client_options *co)
{
    *c = pki_certificate(&leaf);
    tws_tls_server_options_init(so);
    so->certificates = c;
    so->certificate_count = 1;
    tws_tls_client_options_init(co);
    co->ca_pem = ca.cert;
    co->ca_pem_len = strlen(ca.cert);
}

/* ---- Versions and ciphers ---- */

static void old_peers_get_1_2_with_a_modern_cipher(void **state)
{
    struct raw raw;
    struct end server;
    tws_tls *tls = pair_server(&leaf);
    tws_tls_info info;
    uint64_t got; /* bytes, of which there are none; then attempts */

    (void)state;
    raw_open(&raw, &server, tls, TLS1_2_VERSION);
    net_tls_describe(&server.st, &info);
    assert_int_equal(info.version, TWS_TLS_1_2);
    assert_in(info.cipher, "ECDHE");
    assert_true(strstr(info.cipher, "GCM") || strstr(info.cipher, "POLY1305"));
    /* Renegotiation is refused, and the connection lives. */
    fcntl(raw.fd, F_SETFL, O_NONBLOCK);
    assert_int_equal(SSL_renegotiate(raw.ssl), 1);
    SSL_do_handshake(raw.ssl);
    ERR_clear_error();
    assert_int_equal(pair_send(&server.st, "alive", 5), 0);
    assert_int_equal(net_stream_await(&server.st, pair_soon(), 0), 0);
    assert_int_equal(net_stream_recv(&server.st, &got, sizeof got), -EAGAIN);
    assert_true(net_tls_updates(&server.st, &got) == 64 && got == 1);
    net_stream_close(&server.st);
    raw_close(&raw);
    tws_tls_unref(tls);
}

static void a_version_below_the_least_is_refused_by_name(void **state)
{
    tws_tls_certificate c;
    tws_tls_server_options so;
    tws_tls_client_options co;
    tws_tls *server, *client;
    struct pair p;

    (void)state;
    options(&so, &c, &co);
    so.min_version = TWS_TLS_1_3;
    server = pair_server_with(&so);
    SSL_CTX *old = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_max_proto_version(old, TLS1_2_VERSION);
    assert_int_equal(tws_tls_from_ctx(&client, old, false), TWS_OK);
    SSL_CTX_free(old);
    pair_shake(&p, server, client, NULL);
    assert_int_equal(p.server.result, -EPROTO);
    assert_in(p.server.error.text, "min_version");
    assert_int_equal(p.client.result, -EPROTO);
    assert_in(p.client.error.text, "protocol_version");
    pair_close(&p);
    tws_tls_unref(server);
    tws_tls_unref(client);
}

static void no_common_cipher_is_said(void **state)
{
    tws_tls_certificate c;
    tws_tls_server_options so;
    tws_tls_client_options co;
    struct pair p;

    (void)state;
    options(&so, &c, &co);
    so.ciphersuites = "TLS_AES_128_GCM_SHA256";
    so.min_version = co.min_version = TWS_TLS_1_3;
    co.ciphersuites = "TLS_AES_256_GCM_SHA384";
    tws_tls *server = pair_server_with(&so), *client = pair_client_with(&co);
    pair_shake(&p, server, client, "server.test");
    assert_int_equal(p.server.result, -EPROTO);
    assert_in(p.server.error.text, "no cipher suite that both sides allow");
    assert_in(p.client.error.text, "refused the handshake");
    pair_close(&p);
    tws_tls_unref(server);
    tws_tls_unref(client);
}

static void other_protocols_than_http_1_1_are_refused(void **state)
{
    static const unsigned char h2[] = "\x02h2", both[] = "\x02h2\x08http/1.1";
    tws_tls *server = pair_server(&leaf), *client;
    struct pair p;
    tws_tls_info info;

    (void)state;
    for (int accept = 0; accept < 2; accept++) {
        SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());

        SSL_CTX_set_alpn_protos(ctx, accept ? both : h2, accept ? sizeof both - 1 : sizeof h2 - 1);
        assert_int_equal(tws_tls_from_ctx(&client, ctx, false), TWS_OK);
        SSL_CTX_free(ctx);
        pair_shake(&p, server, client, NULL);
        assert_int_equal(p.server.result, accept ? 0 : -EPROTO);
        net_tls_describe(&p.server.st, &info);
        if (accept)
            assert_string_equal(info.alpn, "http/1.1");
        else
            assert_in(p.server.error.text, "ALPN");
        pair_close(&p);
        tws_tls_unref(client);
    }
    tws_tls_unref(server);
}

/* ---- Sessions ---- */

/* Two connections one after the other; was the second resumed? */
static bool resumes(tws_tls *server, tws_tls *client, const char *host)
{
    tws_tls_info a = {0}, b = {0};

    for (int i = 0; i < 2; i++) {
        struct pair p;

        pair_open(&p, server, client, host);
        /* Tickets come with the first data. */
        assert_int_equal(pair_send(&p.server.st, "x", 1), 0);
        pair_expect(&p.client.st, "x");
        net_tls_describe(&p.client.st, &a);
        net_tls_describe(&p.server.st, &b);
        assert_int_equal(a.resumed, b.resumed);
        assert_true(a.verified && a.has_certificate);
        net_stream_shutdown(&p.client.st, SHUT_WR);
        pair_close(&p);
    }
    return a.resumed;
}

static void sessions_are_resumed_unless_switched_off(void **state)
{
    tws_tls_certificate c;
    tws_tls_server_options so;
    tws_tls_client_options co;

    (void)state;
    for (int version = 0; version < 2; version++) {
        for (int off = 0; off < 3; off++) {
            options(&so, &c, &co);
            so.no_tickets = off == 1;
            co.no_sessions = off == 2;
            tws_tls *server = pair_server_with(&so), *client = pair_client_with(&co);
            if (version == 0) { /* 1.2 */
                so.ciphersuites = "";
                tws_tls_unref(server);
                SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
                SSL_CTX_use_certificate(ctx, leaf.x509);
                SSL_CTX_use_PrivateKey(ctx, leaf.pkey);
                SSL_CTX_set_max_proto_version(ctx, TLS1_2_VERSION);
                if (so.no_tickets) {
                    SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET);
                    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
                }
                assert_int_equal(tws_tls_from_ctx(&server, ctx, true), TWS_OK);
                SSL_CTX_free(ctx);
            }
            assert_int_equal(resumes(server, client, "server.test"), off == 0);
            tws_tls_unref(server);
            tws_tls_unref(client);
        }
    }
}

/* New certificates end what was based on the old ones. */
static void a_reload_forgets_sessions(void **state)
{
    tws_tls *server = pair_server(&leaf), *client = pair_client(ca.cert);
    struct pair p;
    tws_tls_info info;

    (void)state;
    for (int which = 0; which < 2; which++) {
        assert_true(resumes(server, client, "server.test"));
        assert_int_equal(tws_tls_reload(which ? server : client, NULL), TWS_OK);
        pair_open(&p, server, client, "server.test");
        net_tls_describe(&p.server.st, &info);
        assert_false(info.resumed);
        pair_close(&p);
    }
    tws_tls_unref(server);
    tws_tls_unref(client);
}

/* A session stands for the name that was verified when it began. */
static void a_session_is_for_one_name(void **state)
{
    struct pki_spec spec = {.name = "two", .alt = "DNS:one.test,DNS:two.test", .issuer = &ca};
    struct pki two;
    struct pair p;
    tws_tls_info info;

    (void)state;
    pki_make(&two, &spec);
    tws_tls *server = pair_server(&two), *client = pair_client(ca.cert);
    assert_true(resumes(server, client, "one.test"));
    pair_open(&p, server, client, "two.test");
    net_tls_describe(&p.client.st, &info);
    assert_false(info.resumed);
    pair_close(&p);
    tws_tls_unref(server);
    tws_tls_unref(client);
    pki_free(&two);
}

/* A client's handshake for a name, with a session of before; what became of the server's. */
static int shake_for(tws_tls *server, const char *name, SSL_SESSION *before, SSL_SESSION **after)
{
    struct end end;
    struct raw raw;
    char x;
    int r;

    raw_start(&raw, &end, server, TLS1_3_VERSION);
    SSL_set_tlsext_host_name(raw.ssl, name);
    if (before)
        SSL_set_session(raw.ssl, before);
    SSL_connect(raw.ssl); /* done before the server has judged */
    r = end_join(&end);
    if (r == 0) {
        assert_int_equal(SSL_session_reused(raw.ssl), before != NULL);
        assert_int_equal(pair_send(&end.st, "x", 1), 0); /* tickets come before it */
        assert_int_equal(SSL_read(raw.ssl, &x, 1), 1);
        *after = SSL_get1_session(raw.ssl);
        SSL_set_shutdown(raw.ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    } else {
        assert_in(end.error.text, "session of another name");
    }
    raw_close(&raw);
    net_stream_close(&end.st);
    return r;
}

static tws_tls *inner_for_special(const char *name, void *inner)
{
    return name && strcmp(name, "special.test") == 0 ? inner : NULL;
}

/* A ticket of a name that asks for no certificate does not spare it where one is required. */
static void a_session_does_not_stand_in_for_a_certificate(void **state)
{
    tws_tls_certificate c;
    tws_tls_server_options so;
    tws_tls_client_options co;
    tws_tls *server, *inner;
    SSL_SESSION *first = NULL, *second = NULL;

    (void)state;
    options(&so, &c, &co);
    so.client_auth = TWS_CLIENT_AUTH_REQUIRE;
    so.client_ca_pem = ca.cert;
    so.client_ca_pem_len = strlen(ca.cert);
    inner = pair_server_with(&so);
    options(&so, &c, &co);
    so.on_sni = inner_for_special;
    so.sni_arg = inner;
    server = pair_server_with(&so);
    assert_int_equal(shake_for(server, "server.test", NULL, &first), 0);
    assert_int_equal(shake_for(server, "server.test", first, &second), 0);
    assert_int_equal(shake_for(server, "special.test", second, NULL), -EPROTO);
    SSL_SESSION_free(first);
    SSL_SESSION_free(second);
    tws_tls_unref(server);
    tws_tls_unref(inner);
}

/* ---- Peers that stall, leave, or speak something else ---- */

/* What a server says to these bytes, and what it answers. */
static int shake_with(const void *data, size_t len, bool end, struct net_tls_error *error,
                      char *answer, size_t size)
{
    tws_tls *tls = pair_server(&leaf);
    struct end server;
    int fds[2], r;
    ssize_t n;

    memset(&server, 0, sizeof server);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    net_stream_init(&server.st, NULL, fds[0], NULL);
    server.params.server = true;
    server.params.tls = tls;
    assert_int_equal(send(fds[1], data, len, MSG_NOSIGNAL), len);
    if (end)
        shutdown(fds[1], SHUT_WR);
    r = net_tls_wrap(&server.st, &server.params, task_deadline(end ? 30000 : 50), error);
    n = recv(fds[1], answer, size - 1, MSG_DONTWAIT);
    answer[n > 0 ? n : 0] = 0;
    assert_false(net_stream_is_tls(&server.st));
    net_stream_close(&server.st);
    close(fds[1]);
    tws_tls_unref(tls);
    return r;
}

static void a_plain_request_is_told_so(void **state)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    struct net_tls_error error;
    char answer[512];

    (void)state;
    assert_int_equal(shake_with(request, sizeof request - 1, true, &error, answer, sizeof answer),
                     -EPROTO);
    assert_in(error.text, "plain HTTP");
    assert_in(answer, "HTTP/1.1 400 Bad Request\r\n");
    assert_in(answer, "\r\n\r\nThis port speaks TLS");
    assert_int_equal(strlen(strstr(answer, "\r\n\r\n") + 4), 45);
}

static void a_peer_that_stalls_is_cut_by_the_deadline(void **state)
{
    static const uint8_t hello[] = {22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3};
    struct net_tls_error error;
    char answer[512];

    (void)state;
    for (size_t len = 0; len <= sizeof hello; len++) {
        assert_int_equal(shake_with(hello, len, false, &error, answer, sizeof answer), -ETIMEDOUT);
        assert_in(error.text, "in time");
        assert_int_equal(shake_with(hello, len, true, &error, answer, sizeof answer),
                         -ECONNABORTED);
        assert_in(error.text, "ended the connection during the TLS handshake");
    }
}

static void noise_is_refused(void **state)
{
    uint8_t noise[600];
    struct net_tls_error error;
    char answer[512];
    unsigned seed = 7;

    (void)state;
    for (int i = 0; i < 200; i++) {
        for (size_t k = 0; k < sizeof noise; k++)
            noise[k] = (uint8_t)((seed = seed * 1103515245 + 12345) >> 16);
        if (i % 2) { /* a hello that is none */
            memcpy(noise, (uint8_t[]){22, 3, 1, 2, 80, 1, 0, 2, 76, 3, 3}, 11);
            noise[43] = (uint8_t)(i % 33);
        }
        int r = shake_with(noise, sizeof noise, true, &error, answer, sizeof answer);
        assert_true(r == -EPROTO || r == -ECONNABORTED);
        assert_int_not_equal(error.text[0], 0);
    }
}

static void a_server_that_speaks_something_else_is_told_apart(void **state)
{
    static const char other[] = "SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n";
    tws_tls *client = pair_client(ca.cert);
    struct pair p;
    struct iovec iov = {.iov_base = (void *)(uintptr_t)other, .iov_len = sizeof other - 1};

    (void)state;
    pair_sockets(&p);
    assert_int_equal(net_stream_send(&p.server.st, &iov, 1), sizeof other - 1);
    p.client.params.tls = client;
    p.client.params.host = "server.test";
    end_start(&p.client);
    assert_int_equal(end_join(&p.client), -EPROTO);
    assert_in(p.client.error.text, "is not TLS");
    pair_close(&p);
    tws_tls_unref(client);
}

/* ---- Taken over ---- */

static void bytes_that_were_received_already_are_used(void **state)
{
    tws_tls *tls = pair_server(&leaf);
    struct raw raw = {.fd = -1};
    struct end server;
    int fds[2];
    char hello[4096];

    (void)state;
    memset(&server, 0, sizeof server);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    net_stream_init(&server.st, NULL, fds[0], NULL);
    raw.fd = fds[1];
    raw.ctx = SSL_CTX_new(TLS_client_method());
    raw.ssl = SSL_new(raw.ctx);
    SSL_set_fd(raw.ssl, raw.fd);
    SSL_set_connect_state(raw.ssl);
    server.params.server = true;
    server.params.tls = tls;
    fcntl(raw.fd, F_SETFL, O_NONBLOCK);
    assert_int_equal(SSL_get_error(raw.ssl, SSL_do_handshake(raw.ssl)), SSL_ERROR_WANT_READ);
    fcntl(raw.fd, F_SETFL, 0);
    server.params.buffered = hello;
    server.params.buffered_len = (size_t)recv(fds[0], hello, sizeof hello, 0);
    end_start(&server);
    assert_int_equal(SSL_do_handshake(raw.ssl), 1);
    assert_int_equal(end_join(&server), 0);
    assert_int_equal(SSL_write(raw.ssl, "hi", 2), 2);
    pair_expect(&server.st, "hi");
    net_stream_close(&server.st);
    raw_close(&raw);
    tws_tls_unref(tls);
}

/* ---- Lack of memory ---- */

struct meter {
    _Atomic long left; /* allocations until there is no more memory */
    _Atomic long used; /* blocks that are out */
};

static void *meter_alloc(size_t size, void *arg)
{
    struct meter *m = arg;
    void *block = atomic_fetch_sub(&m->left, 1) > 0 ? malloc(size) : NULL;

    if (block)
        atomic_fetch_add(&m->used, 1);
    return block;
}

static void *meter_resize(void *block, size_t size, void *arg)
{
    struct meter *m = arg;

    return atomic_fetch_sub(&m->left, 1) > 0 ? realloc(block, size) : NULL;
}

static void meter_release(void *block, void *arg)
{
    struct meter *m = arg;

    atomic_fetch_sub(&m->used, 1);
    free(block);
}

static void lack_of_memory_is_an_error_everywhere(void **state)
{
    struct meter m;
    tws_allocator a = {meter_alloc, meter_resize, meter_release, &m};
    tws_tls_certificate c;
    tws_tls_server_options so;
    tws_tls_client_options co;
    bool done = false;

    (void)state;
    options(&so, &c, &co);
    so.allocator = co.allocator = &a;
    so.ciphers = co.ciphers = "ECDHE+AESGCM";
    co.server_name = "server.test";
    atomic_init(&m.used, 0);
    for (long n = 0; !done; n++) {
        tws_tls *server = NULL, *client = NULL;
        struct pair p;
        tws_error e;
        tws_err err;

        atomic_store(&m.left, n);
        err = tws_tls_server_new(&server, &so, &e);
        if (!err)
            err = tws_tls_client_new(&client, &co, &e);
        if (err) {
            assert_int_equal(err, TWS_ERR_MEMORY);
        } else {
            pair_sockets(&p);
            p.server.params.tls = server;
            p.client.params.tls = client;
            p.client.params.host = "x";
            p.server.params.allocator = p.client.params.allocator = &a;
            end_start(&p.server);
            end_start(&p.client);
            end_join(&p.server);
            end_join(&p.client);
            done = p.server.result == 0 && p.client.result == 0;
            assert_true(done || p.server.result == -ENOMEM || p.client.result == -ENOMEM ||
                        p.server.result == -EPROTO);
            pair_close(&p);
        }
        tws_tls_unref(server);
        tws_tls_unref(client);
        assert_int_equal(atomic_load(&m.used), 0);
        assert_in_range(n, 0, 500);
    }
}

/* ---- Bytes that bring nothing ---- */

/* The next byte of a record that never ends has come; what waiting says then. */
static int await_crumb(struct raw *raw, struct net_stream *st, int64_t deadline, tws_ms period)
{
    char buf[4096];
    int r;

    assert_int_equal(send(raw->fd, "z", 1, MSG_NOSIGNAL), 1);
    r = net_stream_await(st, deadline, period);
    if (r == 0)
        assert_int_equal(net_stream_recv(st, buf, sizeof buf), -EAGAIN);
    return r;
}

/* A peer that drips a record is as silent as one that sends nothing, and no deadline waits for it. */
static void crumbs_of_a_record_are_silence(void **state)
{
    tws_tls *tls = pair_server(&leaf);
    struct end server;
    struct raw raw;
    int r, n = 0;

    (void)state;
    raw_open(&raw, &server, tls, 0);
    assert_int_equal(send(raw.fd, "\x17\x03\x03\x40", 4, MSG_NOSIGNAL), 4);
    while ((r = await_crumb(&raw, &server.st, pair_soon(), 1)) == 0)
        assert_in_range(++n, 1, 16000);
    assert_int_equal(r, -EAGAIN);
    while ((r = await_crumb(&raw, &server.st, TASK_NOW, 0)) == 0)
        assert_in_range(++n, 1, 16100);
    assert_int_equal(r, -ETIMEDOUT);
    net_stream_close(&server.st);
    raw_close(&raw);
    tws_tls_unref(tls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(old_peers_get_1_2_with_a_modern_cipher),
        cmocka_unit_test(a_version_below_the_least_is_refused_by_name),
        cmocka_unit_test(no_common_cipher_is_said),
        cmocka_unit_test(other_protocols_than_http_1_1_are_refused),
        cmocka_unit_test(sessions_are_resumed_unless_switched_off),
        cmocka_unit_test(a_reload_forgets_sessions),
        cmocka_unit_test(a_session_is_for_one_name),
        cmocka_unit_test(a_session_does_not_stand_in_for_a_certificate),
        cmocka_unit_test(a_plain_request_is_told_so),
        cmocka_unit_test(a_peer_that_stalls_is_cut_by_the_deadline),
        cmocka_unit_test(noise_is_refused),
        cmocka_unit_test(a_server_that_speaks_something_else_is_told_apart),
        cmocka_unit_test(bytes_that_were_received_already_are_used),
        cmocka_unit_test(lack_of_memory_is_an_error_everywhere),
        cmocka_unit_test(crumbs_of_a_record_are_silence),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
