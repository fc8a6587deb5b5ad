/* tls_pair.h: two ends of one TLS connection over a pair of Unix sockets, in one process. */
#ifndef TESTS_SUPPORT_TLS_PAIR_H
#define TESTS_SUPPORT_TLS_PAIR_H

#include <pthread.h>

#include <tws/openssl.h>

#include "net/tls.h"
#include "pki.h"

/* ---- Roles ---- */

tws_tls_certificate pki_certificate(const struct pki *p);
/* With the test's own changes to the defaults; the test fails when it cannot be made. */
tws_tls *pair_server(const struct pki *p);
tws_tls *pair_server_with(const tws_tls_server_options *o);
/* trust: PEM; NULL: the system's. */
tws_tls *pair_client(const char *trust);
tws_tls *pair_client_with(const tws_tls_client_options *o);

/* ---- Ends ---- */

struct end {
    struct net_stream st;
    struct net_tls_params params;
    struct net_tls_error error;
    int result; /* of net_tls_wrap() */
    pthread_t thread;
};

struct pair {
    struct end server, client;
};

/* Plain streams, not wrapped yet. */
void pair_sockets(struct pair *p);
/* Both handshakes; see the results. */
void pair_shake(struct pair *p, tws_tls *server, tws_tls *client, const char *host);
/* The same; they must succeed. */
void pair_open(struct pair *p, tws_tls *server, tws_tls *client, const char *host);
void pair_close(struct pair *p);
/* Handshake on a thread of its own; the socket is shut down when it fails. */
void end_start(struct end *e);
int end_join(struct end *e);
int64_t pair_soon(void);

/* ---- A client that is OpenSSL alone, with a socket BIO ---- */

struct raw {
    SSL_CTX *ctx;
    SSL *ssl;
    int fd; /* -1: not made yet */
};
/* server: our end, plain; its handshake runs meanwhile. version 0: any. The test fails when it does
 * not succeed. */
void raw_open(struct raw *r, struct end *server, tws_tls *tls, int version);
/* The same without the client's handshake; end_join() when that is done. */
void raw_start(struct raw *r, struct end *server, tws_tls *tls, int version);
void raw_close(struct raw *r);

/* ---- Bytes ---- */

/* What one receive gives, waiting for it. */
ssize_t pair_receive(struct net_stream *st, void *buf, size_t len);
/* 0, or -errno. */
int pair_send(struct net_stream *st, const void *data, size_t len);
/* Exactly that text comes next. */
void pair_expect(struct net_stream *st, const char *text);

/* ---- What comes of it ---- */

/* Both handshakes succeed, a byte gets through, and the client has verified the server or not. */
void expect_accepted(tws_tls *server, tws_tls *client, const char *host, bool verified);
void assert_in(const char *text, const char *part);

#endif
