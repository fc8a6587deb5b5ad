/* Events: a connection's loop, with handlers. */
#include "event/event.h"

#include "base/sized.h"

#include <errno.h>
#include <string.h>

void tws_events_init_sized(tws_events *ev, size_t size)
{
    tws_events e;

    memset(&e, 0, sizeof e);
    e.size = size;
    base_sized_give(ev, size, &e, sizeof e);
}

const char *event_take(tws_events *own, const tws_events *in)
{
    tws_events_init(own);
    if (!in || in->size < sizeof in->size + sizeof in->on_open)
        return "events were not initialised";
    base_sized_take(own, sizeof *own, in, in->size);
    if (own->parallel > TWS_PARALLEL_MAX)
        return "events.parallel is above 1,024";
    return NULL;
}

/* ---- Whose run it is ---- */

bool event_claim(tws_conn *c)
{
    bool mine;

    pthread_mutex_lock(&c->mu);
    mine = c->handled == CONN_HANDLED_NOT;
    if (mine)
        c->handled = CONN_HANDLED_NOW;
    pthread_mutex_unlock(&c->mu);
    return mine;
}

static void set_run(tws_conn *c, struct event_run *r)
{
    pthread_mutex_lock(&c->mu);
    c->run = r;
    atomic_store(&c->only_reader, r && r->events->parallel > 1 ? r->thread : 0);
    if (!r) {
        c->handled = CONN_HANDLED_DONE;
        task_queue_wake_all(&c->events);
    }
    pthread_mutex_unlock(&c->mu);
}

static bool runs_here_locked(const tws_conn *c)
{
    const struct event_run *r = c->run;

    return r && (r->thread == task_self() || (r->parallel && event_parallel_here(r->parallel)));
}

tws_err tws_events_wait(tws_conn *c, tws_ms ms)
{
    int64_t deadline = task_deadline(ms);
    tws_err err = TWS_OK;

    if (ms < TWS_NOWAIT)
        return TWS_ERR_ARGUMENT;
    pthread_mutex_lock(&c->mu);
    if (runs_here_locked(c))
        err = TWS_ERR_STATE;
    while (!err && c->handled == CONN_HANDLED_NOW)
        if (task_queue_wait(&c->events, &c->mu, deadline) == -ETIMEDOUT)
            err = TWS_ERR_TIMEOUT;
    pthread_mutex_unlock(&c->mu);
    return err;
}

/* ---- The loop ---- */

static bool told_pong(tws_conn *c, const void *data, size_t len, void *run)
{
    const struct event_run *r = run;

    r->events->on_pong(c, data, len, r->arg);
    return true;
}

/* A handler that runs inside a read may have moved the deadline which that read still keeps. */
static tws_err read_next(tws_conn *c, tws_message *m)
{
    tws_ms limit;
    tws_err err;

    do {
        limit = conn_timeout(c, TWS_TIMEOUT_READ);
        err = tws_read_message(c, m);
    } while (err == TWS_ERR_TIMEOUT && conn_timeout(c, TWS_TIMEOUT_READ) != limit);
    return err;
}

static tws_err read_on(struct event_run *r)
{
    const tws_events *ev = r->events;
    tws_message m;
    tws_err err;

    while ((err = read_next(r->conn, &m)) == TWS_OK) {
        if (!ev->on_message)
            continue;
        if (ev->parallel > 1)
            event_handle_parallel(r, &m);
        else
            ev->on_message(r->conn, &m, r->arg);
    }
    return err;
}

/* Why reading stopped, where that has not ended the connection by itself; then the closing. */
static void finish(tws_conn *c, tws_err err)
{
    struct conn_cause idle = {TWS_ERR_IDLE, TWS_PHASE_READ, TWS_CAUSE_TIMEOUT, 0, "read timeout"};

    if (err == TWS_ERR_TIMEOUT)
        conn_fail(c, &idle, TWS_CLOSE_GOING_AWAY);
    /* A handler on another thread that reads by itself leaves us without a way to go on. */
    conn_finish(c, err == TWS_ERR_BUSY ? TWS_CLOSE_INTERNAL_ERROR : TWS_CLOSE_NORMAL);
}

tws_err event_run(tws_conn *c, const tws_events *events, void *arg)
{
    struct event_run r = {.conn = c, .events = events, .arg = arg, .thread = task_self()};
    tws_error e;

    tws_conn_ref(c);
    set_run(c, &r);
    if (events->on_ping)
        tws_set_ping_handler(c, events->on_ping, arg);
    if (events->on_pong)
        tws_set_pong_handler(c, told_pong, &r);
    if (events->on_open)
        events->on_open(c, arg);
    finish(c, read_on(&r));
    event_parallel_end(&r);
    tws_conn_error(c, &e);
    if (events->on_close)
        events->on_close(c, &e, arg);
    set_run(c, NULL);
    tws_conn_unref(c);
    return e.code;
}

tws_err tws_run(tws_conn *c, const tws_events *ev, void *arg)
{
    tws_events own;

    if (event_take(&own, ev))
        return TWS_ERR_ARGUMENT;
    return event_claim(c) ? event_run(c, &own, arg) : TWS_ERR_STATE;
}
