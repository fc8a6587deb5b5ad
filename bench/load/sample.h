#ifndef LOAD_SAMPLE_H
#define LOAD_SAMPLE_H

#include "run.h"

enum { THREADS_MAX = 64 };

/* All counters and clocks at one moment. */
struct sample {
    uint64_t at; /* monotonic; 0 = never taken */
    double unix_time;
    uint64_t user_ns, system_ns; /* CPU of the whole process */
    uint64_t thread_ns[THREADS_MAX];
    uint64_t wait_ns[THREADS_MAX]; /* ready to run, but without a core; UINT64_MAX = unknown */
    struct stats stats;
};

void sample_take(struct sample *s, const struct run *r);

#endif
