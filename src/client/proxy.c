/* Through a proxy: what both kinds share, and HTTP CONNECT (RFC 9110 9.3.6). */
#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "client/proxy.h"
#include "wire/base64.h"

int proxy_say(struct proxy_error *err, int result, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return result;
}

static int broke(struct proxy_error *err, int result)
{
    if (result == -ETIMEDOUT)
        return proxy_say(err, result, "the proxy did not answer in time");
    return proxy_say(err, result, "the connection to the proxy broke");
}

int proxy_send(struct net_stream *st, const void *data, size_t len, int64_t deadline,
               struct proxy_error *err)
{
    int r = net_stream_send_by(st, data, len, deadline);

    return r < 0 ? broke(err, r) : 0;
}

ssize_t proxy_recv(struct net_stream *st, void *buf, size_t cap, int64_t deadline,
                   struct proxy_error *err)
{
    ssize_t n = net_stream_recv_by(st, buf, cap, deadline);

    if (n < 0)
        return broke(err, (int)n);
    if (n == 0)
        return proxy_say(err, -EPROTO, "the proxy closed the connection before it had answered");
    return n;
}

size_t proxy_name(const struct proxy *p, char *buf, size_t size)
{
    static const char *const schemes[] = {[PROXY_NONE] = "",
                                          [PROXY_HTTP] = "http",
                                          [PROXY_SOCKS5] = "socks5",
                                          [PROXY_SOCKS5H] = "socks5h"};
    int n = snprintf(buf, size, "%s://%s%.*s%s:%u", schemes[p->kind], p->host.ipv6 ? "[" : "",
                     (int)p->host.name.len, p->host.name.at, p->host.ipv6 ? "]" : "", p->host.port);

    return n < 0 ? 0 : (size_t)n;
}

bool proxy_wants_address(const struct proxy *p, const struct wire_url *url)
{
    char name[INET_ADDRSTRLEN];
    struct in_addr address;
    size_t n = url->host.name.len;

    if (p->kind != PROXY_SOCKS5 || url->host.ipv6)
        return false;
    if (n >= sizeof name)
        return true;
    memcpy(name, url->host.name.at, n);
    name[n] = '\0';
    return inet_pton(AF_INET, name, &address) != 1;
}

int proxy_open(struct net_stream *st, const struct proxy *p, const struct proxy_target *target,
               int64_t deadline, struct proxy_error *err)
{
    *err = (struct proxy_error){0};
    if (target->url->is_unix)
        return proxy_say(err, -EINVAL, "a Unix socket cannot be reached through a proxy");
    return (p->kind == PROXY_HTTP ? proxy_connect : proxy_socks5)(st, p, target, deadline, err);
}

/* ---- CONNECT ---- */

/* "Basic " and base 64 of user:password (RFC 7617), zero-terminated; NULL: no memory. */
static char *basic(const struct proxy *p)
{
    static const char scheme[] = "Basic ";
    size_t most = p->user.len + 1 + p->password.len, len;
    char *plain = base_alloc(p->allocator, most);
    char *value = base_alloc(p->allocator, sizeof scheme + WIRE_BASE64_LEN(most));

    if (plain != NULL && value != NULL) {
        len = wire_url_decode(p->user, plain, most);
        plain[len++] = ':';
        len += wire_url_decode(p->password, plain + len, most - len);
        memcpy(value, scheme, sizeof scheme - 1);
        len = wire_base64_encode(value + sizeof scheme - 1, plain, len);
        value[sizeof scheme - 1 + len] = '\0';
    } else {
        base_free(p->allocator, value);
        value = NULL;
    }
    base_free(p->allocator, plain);
    return value;
}

static bool has_authorization(const struct proxy_target *target)
{
    for (size_t i = 0; i < target->header_count; i++)
        if (wire_text_is(wire_text_of(target->headers[i].name), "Proxy-Authorization"))
            return true;
    return false;
}

/* The request in memory of its own, zero-terminated. 0, -ENOMEM or -EINVAL. */
static int write_request(const struct proxy *p, const tws_header *headers, size_t n,
                         const struct proxy_target *target, char **out, size_t *len,
                         struct proxy_error *err)
{
    ptrdiff_t need = handshake_write_connect(NULL, 0, target->url, headers, n);

    if (need < 0)
        return proxy_say(err, -EINVAL, "a header for the proxy: %s",
                         handshake_fault_text((enum handshake_fault) - need));
    *len = (size_t)need;
    *out = base_alloc(p->allocator, *len + 1);
    if (*out == NULL)
        return -ENOMEM;
    handshake_write_connect(*out, *len, target->url, headers, n);
    (*out)[*len] = '\0';
    return 0;
}

static int ask(struct net_stream *st, const struct proxy *p, const struct proxy_target *target,
               int64_t deadline, struct proxy_error *err)
{
    tws_header *headers = base_alloc(p->allocator, (target->header_count + 1) * sizeof *headers);
    char *authorization = NULL, *request = NULL;
    size_t n = 0, len = 0;
    int r = -ENOMEM;

    if (headers == NULL)
        goto out;
    if (p->has_userinfo && !has_authorization(target)) {
        authorization = basic(p);
        if (authorization == NULL)
            goto out;
        headers[n++] = (tws_header){"Proxy-Authorization", authorization};
    }
    for (size_t i = 0; i < target->header_count; i++)
        headers[n++] = target->headers[i];
    r = write_request(p, headers, n, target, &request, &len, err);
    if (r == 0 && target->on_head)
        target->on_head(true, request, len, target->on_head_arg);
    if (r == 0)
        r = proxy_send(st, request, len, deadline, err);
out:
    base_free(p->allocator, request);
    base_free(p->allocator, authorization);
    base_free(p->allocator, headers);
    return r;
}

struct answer {
    struct http_head head;
    const struct proxy_target *target;
    size_t len;
    char *buf; /* behind the fields; one byte more than it is used for */
    struct http_field fields[];
};

static struct answer *new_answer(const struct proxy *p, const struct proxy_target *target)
{
    size_t head = sizeof(struct answer) + target->max_head_fields * sizeof(struct http_field);
    struct answer *a = base_alloc(p->allocator, head + target->max_head_bytes + 1);

    if (a != NULL) {
        a->target = target;
        a->len = 0;
        a->buf = (char *)a + head;
    }
    return a;
}

static void begin_head(struct answer *a)
{
    struct http_limits limits = {a->target->max_head_bytes, a->target->max_head_fields};

    http_head_init(&a->head, true, a->fields, a->target->max_head_fields, &limits);
}

/* Shows len bytes; what stands behind them comes back. */
static void show(const struct answer *a, char *at, size_t len)
{
    char next = at[len];

    if (a->target->on_head == NULL || len == 0)
        return;
    at[len] = '\0';
    a->target->on_head(false, at, len, a->target->on_head_arg);
    at[len] = next;
}

static int bad_answer(const struct answer *a, enum http_result result, struct proxy_error *err)
{
    if (result == HTTP_TOO_LONG || result == HTTP_TOO_MANY)
        return proxy_say(err, -EPROTO, "the proxy's answer is larger than %u bytes or %u fields",
                         a->target->max_head_bytes, a->target->max_head_fields);
    return proxy_say(err, -EPROTO, "the proxy does not answer in HTTP/1: %s",
                     http_head_error_text(&a->head));
}

/* Until the head of the final answer; interim ones (RFC 9110 15.2) count against the same size. */
static int receive_head(struct net_stream *st, struct answer *a, int64_t deadline,
                        struct proxy_error *err)
{
    size_t begin = 0;
    enum http_result result;
    ssize_t n;

    begin_head(a);
    for (;;) {
        result = http_head_feed(&a->head, (uint8_t *)a->buf + begin, a->len - begin);
        if (result == HTTP_DONE) {
            show(a, a->buf + begin, a->head.head_len);
            if (a->head.status >= 200 || a->head.status == 101)
                break;
            begin += a->head.head_len;
            begin_head(a);
            continue;
        }
        if (result == HTTP_MORE && a->len == a->target->max_head_bytes)
            result = HTTP_TOO_LONG;
        n = result == HTTP_MORE
                ? proxy_recv(st, a->buf + a->len, a->target->max_head_bytes - a->len, deadline, err)
                : bad_answer(a, result, err);
        if (n < 0) {
            show(a, a->buf + begin, a->len - begin);
            return (int)n;
        }
        a->len += (size_t)n;
    }
    a->buf += begin;
    a->len -= begin;
    return 0;
}

/* What a person may read of a field's value. */
static void printable(char *out, size_t size, struct wire_text text)
{
    size_t n = text.len < size - 1 ? text.len : size - 1;

    for (size_t i = 0; i < n; i++)
        out[i] = text.at[i] >= ' ' && text.at[i] <= '~' ? text.at[i] : '?';
    out[n] = '\0';
}

static int refused(const struct answer *a, struct proxy_error *err)
{
    const struct http_field *field =
        http_find(&a->head, (uint8_t *)a->buf, "Proxy-Authenticate", NULL);
    char reason[64], wanted[64];

    err->status = a->head.status;
    printable(reason, sizeof reason, http_text((uint8_t *)a->buf, a->head.reason));
    if (a->head.status != 407)
        return proxy_say(err, -EPROTO, "the proxy answered %d %s", a->head.status, reason);
    printable(wanted, sizeof wanted,
              field ? http_text((uint8_t *)a->buf, field->value) : wire_text_of("no scheme named"));
    return proxy_say(err, -EPROTO, "the proxy answered 407 %s: it wants authorisation (%s)", reason,
                     wanted);
}

int proxy_connect(struct net_stream *st, const struct proxy *p, const struct proxy_target *target,
                  int64_t deadline, struct proxy_error *err)
{
    struct answer *a = NULL;
    int r = ask(st, p, target, deadline, err);

    if (r < 0)
        goto out;
    r = -ENOMEM;
    a = new_answer(p, target);
    if (a == NULL)
        goto out;
    r = receive_head(st, a, deadline, err);
    if (r < 0)
        goto out;
    /* A body is left alone: what refuses is closed, and a success has none, whatever its length
     * field says (RFC 9110 9.3.6). */
    if (a->head.status < 200 || a->head.status > 299)
        r = refused(a, err);
    /* The server has been sent nothing yet: it cannot have answered. */
    else if (a->len > a->head.head_len)
        r = proxy_say(err, -EPROTO, "the proxy sent bytes that cannot be the server's");
out:
    base_free(p->allocator, a);
    return r;
}
