/* When a carrier looks for events again. */
#include "task/light/light.h"

#include "base/clock.h"

#include <time.h>

/* Pauses: how often their length is worked out, what they aim at, and their bounds. */
#define PACE_NS (10 * BASE_NS_PER_MS)
#define PACE_BATCH 32
#define PACE_BATCH_MIN 4
#define PACE_SHARE 16
#define PACE_MAX_NS (BASE_NS_PER_MS / 2)

/*
 * Long enough for PACE_BATCH light threads to become ready, but no more than a small share of the
 * time between two messages of one connection: where a peer waits for the reply before it sends
 * again, a pause would cost throughput.
 */
void light_pace_look(struct light_pace *p, int64_t now)
{
    int64_t elapsed = now - p->since;
    int64_t each, share;

    if (elapsed < PACE_NS)
        return;
    each = p->runs > 0 ? elapsed / p->runs : elapsed;
    share = each * p->threads / PACE_SHARE;
    p->pause = each * PACE_BATCH;
    if (p->pause > share)
        p->pause = share;
    if (p->pause > PACE_MAX_NS)
        p->pause = PACE_MAX_NS;
    if (p->pause < each * PACE_BATCH_MIN)
        p->pause = 0;
    p->since = now;
    p->window++;
    p->runs = p->threads = 0;
}

void light_pace_count(struct light_pace *p, struct light_task *t)
{
    p->runs++;
    if (t->ran_in != p->window) {
        t->ran_in = p->window;
        p->threads++;
    }
}

void light_pace_pause(const struct light_carrier *c)
{
    struct timespec ts = {.tv_nsec = c->pace.pause};

    if (c->pace.pause > 0 && !c->rt->no_pause &&
        !atomic_load_explicit(&c->inbox_full, memory_order_relaxed))
        nanosleep(&ts, NULL);
}
