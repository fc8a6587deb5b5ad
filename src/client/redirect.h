/* redirect.h: where a redirect leads (RFC 3986 5.2, RFC 9110 10.2.2). Pure. */
#ifndef CLIENT_REDIRECT_H
#define CLIENT_REDIRECT_H

#include "wire/url.h"

enum redirect_fault {
    REDIRECT_OK = 0,
    REDIRECT_NO_LOCATION, /* empty, or only a fragment */
    REDIRECT_SCHEME,      /* none of ws, wss, http, https */
    REDIRECT_DOWNGRADE,   /* from wss to ws */
    REDIRECT_LEAVES_UNIX, /* from a Unix socket to another host */
    REDIRECT_BAD_URL      /* see redirect.url_fault */
};

struct redirect {
    char *text; /* the caller's; REDIRECT_ROOM bytes are enough. Zero-terminated. */
    size_t cap;
    struct wire_url url; /* of text */
    bool same_host;      /* credentials may go there */
    enum wire_url_error url_fault;
};

#define REDIRECT_ROOM(base_len, location_len) ((base_len) + (location_len) + 32)

/*
 * `base` is where the answer came from, `host` the Host that was sent there when it was not the
 * address's own, else NULL. A user in Location is dropped; that of `base` goes along to the same
 * host: the same name, and the same port or the default ones of ws and wss.
 */
enum redirect_fault redirect_resolve(struct redirect *r, const struct wire_url *base,
                                     const char *host, struct wire_text location);
const char *redirect_fault_text(const struct redirect *r, enum redirect_fault fault);

#endif
