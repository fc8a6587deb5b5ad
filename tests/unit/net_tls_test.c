/* TLS streams on a pair of sockets: the handshake, records cut anywhere, ends of all kinds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/tls.h"
#include "pki.h"

#include <tws/openssl.h>

#define HANG_NS (INT64_C(30) * 1000000000)

/* ---- What all tests use: an authority, a server's certificate, and both roles ---- */

static struct pki ca, leaf;
static tws_tls *server_tls, *client_tls;

static tws_tls *make_server(const struct pki *p)
{
    tws_tls_certificate c = {.cert_pem = p->cert,
                             .cert_pem_len = strlen(p->cert),
                             .key_pem = p->key,
                             .key_pem_len = strlen(p->key)};
    tws_tls_server_options o;
    tws_tls *tls;
    tws_error e;

    tws_tls_server_options_init(&o);
    o.certificates = &c;
    o.certificate_count = 1;
    if (tws_tls_server_new(&tls, &o, &e) != TWS_OK)
        fail_msg("%s", e.text);
    return tls;
}

static tws_tls *make_client(const char *trust)
{
    tws_tls_client_options o;
    tws_tls *tls;
    tws_error e;

    tws_tls_client_options_init(&o);
    o.ca_pem = trust;
    o.ca_pem_len = strlen(trust);
    if (tws_tls_client_new(&tls, &o, &e) != TWS_OK)
        fail_msg("%s", e.text);
    return tls;
}

static int set_up(void **state)
{
    struct pki_spec authority = {.name = "Test CA", .ca = true};
    struct pki_spec server = {
        .name = "server", .alt = "DNS:server.test,IP:127.0.0.1,IP:::1", .issuer = &ca};

    (void)state;
    pki_make(&ca, &authority);
    pki_make(&leaf, &server);
    server_tls = make_server(&leaf);
    client_tls = make_client(ca.cert);
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

/* ---- Two ends ---- */

struct end {
    struct net_stream st;
    struct net_tls_params params;
    struct net_tls_error error;
    int result;
    pthread_t thread;
};

static int64_t soon(void)
{
    return task_deadline(30000);
}

static void *wrap_main(void *arg)
{
    struct end *e = arg;

    e->result = net_tls_wrap(&e->st, &e->params, soon(), &e->error);
    if (e->result < 0)
        net_stream_shutdown(&e->st, SHUT_RDWR);
    return NULL;
}

struct pair {
    struct end server, client;
};

static void pair_sockets(struct pair *p)
{
    int fds[2];

    memset(p, 0, sizeof *p);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    assert_int_equal(net_stream_init(&p->server.st, NULL, fds[0], false), 0);
    assert_int_equal(net_stream_init(&p->client.st, NULL, fds[1], false), 0);
    p->server.params.server = true;
}

static void pair_shake(struct pair *p, tws_tls *server, tws_tls *client, const char *host)
{
    pair_sockets(p);
    p->server.params.tls = server;
    p->client.params.tls = client;
    p->client.params.host = host;
    pthread_create(&p->server.thread, NULL, wrap_main, &p->server);
    wrap_main(&p->client);
    pthread_join(p->server.thread, NULL);
}

static void pair_open(struct pair *p)
{
    pair_shake(p, server_tls, client_tls, "server.test");
    if (p->server.result < 0 || p->client.result < 0)
        fail_msg("server: %s; client: %s", p->server.error.text, p->client.error.text);
}

static void pair_close(struct pair *p)
{
    net_stream_close(&p->server.st);
    net_stream_close(&p->client.st);
}

static ssize_t receive(struct net_stream *st, void *buf, size_t len)
{
    ssize_t n;

    do {
        n = net_stream_await(st, soon(), 0);
        if (n == 0)
            n = net_stream_recv(st, buf, len);
    } while (n == -EAGAIN);
    return n;
}

static int send_all(struct net_stream *st, const void *data, size_t len)
{
    const char *p = data;

    while (len > 0) {
        struct iovec iov = {.iov_base = (void *)(uintptr_t)p, .iov_len = len};
        ssize_t n = net_stream_send(st, &iov, 1);

        if (n == -EAGAIN)
            n = net_stream_await_send(st, soon());
        if (n < 0)
            return (int)n;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

static void expect(struct net_stream *st, const char *text)
{
    char buf[256] = "";
    size_t have = 0;

    while (have < strlen(text)) {
        ssize_t n = receive(st, buf + have, sizeof buf - 1 - have);

        if (n <= 0)
            fail_msg("%s instead of \"%s\"", n < 0 ? strerror((int)-n) : "the end", text);
        have += (size_t)n;
        buf[have] = 0; /* a receive may leave ciphertext behind what it returns */
    }
    assert_string_equal(buf, text);
}

/* ---- Tests ---- */

static void a_message_goes_both_ways(void **state)
{
    struct pair p;
    tws_tls_info info;

    (void)state;
    pair_open(&p);
    assert_int_equal(send_all(&p.client.st, "hello", 5), 0);
    expect(&p.server.st, "hello");
    assert_int_equal(send_all(&p.server.st, "world", 5), 0);
    expect(&p.client.st, "world");
    net_tls_describe(&p.client.st, &info);
    assert_int_equal(info.version, TWS_TLS_1_3);
    assert_true(info.verified);
    assert_string_equal(info.alpn, "http/1.1");
    assert_string_equal(info.peer_subject, "CN=server");
    net_tls_describe(&p.server.st, &info);
    assert_string_equal(info.server_name, "server.test");
    assert_false(info.has_certificate);
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_goes_both_ways),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
