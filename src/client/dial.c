/* tws_dial(): hop by hop, until there is a connection or a reason why not. */
#include "client/dial.h"

#include "client/redirect.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static tws_err parse_url(struct dial *d, const char *url)
{
    enum wire_url_error fault;

    d->url_text = base_strdup(d->allocator, url);
    if (!d->url_text)
        return dial_no_memory(d, TWS_PHASE_NONE);
    fault = wire_url_parse(&d->url, wire_text_of(d->url_text));
    if (fault)
        return dial_fail(d, TWS_ERR_ADDRESS, TWS_PHASE_NONE, 0, "%s", wire_url_error_text(fault));
    return TWS_OK;
}

/* ---- Redirects ---- */

static bool is_redirect(int status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

static tws_err redirect_failed(struct dial *d, const char *why)
{
    int status = d->answer.head.status;

    d->error->http_status = status;
    return dial_fail(d, TWS_ERR_REDIRECT, TWS_PHASE_HANDSHAKE, 0, "the server answered %d, but %s",
                     status, why);
}

/* Turns to where the answer points. The text of the address is replaced. */
static tws_err follow(struct dial *d)
{
    const struct http_field *f = http_find(&d->answer.head, d->answer.buf, "Location", NULL);
    struct wire_text location = f ? http_text(d->answer.buf, f->value) : wire_text_of(NULL);
    struct redirect r = {.cap = REDIRECT_ROOM(strlen(d->url_text), location.len)};
    enum redirect_fault fault;

    if (++d->redirects > d->o.max_redirects)
        return redirect_failed(d, "that is one redirect too many");
    if (d->fd_given)
        return redirect_failed(d, "the descriptor leads to this server only");
    r.text = base_alloc(d->allocator, r.cap);
    if (!r.text)
        return dial_no_memory(d, TWS_PHASE_HANDSHAKE);
    fault = redirect_resolve(&r, &d->url, d->trusted ? d->o.host : NULL, location);
    if (fault) {
        tws_err err = redirect_failed(d, redirect_fault_text(&r, fault));

        base_free(d->allocator, r.text);
        return err;
    }
    base_free(d->allocator, d->url_text);
    d->url_text = r.text;
    d->url = r.url;
    d->trusted = d->trusted && r.same_host;
    return TWS_OK;
}

/* ---- One hop ---- */

/* RFC 9110 10.2.3. A date is not looked at: the clocks may differ. */
static uint32_t read_retry_after(const struct dial *d)
{
    const struct http_field *f = http_find(&d->answer.head, d->answer.buf, "Retry-After", NULL);
    struct wire_text text = f ? http_text(d->answer.buf, f->value) : wire_text_of("");
    uint64_t seconds = 0;

    for (size_t i = 0; i < text.len; i++) {
        if (!wire_is_digit((uint8_t)text.at[i]))
            return 0;
        seconds = seconds * 10 + (uint64_t)(text.at[i] - '0');
        if (seconds > UINT32_MAX)
            seconds = UINT32_MAX;
    }
    return (uint32_t)seconds;
}

static tws_err refused(struct dial *d)
{
    int status = d->answer.head.status;

    d->retry_after = read_retry_after(d);
    d->error->http_status = status;
    return dial_fail(d, TWS_ERR_REFUSED, TWS_PHASE_HANDSHAKE, 0, "the server answered %d %s",
                     status, http_status_text(status));
}

/* TWS_OK with no connection: there is another hop. */
static tws_err hop(struct dial *d)
{
    tws_err err = dial_open(d);
    int status;

    if (!err)
        err = dial_exchange(d);
    if (!err && d->keep_response)
        err = dial_make_response(d);
    if (err)
        return err;
    status = d->answer.head.status;
    if (status == 101)
        return dial_verify(d);
    if (is_redirect(status) && d->o.max_redirects > 0)
        return follow(d);
    err = refused(d);
    if (d->response)
        dial_read_body(d, dial_step(d, d->o.handshake_timeout));
    return err;
}

static tws_err run(struct dial *d, const char *url)
{
    tws_err err = parse_url(d, url);

    while (!err && !d->conn) {
        err = hop(d);
        dial_close(d);
    }
    return err;
}

/* A word from tws_cancel_now() shows as all sorts of failures. */
static tws_err name_cancel(struct dial *d, tws_err err)
{
    if (err == TWS_OK || err == TWS_ERR_CANCELLED || err == TWS_ERR_ARGUMENT ||
        err == TWS_ERR_ADDRESS || !task_cancel_is_set(d->cancel))
        return err;
    d->error->tls_error = 0;
    return dial_fail(d, TWS_ERR_CANCELLED, d->error->phase, 0, "by tws_cancel_now()");
}

tws_err dial_run(tws_conn **out, const char *url, const tws_dial_options *opt,
                 tws_response **response, tws_error *error, uint32_t *retry_after)
{
    struct dial d;
    tws_err err;

    memset(&d, 0, sizeof d);
    d.error = error;
    memset(d.error, 0, sizeof *d.error);
    d.keep_response = response != NULL;
    d.trusted = true;
    err = dial_take_options(&d, opt);
    d.fd_given = d.o.fd >= 0;
    if (!err && !url)
        err = dial_fail(&d, TWS_ERR_ARGUMENT, TWS_PHASE_NONE, 0, "url is NULL");
    if (!err) {
        d.runtime = task_current_runtime();
        d.deadline = task_deadline(d.o.timeout);
        err = name_cancel(&d, run(&d, url));
    }
    if (d.o.fd >= 0) /* not come to */
        close(d.o.fd);
    base_free(d.allocator, d.url_text);
    base_free(d.allocator, d.answer.buf);
    tws_tls_unref(d.tls);
    if (d.env)
        conn_env_unref(d.env);
    *out = d.conn;
    if (response)
        *response = d.response;
    if (retry_after)
        *retry_after = d.retry_after;
    task_trim_stack();
    return err;
}
