/*
 * client.h: opening a connection to a server.
 *
 *     tws_conn *c;
 *     tws_error e;
 *     if (tws_dial(&c, "wss://example.com/feed", NULL, NULL, &e) != TWS_OK)
 *         puts(e.text);
 *
 * A dialled connection is used like one of a server (conn.h) and belongs to nobody but the caller:
 * end it with tws_close() and give it back with tws_conn_unref(). Somebody must read it, else pings
 * are not answered and no timeout is kept.
 *
 * Threads. tws_dial() may be called from any thread. On a light thread (of a server or of a
 * tws_group, thread.h) it suspends the light thread only, and the connection is meant for light
 * threads of the same server or group; on any other thread it blocks, and so does the connection.
 */
#ifndef TWS_CLIENT_H
#define TWS_CLIENT_H

#include <tws/conn.h>
#include <tws/error.h>
#include <tws/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tws_deflate_options; /* deflate.h */
struct tws_events;          /* event.h */
struct tws_group;           /* thread.h */

/* What the server answered, kept for who wants to look at it. */
typedef struct tws_response tws_response;
/* Something that makes calls in other threads return. */
typedef struct tws_cancel tws_cancel;

/*
 * Told the value of each Set-Cookie header, of every answer, also of those that redirect or refuse.
 * `url` is where the answer came from, without user information. Runs inside tws_dial().
 */
typedef void (*tws_set_cookie_fn)(const char *url, const char *value, void *arg);
/*
 * Told each HTTP head that is sent (`sent`) or was received, proxies' and redirects' too, as it
 * stands on the wire, with its passwords and cookies. `text` is zero-terminated; of what cannot be
 * parsed, all that was received. Runs inside tws_dial().
 */
typedef void (*tws_head_fn)(bool sent, const char *text, size_t len, void *arg);
/*
 * Connects in place of the library. `host` is without brackets, a name or an IP literal, and that of
 * the proxy when there is one; "" with port 0 for Unix sockets. `timeout` is what is left; 0: no
 * limit. Returns a connected stream socket, which becomes the library's, or -errno. Runs inside
 * tws_dial(), once per redirect more; on a light thread it has to follow the rules of its handlers.
 */
typedef int (*tws_connect_fn)(const char *host, uint16_t port, tws_ms timeout, void *arg);

typedef struct tws_dial_options {
    size_t size; /* set by the initialiser */

    /* ---- The request ---- */

    /*
     * More headers, in this order; names may repeat. Refused are Host, Upgrade, Connection,
     * Content-Length, Transfer-Encoding, Cookie beside `cookie`, Origin beside `origin`, and every
     * name that begins with Sec-WebSocket-.
     */
    const tws_header *headers;
    size_t header_count;
    const char *const *subprotocols; /* in the order of preference; default none */
    size_t subprotocol_count;
    const char *origin; /* default NULL: no Origin header, as a program that is no browser */
    const char *host;   /* Host header in place of the address's; TLS still verifies the address */
    const char *cookie; /* Cookie header, "a=1; b=2" */
    tws_set_cookie_fn on_set_cookie;
    tws_head_fn on_head;
    void *hook_arg; /* handed to the two above */

    /* ---- Time: 0 is no limit ---- */

    tws_ms timeout; /* for all of it, redirects too; default 30,000 */
    /* For one step each, under the total; default 0: only the total. */
    tws_ms resolve_timeout;
    tws_ms connect_timeout;   /* all addresses of one host together */
    tws_ms tls_timeout;       /* of one TLS handshake */
    tws_ms handshake_timeout; /* of one request and its answer, also a proxy's */
    /* Start on the next address when the last one has not answered so long (RFC 8305); default 250;
     * 10 to 60,000. */
    tws_ms attempt_delay;
    tws_cancel *cancel; /* tws_cancel_now() ends the call; default NULL */

    /* ---- The way ---- */

    const char *source_address; /* IP address to connect from; the other family is not tried */
    /*
     * An already connected stream socket to the server (not to a proxy); the library's from the call
     * on, and closed on failure. Default -1. Redirects cannot be followed then.
     */
    int fd;
    tws_connect_fn connect; /* default NULL */
    void *connect_arg;
    /*
     * Follow 301, 302, 303, 307 and 308 so many times; default 0: they are refusals as any other
     * status. http and https in Location mean ws and wss. Never from wss to ws. To another host go
     * neither the URL's user information nor `cookie`, `host`, or the headers Authorization,
     * Proxy-Authorization, Cookie and Cookie2.
     */
    uint32_t max_redirects;
    /*
     * "http://HOST:PORT" (CONNECT), "socks5://HOST:PORT" (names are resolved here),
     * "socks5h://HOST:PORT" (names are resolved by the proxy), each with "USER:PASSWORD@" before the
     * host when the proxy asks for it, percent-encoded. Default NULL: none. Not for Unix sockets.
     */
    const char *proxy;
    /*
     * Without `proxy`, take it from the environment as curl does: https_proxy for wss, http_proxy
     * for ws, all_proxy for both, no_proxy for exceptions, which hold for `proxy` too. Default
     * false.
     */
    bool proxy_from_environment;
    const tws_header *proxy_headers; /* of CONNECT, beside its own */
    size_t proxy_header_count;

    /* ---- What is spoken ---- */

    /* How wss is spoken (tls.h); NULL: the system's trust, everything verified. Referenced. Behind a
     * Unix socket the certificate has to be localhost's. */
    tws_tls *tls;
    const struct tws_deflate_options *deflate; /* offer compression (deflate.h); NULL: do not */

    /* ---- Limits ---- */

    uint32_t max_head_bytes;        /* of an answer's head; default 16,384; 256 to 65,535 */
    uint32_t max_head_fields;       /* header lines; default 100; 8 to 1,000 */
    const tws_allocator *allocator; /* default NULL: malloc; must outlive the connection */

    /* ---- Events ---- */

    /*
     * Run the connection by these handlers (event.h; copied), on a thread of its own, which begins
     * when the handshake is done: on_open may come before tws_dial() has returned and set *out.
     * That thread has a reference of its own; giving back the caller's does not end the connection,
     * and `out` may be NULL. After a failure there are no events. Default NULL: the caller reads.
     */
    const struct tws_events *events;
    void *events_arg; /* handed to them */
    /*
     * A thread of this group dials and runs the events; the caller waits for the dial.
     * tws_group_free() joins it. Default NULL: on a thread of a server or group, one more of the
     * same; else a kernel thread of the library's own, which frees itself. tws_events_wait() waits
     * for either's on_close.
     */
    struct tws_group *group;
    uint64_t reserved[13];
    tws_conn_options conn;
} tws_dial_options;

/**
 * Fills options with the defaults.
 *
 * @param opt the options
 * @param size sizeof *opt; use the macro tws_dial_options_init(opt)
 * Threads: any.
 */
TWS_API void tws_dial_options_init_sized(tws_dial_options *opt, size_t size);
#define tws_dial_options_init(opt) tws_dial_options_init_sized((opt), sizeof *(opt))

/**
 * Connects to a server and performs the client's opening handshake.
 *
 * Addresses are `ws://user:password@host:port/path?query`, `wss://[2001:db8::1]/`, and
 * `ws+unix:/path/of/socket:/path?query`, or the same with wss+unix, for Unix sockets. User information
 * becomes `Authorization: Basic`. A fragment is refused. Addresses of both families are tried as RFC
 * 8305 says, and the first that answers is taken. Everything that RFC 6455 4.1 asks of the answer is
 * verified, and nothing is accepted that was not asked for. Frames that follow the answer at once are
 * kept.
 *
 * localhost, and any name below it, is ::1 and 127.0.0.1 (RFC 6761). Other names are looked up by the
 * system's resolver, which cannot be interrupted. When time runs out or the call is cancelled the
 * lookup is left to itself: it ends in the background, on a thread that is the library's (that of a
 * tws_group, which waits for it in tws_group_free()).
 *
 * The error's phase tells how far it came (TWS_PHASE_RESOLVE, _CONNECT, _PROXY, _TLS, _HANDSHAKE),
 * its text names the URL's or option's fault, the host, the address.
 *
 * @param out set to the connection, with one reference; NULL on failure. May be NULL with option
 *        events, whose thread keeps the connection.
 * @param url the address, as above
 * @param opt options, or NULL for the defaults; not needed after the call
 * @param response set to the last answer received, if it was valid HTTP, also on failure; else to
 *        NULL. May be NULL.
 * @param error filled when not NULL, with code TWS_OK on success
 * @return TWS_OK;
 *         TWS_ERR_ARGUMENT: an option is not allowed; TWS_ERR_ADDRESS: the URL is not valid;
 *         TWS_ERR_RESOLVE: the name has no address, or could not be looked up; TWS_ERR_CONNECT: no
 *         address could be connected to, see sys_errno for the last one; TWS_ERR_PROXY: the proxy
 *         refused or failed, see http_status; TWS_ERR_TLS, TWS_ERR_CERTIFICATE: see tls_error;
 *         TWS_ERR_REFUSED: the server answered something else than 101, see http_status and the
 *         response; TWS_ERR_REDIRECT: it redirected once too often, without or to an unusable
 *         Location, or from wss to ws; TWS_ERR_HANDSHAKE: its answer is not one to a WebSocket
 *         handshake, or chose what was not offered;
 *         TWS_ERR_HANDSHAKE_TIMEOUT: a step, or all of it, took too long; TWS_ERR_EOF: the server
 *         ended the connection before it had answered; TWS_ERR_NETWORK; TWS_ERR_TRUNCATED;
 *         TWS_ERR_CANCELLED; TWS_ERR_MEMORY; TWS_ERR_SYSTEM: no descriptor, thread or random bytes
 *         are to be had, see sys_errno; TWS_ERR_UNSUPPORTED: this build cannot do what was asked.
 * Threads: any.
 * Ownership: the caller gives the connection back with tws_conn_unref(), the response with
 *         tws_response_free(). `opt->fd` is the library's from the call on, whatever is returned.
 * RFC: 6455 4.1, 8305
 */
TWS_API tws_err tws_dial(tws_conn **out, const char *url, const tws_dial_options *opt,
                         tws_response **response, tws_error *error);

/* ---- Cancelling ---- */

/**
 * Makes something to cancel calls with.
 *
 * One may serve any number of calls, one after another or at once. Once cancelled it stays so.
 *
 * @return the handle, or NULL when there is no memory.
 * Threads: any.
 * Ownership: tws_cancel_free().
 */
TWS_API tws_cancel *tws_cancel_new(void);

/**
 * Makes every call that was given this handle return TWS_ERR_CANCELLED soon, and every later one at
 * once.
 *
 * A tws_dial() returns whatever it waits for: a name, a connection, TLS, a proxy, an answer; only
 * a connect callback is waited for. One that has succeeded is not affected, nor is its connection.
 *
 * @param cancel the handle
 * Threads: any; not from a signal handler.
 */
TWS_API void tws_cancel_now(tws_cancel *cancel);

/**
 * Tells whether tws_cancel_now() has been called.
 *
 * @param cancel the handle
 * @return true when it has.
 * Threads: any.
 */
TWS_API bool tws_cancel_is_set(tws_cancel *cancel);

/**
 * Frees a handle that no call uses any more.
 *
 * @param cancel the handle, or NULL
 * Threads: any.
 */
TWS_API void tws_cancel_free(tws_cancel *cancel);

/* ---- The answer ---- */

/**
 * The status of the answer.
 *
 * @param r the response
 * @return the status, 101 when the handshake succeeded.
 * Threads: any.
 */
TWS_API int tws_response_status(const tws_response *r);

/**
 * Where the answer came from: the URL that was dialled, or that of the last redirect.
 *
 * @param r the response
 * @return the URL, without user information; valid as long as r.
 * Threads: any.
 */
TWS_API const char *tws_response_url(const tws_response *r);

/**
 * Finds a header of the answer.
 *
 * @param r the response
 * @param name the header's name, without regard to case
 * @return the value of the first one with that name; NULL when there is none; valid as long as r.
 * Threads: any.
 */
TWS_API const char *tws_response_header(const tws_response *r, const char *name);

/**
 * The headers of the answer, one by one, in the server's order.
 *
 * @param r the response
 * @param index from 0
 * @param name set to the name; valid as long as r
 * @param value set to the value; valid as long as r
 * @return true when there is such a header; else both are NULL.
 * Threads: any.
 */
TWS_API bool tws_response_header_at(const tws_response *r, size_t index, const char **name,
                                    const char **value);

/**
 * The body of a refusal: the first 4,096 bytes of it, or what came in time.
 *
 * @param r the response
 * @param len set to the number of bytes; may be NULL
 * @return the bytes, and a zero behind them; never NULL; valid as long as r.
 * Threads: any.
 * RFC: 9112 6
 */
TWS_API const void *tws_response_body(const tws_response *r, size_t *len);

/**
 * Frees a response.
 *
 * @param r the response, or NULL
 * Threads: any.
 */
TWS_API void tws_response_free(tws_response *r);

/* ---- Staying connected ---- */

/*
 * Told before each pause of tws_reconnect(), on its thread: how the dial failed, or how the connection
 * ended (`failures` is 0 then, else dials in a row that have failed), and how long the pause will be.
 * May call tws_cancel_now().
 */
typedef void (*tws_pause_fn)(const tws_error *error, uint32_t failures, tws_ms pause, void *arg);

typedef struct tws_reconnect_options {
    size_t size; /* set by the initialiser */
    /*
     * After the n-th attempt in a row that failed, or whose connection did not last for
     * stable_after, it waits a random time between 0 and min(max_delay, min_delay * 2^(n - 1)): full
     * jitter, so that many clients do not come back at once. After one that lasted, n begins anew
     * and the wait is at most min_delay. Where the server refuses and says for how many seconds it
     * wants to be left alone (Retry-After, RFC 9110 10.2.3; a date does not count), that time comes
     * before the random one, but not more than max_delay of it.
     */
    tws_ms min_delay;      /* default 500; 1 at least */
    tws_ms max_delay;      /* default 30,000; 0: it goes on doubling */
    uint32_t max_attempts; /* give up after so many failed dials in a row; default 0: never */
    tws_ms stable_after;   /* default 10,000; 0: every connection counts as one that lasted */
    tws_pause_fn on_pause; /* default NULL */
    void *pause_arg;       /* handed to it */
    uint64_t reserved[6];
} tws_reconnect_options;

/**
 * Fills options with the defaults.
 *
 * @param opt the options
 * @param size sizeof *opt; use the macro tws_reconnect_options_init(opt)
 * Threads: any.
 */
TWS_API void tws_reconnect_options_init_sized(tws_reconnect_options *opt, size_t size);
#define tws_reconnect_options_init(opt) tws_reconnect_options_init_sized((opt), sizeof *(opt))

/**
 * Dials, runs a function on the connection, closes it, and begins anew until told to stop.
 *
 * @param url as for tws_dial()
 * @param dial as for tws_dial(), without fd and group; or NULL. Its `cancel` ends the whole loop, and closes
 *        the connection that is open at that moment with 1001.
 * @param opt options, or NULL for the defaults
 * @param run called with each connection, as a server's handler; to stop, it calls tws_cancel_now()
 *        on the handle in `dial`. NULL with dial->events: each connection is run by those.
 * @param arg handed to run
 * @param error filled when not NULL: why the last attempt failed
 * @return TWS_ERR_CANCELLED; TWS_ERR_ARGUMENT, TWS_ERR_ADDRESS, TWS_ERR_CERTIFICATE,
 *         TWS_ERR_UNSUPPORTED: what another attempt would not mend, at once; or, after max_attempts
 *         failures in a row, why the last one failed, as tws_dial(). Never TWS_OK.
 * Threads: any; run is called on the same one.
 */
TWS_API tws_err tws_reconnect(const char *url, const tws_dial_options *dial,
                              const tws_reconnect_options *opt, tws_connection_fn run, void *arg,
                              tws_error *error);

#ifdef __cplusplus
}
#endif
#endif
