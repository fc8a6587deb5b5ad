/* How a connection ends: the error record, and the steps that make it final. */
#include "conn/queue.h"

#include "base/text.h"
#include "conn/watch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

tws_err conn_sticky_locked(const tws_conn *c)
{
    return c->error.code ? c->error.code : TWS_ERR_CLOSED;
}

tws_err conn_sticky(tws_conn *c)
{
    tws_err err;

    pthread_mutex_lock(&c->mu);
    err = conn_sticky_locked(c);
    pthread_mutex_unlock(&c->mu);
    return err;
}

bool conn_closed_clean(tws_conn *c)
{
    bool clean;

    pthread_mutex_lock(&c->mu);
    clean = c->error.clean;
    pthread_mutex_unlock(&c->mu);
    return clean;
}

static void record(tws_conn *c, const struct conn_cause *cause)
{
    c->error.code = cause->code;
    c->error.phase = cause->phase;
    c->error.cause = cause->cause;
    c->error.sys_errno = cause->sys_errno;
    c->error.detail = cause->detail;
    c->error.passed = CONN_PASSED_NONE;
    c->error.got = c->error.allowed = 0;
}

/* Whether a cause tells more than what the record says already. */
static bool tells_more(const tws_conn *c, const struct conn_cause *cause)
{
    if (conn_state(c) == CONN_OPEN)
        return true;
    /* We began to close; only how that failed is news. */
    return c->error.code == TWS_ERR_CLOSED && cause->code != TWS_ERR_CLOSED && !c->peer_closed;
}

tws_err conn_end_locked(tws_conn *c, const struct conn_cause *cause)
{
    if (conn_state(c) == CONN_ENDED)
        return conn_sticky_locked(c);
    if (tells_more(c, cause)) {
        if (cause->code == TWS_ERR_HANDED_OVER)
            c->error.close_code = 0; /* it lives on */
        else if (conn_state(c) == CONN_OPEN)
            c->error.close_code = TWS_CLOSE_ABNORMAL;
        record(c, cause);
    }
    atomic_store(&c->state, CONN_ENDED);
    if (cause->code == TWS_ERR_HANDED_OVER)
        net_stream_forget(&c->stream);
    else
        net_stream_shutdown(&c->stream, SHUT_RDWR);
    if (!c->writing)
        conn_out_free(c);
    conn_queue_end_locked(c);
    if (c->end_hooks)
        conn_tell_locked(c);
    task_queue_wake_all(&c->turns);
    conn_events_wake_locked(c);
    return conn_sticky_locked(c);
}

tws_err conn_end(tws_conn *c, const struct conn_cause *cause)
{
    tws_err err;

    pthread_mutex_lock(&c->mu);
    err = conn_end_locked(c, cause);
    pthread_mutex_unlock(&c->mu);
    return err;
}

tws_err conn_fail_locked(tws_conn *c, const struct conn_cause *cause, uint16_t close_code)
{
    if (conn_state(c) != CONN_OPEN || c->write_blocked) {
        if (conn_state(c) == CONN_ENDED) /* only who reads what is left can find something in it */
            atomic_store(&c->rest_readable, false);
        return conn_end_locked(c, cause);
    }
    record(c, cause);
    c->error.close_code = c->error.sent_code = close_code;
    c->error.reason_len = 0;
    if (cause->detail) {
        size_t len = strlen(cause->detail);

        c->error.reason_len = (uint8_t)(len < TWS_REASON_MAX ? len : TWS_REASON_MAX);
        memcpy(c->error.reason, cause->detail, c->error.reason_len);
    }
    c->close_wanted = true;
    atomic_store(&c->state, CONN_CLOSING);
    conn_queue_drop_locked(c);
    task_queue_wake_all(&c->turns);
    conn_events_wake_locked(c);
    return cause->code;
}

tws_err conn_fail_limit(tws_conn *c, const struct conn_excess *e, uint16_t close_code)
{
    struct conn_cause cause = {e->code, TWS_PHASE_READ, TWS_CAUSE_LIMIT, 0, e->detail};
    tws_err err;

    pthread_mutex_lock(&c->mu);
    err = conn_fail_locked(c, &cause, close_code);
    if (c->error.code == e->code && c->error.detail == e->detail) {
        c->error.passed = e->passed;
        c->error.got = e->got;
        c->error.allowed = e->allowed;
    }
    pthread_mutex_unlock(&c->mu);
    conn_kick(c);
    return err;
}

tws_err conn_fail(tws_conn *c, const struct conn_cause *cause, uint16_t close_code)
{
    tws_err err;

    pthread_mutex_lock(&c->mu);
    err = conn_fail_locked(c, cause, close_code);
    pthread_mutex_unlock(&c->mu);
    conn_kick(c);
    return err;
}

/* What TLS has to say that a plain stream has not. */
static void tls_cause(const tws_conn *c, struct conn_cause *cause, int error)
{
    if (error == -ENOMEM) {
        cause->code = TWS_ERR_RESOURCE;
        cause->cause = TWS_CAUSE_LOCAL;
        return;
    }
    if (error == -EPROTO || error == -EKEYREJECTED) {
        cause->code = TWS_ERR_TLS;
    } else if (error == -ECONNABORTED) {
        cause->code = TWS_ERR_TRUNCATED;
        if (c->msg.in_frame || c->msg.in_message)
            cause->detail = "in the middle of a message";
    } else {
        return;
    }
    cause->cause = TWS_CAUSE_PEER;
    cause->sys_errno = 0;
}

static const char write_failed[] = "its close frame was there when a write failed";

static void take_farewell_locked(tws_conn *c, uint16_t code, const uint8_t *reason, size_t len)
{
    c->error.close_code = code;
    c->error.reason_len = (uint8_t)len;
    if (len > 0)
        memcpy(c->error.reason, reason, len);
}

tws_err conn_io_failed(tws_conn *c, tws_phase phase, int error)
{
    struct conn_cause cause = {TWS_ERR_NETWORK, phase, TWS_CAUSE_NETWORK, task_errno(error), NULL};
    struct conn_farewell peer = {.found = false};
    tws_err err;

    if (error == -EOVERFLOW && net_stream_is_tls(&c->stream)) {
        struct conn_excess e = {TWS_ERR_FLOOD, CONN_PASSED_TLS_UPDATES, 0, 0,
                                "too many TLS key updates or renegotiations in 10 seconds"};

        e.allowed = net_tls_updates(&c->stream, &e.got);
        return conn_fail_limit(c, &e, TWS_CLOSE_POLICY_VIOLATION);
    }

    if (error == -ECONNRESET || error == -EPIPE)
        cause.cause = TWS_CAUSE_PEER;
    if (net_stream_is_tls(&c->stream))
        tls_cause(c, &cause, error);
    if (phase == TWS_PHASE_WRITE)
        conn_farewell_look(c, &peer);
    pthread_mutex_lock(&c->mu);
    /* What the peer sent before it went away can still be read. */
    if (phase == TWS_PHASE_WRITE && conn_state(c) == CONN_OPEN)
        c->rest_readable = true;
    if (peer.found) {
        cause.code = TWS_ERR_PEER_CLOSED;
        cause.cause = TWS_CAUSE_PEER;
        cause.detail = write_failed;
    }
    err = conn_end_locked(c, &cause);
    if (peer.found && c->error.detail == write_failed) {
        take_farewell_locked(c, peer.code, peer.reason, peer.reason_len);
        c->error.cut = peer.cut;
    }
    pthread_mutex_unlock(&c->mu);
    return err;
}

void conn_farewell_locked(tws_conn *c, uint16_t code, const uint8_t *reason, size_t len)
{
    if (conn_state(c) != CONN_ENDED || !c->rest_readable)
        return;
    c->error.code = TWS_ERR_PEER_CLOSED;
    c->error.cause = TWS_CAUSE_PEER;
    c->error.detail = write_failed;
    take_farewell_locked(c, code, reason, len);
}

enum conn_passed conn_passed(tws_conn *c)
{
    enum conn_passed passed;

    pthread_mutex_lock(&c->mu);
    passed = c->error.passed;
    pthread_mutex_unlock(&c->mu);
    return passed;
}

static const char *phase_text(tws_phase phase)
{
    switch (phase) {
    case TWS_PHASE_NONE:
        break;
    case TWS_PHASE_LISTEN:
        return "while listening";
    case TWS_PHASE_HANDSHAKE:
        return "in the opening handshake";
    case TWS_PHASE_READ:
        return "while reading";
    case TWS_PHASE_WRITE:
        return "while writing";
    case TWS_PHASE_CLOSE:
        return "while closing";
    case TWS_PHASE_RESOLVE:
        return "while resolving the name";
    case TWS_PHASE_CONNECT:
        return "while connecting";
    case TWS_PHASE_PROXY:
        return "at the proxy";
    case TWS_PHASE_TLS:
        return "in TLS";
    }
    return "";
}

static void describe(const struct conn_error *e, tws_error *out)
{
    size_t room = sizeof out->text;
    int n = snprintf(out->text, room, "%s", tws_err_text(e->code));

    if (e->code == TWS_OK) {
        snprintf(out->text, room, "the connection is open");
        return;
    }
    if (e->phase != TWS_PHASE_NONE && (size_t)n < room)
        n += snprintf(out->text + n, room - (size_t)n, " %s", phase_text(e->phase));
    if (e->detail && (size_t)n < room)
        n += snprintf(out->text + n, room - (size_t)n, ": %s", e->detail);
    if (e->passed && (e->got || e->allowed) && (size_t)n < room)
        n += snprintf(out->text + n, room - (size_t)n, ": %llu, the limit is %llu",
                      (unsigned long long)e->got, (unsigned long long)e->allowed);
    if (e->sys_errno && (size_t)n < room) {
        char text[64];

        n += snprintf(out->text + n, room - (size_t)n, ": %s",
                      strerror_r(e->sys_errno, text, sizeof text));
    }
    if (e->close_code && e->close_code != TWS_CLOSE_ABNORMAL && (size_t)n < room)
        snprintf(out->text + n, room - (size_t)n, " (%s %u%s%.*s)",
                 e->code == TWS_ERR_PEER_CLOSED ? "received" : "sent", e->close_code,
                 e->reason_len && e->reason != e->detail ? " " : "", e->reason_len, e->reason);
}

/* TLS has words of its own for why it failed. */
static void describe_tls(tws_conn *c, tws_error *out)
{
    struct net_tls_error e;
    size_t len = strlen(out->text);

    net_tls_last_error(&c->stream, &e);
    out->tls_error = e.code;
    if (e.text[0])
        snprintf(out->text + len, sizeof out->text - len, ": %s", e.text);
}

void tws_conn_error(tws_conn *c, tws_error *out)
{
    struct conn_error e;

    pthread_mutex_lock(&c->mu);
    e = c->error;
    pthread_mutex_unlock(&c->mu);
    memset(out, 0, sizeof *out);
    out->code = e.code;
    out->phase = e.phase;
    out->cause = e.cause;
    out->sys_errno = e.sys_errno;
    out->close_code = e.close_code;
    out->clean = e.clean;
    memcpy(out->reason, e.reason, e.reason_len);
    describe(&e, out);
    if (e.code == TWS_ERR_TLS)
        describe_tls(c, out);
    base_text_clean(out->text);
}
