/* Pings whose pongs somebody waits for. */
#include "conn/conn.h"

#include <tws/wait.h>

#include "base/clock.h"
#include "base/random.h"
#include "conn/watch.h"

#include <errno.h>
#include <string.h>

struct conn_ping {          /* on its caller's stack */
    struct conn_ping *next; /* mu */
    const void *data;
    size_t len;
    int64_t sent; /* mu */
    int64_t rtt;  /* mu: ns; below 0: not answered yet */
};

/* ---- The table ---- */

static void add_locked(tws_conn *c, struct conn_ping *p)
{
    struct conn_ping **at = &c->pings;

    while (*at)
        at = &(*at)->next;
    *at = p;
    p->sent = base_clock_ns();
    atomic_store_explicit(&c->pinging, true, memory_order_relaxed);
}

static void remove_locked(tws_conn *c, struct conn_ping *p)
{
    struct conn_ping **at = &c->pings;

    while (*at && *at != p)
        at = &(*at)->next;
    if (*at)
        *at = p->next;
    atomic_store_explicit(&c->pinging, c->pings != NULL, memory_order_relaxed);
}

/* The last ping that a pong answers. */
static struct conn_ping *answered_locked(tws_conn *c, const uint8_t *data, size_t len,
                                         int64_t before)
{
    struct conn_ping *last = NULL;

    for (struct conn_ping *p = c->pings; p; p = p->next) {
        if (p->rtt < 0 && p->len == len && (len == 0 || memcmp(p->data, data, len) == 0))
            return p;
        if (p->sent <= before)
            last = p;
    }
    return last;
}

/* A peer may have answered only the last of several pings, but it has read those before. */
void conn_pings_answer(tws_conn *c, const uint8_t *data, size_t len, int64_t before)
{
    int64_t now = base_clock_ns();
    struct conn_ping *last;

    pthread_mutex_lock(&c->mu);
    last = answered_locked(c, data, len, before);
    for (struct conn_ping *p = c->pings; last && p; p = p->next) {
        if (p->rtt < 0)
            p->rtt = now > p->sent ? now - p->sent : 0;
        if (p == last)
            break;
    }
    if (last)
        conn_events_wake_locked(c);
    pthread_mutex_unlock(&c->mu);
}

/* ---- Sending ---- */

static tws_err send_ping(tws_conn *c, struct conn_ping *p, int64_t deadline)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)p->data, .iov_len = p->len};
    struct wire_frame f = {.opcode = WIRE_PING, .fin = true, .len = p->len};
    struct conn_wait w = conn_write_wait(c);
    tws_err err;

    if (w.ms != TWS_NOWAIT && conn_wait_deadline(&w) > deadline)
        w.deadline = deadline;
    err = conn_turn_take(c, CONN_TURN_CONTROL, &w);
    if (err)
        return err;
    pthread_mutex_lock(&c->mu);
    add_locked(c, p); /* in the order of sending: with the writer's role */
    pthread_mutex_unlock(&c->mu);
    err = conn_send_frame(c, &f, &iov, p->len > 0, 0, CONN_TURN_CONTROL, &w);
    if (!err)
        CONN_ADD(c->count.pings_out, 1);
    conn_turn_give(c);
    return err;
}

/* ---- Reading for oneself ---- */

/* The thread that read last may still look at what it was shown; one that wants to read comes first. */
static bool begin_locked(tws_conn *c, uintptr_t *before)
{
    *before = atomic_load(&c->reader);
    return (*before == 0 || *before == task_self()) && conn_pump_begin_locked(c, before);
}

bool conn_pump_begin_locked(tws_conn *c, uintptr_t *before)
{
    bool expected = false;

    *before = atomic_load(&c->reader);
    if (atomic_load(&c->reader_wanted) > 0)
        return false;
    if (!atomic_compare_exchange_strong(&c->reading, &expected, true))
        return false;
    atomic_store(&c->reader, task_self());
    c->pumping = true;
    return true;
}

void conn_pump_end(tws_conn *c, uintptr_t before)
{
    pthread_mutex_lock(&c->mu);
    c->pumping = false;
    atomic_store(&c->reader, before);
    atomic_store(&c->reading, false);
    conn_events_wake_locked(c); /* others who wait for pongs may have to go on */
    pthread_mutex_unlock(&c->mu);
}

static bool answered(tws_conn *c, const struct conn_ping *p)
{
    bool yes;

    pthread_mutex_lock(&c->mu);
    yes = p->rtt >= 0;
    pthread_mutex_unlock(&c->mu);
    return yes;
}

/* Handles control frames until the pong has come or a message begins. TWS_ERR_BUSY: a thread that
 * waits to read is to go on with that. */
static tws_err pump(tws_conn *c, struct conn_ping *p, int64_t deadline)
{
    c->in.late = 0;
    conn_input_restore(c);
    conn_forget_shown(c);
    while (!answered(c, p)) {
        struct wire_frame f;
        tws_err err;

        if (conn_state(c) != CONN_OPEN)
            return conn_sticky(c);
        if (deadline != TASK_FOREVER && base_clock_ns() >= deadline)
            return TWS_ERR_TIMEOUT; /* as long as frames come, no wait ends */
        if (c->msg.in_frame)
            return atomic_load(&c->reader_wanted) ? TWS_ERR_BUSY : TWS_ERR_STATE;
        err = conn_next_header(c, &f, true, deadline);
        if (!err && f.opcode < WIRE_CLOSE)
            return atomic_load(&c->reader_wanted) ? TWS_ERR_BUSY : TWS_ERR_STATE;
        if (err)
            return err;
    }
    return TWS_OK;
}

static tws_err await_pong(tws_conn *c, struct conn_ping *p, int64_t deadline)
{
    uintptr_t before;
    tws_err err = TWS_OK;

    pthread_mutex_lock(&c->mu);
    while (p->rtt < 0 && !err) {
        if (conn_state(c) != CONN_OPEN) {
            err = conn_sticky_locked(c);
        } else if (begin_locked(c, &before)) {
            pthread_mutex_unlock(&c->mu);
            err = pump(c, p, deadline);
            conn_pump_end(c, before);
            pthread_mutex_lock(&c->mu);
            if (err == TWS_ERR_BUSY)
                err = TWS_OK;
        } else if (task_queue_wait(&c->events, &c->mu, deadline) == -ETIMEDOUT) {
            err = TWS_ERR_TIMEOUT;
        }
    }
    if (p->rtt >= 0) /* also when it came at the last moment */
        err = TWS_OK;
    pthread_mutex_unlock(&c->mu);
    return err;
}

tws_err tws_ping_wait(tws_conn *c, const void *data, size_t len, tws_ms ms, int64_t *rtt_us)
{
    int64_t deadline = task_deadline(ms);
    struct conn_ping p = {.data = data, .len = len, .rtt = -1};
    uint8_t own[8];
    tws_err err;

    if (rtt_us)
        *rtt_us = -1;
    if (len > WIRE_CONTROL_MAX)
        return TWS_ERR_CONTROL_SIZE;
    if (ms < 0 || (!data && len > 0))
        return TWS_ERR_ARGUMENT;
    if (atomic_load(&c->reading) && atomic_load(&c->reader) == task_self())
        return TWS_ERR_STATE; /* inside one of its handlers */
    if (len == 0) {
        if (!base_random(own, sizeof own))
            return TWS_ERR_SYSTEM;
        p.data = own;
        p.len = sizeof own;
    }
    err = send_ping(c, &p, deadline);
    if (!err)
        err = await_pong(c, &p, deadline);
    pthread_mutex_lock(&c->mu);
    remove_locked(c, &p);
    pthread_mutex_unlock(&c->mu);
    if (err == TWS_ERR_TIMEOUT)
        CONN_ADD(c->count.timeouts, 1);
    if (!err && rtt_us)
        *rtt_us = p.rtt / 1000;
    return err;
}
