/*
 * table.h: a hash table of nodes that lie in the things it holds.
 *
 * It grows and shrinks by a bucket or two per call (linear hashing), so that no join pays for moving
 * all others. Without memory to grow its chains become longer; nothing fails.
 */
#ifndef HUB_TABLE_H
#define HUB_TABLE_H

#include "base/alloc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hub_node {
    struct hub_node *next;
    uint64_t hash;
};

struct hub_table {
    const tws_allocator *allocator;
    struct hub_node **buckets;
    size_t cap;   /* room for buckets */
    size_t used;  /* buckets */
    size_t mask;  /* the smallest 2^k - 1 that is at least used - 1 */
    size_t count; /* nodes */
};

bool hub_table_init(struct hub_table *t, const tws_allocator *a);
/* It must be empty, or its nodes must be of no more interest. */
void hub_table_destroy(struct hub_table *t);
/* n->hash is set. */
void hub_table_insert(struct hub_table *t, struct hub_node *n);
void hub_table_remove(struct hub_table *t, struct hub_node *n);
/* The first node of that hash, and the next one. */
struct hub_node *hub_table_first(const struct hub_table *t, uint64_t hash);
struct hub_node *hub_table_next(const struct hub_node *n);
/* All nodes, in no order: begins with *at = 0; NULL at the end. Nothing may change meanwhile. */
struct hub_node *hub_table_walk(const struct hub_table *t, size_t *at, struct hub_node *last);

/* SipHash-1-3: peers may choose the names of rooms, but not in which bucket they meet. */
struct hub_key {
    uint64_t k0, k1;
};
uint64_t hub_hash(const struct hub_key *key, const void *data, size_t len);

#endif
