#include "stream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

SSL_CTX *stream_context(const struct options *o, const char **why)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    if (ctx == NULL) {
        *why = "OpenSSL cannot make a context";
        return NULL;
    }
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    /* One recv for many records; conn_receive reads until nothing is left inside. */
    SSL_CTX_set_read_ahead(ctx, 1);
    SSL_CTX_set_verify(ctx, o->insecure ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
    int rc = o->ca != NULL ? SSL_CTX_load_verify_locations(ctx, o->ca, NULL)
                           : SSL_CTX_set_default_verify_paths(ctx);
    if (rc != 1) {
        *why = "--ca: the file holds no certificate that can be read";
        SSL_CTX_free(ctx);
        return NULL;
    }
    return ctx;
}

int stream_start_tls(struct stream *s, SSL_CTX *ctx, const struct url *u, bool insecure)
{
    unsigned char ip[sizeof(struct in6_addr)];
    bool is_ip = inet_pton(AF_INET, u->host, ip) == 1 || inet_pton(AF_INET6, u->host, ip) == 1;
    s->ssl = SSL_new(ctx);
    if (s->ssl == NULL || SSL_set_fd(s->ssl, s->fd) != 1)
        return -1;
    if (!is_ip && SSL_set_tlsext_host_name(s->ssl, u->host) != 1)
        return -1;
    if (!insecure) {
        X509_VERIFY_PARAM *param = SSL_get0_param(s->ssl);
        int rc = is_ip ? X509_VERIFY_PARAM_set1_ip_asc(param, u->host)
                       : X509_VERIFY_PARAM_set1_host(param, u->host, 0);
        if (rc != 1)
            return -1;
    }
    SSL_set_connect_state(s->ssl);
    return 0;
}

int stream_handshake(struct stream *s, bool *wants_write)
{
    ERR_clear_error();
    errno = 0;
    int rc = SSL_do_handshake(s->ssl);
    if (rc == 1)
        return 1;
    int why = SSL_get_error(s->ssl, rc);
    *wants_write = why == SSL_ERROR_WANT_WRITE;
    return why == SSL_ERROR_WANT_READ || *wants_write ? STREAM_AGAIN : STREAM_FAILED;
}

static ssize_t tls_result(struct stream *s, int rc)
{
    switch (SSL_get_error(s->ssl, rc)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return STREAM_AGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    case SSL_ERROR_SSL:
        /* A peer that closes TCP without close_notify is an ordinary end of stream here. */
        if (ERR_GET_REASON(ERR_peek_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING)
            return 0;
        errno = EPROTO;
        return STREAM_FAILED;
    default:
        return errno == 0 ? 0 : STREAM_FAILED;
    }
}

ssize_t stream_read(struct stream *s, void *buf, size_t n)
{
    errno = 0;
    if (s->ssl != NULL) {
        ERR_clear_error();
        int rc = SSL_read(s->ssl, buf, n < INT_MAX ? (int)n : INT_MAX);
        return rc > 0 ? rc : tls_result(s, rc);
    }
    ssize_t rc = recv(s->fd, buf, n, 0);
    if (rc >= 0)
        return rc;
    return errno == EAGAIN || errno == EINTR ? STREAM_AGAIN : STREAM_FAILED;
}

ssize_t stream_write(struct stream *s, const void *buf, size_t n)
{
    errno = 0;
    if (s->ssl != NULL) {
        ERR_clear_error();
        int rc = SSL_write(s->ssl, buf, n < INT_MAX ? (int)n : INT_MAX);
        return rc > 0 ? rc : tls_result(s, rc);
    }
    ssize_t rc = send(s->fd, buf, n, MSG_NOSIGNAL);
    if (rc >= 0)
        return rc;
    return errno == EAGAIN || errno == EINTR ? STREAM_AGAIN : STREAM_FAILED;
}

void stream_shutdown(struct stream *s)
{
    if (s->ssl != NULL)
        SSL_shutdown(s->ssl);
    shutdown(s->fd, SHUT_WR);
}

void stream_close(struct stream *s)
{
    SSL_free(s->ssl);
    s->ssl = NULL;
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

int stream_error(const struct stream *s)
{
    int err = 0;
    socklen_t len = sizeof err;
    if (errno != 0 && errno != EPROTO)
        return errno;
    if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0)
        return errno;
    return err != 0 ? err : EPROTO;
}
