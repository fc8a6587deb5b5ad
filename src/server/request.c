#include "server/request.h"

#include "base/text.h"

#include <string.h>

/* ---- Building ---- */

size_t request_size(const struct http_head *h, const struct handshake_request *hs)
{
    size_t size = sizeof(tws_request) + h->nfields * sizeof(struct request_field);

    size += hs->method.len + 1 + hs->path.len + 1 + hs->query.len + 1;
    for (uint16_t i = 0; i < h->nfields; i++)
        size += h->fields[i].name.len + 1 + h->fields[i].value.len + 1;
    return size;
}

static char *text_of(const tws_request *r)
{
    return (char *)(uintptr_t)r + r->text;
}

static uint16_t put(tws_request *r, size_t *at, const char *text, size_t len)
{
    size_t begin = *at;

    memcpy(text_of(r) + begin, text, len);
    text_of(r)[begin + len] = 0;
    *at = begin + len + 1;
    return (uint16_t)begin;
}

tws_request *request_build(void *mem, const struct http_head *h, const uint8_t *buf,
                           const struct handshake_request *hs, const union net_peer *peer, int fd)
{
    tws_request *r = mem;
    size_t at = 0;

    r->peer = *peer;
    r->fd = fd;
    r->nfields = h->nfields;
    r->text = (uint32_t)(sizeof *r + h->nfields * sizeof(struct request_field));
    r->method = put(r, &at, hs->method.at, hs->method.len);
    r->path = put(r, &at, hs->path.at, hs->path.len);
    r->query = put(r, &at, hs->query.at ? hs->query.at : "", hs->query.len);
    for (uint16_t i = 0; i < h->nfields; i++) {
        struct wire_text name = http_text(buf, h->fields[i].name);
        struct wire_text value = http_text(buf, h->fields[i].value);

        r->fields[i].name = put(r, &at, name.at, name.len);
        r->fields[i].value = put(r, &at, value.at, value.len);
    }
    return r;
}

/* ---- Reading ---- */

const char *tws_request_method(const tws_request *r)
{
    return text_of(r) + r->method;
}

const char *tws_request_path(const tws_request *r)
{
    return text_of(r) + r->path;
}

const char *tws_request_query(const tws_request *r)
{
    return text_of(r) + r->query;
}

bool tws_request_header_at(const tws_request *r, size_t index, const char **name,
                           const char **value)
{
    if (index >= r->nfields)
        return false;
    *name = text_of(r) + r->fields[index].name;
    *value = text_of(r) + r->fields[index].value;
    return true;
}

/* The next field of a name from *index on; NULL when there is none. */
static const char *next_header(const tws_request *r, const char *name, size_t *index)
{
    const char *n, *value;

    while (tws_request_header_at(r, (*index)++, &n, &value))
        if (wire_text_is(wire_text_of(n), name))
            return value;
    return NULL;
}

const char *tws_request_header(const tws_request *r, const char *name)
{
    size_t index = 0;

    return next_header(r, name, &index);
}

/* The decoded byte at text[*at], which moves behind it; -1 for a wrong escape. */
static int decode(const char *text, size_t len, size_t *at)
{
    char c = text[(*at)++];
    int high, low;

    if (c == '+')
        return ' ';
    if (c != '%')
        return (unsigned char)c;
    if (*at + 2 > len)
        return -1;
    high = wire_hex_value((uint8_t)text[*at]);
    low = wire_hex_value((uint8_t)text[*at + 1]);
    *at += 2;
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static bool decodes_to(const char *text, size_t len, const char *wanted)
{
    size_t at = 0;

    while (at < len) {
        int byte = decode(text, len, &at);

        if (byte <= 0 || byte != (unsigned char)*wanted++)
            return false;
    }
    return *wanted == 0;
}

static ptrdiff_t decode_value(const char *text, size_t len, char *buf, size_t size)
{
    size_t at = 0, n = 0;

    while (at < len) {
        int byte = decode(text, len, &at);

        if (byte < 0) {
            base_text_copy(buf, size, "", 0);
            return -2;
        }
        if (n + 1 < size)
            buf[n] = (char)byte;
        n++;
    }
    if (size > 0)
        buf[n < size ? n : size - 1] = 0;
    return (ptrdiff_t)n;
}

ptrdiff_t tws_request_param(const tws_request *r, const char *name, char *buf, size_t size)
{
    const char *at = tws_request_query(r);

    while (*at) {
        size_t len = strcspn(at, "&");
        size_t key = strcspn(at, "=&");

        if (decodes_to(at, key, name))
            return decode_value(at + key + (key < len), len - key - (key < len), buf, size);
        at += len + (at[len] == '&');
    }
    base_text_copy(buf, size, "", 0);
    return -1;
}

/* Looks for a cookie in one Cookie field; NULL when it is not there. */
static const char *find_cookie(const char *at, const char *name, size_t *len)
{
    size_t name_len = strlen(name);

    while (*at) {
        size_t pair = strcspn(at, ";");

        if (pair > name_len && memcmp(at, name, name_len) == 0 && at[name_len] == '=') {
            *len = pair - name_len - 1;
            at += name_len + 1;
            while (*len > 0 && (at[*len - 1] == ' ' || at[*len - 1] == '\t'))
                (*len)--;
            if (*len >= 2 && at[0] == '"' && at[*len - 1] == '"') {
                at++;
                *len -= 2;
            }
            return at;
        }
        at += pair + (at[pair] == ';');
        at += strspn(at, " \t");
    }
    return NULL;
}

ptrdiff_t tws_request_cookie(const tws_request *r, const char *name, char *buf, size_t size)
{
    size_t index = 0;
    const char *field;

    while ((field = next_header(r, "Cookie", &index))) {
        size_t len = 0;
        const char *value = find_cookie(field, name, &len);

        if (value)
            return (ptrdiff_t)base_text_copy(buf, size, value, len);
    }
    base_text_copy(buf, size, "", 0);
    return -1;
}

ptrdiff_t tws_request_subprotocol_at(const tws_request *r, size_t index, char *buf, size_t size)
{
    size_t at = 0, n = 0;
    const char *field;

    while ((field = next_header(r, "Sec-WebSocket-Protocol", &at))) {
        struct token_list list;
        struct wire_text element;

        token_list_of_text(&list, wire_text_of(field));
        while (token_list_next(&list, &element) == 1)
            if (n++ == index)
                return (ptrdiff_t)base_text_copy(buf, size, element.at, element.len);
    }
    base_text_copy(buf, size, "", 0);
    return -1;
}

size_t tws_request_peer_address(const tws_request *r, char *buf, size_t size)
{
    return net_peer_text(&r->peer, buf, size);
}

size_t tws_request_local_address(const tws_request *r, char *buf, size_t size)
{
    return net_local_text(r->fd, buf, size);
}
