/*
 * tls.h: TLS over a connected stream.
 *
 * An SSL must not be used by two threads at once, and a connection is read by one thread while
 * others write. So each SSL has one short lock, never held while a thread waits for the network:
 * ciphertext is received outside of it and decrypted inside; what OpenSSL wants to send is tried on
 * the socket inside, without waiting, and what the socket does not take is kept in order and leaves
 * with the next send, or when the reader runs next.
 *
 * Ciphertext is received into the caller's own buffer and decrypted in place, since a record's
 * plaintext is shorter than the record: a waiting reader needs no buffer beside the one that plain
 * sockets need, and an idle connection holds none at all.
 */
#ifndef NET_TLS_H
#define NET_TLS_H

#include <tws/tls.h>

#include "net/stream.h"

/* What went wrong in TLS, for a person. */
struct net_tls_error {
    unsigned long code; /* OpenSSL's, or 0 */
    long verify;        /* X509_V_ERR_*, or 0: why a certificate was not accepted */
    char text[200];     /* "" when nothing did */
};

struct ssl_st;

struct net_tls_params {
    struct tws_tls *tls;  /* referenced as long as the stream lives */
    struct ssl_st *ssl;   /* instead of tls: its handshake is done; a reference is taken */
    bool server;          /* our role */
    const char *host;     /* a client's: verified, and sent as SNI unless it is an address.
                             Without brackets. Not needed after the call. */
    const void *buffered; /* ciphertext that was received already; copied */
    size_t buffered_len;
    const tws_allocator *allocator;
};

/*
 * Does the TLS handshake on a plain stream; afterwards the stream's calls are TLS. On failure the
 * stream is plain again (an alert has been sent where that makes sense), to be closed.
 *
 * 0, or -errno: -ETIMEDOUT; -EKEYREJECTED: a certificate was not accepted, by us or by the peer;
 * -EPROTO: TLS failed otherwise; -ECONNABORTED: the peer ended the connection; -ENOMEM; other errors
 * of the socket. *err is filled for all of them.
 *
 * Afterwards net_stream_recv: 0 when the peer has ended TLS properly, -ECONNABORTED when the stream
 * ended without that, -EPROTO when TLS failed, -ENOMEM when it did for lack of memory. A
 * send takes -EAGAIN, or fewer bytes than offered, as with plain streams; bytes that were not taken
 * must be offered again, first thing.
 */
int net_tls_wrap(struct net_stream *st, const struct net_tls_params *p, int64_t deadline,
                 struct net_tls_error *err);

static inline bool net_stream_is_tls(const struct net_stream *st)
{
    return st->tls != NULL;
}

/* The reader's: a receive would not wait, whatever the socket says. */
bool net_tls_readable(const struct net_stream *st);
/* How soon the reader has to come back to send what the socket did not take; 0: no need. */
tws_ms net_tls_pending(const struct net_stream *st);
/* The calling thread has done its handshakes: gives back what OpenSSL keeps for it, mostly generators
 * of random numbers. */
void net_tls_thread_trim(void);
/* Version (0x0303, 0x0304) and whether a session was resumed. Of a TLS stream. */
void net_tls_agreed(struct net_stream *st, int *version, bool *resumed);
/* How many key updates and attempts to renegotiate a peer may send in 10 s; 0: any number. Beyond
 * that net_stream_recv gives -EOVERFLOW. Of a plain stream: nothing. */
void net_tls_limit_updates(struct net_stream *st, uint32_t most);
/* That number, and how many there have been. */
uint32_t net_tls_updates(struct net_stream *st, uint64_t *got);
/* Emptied when the stream is not TLS. */
void net_tls_describe(struct net_stream *st, tws_tls_info *out);
/* Why a TLS stream failed; code 0 and "" when it did not. */
void net_tls_last_error(struct net_stream *st, struct net_tls_error *err);
/* Runs fn on the SSL under the lock, then sends what that gave rise to. False: not TLS. */
bool net_tls_do(struct net_stream *st, void (*fn)(struct ssl_st *ssl, void *arg), void *arg);

#endif
