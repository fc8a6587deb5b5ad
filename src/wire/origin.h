/*
 * Host of an authority, and the origin of a page (RFC 6454, RFC 9110 7.2, RFC 3986 3.2).
 *
 * Names are compared as ASCII without case. Bytes above 127 have no place in either field, since
 * names travel in their ASCII form, and are refused rather than folded.
 */
#ifndef WIRE_ORIGIN_H
#define WIRE_ORIGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/token.h"

struct wire_host {
    struct wire_text name; /* without the brackets of an IPv6 address */
    uint16_t port;         /* 0: none given */
    bool ipv6;
};

/* uri-host [":" port]. The name is a reg-name, an IPv4 address or an IPv6 address in brackets;
 * never empty, never with user information. An empty port counts as none; port 0 and ports above
 * 65535 are refused. IPvFuture and zone identifiers are refused. */
bool wire_host_parse(struct wire_host *host, struct wire_text text);
/* An IPv6 address in any of the forms of RFC 4291 2.2, without brackets or zone. */
bool wire_ipv6_valid(struct wire_text text);

struct wire_origin {
    struct wire_text scheme;
    struct wire_host host; /* port filled in from the scheme where it is known; else 0 */
};

/* scheme "://" host [":" port] and nothing behind it. False for anything else, also for `null`
 * and for several origins in one value. */
bool wire_origin_parse(struct wire_origin *origin, struct wire_text text);
/* Same scheme (https exactly when `tls`), host and port as the server that was asked under the
 * Host value `host`. False when either text is malformed, or the origin is `null`. */
bool wire_origin_same(struct wire_text origin, struct wire_text host, bool tls);

// Patterns of an allow-list:
//
//     *                      every well-formed origin, and null
//     null                   null: sandboxed frames, files, redirects between sites
//     https://example.com    this scheme and host on the scheme's default port
//     example.com            this host with any scheme, on the scheme's default port
//     *.example.com          one or more labels before .example.com; not example.com itself
//     https://*.example.com:8443
//     http://localhost:*     any port
//     https://[2001:db8::1]  addresses are compared as written
bool wire_origin_pattern_valid(struct wire_text pattern);
/* False also when the pattern or the origin is malformed. */
bool wire_origin_matches(struct wire_text origin, struct wire_text pattern);

#endif
