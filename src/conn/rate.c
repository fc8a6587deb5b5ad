/* How often, and how much: what a peer may send in a time. */
#include "conn/conn.h"

#include "base/clock.h"

/* A peer may be ahead of max_rate by so many seconds' worth. */
#define RATE_BURST_S 4

uint32_t conn_rate_excess(uint32_t *count, int64_t *since, uint64_t limit)
{
    int64_t now;

    if (limit == 0 || ++*count <= limit)
        return 0;
    now = base_clock_coarse_ns();
    if (now - *since < BASE_NS_PER_S)
        return *count;
    *since = now;
    *count = 1;
    return 0;
}

/*
 * A bucket that leaks max_rate bytes a second. It does not run dry below nothing while the reader
 * waits: a peer cannot save up silence. The time between two reads is the handler's; meanwhile bytes
 * gather in the socket that the peer was allowed to send, so that time counts in full.
 */
tws_err conn_rate_judge(tws_conn *c, size_t n, int64_t waited_from)
{
    uint64_t rate = conn_limit(c, TWS_LIMIT_RATE);
    int64_t now = atomic_load_explicit(&c->last_rx, memory_order_relaxed);
    double per_ns = (double)rate / (double)BASE_NS_PER_S;
    struct conn_excess e = {TWS_ERR_FLOOD, CONN_PASSED_RATE, 0, rate * RATE_BURST_S,
                            "too many bytes in 4 seconds"};

    c->rate_level -= (double)(now - c->rate_at) * per_ns;
    if (now > waited_from && c->rate_level < 0)
        c->rate_level = 0;
    c->rate_at = now;
    c->rate_level += (double)n;
    if (rate == 0 || c->drop || c->rate_level <= (double)rate * RATE_BURST_S)
        return TWS_OK;
    e.got = (uint64_t)c->rate_level;
    return conn_fail_limit(c, &e, TWS_CLOSE_POLICY_VIOLATION);
}
