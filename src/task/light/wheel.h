/*
 * wheel.h: timers of one carrier. Adding and removing cost a few instructions whatever the number,
 * since every wait has a deadline and nearly none comes.
 *
 * Two wheels: a fine one for deadlines within a second, a coarse one for the rest, whose timers move
 * to the fine one when their time is near. Thousands of idle connections then wake their carrier a
 * few times a second, not a thousand times.
 */
#ifndef TASK_LIGHT_WHEEL_H
#define TASK_LIGHT_WHEEL_H

#include <stdbool.h>
#include <stdint.h>

#define WHEEL_SLOTS 1024
#define WHEEL_FINE_NS INT64_C(1000000)
#define WHEEL_COARSE_NS INT64_C(128000000)

struct light_timer {
    struct light_timer *next, **link; /* link NULL: not set */
    int64_t deadline;                 /* where it stands */
    int64_t wanted;                   /* when it is due: no earlier than that */
};

struct light_ring {
    struct light_timer *slots[WHEEL_SLOTS];
    uint64_t used[WHEEL_SLOTS / 64]; /* slots that may hold timers */
    int64_t unit;                    /* ns per slot */
    int64_t tick;                    /* slots of earlier ticks have been looked at */
};

struct light_wheel {
    struct light_ring fine, coarse;
    int64_t now; /* of the last look */
};

void light_wheel_init(struct light_wheel *w, int64_t now);
void light_wheel_add(struct light_wheel *w, struct light_timer *t, int64_t deadline);
/* The same for a timer that may be set already. One that stands earlier stays there, so that a wait
 * after the other, each with a later deadline, costs nothing. */
void light_wheel_set(struct light_wheel *w, struct light_timer *t, int64_t deadline);
void light_wheel_remove(struct light_timer *t);
/* Removes and returns a timer whose place has come (is it due?); NULL when there is none. */
struct light_timer *light_wheel_expired(struct light_wheel *w, int64_t now);
/* When to look again: no later than the first deadline, perhaps earlier; INT64_MAX: no timers. */
int64_t light_wheel_next(const struct light_wheel *w);

#endif
