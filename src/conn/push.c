/* Sending from the queue, by the thread that has the writer's role. */
#include "conn/queue.h"

#include "base/clock.h"
#include "wire/mask.h"

#include <errno.h>
#include <string.h>

/* Messages that go into one system call. */
#define PUSH_ITEMS 16

/* ---- Frames ---- */

/* A prepared message leaves in a form that it shares with other connections. */
static void encode_prepared(tws_conn *c, struct queue_item *it)
{
    struct prepared_frame f;

    conn_prepared_frame(c, it->prepared, &f);
    it->iov[0] = f.iov[0];
    it->iov[1] = f.iov[1];
    it->iov_count = f.count;
    it->compressed = f.compressed;
    it->fresh = f.compressed > 0;
}

static tws_err encode_own(tws_conn *c, struct queue_item *it)
{
    struct wire_frame f = {.opcode = it->opcode, .fin = true, .len = it->len};
    struct iovec raw = {.iov_base = (void *)(uintptr_t)it->payload, .iov_len = it->len};
    uint8_t *payload = raw.iov_base;

    f.masked = !c->server;
    if (f.masked && !conn_mask_key(c, f.key))
        return TWS_ERR_SYSTEM;
    /* Without memory to compress with, it leaves as it is. */
    if (conn_deflate_wanted(c, (tws_compression)it->mode, it->len) &&
        conn_deflate_message(c, &raw, 1, &it->deflated) == TWS_OK && it->deflated.data) {
        payload = it->deflated.data;
        f.len = it->deflated.len;
        f.rsv = WIRE_RSV1;
        it->bound = conn_deflate_ordered(c);
    }
    if (f.masked)
        wire_mask(payload, f.len, f.key, 0);
    it->iov[0].iov_base = it->header;
    it->iov[0].iov_len = wire_frame_write(it->header, &f);
    it->iov[1].iov_base = payload;
    it->iov[1].iov_len = f.len;
    it->iov_count = f.len > 0 ? 2 : 1;
    return TWS_OK;
}

static tws_err encode(tws_conn *c, struct queue_item *it)
{
    tws_err err = TWS_OK;

    if (it->encoded)
        return TWS_OK;
    if (it->prepared)
        encode_prepared(c, it);
    else
        err = encode_own(c, it);
    it->encoded = !err;
    return err;
}

/* ---- One system call ---- */

struct batch {
    struct queue_item *items[PUSH_ITEMS];
    int count;
    bool begun; /* the first is half sent: before what is in `out` */
};

static int gather_item(struct iovec *to, const struct queue_item *it)
{
    memcpy(to, it->iov, (size_t)it->iov_count * sizeof *to);
    return it->iov_count;
}

/* mu is not held. Bytes taken, or -errno. */
static ssize_t send_batch(tws_conn *c, const struct batch *b)
{
    struct iovec iov[2 * PUSH_ITEMS + 1];
    int n = 0, first = 0;

    if (b->begun)
        n += gather_item(iov, b->items[first++]);
    if (conn_out_len(c) > 0)
        iov[n++] = (struct iovec){.iov_base = c->out + c->out_begin, .iov_len = conn_out_len(c)};
    for (int i = first; i < b->count; i++)
        n += gather_item(iov + n, b->items[i]);
    return n > 0 ? net_stream_send(&c->stream, iov, n) : 0;
}

/* Takes sent bytes off an item. What is left of them. */
static size_t item_sent(struct queue_item *it, size_t n)
{
    while (it->iov_count > 0 && n >= it->iov[0].iov_len) {
        n -= it->iov[0].iov_len;
        it->iov[0] = it->iov[1];
        it->iov_count--;
        it->begun = true;
    }
    if (it->iov_count == 0 || n == 0)
        return n;
    it->begun = true;
    it->iov[0].iov_base = (uint8_t *)it->iov[0].iov_base + n;
    it->iov[0].iov_len -= n;
    return 0;
}

static void batch_sent(tws_conn *c, const struct batch *b, size_t n)
{
    int first = 0;
    uint32_t out;

    CONN_COUNT(c->count.wire_out, n);
    if (b->begun)
        n = item_sent(b->items[first++], n);
    out = n < conn_out_len(c) ? (uint32_t)n : conn_out_len(c);
    if (out > 0)
        conn_out_sent(c, out);
    n -= out;
    for (int i = first; i < b->count && n > 0; i++)
        n = item_sent(b->items[i], n);
}

/* A whole message has left. */
static void count_item(tws_conn *c, struct queue_item *it)
{
    CONN_COUNT(c->count.messages_out, 1);
    CONN_COUNT(c->count.bytes_out, it->len);
    if (it->compressed > 0) {
        struct conn_deflated d = {.len = it->compressed, .original = it->len};

        conn_deflate_count(c, &d);
    } else if (it->deflated.data) {
        conn_deflate_count(c, &it->deflated);
    }
    if (it->fresh)
        conn_deflate_reset(c);
}

/* ---- Rounds ---- */

bool conn_queue_ready_locked(const tws_conn *c)
{
    const struct conn_queue *q = conn_queue(c);

    if (!q || !q->head || conn_state(c) == CONN_ENDED)
        return false;
    return q->head->begun || !c->writer;
}

static void pick_locked(const tws_conn *c, struct batch *b, bool begun_only)
{
    struct queue_item *it = conn_queue(c)->head;
    int max = conn_deflate_ordered(c) ? 1 : PUSH_ITEMS;

    b->count = 0;
    b->begun = it && it->begun;
    if (!conn_queue_ready_locked(c))
        return;
    if (begun_only)
        max = b->begun ? 1 : 0;
    for (; it && b->count < max; it = it->next)
        b->items[b->count++] = it;
}

/* Encodes what was picked; if one cannot be, only those before it are sent. */
static tws_err encode_batch(tws_conn *c, struct batch *b)
{
    for (int i = 0; i < b->count; i++) {
        tws_err err = encode(c, b->items[i]);

        if (err && i == 0)
            return err;
        if (err)
            b->count = i;
    }
    return TWS_OK;
}

/* A message that cannot be made into a frame: somebody has to be told. */
static void refuse_head_locked(tws_conn *c, tws_err err)
{
    struct conn_cause cause = {TWS_ERR_RESOURCE, TWS_PHASE_WRITE, TWS_CAUSE_LOCAL, 0,
                               "a queued message could not be encoded"};
    bool unheard = !conn_queue(c)->head->done && !conn_queue(c)->head->on_stack;

    conn_queue_pop_locked(c, err);
    if (unheard)
        conn_end_locked(c, &cause);
}

/* One system call's worth. mu is held, but not meanwhile. Bytes taken, or -errno. */
static ssize_t round_locked(tws_conn *c, struct batch *b)
{
    struct conn_queue *q = conn_queue(c);
    ssize_t n = 0;
    tws_err err;

    q->in_hand = (uint32_t)b->count;
    q->firm = b->count > 0 && (b->items[0]->begun || b->items[0]->bound);
    pthread_mutex_unlock(&c->mu);
    err = encode_batch(c, b);
    if (!err)
        n = send_batch(c, b);
    if (n > 0)
        batch_sent(c, b, (size_t)n);
    for (int i = 0; i < b->count && !err && b->items[i]->iov_count == 0; i++)
        count_item(c, b->items[i]);
    pthread_mutex_lock(&c->mu);
    q->in_hand = 0;
    task_queue_wake_all(&q->changed);
    if (err)
        refuse_head_locked(c, err);
    if (n > 0)
        q->blocked_since = 0;
    while (q->head && q->head->encoded && q->head->iov_count == 0)
        conn_queue_pop_locked(c, TWS_OK);
    return n;
}

enum queue_push conn_queue_push_locked(tws_conn *c, int rounds, bool begun_only)
{
    for (;;) {
        struct batch b;
        ssize_t n;

        if (conn_state(c) == CONN_ENDED) {
            conn_queue_end_locked(c); /* what was in hand when it ended */
            return QUEUE_OVER;
        }
        conn_queue_wanted_locked(c);
        pick_locked(c, &b, begun_only);
        if (b.count == 0 && conn_out_len(c) == 0)
            return QUEUE_EMPTY;
        if (rounds-- == 0)
            return QUEUE_MORE;
        n = round_locked(c, &b);
        if (n == -EAGAIN && conn_state(c) != CONN_ENDED)
            return QUEUE_FULL;
        if (n < 0 && n != -EAGAIN) {
            pthread_mutex_unlock(&c->mu);
            conn_io_failed(c, TWS_PHASE_WRITE, (int)n);
            pthread_mutex_lock(&c->mu);
        }
    }
}

/* ---- Waiting for the peer ---- */

/* Bytes that have reached the peer's system, give or take what TLS adds. */
static int64_t acknowledged(tws_conn *c)
{
    return (int64_t)atomic_load_explicit(&c->count.wire_out, memory_order_relaxed) -
           net_stream_unsent(&c->stream);
}

bool conn_queue_progress(tws_conn *c, int64_t *mark)
{
    int64_t now = acknowledged(c);
    bool more = now > *mark;

    *mark = now;
    return more;
}

tws_err conn_queue_room_locked(tws_conn *c, int64_t deadline)
{
    struct conn_queue *q = conn_queue(c);
    int r;

    q->blocked = true;
    if (q->blocked_since == 0)
        q->blocked_since = base_clock_coarse_ns();
    task_queue_wake_all(&c->turns); /* those who do not wait for a blocked writer */
    pthread_mutex_unlock(&c->mu);
    r = net_stream_await_send(&c->stream, deadline);
    pthread_mutex_lock(&c->mu);
    q->blocked = false;
    if (conn_state(c) == CONN_ENDED) {
        conn_queue_end_locked(c);
        return conn_sticky_locked(c);
    }
    if (r == -ETIMEDOUT)
        return TWS_ERR_TIMEOUT;
    if (r == 0)
        return TWS_OK;
    pthread_mutex_unlock(&c->mu);
    conn_io_failed(c, TWS_PHASE_WRITE, r);
    pthread_mutex_lock(&c->mu);
    return conn_sticky_locked(c);
}
