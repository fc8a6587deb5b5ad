/* The server's side of the opening handshake: what a request asks for. */
#include "wire/handshake.h"

#include <string.h>

#include "wire/base64.h"
#include "wire/origin.h"
#include "wire/sha1.h"

void handshake_key(char key[HANDSHAKE_KEY_LEN], const uint8_t nonce[16])
{
    wire_base64_encode(key, nonce, 16);
}

void handshake_accept(char accept[HANDSHAKE_ACCEPT_LEN], const char key[HANDSHAKE_KEY_LEN])
{
    static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    uint8_t digest[WIRE_SHA1_LEN];
    char joined[HANDSHAKE_KEY_LEN + sizeof guid - 1];

    memcpy(joined, key, HANDSHAKE_KEY_LEN);
    memcpy(joined + HANDSHAKE_KEY_LEN, guid, sizeof guid - 1);
    wire_sha1(joined, sizeof joined, digest);
    wire_base64_encode(accept, digest, sizeof digest);
}

bool handshake_key_valid(struct wire_text key)
{
    uint8_t nonce[16];

    return key.len == HANDSHAKE_KEY_LEN &&
           wire_base64_decode(nonce, sizeof nonce, key.at, key.len) == (ptrdiff_t)sizeof nonce;
}

/* A request under examination. */
struct look {
    const struct http_head *h;
    const uint8_t *buf;
    struct handshake_request *r;
};

/* The only field of that name. 1: there is one, 0: none, -1: more than one. */
static int only(const struct look *l, const char *name, struct wire_text *value)
{
    const struct http_field *field = http_find(l->h, l->buf, name, NULL);

    *value = (struct wire_text){NULL, 0};
    if (field == NULL)
        return 0;
    *value = http_text(l->buf, field->value);
    return http_find(l->h, l->buf, name, field) == NULL ? 1 : -1;
}

static bool verdict(const struct look *l, enum handshake_verdict v, int status, const char *why)
{
    l->r->verdict = v;
    l->r->status = status;
    l->r->why = why;
    return false;
}

/* Splits the target into authority, path and query. */
static void look_at_target(const struct look *l, struct wire_text *authority)
{
    struct wire_text rest = http_text(l->buf, l->h->target);

    *authority = (struct wire_text){NULL, 0};
    if (l->h->target_form == HTTP_TARGET_ABSOLUTE) {
        rest = wire_text_skip(rest, wire_text_find(rest, ':') + 3);

        size_t n = wire_text_find_any(rest, "/?");

        *authority = wire_text_head(rest, n);
        rest = wire_text_skip(rest, n);
    }

    size_t n = wire_text_find(rest, '?');

    l->r->path = n > 0 ? wire_text_head(rest, n) : wire_text_of("/");
    l->r->query = wire_text_skip(rest, n + 1);
}

static bool asks_for_websocket(const struct look *l)
{
    return token_list_has(l->h, l->buf, "Upgrade", "websocket") ||
           http_find(l->h, l->buf, "Sec-WebSocket-Key", NULL) != NULL ||
           http_find(l->h, l->buf, "Sec-WebSocket-Version", NULL) != NULL;
}

/* RFC 9112 3.2. An empty Host is legal where the host does not matter, as in a health check. */
static bool host_is_good(const struct look *l, struct wire_text authority, bool asked)
{
    struct handshake_request *r = l->r;
    struct wire_host host;
    int found = only(l, "Host", &r->host);

    if (found < 0)
        return verdict(l, HANDSHAKE_BAD_HOST, 400, "more than one Host header");
    if (found == 0 && l->h->minor > 0)
        return verdict(l, HANDSHAKE_BAD_HOST, 400, "no Host header");
    if (r->host.len > 0 && !wire_host_parse(&host, r->host))
        return verdict(l, HANDSHAKE_BAD_HOST, 400, "malformed Host header");
    if (authority.at != NULL) {
        r->host = authority;
        if (!wire_host_parse(&host, authority))
            return verdict(l, HANDSHAKE_BAD_HOST, 400, "malformed host in the request target");
    }
    if (r->host.len == 0 && asked && l->h->minor > 0)
        return verdict(l, HANDSHAKE_BAD_HOST, 400, "empty Host header");
    return true;
}

static bool method_is_good(const struct look *l, bool asked)
{
    struct wire_text get = wire_text_of("GET");
    struct wire_text head = wire_text_of("HEAD");

    l->r->is_head = wire_text_equal(l->r->method, head);
    if (wire_text_equal(l->r->method, get) || (l->r->is_head && !asked))
        return true;
    return verdict(l, HANDSHAKE_BAD_METHOD, 405,
                   asked ? "a WebSocket handshake must be a GET request"
                         : "only GET and HEAD are served here");
}

/* Nobody here reads a body, and what follows the head of a handshake are frames. */
static bool body_is_absent(const struct look *l)
{
    struct wire_text length;
    int found = only(l, "Content-Length", &length);

    if (http_find(l->h, l->buf, "Transfer-Encoding", NULL) != NULL)
        return verdict(l, HANDSHAKE_BAD_BODY, 400, "request with a Transfer-Encoding");
    if (found < 0)
        return verdict(l, HANDSHAKE_BAD_BODY, 400, "more than one Content-Length header");
    for (size_t i = 0; i < length.len; i++)
        if (length.at[i] != '0')
            return verdict(l, HANDSHAKE_BAD_BODY, 400, "request with a body");
    if (found == 1 && length.len == 0)
        return verdict(l, HANDSHAKE_BAD_BODY, 400, "malformed Content-Length header");
    return true;
}

static bool upgrade_is_good(const struct look *l)
{
    if (l->h->minor == 0)
        return verdict(l, HANDSHAKE_BAD_HTTP, 426,
                       "a WebSocket handshake needs HTTP/1.1 (a proxy may have lowered it to 1.0)");
    if (!token_list_has(l->h, l->buf, "Upgrade", "websocket"))
        return verdict(l, HANDSHAKE_BAD_UPGRADE, 426,
                       "no websocket in the Upgrade header (a proxy may not forward it)");
    if (!token_list_has(l->h, l->buf, "Connection", "upgrade"))
        return verdict(l, HANDSHAKE_BAD_CONNECTION, 426,
                       "no upgrade in the Connection header (a proxy may not forward it)");
    return true;
}

/* NZDIGIT and so on up to 255, RFC 6455 4.3. */
static bool version_well_formed(struct wire_text version)
{
    unsigned number = 0;

    if (version.len < 1 || version.len > 3 || (version.len > 1 && version.at[0] == '0'))
        return false;
    for (size_t i = 0; i < version.len; i++) {
        if (!wire_is_digit((uint8_t)version.at[i]))
            return false;
        number = number * 10 + (unsigned)(version.at[i] - '0');
    }
    return number <= 255;
}

/* The version comes first: another one may have other rules for its key. */
static bool version_and_key_are_good(const struct look *l)
{
    struct wire_text version;
    int found = only(l, "Sec-WebSocket-Version", &version);

    if (found == 0)
        return verdict(l, HANDSHAKE_BAD_VERSION, 400, "no Sec-WebSocket-Version header");
    if (found < 0)
        return verdict(l, HANDSHAKE_BAD_VERSION, 400, "more than one Sec-WebSocket-Version header");
    if (!version_well_formed(version))
        return verdict(l, HANDSHAKE_BAD_VERSION, 400, "malformed Sec-WebSocket-Version header");
    if (!wire_text_is(version, "13"))
        return verdict(l, HANDSHAKE_OTHER_VERSION, 426, "WebSocket version is not 13");

    found = only(l, "Sec-WebSocket-Key", &l->r->key);
    if (found == 0)
        return verdict(l, HANDSHAKE_BAD_KEY, 400, "no Sec-WebSocket-Key header");
    if (found < 0)
        return verdict(l, HANDSHAKE_BAD_KEY, 400, "more than one Sec-WebSocket-Key header");
    if (!handshake_key_valid(l->r->key))
        return verdict(l, HANDSHAKE_BAD_KEY, 400,
                       "Sec-WebSocket-Key is not the base64 form of 16 bytes");
    return true;
}

/* RFC 6455 4.1 item 10 of the client's part: tokens, each once. */
static bool protocols_are_good(const struct look *l)
{
    struct wire_text names[HANDSHAKE_PROTOCOLS_MAX];
    struct token_list list;
    struct wire_text name;
    size_t n = 0;
    int more;

    token_list_of_head(&list, l->h, l->buf, "Sec-WebSocket-Protocol");
    while ((more = token_list_next(&list, &name)) == 1) {
        if (!token_valid(name))
            break;
        if (n == HANDSHAKE_PROTOCOLS_MAX)
            return verdict(l, HANDSHAKE_BAD_PROTOCOLS, 400, "too many subprotocols");
        for (size_t i = 0; i < n; i++)
            if (wire_text_equal(names[i], name))
                return verdict(l, HANDSHAKE_BAD_PROTOCOLS, 400,
                               "Sec-WebSocket-Protocol names a subprotocol twice");
        names[n++] = name;
    }
    if (more != 0)
        return verdict(l, HANDSHAKE_BAD_PROTOCOLS, 400, "malformed Sec-WebSocket-Protocol header");
    return true;
}

void handshake_examine(const struct http_head *h, const uint8_t *buf, struct handshake_request *r)
{
    const struct look l = {h, buf, r};
    struct wire_text authority;
    bool asked = asks_for_websocket(&l);

    *r = (struct handshake_request){.method = http_text(buf, h->method)};
    look_at_target(&l, &authority);

    int origins = only(&l, "Origin", &r->origin);

    if (!host_is_good(&l, authority, asked) || !method_is_good(&l, asked) || !body_is_absent(&l))
        return;
    if (!asked) {
        verdict(&l, HANDSHAKE_PLAIN, 426, "this is a WebSocket server");
        return;
    }
    if (!upgrade_is_good(&l) || !version_and_key_are_good(&l) || !protocols_are_good(&l))
        return;
    if (!extension_list_valid(h, buf, NULL))
        verdict(&l, HANDSHAKE_BAD_EXTENSIONS, 400, "malformed Sec-WebSocket-Extensions header");
    else if (origins < 0)
        verdict(&l, HANDSHAKE_BAD_ORIGIN, 400, "more than one Origin header");
    else
        verdict(&l, HANDSHAKE_UPGRADE, 101, "");
}

bool handshake_offers_protocol(const struct http_head *h, const uint8_t *buf, const char *protocol)
{
    struct wire_text wanted = wire_text_of(protocol);
    struct token_list list;
    struct wire_text name;

    token_list_of_head(&list, h, buf, "Sec-WebSocket-Protocol");
    while (token_list_next(&list, &name) == 1)
        if (wire_text_equal(name, wanted))
            return true;
    return false;
}

int handshake_choose_protocol(const struct http_head *h, const uint8_t *buf,
                              const char *const *supported, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (handshake_offers_protocol(h, buf, supported[i]))
            return (int)i;
    return -1;
}
