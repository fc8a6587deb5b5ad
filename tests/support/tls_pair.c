#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tls_pair.h"

#include <openssl/err.h>

/* ---- Roles ---- */

tws_tls_certificate pki_certificate(const struct pki *p)
{
    return (tws_tls_certificate){.cert_pem = p->cert,
                                 .cert_pem_len = strlen(p->cert),
                                 .key_pem = p->key,
                                 .key_pem_len = strlen(p->key)};
}

tws_tls *pair_server_with(const tws_tls_server_options *o)
{
    tws_tls *tls;
    tws_error e;

    if (tws_tls_server_new(&tls, o, &e) != TWS_OK)
        fail_msg("%s", e.text);
    return tls;
}

tws_tls *pair_server(const struct pki *p)
{
    tws_tls_certificate c = pki_certificate(p);
    tws_tls_server_options o;

    tws_tls_server_options_init(&o);
    o.certificates = &c;
    o.certificate_count = 1;
    return pair_server_with(&o);
}

tws_tls *pair_client_with(const tws_tls_client_options *o)
{
    tws_tls *tls;
    tws_error e;

    if (tws_tls_client_new(&tls, o, &e) != TWS_OK)
        fail_msg("%s", e.text);
    return tls;
}

tws_tls *pair_client(const char *trust)
{
    tws_tls_client_options o;

    tws_tls_client_options_init(&o);
    o.ca_pem = trust;
    o.ca_pem_len = trust ? strlen(trust) : 0;
    return pair_client_with(&o);
}

/* ---- Ends ---- */

int64_t pair_soon(void)
{
    return task_deadline(30000);
}

static void *wrap_main(void *arg)
{
    struct end *e = arg;

    e->result = net_tls_wrap(&e->st, &e->params, pair_soon(), &e->error);
    if (e->result < 0)
        net_stream_shutdown(&e->st, SHUT_RDWR);
    return NULL;
}

void end_start(struct end *e)
{
    assert_int_equal(pthread_create(&e->thread, NULL, wrap_main, e), 0);
}

int end_join(struct end *e)
{
    pthread_join(e->thread, NULL);
    return e->result;
}

void pair_sockets(struct pair *p)
{
    int fds[2];

    memset(p, 0, sizeof *p);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(net_stream_init(&p->server.st, NULL, fds[0], NULL), 0);
    assert_int_equal(net_stream_init(&p->client.st, NULL, fds[1], NULL), 0);
    p->server.params.server = true;
}

void pair_shake(struct pair *p, tws_tls *server, tws_tls *client, const char *host)
{
    pair_sockets(p);
    p->server.params.tls = server;
    p->client.params.tls = client;
    p->client.params.host = host;
    end_start(&p->server);
    wrap_main(&p->client);
    end_join(&p->server);
}

void pair_open(struct pair *p, tws_tls *server, tws_tls *client, const char *host)
{
    pair_shake(p, server, client, host);
    if (p->server.result < 0 || p->client.result < 0)
        fail_msg("server: %s; client: %s", p->server.error.text, p->client.error.text);
}

void pair_close(struct pair *p)
{
    net_stream_close(&p->server.st);
    net_stream_close(&p->client.st);
}

/* ---- OpenSSL alone ---- */

void raw_start(struct raw *r, struct end *server, tws_tls *tls, int version)
{
    int fds[2];

    memset(server, 0, sizeof *server);
    memset(r, 0, sizeof *r);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(net_stream_init(&server->st, NULL, fds[0], NULL), 0);
    r->fd = fds[1];
    server->params.server = true;
    server->params.tls = tls;
    end_start(server);
    r->ctx = SSL_CTX_new(TLS_client_method());
    if (version)
        SSL_CTX_set_max_proto_version(r->ctx, version);
    r->ssl = SSL_new(r->ctx);
    SSL_set_fd(r->ssl, r->fd);
}

void raw_open(struct raw *r, struct end *server, tws_tls *tls, int version)
{
    raw_start(r, server, tls, version);
    assert_int_equal(SSL_connect(r->ssl), 1);
    assert_int_equal(end_join(server), 0);
}

void raw_close(struct raw *r)
{
    SSL_free(r->ssl);
    SSL_CTX_free(r->ctx);
    if (r->fd >= 0)
        close(r->fd);
    ERR_clear_error();
}

/* ---- Bytes ---- */

ssize_t pair_receive(struct net_stream *st, void *buf, size_t len)
{
    return net_stream_recv_by(st, buf, len, pair_soon());
}

int pair_send(struct net_stream *st, const void *data, size_t len)
{
    return net_stream_send_by(st, data, len, pair_soon());
}

void pair_expect(struct net_stream *st, const char *text)
{
    char buf[256] = "";
    size_t have = 0;

    while (have < strlen(text)) {
        ssize_t n = pair_receive(st, buf + have, sizeof buf - 1 - have);

        if (n <= 0)
            fail_msg("%s instead of \"%s\"", n < 0 ? strerror((int)-n) : "the end", text);
        have += (size_t)n;
        buf[have] = 0; /* a receive may leave ciphertext behind what it returns */
    }
    assert_string_equal(buf, text);
}

void expect_accepted(tws_tls *server, tws_tls *client, const char *host, bool verified)
{
    struct pair pair;
    tws_tls_info info;

    pair_open(&pair, server, client, host);
    net_tls_describe(&pair.client.st, &info);
    assert_int_equal(info.verified, verified);
    assert_int_equal(pair_send(&pair.client.st, "x", 1), 0);
    pair_expect(&pair.server.st, "x");
    pair_close(&pair);
}

void assert_in(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" does not say \"%s\"", text, part);
}
