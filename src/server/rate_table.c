#include "server/rate_table.h"

#include "base/clock.h"
#include "base/random.h"

#include <string.h>

#define WAYS 8

/* full_at: when the bucket will be full again; a time in the past: it is. An unused slot is all 0. */
struct rate_slot {
    struct net_peer_key key;
    int64_t full_at;
};

bool rate_table_init(struct rate_table *t, const tws_allocator *a)
{
    if (!base_random(t->secret, sizeof t->secret))
        return false;
    t->secret[0] |= 1; /* multiplied with */
    t->sets = RATE_TABLE_SLOTS / WAYS;
    t->slots = base_calloc(a, RATE_TABLE_SLOTS * sizeof *t->slots);
    return t->slots != NULL;
}

void rate_table_free(struct rate_table *t, const tws_allocator *a)
{
    base_free(a, t->slots);
    t->slots = NULL;
}

static struct rate_slot *set_of(const struct rate_table *t, const struct net_peer_key *key)
{
    uint64_t h = t->secret[1];

    for (size_t i = 0; i < sizeof key->bytes; i += sizeof h) {
        uint64_t word;

        memcpy(&word, key->bytes + i, sizeof word);
        h = (h ^ word) * t->secret[0];
        h ^= h >> 29;
    }
    h *= UINT64_C(0x9e3779b97f4a7c15);
    return t->slots + (size_t)(h >> 40) % t->sets * WAYS;
}

bool rate_table_take(struct rate_table *t, const struct net_peer_key *key, int64_t now,
                     uint32_t rate, uint32_t burst)
{
    int64_t token = BASE_NS_PER_S / (rate > 0 ? rate : 1);
    struct rate_slot *set, *slot;

    if (!t->slots || rate == 0)
        return true;
    set = slot = set_of(t, key);
    for (size_t i = 0; i < WAYS; i++) {
        if (set[i].full_at > 0 && memcmp(&set[i].key, key, sizeof *key) == 0) {
            slot = &set[i];
            break;
        }
        if (set[i].full_at < slot->full_at)
            slot = &set[i];
    }
    if (memcmp(&slot->key, key, sizeof *key) != 0 || slot->full_at < now) {
        slot->key = *key;
        slot->full_at = now;
    }
    if (slot->full_at - now > token * ((int64_t)burst - 1))
        return false;
    slot->full_at += token;
    return true;
}
