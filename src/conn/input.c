/* Receiving: which buffer, how long to wait, and what silence means. */
#include "conn/queue.h"

#include "base/clock.h"
#include "conn/codec.h"

#include <errno.h>
#include <string.h>

/* Receives for which an emptied, borrowed buffer is kept after the small area was too small. */
#define INPUT_HOT 8
/* What only traffic needs is given back when nothing came for so long. */
#define INPUT_TRIM_MS 2000
/* Silence is looked at once a day at least, so that no sum of times overflows. */
#define PERIOD_MAX ((tws_ms)24 * 60 * 60 * 1000)
/* Of what comes without a pause, a call whose time is over takes so much and no more: a socket's buffer
 * full, so that one that does not wait sees all that had arrived. */
#define LATE_MAX (4u << 20)
/* The coarse clock may be this far behind. */
#define CLOCK_SLACK_NS (10 * BASE_NS_PER_MS)

/* ---- Buffers ---- */

static void use_area(struct conn_input *in)
{
    in->buf = in->area;
    in->cap = in->area_cap;
    in->borrowed = false;
}

void conn_input_release(tws_conn *c)
{
    struct conn_input *in = &c->in;

    if (in->rd != in->wr)
        return;
    in->rd = in->wr = 0;
    in->zero_at = NULL;
    if (!c->drop) /* else a thread that does not read may look at it: conn_input_keep_view() */
        conn_set_view(c, NULL);
    if (in->borrowed) {
        base_pool_put(&c->env->buffers, in->buf);
        use_area(in);
    }
}

static bool borrow(tws_conn *c)
{
    struct conn_input *in = &c->in;
    uint8_t *buf = base_pool_get(&c->env->buffers);

    if (!buf)
        return false;
    if (in->wr > in->rd)
        memcpy(buf, in->buf + in->rd, in->wr - in->rd);
    in->wr -= in->rd;
    in->rd = 0;
    in->buf = buf;
    in->cap = CONN_BUFFER - 1;
    in->borrowed = true;
    return true;
}

bool conn_input_keep_view(tws_conn *c)
{
    struct conn_input *in = &c->in;
    uintptr_t view = (uintptr_t)conn_view(c);
    uint8_t *old = in->buf, *unread;
    bool borrowed = in->borrowed;

    if (!view || view < (uintptr_t)old || view > (uintptr_t)old + in->cap)
        return true;
    unread = old + in->rd;
    if (!borrow(c))
        return false;
    if (in->zero_at == unread && in->wr > 0) /* the zero stays in the old buffer only */
        in->buf[0] = in->zero_was;
    in->zero_at = NULL;
    if (borrowed) {
        in->kept = old;
    } else {
        in->area = NULL;
        in->area_cap = 0;
    }
    return true;
}

/* Makes room for at least one byte, and for `need` bytes from rd on. */
static bool make_room(tws_conn *c, uint32_t need)
{
    struct conn_input *in = &c->in;

    if (in->rd == in->wr) {
        in->rd = in->wr = 0;
        if (in->borrowed && in->hot == 0)
            conn_input_release(c);
    }
    if (!in->borrowed && (need > in->cap || in->filled || in->hot > 0)) {
        if (borrow(c))
            return true;
        if (need > in->cap)
            return false; /* else the small area will do */
    }
    if (in->rd > 0 && (in->rd + need > in->cap || in->wr == in->cap)) {
        memmove(in->buf, in->buf + in->rd, in->wr - in->rd);
        in->wr -= in->rd;
        in->rd = 0;
    }
    return in->wr < in->cap;
}

static void received(tws_conn *c, size_t n)
{
    struct conn_input *in = &c->in;

    in->filled = in->wr + n == in->cap;
    in->wr += (uint32_t)n;
    if (!in->area)
        return; /* a borrowed buffer is never kept over a wait */
    if (!in->borrowed) {
        if (in->filled)
            in->hot = INPUT_HOT;
    } else if (n > in->area_cap) {
        in->hot = INPUT_HOT;
    } else if (in->hot > 0) {
        in->hot--;
    }
}

/* ---- Silence ---- */

static bool passed(int64_t now, int64_t since, tws_ms ms)
{
    return ms > 0 && (now - since + CLOCK_SLACK_NS) / BASE_NS_PER_MS >= ms;
}

static void shorten(tws_ms *period, tws_ms ms)
{
    if (ms > 0 && (*period == 0 || ms < *period))
        *period = ms;
}

static inline tws_ms silence_period(tws_conn *c)
{
    tws_ms period = 0;

    shorten(&period, conn_timeout(c, TWS_TIMEOUT_PING_INTERVAL));
    if (c->pinged)
        shorten(&period, conn_timeout(c, TWS_TIMEOUT_PING));
    shorten(&period, conn_timeout(c, TWS_TIMEOUT_IDLE));
    if (c->in.borrowed || c->in.deep || (!c->drop && (c->msg.whole.block || conn_deflate_warm(c))))
        shorten(&period, INPUT_TRIM_MS);
    return period < PERIOD_MAX ? period : PERIOD_MAX;
}

tws_ms conn_silence_period(tws_conn *c)
{
    return silence_period(c);
}

/* A keepalive ping carries the time it was sent at, so that its pong gives the round trip. */
static void keepalive_ping(tws_conn *c)
{
    struct wire_frame f = {.opcode = WIRE_PING, .fin = true, .len = sizeof c->ping_sent};
    struct iovec iov = {.iov_base = &c->ping_sent, .iov_len = sizeof c->ping_sent};
    bool mine, queued;

    pthread_mutex_lock(&c->mu);
    mine = conn_state(c) == CONN_OPEN && conn_turn_try_locked(c);
    queued = conn_queue_waiting_locked(c);
    pthread_mutex_unlock(&c->mu);
    if (queued && !c->ping_owed)
        conn_queue_progress(c, &c->ping_mark);
    if (!mine) {
        /* Somebody is sending. A stuck write has its own timeout: ask again later. A queue may be
         * stuck for as long as its policy likes, and the peer silent in there is as good as pinged. */
        if (queued && !c->ping_owed) {
            c->pinged = c->ping_owed = true;
            c->ping_sent = base_clock_ns();
        }
        return;
    }
    c->ping_owed = false;
    c->ping_sent = base_clock_ns();
    if (conn_out_append(c, &f, &iov, 1)) {
        c->pinged = true;
        CONN_ADD(c->count.pings_out, 1);
    }
    conn_turn_give(c);
    conn_kick(c);
}

tws_err conn_check_idle(tws_conn *c, int64_t now)
{
    struct conn_cause cause = {TWS_ERR_IDLE, TWS_PHASE_READ, TWS_CAUSE_TIMEOUT, 0, "idle timeout"};

    if (conn_state(c) != CONN_OPEN || !passed(now, c->last_data, conn_timeout(c, TWS_TIMEOUT_IDLE)))
        return TWS_OK;
    return conn_fail(c, &cause, TWS_CLOSE_GOING_AWAY);
}

/* A peer that takes what is queued for it is there, although it says nothing. */
static bool takes_queued(tws_conn *c)
{
    bool queued;

    pthread_mutex_lock(&c->mu);
    queued = conn_queue_waiting_locked(c);
    pthread_mutex_unlock(&c->mu);
    if (!queued || !conn_queue_progress(c, &c->ping_mark))
        return false;
    c->ping_sent = base_clock_ns();
    return true;
}

/* Nothing came for a while: give memory back, ping, or give the peer up. */
static tws_err silence(tws_conn *c)
{
    int64_t now = base_clock_coarse_ns();
    int64_t last = atomic_load_explicit(&c->last_rx, memory_order_relaxed);
    tws_ms interval = conn_timeout(c, TWS_TIMEOUT_PING_INTERVAL);
    tws_err err;

    if (passed(now, last, INPUT_TRIM_MS)) {
        c->in.hot = 0;
        conn_input_release(c);
        if (c->in.deep)
            task_trim_stack();
        c->in.deep = false;
        if (!c->drop && c->msg.whole.len == 0 && !c->msg.in_message)
            conn_assembly_free(c);
        if (!c->drop)
            conn_deflate_idle(c);
    }
    err = conn_check_idle(c, now);
    if (err || conn_state(c) != CONN_OPEN)
        return err;
    if (c->pinged) {
        tws_ms timeout = conn_timeout(c, TWS_TIMEOUT_PING);

        if (c->ping_owed)
            keepalive_ping(c);
        if (timeout > 0 && (base_clock_ns() - c->ping_sent) / BASE_NS_PER_MS >= timeout &&
            !takes_queued(c)) {
            struct conn_cause cause = {TWS_ERR_PEER_SILENT, TWS_PHASE_READ, TWS_CAUSE_TIMEOUT, 0,
                                       NULL};

            return conn_end(c, &cause);
        }
    } else if (passed(now, last, interval)) {
        keepalive_ping(c);
    }
    return TWS_OK;
}

/* ---- Waiting and receiving ---- */

static tws_err ended_by_peer(tws_conn *c)
{
    struct conn_cause cause = {TWS_ERR_EOF, TWS_PHASE_READ, TWS_CAUSE_PEER, 0, NULL};

    if (c->msg.in_frame || c->msg.in_message)
        cause.detail = "in the middle of a message";
    return conn_end(c, &cause);
}

/* Held replies leave before the reader waits; they never wait for the reader. */
static inline void before_wait(tws_conn *c)
{
    if (conn_out_len(c) > 0 || conn_queue_stranded(c))
        conn_kick(c);
    conn_tell_untold(c->env);
}

void conn_before_wait(tws_conn *c)
{
    before_wait(c);
}

/* What a result of await or recv below zero means. TWS_OK: go on waiting. */
static tws_err not_received(tws_conn *c, int r)
{
    tws_err err;

    if (r != -EAGAIN && r != -ETIMEDOUT)
        return conn_io_failed(c, TWS_PHASE_READ, r);
    err = silence(c);
    if (err || r == -EAGAIN)
        return err;
    CONN_ADD(c->count.timeouts, 1);
    return TWS_ERR_TIMEOUT;
}

/* A peer that sends without a pause, control frames for instance, leaves no wait that could time out. */
static bool too_late(const tws_conn *c, int64_t deadline)
{
    return c->in.late >= LATE_MAX && deadline != TASK_FOREVER;
}

static void count_late(tws_conn *c, size_t n, int64_t deadline)
{
    if (deadline != TASK_FOREVER && c->in.late < LATE_MAX && base_clock_ns() >= deadline)
        c->in.late += n < LATE_MAX ? (uint32_t)n : LATE_MAX;
}

/* Bytes have come. `since`: when the wait for the rest of a frame began; 0 between frames. */
static void heard(tws_conn *c, size_t n, int64_t since)
{
    int64_t now = base_clock_coarse_ns();

    atomic_store_explicit(&c->last_rx, now, memory_order_relaxed);
    c->pinged = c->ping_owed = false;
    c->in.deep = net_stream_is_tls(&c->stream);
    CONN_COUNT(c->count.wire_in, n);
    if (since) {
        c->msg.waited += now - since;
        c->msg.waited_bytes += n;
    }
}

/* Whether the reader may go on: the connection is open, or being read to its end. */
static tws_err may_read(tws_conn *c)
{
    enum conn_state state = conn_state(c);

    if (state == CONN_OPEN || c->rest_readable || (c->drop && state != CONN_ENDED))
        return TWS_OK;
    return conn_sticky(c);
}

static tws_err no_buffer(tws_conn *c)
{
    struct conn_cause cause = {TWS_ERR_RESOURCE, TWS_PHASE_READ, TWS_CAUSE_LOCAL, 0,
                               "no memory for a receive buffer"};

    return conn_fail(c, &cause, TWS_CLOSE_INTERNAL_ERROR);
}

/* Receives into `direct`, or into the input when that is NULL. */
static tws_err receive(tws_conn *c, void *direct, size_t size, size_t *got, int64_t deadline)
{
    bool partial = c->msg.in_frame || conn_input_len(c) > 0;
    int64_t since = partial ? base_clock_coarse_ns() : 0;
    uint64_t rate = conn_limit(c, TWS_LIMIT_RATE);
    int64_t waited_from = rate > 0 ? base_clock_coarse_ns() : 0;

    before_wait(c);
    for (;;) {
        bool blocks;
        tws_err err;
        ssize_t n;

        if (atomic_load(&c->lend_wanted))
            conn_handover_lend(c);
        err = may_read(c);
        if (err)
            return err;
        if (!c->in.area)
            conn_input_release(c);
        n = too_late(c, deadline) ? -ETIMEDOUT
                                  : net_stream_await(&c->stream, deadline, silence_period(c));
        blocks = n == 0 && net_stream_recv_waits(&c->stream);
        if (n == 0) {
            if (!direct && !make_room(c, (uint32_t)size))
                return no_buffer(c);
            n = direct ? net_stream_recv(&c->stream, direct, size)
                       : net_stream_recv(&c->stream, c->in.buf + c->in.wr, c->in.cap - c->in.wr);
            if (n > 0) {
                heard(c, (size_t)n, since);
                count_late(c, (size_t)n, deadline);
                *got = (size_t)n;
                return rate > 0 ? conn_rate_judge(c, (size_t)n, waited_from) : TWS_OK;
            }
            if (n == 0)
                return ended_by_peer(c);
            if (n == -EAGAIN && !blocks)
                continue; /* woken for nothing */
        }
        err = not_received(c, (int)n);
        if (err) {
            if (since)
                c->msg.waited += base_clock_coarse_ns() - since;
            return err;
        }
    }
}

tws_err conn_input_fill(tws_conn *c, uint32_t need, int64_t deadline)
{
    size_t n = 0;
    tws_err err = receive(c, NULL, need, &n, deadline);

    if (!err)
        received(c, n);
    return err;
}

tws_err conn_input_direct(tws_conn *c, void *buf, size_t size, size_t *n, int64_t deadline)
{
    return receive(c, buf, size, n, deadline);
}

bool conn_input_more(tws_conn *c)
{
    ssize_t n;

    net_stream_hint_input(&c->stream); /* an edge of it may not have been seen yet */
    if (net_stream_await(&c->stream, TASK_NOW, 0) != 0 || !make_room(c, conn_input_len(c) + 1))
        return false;
    n = net_stream_recv(&c->stream, c->in.buf + c->in.wr, c->in.cap - c->in.wr);
    if (n <= 0)
        return false;
    CONN_COUNT(c->count.wire_in, (uint64_t)n);
    received(c, (size_t)n);
    return true;
}
