#include "conn.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * A connection that still delivered shortly before the drain ended (half its length, at most a second) was slow, not
 * silent.
 */
static uint64_t recent(const struct options *o)
{
    uint64_t half = (uint64_t)(o->drain * 5e8);
    if (half < 100 * NS_PER_MS)
        half = 100 * NS_PER_MS;
    return half < NS_PER_S ? half : NS_PER_S;
}

void conn_watch(struct conn *c, uint32_t events)
{
    if (c->events == events)
        return;
    struct epoll_event ev = {.events = events, .data.ptr = c};
    epoll_ctl(c->worker->epoll, EPOLL_CTL_MOD, c->stream.fd, &ev);
    c->events = events;
}

void conn_count(struct conn *c, enum error_kind kind)
{
    counter_add(&c->worker->stats->errors[kind], 1);
}

static void wake_main(struct run *r)
{
    eventfd_write(r->wake, 1);
}

/* Replies that a connection should have had and has not; `sent` is the total of a broadcast. */
static uint64_t owed(const struct conn *c, uint64_t sent)
{
    const struct options *o = c->worker->run->opt;
    if (c->muted)
        return 0;
    uint64_t due = c->tx.next;
    if (o->broadcast)
        due = sent - (o->exclude_sender ? c->tx.next : 0);
    return due > c->received ? due - c->received : 0;
}

/*
 * Of those, the ones that can still come: all after the last that came. What was jumped over is lost, since messages
 * keep their order.
 */
static uint64_t tail(const struct conn *c)
{
    uint64_t owes = owed(c, atomic_load(&c->worker->run->broadcast_sent));
    return owes > c->skipped ? owes - c->skipped : 0;
}

/* A peer that vanished can neither answer what it got nor take what was scheduled. */
static void account_lost(struct conn *c)
{
    struct worker *w = c->worker;
    struct stats *s = w->stats;
    counter_add(&s->open_now, (uint64_t)-1);
    if (c->tx.behind)
        counter_add(&s->behind, (uint64_t)-1);
    c->tx.behind = false;
    counter_add(&s->begun, (uint64_t)0 - c->tx.batch);
    if (w->phase < PHASE_CLOSE) {
        if (c->muted) {
            counter_add(&s->muted_closed, 1);
        } else {
            counter_add(&s->lost, 1);
            counter_add(&w->url_stats[c->url_index].lost, 1);
        }
        counter_add(&s->scheduled, conn_scheduled(c, clock_ns()));
        counter_add(&s->written_off, owed(c, atomic_load(&w->run->broadcast_sent)));
    }
    if (!c->muted)
        atomic_fetch_sub(&w->run->readers, 1);
    if (atomic_fetch_sub(&w->run->open, 1) == 1)
        wake_main(w->run);
}

static void account_failed(struct conn *c)
{
    struct worker *w = c->worker;
    counter_add(&w->stats->connecting, (uint64_t)-1);
    counter_add(&w->stats->failed, 1);
    counter_add(&w->url_stats[c->url_index].failed, 1);
    if (atomic_fetch_add(&w->run->settled, 1) + 1 == w->run->opt->connections)
        wake_main(w->run);
}

static void release(struct conn *c)
{
    if (c->state < CONN_OPEN)
        list_remove(&c->worker->opening, c);
    else if (c->state == CONN_CLOSING)
        list_remove(&c->worker->closing, c);
    c->state = CONN_GONE;
    stream_close(&c->stream);
    free(c->handshake);
    inflater_free(c->inflater);
    free(c->tx.when);
    free(c->tx.control);
    free(c->seen);
    c->handshake = NULL;
    c->inflater = NULL;
    c->tx.when = NULL;
    c->tx.control = NULL;
    c->seen = NULL;
}

void conn_end(struct conn *c)
{
    if (c->state == CONN_GONE)
        return;
    if (c->state < CONN_OPEN)
        account_failed(c);
    else if (c->state == CONN_OPEN)
        account_lost(c);
    release(c);
}

void conn_fail(struct conn *c, enum error_kind kind)
{
    /* What the peer does once we have said goodbye is its own affair. */
    if (c->state != CONN_CLOSING && c->state != CONN_GONE && !c->muted)
        conn_count(c, kind);
    conn_end(c);
}

/* Resets instead of closing: for a connection whose queues are full, where goodbye would take long. */
static void abandon(struct conn *c)
{
    struct linger hard = {.l_onoff = 1, .l_linger = 0};
    setsockopt(c->stream.fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    conn_end(c);
}

static void enter_closing(struct conn *c)
{
    c->state = CONN_CLOSING;
    c->deadline = clock_ns() + (uint64_t)(c->worker->run->opt->close_timeout * 1e9);
    list_add(&c->worker->closing, c);
    conn_send(c);
}

void conn_peer_closed(struct conn *c, int code)
{
    c->close_seen = true;
    if (c->state == CONN_CLOSING) {
        stream_shutdown(&c->stream);
        return;
    }
    counter_add(&c->worker->stats->closed[code - CLOSE_FIRST], 1);
    account_lost(c);
    uint8_t payload[2] = {(uint8_t)(code >> 8), (uint8_t)code};
    bool queued = conn_queue_control(c, OP_CLOSE, payload, code == FRAME_CLOSE_NO_CODE ? 0 : 2);
    /* What has begun must end first; TLS may hold a record of it even when no byte is out. */
    if (c->tx.offset == 0 && c->stream.ssl == NULL)
        c->tx.batch = 0;
    enter_closing(c);
    if (!queued)
        conn_end(c);
}

void conn_close(struct conn *c)
{
    static const uint8_t normal[2] = {1000 >> 8, 1000 & 0xff};
    bool busy = c->tx.batch != 0 || c->tx.control_len != 0 ||
                (!c->worker->run->opt->broadcast && c->tx.next != c->received);
    if (busy || c->muted || !conn_queue_control(c, OP_CLOSE, normal, sizeof normal)) {
        abandon(c);
        return;
    }
    account_lost(c); /* not lost: the phase is PHASE_CLOSE */
    enter_closing(c);
}

void conn_expire(struct conn *c)
{
    if (c->state == CONN_CONNECTING) {
        conn_fail(c, ERR_CONNECT_TIMEOUT);
    } else if (c->state < CONN_OPEN) {
        conn_fail(c, ERR_HANDSHAKE_TIMEOUT);
    } else {
        if (!c->close_seen)
            conn_count(c, ERR_CLOSE_TIMEOUT);
        abandon(c);
    }
}

/* Never answered: the wait so far is the least that their latency can be. */
static void censor(struct conn *c, uint64_t until, uint64_t now)
{
    struct worker *w = c->worker;
    for (uint64_t n = c->expect; n < until; n++) {
        uint64_t due = conn_due(c, n);
        if (due >= now)
            continue;
        hist_add(&w->stats->latency[worker_when(w, due)], now - due);
        if (worker_when(w, due) == WHEN_STEADY)
            counter_add(&w->stats->censored, 1);
    }
}

void conn_settle(struct conn *c)
{
    struct worker *w = c->worker;
    const struct options *o = w->run->opt;
    uint64_t now = clock_ns();
    uint64_t scheduled = conn_scheduled(c, w->end);
    counter_add(&w->stats->scheduled, scheduled);
    if (c->last_rx + recent(o) > now)
        counter_add(&w->stats->in_flight, tail(c));
    if (!o->broadcast)
        censor(c, scheduled, now);
}
