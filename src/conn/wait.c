/* Waiting for any of several connections and descriptors, and for a connection beside other things. */
#include "conn/queue.h"

#include <tws/wait.h>

#include "base/clock.h"
#include "conn/codec.h"
#include "conn/watch.h"

#include <errno.h>
#include <string.h>

/* ---- Who has to see changes of a connection ---- */

void conn_watch_add_locked(tws_conn *c, struct conn_watch *w, struct task_event *event)
{
    w->event = event;
    w->next = c->watches;
    w->prev = &c->watches;
    if (w->next)
        w->next->prev = &w->next;
    c->watches = w;
}

void conn_watch_remove_locked(struct conn_watch *w)
{
    *w->prev = w->next;
    if (w->next)
        w->next->prev = w->prev;
}

void conn_events_wake_locked(tws_conn *c)
{
    task_queue_wake_all(&c->events);
    for (struct conn_watch *w = c->watches; w; w = w->next)
        task_event_set(w->event);
}

/* ---- One connection, with the reader's role ---- */

/* Whether the beginning of a message, or more of one that was begun, stands in the input. */
static bool has_payload(const tws_conn *c)
{
    const struct conn_incoming *m = &c->msg;
    uint64_t handled = m->in_place ? m->frame_done : m->clear;

    if (m->owed > 0)
        return true;
    if (m->streaming && (!m->in_message || (m->in_frame && m->frame_done == m->frame.len)))
        return true; /* its end has not been asked for yet */
    if (m->streaming && m->in_frame && m->compressed && (m->clear > 0 || c->deflate->pending))
        return true; /* the last piece had no room for more */
    return m->in_frame && conn_input_len(c) > handled;
}

/* Control frames of one connection before the others are looked at. */
#define CONTROLS_MAX 64

enum sight { SIGHT_NOTHING, SIGHT_MORE, SIGHT_READY };

/* Takes what has come, without waiting. READY: a read would find something, the end included. MORE: only
 * control frames so far, and there are more. */
static enum sight look(tws_conn *c)
{
    struct wire_frame f;
    tws_err err = TWS_OK;

    if (conn_state(c) != CONN_OPEN || has_payload(c))
        return SIGHT_READY;
    c->in.late = 0;
    if (c->msg.in_frame) {
        err = conn_input_fill(c, conn_input_len(c) + 1, TASK_NOW);
        f.opcode = WIRE_CONT;
    } else {
        for (int i = 0; i < CONTROLS_MAX; i++) {
            err = conn_next_header(c, &f, true, TASK_NOW);
            if (err || f.opcode < WIRE_CLOSE)
                break;
        }
    }
    if (err == TWS_ERR_TIMEOUT) {
        CONN_ADD(c->count.timeouts, -1); /* none of the caller's */
        return SIGHT_NOTHING;
    }
    return err || f.opcode < WIRE_CLOSE ? SIGHT_READY : SIGHT_MORE;
}

/* Without a system call where there is nothing. */
static enum sight look_inside(tws_conn *c)
{
    if (conn_state(c) != CONN_OPEN || has_payload(c))
        return SIGHT_READY;
    if (conn_input_len(c) == 0 && !net_tls_readable(&c->stream))
        return SIGHT_NOTHING;
    return look(c);
}

/* ---- All of them ---- */

#define FEW 8

enum entry_state {
    ENTRY_NONE,   /* a descriptor, or nothing */
    ENTRY_MINE,   /* we have the reader's role */
    ENTRY_BEHIND, /* as soon as a thread that pumps gives it up */
    ENTRY_TWIN,   /* the same connection as an item that is MINE */
    ENTRY_OVER    /* reading gives an error */
};

struct entry {
    enum entry_state state;
    size_t twin;
    struct conn_watch watch;
};

struct waiting {
    tws_wait_item *items;
    size_t count;
    struct entry *entries;
    struct pollfd *fds; /* one for each item, and the event */
    struct task_event event;
    bool again;    /* there is more to look at than was looked at */
    bool watching; /* the event is there, and watches the connections */
    size_t ready;
};

static void mark(struct waiting *w, size_t i, short revents)
{
    if (!w->items[i].ready)
        w->ready++;
    w->items[i].ready = true;
    w->items[i].revents = revents;
}

static void judge(struct waiting *w, size_t i, enum sight sight)
{
    if (sight == SIGHT_READY)
        mark(w, i, POLLIN);
    else if (sight == SIGHT_MORE)
        w->again = true;
}

/* The connection is in the list once more, and has its role from there. Also behind this item: a thread
 * that pumped may have given it up between the two. */
static bool find_twin(struct waiting *w, size_t i)
{
    for (size_t k = 0; k < w->count; k++)
        if (k != i && w->items[k].conn == w->items[i].conn && w->entries[k].state == ENTRY_MINE) {
            w->entries[i].state = ENTRY_TWIN;
            w->entries[i].twin = k;
            return true;
        }
    return false;
}

static tws_err enter(struct waiting *w, size_t i)
{
    tws_conn *c = w->items[i].conn;
    struct entry *e = &w->entries[i];
    tws_err err = conn_reader_enter(c, TASK_NOW);

    if (!err) {
        e->state = ENTRY_MINE;
        conn_forget_shown(c);
        conn_before_wait(c);
        if (!c->in.area)
            conn_input_release(c);
        judge(w, i, look_inside(c));
    } else if (err == TWS_ERR_TIMEOUT) {
        e->state = ENTRY_BEHIND;
        err = TWS_OK;
    } else if (err == TWS_ERR_BUSY) {
        if (find_twin(w, i))
            err = TWS_OK;
    } else {
        e->state = ENTRY_OVER;
        mark(w, i, POLLIN);
        err = TWS_OK;
    }
    return err;
}

/* One that is BUSY is the only one that is marked. */
static tws_err busy(struct waiting *w, size_t i)
{
    for (size_t k = 0; k < w->count; k++) {
        w->items[k].ready = k == i;
        w->items[k].revents = 0;
    }
    return TWS_ERR_BUSY;
}

static tws_err enter_all(struct waiting *w)
{
    for (size_t i = 0; i < w->count; i++) {
        tws_wait_item *item = &w->items[i];

        w->fds[i] = (struct pollfd){.fd = -1, .events = item->conn ? POLLIN : item->events};
        if (item->conn)
            w->fds[i].fd = item->conn->stream.sock.fd;
        else if (item->events)
            w->fds[i].fd = item->fd;
        if (item->conn && enter(w, i))
            return busy(w, i);
        if (w->entries[i].state != ENTRY_NONE && w->entries[i].state != ENTRY_MINE)
            w->fds[i].fd = -1;
    }
    for (size_t i = 0; i < w->count; i++)
        if (w->entries[i].state == ENTRY_BEHIND)
            find_twin(w, i);
    return TWS_OK;
}

static tws_err watch_all(struct waiting *w)
{
    if (task_event_init(&w->event) < 0)
        return TWS_ERR_SYSTEM;
    w->watching = true;
    w->fds[w->count] = (struct pollfd){.fd = w->event.fd, .events = POLLIN};
    for (size_t i = 0; i < w->count; i++) {
        struct entry *e = &w->entries[i];
        tws_conn *c = w->items[i].conn;

        if (e->state != ENTRY_MINE && e->state != ENTRY_BEHIND)
            continue;
        pthread_mutex_lock(&c->mu);
        conn_watch_add_locked(c, &e->watch, &w->event);
        if (e->state == ENTRY_BEHIND)
            atomic_fetch_add(&c->reader_wanted, 1);
        if (conn_state(c) != CONN_OPEN || (e->state == ENTRY_BEHIND && !c->pumping))
            task_event_set(&w->event); /* since we looked */
        pthread_mutex_unlock(&c->mu);
    }
    return TWS_OK;
}

static void leave_all(struct waiting *w)
{
    for (size_t i = 0; i < w->count; i++) {
        struct entry *e = &w->entries[i];
        tws_conn *c = w->items[i].conn;

        if (w->watching && e->watch.event) {
            pthread_mutex_lock(&c->mu);
            conn_watch_remove_locked(&e->watch);
            pthread_mutex_unlock(&c->mu);
            if (e->state == ENTRY_BEHIND)
                atomic_fetch_sub(&c->reader_wanted, 1);
        }
        if (e->state == ENTRY_MINE)
            conn_reader_leave(c);
        if (e->state == ENTRY_TWIN && w->items[e->twin].ready)
            mark(w, i, POLLIN);
    }
    if (w->watching)
        task_event_destroy(&w->event);
}

/* The watched connection's role may be free now. */
static tws_err come_forward(struct waiting *w, size_t i)
{
    struct entry *e = &w->entries[i];
    tws_conn *c = w->items[i].conn;
    tws_err err = enter(w, i);

    if (e->state == ENTRY_BEHIND && !err)
        return TWS_OK;
    if (e->watch.event)
        atomic_fetch_sub(&c->reader_wanted, 1);
    if (e->state == ENTRY_MINE)
        w->fds[i].fd = c->stream.sock.fd;
    if (err)
        e->state = ENTRY_OVER; /* we wait for it no more */
    return err ? busy(w, i) : TWS_OK;
}

/* After a wait: descriptors as they are, connections that have something or are to be looked at. */
static tws_err look_all(struct waiting *w, bool tick)
{
    bool event = w->fds[w->count].revents != 0;

    if (event)
        task_event_clear(&w->event);
    event = event || w->again;
    w->again = false;
    for (size_t i = 0; i < w->count; i++) {
        struct entry *e = &w->entries[i];
        tws_conn *c = w->items[i].conn;
        short revents = w->fds[i].revents;

        if (!c) {
            if (revents)
                mark(w, i, revents);
        } else if (e->state == ENTRY_BEHIND) {
            if (come_forward(w, i))
                return TWS_ERR_BUSY;
        } else if (e->state == ENTRY_MINE && (revents || event || tick)) {
            if (revents)
                net_stream_hint_input(&c->stream);
            judge(w, i, revents || tick ? look(c) : look_inside(c));
        }
    }
    return TWS_OK;
}

/* When silence, or what TLS has not sent, has to be looked at. */
static int64_t next_tick(const struct waiting *w)
{
    tws_ms period = 0;

    for (size_t i = 0; i < w->count; i++) {
        tws_conn *c = w->items[i].conn;
        tws_ms one;

        if (w->entries[i].state != ENTRY_MINE)
            continue;
        one = conn_silence_period(c);
        if (one > 0 && (period == 0 || one < period))
            period = one;
        one = net_tls_pending(&c->stream);
        if (one > 0 && (period == 0 || one < period))
            period = one;
    }
    return period > 0 ? base_clock_ns() + period * BASE_NS_PER_MS : TASK_FOREVER;
}

static tws_err wait_all(struct waiting *w, int64_t deadline)
{
    tws_err err = watch_all(w);

    while (!err && w->ready == 0) {
        int64_t tick = next_tick(w);
        int64_t end = tick < deadline ? tick : deadline;
        int n = task_poll_any(w->fds, w->count + 1, w->again ? TASK_NOW : end);
        bool over = deadline != TASK_FOREVER && base_clock_ns() >= deadline;

        if (n < 0)
            return n == -ENOMEM ? TWS_ERR_MEMORY : TWS_ERR_SYSTEM;
        err = look_all(w, n == 0 && !w->again);
        if (!err && w->ready == 0 && over)
            return TWS_ERR_TIMEOUT;
    }
    return err;
}

/* Descriptors that are ready beside a connection that is, or with no time to wait. */
static tws_err look_once(struct waiting *w)
{
    int n;

    w->fds[w->count] = (struct pollfd){.fd = -1};
    n = task_poll(w->fds, w->count, TASK_NOW);
    if (n < 0)
        return n == -ENOMEM ? TWS_ERR_MEMORY : TWS_ERR_SYSTEM;
    return n > 0 ? look_all(w, false) : TWS_OK;
}

static tws_err wait_any(struct waiting *w, int64_t deadline)
{
    tws_err err = enter_all(w);

    if (!err)
        err = look_once(w);
    if (!err && w->ready == 0)
        err = deadline == TASK_NOW ? TWS_ERR_TIMEOUT : wait_all(w, deadline);
    leave_all(w);
    return err;
}

tws_err tws_wait_any(tws_wait_item *items, size_t count, tws_ms ms, size_t *n_ready)
{
    struct waiting w = {.items = items, .count = count};
    struct entry few[FEW];
    struct pollfd few_fds[FEW + 1];
    bool something = false;
    tws_err err;

    if (n_ready)
        *n_ready = 0;
    for (size_t i = 0; i < count; i++) {
        items[i].ready = false;
        items[i].revents = 0;
        something = something || items[i].conn || (items[i].fd >= 0 && items[i].events);
    }
    if (ms < TWS_NOWAIT || (ms == TWS_NO_LIMIT && !something))
        return TWS_ERR_ARGUMENT;
    w.entries = count <= FEW ? few : base_alloc(NULL, count * sizeof *w.entries);
    w.fds = count <= FEW ? few_fds : base_alloc(NULL, (count + 1) * sizeof *w.fds);
    err = w.entries && w.fds ? TWS_OK : TWS_ERR_MEMORY;
    if (!err) {
        memset(w.entries, 0, count * sizeof *w.entries);
        err = wait_any(&w, task_deadline(ms));
    }
    if (count > FEW) {
        base_free(NULL, w.entries);
        base_free(NULL, w.fds);
    }
    if (!err && n_ready)
        *n_ready = w.ready;
    return err;
}
