#include "sample.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>

#include "clock.h"
#include "worker.h"

static uint64_t timeval_ns(const struct timeval *t)
{
    return (uint64_t)t->tv_sec * NS_PER_S + (uint64_t)t->tv_usec * 1000;
}

static uint64_t read_wait(int tid)
{
    char path[64];
    uint64_t ran, waited;
    snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", tid);
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return UINT64_MAX;
    if (fscanf(f, "%" SCNu64 " %" SCNu64, &ran, &waited) != 2)
        waited = UINT64_MAX;
    fclose(f);
    return waited;
}

void sample_take(struct sample *s, const struct run *r)
{
    struct rusage usage;
    run_stats(r, &s->stats);
    s->at = clock_ns();
    s->unix_time = clock_wall();
    if (getrusage(RUSAGE_SELF, &usage) == 0) {
        s->user_ns = timeval_ns(&usage.ru_utime);
        s->system_ns = timeval_ns(&usage.ru_stime);
    }
    for (unsigned i = 0; i < r->worker_count; i++) {
        s->thread_ns[i] = clock_read(r->workers[i].cpu_clock);
        s->wait_ns[i] = read_wait(atomic_load(&r->workers[i].tid));
    }
}
