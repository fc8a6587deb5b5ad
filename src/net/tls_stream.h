/* tls_stream.h: one TLS stream, inside. */
#ifndef NET_TLS_STREAM_H
#define NET_TLS_STREAM_H

#include "net/tls.h"
#include "net/tls_context.h"

/*
 * Calls of one stream come from one reader and one writer at a time, from whoever shuts it down, and
 * from net_tls_do(). The SSL belongs to whoever holds mu; everything under "reader's" to the reader.
 */
struct net_tls {
    task_mutex mu; /* short: nothing waits under it, and no other lock is taken */
    SSL *ssl;      /* mu */
    const tws_allocator *allocator;
    struct tws_tls *shared;       /* a reference */
    struct tls_set *set, *other;  /* mu; references: what the handshake used, what on_sni chose */
    char *name;                   /* constant after the handshake: verified, or asked for; NULL */
    SSL_verify_cb foreign_verify; /* mu: the callback of an application's own context; NULL */

    struct task_socket *sock; /* mu: while somebody is inside */
    const uint8_t *in;        /* mu: ciphertext for OpenSSL to take while somebody is inside */
    size_t in_left;           /* mu */

    /* Ciphertext that the socket has not taken yet. */
    uint8_t *out;                /* mu */
    uint32_t out_begin;          /* mu */
    uint32_t out_cap;            /* mu */
    _Atomic uint32_t out_len;    /* mu; a hint for others */
    uint32_t room;               /* mu: bytes that the socket takes without being asked again */
    uint32_t room_max;           /* constant */
    int send_error;              /* mu: -errno of the socket's sending side; 0 */
    bool corked;                 /* mu: what OpenSSL sends is only collected */
    bool owed;                   /* mu: the last byte of a record in `out` was not told as taken */
    bool close_sent;             /* mu: our close_notify is in `out` or has left */
    bool shut_when_empty;        /* mu: shut the sending side down when `out` has left */
    struct net_tls_error *error; /* mu; NULL: none */
    uint32_t updates;            /* mu: key updates, attempts to renegotiate: since that time */
    uint32_t updates_max;        /* mu; 0: any number */
    int64_t updates_since;       /* mu */

    /* Reader's. */
    int failed;      /* -errno that reads return from now on; 0 */
    bool got_close;  /* the peer's close_notify has come */
    bool more;       /* there may be plaintext without another receive */
    bool received;   /* the call under way has taken bytes */
    bool tracked;    /* where records begin is known: the two below are right */
    uint8_t head[5]; /* of a record whose header is not whole */
    uint8_t head_len;
    uint16_t body_left;   /* bytes missing of the record that is being received */
    uint32_t barren;      /* receives in a row that gave no plaintext */
    int64_t barren_since; /* the first of them, or when silence was told of last */
    uint8_t *stash;       /* from shared->buffers: ciphertext that came too early; NULL */
    uint32_t stash_begin, stash_end;
};

/* ---- tls_bio.c ---- */

/* For the length of a stay under mu. */
void tls_enter_locked(struct net_tls *t, struct net_stream *st);
/* A BIO whose data is t. NULL: no memory. */
BIO *tls_bio_new(struct net_tls *t);
struct net_tls *tls_of(const SSL *ssl);
/* Sends what is pending, without waiting. 0 when nothing is left, -EAGAIN, or -errno. */
int tls_flush_locked(struct net_tls *t);

/* ---- tls_verify.c ---- */

/* Has OpenSSL verify that a server is t->name, and ask it for that. False: no memory. */
bool tls_verify_name(struct net_tls *t);

/* ---- tls_updates.c ---- */

/* Has what is limited counted from now on. */
void tls_updates_watch(struct net_tls *t);
void tls_updates_forget(struct net_tls *t);
bool tls_updates_too_many_locked(const struct net_tls *t);

/* ---- tls_error.c ---- */

/* Remembers the first failure. `code` from OpenSSL's queue, or 0 with a text of ours. */
void tls_note_locked(struct net_tls *t, unsigned long code, const char *text);
/* From the error queue; what an SSL call that failed for good means. -EPROTO, -EKEYREJECTED, -ENOMEM,
 * or the socket's -errno. */
int tls_failure_locked(struct net_tls *t, int ssl_error);
/* Why the chain is not accepted, noted for t. */
void tls_note_verify_locked(struct net_tls *t, X509_STORE_CTX *store);

/* ---- tls_stream.c ---- */

extern const struct net_stream_ops tls_stream_ops;
/* Ciphertext that has been received: where in a record it ends. */
void tls_track(struct net_tls *t, const uint8_t *data, size_t len);
/* Frees everything, the SSL too. */
void tls_free(struct net_tls *t);

#endif
