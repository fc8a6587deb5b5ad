#ifndef LOAD_STREAM_H
#define LOAD_STREAM_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "options.h"

/* A non-blocking socket, with TLS on it or not. Results: bytes, 0 = end, or one of these. */
enum { STREAM_AGAIN = -1, STREAM_FAILED = -2 };

struct stream {
    int fd; /* -1 = none */
    SSL *ssl;
};

/* Client context for all wss:// connections; NULL with *why set. */
SSL_CTX *stream_context(const struct options *o, const char **why);

/* Puts TLS on a connected socket. Returns 0 or -1. */
int stream_start_tls(struct stream *s, SSL_CTX *ctx, const struct url *u, bool insecure);

/* 1 done, STREAM_AGAIN, STREAM_FAILED. *wants_write tells what to wait for. */
int stream_handshake(struct stream *s, bool *wants_write);

ssize_t stream_read(struct stream *s, void *buf, size_t n);
ssize_t stream_write(struct stream *s, const void *buf, size_t n);

/* Half-closes; best effort. */
void stream_shutdown(struct stream *s);
void stream_close(struct stream *s);

/* Why the last read or write failed. */
int stream_error(const struct stream *s);

#endif
