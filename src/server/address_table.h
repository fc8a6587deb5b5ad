/* address_table.h: how many connections each IP address has. */
#ifndef SERVER_ADDRESS_TABLE_H
#define SERVER_ADDRESS_TABLE_H

#include "base/table.h"
#include "net/address.h"

#include <stdint.h>

struct address_table { /* zero may be freed */
    struct base_table entries;
    struct base_key hash_key;
};

/* False: no memory, or no random numbers. */
bool address_table_init(struct address_table *t, const tws_allocator *a);
/* Counts one more, unless that would be more than max. 1 counted, 0 too many, -1 no memory. */
int address_table_add(struct address_table *t, const struct net_peer_key *key, uint32_t max);
void address_table_remove(struct address_table *t, const struct net_peer_key *key);
void address_table_free(struct address_table *t);

#endif
