/*
 * The opening handshake of RFC 6455, section 4, as text: what a request asks for and what to
 * answer, what a client sends and whether the answer is right. Bytes in, bytes out.
 *
 * Writers store at most `cap` bytes and no terminator. They return the length of the whole
 * message, which did not fit when it is above `cap`, or -(enum handshake_fault) when a part of it
 * may not be sent.
 */
#ifndef WIRE_HANDSHAKE_H
#define WIRE_HANDSHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tws/types.h>

#include "wire/extension.h"
#include "wire/http.h"
#include "wire/token.h"
#include "wire/url.h"

#define HANDSHAKE_KEY_LEN 24    /* Sec-WebSocket-Key: base64 of 16 bytes */
#define HANDSHAKE_ACCEPT_LEN 28 /* Sec-WebSocket-Accept: base64 of a SHA-1 */
/* Subprotocols in one request; more are refused. It bounds the work of looking for doubles. */
#define HANDSHAKE_PROTOCOLS_MAX 64

/* Sec-WebSocket-Key from 16 random bytes. */
void handshake_key(char key[HANDSHAKE_KEY_LEN], const uint8_t nonce[16]);
/* 24 characters that are the canonical base64 form of 16 bytes. */
bool handshake_key_valid(struct wire_text key);
/* Sec-WebSocket-Accept that answers a key (RFC 6455 4.2.2 item 5.4). */
void handshake_accept(char accept[HANDSHAKE_ACCEPT_LEN], const char key[HANDSHAKE_KEY_LEN]);

/* Server. */

enum handshake_verdict {
    HANDSHAKE_UPGRADE,  /* 101: everything is in order */
    HANDSHAKE_PLAIN,    /* 426: GET or HEAD that does not ask for WebSocket; a page may answer it */
    HANDSHAKE_BAD_HOST, /* 400: missing, twice, malformed */
    HANDSHAKE_BAD_METHOD,     /* 405 */
    HANDSHAKE_BAD_BODY,       /* 400: announces a body, whose bytes must never be read as frames */
    HANDSHAKE_BAD_HTTP,       /* 426: HTTP/1.0, where Upgrade has no meaning */
    HANDSHAKE_BAD_UPGRADE,    /* 426: Sec-WebSocket fields, but no websocket in Upgrade */
    HANDSHAKE_BAD_CONNECTION, /* 426: no upgrade in Connection */
    HANDSHAKE_BAD_VERSION,    /* 400: missing, twice, not a number */
    HANDSHAKE_OTHER_VERSION,  /* 426: not 13 */
    HANDSHAKE_BAD_KEY,        /* 400: missing, twice, not canonical base64 of 16 bytes */
    HANDSHAKE_BAD_PROTOCOLS,  /* 400: malformed list, the same twice, too many */
    HANDSHAKE_BAD_EXTENSIONS, /* 400: malformed list */
    HANDSHAKE_BAD_ORIGIN      /* 400: Origin twice; whether one is welcome, the server asks */
};

/* Texts point into the head's buffer or are literals. */
struct handshake_request {
    enum handshake_verdict verdict;
    int status;      /* as listed above */
    const char *why; /* one line in lower case without a full stop */
    struct wire_text method;
    struct wire_text path;   /* of the target, not decoded; never empty for GET and HEAD */
    struct wire_text query;  /* without the question mark */
    struct wire_text host;   /* Host, or the authority of an absolute target, which overrules it */
    struct wire_text origin; /* at == NULL: no such field */
    struct wire_text key;    /* 24 characters when the verdict is HANDSHAKE_UPGRADE */
    bool is_head;            /* HEAD: the answer has no body */
};

/*
 * Looks at a request head after HTTP_DONE. Fills in what is there, whatever the verdict.
 *
 * A request asks for WebSocket when Upgrade lists websocket or a Sec-WebSocket-Key or -Version is
 * present; other Upgrade values (h2c) are ignored as RFC 9110 7.8 allows. Answers to what RFC
 * 6455 4.2.1 leaves open: a missing Upgrade or Connection token is 426 with an Upgrade field,
 * since it is what a proxy leaves behind that does not forward hop-by-hop fields, and RFC 9110
 * 15.5.22 names exactly this answer. HTTP/1.0 is the same: RFC 9110 7.8 has a server ignore
 * Upgrade there, so the request cannot be served as it came.
 */
void handshake_examine(const struct http_head *h, const uint8_t *buf, struct handshake_request *r);

/* Index in `supported` of the first protocol that the request offers: the server's order decides.
 * -1 when there is none. Names compare byte for byte (RFC 6455 4.2.2). */
int handshake_choose_protocol(const struct http_head *h, const uint8_t *buf,
                              const char *const *supported, size_t n);
/* True when the request offers `protocol`. */
bool handshake_offers_protocol(const struct http_head *h, const uint8_t *buf, const char *protocol);

enum handshake_fault {
    HANDSHAKE_OK = 0,
    /* What a caller asked to write. */
    HANDSHAKE_FAULT_NAME,      /* header name is not a token */
    HANDSHAKE_FAULT_VALUE,     /* header value holds a control, CR and LF too, or outer blanks */
    HANDSHAKE_FAULT_FORBIDDEN, /* header that the writer owns */
    HANDSHAKE_FAULT_PROTOCOL,  /* subprotocol is not a token, or is there twice */
    HANDSHAKE_FAULT_EXTENSION, /* extension list is malformed */
    HANDSHAKE_FAULT_STATUS,    /* status outside 200..599 for a refusal or page */
    HANDSHAKE_FAULT_HOST,      /* Host override is malformed */
    HANDSHAKE_FAULT_KEY,       /* key is not canonical base64 of 16 bytes */
    /* What a server answered; see handshake_verify. */
    HANDSHAKE_FAULT_NOT_101,
    HANDSHAKE_FAULT_HTTP,              /* HTTP/1.0 */
    HANDSHAKE_FAULT_UPGRADE,           /* Upgrade is not websocket and nothing else */
    HANDSHAKE_FAULT_CONNECTION,        /* no upgrade in Connection */
    HANDSHAKE_FAULT_ACCEPT,            /* Sec-WebSocket-Accept missing, twice, wrong */
    HANDSHAKE_FAULT_ANSWERED_PROTOCOL, /* not asked for, twice, empty */
    HANDSHAKE_FAULT_ANSWERED_EXTENSION /* not asked for, not acceptable, malformed, empty */
};

/* One line in lower case without a full stop. */
const char *handshake_fault_text(enum handshake_fault fault);

/* A request's head that somebody else has parsed. Terminated strings. */
struct handshake_parsed {
    const char *method, *target, *version;
    const tws_header *headers;
    size_t nheaders;
};

/*
 * Writes it as it must have looked, so that http_head_feed() finds the same parts again and judges
 * them. What cannot have been a part (blanks or controls in the request line, a name that is no token,
 * controls in a value) is a fault.
 */
ptrdiff_t handshake_write_parsed(char *out, size_t cap, const struct handshake_parsed *p);

/* The 101 response. */
struct handshake_switch {
    struct wire_text key;      /* of the request */
    const char *protocol;      /* NULL: none */
    const char *extensions;    /* value of Sec-WebSocket-Extensions; NULL: none */
    const char *server;        /* value of Server; NULL: none */
    const tws_header *headers; /* written in this order; names may repeat */
    size_t nheaders;
};

ptrdiff_t handshake_write_switch(char *out, size_t cap, const struct handshake_switch *s);

/* Any other response: a refusal, or a page to a plain GET. The connection is closed after it, and
 * it says so. */
struct handshake_response {
    int status;               /* 426 brings Upgrade and Sec-WebSocket-Version, 405 brings Allow */
    const char *server;       /* NULL: none */
    const char *content_type; /* NULL: text/plain; charset=utf-8 */
    const void *body;         /* NULL with body_len > 0: the caller sends the body after the head */
    size_t body_len;
    bool is_head; /* leave the body out, keep its length */
    const tws_header *headers;
    size_t nheaders;
};

ptrdiff_t handshake_write_response(char *out, size_t cap, const struct handshake_response *r);

/* Client. */

struct handshake_offer {
    const struct wire_url *url;
    const char *key;              /* 24 characters */
    const char *host;             /* instead of the address's; NULL: from the address */
    const char *const *protocols; /* in order of preference */
    size_t nprotocols;
    const char *extensions;    /* value of Sec-WebSocket-Extensions; NULL: none */
    const char *origin;        /* NULL: none */
    const tws_header *headers; /* written in this order; names may repeat */
    size_t nheaders;
};

/* The request. User information of the address becomes Authorization: Basic, unless `headers` has
 * one. Forbidden in `headers`: Host, Upgrade, Connection, Content-Length, Transfer-Encoding,
 * every Sec-WebSocket-*, and Origin beside `origin`. */
ptrdiff_t handshake_write_request(char *out, size_t cap, const struct handshake_offer *offer);

/* CONNECT host:port for a proxy (RFC 9110 9.3.6). `headers` may hold Proxy-Authorization. */
ptrdiff_t handshake_write_connect(char *out, size_t cap, const struct wire_url *url,
                                  const tws_header *headers, size_t nheaders);

/* Asked for each extension of the answer in order; false refuses it. Walking the parameters uses
 * up `ext`. */
typedef bool handshake_extension_fn(void *arg, struct extension *ext);

struct handshake_answer {
    int protocol; /* index in the offer's protocols; -1: the server chose none */
};

/* Checks a response head after HTTP_DONE as RFC 6455 4.1 says. `accept_extension` is NULL when
 * none were offered. */
enum handshake_fault handshake_verify(const struct http_head *h, const uint8_t *buf,
                                      const struct handshake_offer *offer,
                                      handshake_extension_fn *accept_extension, void *arg,
                                      struct handshake_answer *answer);

#endif
