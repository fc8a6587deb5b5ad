/*
 * ws: and wss: addresses (RFC 6455, section 3; RFC 3986), and the ws+unix: form of the Node.js
 * client.
 *
 *     ws://user:password@host:port/path?query
 *     wss://[2001:db8::1]/path?query
 *     ws+unix:/path/of/socket:/path?query        also ws+unix:///path..., wss+unix:
 *
 * http and https are not taken as other names of ws and wss: an address that means a page is a
 * mistake to hear of, not to guess at. A fragment is refused as section 3 demands. Characters
 * outside RFC 3986 must come percent-encoded; only brackets in path and query pass, since they
 * are in wide use there.
 */
#ifndef WIRE_URL_H
#define WIRE_URL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/origin.h"
#include "wire/token.h"

#define WIRE_URL_MAX 8192 /* bytes of an address */
#define WIRE_URL_HOST_MAX 255
#define WIRE_UNIX_PATH_MAX 107 /* bytes of a socket's path, decoded */

enum wire_url_error {
    WIRE_URL_OK = 0,
    WIRE_URL_TOO_LONG,
    WIRE_URL_CHARACTER, /* control, blank, above 127, or not allowed unescaped */
    WIRE_URL_ESCAPE, /* % without two hexadecimal digits, or one that hides a control character */
    WIRE_URL_SCHEME, /* none, or another one */
    WIRE_URL_FRAGMENT,
    WIRE_URL_USERINFO, /* empty name with a password is fine; a colon hidden in the name is not */
    WIRE_URL_HOST,
    WIRE_URL_PORT,
    WIRE_URL_UNIX_PATH /* not absolute, empty or too long */
};

/* Points into the text that was parsed. */
struct wire_url {
    bool tls;
    bool is_unix;
    bool has_userinfo;
    struct wire_host host;     /* port is filled in: 80 or 443; for ws+unix name is empty, port 0 */
    bool default_port;         /* nothing need be said about it in Host */
    struct wire_text user;     /* still percent-encoded */
    struct wire_text password; /* still percent-encoded */
    struct wire_text unix_path; /* still percent-encoded */
    struct wire_text path;      /* as written; may be empty, which means / */
    struct wire_text query;     /* with its question mark; empty when there is none */
};

enum wire_url_error wire_url_parse(struct wire_url *url, struct wire_text text);
/* One line in lower case without a full stop. */
const char *wire_url_error_text(enum wire_url_error error);

/* The writers store at most `cap` bytes, no terminator, and return the length of the whole. */

/* Request target: path, or / when it is empty, and query. */
size_t wire_url_target(const struct wire_url *url, char *out, size_t cap);
/* Value of Host: brackets around IPv6, port when it is not the default; "localhost" for a Unix
 * socket. */
size_t wire_url_host(const struct wire_url *url, char *out, size_t cap);
/* host:port with the port always there: the target of CONNECT. */
size_t wire_url_authority(const struct wire_url *url, char *out, size_t cap);
/* Appends what one of these three writes. */
void wire_url_put(struct wire_out *out, const struct wire_url *url,
                  size_t (*write)(const struct wire_url *url, char *out, size_t cap));
/* Percent-decoding. `text` comes from a parsed address, so its escapes are well formed. */
size_t wire_url_decode(struct wire_text text, char *out, size_t cap);

#endif
