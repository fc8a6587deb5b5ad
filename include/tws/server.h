/*
 * server.h: accept connections, judge their opening handshakes, run a handler for each on a thread
 * of its own, and end it all in order.
 *
 *     tws_server_options opt;
 *     tws_server_options_init(&opt);
 *     const char *listen[] = {"127.0.0.1:9001"};
 *     opt.listen = listen, opt.listen_count = 1, opt.on_connection = echo;
 *     tws_server *server;
 *     if (tws_server_start(&server, &opt, NULL) == TWS_OK) {
 *         tws_server_wait(server);          // until tws_server_stop()
 *         tws_server_drain(server, 5000);   // 1001 to all, five seconds to answer
 *         tws_server_free(server);
 *     }
 *
 * Signals: no call raises SIGPIPE. The server's threads run with all signals blocked, so that those
 * of the process reach the application's own threads; all but those that a fault of their own raises
 * (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS), so that the application's handler for it runs.
 */
#ifndef TWS_SERVER_H
#define TWS_SERVER_H

#include <tws/conn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The request ---- */

/**
 * The request's method, for example "GET".
 *
 * @param r the request
 * @return zero-terminated, valid as long as r.
 * Threads: any.
 */
TWS_API const char *tws_request_method(const tws_request *r);

/**
 * The request's path as it was sent, not decoded, for example "/chat%20room".
 *
 * @param r the request
 * @return zero-terminated, begins with "/" (or is "*"), valid as long as r.
 * Threads: any.
 */
TWS_API const char *tws_request_path(const tws_request *r);

/**
 * The request's query as it was sent, without the "?".
 *
 * @param r the request
 * @return zero-terminated; "" when there is none; valid as long as r.
 * Threads: any.
 */
TWS_API const char *tws_request_query(const tws_request *r);

/**
 * Finds a parameter of the query, percent-decoded ("+" is a blank).
 *
 * @param r the request
 * @param name the parameter's name, decoded
 * @param buf where the value goes; zero-terminated whenever size is above 0
 * @param size room in buf
 * @return the length of the value as snprintf() counts; -1 when there is no such parameter; -2 when
 *         its escapes are wrong. buf is then an empty string. Of several the first is taken. The
 *         value may hold any byte: zeros ("%00") and what is not UTF-8 (tws_utf8_valid()).
 * Threads: any.
 */
TWS_API ptrdiff_t tws_request_param(const tws_request *r, const char *name, char *buf, size_t size);

/**
 * Finds the first header of a name.
 *
 * Host, where a hook sees it, is one and well formed: a name or an address, and perhaps a port. It may
 * be empty or missing in a request for a page, and is missing only from HTTP/1.0.
 *
 * @param r the request
 * @param name compared without regard to case
 * @return the value without blanks around it, valid as long as r; NULL when there is none.
 * Threads: any.
 */
TWS_API const char *tws_request_header(const tws_request *r, const char *name);

/**
 * The request's headers one by one, in the order they were sent.
 *
 * @param r the request
 * @param index from 0
 * @param name set to the name
 * @param value set to the value
 * @return true; false when there are no more.
 * Threads: any.
 */
TWS_API bool tws_request_header_at(const tws_request *r, size_t index, const char **name,
                                   const char **value);

/**
 * Finds a cookie.
 *
 * @param r the request
 * @param name compared byte by byte
 * @param buf where the value goes; zero-terminated whenever size is above 0
 * @param size room in buf
 * @return the length of the value as snprintf() counts; -1 when there is no such cookie.
 * Threads: any.
 * RFC: 6265 5.4
 */
TWS_API ptrdiff_t tws_request_cookie(const tws_request *r, const char *name, char *buf,
                                     size_t size);

/**
 * The subprotocols that the client offers, one by one, in its order of preference.
 *
 * @param r the request
 * @param index from 0
 * @param buf where the name goes; zero-terminated whenever size is above 0
 * @param size room in buf
 * @return the length of the name as snprintf() counts; -1 when there are no more.
 * Threads: any.
 * RFC: 6455 11.3.4
 */
TWS_API ptrdiff_t tws_request_subprotocol_at(const tws_request *r, size_t index, char *buf,
                                             size_t size);

/**
 * The peer's address, as tws_conn_peer_address() gives it.
 *
 * @param r the request
 * @param buf where it goes; zero-terminated whenever size is above 0
 * @param size room in buf
 * @return the length of the whole text, as snprintf() counts.
 * Threads: any.
 */
TWS_API size_t tws_request_peer_address(const tws_request *r, char *buf, size_t size);

/**
 * The local address the request came in on, as tws_conn_local_address() gives it.
 *
 * @param r the request
 * @param buf where it goes; zero-terminated whenever size is above 0
 * @param size room in buf
 * @return the length of the whole text, as snprintf() counts.
 * Threads: any.
 */
TWS_API size_t tws_request_local_address(const tws_request *r, char *buf, size_t size);

/* ---- The answer ---- */

/**
 * Sets the HTTP status of the answer.
 *
 * For an upgrade hook that refuses, the default is 403; for a page hook, 200.
 *
 * @param a the answer
 * @param status 200 to 599
 * @return TWS_OK; TWS_ERR_ARGUMENT: the answer is now 500.
 * Threads: the one that runs the hook.
 */
TWS_API tws_err tws_reply_status(tws_reply *a, int status);

/**
 * Adds a header to the answer.
 *
 * Headers that the library writes itself are refused: Connection, Upgrade, Content-Length,
 * Content-Type, Transfer-Encoding, Date, Server, and any whose name begins with Sec-WebSocket-.
 *
 * @param a the answer
 * @param name a token
 * @param value without line ends or other control characters
 * @return TWS_OK; TWS_ERR_ARGUMENT; TWS_ERR_MEMORY.
 * Threads: the one that runs the hook.
 * Ownership: copied.
 */
TWS_API tws_err tws_reply_header(tws_reply *a, const char *name, const char *value);

/**
 * Sets the body of the answer. Not used when the upgrade goes on.
 *
 * @param a the answer
 * @param type the Content-Type, for example "text/html; charset=utf-8"
 * @param body the bytes
 * @param len how many
 * @return TWS_OK; TWS_ERR_ARGUMENT; TWS_ERR_MEMORY.
 * Threads: the one that runs the hook.
 * Ownership: copied.
 */
TWS_API tws_err tws_reply_body(tws_reply *a, const char *type, const void *body, size_t len);

/**
 * Chooses the subprotocol. Only one that the client offered can be chosen.
 *
 * @param a the answer
 * @param name the subprotocol, or NULL for none, instead of the choice from the option list
 * @return TWS_OK; TWS_ERR_ARGUMENT when the client did not offer it.
 * Threads: the one that runs the hook.
 * Ownership: copied.
 * RFC: 6455 4.2.2
 */
TWS_API tws_err tws_reply_subprotocol(tws_reply *a, const char *name);

/**
 * Sets the first value of tws_conn_user() of the connection that will be opened.
 *
 * @param a the answer
 * @param user any value
 * Threads: the one that runs the hook.
 * Ownership: the caller's. When the upgrade fails after the hook, on_connection is not called, but
 *         on_handshake_end is, with this value.
 */
TWS_API void tws_reply_user(tws_reply *a, void *user);

/* ---- Opening handshake ---- */

/*
 * Looks at a valid upgrade request, whatever its path, before it is answered; may choose the
 * subprotocol, add headers and set the user pointer. Returns true to go on, false to refuse, with
 * the status and body it has set (default 403). Origin has been checked already. Runs on the
 * connection's own thread.
 */
typedef bool (*tws_upgrade_fn)(const tws_request *r, tws_reply *a, void *arg);
/*
 * Answers a plain GET or HEAD (health checks, a page). Returns true when it prepared an answer; the
 * body of an answer to HEAD is left out by the library. False drops what was prepared, for the
 * default: 426 with `Upgrade: websocket`. The socket is closed after every answer. Other methods
 * are answered with 405.
 */
typedef bool (*tws_page_fn)(const tws_request *r, tws_reply *a, void *arg);
/*
 * Told how each socket ended that did not become a connection: plain pages (TWS_ERR_NOT_UPGRADE),
 * refusals, timeouts, broken requests, a drain. `r` is NULL when no whole request was read. `user`
 * is what tws_reply_user() set, else NULL.
 */
typedef void (*tws_handshake_end_fn)(const tws_error *error, const tws_request *r, void *user,
                                     void *arg);

struct tws_deflate_options; /* deflate.h */
struct tws_parsed_request;  /* upgrade.h */
struct tws_events;          /* event.h */

/* How opening handshakes are judged. */
typedef struct tws_upgrade_options {
    size_t size;              /* set by the initialiser */
    tws_ms handshake_timeout; /* for the whole of it, however it drips; default 10,000 */
    uint32_t max_head_bytes;  /* request line and headers; default 16,384; 256 to 65,535 */
    uint32_t max_head_fields; /* header lines; default 100; 8 to 1,000 */
    bool any_origin;          /* do not look at Origin; default false */
    /*
     * Origins allowed besides the server's own ("http://" and the Host header). Behind a proxy that
     * ends TLS, list the public "https://" origin.
     * "https://example.com", "https://example.com:8443": exactly that; "example.com": any scheme,
     * its default port; "*.example.com": any name below it; "http://localhost:*": any port; "null";
     * "*". A request without Origin is not from a browser and is allowed. Others get 403.
     */
    const char *const *origins;
    size_t origin_count;
    const char *const *subprotocols; /* in the server's order of preference; default none */
    size_t subprotocol_count;
    const char *server_name; /* `Server:` header; default "libtws"; "" for no such header */
    tws_upgrade_fn on_upgrade;
    tws_page_fn on_page;
    tws_handshake_end_fn on_handshake_end;
    void *hook_arg; /* handed to the three above */
    /*
     * The socket speaks TLS: the TLS handshake comes first, under the same handshake_timeout; bytes
     * that tws_upgrade() was given belong to it. Default NULL: plain. A reference is taken.
     */
    tws_tls *tls;
    const tws_allocator *allocator; /* default NULL: malloc; must outlive every connection */
    const struct tws_deflate_options *deflate; /* compression (deflate.h); default NULL: none */
    /* The request's head, parsed already (upgrade.h); tws_upgrade() and tws_upgrade_ssl() only, whose
     * `buffered` then are the bytes behind it. Default NULL. */
    const struct tws_parsed_request *parsed;
    uint64_t reserved[15];
    tws_conn_options conn;
} tws_upgrade_options;

/**
 * Fills options with the defaults.
 *
 * @param opt the options
 * @param size sizeof *opt; use the macro tws_upgrade_options_init(opt)
 * Threads: any.
 */
TWS_API void tws_upgrade_options_init_sized(tws_upgrade_options *opt, size_t size);
#define tws_upgrade_options_init(opt) tws_upgrade_options_init_sized((opt), sizeof *(opt))

/**
 * Performs the server's opening handshake on a connected stream socket that somebody else accepted.
 *
 * Blocks until the handshake is done or refused; plain HTTP requests are answered as a server would.
 * The connection belongs to no tws_server: none counts, visits or drains it. End it with tws_close();
 * giving back the last reference of an open connection cuts it. For a request that has been parsed
 * already see tws_upgrade_parsed().
 *
 * @param out set to the connection, with one reference; NULL on failure
 * @param fd the socket; its blocking mode may be changed
 * @param buffered bytes already read from fd, or NULL; copied; frames may follow the request
 * @param buffered_len how many; at most max_head_bytes and 16,383
 * @param opt options, or NULL for the defaults; copied
 * @param error filled on failure when not NULL
 * @return TWS_OK; TWS_ERR_HANDSHAKE, TWS_ERR_REFUSED, TWS_ERR_NOT_UPGRADE: the peer has been
 *         answered; TWS_ERR_HANDSHAKE_TIMEOUT; TWS_ERR_EOF; TWS_ERR_NETWORK; with option tls
 *         TWS_ERR_TLS, TWS_ERR_CERTIFICATE (a client's certificate), TWS_ERR_TRUNCATED;
 *         TWS_ERR_ARGUMENT; TWS_ERR_MEMORY; TWS_ERR_UNSUPPORTED: compression in a build without zlib.
 * Threads: any.
 * Ownership: fd is the library's from the call on, and closed on failure; the caller gives the
 *         connection back with tws_conn_unref().
 * RFC: 6455 4.2
 */
TWS_API tws_err tws_upgrade(tws_conn **out, int fd, const void *buffered, size_t buffered_len,
                            const tws_upgrade_options *opt, tws_error *error);

/* ---- Server ---- */

typedef struct tws_server_options {
    size_t size; /* set by the initialiser */
    /*
     * "HOST:PORT", "[IPV6]:PORT", "unix:PATH", "unix:@ABSTRACT"; the port is a number, 0: any free
     * one. ":PORT" and "0.0.0.0:PORT" are all addresses of IPv4, "[::]:PORT" all of IPv6 and none of
     * IPv4: for both, list both. Of a name the first address that can be listened on. A socket file
     * that nobody listens on is replaced; it is removed when the server stops. Its mode follows the
     * umask. With "plain:" before it, an address is without TLS although the server has `tls`.
     *
     * Sockets that listen already: "fd:N", a descriptor of this process; "systemd:NAME", those of that
     * name among the ones a service manager has passed, "systemd:" all of them (LISTEN_PID,
     * LISTEN_FDS, LISTEN_FDNAMES, which are left as they are). They are made close-on-exec and
     * non-blocking, the second for every process that has them. They are the server's once it has
     * started: closed when it stops, without removing a socket file. A process that wants to listen
     * on keeps a dup() of its own.
     *
     * "none": nowhere. Connections come by tws_verdict_serve() or tws_handoff_serve().
     */
    const char *const *listen;
    size_t listen_count;
    int backlog;     /* default 4,096, which the system may lower */
    bool reuse_port; /* SO_REUSEPORT: several processes share an address; default false */
    tws_connection_fn on_connection;
    /* In place of on_connection (both, or none: TWS_ERR_ARGUMENT): handlers, see event.h. Copied.
     * Default NULL. An on_connection that calls tws_run() chooses for each connection. */
    const struct tws_events *events;
    void *arg;                /* handed to these, and to the hooks unless hook_arg is set */
    uint32_t max_connections; /* default 10,000; 0: no limit; more are answered with 503 */
    uint32_t max_per_address; /* connections of one IP address; default 0: no limit; 503.
                                 Peers on Unix sockets are not counted. */
    tws_threads threads;      /* default TWS_THREADS_KERNEL */
    /* Pthreads that run light threads, at most 1,024; default 0: one per core. */
    uint32_t carriers;
    /* Of a connection's thread, at least 16 KiB; default 0: 256 KiB, light 64 KiB. */
    size_t stack_size;
    /* Light: fill stacks with a pattern to see how deep they are used, see
     * tws_server_stats.deepest_stack; slow; default false. */
    bool measure_stacks;
    bool no_spread; /* leave threads to the scheduler instead of one core each in turn */
    /* Light: with much traffic on many connections carriers pause, half a millisecond at most, so
     * that some events come together. True: never; default false. */
    bool no_pause;
    tws_log_fn log; /* default NULL */
    void *log_arg;
    /* wss: certificates, see tls.h; default NULL: upgrade.tls. A reference is taken. */
    tws_tls *tls;
    tws_upgrade_options upgrade;
    /* Opening handshakes in progress, TLS included; more are answered with 503 (over TLS: the alert
     * internal_error); default 4,096; 0: no limit. */
    uint32_t max_handshakes;
    /* New connections of one IP address (IPv6: of a /64) per second; more are answered with 429 (over
     * TLS as above); default 0: no limit. Peers on Unix sockets are not counted. The addresses seen
     * last are remembered, 8,192 of them. */
    uint32_t max_address_rate;
    uint32_t address_burst; /* so many at once are no excess; default 0: max_address_rate */
    /*
     * When three quarters of a crowd of at least 512 connections have gone, give what malloc keeps
     * for them back to the system (malloc_trim()), at most once a minute: over TLS that is some 60 KiB
     * each. Meanwhile whoever in the process allocates memory may have to wait, for a second for a few
     * GiB. Default false.
     */
    bool trim_memory;
} tws_server_options;

/**
 * Fills options with the defaults.
 *
 * @param opt the options
 * @param size sizeof *opt; use the macro tws_server_options_init(opt)
 * Threads: any.
 */
TWS_API void tws_server_options_init_sized(tws_server_options *opt, size_t size);
#define tws_server_options_init(opt) tws_server_options_init_sized((opt), sizeof *(opt))

/**
 * Listens on all addresses and begins to accept, on a thread of its own.
 *
 * @param out set to the server before the first hook or handler can run; NULL on failure
 * @param opt the options; copied, strings too. on_connection or events, and at least one address, are
 *        needed.
 * @param error filled on failure when not NULL; its text names the address
 * @return TWS_OK; TWS_ERR_ARGUMENT; TWS_ERR_ADDRESS: an address cannot be listened on, see
 *         sys_errno; TWS_ERR_MEMORY; TWS_ERR_SYSTEM; TWS_ERR_UNSUPPORTED: compression in a build
 *         without zlib.
 * Threads: any.
 * Ownership: end it with tws_server_free().
 */
TWS_API tws_err tws_server_start(tws_server **out, const tws_server_options *opt, tws_error *error);

/**
 * The address that is listened on, with the real port.
 *
 * @param s the server
 * @param index of the listener: one for each address in the options, in their order; "systemd:" may
 *        stand for several
 * @param buf where the text goes; zero-terminated whenever size is above 0
 * @param size room in buf
 * @return the length of the text as snprintf() counts; 0 when there is no such index.
 * Threads: any.
 */
TWS_API size_t tws_server_address(const tws_server *s, size_t index, char *buf, size_t size);

/**
 * A descriptor of a listening socket of the server's, for a successor that shall listen on "fd:N".
 *
 * As long as it is open, peers that connect wait in its queue, also when the server has stopped.
 *
 * @param s the server
 * @param index of the listener, as for tws_server_address()
 * @return a new descriptor, close-on-exec; -1 when there is no such index or no descriptor.
 * Threads: any, but not at once with or after tws_server_stop().
 * Ownership: the caller closes it.
 */
TWS_API int tws_server_dup_listener(const tws_server *s, size_t index);

/**
 * Asks the server to stop: tws_server_wait() returns, and no more connections are accepted.
 *
 * Open connections go on until tws_server_drain() or tws_server_free().
 *
 * @param s the server
 * Threads: any; also from a signal handler. It is the only function of the library of which that
 *         is true.
 */
TWS_API void tws_server_stop(tws_server *s);

/**
 * Waits until somebody calls tws_server_stop().
 *
 * @param s the server
 * Threads: any but those of the server's own connections.
 */
TWS_API void tws_server_wait(tws_server *s);

/**
 * Stops accepting, closes every connection with 1001, waits for them, cuts the rest, and joins
 * every thread of the server.
 *
 * Handshakes in progress are cut at once. A handler that is computing is waited for however long it
 * takes: a thread cannot be ended from outside. `ms` stands in place of the close timeouts.
 *
 * @param s the server
 * @param ms how long connections may take to end; 0: no limit; TWS_NOWAIT: cut at once
 * @return TWS_OK when all connections ended by themselves or with an answered close;
 *         TWS_ERR_TIMEOUT when some had to be cut; TWS_ERR_STATE when called from one of the
 *         server's own connection threads.
 * Threads: any but those of the server's own connections. Of several calls the earliest end holds,
 *         so that a second, shorter one hastens the first; all return when it is done.
 */
TWS_API tws_err tws_server_drain(tws_server *s, tws_ms ms);

/**
 * Drains with TWS_NOWAIT if that has not been done, and frees the server.
 *
 * Connections that somebody holds a reference on stay valid, but are over.
 *
 * @param s the server, or NULL
 * Threads: any but those of the server's own connections; nobody else may use s meanwhile.
 */
TWS_API void tws_server_free(tws_server *s);

/**
 * The shortest server: listens on one address with the defaults, and runs a handler for every
 * connection, for as long as the process lives.
 *
 * For first programs and small tools. What wants to stop, drain or be told of more than a handler's
 * connection takes tws_server_start().
 *
 * @param address as in tws_server_options.listen
 * @param on_connection the handler
 * @param arg handed to it
 * @param error filled when not NULL
 * @return as tws_server_start(), and only when that has failed.
 * Threads: any.
 */
TWS_API tws_err tws_serve(const char *address, tws_connection_fn on_connection, void *arg,
                          tws_error *error);

/**
 * As tws_serve(), with events (event.h) in place of a handler.
 *
 * @param address as in tws_server_options.listen
 * @param events the handlers; NULL: none, so that pings are answered and messages dropped
 * @param arg handed to them
 * @param error filled when not NULL
 * @return as tws_serve().
 * Threads: any.
 */
TWS_API tws_err tws_serve_events(const char *address, const struct tws_events *events, void *arg,
                                 tws_error *error);

/* Return false to stop. Must not call tws_server_drain() or tws_server_free(). */
typedef bool (*tws_each_fn)(tws_conn *c, void *arg);

/**
 * Calls a function for every open connection of the server.
 *
 * Connections may come and go meanwhile; each that is open all the time is visited once. No lock is
 * held during the calls, so fn may write, close and block.
 *
 * @param s the server
 * @param fn the function; its connection is valid during the call
 * @param arg handed to fn
 * @return how many were visited; 0 too when there is no memory for the list.
 * Threads: any.
 */
TWS_API size_t tws_server_each(tws_server *s, tws_each_fn fn, void *arg);

#ifdef __cplusplus
}
#endif
#endif
