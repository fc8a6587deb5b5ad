/* Frames off the input (RFC 6455 section 5): data frames are announced, control frames handled. */
#include "conn/conn.h"

#include "base/clock.h"
#include "conn/codec.h"
#include "conn/watch.h"
#include "wire/mask.h"

#include <string.h>

/* Frames below this count against the limit on fragments. */
#define SMALL_FRAME 4096
/* A frame may be incomplete for so long before its rate is looked at. */
#define SLOW_GRACE_NS (30 * BASE_NS_PER_S)

static tws_err fail(tws_conn *c, tws_err code, uint16_t close_code, const char *detail)
{
    struct conn_cause cause = {code, TWS_PHASE_READ, TWS_CAUSE_PEER, 0, detail};

    return conn_fail(c, &cause, close_code);
}

tws_err conn_frame_slow(tws_conn *c)
{
    const struct conn_incoming *m = &c->msg;

    struct conn_excess e = {TWS_ERR_SLOW, CONN_PASSED_MIN_RATE, 0, c->min_rate,
                            "frame arrives too slowly, in bytes per second"};

    if (c->min_rate == 0 || m->waited < SLOW_GRACE_NS ||
        m->waited_bytes >= (uint64_t)(m->waited / BASE_NS_PER_S) * c->min_rate)
        return TWS_OK;
    e.got = m->waited_bytes / (uint64_t)(m->waited / BASE_NS_PER_S);
    return conn_fail_limit(c, &e, TWS_CLOSE_POLICY_VIOLATION);
}

/* Waits for `need` bytes from the read position on. */
static tws_err want(tws_conn *c, uint32_t need, int64_t deadline)
{
    while (conn_input_len(c) < need) {
        tws_err err = conn_input_fill(c, need, deadline);

        if (!err)
            err = conn_frame_slow(c);
        if (err)
            return err;
    }
    return TWS_OK;
}

/* ---- Control frames ---- */

static tws_err judge_control_rate(tws_conn *c)
{
    struct conn_excess e = {TWS_ERR_FLOOD, CONN_PASSED_CONTROL_RATE, 0,
                            conn_limit(c, TWS_LIMIT_CONTROL_RATE),
                            "too many pings and pongs in a second"};

    e.got = conn_rate_excess(&c->control_count, &c->control_since, e.allowed);
    return e.got ? conn_fail_limit(c, &e, TWS_CLOSE_POLICY_VIOLATION) : TWS_OK;
}

static tws_err handle_ping(tws_conn *c, const uint8_t *data, size_t len)
{
    CONN_COUNT(c->count.pings_in, 1);
    if (conn_state(c) != CONN_OPEN)
        return TWS_OK; /* closing: nothing follows our close frame */
    if (c->on_ping && !c->on_ping(c, data, len, c->ping_arg))
        return TWS_OK;
    return conn_pong(c, data, len);
}

static tws_err handle_pong(tws_conn *c, const uint8_t *data, size_t len)
{
    int64_t keepalive = 0;

    CONN_COUNT(c->count.pongs_in, 1);
    if (c->ping_sent && len == sizeof c->ping_sent && memcmp(data, &c->ping_sent, len) == 0) {
        atomic_store_explicit(&c->rtt_us, (base_clock_ns() - c->ping_sent) / 1000,
                              memory_order_relaxed);
        keepalive = c->ping_sent;
        c->ping_sent = 0;
    }
    if (atomic_load_explicit(&c->pinging, memory_order_relaxed))
        conn_pings_answer(c, data, len, keepalive);
    if (conn_state(c) == CONN_OPEN && c->on_pong)
        c->on_pong(c, data, len, c->pong_arg);
    return TWS_OK;
}

/* f's header is at the read position; waits for its payload and handles it. */
static tws_err handle_control(tws_conn *c, const struct wire_frame *f, int64_t deadline)
{
    uint32_t size = f->hlen + (uint32_t)f->len;
    tws_err err = want(c, size, deadline);
    uint8_t *data;

    if (err)
        return err;
    data = c->in.buf + c->in.rd + f->hlen;
    if (f->masked)
        wire_mask(data, f->len, f->key, 0);
    c->in.rd += size;
    c->msg.waited = 0;
    c->msg.waited_bytes = 0;
    if (f->opcode == WIRE_CLOSE)
        return conn_peer_closed(c, data, f->len);
    err = judge_control_rate(c);
    if (err)
        return err;
    err = f->opcode == WIRE_PING ? handle_ping(c, data, f->len) : handle_pong(c, data, f->len);
    if (err)
        return err;
    /* Control frames keep the line from falling silent, which is when idleness is looked at else. */
    err = conn_check_idle(c, atomic_load_explicit(&c->last_rx, memory_order_relaxed));
    if (err)
        return err;
    /* A handler may have closed the connection. */
    return conn_state(c) == CONN_OPEN || c->drop || c->rest_readable ? TWS_OK : conn_sticky(c);
}

/* ---- Data frames ---- */

/* A compressed message is measured when it is inflated. Incompressible data grows a little, and
 * blocks that stand for nothing at all must come to an end. */
static tws_err judge_size(tws_conn *c, const struct wire_frame *f)
{
    uint64_t max = conn_limit(c, TWS_LIMIT_MESSAGE);
    struct conn_excess e = {TWS_ERR_TOO_BIG, CONN_PASSED_MESSAGE, c->msg.message_len + f->len, 0,
                            "message larger than the limit"};

    if (c->drop || max == 0)
        return TWS_OK;
    if (c->msg.compressed)
        max = max > UINT64_MAX / 4 ? UINT64_MAX / 2 : max * 2 + SMALL_FRAME;
    if (f->len <= max && c->msg.message_len <= max - f->len)
        return TWS_OK;
    e.allowed = max;
    return conn_fail_limit(c, &e, TWS_CLOSE_MESSAGE_TOO_BIG);
}

/* Called for each fragment that is small. */
static tws_err judge_fragments(tws_conn *c)
{
    uint64_t most = conn_limit(c, TWS_LIMIT_FRAGMENTS);
    struct conn_excess e = {TWS_ERR_FLOOD, CONN_PASSED_FRAGMENTS, ++c->msg.small_frames, most,
                            "too many small fragments in one message"};

    if (most > 0 && e.got > most)
        return conn_fail_limit(c, &e, TWS_CLOSE_POLICY_VIOLATION);
    e.passed = CONN_PASSED_FRAGMENT_RATE;
    e.allowed = conn_limit(c, TWS_LIMIT_FRAGMENT_RATE);
    e.detail = "too many small fragments in a second";
    e.got = conn_rate_excess(&c->fragment_count, &c->fragment_since, e.allowed);
    return e.got ? conn_fail_limit(c, &e, TWS_CLOSE_POLICY_VIOLATION) : TWS_OK;
}

static tws_err begin_data(tws_conn *c, const struct wire_frame *f)
{
    struct conn_incoming *m = &c->msg;
    tws_err err;

    if (!m->in_message) {
        m->opcode = f->opcode;
        m->compressed = (f->rsv & WIRE_RSV1) != 0;
        m->message_len = 0;
        m->small_frames = 0;
        m->utf8 = (struct wire_utf8)WIRE_UTF8_INIT;
    }
    err = judge_size(c, f);
    if (!err && (m->in_message || !f->fin) && f->len < SMALL_FRAME)
        err = judge_fragments(c);
    if (err)
        return err;
    if (m->in_message || !f->fin)
        CONN_COUNT(c->count.fragments_in, 1);
    m->frame = *f;
    m->frame_done = 0;
    m->in_frame = true;
    m->in_message = true;
    c->in.rd += f->hlen;
    return TWS_OK;
}

/* Inlined into what has to be fast, where `one` is a constant. */
static inline tws_err next_header(tws_conn *c, struct wire_frame *f, bool one, int64_t deadline)
{
    const struct wire_frame_rules rules = conn_frame_rules(c);

    for (;;) {
        tws_err err;
        uint32_t len = conn_input_len(c); /* 0: there may be no buffer either */
        int n = len == 0
                    ? 0
                    : wire_frame_parse(f, c->in.buf + c->in.rd, len, &rules, c->msg.in_message);

        if (n < 0)
            return fail(c, TWS_ERR_PROTOCOL, TWS_CLOSE_PROTOCOL_ERROR,
                        wire_fault_text((enum wire_fault) - n));
        if (n == 0)
            err = want(c, conn_input_len(c) + 1, deadline);
        else if (f->opcode < WIRE_CLOSE)
            return TWS_OK;
        else
            err = handle_control(c, f, deadline);
        if (err || (one && n > 0))
            return err;
    }
}

tws_err conn_next_header(tws_conn *c, struct wire_frame *f, bool one, int64_t deadline)
{
    return next_header(c, f, one, deadline);
}

tws_err conn_next_frame(tws_conn *c, int64_t deadline)
{
    struct wire_frame f;
    tws_err err = next_header(c, &f, false, deadline);

    return err ? err : begin_data(c, &f);
}

tws_err conn_frame_payload(tws_conn *c, uint8_t *data, size_t len)
{
    struct conn_incoming *m = &c->msg;

    if (len == 0)
        return TWS_OK;
    if (m->frame.masked)
        wire_mask(data, len, m->frame.key, m->frame_done);
    m->frame_done += len;
    c->last_data = atomic_load_explicit(&c->last_rx, memory_order_relaxed);
    if (m->opcode == WIRE_TEXT && c->check_utf8 && !m->compressed &&
        !wire_utf8_feed(&m->utf8, data, len))
        return fail(c, TWS_ERR_UTF8, TWS_CLOSE_INVALID_PAYLOAD, "text is not valid UTF-8");
    return TWS_OK;
}

tws_err conn_frame_ended(tws_conn *c)
{
    struct conn_incoming *m = &c->msg;

    m->in_frame = false;
    m->waited = 0;
    m->waited_bytes = 0;
    m->message_len += m->frame.len;
    if (!m->frame.fin)
        return TWS_OK;
    m->in_message = false;
    c->last_data = atomic_load_explicit(&c->last_rx, memory_order_relaxed);
    if (m->opcode == WIRE_TEXT && c->check_utf8 && !wire_utf8_complete(&m->utf8))
        return fail(c, TWS_ERR_UTF8, TWS_CLOSE_INVALID_PAYLOAD, "text ends inside a character");
    if (!c->drop) {
        CONN_COUNT(c->count.messages_in, 1);
        CONN_COUNT(c->count.bytes_in, m->compressed ? c->deflate->inflated : m->message_len);
    }
    return TWS_OK;
}
