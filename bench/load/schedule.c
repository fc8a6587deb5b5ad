#include "schedule.h"

#include <stdlib.h>

uint64_t pace_count(const struct pace *p, uint64_t start, uint64_t now)
{
    if (now < start)
        return 0;
    uint64_t bursts = (uint64_t)((double)(now - start) / p->interval) + 1;
    /* Floating point may be off by one at the edge; pace_due decides. */
    while (pace_due(p, start, bursts * p->burst) <= now)
        bursts++;
    while (bursts > 0 && pace_due(p, start, (bursts - 1) * p->burst) > now)
        bursts--;
    return bursts * p->burst;
}

int heap_init(struct heap *h, size_t room)
{
    h->items = calloc(room + 1, sizeof *h->items);
    h->count = 0;
    h->room = room;
    return h->items != NULL ? 0 : -1;
}

void heap_clear(struct heap *h)
{
    free(h->items);
    *h = (struct heap){.items = NULL};
}

void heap_push(struct heap *h, uint64_t due, void *who)
{
    size_t i = h->count++;
    while (i > 0) {
        size_t parent = (i - 1) / 2;
        if (h->items[parent].due <= due)
            break;
        h->items[i] = h->items[parent];
        i = parent;
    }
    h->items[i] = (struct heap_item){due, who};
}

void *heap_pop(struct heap *h)
{
    void *top = h->items[0].who;
    struct heap_item last = h->items[--h->count];
    size_t i = 0;
    while (1) {
        size_t child = 2 * i + 1;
        if (child >= h->count)
            break;
        if (child + 1 < h->count && h->items[child + 1].due < h->items[child].due)
            child++;
        if (last.due <= h->items[child].due)
            break;
        h->items[i] = h->items[child];
        i = child;
    }
    h->items[i] = last;
    return top;
}
