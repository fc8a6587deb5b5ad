/* What the server answered, kept; and the body of a refusal. */
#include "client/dial.h"

#include <string.h>

#define BODY_MAX 4096

struct kept_field {
    const char *name, *value;
};

struct tws_response {
    const tws_allocator *allocator;
    int status;
    size_t count;
    char *url; /* owned */
    char *body;
    size_t body_len;
    struct kept_field fields[]; /* then their texts, then BODY_MAX bytes and a zero */
};

/* ---- Making ---- */

static void put_public_url(struct wire_out *out, const struct wire_url *u)
{
    wire_put_string(out, u->tls ? "wss" : "ws");
    wire_put_string(out, u->is_unix ? "+unix:" : "://");
    if (u->is_unix) {
        wire_put(out, u->unix_path);
        wire_put_char(out, ':');
    } else {
        wire_url_put(out, u, wire_url_host);
    }
    wire_url_put(out, u, wire_url_target);
}

char *dial_public_url(struct dial *d)
{
    struct wire_out out = {NULL, 0, 0};
    char *text;

    put_public_url(&out, &d->url);
    text = base_alloc(d->allocator, out.len + 1);
    if (!text)
        return NULL;
    out = (struct wire_out){text, out.len, 0};
    put_public_url(&out, &d->url);
    text[out.len] = 0;
    return text;
}

static char *put_text(char *at, struct wire_text text, const char **where)
{
    *where = at;
    memcpy(at, text.at, text.len);
    at[text.len] = 0;
    return at + text.len + 1;
}

tws_err dial_make_response(struct dial *d)
{
    const struct http_head *h = &d->answer.head;
    const uint8_t *buf = d->answer.buf;
    size_t size = sizeof(tws_response) + h->nfields * sizeof(struct kept_field) + BODY_MAX + 1;
    tws_response *r;
    char *at;

    tws_response_free(d->response);
    d->response = NULL;
    for (size_t i = 0; i < h->nfields; i++)
        size += h->fields[i].name.len + h->fields[i].value.len + 2;
    r = base_alloc(d->allocator, size);
    if (!r)
        return dial_no_memory(d, TWS_PHASE_HANDSHAKE);
    *r = (tws_response){.allocator = d->allocator, .status = h->status, .count = h->nfields};
    at = (char *)(r->fields + r->count);
    for (size_t i = 0; i < h->nfields; i++) {
        at = put_text(at, http_text(buf, h->fields[i].name), &r->fields[i].name);
        at = put_text(at, http_text(buf, h->fields[i].value), &r->fields[i].value);
    }
    r->body = at;
    r->body[0] = 0;
    r->url = dial_public_url(d);
    if (!r->url) {
        tws_response_free(r);
        return dial_no_memory(d, TWS_PHASE_HANDSHAKE);
    }
    d->response = r;
    return TWS_OK;
}

/* ---- The body (RFC 9112 6) ---- */

struct body {
    struct dial *d;
    int64_t deadline;
    size_t rd; /* in answer.buf, up to answer.len */
    bool ended;
};

/* One byte of the stream at least in the buffer; false when no more comes. */
static bool body_fill(struct body *b)
{
    struct dial_answer *a = &b->d->answer;
    ssize_t n;

    if (b->rd < a->len)
        return true;
    if (b->ended)
        return false;
    n = net_stream_recv_by(&b->d->stream, a->buf, b->d->o.max_head_bytes, b->deadline);
    b->ended = n <= 0;
    b->rd = 0;
    a->len = n > 0 ? (size_t)n : 0;
    return n > 0;
}

/* Up to n bytes into the response; false when there were fewer, or no more are wanted. */
static bool body_take(struct body *b, uint64_t n)
{
    tws_response *r = b->d->response;

    while (n > 0 && r->body_len < BODY_MAX && body_fill(b)) {
        size_t have = b->d->answer.len - b->rd;

        if (have > n)
            have = (size_t)n;
        if (have > BODY_MAX - r->body_len)
            have = BODY_MAX - r->body_len;
        memcpy(r->body + r->body_len, b->d->answer.buf + b->rd, have);
        r->body_len += have;
        b->rd += have;
        n -= have;
    }
    return n == 0;
}

/* A byte, or -1. */
static int body_byte(struct body *b)
{
    return body_fill(b) ? b->d->answer.buf[b->rd++] : -1;
}

/* The size line of a chunk; false when it is none. */
static bool chunk_size(struct body *b, uint64_t *size)
{
    int c, digits = 0, skipped = 0;

    *size = 0;
    while ((c = body_byte(b)) >= 0 && wire_hex_value((uint8_t)c) >= 0) {
        if (++digits > 15)
            return false;
        *size = *size * 16 + (uint64_t)wire_hex_value((uint8_t)c);
    }
    while (c >= 0 && c != '\n' && ++skipped < 256) /* extensions mean nothing to us */
        c = body_byte(b);
    return c == '\n' && digits > 0;
}

static void body_chunks(struct body *b)
{
    uint64_t size;

    while (chunk_size(b, &size) && size > 0 && body_take(b, size)) {
        int cr = body_byte(b);
        int lf = body_byte(b);

        if (cr != '\r' || lf != '\n')
            return;
    }
}

/* What Content-Length says; UINT64_MAX: nothing that can be used. */
static uint64_t content_length(const struct dial *d)
{
    const struct http_field *f = http_find(&d->answer.head, d->answer.buf, "Content-Length", NULL);
    struct wire_text text;
    uint64_t n = 0;

    if (!f)
        return UINT64_MAX;
    text = http_text(d->answer.buf, f->value);
    if (text.len == 0 || text.len > 18)
        return UINT64_MAX;
    for (size_t i = 0; i < text.len; i++) {
        if (!wire_is_digit((uint8_t)text.at[i]))
            return UINT64_MAX;
        n = n * 10 + (uint64_t)(text.at[i] - '0');
    }
    return n;
}

void dial_read_body(struct dial *d, int64_t deadline)
{
    struct body b = {.d = d, .deadline = deadline, .rd = d->answer.head.head_len};
    const struct http_head *h = &d->answer.head;
    uint64_t length = content_length(d);

    if (h->status < 200 || h->status == 204 || h->status == 304)
        return;
    /* The buffer is reused from here on, and the head with it. */
    if (token_list_has(h, d->answer.buf, "Transfer-Encoding", "chunked"))
        body_chunks(&b);
    else
        body_take(&b, length);
    d->response->body[d->response->body_len] = 0;
}

/* ---- For the caller ---- */

int tws_response_status(const tws_response *r)
{
    return r->status;
}

const char *tws_response_url(const tws_response *r)
{
    return r->url;
}

const char *tws_response_header(const tws_response *r, const char *name)
{
    for (size_t i = 0; i < r->count; i++)
        if (wire_text_is(wire_text_of(r->fields[i].name), name))
            return r->fields[i].value;
    return NULL;
}

bool tws_response_header_at(const tws_response *r, size_t index, const char **name,
                            const char **value)
{
    bool there = index < r->count;

    *name = there ? r->fields[index].name : NULL;
    *value = there ? r->fields[index].value : NULL;
    return there;
}

const void *tws_response_body(const tws_response *r, size_t *len)
{
    if (len)
        *len = r->body_len;
    return r->body;
}

void tws_response_free(tws_response *r)
{
    const tws_allocator *a;

    if (!r)
        return;
    a = r->allocator;
    base_free(a, r->url);
    base_free(a, r);
}
