#include "base/table.h"

#include <string.h>

#define BUCKETS_MIN 8

bool base_table_init(struct base_table *t, const tws_allocator *a)
{
    memset(t, 0, sizeof *t);
    t->allocator = a;
    t->buckets = base_calloc(a, BUCKETS_MIN * sizeof(struct base_node *));
    t->cap = t->used = BUCKETS_MIN;
    t->mask = BUCKETS_MIN - 1;
    return t->buckets != NULL;
}

void base_table_destroy(struct base_table *t)
{
    base_free(t->allocator, t->buckets);
}

static size_t bucket_of(const struct base_table *t, uint64_t hash)
{
    size_t i = (size_t)hash & t->mask;

    return i < t->used ? i : i & (t->mask >> 1);
}

static bool resize(struct base_table *t, size_t cap)
{
    struct base_node **buckets =
        base_resize(t->allocator, t->buckets, cap * sizeof(struct base_node *));

    if (!buckets)
        return false;
    t->buckets = buckets;
    t->cap = cap;
    return true;
}

/* One bucket more, which takes its share of the nodes of another. */
static void grow(struct base_table *t)
{
    size_t added = t->used;
    struct base_node **from, *n;

    if (t->used == t->cap && !resize(t, 2 * t->cap))
        return;
    t->buckets[added] = NULL;
    t->used++;
    if (t->used > t->mask + 1)
        t->mask = 2 * t->mask + 1;
    from = &t->buckets[added & (t->mask >> 1)];
    while ((n = *from)) {
        if (bucket_of(t, n->hash) != added) {
            from = &n->next;
            continue;
        }
        *from = n->next;
        n->next = t->buckets[added];
        t->buckets[added] = n;
    }
}

/* One bucket less. */
static void shrink(struct base_table *t)
{
    size_t last = t->used - 1;
    struct base_node **to = &t->buckets[last & (t->mask >> 1)];

    while (*to)
        to = &(*to)->next;
    *to = t->buckets[last];
    t->used--;
    if (t->used <= (t->mask + 1) / 2)
        t->mask >>= 1;
    if (t->used < t->cap / 4)
        resize(t, t->cap / 2); /* if not, it is just larger than need be */
}

void base_table_insert(struct base_table *t, struct base_node *n)
{
    struct base_node **at;

    t->count++;
    if (t->count > t->used)
        grow(t);
    at = &t->buckets[bucket_of(t, n->hash)];
    n->next = *at;
    *at = n;
}

void base_table_remove(struct base_table *t, struct base_node *n)
{
    struct base_node **at = &t->buckets[bucket_of(t, n->hash)];

    while (*at != n)
        at = &(*at)->next;
    *at = n->next;
    n->next = NULL;
    t->count--;
    /* Two at most: as fast as a table of half as many nodes as buckets can empty. */
    for (int i = 0; i < 2 && t->used > BUCKETS_MIN && t->count < t->used / 2; i++)
        shrink(t);
}

static struct base_node *same_hash(struct base_node *n, uint64_t hash)
{
    while (n && n->hash != hash)
        n = n->next;
    return n;
}

struct base_node *base_table_first(const struct base_table *t, uint64_t hash)
{
    return same_hash(t->buckets[bucket_of(t, hash)], hash);
}

struct base_node *base_table_next(const struct base_node *n)
{
    return same_hash(n->next, n->hash);
}

struct base_node *base_table_walk(const struct base_table *t, size_t *at, struct base_node *last)
{
    struct base_node *n = last ? last->next : NULL;

    while (!n && *at < t->used)
        n = t->buckets[(*at)++];
    return n;
}

/* ---- SipHash-1-3 ---- */

struct sip {
    uint64_t v0, v1, v2, v3;
};

static uint64_t rotate(uint64_t x, unsigned n)
{
    return x << n | x >> (64 - n);
}

static void sip_round(struct sip *s)
{
    s->v0 += s->v1;
    s->v2 += s->v3;
    s->v1 = rotate(s->v1, 13) ^ s->v0;
    s->v3 = rotate(s->v3, 16) ^ s->v2;
    s->v0 = rotate(s->v0, 32);
    s->v2 += s->v1;
    s->v0 += s->v3;
    s->v1 = rotate(s->v1, 17) ^ s->v2;
    s->v3 = rotate(s->v3, 21) ^ s->v0;
    s->v2 = rotate(s->v2, 32);
}

static void sip_word(struct sip *s, uint64_t word)
{
    s->v3 ^= word;
    sip_round(s);
    s->v0 ^= word;
}

uint64_t base_hash(const struct base_key *key, const void *data, size_t len)
{
    struct sip s = {key->k0 ^ UINT64_C(0x736f6d6570736575), key->k1 ^ UINT64_C(0x646f72616e646f6d),
                    key->k0 ^ UINT64_C(0x6c7967656e657261), key->k1 ^ UINT64_C(0x7465646279746573)};
    const uint8_t *p = data;
    uint64_t word = 0;
    size_t left = len;

    for (; left >= sizeof word; left -= sizeof word, p += sizeof word) {
        memcpy(&word, p, sizeof word);
        sip_word(&s, word);
    }
    word = (uint64_t)len << 56;
    for (size_t i = 0; i < left; i++)
        word |= (uint64_t)p[i] << 8 * i;
    sip_word(&s, word);
    s.v2 ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(&s);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}
