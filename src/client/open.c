/* From an address to a stream: resolving, connecting, proxy, TLS. */
#include "client/dial.h"

#include "base/clock.h"
#include "net/address.h"
#include "net/connect.h"
#include "net/resolve.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- The stream, which tws_cancel_now() may cut ---- */

static void cut(void *arg)
{
    task_shutdown(arg, SHUT_RDWR);
}

static tws_err take_socket(struct dial *d, int fd)
{
    struct net_tcp tcp = conn_tcp(&d->o.conn);
    int r = net_stream_init(&d->stream, d->runtime, fd, &tcp);

    if (r < 0) {
        close(fd);
        return dial_local_failed(d, TWS_PHASE_CONNECT, r);
    }
    if (!task_cancel_join(&d->link, d->cancel, cut, &d->stream.sock)) {
        net_stream_close(&d->stream);
        return dial_fail(d, TWS_ERR_CANCELLED, TWS_PHASE_CONNECT, 0, "while connecting");
    }
    d->open = true;
    return TWS_OK;
}

void dial_release_stream(struct dial *d)
{
    if (d->open)
        task_cancel_leave(&d->link);
    d->open = false;
}

void dial_close(struct dial *d)
{
    if (!d->open)
        return;
    dial_release_stream(d);
    net_stream_close(&d->stream);
}

/* ---- Resolving and connecting ---- */

static tws_err resolve_failed(struct dial *d, const char *host, int result, int gai)
{
    char text[96];

    switch (result) {
    case -ETIMEDOUT:
        return dial_fail(d, TWS_ERR_HANDSHAKE_TIMEOUT, TWS_PHASE_RESOLVE, 0,
                         "no address of '%s' was found in time", host);
    case -ECANCELED:
        return dial_fail(d, TWS_ERR_CANCELLED, TWS_PHASE_RESOLVE, 0, "while resolving '%s'", host);
    case -EHOSTUNREACH:
        return dial_fail(d, TWS_ERR_RESOLVE, TWS_PHASE_RESOLVE, 0, "'%s': %s", host,
                         gai_strerror(gai));
    case -ENOMEM:
    case -EAGAIN:
        return dial_local_failed(d, TWS_PHASE_RESOLVE, result);
    default:
        return dial_fail(d, TWS_ERR_RESOLVE, TWS_PHASE_RESOLVE, -result, "'%s': %s", host,
                         strerror_r(-result, text, sizeof text));
    }
}

static tws_err resolve(struct dial *d, const char *host, uint16_t port, struct addrinfo **list)
{
    int gai;
    int r = net_resolve(list, host, port, d->runtime, dial_step(d, d->o.resolve_timeout), d->cancel,
                        &gai);

    return r < 0 ? resolve_failed(d, host, r, gai) : TWS_OK;
}

static tws_err connect_failed(struct dial *d, const char *where, int result)
{
    char text[96];

    switch (result) {
    case -ETIMEDOUT:
        return dial_fail(d, TWS_ERR_HANDSHAKE_TIMEOUT, TWS_PHASE_CONNECT, 0,
                         "%s did not answer in time", where);
    case -ECANCELED:
        return dial_fail(d, TWS_ERR_CANCELLED, TWS_PHASE_CONNECT, 0, "while connecting to %s",
                         where);
    case -EMFILE:
    case -ENFILE:
    case -ENOBUFS:
    case -ENOMEM:
        return dial_local_failed(d, TWS_PHASE_CONNECT, result);
    case -EAFNOSUPPORT:
        if (d->o.source_address)
            return dial_fail(d, TWS_ERR_CONNECT, TWS_PHASE_CONNECT, -result,
                             "%s has no address of the family of %s", where, d->o.source_address);
        break;
    default:
        break;
    }
    return dial_fail(d, TWS_ERR_CONNECT, TWS_PHASE_CONNECT, task_errno(result), "%s: %s", where,
                     strerror_r(task_errno(result), text, sizeof text));
}

static tws_err connect_tcp(struct dial *d, const char *host, uint16_t port)
{
    struct net_connect c = {.runtime = d->runtime,
                            .cancel = d->cancel,
                            .attempt_delay = d->o.attempt_delay * BASE_NS_PER_MS};
    struct sockaddr_storage source;
    struct addrinfo *list;
    char where[384], address[64];
    tws_err err = resolve(d, host, port, &list);
    int fd;

    if (err)
        return err;
    if (d->o.source_address && net_source_parse(d->o.source_address, &source, &c.source_len) == 0)
        c.source = (struct sockaddr *)&source;
    c.list = list;
    c.deadline = dial_step(d, d->o.connect_timeout);
    fd = net_connect(&c);
    freeaddrinfo(list);
    if (fd >= 0)
        return take_socket(d, fd);
    if (c.address_len > 0 && fd != -ETIMEDOUT && fd != -ECANCELED) {
        net_address_text((struct sockaddr *)&c.address, c.address_len, address, sizeof address);
        snprintf(where, sizeof where, "%s (%s)", address, host);
    } else {
        snprintf(where, sizeof where, "'%s' port %u", host, port);
    }
    return connect_failed(d, where, fd);
}

static tws_err connect_unix(struct dial *d)
{
    char path[WIRE_UNIX_PATH_MAX + 1];
    size_t len = wire_url_decode(d->url.unix_path, path, sizeof path - 1);
    int fd;

    path[len] = 0;
    fd = net_connect_unix(path, d->runtime, dial_step(d, d->o.connect_timeout), d->cancel);
    return fd < 0 ? connect_failed(d, path, fd) : take_socket(d, fd);
}

static tws_err connect_by_callback(struct dial *d, const char *host, uint16_t port)
{
    int64_t deadline = dial_step(d, d->o.connect_timeout);
    tws_ms left = 0;
    int fd;

    if (deadline != TASK_FOREVER) {
        left = (deadline - base_clock_ns()) / BASE_NS_PER_MS;
        if (left <= 0)
            return connect_failed(d, host, -ETIMEDOUT);
    }
    fd = d->o.connect(host, port, left, d->o.connect_arg);
    return fd < 0 ? connect_failed(d, "the connect callback", fd) : take_socket(d, fd);
}

/* An address has been parsed, so its name fits. */
static void host_string(const struct wire_host *host, char out[WIRE_URL_HOST_MAX + 1])
{
    size_t len = host->name.len <= WIRE_URL_HOST_MAX ? host->name.len : WIRE_URL_HOST_MAX;

    if (len > 0)
        memcpy(out, host->name.at, len);
    out[len] = 0;
}

static tws_err connect_host(struct dial *d, const struct wire_host *where)
{
    char host[WIRE_URL_HOST_MAX + 1];

    host_string(where, host);
    if (d->o.connect)
        return connect_by_callback(d, host, where->port);
    return connect_tcp(d, host, where->port);
}

static tws_err connect_somehow(struct dial *d)
{
    int fd = d->o.fd;

    if (fd >= 0) {
        d->o.fd = -1;
        return take_socket(d, fd);
    }
    if (d->url.is_unix && !d->o.connect)
        return connect_unix(d);
    return connect_host(d, d->proxy.kind == PROXY_NONE ? &d->url.host : &d->proxy.host);
}

/* ---- Proxy ---- */

static tws_err choose_proxy(struct dial *d)
{
    struct proxy_source source = {.option = d->o.proxy,
                                  .environment = d->o.proxy_from_environment,
                                  .allocator = d->allocator};
    struct proxy_error err = {.status = 0};
    int r;

    memset(&d->proxy, 0, sizeof d->proxy);
    if (d->o.fd >= 0)
        return TWS_OK;
    r = proxy_choose(&d->proxy, &source, &d->url, &err);
    if (r == -ENOMEM)
        return dial_no_memory(d, TWS_PHASE_PROXY);
    if (r < 0)
        return dial_fail(d, d->o.proxy ? TWS_ERR_ARGUMENT : TWS_ERR_PROXY, TWS_PHASE_PROXY, 0, "%s",
                         err.text);
    return TWS_OK;
}

static tws_err proxy_failed(struct dial *d, int result, const struct proxy_error *err)
{
    char name[320];

    if (result == -ENOMEM)
        return dial_no_memory(d, TWS_PHASE_PROXY);
    proxy_name(&d->proxy, name, sizeof name);
    if (result == -ETIMEDOUT)
        return dial_fail(d, TWS_ERR_HANDSHAKE_TIMEOUT, TWS_PHASE_PROXY, 0, "%s: %s", name,
                         err->text);
    if (result == -EINVAL)
        return dial_fail(d, TWS_ERR_ARGUMENT, TWS_PHASE_PROXY, 0, "%s", err->text);
    d->error->http_status = err->status;
    return dial_fail(d, TWS_ERR_PROXY, TWS_PHASE_PROXY, result == -EPROTO ? 0 : -result, "%s: %s",
                     name, err->text);
}

static struct proxy_target proxy_target_of(const struct dial *d)
{
    return (struct proxy_target){.url = &d->url,
                                 .headers = d->o.proxy_headers,
                                 .header_count = d->o.proxy_header_count,
                                 .max_head_bytes = d->o.max_head_bytes,
                                 .max_head_fields = (uint16_t)d->o.max_head_fields,
                                 .on_head = d->o.on_head,
                                 .on_head_arg = d->o.hook_arg};
}

static tws_err through_proxy(struct dial *d)
{
    struct proxy_target target = proxy_target_of(d);
    struct addrinfo *list = NULL, *a;
    struct proxy_error err = {.status = 0};
    char host[WIRE_URL_HOST_MAX + 1];
    tws_err failed = TWS_OK;
    int r;

    if (proxy_wants_address(&d->proxy, &d->url)) {
        host_string(&d->url.host, host);
        failed = resolve(d, host, d->url.host.port, &list);
        if (failed)
            return failed;
    }
    for (a = list;; a = a->ai_next) { /* a connection to the proxy for each address */
        target.address = a ? a->ai_addr : NULL;
        r = proxy_open(&d->stream, &d->proxy, &target, dial_step(d, d->o.handshake_timeout), &err);
        if (r < 0)
            failed = proxy_failed(d, r, &err);
        else
            memset(d->error, 0, sizeof *d->error); /* of an address before this one */
        if (r >= 0 || !err.elsewhere || !a || !a->ai_next)
            break;
        dial_close(d);
        failed = connect_somehow(d);
        if (failed)
            break;
    }
    if (list)
        freeaddrinfo(list);
    return failed;
}

/* ---- TLS ---- */

static tws_err tls_failed(struct dial *d, const char *host, int result,
                          const struct net_tls_error *e)
{
    d->error->tls_error = e->code;
    switch (result) {
    case -ENOMEM:
        return dial_no_memory(d, TWS_PHASE_TLS);
    case -ETIMEDOUT:
        return dial_fail(d, TWS_ERR_HANDSHAKE_TIMEOUT, TWS_PHASE_TLS, 0,
                         "%s did not finish the TLS handshake in time", host);
    case -EINVAL:
        return dial_fail(d, TWS_ERR_ADDRESS, TWS_PHASE_TLS, 0, "%s: %s", host, e->text);
    case -EKEYREJECTED:
        return dial_fail(d, TWS_ERR_CERTIFICATE, TWS_PHASE_TLS, 0, "%s: %s", host, e->text);
    case -EPROTO:
    case -ECONNABORTED:
        return dial_fail(d, TWS_ERR_TLS, TWS_PHASE_TLS, 0, "%s: %s", host, e->text);
    default:
        return dial_fail(d, TWS_ERR_NETWORK, TWS_PHASE_TLS, task_errno(result), "%s: %s", host,
                         e->text);
    }
}

/* The caller's, or one that trusts as the system does, for all hops of this dial. */
static tws_err choose_tls(struct dial *d)
{
    tws_tls_client_options o;

    if (d->tls)
        return TWS_OK;
    if (d->o.tls) {
        d->tls = tws_tls_ref(d->o.tls);
        return TWS_OK;
    }
    tws_tls_client_options_init(&o);
    o.allocator = d->allocator;
    tws_tls_client_new(&d->tls, &o, d->error);
    d->error->phase = d->error->code ? TWS_PHASE_TLS : TWS_PHASE_NONE;
    return d->error->code;
}

static tws_err wrap_tls(struct dial *d)
{
    struct net_tls_params params = {.allocator = d->allocator};
    struct net_tls_error e;
    char host[WIRE_URL_HOST_MAX + 1] = "localhost";
    tws_err err = choose_tls(d);
    int r;

    if (err)
        return err;
    if (!d->url.is_unix)
        host_string(&d->url.host, host);
    params.tls = d->tls;
    params.host = host;
    r = net_tls_wrap(&d->stream, &params, dial_step(d, d->o.tls_timeout), &e);
    return r < 0 ? tls_failed(d, host, r, &e) : TWS_OK;
}

/* ---- All of it ---- */

tws_err dial_open(struct dial *d)
{
    tws_err err = choose_proxy(d);

    if (!err)
        err = connect_somehow(d);
    if (!err && d->proxy.kind != PROXY_NONE)
        err = through_proxy(d);
    proxy_release(&d->proxy);
    if (!err && d->url.tls)
        err = wrap_tls(d);
    return err;
}
