/*
 * deflate.h: permessage-deflate of a connection (RFC 7692 section 7.2), for writers.
 *
 * How a message is sent compressed:
 *
 *     if (conn_deflate_wanted(c, mode, len)) {
 *         // take the writer's role now if conn_deflate_ordered(c), else when the frame is sent
 *         err = conn_deflate_message(c, iov, count, &d);
 *         // d.data: send it with rsv WIRE_RSV1; NULL: send the original, without it
 *         conn_deflated_free(c->env, &d);
 *     }
 */
#ifndef CONN_DEFLATE_H
#define CONN_DEFLATE_H

#include <tws/deflate.h>

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct conn_env;
struct deflate_params;
struct http_head;

/* ---- Setting up ---- */

/* Copies options that may be shorter or longer than ours. TWS_OK; TWS_ERR_ARGUMENT, or
 * TWS_ERR_UNSUPPORTED in a build without zlib (deflate_none.c), with *what saying why. */
tws_err conn_deflate_options(tws_deflate_options *out, const tws_deflate_options *in,
                             const char **what);
/* The connections of env may compress, in this way; before the first of them. False: no memory. */
bool conn_env_deflate(struct conn_env *env, const tws_deflate_options *opt);
/* What to negotiate, as that side. False: env's connections do not compress. */
bool conn_deflate_want(const struct conn_env *env, bool server, struct deflate_params *want);
/* Compressors and decompressors that exist, lent and spare. */
uint32_t conn_deflate_streams(struct conn_env *env);
/* A server's: judges the offers of a request and writes the answer's value, terminated, into text
 * (DEFLATE_TEXT_MAX). Its length; 0: no compression. */
size_t conn_deflate_answer(const struct conn_env *env, const struct http_head *head,
                           const uint8_t *buf, struct deflate_params *agreed, char *text);
/* This connection compresses as agreed; before its first read or write. False: no memory. */
bool conn_deflate_start(tws_conn *c, const struct deflate_params *agreed);
/* The same with conn_deflate_size() aligned bytes that live as long as the connection. */
void conn_deflate_start_in(tws_conn *c, const struct deflate_params *agreed, void *mem);
size_t conn_deflate_size(void);

/* ---- Messages ---- */

/* Free bytes in front of compressed data, for a frame header. */
#define CONN_DEFLATED_ROOM 16

/* A message's compressed payload, without the last four bytes (RFC 7692 7.2.1). */
struct conn_deflated {
    uint8_t *data; /* NULL: the message is to be sent as it is */
    size_t len, cap;
    uint64_t original; /* bytes it was made from */
    bool pooled;       /* data is from env->buffers */
};

/* Whether a message is to be compressed. Any thread. */
bool conn_deflate_wanted(tws_conn *c, tws_compression mode, uint64_t len);
/* The mode that tws_set_compression() has set. */
tws_compression conn_deflate_mode(tws_conn *c);
/* Messages refer to earlier ones: they must be compressed in the order in which they leave, by who
 * has the writer's role. Constant. */
bool conn_deflate_ordered(const tws_conn *c);
/*
 * Compresses one message. TWS_OK also when d->data is NULL, because it did not get smaller
 * and there is a threshold;
 * TWS_ERR_MEMORY: d->data is NULL too, and the message may be sent as it is.
 * When conn_deflate_ordered(): caller has the writer's role and sends the result before it gives
 * that back; else it calls conn_deflate_reset().
 */
tws_err conn_deflate_message_as(tws_conn *c, tws_compression mode, const struct iovec *iov,
                                int count, struct conn_deflated *d);
/* The same in the mode of the connection. */
static inline tws_err conn_deflate_message(tws_conn *c, const struct iovec *iov, int count,
                                           struct conn_deflated *d)
{
    return conn_deflate_message_as(c, conn_deflate_mode(c), iov, count, d);
}
/* The message has been sent or held: it is counted. Writer's role. */
void conn_deflate_count(tws_conn *c, const struct conn_deflated *d);
void conn_deflated_free(struct conn_env *env, struct conn_deflated *d);
/* Forgets earlier messages: after a compressed message that was not sent, or one that was sent but
 * not made by this connection (a prepared one). Writer's role. Does nothing where there is nothing
 * to forget. */
void conn_deflate_reset(tws_conn *c);

/* ---- Prepared messages: compressed once for all connections that agreed on the same ---- */

struct conn_deflate_form {
    uint8_t level, memory_level, window_bits;
};
#define CONN_DEFLATE_FORM_KEY(f) ((f).level | (f).memory_level << 4 | (f).window_bits << 8)

/* What the connection's messages are compressed with. False: it does not compress. */
bool conn_deflate_form(const tws_conn *c, struct conn_deflate_form *form);
/*
 * Compresses a message by itself, for any connection with that form. As conn_deflate_message().
 * Send it with WIRE_RSV1, then conn_deflate_count() and conn_deflate_reset() on that connection.
 */
tws_err conn_deflate_once(struct conn_env *env, struct conn_deflate_form form, const void *data,
                          size_t len, struct conn_deflated *d);

#endif
