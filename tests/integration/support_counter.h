/* support_counter.h: an allocator that counts, and fails when told. */
#ifndef SUPPORT_COUNTER_H
#define SUPPORT_COUNTER_H

#include <tws/types.h>

#include <stdatomic.h>

struct counter {
    _Atomic long calls, live;
    _Atomic long fail_from, fail_count; /* calls number fail_from and so many more fail */
};

tws_allocator counter_allocator(struct counter *k);

#endif
