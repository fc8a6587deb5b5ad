/* Receiving: frames, and whether each message is what it should be. */
#include <string.h>
#include <sys/epoll.h>

#include "conn.h"

/* Full buffers in a row from one connection before the others get their turn. */
enum { READS_PER_VISIT = 4 };

/* Whole numbers from the low 32 bits that a stamp carries, near the one that is expected. */
static uint64_t widen(uint64_t expect, uint32_t low)
{
    return expect + (uint64_t)(int64_t)(int32_t)(low - (uint32_t)expect);
}

/* A number below the expected one fills a gap, or comes a second time. */
static void judge_late(struct conn *c)
{
    if (c->skipped != 0)
        c->rx.reordered = true;
    else
        c->rx.unexpected = true;
}

/* Echo: the stamp is not the next one. */
static void resolve_odd(struct conn *c, const uint8_t *stamp, uint64_t begun)
{
    const struct run *r = c->worker->run;
    struct conn_rx *rx = &c->rx;
    unsigned len = r->bodies.stamp;
    struct stamp s;
    bool ours = stamp_read(stamp, len, &s);
    uint64_t seq = widen(c->expect, s.seq);
    if (len == STAMP_FULL)
        ours = ours && s.conn == c->id && s.time >= r->t0 && s.time <= clock_ns();
    if (!ours || seq >= begun || (seq == c->expect && len == STAMP_FULL)) {
        rx->unexpected = c->expect >= begun;
        rx->bad = true; /* it takes the place of the next one */
        return;
    }
    rx->seq = seq;
    rx->due = len == STAMP_FULL ? s.time : conn_due(c, seq);
    if (seq < c->expect)
        judge_late(c);
}

/* Echo: decides which of our messages this is the reply to. */
static void resolve_echo(struct conn *c, const uint8_t *stamp)
{
    const struct bodies *b = &c->worker->run->bodies;
    struct conn_rx *rx = &c->rx;
    uint64_t begun = c->tx.next + c->tx.batch;
    rx->seq = c->expect;
    if (c->expect < begun)
        rx->due = conn_due(c, c->expect);
    if (b->stamp == 0 || !c->worker->run->opt->verify) {
        rx->unexpected = c->expect >= begun;
    } else {
        uint8_t want[STAMP_FULL];
        struct stamp s = {rx->due, c->id, (uint32_t)c->expect};
        stamp_write(want, b->stamp, &s);
        if (c->expect >= begun || memcmp(want, stamp, b->stamp) != 0)
            resolve_odd(c, stamp, begun);
    }
    rx->body = bodies_slot(b, bodies_pick(b, c->id, (uint32_t)rx->seq));
}

/* Broadcast: the stamp says who sent it and when. */
static void resolve_broadcast(struct conn *c, const uint8_t *stamp)
{
    const struct run *r = c->worker->run;
    struct conn_rx *rx = &c->rx;
    struct stamp s;
    if (!stamp_read(stamp, STAMP_FULL, &s) || s.conn >= r->opt->senders || s.time > clock_ns()) {
        rx->bad = true;
        rx->body = r->bodies.plain;
        return;
    }
    rx->sender = s.conn;
    rx->seq = s.seq;
    rx->due = s.time;
    if ((int32_t)(s.seq - c->seen[s.conn]) < 0)
        judge_late(c);
    rx->body = bodies_slot(&r->bodies, bodies_pick(&r->bodies, s.conn, s.seq));
}

static void resolve(struct conn *c, const uint8_t *stamp)
{
    c->rx.resolved = true;
    if (c->worker->run->opt->broadcast)
        resolve_broadcast(c, stamp);
    else
        resolve_echo(c, stamp);
}

/* A piece of a message body, uncompressed. */
static void take_body(void *arg, const uint8_t *p, size_t n)
{
    struct conn *c = arg;
    struct conn_rx *rx = &c->rx;
    const struct bodies *b = &c->worker->run->bodies;
    if (!rx->resolved) {
        const uint8_t *stamp = p;
        size_t take = b->stamp - rx->offset;
        if (take > n)
            take = n;
        if (rx->offset != 0 || take < b->stamp) { /* the stamp comes in pieces */
            memcpy(rx->stamp + rx->offset, p, take);
            stamp = rx->stamp;
        }
        rx->offset += take;
        p += take;
        n -= take;
        if (rx->offset < b->stamp)
            return;
        resolve(c, stamp);
    }
    if (n == 0)
        return;
    if (n > b->size - rx->offset) {
        rx->bad = true;
        n = b->size - rx->offset;
    }
    if (c->worker->run->opt->verify && !rx->bad && memcmp(p, rx->body + rx->offset, n) != 0)
        rx->bad = true;
    rx->offset += n;
}

/* Without comparing, an echo need not be inflated: it is matched by order. */
static bool skip_inflating(const struct conn *c)
{
    const struct options *o = c->worker->run->opt;
    return !o->verify && !o->broadcast;
}

static bool take_data(struct conn *c, const uint8_t *p, size_t n)
{
    if (c->state == CONN_CLOSING)
        return true;
    if (!c->rx.compressed) {
        take_body(c, p, n);
        return true;
    }
    return skip_inflating(c) || inflater_feed(c->inflater, p, n, take_body, c);
}

/* Where the next replies are counted from. */
static void step(struct conn *c)
{
    struct conn_rx *rx = &c->rx;
    if (rx->reordered) {
        c->skipped--;
        return;
    }
    if (!c->worker->run->opt->broadcast) {
        c->skipped += rx->seq - c->expect;
        c->expect = rx->seq + 1;
        return;
    }
    c->skipped += (uint32_t)rx->seq - c->seen[rx->sender];
    c->seen[rx->sender] = (uint32_t)rx->seq + 1;
    if (rx->sender == c->id)
        c->expect = widen(c->expect, (uint32_t)rx->seq) + 1;
}

static bool finish_message(struct conn *c, uint64_t now)
{
    struct worker *w = c->worker;
    const struct bodies *b = &w->run->bodies;
    struct conn_rx *rx = &c->rx;
    bool skipped = rx->compressed && skip_inflating(c);
    if (c->state == CONN_CLOSING)
        return true;
    if (rx->compressed && !skipped && !inflater_end(c->inflater, take_body, c))
        return false;
    if (!rx->resolved) { /* shorter than its stamp, or nobody looked */
        rx->bad = b->stamp != 0 && !skipped;
        if (!w->run->opt->broadcast)
            resolve(c, rx->stamp);
    }
    if ((rx->offset != b->size && !skipped) ||
        rx->message_opcode != (b->text ? OP_TEXT : OP_BINARY))
        rx->bad = true;
    c->last_rx = now;
    if (rx->unexpected) {
        conn_count(c, ERR_UNEXPECTED);
        return true;
    }
    c->received++;
    counter_add(&w->stats->received, 1);
    counter_add(&w->stats->payload_down, skipped ? b->size : rx->offset);
    counter_add(&w->url_stats[c->url_index].received, 1);
    if (rx->bad)
        conn_count(c, ERR_MISMATCH);
    if (rx->reordered)
        conn_count(c, ERR_REORDERED);
    if (!rx->bad || !w->run->opt->broadcast)
        step(c);
    if (!rx->bad)
        hist_add(&w->stats->latency[worker_when(w, rx->due)], now > rx->due ? now - rx->due : 0);
    return true;
}

/* False when the connection must not be read any further. */
static bool finish_control(struct conn *c)
{
    struct conn_rx *rx = &c->rx;
    if (rx->opcode == OP_PING && c->state == CONN_OPEN) {
        if (!conn_queue_control(c, OP_PONG, rx->control, rx->control_have)) {
            conn_fail(c, ERR_IO);
            return false;
        }
        if (c->tx.batch == 0)
            conn_send(c);
        return c->state != CONN_GONE;
    }
    if (rx->opcode != OP_CLOSE)
        return true;
    int code = frame_close_code(rx->control, rx->control_have);
    if (code < 0)
        conn_fail(c, ERR_PROTOCOL);
    else
        conn_peer_closed(c, code);
    return false;
}

static bool start_frame(struct conn *c, const struct frame_header *h)
{
    struct conn_rx *rx = &c->rx;
    rx->in_frame = true;
    rx->fin = h->fin;
    rx->opcode = h->opcode;
    rx->left = h->length;
    if (h->opcode >= OP_CLOSE) {
        rx->control_have = 0;
        return true;
    }
    if ((h->opcode == OP_CONT) != rx->in_message)
        return false;
    if (h->rsv1 && (h->opcode == OP_CONT || c->inflater == NULL))
        return false;
    if (h->opcode == OP_CONT)
        return true;
    rx->in_message = true;
    rx->message_opcode = h->opcode;
    rx->compressed = h->rsv1;
    rx->resolved = rx->bad = rx->reordered = rx->unexpected = false;
    rx->offset = 0;
    return true;
}

static bool finish_frame(struct conn *c, uint64_t now)
{
    struct conn_rx *rx = &c->rx;
    rx->in_frame = false;
    if (rx->opcode >= OP_CLOSE)
        return finish_control(c);
    if (!rx->fin)
        return true;
    rx->in_message = false;
    if (finish_message(c, now))
        return true;
    conn_fail(c, ERR_PROTOCOL);
    return false;
}

/* Reads a header that may have begun in an earlier piece. Bytes used, or -1. */
static int take_header(struct conn *c, const uint8_t *p, size_t n, struct frame_header *h,
                       bool *got)
{
    struct conn_rx *rx = &c->rx;
    int used = 0;
    if (rx->head_have == 0) {
        used = frame_parse(p, n, h);
        *got = used > 0;
        if (used != 0)
            return used;
    }
    int len = 0;
    while (len == 0 && (size_t)used < n) {
        rx->head[rx->head_have++] = p[used++];
        len = frame_parse(rx->head, rx->head_have, h);
    }
    *got = len > 0;
    if (len != 0)
        rx->head_have = 0;
    return len < 0 ? -1 : used;
}

/* The next piece of a frame's payload. */
static bool take_payload(struct conn *c, const uint8_t *p, size_t n)
{
    struct conn_rx *rx = &c->rx;
    rx->left -= n;
    if (rx->opcode < OP_CLOSE)
        return take_data(c, p, n);
    memcpy(rx->control + rx->control_have, p, n);
    rx->control_have = (uint8_t)(rx->control_have + n);
    return true;
}

bool conn_input(struct conn *c, const uint8_t *p, size_t n, uint64_t now)
{
    struct conn_rx *rx = &c->rx;
    counter_add(&c->worker->stats->bytes_down, n);
    while (n > 0) {
        if (!rx->in_frame) {
            struct frame_header h;
            bool got;
            int used = take_header(c, p, n, &h, &got);
            if (used < 0 || (got && !start_frame(c, &h))) {
                conn_fail(c, ERR_PROTOCOL);
                return false;
            }
            p += used;
            n -= (size_t)used;
            if (!got)
                return true;
        }
        size_t take = rx->left < n ? (size_t)rx->left : n;
        if (take != 0 && !take_payload(c, p, take)) {
            conn_fail(c, ERR_PROTOCOL);
            return false;
        }
        p += take;
        n -= take;
        if (rx->left == 0 && !finish_frame(c, now))
            return false;
    }
    return true;
}

/* After a close frame only the end of the stream matters. */
static void wait_for_end(struct conn *c)
{
    ssize_t n;
    do {
        n = stream_read(&c->stream, c->worker->rx_buffer, RX_BUFFER);
    } while (n > 0);
    if (n != STREAM_AGAIN)
        conn_end(c);
}

void conn_receive(struct conn *c)
{
    struct worker *w = c->worker;
    uint64_t before = c->expect;
    for (int i = 0; i < READS_PER_VISIT || c->stream.ssl != NULL; i++) {
        if (c->close_seen) {
            wait_for_end(c);
            return;
        }
        ssize_t n = stream_read(&c->stream, w->rx_buffer, RX_BUFFER);
        if (n == STREAM_AGAIN)
            break;
        if (n <= 0) {
            conn_fail(c, n == 0 ? ERR_EOF : error_from_errno(stream_error(&c->stream)));
            return;
        }
        uint64_t now = clock_ns();
        if (!conn_input(c, w->rx_buffer, (size_t)n, now)) {
            if (c->state != CONN_GONE)
                continue;
            return;
        }
        if (c->expect != before)
            conn_credit(c, now);
        if (n < RX_BUFFER && c->stream.ssl == NULL)
            break;
    }
    bool more = c->tx.credit != 0 || (c->tx.behind && w->run->opt->max_inflight != 0);
    if (c->state == CONN_OPEN && c->expect != before && more)
        conn_send(c);
}
