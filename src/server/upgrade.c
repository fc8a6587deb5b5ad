#include "server/handshake.h"

#include "base/clock.h"
#include "conn/deflate.h"
#include "wire/origin.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* After an answer, so much and so long is read and dropped, lest a reset destroys the answer. */
#define LINGER_BYTES 65536
#define LINGER_MS 1000

static enum upgrade_end ended(struct handshake *h, enum upgrade_end end, const char *why)
{
    h->end = end;
    h->why = why;
    return end;
}

static enum upgrade_end io_failed(struct handshake *h, int error)
{
    if (error == -ETIMEDOUT)
        return ended(h, UPGRADE_TIMED_OUT, "the request or the answer took too long");
    h->sys_errno = task_errno(error);
    if (error == -EOVERFLOW && net_stream_is_tls(&h->stream))
        return ended(h, UPGRADE_TLS, "too many TLS key updates or renegotiations");
    return ended(h, UPGRADE_DISCONNECTED, "the peer went away");
}

/* ---- Reading the request ---- */

static enum upgrade_end receive_more(struct handshake *h, size_t cap)
{
    /* No more than a connection can be fed of what follows the request. */
    size_t room = cap - h->len < CONN_BUFFER - 1 ? cap - h->len : CONN_BUFFER - 1;
    ssize_t n = net_stream_recv_by(&h->stream, h->buf + h->len, room, h->deadline);

    if (n < 0)
        return io_failed(h, (int)n);
    if (n == 0)
        return ended(h, UPGRADE_DISCONNECTED,
                     "the peer ended its side before the request was whole");
    h->len += (size_t)n;
    return UPGRADE_DONE;
}

/* A head that somebody else has parsed, as it must have looked: so the same rules judge it. */
static enum upgrade_end write_head(struct handshake *h)
{
    const tws_parsed_request *p = h->in->parsed;
    struct handshake_parsed parsed = {.method = p->method,
                                      .target = p->target,
                                      .version = p->version,
                                      .headers = p->headers,
                                      .nheaders = p->header_count};
    ptrdiff_t len = handshake_write_parsed((char *)h->buf, h->cfg->opt.max_head_bytes, &parsed);

    if (len < 0) {
        h->status = 400;
        return ended(h, UPGRADE_BAD_REQUEST, "a part of the request cannot have been parsed");
    }
    h->len = (size_t)len < h->cfg->opt.max_head_bytes ? (size_t)len : h->cfg->opt.max_head_bytes;
    return UPGRADE_DONE;
}

static enum upgrade_end read_head(struct handshake *h)
{
    const tws_upgrade_options *o = &h->cfg->opt;
    struct http_limits limits = {.max_bytes = o->max_head_bytes,
                                 .max_fields = (uint16_t)o->max_head_fields};
    struct http_field *fields = (void *)(h->buf + HTTP_TABLE_AT(o->max_head_bytes));
    enum http_result r;

    http_head_init(&h->head, false, fields, (uint16_t)o->max_head_fields, &limits);
    if (h->in->parsed && write_head(h))
        return h->end;
    while ((r = http_head_feed(&h->head, h->buf, h->len)) == HTTP_MORE) {
        enum upgrade_end end = receive_more(h, o->max_head_bytes);

        if (end)
            return end;
    }
    if (h->in->parsed && r == HTTP_DONE &&
        (h->head.head_len != h->len || h->head.nfields != h->in->parsed->header_count)) {
        h->status = 400;
        return ended(h, UPGRADE_BAD_REQUEST, "the parts of the request are not what they say");
    }
    if (r == HTTP_DONE) {
        if (!h->in->parsed) {
            h->rest = h->buf + h->head.head_len;
            h->rest_len = h->len - h->head.head_len;
        }
        return UPGRADE_DONE;
    }
    h->status = http_head_status(&h->head);
    ended(h, UPGRADE_BAD_REQUEST, http_head_error_text(&h->head));
    if (r == HTTP_TOO_LONG || r == HTTP_TOO_MANY)
        h->end = UPGRADE_TOO_LARGE;
    else if (r == HTTP_VERSION)
        h->end = UPGRADE_BAD_VERSION;
    return h->end;
}

/* The request's copy stands behind the connection in its block when that leaves enough room for the
 * receive area. */
static enum upgrade_end keep_request(struct handshake *h)
{
    const struct conn_env *env = h->cfg->env;
    size_t size = request_size(&h->head, &h->req);
    void *mem = (uint8_t *)h->block + sizeof(tws_conn);

    if (size > env->blocks.block_size - env->area_min - sizeof(tws_conn)) {
        mem = base_alloc(h->cfg->opt.allocator, size);
        if (!mem) {
            h->status = 500;
            return ended(h, UPGRADE_INTERNAL, "out of memory");
        }
        h->request_on_heap = true;
    }
    h->request = request_build(mem, &h->head, h->buf, &h->req, &h->peer, h->stream.sock.fd);
    return UPGRADE_DONE;
}

/* ---- Judging it ---- */

static bool origin_welcome(const struct handshake *h)
{
    const tws_upgrade_options *o = &h->cfg->opt;

    if (o->any_origin || !h->req.origin.at)
        return true;
    if (wire_origin_same(h->req.origin, h->req.host,
                         net_stream_is_tls(&h->stream) || (h->in->parsed && h->in->parsed->secure)))
        return true;
    for (size_t i = 0; i < o->origin_count; i++)
        if (wire_origin_matches(h->req.origin, wire_text_of(o->origins[i])))
            return true;
    return false;
}

static enum upgrade_end refuse(struct handshake *h, enum upgrade_end end)
{
    h->status = h->req.status;
    return ended(h, end, h->req.why);
}

static enum upgrade_end ask_page_hook(struct handshake *h)
{
    const tws_upgrade_options *o = &h->cfg->opt;

    if (o->on_page && o->on_page(h->request, &h->reply, o->hook_arg)) {
        h->status = h->reply.status ? h->reply.status : 200;
        return ended(h, UPGRADE_PAGE, "by on_page");
    }
    reply_clear(&h->reply);
    return refuse(h, UPGRADE_REQUIRED);
}

static enum upgrade_end ask_upgrade_hook(struct handshake *h)
{
    const tws_upgrade_options *o = &h->cfg->opt;
    int chosen;

    if (!origin_welcome(h)) {
        h->status = 403;
        return ended(h, UPGRADE_BAD_ORIGIN, "this Origin may not connect to this Host");
    }
    chosen = handshake_choose_protocol(&h->head, h->buf, o->subprotocols, o->subprotocol_count);
    if (chosen >= 0 && tws_reply_subprotocol(&h->reply, o->subprotocols[chosen]) != TWS_OK) {
        h->status = 500;
        return ended(h, UPGRADE_INTERNAL, "out of memory");
    }
    if (!o->on_upgrade || o->on_upgrade(h->request, &h->reply, o->hook_arg))
        return UPGRADE_DONE;
    h->status = h->reply.status ? h->reply.status : 403;
    return ended(h, UPGRADE_HOOK_REFUSED, "not allowed here");
}

static enum upgrade_end judge(struct handshake *h)
{
    enum upgrade_end end;

    handshake_examine(&h->head, h->buf, &h->req);
    end = keep_request(h);
    if (end)
        return end;
    switch (h->req.verdict) {
    case HANDSHAKE_UPGRADE:
        return ask_upgrade_hook(h);
    case HANDSHAKE_PLAIN:
        return ask_page_hook(h);
    case HANDSHAKE_BAD_METHOD:
        return refuse(h, UPGRADE_BAD_METHOD);
    case HANDSHAKE_BAD_HTTP:
    case HANDSHAKE_BAD_UPGRADE:
    case HANDSHAKE_BAD_CONNECTION:
        return refuse(h, UPGRADE_REQUIRED);
    case HANDSHAKE_BAD_VERSION:
    case HANDSHAKE_OTHER_VERSION:
        return refuse(h, UPGRADE_BAD_VERSION);
    case HANDSHAKE_BAD_HOST:
    case HANDSHAKE_BAD_BODY:
    case HANDSHAKE_BAD_KEY:
    case HANDSHAKE_BAD_PROTOCOLS:
    case HANDSHAKE_BAD_EXTENSIONS:
    case HANDSHAKE_BAD_ORIGIN:
        break;
    }
    return refuse(h, UPGRADE_BAD_REQUEST);
}

/* ---- Answering ---- */

static enum upgrade_end send_bytes(struct handshake *h, const char *data, size_t len)
{
    int r = net_stream_send_by(&h->stream, data, len, h->deadline);

    return r < 0 ? io_failed(h, r) : UPGRADE_DONE;
}

typedef ptrdiff_t answer_writer(char *out, size_t cap, const void *what);

static ptrdiff_t write_switch(char *out, size_t cap, const void *what)
{
    return handshake_write_switch(out, cap, what);
}

static ptrdiff_t write_response(char *out, size_t cap, const void *what)
{
    return handshake_write_response(out, cap, what);
}

static enum upgrade_end keep_answer(struct handshake *h, const char *text, size_t len)
{
    h->answer = base_alloc(h->cfg->opt.allocator, len + 1);
    if (!h->answer)
        return ended(h, UPGRADE_INTERNAL, "out of memory");
    memcpy(h->answer, text, len);
    h->answer[len] = 0;
    h->answer_len = len;
    return UPGRADE_DONE;
}

/* Writes an answer into a buffer that is large enough, and sends it. */
static enum upgrade_end send_answer(struct handshake *h, answer_writer *writer, const void *what)
{
    const tws_allocator *a = h->cfg->opt.allocator;
    char small[512];
    char *text = small;
    ptrdiff_t len = writer(small, sizeof small, what);
    enum upgrade_end end;

    if (len > (ptrdiff_t)sizeof small) {
        text = base_alloc(a, (size_t)len);
        if (!text)
            return ended(h, UPGRADE_INTERNAL, "out of memory");
        len = writer(text, (size_t)len, what);
    }
    if (len < 0)
        end = ended(h, UPGRADE_INTERNAL, "the answer could not be written");
    else
        end = h->keep ? keep_answer(h, text, (size_t)len) : send_bytes(h, text, (size_t)len);
    if (text != small)
        base_free(a, text);
    return end;
}

enum upgrade_end upgrade_answer_switch(struct handshake *h)
{
    struct handshake_switch s = {.key = h->req.key,
                                 .protocol = h->reply.subprotocol,
                                 .server = h->cfg->server_name,
                                 .headers = h->reply.headers,
                                 .nheaders = h->reply.nheaders};
    char extensions[DEFLATE_TEXT_MAX];

    h->compress = conn_deflate_answer(h->cfg->env, &h->head, h->buf, &h->agreed, extensions) > 0;
    if (h->compress)
        s.extensions = extensions;
    return send_answer(h, write_switch, &s);
}

/* Lets the peer read the answer: half-close, then read on until it has ended its side too. */
static void linger(struct handshake *h)
{
    int64_t deadline = base_clock_ns() + LINGER_MS * BASE_NS_PER_MS;
    size_t total = 0;
    ssize_t n = 1;

    net_stream_shutdown(&h->stream, SHUT_WR);
    while (n > 0 && total < LINGER_BYTES) {
        n = net_stream_recv_by(&h->stream, h->buf, h->cfg->opt.max_head_bytes, deadline);
        if (n > 0)
            total += (size_t)n;
    }
}

void upgrade_answer_refusal(struct handshake *h)
{
    enum upgrade_end end = h->end;
    const char *why = h->why;
    char text[192];
    struct handshake_response r = {.status = h->status,
                                   .server = h->cfg->server_name,
                                   .content_type = h->reply.type,
                                   .body = h->reply.body,
                                   .body_len = h->reply.body_len,
                                   .is_head = h->req.is_head,
                                   .headers = h->reply.headers,
                                   .nheaders = h->reply.nheaders};

    if (!r.body && end != UPGRADE_PAGE) {
        int n =
            snprintf(text, sizeof text, "%d %s: %s\n", r.status, http_status_text(r.status), why);

        r.body = text;
        r.body_len = n < (int)sizeof text ? (size_t)n : sizeof text - 1;
    }
    if (send_answer(h, write_response, &r) == UPGRADE_DONE && !h->keep)
        linger(h);
    ended(h, end, why);
}

/* ---- The connection ---- */

void upgrade_request_free(tws_conn *c)
{
    base_free(c->env->allocator, (void *)(uintptr_t)c->request);
}

static tws_conn *make_connection(struct handshake *h)
{
    const struct conn_env *env = h->cfg->env;
    size_t used = sizeof(tws_conn);
    void *deflate = NULL; /* where what it compresses with stands: in the block, if that has room */
    struct conn_setup setup = {.env = h->cfg->env,
                               .stream = h->stream,
                               .peer = h->peer,
                               .server = true,
                               .options = &h->cfg->opt.conn,
                               .user = h->reply.user ? h->reply.user : h->cfg->opt.conn.user};
    tws_conn *c;

    if (!h->request_on_heap)
        used += (request_size(&h->head, &h->req) + 15) & ~(size_t)15;
    if (h->compress && used + conn_deflate_size() <= env->blocks.block_size - env->area_min) {
        deflate = (uint8_t *)h->block + used;
        used += conn_deflate_size();
    }
    c = conn_init(h->block, &setup, env->area_min > 0 ? env->blocks.block_size - used : 0);
    h->block = NULL;
    if (deflate)
        conn_deflate_start_in(c, &h->agreed, deflate);
    c->request = h->request;
    if (h->request_on_heap)
        c->request_free = upgrade_request_free;
    c->subprotocol = h->reply.subprotocol;
    h->reply.subprotocol = NULL;
    atomic_init(&c->session, h->reply.session);
    h->reply.session = NULL;
    h->request = NULL;
    return c;
}

/* From here on the descriptor's number may become somebody else's. */
static void tell_closing(const struct handshake *h)
{
    if (h->in->closing)
        h->in->closing(h->in->closing_arg);
}

enum upgrade_end upgrade_open(struct handshake *h, tws_conn **out)
{
    tws_conn *c = make_connection(h);

    if (!conn_feed(c, h->rest, h->rest_len) ||
        (h->compress && !c->deflate && !conn_deflate_start(c, &h->agreed))) {
        tell_closing(h);
        h->reply.session = atomic_exchange(&c->session, NULL); /* until on_handshake_end was told */
        tws_conn_unref(c);
        return ended(h, UPGRADE_INTERNAL, "no memory for the connection");
    }
    *out = c;
    return UPGRADE_DONE;
}

/* ---- The whole of it ---- */

void upgrade_handshake_free(struct handshake *h)
{
    base_free(h->cfg->opt.allocator, h->answer);
    if (h->request_on_heap)
        base_free(h->cfg->opt.allocator, h->request);
    reply_clear(&h->reply);
    base_dict_free(h->reply.session);
    if (h->buf)
        base_pool_put(&h->cfg->heads, h->buf);
    if (h->block) { /* not a connection */
        tell_closing(h);
        if (h->stream.ops) /* else there is no socket yet */
            net_stream_close(&h->stream);
        base_pool_put(&h->cfg->env->blocks, h->block);
    }
}

/* ---- TLS ---- */

static enum upgrade_end tls_failed(struct handshake *h, int r)
{
    h->tls_result = r;
    switch (r) {
    case -ETIMEDOUT:
        return ended(h, UPGRADE_TIMED_OUT, h->tls_error.text);
    case -ENOMEM:
        return ended(h, UPGRADE_INTERNAL, "no memory for TLS");
    case -EPROTO:
    case -EKEYREJECTED:
        linger(h); /* so that the alert is read */
        return ended(h, UPGRADE_TLS, h->tls_error.text);
    default:
        if (r != -ECONNABORTED)
            h->sys_errno = task_errno(r);
        return ended(h, UPGRADE_DISCONNECTED, h->tls_error.text);
    }
}

/* The TLS handshake, or TLS that somebody else has set up. */
static enum upgrade_end secure(struct handshake *h)
{
    const struct upgrade_input *in = h->in;
    struct net_tls_params p = {.tls = h->cfg->opt.tls,
                               .ssl = in->ssl,
                               .server = true,
                               .buffered = in->ssl ? NULL : in->buffered,
                               .buffered_len = in->ssl ? 0 : in->buffered_len,
                               .allocator = h->cfg->opt.allocator};
    int r = net_tls_wrap(&h->stream, &p, h->deadline, &h->tls_error);

    if (r < 0)
        return tls_failed(h, r);
    if (in->secured) {
        int version;
        bool resumed;

        net_tls_agreed(&h->stream, &version, &resumed);
        in->secured(in->secured_arg, version, resumed);
    }
    return UPGRADE_DONE;
}

static enum upgrade_end begin(struct handshake *h, const struct upgrade_input *in)
{
    if ((!in->parsed && in->buffered_len > h->cfg->opt.max_head_bytes) ||
        in->buffered_len > CONN_BUFFER - 1) {
        h->status = 431;
        return ended(h, UPGRADE_TOO_LARGE, "more bytes than a request may have");
    }
    h->deadline = task_deadline(h->cfg->opt.handshake_timeout);
    if (in->ssl || (h->cfg->opt.tls && !in->plain)) {
        enum upgrade_end end = secure(h);

        if (end || !in->ssl)
            return end;
    }
    if (in->parsed) {
        h->rest = in->buffered;
        h->rest_len = in->buffered_len;
        return UPGRADE_DONE;
    }
    if (in->buffered_len > 0)
        memcpy(h->buf, in->buffered, in->buffered_len);
    h->len = in->buffered_len;
    return UPGRADE_DONE;
}

enum upgrade_end upgrade_judge(struct handshake *h)
{
    if (read_head(h))
        return h->end;
    h->reply.head = &h->head;
    h->reply.head_buf = h->buf;
    return judge(h);
}

enum upgrade_end upgrade_prepare(struct handshake *h, struct upgrade_config *cfg,
                                 const struct upgrade_input *in)
{
    struct net_tcp tcp = conn_tcp(&cfg->opt.conn);
    int r = 0;

    memset(h, 0, sizeof *h);
    h->cfg = cfg;
    h->in = in;
    h->peer = in->peer;
    h->block = in->block;
    reply_init(&h->reply, cfg->opt.allocator);
    if (in->fd >= 0)
        r = net_stream_init(&h->stream, in->runtime, in->fd, &tcp);
    h->buf = base_pool_get(&cfg->heads);
    if (r < 0 || !h->buf) {
        h->sys_errno = r < 0 ? -r : ENOMEM;
        return ended(h, UPGRADE_INTERNAL, "no memory for the request");
    }
    return UPGRADE_DONE;
}

enum upgrade_end upgrade_run(struct upgrade_config *cfg, const struct upgrade_input *in,
                             tws_conn **out, tws_error *error)
{
    struct handshake h;

    *out = NULL;
    if (!upgrade_prepare(&h, cfg, in)) {
        if (!begin(&h, in) && !upgrade_judge(&h) && !upgrade_answer_switch(&h))
            upgrade_open(&h, out);
        if (h.end && h.status)
            upgrade_answer_refusal(&h);
    }
    if (h.end == UPGRADE_DISCONNECTED && in->was_cut && in->was_cut(in->was_cut_arg))
        ended(&h, UPGRADE_CUT, "the server is stopping");
    upgrade_tell(&h, error);
    upgrade_handshake_free(&h);
    return h.end;
}
