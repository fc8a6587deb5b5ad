#include "wire/url.h"

static const char *const error_texts[] = {
    [WIRE_URL_OK] = "no error",
    [WIRE_URL_TOO_LONG] = "address is too long",
    [WIRE_URL_CHARACTER] = "address has a character that must be percent-encoded",
    [WIRE_URL_ESCAPE] = "malformed or forbidden percent escape in the address",
    [WIRE_URL_SCHEME] = "scheme of the address is not ws, wss, ws+unix or wss+unix",
    [WIRE_URL_FRAGMENT] = "address of a WebSocket must not have a fragment",
    [WIRE_URL_USERINFO] = "malformed user information in the address",
    [WIRE_URL_HOST] = "missing or malformed host in the address",
    [WIRE_URL_PORT] = "port of the address is not in 1 to 65535",
    [WIRE_URL_UNIX_PATH] = "socket path of the address is not absolute, empty or too long",
};

const char *wire_url_error_text(enum wire_url_error error)
{
    return error_texts[error];
}

/* Value of the escape at the start of `text`, or -1. */
static int escape_value(struct wire_text text)
{
    if (text.len < 3)
        return -1;

    int high = wire_hex_value((uint8_t)text.at[1]);
    int low = wire_hex_value((uint8_t)text.at[2]);

    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static enum wire_url_error check_characters(struct wire_text text)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.at[i];

        if (c == '#')
            return WIRE_URL_FRAGMENT;
        if (c <= ' ' || c > '~' || wire_one_of(c, "\"<>\\^`{|}"))
            return WIRE_URL_CHARACTER;
        if (c == '%' && escape_value(wire_text_skip(text, i)) < 0)
            return WIRE_URL_ESCAPE;
    }
    return WIRE_URL_OK;
}

/* Decodes the character at the start of `text` and steps over it. */
static uint8_t take_char(struct wire_text *text)
{
    uint8_t c = (uint8_t)text->at[0];

    if (c == '%')
        c = (uint8_t)escape_value(*text);
    *text = wire_text_skip(*text, text->at[0] == '%' ? 3 : 1);
    return c;
}

/* RFC 7617 2: no control characters in either, no colon in the name. */
static enum wire_url_error check_userinfo(struct wire_text text, bool is_user)
{
    if (wire_text_find(text, '[') < text.len || wire_text_find(text, ']') < text.len)
        return WIRE_URL_USERINFO;
    while (text.len > 0) {
        uint8_t c = take_char(&text);

        if (c < ' ' || c == 127)
            return WIRE_URL_ESCAPE;
        if (c == ':' && is_user)
            return WIRE_URL_USERINFO;
    }
    return WIRE_URL_OK;
}

static enum wire_url_error parse_userinfo(struct wire_url *url, struct wire_text text)
{
    size_t n = wire_text_find(text, ':');
    enum wire_url_error error;

    url->has_userinfo = true;
    url->user = wire_text_head(text, n);
    url->password = wire_text_skip(text, n + 1);
    error = check_userinfo(url->user, true);
    return error != WIRE_URL_OK ? error : check_userinfo(url->password, false);
}

/* What can be connected to: names as DNS and hosts files spell them, and addresses. */
static enum wire_url_error parse_host(struct wire_url *url, struct wire_text text)
{
    size_t colon = text.len;

    if (!wire_host_parse(&url->host, text)) {
        while (colon > 0 && text.at[colon - 1] != ':')
            colon--;
        return colon > 0 && wire_host_parse(&url->host, wire_text_head(text, colon - 1))
                   ? WIRE_URL_PORT
                   : WIRE_URL_HOST;
    }
    if (url->host.name.len > WIRE_URL_HOST_MAX)
        return WIRE_URL_HOST;
    for (size_t i = 0; i < url->host.name.len; i++)
        if (wire_one_of(url->host.name.at[i], "%!$&'()*+,;="))
            return WIRE_URL_HOST;

    uint16_t usual = url->tls ? 443 : 80;

    url->default_port = url->host.port == 0 || url->host.port == usual;
    if (url->host.port == 0)
        url->host.port = usual;
    return WIRE_URL_OK;
}

static void parse_resource(struct wire_url *url, struct wire_text text)
{
    size_t n = wire_text_find(text, '?');

    url->path = wire_text_head(text, n);
    url->query = wire_text_skip(text, n);
}

static enum wire_url_error parse_network(struct wire_url *url, struct wire_text text)
{
    size_t n = wire_text_find_any(text, "/?");
    struct wire_text authority = wire_text_head(text, n);
    size_t at = wire_text_find(authority, '@');
    enum wire_url_error error;

    parse_resource(url, wire_text_skip(text, n));
    if (at < authority.len) {
        error = parse_userinfo(url, wire_text_head(authority, at));
        if (error != WIRE_URL_OK)
            return error;
        authority = wire_text_skip(authority, at + 1);
        if (wire_text_find(authority, '@') < authority.len)
            return WIRE_URL_USERINFO;
    }
    return parse_host(url, authority);
}

static enum wire_url_error parse_unix(struct wire_url *url, struct wire_text text)
{
    struct wire_text path;
    size_t length = 0;

    if (wire_text_starts(text, "//"))
        text = wire_text_skip(text, 2);

    size_t n = wire_text_find_any(text, ":?");

    url->is_unix = true;
    url->default_port = true;
    url->unix_path = wire_text_head(text, n);
    text = wire_text_skip(text, n);
    if (text.len > 0 && text.at[0] == ':')
        text = wire_text_skip(text, 1);
    if (url->unix_path.len == 0 || url->unix_path.at[0] != '/')
        return WIRE_URL_UNIX_PATH;
    for (path = url->unix_path; path.len > 0; length++)
        if (take_char(&path) == '\0')
            return WIRE_URL_ESCAPE;
    if (length > WIRE_UNIX_PATH_MAX)
        return WIRE_URL_UNIX_PATH;
    if (text.len > 0 && text.at[0] != '/' && text.at[0] != '?')
        return WIRE_URL_CHARACTER;
    parse_resource(url, text);
    return WIRE_URL_OK;
}

enum wire_url_error wire_url_parse(struct wire_url *url, struct wire_text text)
{
    size_t n = wire_text_find(text, ':');
    struct wire_text scheme = wire_text_head(text, n);
    enum wire_url_error error;

    *url = (struct wire_url){.tls = wire_text_starts(scheme, "wss")};
    if (text.len > WIRE_URL_MAX)
        return WIRE_URL_TOO_LONG;
    error = check_characters(text);
    if (error != WIRE_URL_OK)
        return error;
    text = wire_text_skip(text, n + 1);
    if (wire_text_is(scheme, "ws+unix") || wire_text_is(scheme, "wss+unix"))
        return parse_unix(url, text);
    if (!wire_text_is(scheme, url->tls ? "wss" : "ws") || !wire_text_starts(text, "//"))
        return WIRE_URL_SCHEME;
    return parse_network(url, wire_text_skip(text, 2));
}

size_t wire_url_target(const struct wire_url *url, char *out, size_t cap)
{
    struct wire_out w = {out, cap, 0};

    if (url->path.len == 0)
        wire_put_char(&w, '/');
    wire_put(&w, url->path);
    wire_put(&w, url->query);
    return w.len;
}

static size_t write_authority(const struct wire_url *url, bool with_port, char *out, size_t cap)
{
    struct wire_out w = {out, cap, 0};

    if (url->is_unix) {
        wire_put_string(&w, "localhost");
        return w.len;
    }
    if (url->host.ipv6)
        wire_put_char(&w, '[');
    wire_put(&w, url->host.name);
    if (url->host.ipv6)
        wire_put_char(&w, ']');
    if (with_port) {
        wire_put_char(&w, ':');
        wire_put_number(&w, url->host.port);
    }
    return w.len;
}

size_t wire_url_host(const struct wire_url *url, char *out, size_t cap)
{
    return write_authority(url, !url->default_port, out, cap);
}

size_t wire_url_authority(const struct wire_url *url, char *out, size_t cap)
{
    return write_authority(url, true, out, cap);
}

void wire_url_put(struct wire_out *out, const struct wire_url *url,
                  size_t (*write)(const struct wire_url *url, char *out, size_t cap))
{
    size_t room = out->len < out->cap ? out->cap - out->len : 0;

    out->len += write(url, room > 0 ? out->at + out->len : NULL, room);
}

size_t wire_url_decode(struct wire_text text, char *out, size_t cap)
{
    struct wire_out w = {out, cap, 0};

    while (text.len > 0)
        wire_put_char(&w, (char)take_char(&text));
    return w.len;
}
