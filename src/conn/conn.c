/* A connection's life, its options, and what is known about it. */
#include "conn/queue.h"

#include <tws/wait.h>

#include "base/clock.h"
#include "base/sized.h"
#include "conn/codec.h"
#include "net/address.h"

#include <string.h>

#define MIB (UINT64_C(1) << 20)
/* The kernel takes an int, and twice as much as it says. */
#define SOCKET_BUFFER_MAX (1u << 30)

/* ---- Life ---- */

void conn_options_init(tws_conn_options *opt)
{
    memset(opt, 0, sizeof *opt);
    opt->write_timeout = 10000;
    opt->close_timeout = 5000;
    opt->ping_interval = 30000;
    opt->ping_timeout = 20000;
    opt->max_message = 16 * MIB;
    opt->max_fragments = 65536;
    opt->max_control_rate = 5000;
    opt->min_rate = 64;
    opt->max_fragment_rate = 262144;
    opt->max_tls_updates = 64;
    opt->join_replies = true;
    tws_queue_options_init(&opt->queue);
}

static const char *negative(const tws_conn_options *c)
{
    if (c->read_timeout < TWS_NOWAIT)
        return "read_timeout is negative";
    if (c->write_timeout < TWS_NOWAIT)
        return "write_timeout is negative";
    if (c->close_timeout < 0)
        return "close_timeout is negative";
    if (c->idle_timeout < 0)
        return "idle_timeout is negative";
    if (c->ping_interval < 0)
        return "ping_interval is negative";
    return c->ping_timeout < 0 ? "ping_timeout is negative" : NULL;
}

const char *conn_options_fault(const tws_conn_options *c)
{
    if (negative(c))
        return negative(c);
    if (c->receive_buffer > SOCKET_BUFFER_MAX || c->send_buffer > SOCKET_BUFFER_MAX)
        return "receive_buffer or send_buffer is above 1 GiB";
    return conn_queue_check(&c->queue);
}

struct net_tcp conn_tcp(const tws_conn_options *c)
{
    return (struct net_tcp){.nodelay = !c->tcp_delay,
                            .receive_buffer = c->receive_buffer,
                            .send_buffer = c->send_buffer};
}

static void take_options(tws_conn *c, const tws_conn_options *opt)
{
    c->check_utf8 = !opt->no_utf8_check;
    c->join = opt->join_replies;
    c->min_rate = opt->min_rate;
    atomic_init(&c->timeouts[TWS_TIMEOUT_READ], opt->read_timeout);
    atomic_init(&c->timeouts[TWS_TIMEOUT_WRITE], opt->write_timeout);
    atomic_init(&c->timeouts[TWS_TIMEOUT_CLOSE], opt->close_timeout);
    atomic_init(&c->timeouts[TWS_TIMEOUT_IDLE], opt->idle_timeout);
    atomic_init(&c->timeouts[TWS_TIMEOUT_PING_INTERVAL], opt->ping_interval);
    atomic_init(&c->timeouts[TWS_TIMEOUT_PING], opt->ping_timeout);
    atomic_init(&c->limits[TWS_LIMIT_MESSAGE], opt->max_message);
    atomic_init(&c->limits[TWS_LIMIT_WRITE], opt->max_write);
    atomic_init(&c->limits[TWS_LIMIT_FRAGMENTS], opt->max_fragments);
    atomic_init(&c->limits[TWS_LIMIT_CONTROL_RATE], opt->max_control_rate);
    atomic_init(&c->limits[TWS_LIMIT_RATE], opt->max_rate);
    atomic_init(&c->limits[TWS_LIMIT_FRAGMENT_RATE], opt->max_fragment_rate);
    net_tls_limit_updates(&c->stream, opt->max_tls_updates);
}

static uint64_t next_id(void)
{
    static _Atomic uint64_t last; /* the one thing connections of different servers share */

    return atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}

tws_conn *conn_init(void *block, const struct conn_setup *setup, size_t area)
{
    tws_conn *c = block;

    memset(c, 0, sizeof *c);
    atomic_init(&c->refs, 1);
    c->server = setup->server;
    c->env = conn_env_ref(setup->env);
    c->stream = setup->stream;
    c->peer = setup->peer;
    c->id = next_id();
    atomic_init(&c->user, setup->user);
    take_options(c, setup->options);
    if (setup->options->handoff)
        net_stream_wakeable(&c->stream); /* if not, who hands it over waits for the next message */
    c->in.area = area > 1 ? (uint8_t *)block + setup->env->blocks.block_size - area : NULL;
    c->in.area_cap = area > 1 ? (uint32_t)area - 1 : 0;
    c->in.buf = c->in.area;
    c->in.cap = c->in.area_cap;
    c->opened = base_clock_coarse_ns();
    c->last_data = c->control_since = c->fragment_since = c->rate_at = c->opened;
    atomic_init(&c->last_rx, c->opened);
    atomic_init(&c->rtt_us, -1);
    conn_queue_options(c, &setup->options->queue);
    pthread_mutex_init(&c->mu, NULL);
    if (c->env->hold && c->join)
        c->hold = hold_slot_get(c->env->hold, c); /* without one replies are just not held */
    return c;
}

tws_conn *conn_init_client(void *block, const struct conn_setup *setup)
{
    const struct conn_env *env = setup->env;
    size_t used = sizeof(tws_conn) + sizeof(struct conn_keys);
    tws_conn *c = conn_init(block, setup, env->area_min > 0 ? env->blocks.block_size - used : 0);

    c->keys = (struct conn_keys *)(void *)((uint8_t *)block + sizeof(tws_conn));
    memset(c->keys, 0, sizeof *c->keys);
    return c;
}

bool conn_feed(tws_conn *c, const void *data, size_t len)
{
    struct conn_input *in = &c->in;

    if (len == 0)
        return true;
    if (len > in->cap) {
        uint8_t *buf;

        if (len > CONN_BUFFER - 1 || !(buf = base_pool_get(&c->env->buffers)))
            return false;
        in->buf = buf;
        in->cap = CONN_BUFFER - 1;
        in->borrowed = true;
    }
    memcpy(in->buf, data, len);
    in->rd = 0;
    in->wr = (uint32_t)len;
    atomic_store_explicit(&c->count.wire_in, len, memory_order_relaxed);
    return true;
}

static void conn_free(tws_conn *c)
{
    struct conn_env *env = c->env;

    base_dict_free(atomic_load(&c->session));
    if (c->hold)
        hold_slot_put(env->hold, c->hold);
    c->in.rd = c->in.wr;
    conn_input_release(c);
    if (c->in.kept)
        base_pool_put(&env->buffers, c->in.kept);
    conn_queue_free(c);
    conn_assembly_free(c);
    conn_deflate_free(c);
    base_free(env->allocator, c->bytes);
    base_free(env->allocator, c->subprotocol);
    base_free(env->allocator, c->handed);
    if (c->request_free)
        c->request_free(c);
    net_stream_close(&c->stream);
    pthread_mutex_destroy(&c->mu);
    base_pool_put(&env->blocks, c);
    conn_env_unref(env);
}

void conn_keep(tws_conn *c)
{
    atomic_fetch_add_explicit(&c->refs, CONN_KEEP, memory_order_relaxed);
}

void conn_drop(tws_conn *c)
{
    if (atomic_fetch_sub_explicit(&c->refs, CONN_KEEP, memory_order_acq_rel) == CONN_KEEP)
        conn_free(c);
}

tws_conn *tws_conn_ref(tws_conn *c)
{
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
    return c;
}

bool conn_try_ref(tws_conn *c)
{
    uint64_t refs = atomic_load_explicit(&c->refs, memory_order_relaxed);

    while ((uint32_t)refs > 0)
        if (atomic_compare_exchange_weak_explicit(&c->refs, &refs, refs + 1, memory_order_relaxed,
                                                  memory_order_relaxed))
            return true;
    return false;
}

/* The callers' last reference becomes one of the library's own, until the connection is cut. */
void tws_conn_unref(tws_conn *c)
{
    uint64_t refs, rest;
    bool last;

    if (!c)
        return;
    refs = atomic_load_explicit(&c->refs, memory_order_relaxed);
    do {
        last = (uint32_t)refs == 1;
        rest = last ? refs - 1 + CONN_KEEP : refs - 1;
    } while (!atomic_compare_exchange_weak_explicit(&c->refs, &refs, rest, memory_order_acq_rel,
                                                    memory_order_relaxed));
    if (!last)
        return;
    tws_abort(c);
    conn_tell_untold(c->env);
    conn_drop(c);
}

/* ---- Settings ---- */

void tws_set_ping_handler(tws_conn *c, tws_control_fn fn, void *arg)
{
    c->on_ping = fn;
    c->ping_arg = arg;
}

void tws_set_pong_handler(tws_conn *c, tws_control_fn fn, void *arg)
{
    c->on_pong = fn;
    c->pong_arg = arg;
}

void tws_set_close_handler(tws_conn *c, tws_close_fn fn, void *arg)
{
    c->on_close = fn;
    c->close_arg = arg;
}

tws_err tws_set_timeout(tws_conn *c, tws_timeout which, tws_ms value)
{
    bool nowait = which == TWS_TIMEOUT_READ || which == TWS_TIMEOUT_WRITE;

    if (which < TWS_TIMEOUT_READ || which > TWS_TIMEOUT_PING ||
        (value < 0 && !(value == TWS_NOWAIT && nowait)))
        return TWS_ERR_ARGUMENT;
    atomic_store_explicit(&c->timeouts[which], value, memory_order_relaxed);
    return TWS_OK;
}

tws_err tws_set_deadline(tws_conn *c, tws_timeout which, tws_ms ms)
{
    int64_t at = task_deadline(ms);

    if ((which != TWS_TIMEOUT_READ && which != TWS_TIMEOUT_WRITE) || ms < TWS_NOWAIT)
        return TWS_ERR_ARGUMENT;
    if (ms > 0)
        ms = at == TASK_FOREVER ? TWS_NO_LIMIT : TASK_AT(at);
    atomic_store_explicit(&c->timeouts[which], ms, memory_order_relaxed);
    return TWS_OK;
}

tws_ms tws_get_timeout(tws_conn *c, tws_timeout which)
{
    tws_ms ms;

    if (which < TWS_TIMEOUT_READ || which > TWS_TIMEOUT_PING)
        return 0;
    ms = conn_timeout(c, which);
    if (ms >= TWS_NOWAIT)
        return ms;
    ms = (task_deadline(ms) - base_clock_ns() + BASE_NS_PER_MS - 1) / BASE_NS_PER_MS;
    return ms > 0 ? ms : TWS_NOWAIT;
}

tws_err tws_set_limit(tws_conn *c, tws_limit which, uint64_t value)
{
    if (which < TWS_LIMIT_MESSAGE || which > TWS_LIMIT_FRAGMENT_RATE)
        return TWS_ERR_ARGUMENT;
    atomic_store_explicit(&c->limits[which], value, memory_order_relaxed);
    return TWS_OK;
}

void tws_conn_set_user(tws_conn *c, void *user)
{
    atomic_store(&c->user, user);
}

void *tws_conn_user(tws_conn *c)
{
    return atomic_load(&c->user);
}

/* ---- What is known ---- */

uint64_t tws_conn_id(const tws_conn *c)
{
    return c->id;
}

const tws_request *tws_conn_request(const tws_conn *c)
{
    return c->request;
}

const char *tws_conn_subprotocol(const tws_conn *c)
{
    return c->subprotocol;
}

size_t tws_conn_peer_address(const tws_conn *c, char *buf, size_t size)
{
    return net_peer_text(&c->peer, buf, size);
}

size_t tws_conn_local_address(const tws_conn *c, char *buf, size_t size)
{
    return net_local_text(c->stream.sock.fd, buf, size);
}

static uint64_t load(_Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void put_queue_stats(tws_conn *c, tws_stats *s)
{
    tws_queue_stats q;

    tws_queue_get_stats(c, &q);
    s->queue_bytes = q.bytes;
    s->queue_messages = q.messages;
    s->queue_accepted = q.accepted;
    s->queue_dropped_oldest = q.dropped_oldest;
    s->queue_dropped_newest = q.dropped_newest;
    s->queue_wait_timeouts = q.wait_timeouts;
    s->queue_overflows = q.overflows;
    s->writers_started = q.writers_started;
}

void tws_conn_stats_sized(tws_conn *c, tws_stats *out, size_t size)
{
    int64_t now = base_clock_coarse_ns();
    struct conn_counters *n = &c->count;
    tws_stats s = {
        .messages_in = load(&n->messages_in),
        .messages_out = load(&n->messages_out),
        .bytes_in = load(&n->bytes_in),
        .bytes_out = load(&n->bytes_out),
        .wire_in = load(&n->wire_in),
        .wire_out = load(&n->wire_out),
        .pings_in = load(&n->pings_in),
        .pings_out = load(&n->pings_out),
        .pongs_in = load(&n->pongs_in),
        .pongs_out = load(&n->pongs_out),
        .fragments_in = load(&n->fragments_in),
        .timeouts = load(&n->timeouts),
        .joined = load(&n->joined),
        .open_ms = (now - c->opened) / BASE_NS_PER_MS,
        .idle_ms = (now - atomic_load(&c->last_rx)) / BASE_NS_PER_MS,
        .rtt_us = atomic_load(&c->rtt_us),
    };
    tws_deflate_info d;

    if (tws_conn_deflate(c, &d)) {
        s.compressed_messages_in = d.messages_in;
        s.compressed_messages_out = d.messages_out;
        s.compressed_in = d.compressed_in;
        s.compressed_out = d.compressed_out;
        s.original_in = d.original_in;
        s.original_out = d.original_out;
    }

    put_queue_stats(c, &s);
    base_sized_give(out, size, &s, sizeof s);
}
