/*
 * A second thread beside the first of a run: it writes, changes settings and looks, and ends the
 * connection now and then. Its messages carry their number.
 */
#include "support_model.h"

#include <sched.h>
#include <stdlib.h>

#define HEAD 12

static const char magic[] = "\xff"
                            "beside\xff";

static uint32_t draw(struct beside *b, uint32_t below)
{
    b->random = b->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((b->random >> 33) % below);
}

static size_t payload(uint8_t *buf, uint32_t number)
{
    size_t len = HEAD + number * 7919 % 9000;

    memcpy(buf, magic, 8);
    memcpy(buf + 8, &number, sizeof number);
    for (size_t i = HEAD; i < len; i++)
        buf[i] = (uint8_t)(number * 31 + i * (number & 7));
    return len;
}

bool model_is_beside(struct model *m, unsigned opcode, const uint8_t *data, size_t len)
{
    uint8_t *expected;
    uint32_t number;

    if (opcode != TWS_BINARY || len < HEAD || memcmp(data, magic, 8) != 0)
        return false;
    expected = support_alloc(HEAD + 9000);
    memcpy(&number, data + 8, sizeof number);
    if (number >= BESIDE_MESSAGES || (int64_t)number <= m->beside_last ||
        payload(expected, number) != len || memcmp(expected, data, len) != 0)
        model_wrong(m, "the second thread's messages have changed, or their order has");
    else
        m->beside_seen[number] = true;
    m->beside_last = number;
    free(expected);
    return true;
}

static void on_told(tws_conn *c, tws_err result, void *arg)
{
    struct beside_message *one = arg;

    (void)c;
    atomic_store(&one->result, (int)result);
    atomic_fetch_add(&one->told, 1);
}

static tws_err in_pieces(struct beside *b, const uint8_t *data, size_t len)
{
    tws_writer *w;
    tws_err err = tws_next_writer(b->c, TWS_BINARY, &w), end;

    if (err)
        return err;
    for (size_t done = 0, n; done < len && !err; done += n) {
        n = 1 + draw(b, (uint32_t)(len - done));
        err = tws_writer_write(w, data + done, n);
    }
    end = tws_writer_close(w);
    return err ? err : end;
}

static void write_one(struct beside *b)
{
    uint8_t *buf = support_alloc(HEAD + 9000);
    size_t len = payload(buf, b->count);
    struct beside_message *one = &b->messages[b->count++];
    tws_prepared *p = NULL;
    tws_err err = TWS_ERR_MEMORY;

    switch (draw(b, 5)) {
    case 0:
        err = tws_write_message_within(b->c, TWS_BINARY, buf, len, TWS_NOWAIT);
        break;
    case 1:
        err = in_pieces(b, buf, len);
        break;
    case 2:
        one->wants_told = true;
        err = tws_write_async(b->c, TWS_BINARY, buf, len, on_told, one);
        break;
    case 3:
        one->unknown = true; /* whether it was dropped */
        err = tws_write_async(b->c, TWS_BINARY, buf, len, NULL, NULL);
        break;
    default:
        one->wants_told = true;
        if (tws_prepared_new(&p, TWS_BINARY, buf, len) == TWS_OK)
            err = tws_write_prepared_async(b->c, p, on_told, one);
        tws_prepared_unref(p);
    }
    one->wants_told = one->wants_told && !err;
    one->refused = err != TWS_OK;
    memset(buf, 0xee, len); /* it is needed no more */
    free(buf);
}

static void set_queue(struct beside *b)
{
    tws_queue_options o;

    tws_get_queue(b->c, &o);
    o.size = sizeof o;
    o.wait = TWS_NOWAIT;
    o.policy = (tws_queue_policy)(1 + draw(b, 3));
    o.writer = (tws_writer_mode)draw(b, 3);
    tws_set_queue(b->c, &o);
}

static void look(struct beside *b)
{
    tws_queue_stats q;
    tws_error e;
    tws_stats s;

    tws_conn_error(b->c, &e);
    tws_conn_stats(b->c, &s);
    tws_queue_get_stats(b->c, &q);
    if (q.accepted != q.messages + q.sent + q.failed + q.dropped_oldest)
        b->wrong = "a queue's numbers do not add up";
}

static void beside_main(void *arg)
{
    struct beside *b = arg;

    while (!atomic_load(&b->stop) && b->count < BESIDE_MESSAGES) {
        uint32_t what = draw(b, 100);

        if (what < 40)
            write_one(b);
        else if (what < 60)
            set_queue(b);
        else if (what < 70)
            tws_ping(b->c, "beside", 6);
        else if (what < 80)
            tws_queue_wait(b->c, TWS_NOWAIT);
        else if (what < 85)
            tws_set_compression(b->c, (tws_compression)draw(b, 3));
        else if (what < 90)
            tws_flush(b->c);
        else
            look(b);
        if (draw(b, 4000) == 0)
            tws_close_start(b->c, 1000, NULL);
        else if (draw(b, 4000) == 0)
            tws_abort(b->c);
        sched_yield();
    }
}

void beside_start(struct beside *b, struct run *r, uint64_t seed)
{
    memset(b, 0, sizeof *b);
    b->c = r->m.c;
    b->random = seed * 77;
    r->others = true;
    job_start(&b->job, &r->m.pair, beside_main, b);
}

bool beside_told(const struct beside *b)
{
    for (uint32_t i = 0; i < b->count; i++)
        if (atomic_load(&b->messages[i].told) != b->messages[i].wants_told)
            return false;
    return true;
}

void beside_compare(const struct beside *b, struct model *m)
{
    if (b->wrong)
        model_wrong(m, b->wrong);
    for (uint32_t i = 0; i < b->count; i++) {
        const struct beside_message *one = &b->messages[i];
        bool left = one->wants_told ? atomic_load(&one->result) == TWS_OK : !one->refused;

        if (left && !one->unknown && !m->beside_seen[i])
            model_wrong(m, "what the second thread wrote has not come");
        if (!left && m->beside_seen[i])
            model_wrong(m, "what the second thread did not write has come");
    }
}
