#include "result.h"

#include <stdarg.h>
#include <stdio.h>

#include "clock.h"

/* A load thread that runs for this share of the time has nothing to spare. */
#define BUSY_PERCENT 95.0

const char *result_status(const struct result *r)
{
    static const char *const names[] = {"ok", "interrupted", "failed"};
    return names[r->status];
}

const char *result_matching(const struct result *r)
{
    unsigned stamp = r->run->bodies.stamp;
    return stamp == STAMP_FULL ? "stamp" : stamp == STAMP_SHORT ? "sequence" : "order";
}

const char *result_mode(const struct result *r)
{
    const struct options *o = r->run->opt;
    return o->connect_only ? "connect-only" : o->broadcast ? "broadcast" : "echo";
}

static uint64_t diff(const counter *to, const counter *from)
{
    return counter_get(to) - counter_get(from);
}

bool result_window(const struct sample *from, const struct sample *to, struct window *w)
{
    *w = (struct window){.seconds = 0};
    if (from->at == 0 || to->at < from->at + NS_PER_MS)
        return false;
    w->seconds = (double)(to->at - from->at) / 1e9;
    w->start_unix = from->unix_time;
    w->end_unix = to->unix_time;
    w->bytes_up = diff(&to->stats.bytes_up, &from->stats.bytes_up);
    w->bytes_down = diff(&to->stats.bytes_down, &from->stats.bytes_down);
    w->payload_up = diff(&to->stats.payload_up, &from->stats.payload_up);
    w->payload_down = diff(&to->stats.payload_down, &from->stats.payload_down);
    w->sent = diff(&to->stats.sent, &from->stats.sent);
    w->received = diff(&to->stats.received, &from->stats.received);
    uint64_t cpu = to->user_ns + to->system_ns - from->user_ns - from->system_ns;
    w->cpu_percent = (double)cpu / 1e7 / w->seconds;
    return true;
}

uint64_t result_lost(const struct result *r)
{
    const struct stats *s = &r->final.stats;
    uint64_t have = counter_get(&s->received) + counter_get(&s->in_flight);
    uint64_t due = counter_get(&s->expected);
    return due > have ? due - have : 0;
}

uint64_t result_unsent(const struct result *r)
{
    const struct stats *s = &r->final.stats;
    uint64_t scheduled = counter_get(&s->scheduled), sent = counter_get(&s->sent);
    return scheduled > sent ? scheduled - sent : 0;
}

double result_open_time(const struct result *r)
{
    uint64_t last = counter_get(&r->final.stats.last_open_ns);
    return last > r->run->t0 ? (double)(last - r->run->t0) / 1e9 : 0;
}

static bool has_steady(const struct result *r)
{
    return r->steady.at != 0 && r->stop.at >= r->steady.at + NS_PER_MS;
}

double result_thread_percent(const struct result *r, unsigned thread)
{
    if (!has_steady(r))
        return -1;
    uint64_t cpu = r->stop.thread_ns[thread] - r->steady.thread_ns[thread];
    return (double)cpu * 100 / (double)(r->stop.at - r->steady.at);
}

double result_thread_wait(const struct result *r, unsigned thread)
{
    if (!has_steady(r) || r->stop.wait_ns[thread] == UINT64_MAX ||
        r->steady.wait_ns[thread] == UINT64_MAX)
        return -1;
    uint64_t wait = r->stop.wait_ns[thread] - r->steady.wait_ns[thread];
    return (double)wait * 100 / (double)(r->stop.at - r->steady.at);
}

__attribute__((format(printf, 2, 3))) static void blame(struct result *r, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(r->bottleneck_reason, sizeof r->bottleneck_reason, format, args);
    va_end(args);
    r->bottleneck = true;
}

void result_judge(struct result *r)
{
    const struct options *o = r->run->opt;
    double busiest = -1, starved = -1;
    for (unsigned i = 0; i < r->run->worker_count; i++) {
        double cpu = result_thread_percent(r, i), wait = result_thread_wait(r, i);
        busiest = cpu > busiest ? cpu : busiest;
        starved = wait > starved ? wait : starved;
    }
    r->bottleneck = false;
    r->bottleneck_reason[0] = '\0';
    if (busiest < 0)
        return;
    /* Open loop: being busy is no fault as long as the schedule is kept. */
    double lag_ms = (double)hist_quantile(&r->final.stats.lag[WHEN_STEADY], 0.99) / 1e6;
    if (o->rate > 0 && lag_ms > o->lag_limit) {
        if (busiest >= BUSY_PERCENT)
            blame(r, "messages left late (p99 of the lag %.1f ms): a load thread used a whole core",
                  lag_ms);
        else if (starved >= 10)
            blame(r, "messages left late (p99 of the lag %.1f ms): load threads waited for a core",
                  lag_ms);
        else
            blame(r, "messages left late (p99 of the lag %.1f ms)", lag_ms);
    } else if (o->rate == 0 && busiest >= BUSY_PERCENT) {
        blame(r, "a load thread was busy for %.0f %% of a core", busiest);
    }
}
