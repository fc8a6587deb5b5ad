/* The messages of the opening handshake, written out. */
#include "wire/base64.h"
#include "wire/handshake.h"

static void put_field(struct wire_out *out, const char *name, struct wire_text value)
{
    wire_put_string(out, name);
    wire_put_string(out, ": ");
    wire_put(out, value);
    wire_put_string(out, "\r\n");
}

static void put_string_field(struct wire_out *out, const char *name, const char *value)
{
    put_field(out, name, wire_text_of(value));
}

static bool has_header(const tws_header *headers, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (wire_text_is(wire_text_of(headers[i].name), name))
            return true;
    return false;
}

/* Fields that say how the message ends, or what becomes of the connection, are the writer's. */
static bool forbidden(struct wire_text name)
{
    return wire_text_is(name, "Connection") || wire_text_is(name, "Upgrade") ||
           wire_text_is(name, "Content-Length") || wire_text_is(name, "Transfer-Encoding") ||
           wire_text_is(name, "Host") || wire_text_starts(name, "Sec-WebSocket-");
}

static enum handshake_fault check_headers(const tws_header *headers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!token_valid(wire_text_of(headers[i].name)))
            return HANDSHAKE_FAULT_NAME;
        if (headers[i].value == NULL || !token_value_valid(wire_text_of(headers[i].value)))
            return HANDSHAKE_FAULT_VALUE;
        if (forbidden(wire_text_of(headers[i].name)))
            return HANDSHAKE_FAULT_FORBIDDEN;
    }
    return HANDSHAKE_OK;
}

static void put_headers(struct wire_out *out, const tws_header *headers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put_string_field(out, headers[i].name, headers[i].value);
}

/* A list of extensions that is fit to be sent: NULL, or one at least and well formed. */
static bool extensions_valid(const char *extensions)
{
    struct extension_list list;
    struct extension ext;
    enum extension_result more;

    if (extensions == NULL)
        return true;
    if (!token_value_valid(wire_text_of(extensions)))
        return false;
    extension_list_of_text(&list, wire_text_of(extensions));
    do
        more = extension_next(&list, &ext);
    while (more == EXTENSION_NEXT);
    return more == EXTENSION_END && list.count > 0;
}

/* NULL, meaning absent, is fine. */
static bool value_valid(const char *value)
{
    return value == NULL || token_value_valid(wire_text_of(value));
}

static void put_server(struct wire_out *out, const char *server, const tws_header *headers,
                       size_t n)
{
    if (server != NULL && !has_header(headers, n, "Server"))
        put_string_field(out, "Server", server);
}

ptrdiff_t handshake_write_switch(char *out, size_t cap, const struct handshake_switch *s)
{
    struct wire_out w = {out, cap, 0};
    char accept[HANDSHAKE_ACCEPT_LEN];
    enum handshake_fault fault = check_headers(s->headers, s->nheaders);

    if (fault != HANDSHAKE_OK)
        return -(ptrdiff_t)fault;
    if (!handshake_key_valid(s->key))
        return -(ptrdiff_t)HANDSHAKE_FAULT_KEY;
    if (s->protocol != NULL && !token_valid(wire_text_of(s->protocol)))
        return -(ptrdiff_t)HANDSHAKE_FAULT_PROTOCOL;
    if (!extensions_valid(s->extensions))
        return -(ptrdiff_t)HANDSHAKE_FAULT_EXTENSION;
    if (!value_valid(s->server))
        return -(ptrdiff_t)HANDSHAKE_FAULT_VALUE;

    handshake_accept(accept, s->key.at);
    wire_put_string(&w, "HTTP/1.1 101 Switching Protocols\r\n"
                        "Upgrade: websocket\r\n"
                        "Connection: Upgrade\r\n");
    put_field(&w, "Sec-WebSocket-Accept", (struct wire_text){accept, sizeof accept});
    if (s->protocol != NULL)
        put_string_field(&w, "Sec-WebSocket-Protocol", s->protocol);
    if (s->extensions != NULL)
        put_string_field(&w, "Sec-WebSocket-Extensions", s->extensions);
    put_server(&w, s->server, s->headers, s->nheaders);
    put_headers(&w, s->headers, s->nheaders);
    wire_put_string(&w, "\r\n");
    return (ptrdiff_t)w.len;
}

/* RFC 9110 8.6, 15.3.6, 15.4.5: no content, and no length of it either. */
static bool without_content(int status)
{
    return status == 204 || status == 205 || status == 304;
}

static void put_content_fields(struct wire_out *out, const struct handshake_response *r)
{
    if (without_content(r->status)) {
        if (r->status == 205)
            put_string_field(out, "Content-Length", "0");
        return;
    }
    if (!has_header(r->headers, r->nheaders, "Content-Type"))
        put_string_field(out, "Content-Type",
                         r->content_type != NULL ? r->content_type : "text/plain; charset=utf-8");
    wire_put_string(out, "Content-Length: ");
    wire_put_number(out, r->body_len);
    wire_put_string(out, "\r\n");
}

ptrdiff_t handshake_write_response(char *out, size_t cap, const struct handshake_response *r)
{
    struct wire_out w = {out, cap, 0};
    enum handshake_fault fault = check_headers(r->headers, r->nheaders);

    if (fault != HANDSHAKE_OK)
        return -(ptrdiff_t)fault;
    if (!value_valid(r->server) || !value_valid(r->content_type))
        return -(ptrdiff_t)HANDSHAKE_FAULT_VALUE;
    if (r->status < 200 || r->status > 599)
        return -(ptrdiff_t)HANDSHAKE_FAULT_STATUS;

    wire_put_string(&w, "HTTP/1.1 ");
    wire_put_number(&w, (uint64_t)r->status);
    wire_put_char(&w, ' ');
    wire_put_string(&w, http_status_text(r->status));
    wire_put_string(&w, "\r\n");
    if (r->status == 426)
        wire_put_string(&w, "Upgrade: websocket\r\n"
                            "Connection: Upgrade, close\r\n"
                            "Sec-WebSocket-Version: 13\r\n");
    else
        wire_put_string(&w, "Connection: close\r\n");
    if (r->status == 405 && !has_header(r->headers, r->nheaders, "Allow"))
        wire_put_string(&w, "Allow: GET, HEAD\r\n");
    put_server(&w, r->server, r->headers, r->nheaders);
    put_content_fields(&w, r);
    put_headers(&w, r->headers, r->nheaders);
    wire_put_string(&w, "\r\n");
    if (r->body != NULL && !r->is_head && !without_content(r->status))
        wire_put(&w, (struct wire_text){r->body, r->body_len});
    return (ptrdiff_t)w.len;
}

static enum handshake_fault check_protocols(const char *const *protocols, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct wire_text name = wire_text_of(protocols[i]);

        if (!token_valid(name))
            return HANDSHAKE_FAULT_PROTOCOL;
        for (size_t j = 0; j < i; j++)
            if (wire_text_equal(name, wire_text_of(protocols[j])))
                return HANDSHAKE_FAULT_PROTOCOL;
    }
    return HANDSHAKE_OK;
}

static enum handshake_fault check_offer(const struct handshake_offer *offer)
{
    struct wire_host host;
    enum handshake_fault fault = check_headers(offer->headers, offer->nheaders);

    if (fault != HANDSHAKE_OK)
        return fault;
    if (offer->origin != NULL && has_header(offer->headers, offer->nheaders, "Origin"))
        return HANDSHAKE_FAULT_FORBIDDEN;
    if (!value_valid(offer->origin))
        return HANDSHAKE_FAULT_VALUE;
    if (offer->host != NULL && !wire_host_parse(&host, wire_text_of(offer->host)))
        return HANDSHAKE_FAULT_HOST;
    if (!handshake_key_valid(wire_text_of(offer->key)))
        return HANDSHAKE_FAULT_KEY;
    if (!extensions_valid(offer->extensions))
        return HANDSHAKE_FAULT_EXTENSION;
    return check_protocols(offer->protocols, offer->nprotocols);
}

/* Three bytes at a time: user information can be as long as an address. */
struct base64_writer {
    struct wire_out *out;
    uint8_t group[3];
    size_t n;
};

static void flush_base64(struct base64_writer *b)
{
    char characters[WIRE_BASE64_LEN(3)];

    wire_put(b->out,
             (struct wire_text){characters, wire_base64_encode(characters, b->group, b->n)});
    b->n = 0;
}

static void put_base64_char(struct base64_writer *b, char c)
{
    b->group[b->n++] = (uint8_t)c;
    if (b->n == sizeof b->group)
        flush_base64(b);
}

static void put_base64_decoded(struct base64_writer *b, struct wire_text escaped)
{
    while (escaped.len > 0) {
        char c = 0;
        size_t n = escaped.at[0] == '%' ? 3 : 1;

        wire_url_decode(wire_text_head(escaped, n), &c, 1);
        put_base64_char(b, c);
        escaped = wire_text_skip(escaped, n);
    }
}

/* RFC 7617. */
static void put_authorization(struct wire_out *out, const struct handshake_offer *offer)
{
    struct base64_writer b = {.out = out, .n = 0};

    if (!offer->url->has_userinfo || has_header(offer->headers, offer->nheaders, "Authorization"))
        return;
    wire_put_string(out, "Authorization: Basic ");
    put_base64_decoded(&b, offer->url->user);
    put_base64_char(&b, ':');
    put_base64_decoded(&b, offer->url->password);
    flush_base64(&b);
    wire_put_string(out, "\r\n");
}

ptrdiff_t handshake_write_request(char *out, size_t cap, const struct handshake_offer *offer)
{
    struct wire_out w = {out, cap, 0};
    enum handshake_fault fault = check_offer(offer);

    if (fault != HANDSHAKE_OK)
        return -(ptrdiff_t)fault;

    wire_put_string(&w, "GET ");
    wire_url_put(&w, offer->url, wire_url_target);
    wire_put_string(&w, " HTTP/1.1\r\nHost: ");
    if (offer->host != NULL)
        wire_put_string(&w, offer->host);
    else
        wire_url_put(&w, offer->url, wire_url_host);
    wire_put_string(&w, "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n");
    put_string_field(&w, "Sec-WebSocket-Key", offer->key);
    wire_put_string(&w, "Sec-WebSocket-Version: 13\r\n");
    if (offer->origin != NULL)
        put_string_field(&w, "Origin", offer->origin);
    for (size_t i = 0; i < offer->nprotocols; i++) {
        wire_put_string(&w, i == 0 ? "Sec-WebSocket-Protocol: " : ", ");
        wire_put_string(&w, offer->protocols[i]);
    }
    if (offer->nprotocols > 0)
        wire_put_string(&w, "\r\n");
    if (offer->extensions != NULL)
        put_string_field(&w, "Sec-WebSocket-Extensions", offer->extensions);
    put_authorization(&w, offer);
    put_headers(&w, offer->headers, offer->nheaders);
    wire_put_string(&w, "\r\n");
    return (ptrdiff_t)w.len;
}

ptrdiff_t handshake_write_connect(char *out, size_t cap, const struct wire_url *url,
                                  const tws_header *headers, size_t nheaders)
{
    struct wire_out w = {out, cap, 0};
    enum handshake_fault fault = check_headers(headers, nheaders);

    if (fault != HANDSHAKE_OK)
        return -(ptrdiff_t)fault;
    if (url->is_unix)
        return -(ptrdiff_t)HANDSHAKE_FAULT_HOST;
    wire_put_string(&w, "CONNECT ");
    wire_url_put(&w, url, wire_url_authority);
    wire_put_string(&w, " HTTP/1.1\r\nHost: ");
    wire_url_put(&w, url, wire_url_authority);
    wire_put_string(&w, "\r\n");
    put_headers(&w, headers, nheaders);
    wire_put_string(&w, "\r\n");
    return (ptrdiff_t)w.len;
}
