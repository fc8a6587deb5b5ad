/* The closing handshake (RFC 6455 section 7): begun by either side, finished in one place. */
#include "conn/queue.h"

#include "base/clock.h"
#include "conn/watch.h"
#include "wire/close.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

/* Bytes that a peer may still send after it should have stopped, before it is cut. */
#define CLOSE_DISCARD_MAX (1 << 20)
/* How long a client waits for the server to end TCP before it does so itself. */
#define CLIENT_PATIENCE_MS 1000

/* The state, the record and the close frame; no waiting. */
static void close_begin_locked(tws_conn *c, uint16_t code, const char *reason, size_t len)
{
    if (conn_state(c) != CONN_OPEN)
        return;
    c->error.code = TWS_ERR_CLOSED;
    c->error.phase = TWS_PHASE_CLOSE;
    c->error.cause = TWS_CAUSE_LOCAL;
    c->error.close_code = c->error.sent_code = code;
    c->error.reason_len = (uint8_t)len;
    if (len > 0)
        memcpy(c->error.reason, reason, len);
    c->close_wanted = true;
    atomic_store(&c->state, CONN_CLOSING);
    if (c->write_blocked || conn_queue_stuck_locked(c)) {
        /* Inside a frame that the peer does not take, no close frame can be sent any more. */
        struct conn_cause cause = {TWS_ERR_CLOSED, TWS_PHASE_CLOSE, TWS_CAUSE_LOCAL, 0,
                                   "a write was stuck, so no close frame could be sent"};

        c->error.detail = cause.detail;
        c->error.close_code = TWS_CLOSE_ABNORMAL;
        c->error.reason_len = 0;
        conn_end_locked(c, &cause);
        return;
    }
    if (c->writer) /* what is queued waits for the end of a message that will not come */
        conn_queue_drop_locked(c);
    task_queue_wake_all(&c->turns);
    conn_events_wake_locked(c);
}

/* Wakes a reader that waits for input. Its call returns, seeing the new state. mu is held: whoever
 * finishes the handshake takes the reader's role after this, and is not interrupted. */
void conn_wake_reader_locked(tws_conn *c)
{
    /* While it is being handed over, an interrupt could reach the other process. */
    if (!c->handing && atomic_load(&c->reading) && atomic_load(&c->reader) != task_self())
        net_stream_interrupt(&c->stream);
}

static void close_begin(tws_conn *c, uint16_t code, const char *reason, size_t len)
{
    pthread_mutex_lock(&c->mu);
    if (conn_state(c) == CONN_OPEN) {
        close_begin_locked(c, code, reason, len);
        conn_wake_reader_locked(c);
    }
    pthread_mutex_unlock(&c->mu);
    conn_kick(c);
}

tws_err conn_peer_closed(tws_conn *c, const uint8_t *payload, size_t len)
{
    uint16_t code;
    const uint8_t *reason;
    size_t reason_len;
    int fault = wire_close_parse(payload, len, &code, &reason, &reason_len);

    if (fault) {
        struct conn_cause cause = {TWS_ERR_PROTOCOL, TWS_PHASE_READ, TWS_CAUSE_PEER, 0,
                                   "close frame with a code or reason that is not allowed"};

        if (fault == TWS_CLOSE_INVALID_PAYLOAD)
            cause.code = TWS_ERR_UTF8;
        return conn_fail(c, &cause, (uint16_t)fault);
    }
    if ((conn_state(c) == CONN_OPEN || (c->rest_readable && !c->drop)) && c->on_close) {
        char text[WIRE_CLOSE_REASON_MAX + 1];

        memcpy(text, reason, reason_len);
        text[reason_len] = 0;
        c->on_close(c, code, text, c->close_arg);
    }
    pthread_mutex_lock(&c->mu);
    c->peer_closed = true;
    c->error.clean = c->close_queued;
    c->error.cut = c->msg.in_message;
    conn_farewell_locked(c, code, reason, reason_len);
    atomic_store(&c->rest_readable, false); /* what stands behind it is nothing */
    if (conn_state(c) == CONN_OPEN) {
        c->error.code = TWS_ERR_PEER_CLOSED;
        c->error.phase = TWS_PHASE_READ;
        c->error.cause = TWS_CAUSE_PEER;
        c->error.detail = c->error.cut ? "in the middle of a message" : NULL;
        c->error.close_code = c->error.sent_code = code;
        c->error.reason_len = (uint8_t)reason_len;
        memcpy(c->error.reason, reason, reason_len);
        c->close_wanted = true;
        atomic_store(&c->state, CONN_CLOSING);
        conn_queue_drop_locked(c);
        task_queue_wake_all(&c->turns);
        conn_events_wake_locked(c);
    }
    pthread_mutex_unlock(&c->mu);
    conn_kick(c);
    return conn_sticky(c);
}

/* ---- Finishing ---- */

/* Gets the close frame out, waiting for the socket and for the thread that is sending. */
static tws_err send_close(tws_conn *c, struct conn_wait *w)
{
    bool wanted, held;
    tws_err err;

    do {
        err = conn_flush(c, CONN_TURN_CLOSE, w); /* giving the role back queues what is wanted */
        pthread_mutex_lock(&c->mu);
        wanted = c->close_wanted;
        held = conn_out_len(c) > 0;
        pthread_mutex_unlock(&c->mu);
        if (!err && wanted && !held)
            err = TWS_ERR_RESOURCE; /* no memory for a frame of a few bytes */
    } while (!err && (wanted || held));
    return err;
}

/*
 * Takes the reader's role, from a reader that the interrupt is sending away. The message that was
 * read last is left to the thread that read it, unless that is this one and its handler is over.
 */
static bool take_reader(tws_conn *c, int64_t deadline, bool over)
{
    bool mine = false;

    atomic_fetch_add(&c->reader_wanted, 1);
    pthread_mutex_lock(&c->mu);
    for (;;) {
        bool expected = false;

        mine = atomic_compare_exchange_strong(&c->reading, &expected, true);
        if (mine || conn_state(c) == CONN_ENDED)
            break;
        if (task_queue_wait(&c->events, &c->mu, deadline) == -ETIMEDOUT)
            break;
    }
    pthread_mutex_unlock(&c->mu);
    atomic_fetch_sub(&c->reader_wanted, 1);
    if (!mine)
        return false;
    over = over && atomic_load(&c->reader) == task_self();
    atomic_store(&c->reader, task_self());
    if (!over && !conn_input_keep_view(c)) {
        conn_reader_leave(c);
        return false;
    }
    conn_input_restore(c);
    return true;
}

static bool peer_has_closed(tws_conn *c)
{
    bool closed;

    pthread_mutex_lock(&c->mu);
    closed = c->peer_closed || c->error.code == TWS_ERR_PROTOCOL || c->error.code == TWS_ERR_UTF8 ||
             c->error.code == TWS_ERR_TOO_BIG || c->error.code == TWS_ERR_FLOOD ||
             c->error.code == TWS_ERR_DEFLATE;
    pthread_mutex_unlock(&c->mu);
    return closed;
}

/* Reads and drops frames until the peer's close frame. */
static tws_err await_peer_close(tws_conn *c, int64_t deadline)
{
    tws_err err = TWS_OK;

    while (!err && !peer_has_closed(c) && conn_state(c) != CONN_ENDED) {
        err = conn_skip_message(c, deadline);
        if (!err && base_clock_ns() >= deadline) /* also messages without a byte take time */
            err = TWS_ERR_TIMEOUT;
    }
    return peer_has_closed(c) ? TWS_OK : err;
}

/*
 * Reads and drops bytes until the peer has ended its side. Closing with unread input would send a
 * reset, which can overtake the close frame and make the peer lose it.
 */
static void linger(tws_conn *c, int64_t deadline)
{
    size_t total = 0;

    conn_input_restore(c);
    do {
        total += conn_input_len(c);
        c->in.rd = c->in.wr;
    } while (total < CLOSE_DISCARD_MAX && conn_state(c) != CONN_ENDED &&
             conn_input_fill(c, 1, deadline) == TWS_OK);
}

/*
 * A server ends TCP first, so that waiting for late packets is its part and a client's port is free
 * again (RFC 6455 7.1.1); a client waits for that, for a while.
 */
static void end_both_ways(tws_conn *c, int64_t deadline)
{
    int64_t patience = base_clock_ns() + CLIENT_PATIENCE_MS * BASE_NS_PER_MS;

    if (!c->server)
        linger(c, patience < deadline ? patience : deadline);
    net_stream_shutdown(&c->stream, SHUT_WR);
    linger(c, deadline);
}

static void finish_handshake(tws_conn *c, int64_t deadline, bool over)
{
    struct conn_cause cause = {TWS_ERR_CLOSED, TWS_PHASE_CLOSE, TWS_CAUSE_LOCAL, 0, NULL};
    struct conn_wait w = {.ms = TWS_NO_LIMIT, .deadline = deadline};
    tws_err err = send_close(c, &w);

    /* Half-closed only when the peer has answered: many proxies, and TLS peers, take the end of one
     * direction for the end of both, and the answer would be lost. After an interrupt, which has
     * shut the other direction, data that still comes would be answered with a reset. */
    if (!err && take_reader(c, deadline, over)) {
        c->drop = true;
        c->in.late = 0;
        err = await_peer_close(c, deadline);
        if (!err)
            end_both_ways(c, deadline);
        c->drop = false;
        conn_reader_leave(c);
    }
    if (err == TWS_ERR_TIMEOUT)
        cause =
            (struct conn_cause){TWS_ERR_CLOSE_TIMEOUT, TWS_PHASE_CLOSE, TWS_CAUSE_TIMEOUT, 0, NULL};
    conn_end(c, &cause);
}

/* Finishes, or waits for the thread that does. `over`: the handler has returned. */
static void finish(tws_conn *c, int64_t deadline, bool over)
{
    pthread_mutex_lock(&c->mu);
    while (c->finishing && conn_state(c) != CONN_ENDED)
        task_queue_wait(&c->events, &c->mu, TASK_FOREVER);
    if (conn_state(c) == CONN_ENDED) {
        pthread_mutex_unlock(&c->mu);
        return;
    }
    c->finishing = true;
    pthread_mutex_unlock(&c->mu);
    finish_handshake(c, deadline, over);
}

static int64_t close_deadline(tws_conn *c)
{
    return task_deadline(conn_timeout(c, TWS_TIMEOUT_CLOSE));
}

static bool inside_own_read(tws_conn *c)
{
    return atomic_load(&c->reading) && atomic_load(&c->reader) == task_self();
}

void conn_finish(tws_conn *c, uint16_t code)
{
    if (conn_state(c) == CONN_OPEN)
        close_begin(c, code, NULL, 0);
    finish(c, close_deadline(c), true);
    conn_farewell_read(c);
    atomic_store(&c->rest_readable, false); /* nobody is left who would */
}

tws_err tws_close_start(tws_conn *c, uint16_t code, const char *reason)
{
    size_t len;
    tws_err err = conn_check_close(&code, reason, &len);

    if (err)
        return err;
    if (conn_state(c) != CONN_OPEN) {
        err = conn_sticky(c);
        return err == TWS_ERR_CLOSED ? TWS_OK : err;
    }
    close_begin(c, code, reason, len);
    return TWS_OK;
}

tws_err tws_close(tws_conn *c, uint16_t code, const char *reason)
{
    size_t len;
    tws_err err = conn_check_close(&code, reason, &len);

    if (err)
        return err;
    if (conn_state(c) == CONN_OPEN)
        close_begin(c, code, reason, len);
    if (inside_own_read(c))
        return TWS_OK;
    finish(c, close_deadline(c), false);

    pthread_mutex_lock(&c->mu);
    err = c->error.code == TWS_ERR_CLOSED && c->error.clean ? TWS_OK : c->error.code;
    pthread_mutex_unlock(&c->mu);
    return err;
}

void tws_abort(tws_conn *c)
{
    struct conn_cause cause = {TWS_ERR_CLOSED, TWS_PHASE_CLOSE, TWS_CAUSE_LOCAL, 0,
                               "cut by tws_abort"};

    conn_end(c, &cause);
}
