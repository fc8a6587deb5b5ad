#ifndef LOAD_CLOCK_H
#define LOAD_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_S UINT64_C(1000000000)
#define NS_PER_MS UINT64_C(1000000)

static inline uint64_t clock_read(clockid_t id)
{
    struct timespec ts;
    if (clock_gettime(id, &ts) != 0)
        return 0;
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* Every time inside the generator is this one: monotonic nanoseconds. */
static inline uint64_t clock_ns(void)
{
    return clock_read(CLOCK_MONOTONIC);
}

/* Wall-clock seconds, only for the report. */
static inline double clock_wall(void)
{
    return (double)clock_read(CLOCK_REALTIME) / 1e9;
}

#endif
