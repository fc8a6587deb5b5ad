#include "client/redirect.h"

#include <string.h>

/* A reference, taken apart. */
struct reference {
    bool has_authority;
    bool tls;
    struct wire_text authority; /* without user information */
    struct wire_text path;
    struct wire_text query; /* with its question mark */
};

const char *redirect_fault_text(const struct redirect *r, enum redirect_fault fault)
{
    switch (fault) {
    case REDIRECT_OK:
        break;
    case REDIRECT_NO_LOCATION:
        return "it has no Location";
    case REDIRECT_SCHEME:
        return "its Location is none of ws, wss, http and https";
    case REDIRECT_DOWNGRADE:
        return "it leads from wss to ws";
    case REDIRECT_LEAVES_UNIX:
        return "it leads from a Unix socket to another host";
    case REDIRECT_BAD_URL:
        return wire_url_error_text(r->url_fault);
    }
    return "";
}

/* ---- Taking a reference apart ---- */

/* Length of a scheme before its colon; 0: the reference is relative. */
static size_t scheme_length(struct wire_text text)
{
    size_t colon = wire_text_find(text, ':');

    if (colon == text.len || !wire_is_alpha((uint8_t)text.at[0]))
        return 0;
    for (size_t i = 1; i < colon; i++) {
        uint8_t c = (uint8_t)text.at[i];

        if (!wire_is_alpha(c) && !wire_is_digit(c) && c != '+' && c != '-' && c != '.')
            return 0;
    }
    return colon;
}

static bool read_scheme(struct wire_text scheme, bool *tls)
{
    *tls = wire_text_is(scheme, "wss") || wire_text_is(scheme, "https");
    return *tls || wire_text_is(scheme, "ws") || wire_text_is(scheme, "http");
}

static void read_authority(struct reference *ref, struct wire_text *text)
{
    size_t len = wire_text_find_any(*text, "/?");
    struct wire_text authority = wire_text_head(*text, len);
    size_t at = authority.len;

    while (at > 0 && authority.at[at - 1] != '@')
        at--;
    ref->has_authority = true;
    ref->authority = wire_text_skip(authority, at);
    *text = wire_text_skip(*text, len);
}

static enum redirect_fault read_reference(struct reference *ref, const struct wire_url *base,
                                          struct wire_text text)
{
    size_t scheme, len;

    memset(ref, 0, sizeof *ref);
    ref->tls = base->tls;
    text = wire_text_head(text, wire_text_find(text, '#'));
    if (text.len == 0)
        return REDIRECT_NO_LOCATION;
    scheme = scheme_length(text);
    if (scheme > 0) {
        if (!read_scheme(wire_text_head(text, scheme), &ref->tls))
            return REDIRECT_SCHEME;
        text = wire_text_skip(text, scheme + 1);
        if (!wire_text_starts(text, "//"))
            return REDIRECT_SCHEME;
    }
    if (wire_text_starts(text, "//")) {
        text = wire_text_skip(text, 2);
        read_authority(ref, &text);
    }
    len = wire_text_find(text, '?');
    ref->path = wire_text_head(text, len);
    ref->query = wire_text_skip(text, len);
    return REDIRECT_OK;
}

/* ---- Putting an address together ---- */

/* RFC 3986 5.2.4, in place. The path begins with a slash. Its new length. */
static size_t remove_dots(char *path, size_t len)
{
    size_t in = 0, out = 0;

    while (in < len) {
        struct wire_text rest = {path + in + 1, len - in - 1}; /* path[in] is a slash */
        size_t segment = wire_text_find(rest, '/');
        bool last = segment == rest.len;
        bool dot = segment == 1 && rest.at[0] == '.';
        bool up = segment == 2 && rest.at[0] == '.' && rest.at[1] == '.';

        if (up)
            while (out > 0 && path[--out] != '/') {
            }
        if (!dot && !up) {
            memmove(path + out, path + in, segment + 1);
            out += segment + 1;
        } else if (last) {
            path[out++] = '/';
        }
        in += segment + 1;
    }
    return out;
}

/* Where the path of the new address begins is where the writer stands. */
static void put_path(struct wire_out *out, const struct wire_url *base, const struct reference *ref)
{
    size_t begin = out->len;

    if (!ref->has_authority && ref->path.len == 0) { /* only a query */
        wire_put(out, base->path);
    } else if (!ref->has_authority && ref->path.at[0] != '/') {
        size_t dir = base->path.len;

        while (dir > 0 && base->path.at[dir - 1] != '/')
            dir--;
        wire_put(out, wire_text_head(base->path, dir));
        if (dir == 0)
            wire_put_char(out, '/');
        wire_put(out, ref->path);
    } else {
        wire_put(out, ref->path);
    }
    if (out->len > begin && out->len <= out->cap && out->at[begin] == '/')
        out->len = begin + remove_dots(out->at + begin, out->len - begin);
    wire_put(out, ref->query);
}

static bool hosts_match(const struct wire_url *base, const struct reference *ref)
{
    struct wire_host host;
    uint16_t standard = ref->tls ? 443 : 80;

    if (!ref->has_authority)
        return true;
    if (!wire_host_parse(&host, ref->authority) ||
        !wire_text_equal_nocase(host.name, base->host.name))
        return false;
    if (host.port == 0)
        host.port = standard;
    return host.port == base->host.port || (host.port == standard && base->default_port);
}

static void put_network(struct wire_out *out, const struct wire_url *base,
                        const struct reference *ref, bool same_host)
{
    wire_put_string(out, ref->tls ? "wss://" : "ws://");
    if (same_host && base->has_userinfo) {
        wire_put(out, base->user);
        wire_put_char(out, ':');
        wire_put(out, base->password);
        wire_put_char(out, '@');
    }
    if (ref->has_authority)
        wire_put(out, ref->authority);
    else
        wire_url_put(out, base, wire_url_host);
    put_path(out, base, ref);
}

/* Behind a Unix socket there is one server, which names itself as it was called. */
static bool names_unix_host(const struct reference *ref, const char *host)
{
    return !ref->has_authority || wire_text_is(ref->authority, host ? host : "localhost");
}

enum redirect_fault redirect_resolve(struct redirect *r, const struct wire_url *base,
                                     const char *host, struct wire_text location)
{
    struct wire_out out = {r->text, r->cap - 1, 0};
    struct reference ref;
    enum redirect_fault fault = read_reference(&ref, base, wire_text_trim(location));

    r->url_fault = WIRE_URL_OK;
    if (fault)
        return fault;
    if (base->is_unix) {
        if (!names_unix_host(&ref, host))
            return REDIRECT_LEAVES_UNIX;
        r->same_host = true;
        if (base->tls && !ref.tls)
            return REDIRECT_DOWNGRADE;
        wire_put_string(&out, base->tls ? "wss+unix:" : "ws+unix:");
        wire_put(&out, base->unix_path);
        wire_put_char(&out, ':');
        if (ref.has_authority && ref.path.len == 0)
            wire_put_char(&out, '/');
        put_path(&out, base, &ref);
    } else {
        r->same_host = hosts_match(base, &ref);
        if (base->tls && !ref.tls)
            return REDIRECT_DOWNGRADE;
        put_network(&out, base, &ref, r->same_host);
    }
    if (out.len > out.cap) {
        r->url_fault = WIRE_URL_TOO_LONG;
        return REDIRECT_BAD_URL;
    }
    r->text[out.len] = 0;
    r->url_fault = wire_url_parse(&r->url, (struct wire_text){r->text, out.len});
    return r->url_fault ? REDIRECT_BAD_URL : REDIRECT_OK;
}
