#include "server/handoff_record.h"

#include "conn/codec.h"

#include <errno.h>
#include <string.h>

static const uint8_t magic[4] = {'T', 'W', 'S', 'H'};
static const uint8_t answer_magic[4] = {'T', 'W', 'S', 'A'};

/* Bits of the first byte of a body. */
enum { IS_SERVER = 1, IS_COMPRESSED = 2, HAS_SUBPROTOCOL = 4, ALL_BITS = 7 };
#define FIXED 4

/* ---- Writing ---- */

static void put32(uint8_t *at, uint32_t n)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(n >> 8 * i);
}

static uint32_t get32(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint8_t *put_block(uint8_t *at, const void *data, size_t len)
{
    put32(at, (uint32_t)len);
    if (len > 0)
        memcpy(at + 4, data, len);
    return at + 4 + len;
}

void record_head_write(uint8_t head[RECORD_HEAD], size_t len)
{
    memset(head, 0, RECORD_HEAD);
    memcpy(head, magic, sizeof magic);
    put32(head + 4, RECORD_VERSION);
    put32(head + 8, (uint32_t)len);
}

void record_answer_write(uint8_t answer[RECORD_ANSWER], tws_err err)
{
    memcpy(answer, answer_magic, sizeof answer_magic);
    put32(answer + 4, (uint32_t)err);
}

/* The request as a head again. Nothing of it can be refused: it was parsed from one. */
static size_t write_request(char *out, size_t cap, const tws_request *r)
{
    struct wire_out w = {out, cap, 0};
    const char *name, *value;

    if (!r)
        return 0;
    wire_put_string(&w, tws_request_method(r));
    wire_put_char(&w, ' ');
    wire_put_string(&w, tws_request_path(r));
    if (tws_request_query(r)[0]) {
        wire_put_char(&w, '?');
        wire_put_string(&w, tws_request_query(r));
    }
    wire_put_string(&w, " HTTP/1.1\r\n");
    for (size_t i = 0; tws_request_header_at(r, i, &name, &value); i++) {
        wire_put_string(&w, name);
        wire_put_string(&w, ": ");
        wire_put_string(&w, value);
        wire_put_string(&w, "\r\n");
    }
    wire_put_string(&w, "\r\n");
    return w.len;
}

uint8_t *record_of(tws_conn *c, const void *data, size_t data_len, size_t *len)
{
    const struct conn_deflate *d = c->deflate;
    size_t protocol = c->subprotocol ? strlen(c->subprotocol) : 0;
    size_t head = write_request(NULL, 0, c->request);
    uint8_t *body, *at;

    *len = FIXED + 5 * 4 + sizeof c->peer + protocol + head + conn_input_len(c) + data_len;
    body = base_alloc(c->env->allocator, *len);
    if (!body)
        return NULL;
    body[0] = (uint8_t)((c->server ? IS_SERVER : 0) | (d ? IS_COMPRESSED : 0) |
                        (c->subprotocol ? HAS_SUBPROTOCOL : 0));
    body[1] = d ? (c->server ? d->out_bits : d->in_bits) : 0;
    body[2] = d ? (c->server ? d->in_bits : d->out_bits) : 0;
    body[3] = (uint8_t)(d ? conn_deflate_mode(c) : 0);
    at = put_block(body + FIXED, &c->peer, sizeof c->peer);
    at = put_block(at, c->subprotocol, protocol);
    put32(at, (uint32_t)head);
    write_request((char *)at + 4, head, c->request);
    at = put_block(at + 4 + head, c->in.buf + c->in.rd, conn_input_len(c));
    put_block(at, data, data_len);
    return body;
}

/* ---- Reading ---- */

ptrdiff_t record_head_read(const uint8_t head[RECORD_HEAD])
{
    uint32_t len = get32(head + 8);

    if (memcmp(head, magic, sizeof magic) != 0)
        return -EBADMSG;
    if (get32(head + 4) != RECORD_VERSION || get32(head + 12) != 0)
        return -EPROTONOSUPPORT;
    return len >= FIXED && len <= RECORD_BODY_MAX ? (ptrdiff_t)len : -EBADMSG;
}

bool record_answer_read(const uint8_t answer[RECORD_ANSWER], tws_err *err)
{
    int32_t code = (int32_t)get32(answer + 4);

    *err = (tws_err)code;
    return memcmp(answer, answer_magic, sizeof answer_magic) == 0 && code <= 0 && code > -1000;
}

static bool take_block(struct wire_text *rest, struct wire_text *block, size_t max)
{
    uint32_t len;

    if (rest->len < 4)
        return false;
    len = get32((const uint8_t *)rest->at);
    if (len > rest->len - 4 || len > max)
        return false;
    *block = (struct wire_text){rest->at + 4, len};
    *rest = wire_text_skip(*rest, 4 + (size_t)len);
    return true;
}

static bool take_peer(union net_peer *peer, struct wire_text block)
{
    if (block.len != sizeof *peer)
        return false;
    memcpy(peer, block.at, sizeof *peer);
    return peer->family == AF_UNSPEC || peer->family == AF_UNIX || peer->family == AF_INET ||
           peer->family == AF_INET6;
}

static bool windows_possible(const struct record *r)
{
    return r->server_bits >= DEFLATE_BITS_MIN && r->server_bits <= DEFLATE_BITS_MAX &&
           r->client_bits >= DEFLATE_BITS_MIN && r->client_bits <= DEFLATE_BITS_MAX &&
           r->mode <= TWS_COMPRESS_ALWAYS;
}

const char *record_read(struct record *r, const uint8_t *body, size_t len)
{
    struct wire_text rest = {(const char *)body, len};
    struct wire_text peer;
    uint8_t bits = body[0];

    memset(r, 0, sizeof *r);
    r->server = bits & IS_SERVER;
    r->compressed = bits & IS_COMPRESSED;
    r->server_bits = body[1];
    r->client_bits = body[2];
    r->mode = body[3];
    if ((bits & ~ALL_BITS) ||
        (r->compressed ? !windows_possible(r) : r->server_bits || r->client_bits || r->mode))
        return "flags or windows that cannot be";
    rest = wire_text_skip(rest, FIXED);
    if (!take_block(&rest, &peer, sizeof r->peer) || !take_peer(&r->peer, peer))
        return "no address of the peer";
    if (!take_block(&rest, &r->subprotocol, 65535) ||
        (bits & HAS_SUBPROTOCOL ? !token_valid(r->subprotocol) : r->subprotocol.len > 0))
        return "a subprotocol that is no token";
    if (!take_block(&rest, &r->head, RECORD_BODY_MAX) ||
        !take_block(&rest, &r->input, CONN_BUFFER - 1) ||
        !take_block(&rest, &r->data, TWS_HANDOFF_DATA_MAX) || rest.len > 0)
        return "lengths that do not fit";
    if (!(bits & HAS_SUBPROTOCOL))
        r->subprotocol.at = NULL;
    return NULL;
}

#define FIELDS_MAX 1000

tws_request *record_request(const struct record *r, const tws_allocator *a,
                            const union net_peer *peer, int fd, const char **why)
{
    const struct http_limits limits = {.max_bytes = RECORD_BODY_MAX, .max_fields = FIELDS_MAX};
    const uint8_t *buf = (const uint8_t *)r->head.at;
    struct http_field *fields = base_alloc(a, FIELDS_MAX * sizeof *fields);
    struct handshake_request hs;
    tws_request *request = NULL;
    struct http_head head;
    size_t size;

    *why = "no memory";
    if (!fields)
        return NULL;
    http_head_init(&head, false, fields, FIELDS_MAX, &limits);
    if (http_head_feed(&head, buf, r->head.len) != HTTP_DONE || head.head_len != r->head.len) {
        *why = "a request that is none";
        goto out;
    }
    handshake_examine(&head, buf, &hs);
    size = request_size(&head, &hs);
    if (size - sizeof *request - head.nfields * sizeof(struct request_field) > UINT16_MAX) {
        *why = "a request that is too large";
        goto out;
    }
    request = base_alloc(a, size);
    if (request)
        request_build(request, &head, buf, &hs, peer, fd);
out:
    base_free(a, fields);
    return request;
}
