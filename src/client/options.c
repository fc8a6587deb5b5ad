/* Options of a dial: defaults and checks. */
#include "client/dial.h"

#include "base/sized.h"
#include "conn/queue.h"
#include "net/connect.h"
#include "wire/origin.h"

#include <string.h>

#define MIN_ATTEMPT_DELAY 10
#define MAX_ATTEMPT_DELAY 60000

void tws_dial_options_init_sized(tws_dial_options *opt, size_t size)
{
    tws_dial_options o;

    memset(&o, 0, sizeof o);
    o.size = size;
    o.timeout = 30000;
    o.attempt_delay = 250;
    o.fd = -1;
    o.max_head_bytes = HTTP_DEFAULT_BYTES;
    o.max_head_fields = HTTP_DEFAULT_FIELDS;
    conn_options_init(&o.conn);
    base_sized_give(opt, size, &o, sizeof o);
}

static tws_err refuse_as(struct dial *d, tws_err err, const char *what)
{
    return dial_fail(d, err, TWS_PHASE_NONE, 0, "%s", what);
}

static tws_err refuse(struct dial *d, const char *what)
{
    return refuse_as(d, TWS_ERR_ARGUMENT, what);
}

/* ---- Headers ---- */

/* Why a header may not be sent; NULL when it may. */
static const char *header_fault(const tws_dial_options *o, const tws_header *h)
{
    struct wire_text name = wire_text_of(h->name);

    if (!token_valid(name))
        return "its name is not a token";
    if (!h->value || !token_value_valid(wire_text_of(h->value)))
        return "its value holds a control character, or blanks at its ends";
    if (wire_text_is(name, "Host"))
        return "use the option host";
    if (wire_text_starts(name, "Sec-WebSocket-") || wire_text_is(name, "Upgrade") ||
        wire_text_is(name, "Connection") || wire_text_is(name, "Content-Length") ||
        wire_text_is(name, "Transfer-Encoding"))
        return "it belongs to the handshake and cannot be set";
    if (o->origin && wire_text_is(name, "Origin"))
        return "it is given as the option origin too";
    if (o->cookie && wire_text_is(name, "Cookie"))
        return "it is given as the option cookie too";
    return NULL;
}

static tws_err check_headers(struct dial *d)
{
    const tws_dial_options *o = &d->o;

    if (o->header_count > 0 && !o->headers)
        return refuse(d, "headers is missing");
    for (size_t i = 0; i < o->header_count; i++) {
        const char *fault = header_fault(o, &o->headers[i]);

        if (fault)
            return dial_fail(d, TWS_ERR_ARGUMENT, TWS_PHASE_NONE, 0, "header '%.64s': %s",
                             o->headers[i].name ? o->headers[i].name : "", fault);
    }
    return TWS_OK;
}

static tws_err check_subprotocols(struct dial *d)
{
    const tws_dial_options *o = &d->o;

    if (o->subprotocol_count > 0 && !o->subprotocols)
        return refuse(d, "subprotocols is missing");
    if (o->subprotocol_count > HANDSHAKE_PROTOCOLS_MAX)
        return refuse(d, "more than 64 subprotocols");
    for (size_t i = 0; i < o->subprotocol_count; i++) {
        const char *name = o->subprotocols[i];

        if (!name || !token_valid(wire_text_of(name)))
            return dial_fail(d, TWS_ERR_ARGUMENT, TWS_PHASE_NONE, 0,
                             "subprotocol '%.64s' is not a token", name ? name : "");
        for (size_t j = 0; j < i; j++)
            if (strcmp(name, o->subprotocols[j]) == 0)
                return dial_fail(d, TWS_ERR_ARGUMENT, TWS_PHASE_NONE, 0,
                                 "subprotocol '%.64s' is there twice", name);
    }
    return TWS_OK;
}

/* ---- The rest ---- */

static const char *negative(const tws_dial_options *o)
{
    if (o->timeout < 0)
        return "timeout is negative";
    if (o->resolve_timeout < 0)
        return "resolve_timeout is negative";
    if (o->connect_timeout < 0)
        return "connect_timeout is negative";
    if (o->tls_timeout < 0)
        return "tls_timeout is negative";
    return o->handshake_timeout < 0 ? "handshake_timeout is negative" : NULL;
}

/* What is not allowed; NULL when all is well. */
static const char *check_values(const tws_dial_options *o)
{
    struct sockaddr_storage source;
    struct wire_host host;
    socklen_t len;

    if (negative(o))
        return negative(o);
    if (conn_options_fault(&o->conn))
        return conn_options_fault(&o->conn);
    if (o->attempt_delay < MIN_ATTEMPT_DELAY || o->attempt_delay > MAX_ATTEMPT_DELAY)
        return "attempt_delay is not between 10 and 60,000";
    if (http_limits_fault(o->max_head_bytes, o->max_head_fields))
        return http_limits_fault(o->max_head_bytes, o->max_head_fields);
    if (o->origin && !token_value_valid(wire_text_of(o->origin)))
        return "origin holds a control character, or blanks at its ends";
    if (o->cookie && !token_value_valid(wire_text_of(o->cookie)))
        return "cookie holds a control character, or blanks at its ends";
    if (o->host && !wire_host_parse(&host, wire_text_of(o->host)))
        return "host is malformed";
    if (o->source_address && net_source_parse(o->source_address, &source, &len) < 0)
        return "source_address is not an IP address";
    if (o->fd < -1)
        return "fd is negative";
    if (o->fd >= 0 && (o->connect || o->proxy))
        return "fd together with connect or proxy";
    if (o->proxy_header_count > 0 && !o->proxy_headers)
        return "proxy_headers is missing";
    return NULL;
}

bool dial_options_take(tws_dial_options *own, const tws_dial_options *opt)
{
    tws_dial_options_init(own);
    if (opt && opt->size < sizeof opt->size + sizeof opt->headers)
        return false;
    if (opt)
        base_sized_take(own, sizeof *own, opt, opt->size);
    return true;
}

tws_err dial_take_options(struct dial *d, const tws_dial_options *opt)
{
    const char *what;
    tws_err err;

    if (!dial_options_take(&d->o, opt))
        return refuse(d, "options were not initialised");
    d->allocator = d->o.allocator;
    d->cancel = d->o.cancel ? &d->o.cancel->task : NULL;
    what = check_values(&d->o);
    if (what)
        return refuse(d, what);
    err = d->o.deflate ? conn_deflate_options(&d->key.deflate, d->o.deflate, &what) : TWS_OK;
    if (err)
        return refuse_as(d, err, what);
    d->key.compress = d->o.deflate != NULL;
    d->key.queue = d->o.conn.queue;
    err = check_headers(d);
    return err ? err : check_subprotocols(d);
}
