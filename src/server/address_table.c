#include "server/address_table.h"

#include "base/random.h"

#include <string.h>

struct address_entry {
    struct base_node node; /* first */
    struct net_peer_key key;
    uint32_t count;
};

bool address_table_init(struct address_table *t, const tws_allocator *a)
{
    return base_random(&t->hash_key, sizeof t->hash_key) && base_table_init(&t->entries, a);
}

static uint64_t hash_of(const struct address_table *t, const struct net_peer_key *key)
{
    return base_hash(&t->hash_key, key->bytes, sizeof key->bytes);
}

static struct address_entry *find(const struct address_table *t, const struct net_peer_key *key,
                                  uint64_t hash)
{
    struct base_node *n = base_table_first(&t->entries, hash);

    while (n && memcmp(&((struct address_entry *)n)->key, key, sizeof *key) != 0)
        n = base_table_next(n);
    return (struct address_entry *)n;
}

int address_table_add(struct address_table *t, const struct net_peer_key *key, uint32_t max)
{
    uint64_t hash = hash_of(t, key);
    struct address_entry *e = find(t, key, hash);

    if (!e) {
        e = base_calloc(t->entries.allocator, sizeof *e);
        if (!e)
            return -1;
        e->node.hash = hash;
        e->key = *key;
        base_table_insert(&t->entries, &e->node);
    }
    if (e->count >= max)
        return 0;
    e->count++;
    return 1;
}

void address_table_remove(struct address_table *t, const struct net_peer_key *key)
{
    struct address_entry *e = find(t, key, hash_of(t, key));

    if (!e || --e->count > 0)
        return;
    base_table_remove(&t->entries, &e->node);
    base_free(t->entries.allocator, e);
}

void address_table_free(struct address_table *t)
{
    size_t at = 0;
    struct base_node *n = t->entries.buckets ? base_table_walk(&t->entries, &at, NULL) : NULL;

    while (n) {
        struct base_node *next = base_table_walk(&t->entries, &at, n);

        base_free(t->entries.allocator, n);
        n = next;
    }
    base_table_destroy(&t->entries);
    memset(t, 0, sizeof *t);
}
