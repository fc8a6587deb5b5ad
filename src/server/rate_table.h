/*
 * rate_table.h: how often each IP address connects, in memory of a fixed size.
 *
 * Each address has a bucket of tokens. Where there are more addresses than room, the bucket that is
 * nearest to full is forgotten: the one that knows least.
 */
#ifndef SERVER_RATE_TABLE_H
#define SERVER_RATE_TABLE_H

#include "base/alloc.h"
#include "net/address.h"

#include <stdint.h>

struct rate_slot;

struct rate_table { /* zero is none: everybody may come */
    struct rate_slot *slots;
    size_t sets;
    uint64_t secret[2]; /* so that nobody can choose addresses that push out another */
};

#define RATE_TABLE_SLOTS 8192

/* False: no memory, or no random bytes. */
bool rate_table_init(struct rate_table *t, const tws_allocator *a);
/* One more connection of that address at that time. False: there were more than rate in a second,
 * beyond a burst. */
bool rate_table_take(struct rate_table *t, const struct net_peer_key *key, int64_t now,
                     uint32_t rate, uint32_t burst);
void rate_table_free(struct rate_table *t, const tws_allocator *a);

#endif
