/*
 * Parameters of the query and cookies, against a plainer reading of the same text. Input: a byte that
 * says how large the buffers are, then lines: a name, the query, two Cookie fields.
 */
#include "server/request.h"
#include "base/alloc.h"
#include "fuzz.h"

#define ROOM 8192

static int hex(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c ? strchr(digits, c | 0x20) : NULL;

    return at && (c >= '0' && (c <= '9' || (c | 0x20) >= 'a')) ? (int)(at - digits) : -1;
}

/* Decodes in place; -2 for a wrong escape. */
static ptrdiff_t decode(char *text, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        if (text[i] == '%') {
            if (i + 2 >= len || hex(text[i + 1]) < 0 || hex(text[i + 2]) < 0)
                return -2;
            text[n++] = (char)(hex(text[i + 1]) * 16 + hex(text[i + 2]));
            i += 2;
        } else {
            text[n++] = text[i] == '+' ? ' ' : text[i];
        }
    }
    return (ptrdiff_t)n;
}

/* The value is in `value`; as tws_request_param(). */
static ptrdiff_t find_param(const char *query, const char *name, char *value)
{
    char *copy = strdup(query), *next = copy, *pair;
    ptrdiff_t result = -1;

    FUZZ_CHECK(copy != NULL);
    while (result == -1 && (pair = strsep(&next, "&"))) {
        char *equals = strchr(pair, '=');
        size_t key = equals ? (size_t)(equals - pair) : strlen(pair);
        char *begin = equals ? equals + 1 : pair + key;
        size_t len = strlen(begin);
        ptrdiff_t n = decode(pair, key);

        if (next == NULL && *pair == 0 && !equals && *name == 0)
            break; /* nothing behind the last ampersand, or no query at all */
        if (n != (ptrdiff_t)strlen(name) || memcmp(pair, name, (size_t)n) != 0)
            continue;
        memcpy(value, begin, len);
        result = decode(value, len);
    }
    free(copy);
    return result;
}

static ptrdiff_t find_cookie(const char *field, const char *name, char *value)
{
    char *copy = strdup(field), *next = copy, *pair;
    size_t name_len = strlen(name);
    ptrdiff_t result = -1;

    FUZZ_CHECK(copy != NULL);
    while (result == -1 && (pair = strsep(&next, ";"))) {
        size_t len;

        if (pair != copy)
            pair += strspn(pair, " \t");
        if (strncmp(pair, name, name_len) != 0 || pair[name_len] != '=')
            continue;
        pair += name_len + 1;
        for (len = strlen(pair); len > 0 && strchr(" \t", pair[len - 1]); len--)
            ;
        if (len >= 2 && pair[0] == '"' && pair[len - 1] == '"') {
            pair++;
            len -= 2;
        }
        memcpy(value, pair, len);
        result = (ptrdiff_t)len;
    }
    free(copy);
    return result;
}

typedef ptrdiff_t getter(const tws_request *r, const char *name, char *buf, size_t size);

static void compare(getter *get, const tws_request *r, const char *name, ptrdiff_t expected,
                    const char *value, size_t size)
{
    char *out = malloc(size > 0 ? size : 1);
    size_t n = expected > 0 ? (size_t)expected : 0;

    FUZZ_CHECK(out != NULL && get(r, name, out, size) == expected);
    if (size > 0) {
        n = n < size ? n : size - 1;
        FUZZ_CHECK(out[n] == 0 && memcmp(out, value, n) == 0);
    }
    free(out);
}

static void check(const struct http_head *h, const uint8_t *text, const char *name, size_t size)
{
    struct handshake_request hs;
    union net_peer peer = {.family = 0};
    static char value[ROOM];
    tws_request *r;
    ptrdiff_t expected = -1;
    void *mem;

    handshake_examine(h, text, &hs);
    mem = malloc(request_size(h, &hs));
    FUZZ_CHECK(mem != NULL);
    r = request_build(mem, h, text, &hs, &peer, -1);
    compare(tws_request_param, r, name, find_param(tws_request_query(r), name, value), value, size);
    for (size_t i = 0; i < 3 && expected < 0; i++) {
        const char *field, *which;

        FUZZ_CHECK(tws_request_header_at(r, i, &which, &field));
        if (strcmp(which, "Cookie") == 0)
            expected = find_cookie(field, name, value);
    }
    compare(tws_request_cookie, r, name, expected, value, size);
    free(mem);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct http_limits limits = {ROOM, 8};
    static char text[ROOM];
    struct fuzz_input in = {data, size < ROOM / 2 ? size : ROOM / 2};
    size_t room = fuzz_byte(&in) % 64, name_len, len;
    char *name = fuzz_line(&in, &name_len), *query = fuzz_line(&in, &len);
    char *first = fuzz_line(&in, &len), *second = fuzz_line(&in, &len);
    struct http_field fields[8];
    struct http_head h;
    uint8_t *copy;

    len = (size_t)snprintf(text, sizeof text,
                           "GET /?%s HTTP/1.1\r\nHost: a\r\nCookie: %s\r\nCookie: %s\r\n\r\n",
                           query, first, second);
    copy = fuzz_copy(text, len);
    http_head_init(&h, false, fields, 8, &limits);
    if (http_head_feed(&h, copy, len) == HTTP_DONE && h.head_len == len)
        check(&h, copy, name, room);
    free(copy);
    free(second);
    free(first);
    free(query);
    free(name);
    return 0;
}
