/* Whole messages and streamed ones, for the caller. */
#include "conn/conn.h"

#include <tws/wait.h>

#include "base/clock.h"
#include "conn/codec.h"
#include "conn/watch.h"

#include <errno.h>
#include <string.h>

/* Assembly buffers up to this are kept for the next message until the connection falls silent. */
#define KEEP_ASSEMBLY (256 * 1024)
#define FIRST_ASSEMBLY (4 * 1024)
/* From this on, payload is received straight into where it is going. */
#define DIRECT_MIN 8192

/* ---- The reader's role ---- */

/* Somebody has the role. One that only pumps control frames gives it up as soon as there is more to
 * read, so this thread misses nothing by waiting for it. */
__attribute__((noinline, cold)) static tws_err enter_behind(tws_conn *c, int64_t deadline)
{
    tws_err err = TWS_OK;

    if (atomic_load(&c->reader) == task_self())
        return conn_state(c) == CONN_OPEN ? TWS_ERR_BUSY : conn_sticky(c);
    pthread_mutex_lock(&c->mu);
    atomic_fetch_add(&c->reader_wanted, 1);
    for (;;) {
        bool expected = false;

        if (atomic_compare_exchange_strong(&c->reading, &expected, true))
            break;
        if (conn_state(c) != CONN_OPEN)
            err = conn_sticky_locked(c);
        else if (!c->pumping && (c->lent || !atomic_load(&c->lend_wanted)))
            err = TWS_ERR_BUSY;
        else if (task_queue_wait(&c->events, &c->mu, deadline) == -ETIMEDOUT)
            err = TWS_ERR_TIMEOUT;
        if (err)
            break;
    }
    atomic_fetch_sub(&c->reader_wanted, 1);
    if (err)
        conn_events_wake_locked(c); /* who stood back for this thread goes on */
    pthread_mutex_unlock(&c->mu);
    return err;
}

tws_err conn_reader_claim(tws_conn *c, int64_t deadline)
{
    uintptr_t only = atomic_load_explicit(&c->only_reader, memory_order_relaxed);
    bool expected = false;

    if (only && only != task_self()) /* which is between two reads, with a message in its hands */
        return conn_state(c) == CONN_OPEN ? TWS_ERR_BUSY : conn_sticky(c);
    if (!atomic_compare_exchange_strong(&c->reading, &expected, true)) {
        tws_err err = enter_behind(c, deadline);

        if (err)
            return err;
    }
    /* In one order with the state: who closes sees this reader, or this reader sees the close. */
    if (atomic_load_explicit(&c->reader, memory_order_relaxed) != task_self())
        atomic_store(&c->reader, task_self());
    if (conn_state(c) != CONN_OPEN && !c->rest_readable) {
        conn_reader_leave(c);
        return conn_sticky(c);
    }
    c->in.late = 0;
    return TWS_OK;
}

tws_err conn_reader_enter(tws_conn *c, int64_t deadline)
{
    tws_err err = conn_reader_claim(c, deadline);

    if (!err)
        conn_input_restore(c);
    return err;
}

void conn_reader_leave(tws_conn *c)
{
    atomic_store(&c->reading, false);
    if (atomic_load(&c->reader_wanted)) {
        pthread_mutex_lock(&c->mu);
        conn_events_wake_locked(c);
        pthread_mutex_unlock(&c->mu);
    }
}

/* ---- Whole messages ---- */

void conn_assembly_free(tws_conn *c)
{
    struct conn_assembly *w = &c->msg.whole;

    if (w->pooled)
        base_pool_put(&c->env->buffers, w->block);
    else
        base_free(c->env->allocator, w->block);
    *w = (struct conn_assembly){.block = NULL};
}

/* A borrowed buffer goes back at once: nobody may wait with one. */
static void drop_assembly(tws_conn *c)
{
    struct conn_assembly *w = &c->msg.whole;

    w->len = 0;
    if (w->cap > KEEP_ASSEMBLY || w->pooled)
        conn_assembly_free(c);
}

void conn_forget_shown(tws_conn *c)
{
    conn_set_view(c, NULL);
    conn_set_more(c, false);
    if (!c->msg.in_message)
        drop_assembly(c);
}

bool conn_assembly_resize(tws_conn *c, size_t cap)
{
    struct conn_assembly *w = &c->msg.whole;
    struct conn_owned *block = base_resize(c->env->allocator, w->block, sizeof *block + cap + 1);

    if (!block)
        return false;
    block->allocator = c->env->allocator;
    w->block = block;
    w->cap = cap;
    return true;
}

/* Room for `extra` more bytes. Grows with what has arrived, not with what was announced. */
static bool reserve(tws_conn *c, size_t extra)
{
    struct conn_assembly *w = &c->msg.whole;
    size_t need = w->len + extra;
    size_t cap = w->cap ? w->cap : FIRST_ASSEMBLY;

    if (need <= w->cap)
        return true;
    if (need < extra || need > SIZE_MAX / 2 - sizeof *w->block)
        return false;
    while (cap < need)
        cap *= 2;
    return conn_assembly_resize(c, cap);
}

tws_err conn_read_no_memory(tws_conn *c)
{
    struct conn_cause cause = {TWS_ERR_RESOURCE, TWS_PHASE_READ, TWS_CAUSE_LOCAL, 0,
                               "no memory for a message"};

    return conn_fail(c, &cause, TWS_CLOSE_INTERNAL_ERROR);
}

/* Takes payload that has been received into the assembly. */
static tws_err assemble_input(tws_conn *c, uint64_t left)
{
    struct conn_assembly *w = &c->msg.whole;
    size_t n = conn_input_len(c) < left ? conn_input_len(c) : (size_t)left;
    tws_err err;

    if (!reserve(c, n))
        return conn_read_no_memory(c);
    memcpy(w->block->data + w->len, c->in.buf + c->in.rd, n);
    c->in.rd += (uint32_t)n;
    err = conn_frame_payload(c, w->block->data + w->len, n);
    w->len += n;
    return err;
}

/* Receives payload straight into the assembly. */
static tws_err assemble_direct(tws_conn *c, uint64_t left, int64_t deadline)
{
    struct conn_assembly *w = &c->msg.whole;
    size_t room = w->cap - w->len;
    size_t n = 0;
    tws_err err;

    if (room < DIRECT_MIN) {
        if (!reserve(c, DIRECT_MIN > left ? (size_t)left : DIRECT_MIN))
            return conn_read_no_memory(c);
        room = w->cap - w->len;
    }
    err = conn_input_direct(c, w->block->data + w->len, room < left ? room : (size_t)left, &n,
                            deadline);
    if (err)
        return err;
    err = conn_frame_payload(c, w->block->data + w->len, n);
    w->len += n;
    return err;
}

/* Puts a frame's payload behind what the message has so far. */
static tws_err assemble_frame(tws_conn *c, int64_t deadline)
{
    struct conn_incoming *m = &c->msg;

    for (;;) {
        uint64_t left = m->frame.len - m->frame_done;
        tws_err err;

        if (left == 0)
            return conn_frame_ended(c);
        if (conn_input_len(c) > 0)
            err = assemble_input(c, left);
        else if (left >= DIRECT_MIN)
            err = assemble_direct(c, left, deadline);
        else
            err = conn_input_fill(c, (uint32_t)left, deadline);
        if (!err && m->frame_done < m->frame.len)
            err = conn_frame_slow(c);
        if (err)
            return err;
    }
}

/* A frame that is a whole message and fits into the input stays there. Its payload is unmasked and
 * checked as it comes. */
static tws_err receive_in_place(tws_conn *c, int64_t deadline)
{
    struct conn_incoming *m = &c->msg;
    uint32_t len = (uint32_t)m->frame.len;

    m->in_place = true;
    for (;;) {
        uint32_t have = conn_input_len(c) < len ? conn_input_len(c) : len;
        uint32_t done = (uint32_t)m->frame_done;
        tws_err err = TWS_OK;

        if (have > done)
            err = conn_frame_payload(c, c->in.buf + c->in.rd + done, have - done);
        if (!err && have == len) {
            m->in_place = false;
            return conn_frame_ended(c);
        }
        if (!err && done > 0)
            err = conn_frame_slow(c);
        if (!err)
            err = conn_input_fill(c, len, deadline);
        if (err)
            return err;
    }
}

/* Whether one more whole message is in the input already. */
static bool another_waits(tws_conn *c)
{
    const struct wire_frame_rules rules = conn_frame_rules(c);
    struct wire_frame f;
    uint32_t len = conn_input_len(c);

    return len > 0 && wire_frame_parse(&f, c->in.buf + c->in.rd, len, &rules, false) > 0 &&
           f.opcode < WIRE_CLOSE && f.fin && f.len <= len - f.hlen;
}

/* Shows a message, with a zero behind it. */
static void show(tws_conn *c, tws_message *m, uint8_t *data, size_t len)
{
    m->opcode = (tws_opcode)c->msg.opcode;
    m->flags = c->msg.compressed ? TWS_MESSAGE_COMPRESSED : 0;
    m->data = (char *)data;
    m->len = len;
    m->owner = NULL;
    c->msg.view_len = len;
    c->msg.view_room = 0;
    conn_set_view(c, data);
    conn_set_more(c, another_waits(c));
}

static void show_input(tws_conn *c, tws_message *m, uint32_t len)
{
    uint8_t *data = c->in.buf + c->in.rd;
    uint32_t room = c->in.rd;

    c->in.rd += len;
    show(c, m, data, len);
    c->msg.view_room = room;
    c->in.zero_at = data + len;
    c->in.zero_was = data[len];
    data[len] = 0;
}

static void show_assembly(tws_conn *c, tws_message *m)
{
    struct conn_assembly *w = &c->msg.whole;

    w->block->data[w->len] = 0;
    show(c, m, w->block->data, w->len);
}

static tws_err read_whole(tws_conn *c, tws_message *m, int64_t deadline)
{
    struct conn_incoming *in = &c->msg;
    tws_err err;

    in->owed = 0;
    if (!in->in_message) {
        conn_set_view(c, NULL);
        drop_assembly(c);
    }
    for (;;) {
        if (!in->in_frame && (err = conn_next_frame(c, deadline)))
            return err;
        if (in->compressed) {
            err = conn_read_compressed(c, deadline);
            if (!err)
                show_assembly(c, m);
            return err;
        }
        if (in->frame.fin && in->message_len == 0 && in->frame.len < CONN_BUFFER &&
            in->whole.len == 0) {
            err = receive_in_place(c, deadline);
            if (!err)
                show_input(c, m, (uint32_t)in->frame.len);
            return err;
        }
        err = assemble_frame(c, deadline);
        if (err)
            return err;
        if (!in->in_message) {
            if (!reserve(c, 1))
                return conn_read_no_memory(c);
            show_assembly(c, m);
            return TWS_OK;
        }
    }
}

__attribute__((noinline)) static tws_err read_message(tws_conn *c, tws_message *m, int64_t deadline)
{
    tws_err err = conn_reader_enter(c, deadline);

    *m = (tws_message)TWS_MESSAGE_INIT;
    m->data = (char *)(uintptr_t) "";
    if (err)
        return err;
    if (c->msg.streaming || c->msg.skipping)
        err = conn_skip_message(c, deadline);
    if (!err)
        err = read_whole(c, m, deadline);
    conn_reader_leave(c);
    return err;
}

tws_err tws_read_message(tws_conn *c, tws_message *m)
{
    return read_message(c, m, conn_read_deadline(c));
}

tws_err tws_read_message_within(tws_conn *c, tws_message *m, tws_ms ms)
{
    if (ms >= TWS_NOWAIT)
        return read_message(c, m, task_deadline(ms));
    *m = (tws_message)TWS_MESSAGE_INIT;
    m->data = (char *)(uintptr_t) "";
    return TWS_ERR_ARGUMENT;
}

/* ---- Messages that are somebody's own ---- */

/* One that is taken already: nothing, unless a handler takes what it was only lent. */
static void take_lent(struct conn_owned *block)
{
    if (!block->lent)
        return;
    block->lent = false;
    atomic_fetch_add_explicit(&block->refs, 1, memory_order_relaxed);
}

tws_err tws_message_take(tws_conn *c, tws_message *m)
{
    struct conn_assembly *w = &c->msg.whole;
    struct conn_owned *block = m->owner;

    if (block) {
        take_lent(block);
        return TWS_OK;
    }
    if (!conn_view(c) || (const uint8_t *)m->data != conn_view(c))
        return TWS_ERR_STATE;
    if (w->block && !w->pooled && w->block->data == conn_view(c)) {
        block = w->block;
        *w = (struct conn_assembly){.block = NULL};
    } else {
        block = base_alloc(c->env->allocator, sizeof *block + m->len + 1);
        if (!block)
            return TWS_ERR_MEMORY;
        block->allocator = c->env->allocator;
        memcpy(block->data, m->data, m->len);
        block->data[m->len] = 0; /* a read that was refused may have put another byte there */
    }
    conn_set_view(c, NULL);
    atomic_init(&block->refs, 1);
    block->lent = false;
    m->owner = block;
    m->data = (char *)block->data;
    return TWS_OK;
}

static void drop_owned(struct conn_owned *block)
{
    if (atomic_fetch_sub_explicit(&block->refs, 1, memory_order_acq_rel) == 1)
        base_free(block->allocator, block);
}

void tws_message_free(tws_message *m)
{
    struct conn_owned *block = m->owner;

    if (!block || block->lent)
        return;
    drop_owned(block);
    *m = (tws_message)TWS_MESSAGE_INIT;
}

void conn_message_lend(tws_message *m)
{
    struct conn_owned *block = m->owner;

    block->lent = true;
}

void conn_message_reclaim(tws_message *m)
{
    drop_owned(m->owner);
}

/* ---- Streamed messages ---- */

/* Drops what has been received, or receives some, of the frame's payload. */
static tws_err skip_payload(tws_conn *c, uint64_t left, int64_t deadline)
{
    uint32_t n;

    if (conn_input_len(c) == 0) {
        tws_err err = conn_input_fill(c, 1, deadline);

        if (err)
            return err;
    }
    n = conn_input_len(c) < left ? conn_input_len(c) : (uint32_t)left;
    if (c->drop)
        c->msg.frame_done += n;
    else if (conn_frame_payload(c, c->in.buf + c->in.rd, n))
        return conn_sticky(c);
    c->in.rd += n;
    /* As long as there is input no wait ends: a peer that goes on sending must not hold a close up. */
    if (c->drop && base_clock_ns() >= deadline)
        return TWS_ERR_TIMEOUT;
    return conn_frame_slow(c);
}

tws_err conn_skip_message(tws_conn *c, int64_t deadline)
{
    struct conn_incoming *m = &c->msg;
    tws_err err;

    if (m->streaming && !m->in_message && !c->drop) { /* its end has not been asked for yet */
        m->streaming = false;
        return TWS_OK;
    }
    /* Also when time runs out: bytes of its middle are gone then. */
    m->skipping = m->in_message;
    m->streaming = false;
    if (m->compressed && m->in_message && !c->drop)
        return conn_skip_compressed(c, deadline);
    c->in.rd += m->clear;
    m->clear = 0;

    if (m->in_place) { /* begun by a read of the whole message */
        c->in.rd += (uint32_t)m->frame_done;
        m->in_place = false;
    }
    do {
        if (!m->in_frame && (err = conn_next_frame(c, deadline)))
            return err;
        while (m->frame_done < m->frame.len)
            if ((err = skip_payload(c, m->frame.len - m->frame_done, deadline)))
                return err;
        if (c->drop)
            m->utf8 = (struct wire_utf8)WIRE_UTF8_INIT;
        if ((err = conn_frame_ended(c)))
            return err;
    } while (m->in_message);
    m->skipping = false;
    return TWS_OK;
}

tws_err conn_next_reader(tws_conn *c, int64_t deadline)
{
    tws_err err = TWS_OK;

    c->msg.owed = 0;
    conn_set_view(c, NULL);
    conn_set_more(c, false);
    if (c->msg.streaming || c->msg.in_message)
        err = conn_skip_message(c, deadline);
    drop_assembly(c);
    if (!err)
        err = conn_next_frame(c, deadline);
    if (!err)
        c->msg.streaming = true;
    return err;
}

tws_err tws_next_reader(tws_conn *c, tws_opcode *opcode)
{
    int64_t deadline = conn_read_deadline(c);
    tws_err err = conn_reader_enter(c, deadline);

    if (err)
        return err;
    err = conn_next_reader(c, deadline);
    if (!err)
        *opcode = (tws_opcode)c->msg.opcode;
    conn_reader_leave(c);
    return err;
}

/* Some bytes of the present frame, from the input or straight from the socket. */
static tws_err stream_payload(tws_conn *c, uint8_t *buf, size_t size, size_t *n, int64_t deadline)
{
    uint64_t left = c->msg.frame.len - c->msg.frame_done;
    size_t want = size < left ? size : (size_t)left;
    tws_err err = TWS_OK;

    if (conn_input_len(c) == 0 && want >= DIRECT_MIN) {
        err = conn_input_direct(c, buf, want, n, deadline);
        if (err)
            return err;
    } else {
        if (conn_input_len(c) == 0)
            err = conn_input_fill(c, 1, deadline);
        if (err)
            return err;
        *n = conn_input_len(c) < want ? conn_input_len(c) : want;
        memcpy(buf, c->in.buf + c->in.rd, *n);
        c->in.rd += (uint32_t)*n;
    }
    err = conn_frame_payload(c, buf, *n);
    return err ? err : conn_frame_slow(c);
}

tws_err conn_reader_read(tws_conn *c, uint8_t *buf, size_t size, size_t *n, int64_t deadline)
{
    struct conn_incoming *m = &c->msg;
    tws_err err;

    for (;;) {
        if (!m->in_message) {
            m->streaming = false;
            return TWS_OK;
        }
        if (m->compressed) {
            err = conn_stream_compressed(c, buf, size, n, deadline);
            if (err || *n > 0)
                return err;
            continue;
        }
        if (!m->in_frame && (err = conn_next_frame(c, deadline)))
            return err;
        if (m->frame_done < m->frame.len) {
            err = stream_payload(c, buf, size, n, deadline);
            if (err)
                *n = 0;
            return err;
        }
        if ((err = conn_frame_ended(c)))
            return err;
    }
}

tws_err tws_reader_read(tws_conn *c, void *buf, size_t size, size_t *n)
{
    int64_t deadline = conn_read_deadline(c);
    tws_err err;

    *n = 0;
    if (size == 0)
        return TWS_ERR_ARGUMENT;
    err = conn_reader_enter(c, deadline);
    if (err)
        return err;
    err = c->msg.streaming ? conn_reader_read(c, buf, size, n, deadline) : TWS_ERR_STATE;
    conn_reader_leave(c);
    return err;
}
