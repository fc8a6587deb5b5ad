#include "run.h"

#include <string.h>

#include "worker.h"

const char *phase_name(enum phase p)
{
    static const char *const names[] = {"connect", "warmup", "steady", "drain", "close", "end"};
    return names[p];
}

void run_set_phase(struct run *r, enum phase p)
{
    atomic_store_explicit(&r->phase, p, memory_order_release);
    for (unsigned i = 0; i < r->worker_count; i++)
        worker_wake(&r->workers[i]);
}

void run_stats(const struct run *r, struct stats *out)
{
    memset(out, 0, sizeof *out);
    for (unsigned i = 0; i < r->worker_count; i++)
        stats_merge(out, r->workers[i].stats);
}

bool run_drained(const struct run *r)
{
    uint64_t due = 0, done = 0, waiting = 0;
    for (unsigned i = 0; i < r->worker_count; i++) {
        const struct stats *s = r->workers[i].stats;
        due += counter_get(&s->expected);
        done += counter_get(&s->received) + counter_get(&s->written_off);
        waiting += counter_get(&s->behind) + counter_get(&s->queued);
        waiting += counter_get(&s->begun) > counter_get(&s->sent);
    }
    return done >= due && waiting == 0;
}
