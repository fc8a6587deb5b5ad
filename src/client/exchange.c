/* The opening handshake on an open stream: the request, its answer, and whether that is right. */
#include "client/dial.h"

#include "base/random.h"
#include "net/address.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Answers of status 1xx before the real one, such as 103 (RFC 9110 15.2). */
#define INTERIM_MAX 8

/* ---- The request ---- */

static bool is_credential(struct wire_text name)
{
    return wire_text_is(name, "Authorization") || wire_text_is(name, "Proxy-Authorization") ||
           wire_text_is(name, "Cookie") || wire_text_is(name, "Cookie2");
}

/* What of the caller's headers goes to this host: credentials only to the one that was named. */
static size_t choose_headers(const struct dial *d, tws_header *out)
{
    size_t n = 0;

    for (size_t i = 0; i < d->o.header_count; i++) {
        struct wire_text name = wire_text_of(d->o.headers[i].name);

        if (!d->trusted && is_credential(name))
            continue;
        out[n++] = d->o.headers[i];
    }
    if (d->trusted && d->o.cookie)
        out[n++] = (tws_header){"Cookie", d->o.cookie};
    return n;
}

static void make_offer(struct dial *d, struct handshake_offer *offer, tws_header *headers)
{
    *offer = (struct handshake_offer){.url = &d->url,
                                      .key = d->nonce,
                                      .host = d->trusted ? d->o.host : NULL,
                                      .protocols = d->o.subprotocols,
                                      .nprotocols = d->o.subprotocol_count,
                                      .origin = d->o.origin,
                                      .extensions = d->extensions[0] ? d->extensions : NULL,
                                      .headers = headers,
                                      .nheaders = headers ? choose_headers(d, headers) : 0};
}

/* The request's text, zero-terminated, on the heap. */
static char *write_request(struct dial *d, size_t *len)
{
    struct handshake_offer offer;
    tws_header *headers = base_alloc(d->allocator, (d->o.header_count + 1) * sizeof *headers);
    char *text = NULL;
    ptrdiff_t n;

    if (!headers) {
        dial_no_memory(d, TWS_PHASE_HANDSHAKE);
        return NULL;
    }
    make_offer(d, &offer, headers);
    n = handshake_write_request(NULL, 0, &offer);
    if (n < 0) {
        dial_fail(d, TWS_ERR_ARGUMENT, TWS_PHASE_HANDSHAKE, 0, "%s",
                  handshake_fault_text((enum handshake_fault)(-n)));
    } else {
        text = base_alloc(d->allocator, (size_t)n + 1);
        if (!text)
            dial_no_memory(d, TWS_PHASE_HANDSHAKE);
    }
    if (text) {
        handshake_write_request(text, (size_t)n, &offer);
        text[n] = 0;
        *len = (size_t)n;
    }
    base_free(d->allocator, headers);
    return text;
}

static tws_err send_request(struct dial *d, int64_t deadline)
{
    uint8_t nonce[16];
    size_t len;
    char *text;
    int r;

    if (!base_random(nonce, sizeof nonce))
        return dial_local_failed(d, TWS_PHASE_HANDSHAKE, -errno);
    handshake_key(d->nonce, nonce);
    d->nonce[HANDSHAKE_KEY_LEN] = 0;
    text = write_request(d, &len);
    if (!text)
        return d->error->code;
    if (d->o.on_head)
        d->o.on_head(true, text, len, d->o.hook_arg);
    r = net_stream_send_by(&d->stream, text, len, deadline);
    base_free(d->allocator, text);
    return r < 0 ? dial_io_failed(d, TWS_PHASE_HANDSHAKE, r) : TWS_OK;
}

/* ---- The answer's head ---- */

static void begin_head(struct dial *d)
{
    struct http_limits limits = {.max_bytes = d->o.max_head_bytes,
                                 .max_fields = (uint16_t)d->o.max_head_fields};
    struct http_field *fields = (void *)(d->answer.buf + HTTP_TABLE_AT(d->o.max_head_bytes));

    http_head_init(&d->answer.head, true, fields, limits.max_fields, &limits);
}

static tws_err receive_more(struct dial *d, int64_t deadline)
{
    struct dial_answer *a = &d->answer;
    size_t room = d->o.max_head_bytes - a->len;
    ssize_t n;

    if (room > CONN_BUFFER - 1) /* what a connection can be fed of what follows the head */
        room = CONN_BUFFER - 1;
    n = net_stream_recv_by(&d->stream, a->buf + a->len, room, deadline);
    if (n <= 0)
        return dial_io_failed(d, TWS_PHASE_HANDSHAKE, (int)n);
    a->len += (size_t)n;
    return TWS_OK;
}

static void tell_head(struct dial *d, size_t len)
{
    uint8_t *end = d->answer.buf + len;
    uint8_t was;

    if (!d->o.on_head)
        return;
    was = *end; /* of the field table at most, which is put back */
    *end = 0;
    d->o.on_head(false, (char *)d->answer.buf, len, d->o.hook_arg);
    *end = was;
}

static tws_err read_head(struct dial *d, int64_t deadline)
{
    struct dial_answer *a = &d->answer;
    enum http_result r;

    begin_head(d);
    while ((r = http_head_feed(&a->head, a->buf, a->len)) == HTTP_MORE) {
        tws_err err = receive_more(d, deadline);

        if (err) {
            if (a->len > 0)
                tell_head(d, a->len);
            return err;
        }
    }
    tell_head(d, r == HTTP_DONE ? a->head.head_len : a->len);
    if (r != HTTP_DONE)
        return dial_fail(d, TWS_ERR_HANDSHAKE, TWS_PHASE_HANDSHAKE, 0,
                         "the answer is no valid HTTP: %s", http_head_error_text(&a->head));
    return TWS_OK;
}

static tws_err tell_cookies(struct dial *d)
{
    const struct http_head *h = &d->answer.head;
    const struct http_field *f = NULL;
    char *url = NULL;
    tws_err err = TWS_OK;

    if (!d->o.on_set_cookie)
        return TWS_OK;
    while (!err && (f = http_find(h, d->answer.buf, "Set-Cookie", f))) {
        struct wire_text value = http_text(d->answer.buf, f->value);
        char *copy = base_alloc(d->allocator, value.len + 1);

        if (!url)
            url = dial_public_url(d);
        if (url && copy) {
            memcpy(copy, value.at, value.len);
            copy[value.len] = 0;
            d->o.on_set_cookie(url, copy, d->o.hook_arg);
        } else {
            err = dial_no_memory(d, TWS_PHASE_HANDSHAKE);
        }
        base_free(d->allocator, copy);
    }
    base_free(d->allocator, url);
    return err;
}

/* What the connection will be made of, which decides what is offered. */
static tws_err prepare(struct dial *d)
{
    struct dial_answer *a = &d->answer;

    if (!a->buf)
        a->buf = base_alloc(d->allocator, HTTP_TABLE_AT(d->o.max_head_bytes) +
                                              d->o.max_head_fields * sizeof(struct http_field));
    if (!d->env)
        d->env = dial_env(d);
    if (!a->buf || !d->env)
        return dial_no_memory(d, TWS_PHASE_HANDSHAKE);
    a->len = 0;
    memset(&d->deflate, 0, sizeof d->deflate);
    d->extensions[0] = 0;
    if (d->key.compress && conn_deflate_want(d->env, false, &d->deflate.want))
        deflate_write_offer(&d->deflate.want, d->extensions);
    return TWS_OK;
}

/* Reads heads until the final one. */
static tws_err read_answer(struct dial *d, int64_t deadline)
{
    struct dial_answer *a = &d->answer;
    int interim = 0;

    for (;;) {
        tws_err err = read_head(d, deadline);

        if (err || a->head.status >= 200 || a->head.status == 101)
            return err;
        if (++interim > INTERIM_MAX)
            return dial_fail(d, TWS_ERR_HANDSHAKE, TWS_PHASE_HANDSHAKE, 0,
                             "more than %d interim answers", INTERIM_MAX);
        a->len -= a->head.head_len;
        memmove(a->buf, a->buf + a->head.head_len, a->len);
    }
}

/*
 * The request did not leave whole. A server that does not want it (our certificate is missing, our
 * address is barred) may have said so and gone: that says more than the failed send does.
 */
static tws_err read_last_words(struct dial *d, int64_t deadline)
{
    tws_error sending = *d->error;
    tws_err err;

    memset(d->error, 0, sizeof *d->error);
    err = read_answer(d, deadline);
    if (err == TWS_ERR_EOF || err == TWS_ERR_NETWORK || err == TWS_ERR_TRUNCATED) {
        *d->error = sending;
        err = sending.code;
    }
    return err;
}

tws_err dial_exchange(struct dial *d)
{
    int64_t deadline = dial_step(d, d->o.handshake_timeout);
    tws_err err = prepare(d);

    if (err)
        return err;
    err = send_request(d, deadline);
    if (!err)
        err = read_answer(d, deadline);
    else if (err == TWS_ERR_NETWORK)
        err = read_last_words(d, deadline);
    return err ? err : tell_cookies(d);
}

/* ---- A connection ---- */

static tws_err make_connection(struct dial *d, const char *protocol)
{
    struct dial_answer *a = &d->answer;
    char *copy = protocol ? base_strdup(d->env->allocator, protocol) : NULL;
    void *block = base_pool_get(&d->env->blocks);
    struct conn_setup setup = {
        .env = d->env, .server = false, .options = &d->o.conn, .user = d->o.conn.user};

    if (!block || (protocol && !copy)) {
        if (block)
            base_pool_put(&d->env->blocks, block);
        base_free(d->env->allocator, copy);
        return dial_no_memory(d, TWS_PHASE_HANDSHAKE);
    }
    net_peer_of(&setup.peer, d->stream.sock.fd);
    dial_release_stream(d);
    setup.stream = d->stream;
    d->conn = conn_init_client(block, &setup);
    d->conn->subprotocol = copy;
    if (task_cancel_is_set(d->cancel)) { /* in the last moment: the socket has been cut, perhaps */
        tws_conn_unref(d->conn);
        d->conn = NULL;
        return dial_fail(d, TWS_ERR_CANCELLED, TWS_PHASE_HANDSHAKE, 0, "by tws_cancel_now()");
    }
    if (!conn_feed(d->conn, a->buf + a->head.head_len, a->len - a->head.head_len) ||
        (d->deflate.accepted && !conn_deflate_start(d->conn, &d->deflate.agreed))) {
        tws_conn_unref(d->conn);
        d->conn = NULL;
        return dial_no_memory(d, TWS_PHASE_HANDSHAKE);
    }
    return TWS_OK;
}

tws_err dial_verify(struct dial *d)
{
    struct dial_answer *a = &d->answer;
    struct handshake_offer offer;
    struct handshake_answer answer;
    enum handshake_fault fault;

    make_offer(d, &offer, NULL);
    fault = handshake_verify(&a->head, a->buf, &offer, offer.extensions ? deflate_judge : NULL,
                             &d->deflate, &answer);
    if (fault)
        return dial_fail(d, TWS_ERR_HANDSHAKE, TWS_PHASE_HANDSHAKE, 0, "%s",
                         handshake_fault_text(fault));
    return make_connection(d, answer.protocol >= 0 ? d->o.subprotocols[answer.protocol] : NULL);
}
