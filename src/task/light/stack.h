/*
 * stack.h: stacks of light threads: cut from slabs, guarded, reused while they are still warm, given
 * back to the system when they have not been used for a while.
 */
#ifndef TASK_LIGHT_STACK_H
#define TASK_LIGHT_STACK_H

#include "task/task.h"

struct light_slab;
struct light_slot;

struct light_stack {
    char *low; /* lowest usable byte; the guard page is below */
    size_t size;
    struct light_slot *slot;
};

struct light_stacks {
    task_mutex mu;
    const tws_allocator *allocator;
    size_t page;              /* of the system; also the guard's size */
    size_t slot_size;         /* guard page included */
    struct light_slab *slabs; /* mu */
    struct light_slot *free;  /* mu: the one given back last first */
    uint32_t in_use;          /* mu */
    bool no_guard_advice;     /* mu: this kernel wants mprotect */
    bool paint;               /* fill with a pattern, to see how deep stacks are used */
    size_t deepest;           /* mu: of painted stacks */
};

void light_stacks_init(struct light_stacks *s, const tws_allocator *a, size_t stack_size,
                       bool paint);
void light_stacks_destroy(struct light_stacks *s);
bool light_stack_get(struct light_stacks *s, struct light_stack *out);
void light_stack_put(struct light_stacks *s, struct light_stack *stack);
/* Gives back pages of stacks that were not used for `age` ns, and slabs without any user. */
void light_stacks_trim(struct light_stacks *s, int64_t now, int64_t age);

#endif
