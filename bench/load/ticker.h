#ifndef LOAD_TICKER_H
#define LOAD_TICKER_H

#include <pthread.h>

#include "run.h"

enum { TICK_QUANTILES = 6 };
extern const double tick_quantiles[TICK_QUANTILES];
extern const char *const tick_quantile_names[TICK_QUANTILES];

/* What happened in the last second: for the progress line and the metrics. */
struct tick {
    bool has_latency;
    uint64_t latency_ns[TICK_QUANTILES];
    uint64_t lag_ns; /* the worst */
    double mbps_up, mbps_down, received_per_s;
};

struct ticker {
    const struct run *run;
    uint64_t last;
    bool progress;
    struct stats *now, *before, *difference;
    pthread_mutex_t lock; /* guards `latest` */
    struct tick latest;
};

int ticker_init(struct ticker *t, const struct run *r, bool progress);
void ticker_clear(struct ticker *t);
/* Called by the main thread, about once a second. */
void ticker_tick(struct ticker *t);
void ticker_read(struct ticker *t, struct tick *out);
/* Ends the progress line, if there is one. */
void ticker_finish(struct ticker *t);

#endif
