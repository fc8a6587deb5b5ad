/*
 * upgrade.h: ways in for a program that has an HTTP server already: a request that somebody else has
 * parsed, answered here (tws_upgrade_parsed()) or by that server itself (tws_upgrade_judge()).
 *
 * tws_upgrade() in server.h takes a socket whose request nobody has read yet.
 */
#ifndef TWS_UPGRADE_H
#define TWS_UPGRADE_H

#include <tws/server.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sockaddr;

/*
 * A request's head as another HTTP server has parsed it. Strings are zero-terminated and as the peer
 * sent them: nothing decoded, no header joined with another, dropped or added.
 */
typedef struct tws_parsed_request {
    size_t size;               /* set by the initialiser */
    const char *method;        /* default "GET" */
    const char *target;        /* path and query, "/chat?room=1"; default "/" */
    const char *version;       /* default "HTTP/1.1" */
    const tws_header *headers; /* in their order; a name that came twice stands here twice */
    size_t header_count;       /* default 0, which no handshake can do with */
    /* The peer came over TLS that ends in front of the socket given with this: "https://" and the
     * Host header is then the server's own origin. Default false. */
    bool secure;
    /* The peer's address, where that socket does not lead to the peer. Default NULL: it does. */
    const struct sockaddr *peer;
    size_t peer_len;
    uint64_t reserved[8];
} tws_parsed_request;

/**
 * Fills a request with the defaults.
 *
 * @param r the request
 * @param size sizeof *r; use the macro tws_parsed_request_init(r)
 * Threads: any.
 */
TWS_API void tws_parsed_request_init_sized(tws_parsed_request *r, size_t size);
#define tws_parsed_request_init(r) tws_parsed_request_init_sized((r), sizeof *(r))

/**
 * Whether a request asks for an upgrade to WebSocket: GET with `websocket` in Upgrade and `upgrade`
 * in Connection.
 *
 * Says which requests belong to this library, not that they are in order: tws_upgrade_parsed() does.
 *
 * @param method the request's method; NULL is none, and not GET
 * @param headers its header lines
 * @param count how many
 * @return true when it does; false also for lists that are not well formed.
 * Threads: any.
 * RFC: 6455 4.2.1
 */
TWS_API bool tws_is_upgrade_request(const char *method, const tws_header *headers, size_t count);

/**
 * Performs the server's opening handshake with a request that somebody else has read and parsed.
 *
 * The request is judged by the same rules and limits as one that tws_upgrade() reads, and what cannot
 * have come in one request (a line end in a value, a name that is no token) is refused with 400. The
 * answer is sent on fd. tws_conn_request() has the request afterwards. To do the same over TLS, set
 * `parsed` in the options of tws_upgrade_ssl().
 *
 * @param out set to the connection, with one reference; NULL on failure
 * @param fd the socket; its blocking mode may be changed. `tls` of the options is not used.
 * @param buffered bytes already read from fd behind the request's head, or NULL; copied
 * @param buffered_len how many; at most 16,383
 * @param request the request; copied
 * @param opt options, or NULL for the defaults; copied
 * @param error filled on failure when not NULL
 * @return as tws_upgrade().
 * Threads: any.
 * Ownership: as tws_upgrade(): fd is the library's from the call on, and closed on failure. An HTTP
 *         server that closes its socket itself gives a dup() of it, and is told to close its own when
 *         the connection has ended.
 * RFC: 6455 4.2
 */
TWS_API tws_err tws_upgrade_parsed(tws_conn **out, int fd, const void *buffered,
                                   size_t buffered_len, const tws_parsed_request *request,
                                   const tws_upgrade_options *opt, tws_error *error);

/* ---- Where the HTTP server sends the answer ---- */

/* What to answer to a request: a status, headers, a body. 101 if it can become a connection. */
typedef struct tws_verdict tws_verdict;

/**
 * Judges a request that somebody else has parsed and will answer.
 *
 * Runs the hooks of the options on the calling thread, as a handshake would, and waits for nothing.
 * The HTTP server then sends the verdict's status, headers and body; after a 101
 * tws_verdict_open() makes the connection. When that fails, or nobody asks for it, on_handshake_end is
 * called by the function that frees the verdict (TWS_ERR_CLOSED).
 *
 * @param out set to the verdict; NULL when there is none
 * @param request the request; copied
 * @param opt options, or NULL for the defaults; copied. `tls` and `handshake_timeout` are not used.
 * @param error filled on failure when not NULL
 * @return TWS_OK: the status is 101; TWS_ERR_HANDSHAKE, TWS_ERR_REFUSED, TWS_ERR_NOT_UPGRADE: the
 *         verdict says what to answer; TWS_ERR_ARGUMENT, TWS_ERR_MEMORY: there is no verdict.
 * Threads: any.
 * Ownership: tws_verdict_open() or tws_verdict_free().
 * RFC: 6455 4.2
 */
TWS_API tws_err tws_upgrade_judge(tws_verdict **out, const tws_parsed_request *request,
                                  const tws_upgrade_options *opt, tws_error *error);

/**
 * The status to answer with.
 *
 * @param v the verdict
 * @return 101, or the status of a refusal or a page.
 * Threads: any.
 */
TWS_API int tws_verdict_status(const tws_verdict *v);

/**
 * The headers to answer with, one by one, those of the connection among them (Connection, Upgrade,
 * Content-Length), which some HTTP servers want to write themselves.
 *
 * @param v the verdict
 * @param index from 0
 * @param name set to the name
 * @param value set to the value
 * @return true; false when there are no more.
 * Threads: any.
 */
TWS_API bool tws_verdict_header_at(const tws_verdict *v, size_t index, const char **name,
                                   const char **value);

/**
 * The body to answer with.
 *
 * @param v the verdict
 * @param len set to its length, 0 for a 101 and for an answer to HEAD; may be NULL
 * @return the bytes, with a zero behind them, valid as long as v; never NULL.
 * Threads: any.
 */
TWS_API const void *tws_verdict_body(const tws_verdict *v, size_t *len);

/**
 * Makes the connection after the HTTP server has sent the verdict's 101.
 *
 * @param out set to the connection, with one reference; NULL on failure
 * @param v the verdict, whose status is 101; freed in any case
 * @param fd the socket; its blocking mode may be changed
 * @param buffered bytes already read from fd behind the request's head, or NULL; copied
 * @param buffered_len how many; at most 16,383
 * @param error filled on failure when not NULL
 * @return TWS_OK; TWS_ERR_ARGUMENT; TWS_ERR_STATE when the status is another; TWS_ERR_MEMORY.
 * Threads: any.
 * Ownership: fd is the library's from the call on, and closed on failure; see tws_upgrade_parsed().
 */
TWS_API tws_err tws_verdict_open(tws_conn **out, tws_verdict *v, int fd, const void *buffered,
                                 size_t buffered_len, tws_error *error);

/**
 * Makes the connection after the HTTP server has sent the verdict's 101, and has a server run its handler
 * for it, on a thread of its own.
 *
 * It counts for that server's limits, drains and statistics as if the server had accepted it. The
 * options of the connection are those that tws_upgrade_judge() was given. The call does not wait for
 * the handler.
 *
 * @param s the server; it may listen on "none"
 * @param v as for tws_verdict_open()
 * @param fd as for tws_verdict_open()
 * @param buffered as for tws_verdict_open()
 * @param buffered_len as for tws_verdict_open()
 * @param error filled on failure when not NULL
 * @return TWS_OK: the handler runs; TWS_ERR_REFUSED: the server is full or draining, or has no thread;
 *         else as tws_verdict_open().
 * Threads: any.
 * Ownership: as tws_verdict_open().
 */
TWS_API tws_err tws_verdict_serve(tws_server *s, tws_verdict *v, int fd, const void *buffered,
                                  size_t buffered_len, tws_error *error);

/**
 * Frees a verdict that no connection is made of.
 *
 * @param v the verdict, or NULL
 * Threads: any.
 */
TWS_API void tws_verdict_free(tws_verdict *v);

#ifdef __cplusplus
}
#endif
#endif
