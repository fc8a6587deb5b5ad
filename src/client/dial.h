/* dial.h: one tws_dial(), inside. */
#ifndef CLIENT_DIAL_H
#define CLIENT_DIAL_H

#include <tws/client.h>

#include "client/proxy.h"
#include "conn/conn.h"
#include "conn/deflate.h"
#include "net/tls.h"
#include "task/cancel.h"
#include "wire/deflate.h"
#include "wire/handshake.h"

struct tws_cancel {
    struct task_cancel task;
};

/* An answer's head, as it is received. */
struct dial_answer {
    uint8_t *buf; /* max_head_bytes, then the field table; NULL: not yet */
    size_t len;   /* received; behind head.head_len stands what follows */
    struct http_head head;
};

/* Connections with equal options may share an environment. Compared byte by byte. */
struct dial_env_key {
    bool compress;
    tws_deflate_options deflate; /* whole and valid, if compress */
    tws_queue_options queue;
};

struct dial {
    tws_dial_options o; /* pointers lead to the caller's */
    const tws_allocator *allocator;
    tws_error *error;
    struct task_cancel *cancel;   /* NULL: nobody can */
    struct task_runtime *runtime; /* NULL: a thread of the application's own */
    int64_t deadline;

    /* Where it goes; changed by redirects. */
    char *url_text; /* owned; what url points into */
    struct wire_url url;
    bool trusted; /* the host that the caller named: credentials may go there */
    uint32_t redirects;

    /* The way there. */
    struct proxy proxy;
    tws_tls *tls; /* referenced; NULL: not needed so far */
    struct net_stream stream;
    bool open; /* stream is; while it is, link ends its waits */
    struct task_cancel_link link;

    struct dial_env_key key;
    struct conn_env *env; /* referenced; NULL: not yet */
    char nonce[HANDSHAKE_KEY_LEN + 1];
    char extensions[DEFLATE_TEXT_MAX]; /* that are offered; "" for none */
    struct deflate_answer deflate;
    struct dial_answer answer;
    bool fd_given;
    bool keep_response;
    uint32_t retry_after;   /* seconds, of a refusal that says so; 0: it does not */
    tws_response *response; /* owned */
    tws_conn *conn;         /* result */
};

/* ---- dial.c ---- */

/* tws_dial() but for the events: the caller reads. error is not NULL. retry_after, if it is not NULL,
 * becomes the seconds for which a server that refuses wants to be left alone; 0: it does not say. */
tws_err dial_run(tws_conn **out, const char *url, const tws_dial_options *opt,
                 tws_response **response, tws_error *error, uint32_t *retry_after);

/* ---- options.c ---- */

/* The caller's, of any size, over the defaults. False: they were not initialised. */
bool dial_options_take(tws_dial_options *own, const tws_dial_options *opt);

/* Copies and checks. TWS_OK or TWS_ERR_ARGUMENT with the error filled. */
tws_err dial_take_options(struct dial *d, const tws_dial_options *opt);

/* ---- fail.c ---- */

/* Fills the error; returns code. Bytes that do not print are replaced. */
tws_err dial_fail(struct dial *d, tws_err code, tws_phase phase, int sys_errno, const char *format,
                  ...) __attribute__((format(printf, 5, 6)));
/* The stream failed with a negative errno; 0: it ended. */
tws_err dial_io_failed(struct dial *d, tws_phase phase, int result);
/* A local call failed with a negative errno: TWS_ERR_MEMORY or TWS_ERR_SYSTEM. */
tws_err dial_local_failed(struct dial *d, tws_phase phase, int result);
tws_err dial_no_memory(struct dial *d, tws_phase phase);

/* The earlier of the total deadline and one that is ms away. */
int64_t dial_step(const struct dial *d, tws_ms ms);

/* ---- open.c: from an address to a stream that the handshake can begin on ---- */

tws_err dial_open(struct dial *d);
void dial_close(struct dial *d);
/* Ends the power of tws_cancel_now() over the stream. */
void dial_release_stream(struct dial *d);

/* ---- exchange.c: the request and its answer ---- */

/* Sends the request and reads the head of the final answer. */
tws_err dial_exchange(struct dial *d);
/* Whether a 101 is right; then d->conn. */
tws_err dial_verify(struct dial *d);

/* ---- env.c ---- */

/* For the connection that is dialled; a reference. NULL: no memory. */
struct conn_env *dial_env(const struct dial *d);

/* ---- response.c ---- */

/* From the head that has been read. */
tws_err dial_make_response(struct dial *d);
/* The body of a refusal, as far as it comes by the deadline. */
void dial_read_body(struct dial *d, int64_t deadline);
/* The present address without user information, on the heap; NULL: no memory. */
char *dial_public_url(struct dial *d);

#endif
