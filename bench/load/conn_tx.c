/* Sending: which messages may begin, and getting their ready-made frames out. */
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>

#include "conn.h"

/* A visit to one connection gives out about this much, then the others get their turn. */
enum { VISIT_BYTES = 256 * 1024 };

uint64_t conn_due(const struct conn *c, uint64_t n)
{
    const struct worker *w = c->worker;
    if (c->tx.when != NULL)
        return c->tx.when[n % w->run->opt->pipeline];
    return pace_due(&w->pace, c->start, n);
}

uint64_t conn_scheduled(const struct conn *c, uint64_t now)
{
    const struct worker *w = c->worker;
    if (!c->sender || c->start == 0)
        return 0;
    if (c->tx.when != NULL)
        return c->tx.next + c->tx.batch;
    if (now >= w->end)
        now = w->end - 1;
    return pace_count(&w->pace, c->start, now);
}

static uint64_t may_begin(const struct conn *c, uint64_t now)
{
    const struct worker *w = c->worker;
    if (c->state != CONN_OPEN || !c->sender || c->start == 0 || c->tx.cut)
        return 0;
    if (c->tx.when != NULL)
        return now < w->end ? c->tx.credit : 0;
    if (w->phase >= PHASE_DRAIN && c->tx.behind)
        return 0;
    uint64_t scheduled = conn_scheduled(c, now);
    uint64_t n = scheduled > c->tx.next ? scheduled - c->tx.next : 0;
    uint64_t limit = w->run->opt->max_inflight;
    if (limit != 0) {
        uint64_t inflight = c->tx.next - c->expect;
        uint64_t room = inflight < limit ? limit - inflight : 0;
        n = n < room ? n : room;
    }
    return n;
}

/* Writes the stamps of a batch into its frames; again when another connection used them meanwhile. */
static void stamp_batch(struct conn *c)
{
    const struct bodies *b = &c->worker->run->bodies;
    for (unsigned i = 0; i < c->tx.batch; i++) {
        uint64_t n = c->tx.next + i;
        struct stamp s = {conn_due(c, n), c->id, (uint32_t)n};
        frames_stamp(c->frames, b, bodies_pick(b, c->id, s.seq), &s);
    }
}

static bool begin_batch(struct conn *c, uint64_t now)
{
    struct worker *w = c->worker;
    const struct bodies *b = &w->run->bodies;
    uint64_t n = may_begin(c, now);
    if (n == 0)
        return false;
    unsigned slots = b->slots - bodies_pick(b, c->id, (uint32_t)c->tx.next);
    c->tx.batch = n < slots ? (unsigned)n : slots;
    c->tx.offset = 0;
    counter_add(&w->stats->begun, c->tx.batch);
    if (c->tx.when != NULL)
        c->tx.credit -= c->tx.batch;
    stamp_batch(c);
    if (c->tx.behind)
        return true;
    for (unsigned i = 0; i < c->tx.batch; i++) {
        uint64_t due = conn_due(c, c->tx.next + i);
        hist_add(&w->stats->lag[worker_when(w, due)], now > due ? now - due : 0);
    }
    return true;
}

/* n bytes of the batch are out: messages that are complete become sent ones. */
static void advance(struct conn *c, size_t n)
{
    struct worker *w = c->worker;
    const struct bodies *b = &w->run->bodies;
    unsigned slot = bodies_pick(b, c->id, (uint32_t)c->tx.next);
    const size_t *start = c->frames->start;
    unsigned done = 0;
    counter_add(&w->stats->bytes_up, n);
    c->tx.offset += n;
    while (done < c->tx.batch && c->tx.offset >= start[slot + 1] - start[slot]) {
        c->tx.offset -= start[slot + 1] - start[slot];
        slot++;
        done++;
    }
    if (done == 0)
        return;
    c->tx.next += done;
    c->tx.batch -= done;
    counter_add(&w->stats->sent, done);
    counter_add(&w->stats->payload_up, done * (uint64_t)b->size);
    counter_add(&w->url_stats[c->url_index].sent, done);
    uint64_t replies = 1;
    if (w->run->opt->broadcast) {
        unsigned readers = atomic_load(&w->run->readers);
        replies = readers - (w->run->opt->exclude_sender && readers > 0);
        atomic_fetch_add(&w->run->broadcast_sent, done);
    }
    counter_add(&w->stats->expected, done * replies);
}

/* 1 all out, else as stream_write. */
static ssize_t write_batch(struct conn *c)
{
    const struct bodies *b = &c->worker->run->bodies;
    while (c->tx.batch != 0) {
        unsigned slot = bodies_pick(b, c->id, (uint32_t)c->tx.next);
        size_t from = c->frames->start[slot] + c->tx.offset;
        ssize_t n = stream_write(&c->stream, c->frames->bytes + from,
                                 c->frames->start[slot + c->tx.batch] - from);
        if (n <= 0)
            return n;
        advance(c, (size_t)n);
    }
    return 1;
}

static ssize_t write_control(struct conn *c)
{
    while (c->tx.control_offset < c->tx.control_len) {
        ssize_t n = stream_write(&c->stream, c->tx.control + c->tx.control_offset,
                                 c->tx.control_len - c->tx.control_offset);
        if (n <= 0)
            return n;
        counter_add(&c->worker->stats->bytes_up, (uint64_t)n);
        c->tx.control_offset += (size_t)n;
    }
    free(c->tx.control);
    c->tx.control = NULL;
    c->tx.control_len = 0;
    c->tx.control_offset = 0;
    return 1;
}

bool conn_queue_control(struct conn *c, enum opcode op, const uint8_t *payload, size_t n)
{
    uint8_t key[4];
    uint8_t *grown = realloc(c->tx.control, c->tx.control_len + FRAME_HEADER_MAX + n);
    if (grown == NULL || getrandom(key, sizeof key, 0) != (ssize_t)sizeof key) {
        if (grown != NULL)
            c->tx.control = grown;
        return false;
    }
    c->tx.control = grown;
    uint8_t *out = grown + c->tx.control_len;
    size_t head = frame_put_header(out, op, false, n, key);
    frame_mask(out + head, payload, n, key);
    c->tx.control_len += head + n;
    return true;
}

static void set_behind(struct conn *c, bool behind)
{
    if (c->tx.behind == behind || c->state != CONN_OPEN)
        return;
    c->tx.behind = behind;
    counter_add(&c->worker->stats->behind, behind ? 1 : (uint64_t)-1);
}

/* Everything that may begin is out: wait for the next due time. */
static void caught_up(struct conn *c, uint64_t now)
{
    struct worker *w = c->worker;
    conn_watch(c, c->muted ? 0 : EPOLLIN);
    /* What a full socket kept back until the end is given up. */
    if (w->phase >= PHASE_DRAIN && c->tx.behind)
        c->tx.cut = true;
    bool paced = c->sender && c->start != 0 && c->tx.when == NULL && c->state == CONN_OPEN;
    if (!paced || c->tx.cut) {
        set_behind(c, false);
        return;
    }
    /* Held back by --max-inflight: the next reply brings us back here. */
    uint64_t due = conn_due(c, c->tx.next);
    bool held = due <= now && due < w->end && may_begin(c, now) == 0;
    set_behind(c, held);
    if (held || c->tx.queued || due >= w->end)
        return;
    heap_push(&w->heap, due, c);
    c->tx.queued = true;
}

void conn_send(struct conn *c)
{
    uint64_t now = clock_ns();
    uint64_t before = counter_get(&c->worker->stats->bytes_up);
    if (c->tx.batch != 0)
        stamp_batch(c);
    do {
        ssize_t rc = 1;
        if (c->tx.batch != 0)
            rc = write_batch(c);
        else if (c->tx.control_len != 0)
            rc = write_control(c);
        else if (!begin_batch(c, now))
            break;
        if (rc == STREAM_AGAIN) {
            set_behind(c, true);
            conn_watch(c, (c->muted ? 0 : EPOLLIN) | EPOLLOUT);
            return;
        }
        if (rc <= 0) {
            conn_fail(c, rc == 0 ? ERR_EOF : error_from_errno(stream_error(&c->stream)));
            return;
        }
        /* A closed loop limits itself. */
    } while (c->tx.when != NULL || counter_get(&c->worker->stats->bytes_up) - before < VISIT_BYTES);
    caught_up(c, now);
}

void conn_credit(struct conn *c, uint64_t now)
{
    uint64_t pipeline = c->worker->run->opt->pipeline;
    if (c->tx.when == NULL)
        return;
    uint64_t begun = c->tx.next + c->tx.batch + c->tx.credit;
    for (; begun - c->expect < pipeline; begun++) {
        c->tx.when[begun % pipeline] = now;
        c->tx.credit++;
    }
}

void conn_start_schedule(struct conn *c, uint64_t start)
{
    struct worker *w = c->worker;
    const struct options *o = w->run->opt;
    if (!c->sender)
        return;
    c->start = start;
    if (c->tx.when != NULL) {
        for (unsigned i = 0; i < o->pipeline; i++)
            c->tx.when[i] = start;
        c->tx.credit = o->pipeline;
    } else if (!o->early) { /* spread over one interval */
        unsigned senders = o->broadcast ? o->senders : o->connections;
        c->start += (uint64_t)(w->pace.interval * c->id / senders);
    }
    if (c->start < w->end && !c->tx.queued) {
        heap_push(&w->heap, c->start, c);
        c->tx.queued = true;
    }
}
