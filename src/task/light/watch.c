/* The watch: notices handlers that keep their carrier, and gives it to another driver. */
#include "task/light/light.h"

#include "base/clock.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WATCH_MS 4
#define WATCH_IDLE_MS 50
#define LOAD_NS (50 * BASE_NS_PER_MS)
#define TRIM_NS BASE_NS_PER_S

static int64_t cpu_of(const struct light_driver *d)
{
    struct timespec ts;
    clockid_t clock;

    if (pthread_getcpuclockid(d->thread, &clock) != 0 || clock_gettime(clock, &ts) != 0)
        return 0;
    return (int64_t)ts.tv_sec * BASE_NS_PER_S + ts.tv_nsec;
}

/* Whether a driver waits in the kernel; a driver that has merely not got the processor does not. Where
 * that cannot be told (no descriptor, no /proc) it does: a carrier given away for nothing costs little, one
 * that is kept stops all who live there. */
static bool is_blocked(const struct light_driver *d)
{
    char path[64], text[256];
    const char *end;
    ssize_t n = -1;
    int fd;

    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)d->tid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return true;
    n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return true;
    text[n] = 0;
    end = strrchr(text, ')');
    return end && (end[2] == 'S' || end[2] == 'D');
}

/* Gives the carrier to another driver, unless its light thread has come back in this moment. */
static void hand_over(struct light_runtime *rt, struct light_carrier *c, uint64_t seen, tws_ms ms)
{
    uint32_t generation = (uint32_t)(seen >> 32) + 1;
    struct light_driver *old = c->driver;
    struct light_task *t = atomic_load(&old->current);
    uint64_t label = t ? atomic_load_explicit(&t->label, memory_order_relaxed) : 0;

    if (!atomic_compare_exchange_strong(&c->state, &seen, (uint64_t)generation << 32))
        return;
    if (light_driver_start(rt, c, generation) < 0) {
        /* No thread to be had: give it back, if that is still possible. */
        uint64_t mine = (uint64_t)generation << 32;

        atomic_compare_exchange_strong(&c->state, &mine, seen);
        return;
    }
    atomic_fetch_add(&rt->handovers, 1);
    if (rt->on_stuck)
        rt->on_stuck(rt->on_stuck_arg, label, ms);
}

/* True when the carrier is at work. */
static bool look_at(struct light_runtime *rt, struct light_carrier *c, int64_t now)
{
    uint64_t state = atomic_load(&c->state);
    int64_t stuck_ns = rt->stuck_ms * BASE_NS_PER_MS;

    if ((state & 1) != CARRIER_HANDLER) {
        c->watch_state = 0;
        return !atomic_load_explicit(&c->asleep, memory_order_relaxed);
    }
    if (state != c->watch_state) {
        c->watch_state = state;
        c->watch_since = now;
        c->watch_cpu = cpu_of(c->driver);
        return true;
    }
    if (now - c->watch_since < stuck_ns)
        return true;
    if (cpu_of(c->driver) - c->watch_cpu >= stuck_ns / 2 || is_blocked(c->driver))
        hand_over(rt, c, state, (now - c->watch_since) / BASE_NS_PER_MS);
    return true;
}

static void measure_load(struct light_runtime *rt, int64_t elapsed)
{
    for (uint32_t i = 0; i < rt->carrier_count; i++) {
        struct light_carrier *c = &rt->carriers[i];
        uint64_t busy = atomic_load_explicit(&c->busy_ns, memory_order_relaxed);
        uint64_t percent = (busy - c->watch_busy) * 100 / (uint64_t)elapsed;

        if (busy == c->watch_busy && !atomic_load_explicit(&c->asleep, memory_order_relaxed))
            percent = 100; /* in one round all the time */
        c->watch_busy = busy;
        atomic_store_explicit(&c->load, percent < 100 ? (uint32_t)percent : 100,
                              memory_order_relaxed);
    }
}

void light_watch_main(void *runtime)
{
    struct light_runtime *rt = runtime;
    int64_t trimmed = base_clock_ns();
    int64_t measured = trimmed;

    while (!atomic_load(&rt->stop)) {
        int64_t now = base_clock_ns();
        bool busy = false;

        for (uint32_t i = 0; i < rt->carrier_count; i++)
            busy |= look_at(rt, &rt->carriers[i], now);
        if (now - measured >= LOAD_NS) {
            measure_load(rt, now - measured);
            measured = now;
        }
        if (now - trimmed >= TRIM_NS) {
            light_stacks_trim(&rt->stacks, now, TRIM_NS);
            trimmed = now;
        }
        task_park(&rt->watch_park, now + (busy ? WATCH_MS : WATCH_IDLE_MS) * BASE_NS_PER_MS);
    }
}
