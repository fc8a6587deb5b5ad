#include "conn/hold.h"

#include "base/clock.h"

#include <string.h>

#define HOLD_TICK_MS 4
#define HOLD_SLOTS 256
/* Ticks that the watcher goes on looking after the last held reply, before it sleeps for good. */
#define HOLD_LINGER 50

struct hold_segment {
    struct hold_slot slots[HOLD_SLOTS];
    void *owners[HOLD_SLOTS]; /* board's mu; NULL: free */
    struct hold_segment *next;
    uint32_t used; /* board's mu */
};

struct hold_board {
    const tws_allocator *allocator;
    task_mutex mu;
    struct hold_segment *segments; /* mu */
    struct task_park park;         /* the watcher's */
    _Atomic uint32_t tick;
    _Atomic bool asleep;
    _Atomic bool stop;
};

struct hold_board *hold_board_new(const tws_allocator *a)
{
    struct hold_board *b = base_calloc(a, sizeof *b);

    if (!b)
        return NULL;
    b->allocator = a;
    pthread_mutex_init(&b->mu, NULL);
    task_park_init(&b->park);
    atomic_init(&b->tick, 1);
    return b;
}

void hold_board_free(struct hold_board *b)
{
    struct hold_segment *seg;

    if (!b)
        return;
    while ((seg = b->segments)) {
        b->segments = seg->next;
        base_free(b->allocator, seg);
    }
    pthread_mutex_destroy(&b->mu);
    base_free(b->allocator, b);
}

static struct hold_segment *segment_with_room(struct hold_board *b)
{
    struct hold_segment *seg = b->segments;

    while (seg && seg->used == HOLD_SLOTS)
        seg = seg->next;
    if (!seg) {
        seg = base_calloc(b->allocator, sizeof *seg);
        if (!seg)
            return NULL;
        seg->next = b->segments;
        b->segments = seg;
    }
    return seg;
}

struct hold_slot *hold_slot_get(struct hold_board *b, void *owner)
{
    struct hold_slot *slot = NULL;
    struct hold_segment *seg;

    pthread_mutex_lock(&b->mu);
    seg = segment_with_room(b);
    for (uint32_t i = 0; seg && i < HOLD_SLOTS; i++) {
        if (!seg->owners[i]) {
            seg->owners[i] = owner;
            seg->used++;
            slot = &seg->slots[i];
            break;
        }
    }
    pthread_mutex_unlock(&b->mu);
    return slot;
}

void hold_slot_put(struct hold_board *b, struct hold_slot *slot)
{
    pthread_mutex_lock(&b->mu);
    for (struct hold_segment *seg = b->segments; seg; seg = seg->next) {
        if (slot >= seg->slots && slot < seg->slots + HOLD_SLOTS) {
            seg->owners[slot - seg->slots] = NULL;
            seg->used--;
            hold_end(slot);
            break;
        }
    }
    pthread_mutex_unlock(&b->mu);
}

void hold_begin(struct hold_board *b, struct hold_slot *slot)
{
    /* Pairs with hold_sleep: either the watcher sees the slot, or we see it asleep. */
    atomic_store(&slot->since, atomic_load_explicit(&b->tick, memory_order_relaxed));
    if (atomic_load(&b->asleep))
        task_unpark(&b->park);
}

/* Looks at every slot and kicks those that have been held for two ticks. False: none is held. */
static bool hold_scan(struct hold_board *b, uint32_t tick, void (*kick)(void *owner))
{
    bool any = false;

    pthread_mutex_lock(&b->mu);
    for (struct hold_segment *seg = b->segments; seg; seg = seg->next) {
        for (uint32_t i = 0; i < HOLD_SLOTS; i++) {
            uint32_t since = atomic_load(&seg->slots[i].since);

            if (since == 0)
                continue;
            any = true;
            if (tick - since >= 2 && seg->owners[i])
                kick(seg->owners[i]);
        }
    }
    pthread_mutex_unlock(&b->mu);
    return any;
}

static uint32_t hold_next_tick(struct hold_board *b)
{
    uint32_t tick = atomic_load_explicit(&b->tick, memory_order_relaxed) + 1;

    if (tick == 0)
        tick = 1;
    atomic_store_explicit(&b->tick, tick, memory_order_relaxed);
    return tick;
}

static void hold_sleep(struct hold_board *b, void (*kick)(void *owner))
{
    atomic_store(&b->asleep, true);
    if (!hold_scan(b, atomic_load_explicit(&b->tick, memory_order_relaxed), kick) &&
        !atomic_load(&b->stop))
        task_park(&b->park, TASK_FOREVER);
    atomic_store(&b->asleep, false);
}

void hold_board_run(struct hold_board *b, void (*kick)(void *owner))
{
    uint32_t quiet = HOLD_LINGER;

    while (!atomic_load(&b->stop)) {
        if (hold_scan(b, hold_next_tick(b), kick))
            quiet = 0;
        else if (quiet < HOLD_LINGER)
            quiet++;
        if (quiet >= HOLD_LINGER)
            hold_sleep(b, kick);
        else
            task_park(&b->park, base_clock_ns() + HOLD_TICK_MS * BASE_NS_PER_MS);
    }
}

void hold_board_stop(struct hold_board *b)
{
    atomic_store(&b->stop, true);
    task_unpark(&b->park);
}
