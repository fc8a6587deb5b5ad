/*
 * table.h: a hash table of nodes that lie in the things it holds.
 *
 * It grows and shrinks by a bucket or two per call (linear hashing), so that no join pays for moving
 * all others. Without memory to grow its chains become longer; nothing fails.
 */
#ifndef BASE_TABLE_H
#define BASE_TABLE_H

#include "base/alloc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct base_node {
    struct base_node *next;
    uint64_t hash;
};

struct base_table {
    const tws_allocator *allocator;
    struct base_node **buckets;
    size_t cap;   /* room for buckets */
    size_t used;  /* buckets */
    size_t mask;  /* the smallest 2^k - 1 that is at least used - 1 */
    size_t count; /* nodes */
};

bool base_table_init(struct base_table *t, const tws_allocator *a);
/* It must be empty, or its nodes must be of no more interest. */
void base_table_destroy(struct base_table *t);
/* n->hash is set. */
void base_table_insert(struct base_table *t, struct base_node *n);
void base_table_remove(struct base_table *t, struct base_node *n);
/* The first node of that hash, and the next one. */
struct base_node *base_table_first(const struct base_table *t, uint64_t hash);
struct base_node *base_table_next(const struct base_node *n);
/* All nodes, in no order: begins with *at = 0; NULL at the end. Nothing may change meanwhile. */
struct base_node *base_table_walk(const struct base_table *t, size_t *at, struct base_node *last);

/* SipHash-1-3: peers may choose the names of rooms, but not in which bucket they meet. */
struct base_key {
    uint64_t k0, k1;
};
uint64_t base_hash(const struct base_key *key, const void *data, size_t len);

#endif
