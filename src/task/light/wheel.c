#include "task/light/wheel.h"

#include <stddef.h>
#include <string.h>

static void ring_init(struct light_ring *r, int64_t unit, int64_t now)
{
    memset(r, 0, sizeof *r);
    r->unit = unit;
    r->tick = now / unit;
}

void light_wheel_init(struct light_wheel *w, int64_t now)
{
    ring_init(&w->fine, WHEEL_FINE_NS, now);
    ring_init(&w->coarse, WHEEL_COARSE_NS, now);
    w->now = now;
}

/* Ticks beyond the ring wait in its last slot, and are looked at again there. */
static void ring_add(struct light_ring *r, struct light_timer *t, int64_t tick)
{
    uint32_t slot;

    if (tick < r->tick)
        tick = r->tick;
    if (tick >= r->tick + WHEEL_SLOTS)
        tick = r->tick + WHEEL_SLOTS - 1;
    slot = (uint32_t)(tick % WHEEL_SLOTS);
    t->next = r->slots[slot];
    if (t->next)
        t->next->link = &t->next;
    t->link = &r->slots[slot];
    r->slots[slot] = t;
    r->used[slot / 64] |= UINT64_C(1) << slot % 64;
}

void light_wheel_add(struct light_wheel *w, struct light_timer *t, int64_t deadline)
{
    t->deadline = t->wanted = deadline;
    if (deadline - w->now < (WHEEL_SLOTS - 1) * w->fine.unit)
        /* Rounded up: no timer ends early. */
        ring_add(&w->fine, t, (deadline + w->fine.unit - 1) / w->fine.unit);
    else
        /* Rounded down: it moves to the fine ring in time. */
        ring_add(&w->coarse, t, deadline / w->coarse.unit);
}

void light_wheel_set(struct light_wheel *w, struct light_timer *t, int64_t deadline)
{
    if (t->link && t->deadline <= deadline) {
        t->wanted = deadline;
        return;
    }
    light_wheel_remove(t);
    light_wheel_add(w, t, deadline);
}

void light_wheel_remove(struct light_timer *t)
{
    if (!t->link)
        return;
    *t->link = t->next;
    if (t->next)
        t->next->link = t->link;
    t->link = NULL;
}

/* Empties a slot into a list. */
static struct light_timer *slot_take(struct light_ring *r, uint32_t slot)
{
    struct light_timer *list = r->slots[slot];

    for (struct light_timer *t = list; t; t = t->next)
        t->link = NULL;
    r->slots[slot] = NULL;
    r->used[slot / 64] &= ~(UINT64_C(1) << slot % 64);
    return list;
}

/* The next slot, up to `last`, that holds timers. False: there is none. */
static bool ring_advance(struct light_ring *r, int64_t last, uint32_t *slot)
{
    if (last - r->tick >= WHEEL_SLOTS) /* a long sleep: one turn sees every slot */
        r->tick = last - WHEEL_SLOTS + 1;
    while (r->tick <= last) {
        *slot = (uint32_t)(r->tick % WHEEL_SLOTS);
        if (r->used[*slot / 64] & UINT64_C(1) << *slot % 64)
            return true;
        r->tick++;
    }
    return false;
}

/* Timers whose time is near move to the fine ring. */
static void refine(struct light_wheel *w, int64_t now)
{
    uint32_t slot;

    while (ring_advance(&w->coarse, now / w->coarse.unit, &slot)) {
        struct light_timer *t = slot_take(&w->coarse, slot);

        w->coarse.tick++; /* those which are not near yet go to a later slot */
        while (t) {
            struct light_timer *next = t->next;

            light_wheel_add(w, t, t->wanted);
            t = next;
        }
    }
}

struct light_timer *light_wheel_expired(struct light_wheel *w, int64_t now)
{
    uint32_t slot;

    w->now = now;
    refine(w, now);
    while (ring_advance(&w->fine, now / w->fine.unit, &slot)) {
        struct light_timer *t = w->fine.slots[slot];

        while (t && t->deadline > now)
            t = t->next;
        if (t) {
            light_wheel_remove(t);
            return t; /* the slot may hold more: the tick stays */
        }
        t = slot_take(&w->fine, slot);
        w->fine.tick++;
        while (t) {
            struct light_timer *next = t->next;

            light_wheel_add(w, t, t->wanted);
            t = next;
        }
    }
    return NULL;
}

static int64_t ring_next(const struct light_ring *r)
{
    uint32_t first = (uint32_t)(r->tick % WHEEL_SLOTS);

    for (uint32_t i = 0; i <= WHEEL_SLOTS / 64; i++) {
        uint32_t word = (first / 64 + i) % (WHEEL_SLOTS / 64);
        uint64_t bits = r->used[word];
        uint64_t from_first = ~UINT64_C(0) << first % 64;

        if (i == 0)
            bits &= from_first;
        else if (i == WHEEL_SLOTS / 64)
            bits &= ~from_first;
        if (bits) {
            uint32_t slot = word * 64 + (uint32_t)__builtin_ctzll(bits);

            return (r->tick + (slot + WHEEL_SLOTS - first) % WHEEL_SLOTS) * r->unit;
        }
    }
    return INT64_MAX;
}

int64_t light_wheel_next(const struct light_wheel *w)
{
    int64_t fine = ring_next(&w->fine);
    int64_t coarse = ring_next(&w->coarse);

    return fine < coarse ? fine : coarse;
}
