/*
 * proxy.h: which proxy a dial goes through, and how to get through it: HTTP CONNECT (RFC 9110
 * 9.3.6) and SOCKS5 (RFC 1928, RFC 1929).
 *
 * The dial connects to the proxy as it would to a server, hands the stream to proxy_open(), and
 * goes on as if it were connected to the server: with TLS or with the opening handshake.
 */
#ifndef CLIENT_PROXY_H
#define CLIENT_PROXY_H

#include <sys/socket.h>

#include <tws/client.h>

#include "net/stream.h"
#include "wire/handshake.h"
#include "wire/url.h"

enum proxy_kind {
    PROXY_NONE,
    PROXY_HTTP,   /* CONNECT */
    PROXY_SOCKS5, /* names are resolved here */
    PROXY_SOCKS5H /* names are resolved by the proxy */
};

/* curl's port for a proxy whose address names none, whatever its kind. */
#define PROXY_PORT 1080

struct proxy {
    enum proxy_kind kind;
    struct wire_host host; /* port filled in */
    bool has_userinfo;
    struct wire_text user;     /* still percent-encoded, well formed */
    struct wire_text password; /* still percent-encoded, well formed */
    const char *from;          /* the variable that named it, or "proxy" for the option; constant */
    char *text;                /* owned: what the texts above point into */
    const tws_allocator *allocator;
};

/* One sentence about what went wrong, without a full stop, and the proxy's HTTP status. */
struct proxy_error {
    int status;     /* 0: none */
    bool elsewhere; /* SOCKS: it could not reach this address; another of the server may do */
    char text[200];
};

/* ---- proxy_choice.c: pure but for copying the address ---- */

/* Where a choice is made from. */
struct proxy_source {
    const char *option; /* tws_dial_options.proxy; NULL or "": none */
    bool environment;   /* tws_dial_options.proxy_from_environment */
    /* How the environment is read; NULL: secure_getenv(3). */
    const char *(*lookup)(const char *name, void *arg);
    void *arg;
    const tws_allocator *allocator;
};

/*
 * Chooses as curl does. For ws: ws_proxy, WS_PROXY, http_proxy (never HTTP_PROXY, which a CGI
 * program's peer can set); for wss: wss_proxy, WSS_PROXY, https_proxy, HTTPS_PROXY; for both then
 * all_proxy, ALL_PROXY. An empty variable counts as none. The option overrules them all. What
 * no_proxy (else NO_PROXY) lists goes without a proxy, also one from the option if the environment
 * is read at all. Unix sockets have no proxy.
 * 0, and out->kind may be PROXY_NONE; -EINVAL: not the address of a proxy, see err; -ENOMEM.
 */
int proxy_choose(struct proxy *out, const struct proxy_source *src, const struct wire_url *url,
                 struct proxy_error *err);
void proxy_release(struct proxy *p);

/*
 * Whether a list like "localhost, .example.com, 10.0.0.0/8, [::1], *" names the host, as curl reads
 * it: a name means itself and every name below it, an address itself or its network; "*" only
 * alone. Commas or blanks separate. Ports are no part of it.
 */
bool proxy_bypassed(const char *list, const struct wire_host *host);

/* ---- proxy.c ---- */

struct proxy_target {
    const struct wire_url *url;     /* of the server; not a Unix socket */
    const struct sockaddr *address; /* of the server, if proxy_wants_address(); else NULL */
    const tws_header *headers;      /* of CONNECT */
    size_t header_count;
    uint32_t max_head_bytes; /* of the answer */
    uint16_t max_head_fields;
    tws_head_fn on_head; /* NULL: nobody wants to see */
    void *on_head_arg;
};

/* Whether the server's name has to be resolved here before proxy_open(). */
bool proxy_wants_address(const struct proxy *p, const struct wire_url *url);

/*
 * Has the proxy connect to the target. On the plain stream st, connected to the proxy; afterwards
 * it carries the target's bytes. What the proxy sends is bounded by size and by the deadline.
 * 0; -ETIMEDOUT; -ENOMEM; -EINVAL: something that cannot be asked, a malformed header for
 * instance; -EPROTO: the proxy refused or is none; another -errno: the connection to it broke.
 * err->text tells in every case but -ENOMEM.
 */
int proxy_open(struct net_stream *st, const struct proxy *p, const struct proxy_target *target,
               int64_t deadline, struct proxy_error *err);

/* "http://10.0.0.1:3128" without user and password, counted as snprintf() counts. */
size_t proxy_name(const struct proxy *p, char *buf, size_t size);

/* ---- Within the proxy files ---- */

int proxy_say(struct proxy_error *err, int result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int proxy_send(struct net_stream *st, const void *data, size_t len, int64_t deadline,
               struct proxy_error *err);
/* One byte at least, `cap` at most; how many. The end of the stream is an error. */
ssize_t proxy_recv(struct net_stream *st, void *buf, size_t cap, int64_t deadline,
                   struct proxy_error *err);
int proxy_connect(struct net_stream *st, const struct proxy *p, const struct proxy_target *target,
                  int64_t deadline, struct proxy_error *err);
int proxy_socks5(struct net_stream *st, const struct proxy *p, const struct proxy_target *target,
                 int64_t deadline, struct proxy_error *err);

#endif
