#include "sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "clock.h"
#include "worker.h"

static uint64_t timeval_ns(const struct timeval *t)
{
    return (uint64_t)t->tv_sec * NS_PER_S + (uint64_t)t->tv_usec * 1000;
}

/* Second number of schedstat: nanoseconds on a run queue. */
static uint64_t read_wait(int tid)
{
    char path[64], line[128], *end;
    uint64_t waited = UINT64_MAX;
    snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", tid);
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return waited;
    if (fgets(line, sizeof line, f) != NULL) {
        strtoull(line, &end, 10);
        if (end != line && *end == ' ')
            waited = strtoull(end, NULL, 10);
    }
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
