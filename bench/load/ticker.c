#include "ticker.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"

const double tick_quantiles[TICK_QUANTILES] = {0.5, 0.9, 0.99, 0.999, 0.9999, 1};
const char *const tick_quantile_names[TICK_QUANTILES] = {"0.5",   "0.9",    "0.99",
                                                         "0.999", "0.9999", "1"};

int ticker_init(struct ticker *t, const struct run *r, bool progress)
{
    *t = (struct ticker){.run = r, .progress = progress, .last = clock_ns()};
    t->now = calloc(1, sizeof *t->now);
    t->before = calloc(1, sizeof *t->before);
    t->difference = calloc(1, sizeof *t->difference);
    pthread_mutex_init(&t->lock, NULL);
    return t->now != NULL && t->before != NULL && t->difference != NULL ? 0 : -1;
}

void ticker_clear(struct ticker *t)
{
    free(t->now);
    free(t->before);
    free(t->difference);
    pthread_mutex_destroy(&t->lock);
}

/* Both parts of a histogram in [0] of each. */
static void last_second(struct hist *out, struct hist now[WHEN_COUNT],
                        struct hist before[WHEN_COUNT])
{
    hist_merge(&now[0], &now[1]);
    hist_difference(out, &now[0], &before[0]);
}

static void print_progress(const struct ticker *t, const struct tick *k)
{
    const struct stats *s = t->now;
    double elapsed = (double)(clock_ns() - t->run->t0) / 1e9;
    fprintf(stderr, "\r%6.1f s  %-7s open %" PRIu64 "  up %.1f down %.1f Mbit/s  %.0f msg/s",
            elapsed, phase_name((enum phase)atomic_load(&t->run->phase)), counter_get(&s->open_now),
            k->mbps_up, k->mbps_down, k->received_per_s);
    if (k->has_latency)
        fprintf(stderr, "  p50 %.2f p99 %.2f ms", (double)k->latency_ns[0] / 1e6,
                (double)k->latency_ns[2] / 1e6);
    fprintf(stderr, "  errors %" PRIu64 "\033[K", stats_error_total(s));
    fflush(stderr);
}

void ticker_tick(struct ticker *t)
{
    struct tick k = {.has_latency = false};
    uint64_t now = clock_ns();
    double seconds = (double)(now - t->last) / 1e9;
    struct stats *d = t->difference;
    t->last = now;
    run_stats(t->run, t->now);
    k.mbps_up = (double)(counter_get(&t->now->bytes_up) - counter_get(&t->before->bytes_up)) * 8 /
                1e6 / seconds;
    k.mbps_down = (double)(counter_get(&t->now->bytes_down) - counter_get(&t->before->bytes_down)) *
                  8 / 1e6 / seconds;
    k.received_per_s =
        (double)(counter_get(&t->now->received) - counter_get(&t->before->received)) / seconds;
    last_second(&d->latency[0], t->now->latency, t->before->latency);
    last_second(&d->lag[0], t->now->lag, t->before->lag);
    k.has_latency = hist_count(&d->latency[0]) != 0;
    for (int i = 0; i < TICK_QUANTILES; i++)
        k.latency_ns[i] = hist_quantile(&d->latency[0], tick_quantiles[i]);
    k.lag_ns = hist_max(&d->lag[0]);
    pthread_mutex_lock(&t->lock);
    t->latest = k;
    pthread_mutex_unlock(&t->lock);
    if (t->progress)
        print_progress(t, &k);
    struct stats *swap = t->before;
    t->before = t->now;
    t->now = swap;
}

void ticker_read(struct ticker *t, struct tick *out)
{
    pthread_mutex_lock(&t->lock);
    *out = t->latest;
    pthread_mutex_unlock(&t->lock);
}

void ticker_finish(struct ticker *t)
{
    if (t->progress)
        fputc('\n', stderr);
}
