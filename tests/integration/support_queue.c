#include "support_queue.h"

#include "conn/queue.h"

#include <stdlib.h>
#include <sys/socket.h>

/* ---- Slow peers ---- */

void rig_narrow(struct rig *r)
{
    int small = 32768;

    setsockopt(r->conn->stream.sock.fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    setsockopt(r->client.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
}

void rig_open_queue(struct rig *r, const tws_queue_options *queue)
{
    tws_server_options opt;

    rig_options(&opt);
    opt.upgrade.conn.queue = *queue;
    rig_open(r, &opt);
    rig_narrow(r);
}

static bool queue_blocked(tws_conn *c)
{
    bool blocked;

    pthread_mutex_lock(&c->mu);
    blocked = conn_queue(c) && conn_queue(c)->blocked;
    pthread_mutex_unlock(&c->mu);
    return blocked;
}

int rig_fill(struct rig *r, size_t len)
{
    uint8_t *data = support_alloc(len);
    int n = 0;

    while (!queue_blocked(r->conn)) {
        if (queue_stats(r->conn).messages > 0) {
            support_pause_ms(1);
            continue;
        }
        numbered_fill(data, len, (uint32_t)n++);
        assert_ok(tws_write_async(r->conn, TWS_BINARY, data, len, NULL, NULL));
    }
    free(data);
    return n;
}

tws_queue_stats queue_stats(tws_conn *c)
{
    tws_queue_stats s;

    tws_queue_get_stats(c, &s);
    return s;
}

/* ---- Messages ---- */

void numbered_fill(uint8_t *buf, size_t len, uint32_t number)
{
    assert_true(len >= sizeof number);
    memcpy(buf, &number, sizeof number);
    support_fill(buf + sizeof number, len - sizeof number, number);
}

uint32_t numbered_check(const uint8_t *data, size_t len)
{
    uint32_t number;

    assert_true(len >= sizeof number);
    memcpy(&number, data, sizeof number);
    assert_true(support_filled(data + sizeof number, len - sizeof number, number));
    return number;
}

/* ---- Callbacks ---- */

void tally_init(struct tally *t, size_t count)
{
    memset(t, 0, sizeof *t);
    t->count = count;
    t->calls = calloc(count, sizeof *t->calls);
    t->results = calloc(count, sizeof *t->results);
    t->tickets = calloc(count, sizeof *t->tickets);
    assert_true(t->calls && t->results && t->tickets);
    for (size_t i = 0; i < count; i++)
        t->tickets[i] = (struct ticket){t, (uint32_t)i};
    pthread_mutex_init(&t->lock, NULL);
}

void tally_done(tws_conn *c, tws_err result, void *ticket)
{
    struct ticket *k = ticket;
    struct tally *t = k->tally;

    (void)c;
    pthread_mutex_lock(&t->lock);
    atomic_fetch_add(&t->calls[k->number], 1);
    atomic_store(&t->results[k->number], result);
    if (k->number < atomic_load(&t->next))
        atomic_fetch_add(&t->out_of_order, 1);
    atomic_store(&t->next, k->number + 1);
    if (result == TWS_OK)
        atomic_fetch_add(&t->results_ok, 1);
    atomic_fetch_add(&t->total, 1);
    pthread_mutex_unlock(&t->lock);
}

void tally_assert_once(struct tally *t, size_t n)
{
    WAIT_FOR(atomic_load(&t->total) >= n);
    pthread_mutex_lock(&t->lock); /* the last callback has let it go */
    pthread_mutex_unlock(&t->lock);
    for (size_t i = 0; i < t->count; i++)
        assert_int_equal(atomic_load(&t->calls[i]), i < n ? 1 : 0);
}

void tally_free(struct tally *t)
{
    pthread_mutex_destroy(&t->lock);
    free((void *)t->calls);
    free((void *)t->results);
    free(t->tickets);
}

/* ---- Messages on their way ---- */

void numbered_send(tws_conn *c, struct tally *t, uint32_t number, size_t len)
{
    uint8_t *data = support_alloc(len);

    numbered_fill(data, len, number);
    assert_ok(tws_write_async(c, TWS_BINARY, data, len, t ? tally_done : NULL,
                              t ? &t->tickets[number] : NULL));
    free(data);
}

void numbered_expect(struct client *c, uint32_t number, size_t len)
{
    struct client_frame f;

    assert_true(client_next(c, &f));
    assert_int_equal(f.opcode, CLIENT_BINARY);
    assert_int_equal(f.len, len);
    assert_int_equal(numbered_check(f.data, f.len), number);
}
