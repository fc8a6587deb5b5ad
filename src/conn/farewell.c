/* The peer's close frame, when writing fails before anybody has read it. */
#include "conn/conn.h"

#include "base/clock.h"
#include "conn/watch.h"
#include "wire/close.h"
#include "wire/mask.h"

#include <string.h>

/* What nobody has read is gone through for that frame so far, when a handler has returned. */
#define REST_MAX (1 << 20)
#define REST_NS BASE_NS_PER_S

static void take_payload(const uint8_t *at, const struct wire_frame *f, struct conn_farewell *out)
{
    uint8_t payload[WIRE_CONTROL_MAX];
    const uint8_t *reason;
    size_t len;

    if (f->len > 0)
        memcpy(payload, at, f->len);
    if (f->masked)
        wire_mask(payload, f->len, f->key, 0);
    if (wire_close_parse(payload, f->len, &out->code, &reason, &len) != 0)
        return;
    out->found = true;
    out->reason_len = (uint8_t)len;
    if (len > 0)
        memcpy(out->reason, reason, len);
}

/* Goes through what stands in the input, taking nothing. True: more of it is needed. */
static bool scan(const tws_conn *c, struct conn_farewell *out)
{
    const struct wire_frame_rules rules = conn_frame_rules(c);
    const struct conn_incoming *m = &c->msg;
    uint64_t at = m->in_place ? m->frame_done : m->clear;
    bool inside = m->in_message;

    if (m->in_frame) {
        at += m->frame.len - m->frame_done;
        inside = !m->frame.fin;
    }
    while (at < conn_input_len(c)) {
        const uint8_t *head = c->in.buf + c->in.rd + at;
        uint64_t have = conn_input_len(c) - at;
        struct wire_frame f;
        int n = wire_frame_parse(&f, head, have, &rules, inside);

        if (n < 0)
            return false;
        if (n == 0 || f.len > have - f.hlen)
            break;
        if (f.opcode == WIRE_CLOSE) {
            out->cut = inside;
            take_payload(head + f.hlen, &f, out);
            return false;
        }
        if (f.opcode < WIRE_CLOSE)
            inside = !f.fin;
        at += f.hlen + f.len;
    }
    return at < CONN_BUFFER;
}

void conn_farewell_look(tws_conn *c, struct conn_farewell *out)
{
    uintptr_t before;
    bool mine;

    pthread_mutex_lock(&c->mu);
    mine = conn_state(c) != CONN_ENDED && conn_pump_begin_locked(c, &before);
    pthread_mutex_unlock(&c->mu);
    if (!mine) /* whoever reads finds it */
        return;
    c->drop = true; /* the message that was shown last stays where it is */
    if (conn_input_keep_view(c)) {
        conn_input_restore(c);
        while (scan(c, out) && conn_input_more(c)) {
        }
    }
    c->drop = false;
    conn_pump_end(c, before);
}

void conn_farewell_read(tws_conn *c)
{
    bool expected = false;
    uintptr_t reader = atomic_load(&c->reader);
    uint64_t most = atomic_load_explicit(&c->count.wire_in, memory_order_relaxed) + REST_MAX;
    int64_t deadline = base_clock_ns() + REST_NS;

    /* The thread that read last may still look at what it was shown. */
    if (!c->rest_readable || (reader != 0 && reader != task_self()) || c->peer_closed ||
        !atomic_compare_exchange_strong(&c->reading, &expected, true))
        return;
    atomic_store(&c->reader, task_self());
    conn_input_restore(c);
    c->in.late = 0;
    c->drop = true;
    while (atomic_load_explicit(&c->count.wire_in, memory_order_relaxed) < most &&
           conn_skip_message(c, deadline) == TWS_OK) {
    }
    c->drop = false;
    conn_reader_leave(c);
}
