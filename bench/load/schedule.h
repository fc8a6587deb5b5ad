#ifndef LOAD_SCHEDULE_H
#define LOAD_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * When messages are due. An open-loop schedule is arithmetic: message n of a connection is due at
 * start + floor(n / burst) * interval, whatever has happened to the messages before it.
 */
struct pace {
    double interval; /* ns between bursts */
    unsigned burst;
};

static inline uint64_t pace_due(const struct pace *p, uint64_t start, uint64_t n)
{
    return start + (uint64_t)((double)(n / p->burst) * p->interval);
}

/* How many messages are due at `now` or before. */
uint64_t pace_count(const struct pace *p, uint64_t start, uint64_t now);

/* A binary heap: who is due next. */
struct heap_item {
    uint64_t due;
    void *who;
};

struct heap {
    struct heap_item *items;
    size_t count, room;
};

int heap_init(struct heap *h, size_t room);
void heap_clear(struct heap *h);

/* There must be room: each connection is in the heap at most once. */
void heap_push(struct heap *h, uint64_t due, void *who);
void *heap_pop(struct heap *h);

/* UINT64_MAX when empty. */
static inline uint64_t heap_next(const struct heap *h)
{
    return h->count != 0 ? h->items[0].due : UINT64_MAX;
}

#endif
