/* support_counter.h: an allocator that counts, and fails when told. */
#ifndef SUPPORT_COUNTER_H
#define SUPPORT_COUNTER_H

#include <tws/server.h>

#include <stdatomic.h>

struct counter {
    _Atomic long calls, live;
    _Atomic long fail_from, fail_count; /* calls number fail_from and so many more fail */
};

tws_allocator counter_allocator(struct counter *k);
/*
 * A server without memory: `count` allocations fail from the n-th on, for every n until none is reached
 * any more. prepare sets its options but for the allocator; converse talks as far as it gets, and tells
 * whether nothing went wrong, which it must not once there is memory again.
 */
void counter_fail_everywhere(void (*prepare)(tws_server_options *opt),
                             bool (*converse)(const char *address), long count);

#endif
