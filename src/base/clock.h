/* clock.h: monotonic time. Points in time are nanoseconds, durations of the API milliseconds. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define BASE_NS_PER_MS INT64_C(1000000)
#define BASE_NS_PER_S INT64_C(1000000000)

static inline int64_t base_clock_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * BASE_NS_PER_S + ts.tv_nsec;
}

/* A few milliseconds behind at most, for a quarter of the price: for stamps nobody waits on. */
static inline int64_t base_clock_coarse_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
    return (int64_t)ts.tv_sec * BASE_NS_PER_S + ts.tv_nsec;
}

static inline struct timespec base_timespec(int64_t ns)
{
    struct timespec ts;

    ts.tv_sec = (time_t)(ns / BASE_NS_PER_S);
    ts.tv_nsec = (long)(ns % BASE_NS_PER_S);
    return ts;
}

#endif
