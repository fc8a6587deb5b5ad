#include "server/address_table.h"

#include <string.h>

struct address_entry {
    struct address_entry *next;
    struct net_peer_key key;
    uint32_t count;
};

/* FNV-1a. Whoever owns many addresses owns many connections anyway: a flood of collisions costs a
 * walk over a list no longer than the server's connections. */
static size_t hash(const struct net_peer_key *key)
{
    uint64_t h = UINT64_C(14695981039346656037);

    for (size_t i = 0; i < sizeof key->bytes; i++)
        h = (h ^ key->bytes[i]) * UINT64_C(1099511628211);
    return (size_t)(h ^ (h >> 32));
}

static struct address_entry **find(struct address_table *t, const struct net_peer_key *key)
{
    struct address_entry **at = &t->buckets[hash(key) % t->bucket_count];

    while (*at && memcmp(&(*at)->key, key, sizeof *key) != 0)
        at = &(*at)->next;
    return at;
}

static bool grow(struct address_table *t, const tws_allocator *a)
{
    size_t count = t->bucket_count ? t->bucket_count * 2 : 64;
    struct address_entry **buckets = base_calloc(a, count * sizeof(*buckets));

    if (!buckets)
        return t->bucket_count > 0; /* longer lists, then */
    for (size_t i = 0; i < t->bucket_count; i++) {
        struct address_entry *e = t->buckets[i];

        while (e) {
            struct address_entry *next = e->next;
            struct address_entry **at = &buckets[hash(&e->key) % count];

            e->next = *at;
            *at = e;
            e = next;
        }
    }
    base_free(a, t->buckets);
    t->buckets = buckets;
    t->bucket_count = count;
    return true;
}

int address_table_add(struct address_table *t, const tws_allocator *a,
                      const struct net_peer_key *key, uint32_t max)
{
    struct address_entry **at;

    if (t->entries >= t->bucket_count && !grow(t, a))
        return -1;
    at = find(t, key);
    if (!*at) {
        struct address_entry *e = base_calloc(a, sizeof *e);

        if (!e)
            return -1;
        e->key = *key;
        *at = e;
        t->entries++;
    }
    if ((*at)->count >= max)
        return 0;
    (*at)->count++;
    return 1;
}

void address_table_remove(struct address_table *t, const tws_allocator *a,
                          const struct net_peer_key *key)
{
    struct address_entry **at;
    struct address_entry *e;

    if (t->bucket_count == 0)
        return;
    at = find(t, key);
    e = *at;
    if (!e || --e->count > 0)
        return;
    *at = e->next;
    t->entries--;
    base_free(a, e);
}

void address_table_free(struct address_table *t, const tws_allocator *a)
{
    for (size_t i = 0; i < t->bucket_count; i++) {
        while (t->buckets[i]) {
            struct address_entry *e = t->buckets[i];

            t->buckets[i] = e->next;
            base_free(a, e);
        }
    }
    base_free(a, t->buckets);
    memset(t, 0, sizeof *t);
}
