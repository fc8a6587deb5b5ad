#include "task/light/stack.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/page.h"
#include "task/light/context.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#if defined(LIGHT_ASAN)
#include <sanitizer/asan_interface.h>
#endif
#if defined(__has_include)
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#endif
#endif

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102 /* Linux 6.13: a guard without a mapping of its own */
#endif

#define SLAB_SLOTS 64
#define PAINT 0xa5

struct light_slot {
    struct light_slot *next; /* in the free list */
    struct light_slab *slab;
    int64_t freed;
    unsigned valgrind_id;
    bool guarded, dirty, used; /* used: for debuggers */
};

struct light_slab {
    struct light_slab *next;
    char *base;
    uint32_t used;
    struct light_slot slots[SLAB_SLOTS];
};

void light_stacks_init(struct light_stacks *s, const tws_allocator *a, size_t stack_size,
                       bool paint)
{
    memset(s, 0, sizeof *s);
    pthread_mutex_init(&s->mu, NULL);
    s->allocator = a;
    s->page = base_page_size();
    s->slot_size = base_page_up(stack_size) + s->page;
    s->paint = paint;
}

static void slab_free(struct light_stacks *s, struct light_slab *slab)
{
    munmap(slab->base, s->slot_size * SLAB_SLOTS);
    base_free(s->allocator, slab);
}

void light_stacks_destroy(struct light_stacks *s)
{
    while (s->slabs) {
        struct light_slab *slab = s->slabs;

        s->slabs = slab->next;
        slab_free(s, slab);
    }
    pthread_mutex_destroy(&s->mu);
}

static char *slot_base(const struct light_stacks *s, const struct light_slot *slot)
{
    return slot->slab->base + (size_t)(slot - slot->slab->slots) * s->slot_size;
}

static bool add_slab(struct light_stacks *s)
{
    struct light_slab *slab = base_calloc(s->allocator, sizeof *slab);
    size_t size = s->slot_size * SLAB_SLOTS;

    if (!slab)
        return false;
    slab->base = mmap(NULL, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (slab->base == MAP_FAILED) {
        base_free(s->allocator, slab);
        return false;
    }
    /* One touched byte must cost a page, not two megabytes. */
    madvise(slab->base, size, MADV_NOHUGEPAGE);
    for (int i = SLAB_SLOTS - 1; i >= 0; i--) {
        slab->slots[i].slab = slab;
        slab->slots[i].next = s->free;
        s->free = &slab->slots[i];
    }
    slab->next = s->slabs;
    s->slabs = slab;
    return true;
}

/* An overflow must fault at once, not run into the next stack. */
static bool guard(struct light_stacks *s, struct light_slot *slot)
{
    char *page = slot_base(s, slot);

    if (slot->guarded)
        return true;
    if (!s->no_guard_advice) {
        if (madvise(page, s->page, MADV_GUARD_INSTALL) == 0)
            return slot->guarded = true;
        s->no_guard_advice = true;
    }
    return slot->guarded = mprotect(page, s->page, PROT_NONE) == 0;
}

bool light_stack_get(struct light_stacks *s, struct light_stack *out)
{
    struct light_slot *slot = NULL;

    pthread_mutex_lock(&s->mu);
    if ((s->free || add_slab(s)) && guard(s, s->free)) {
        slot = s->free;
        s->free = slot->next;
        slot->slab->used++;
        slot->dirty = slot->used = true;
        s->in_use++;
    }
    pthread_mutex_unlock(&s->mu);
    if (!slot)
        return false;
    out->slot = slot;
    out->low = slot_base(s, slot) + s->page;
    out->size = s->slot_size - s->page;
#if defined(LIGHT_ASAN)
    __asan_unpoison_memory_region(out->low, out->size);
#endif
#if defined(VALGRIND_STACK_REGISTER)
    slot->valgrind_id = VALGRIND_STACK_REGISTER(out->low, out->low + out->size);
#endif
    if (s->paint)
        memset(out->low, PAINT, out->size);
    return true;
}

static size_t depth_used(const struct light_stack *stack)
{
    size_t i = 0;

    while (i < stack->size && (unsigned char)stack->low[i] == PAINT)
        i++;
    return stack->size - i;
}

void light_stack_put(struct light_stacks *s, struct light_stack *stack)
{
    struct light_slot *slot = stack->slot;
    size_t deep = s->paint ? depth_used(stack) : 0;

#if defined(VALGRIND_STACK_DEREGISTER)
    VALGRIND_STACK_DEREGISTER(slot->valgrind_id);
#endif
    pthread_mutex_lock(&s->mu);
    if (deep > s->deepest)
        s->deepest = deep;
    slot->used = false;
    slot->freed = base_clock_coarse_ns();
    slot->next = s->free;
    s->free = slot;
    slot->slab->used--;
    s->in_use--;
    pthread_mutex_unlock(&s->mu);
}

/* Takes the slots of a slab that is about to go out of the free list. */
static void forget_slots(struct light_stacks *s, const struct light_slab *slab)
{
    struct light_slot **at = &s->free;

    while (*at) {
        if ((*at)->slab == slab)
            *at = (*at)->next;
        else
            at = &(*at)->next;
    }
}

static bool slab_unused(const struct light_slab *slab, int64_t now, int64_t age)
{
    if (slab->used > 0)
        return false;
    for (int i = 0; i < SLAB_SLOTS; i++)
        if (slab->slots[i].freed > 0 && now - slab->slots[i].freed < age)
            return false;
    return true;
}

void light_stacks_trim(struct light_stacks *s, int64_t now, int64_t age)
{
    pthread_mutex_lock(&s->mu);
    for (struct light_slab **at = &s->slabs; *at;) {
        struct light_slab *slab = *at;

        if (slab_unused(slab, now, age)) {
            *at = slab->next;
            forget_slots(s, slab);
            slab_free(s, slab);
        } else {
            at = &slab->next;
        }
    }
    for (struct light_slot *slot = s->free; slot; slot = slot->next) {
        if (slot->dirty && slot->freed > 0 && now - slot->freed >= age) {
            madvise(slot_base(s, slot) + s->page, s->slot_size - s->page, MADV_DONTNEED);
            slot->dirty = false;
        }
    }
    pthread_mutex_unlock(&s->mu);
}
