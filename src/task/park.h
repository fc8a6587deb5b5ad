/* park.h: the states of a task_park, for the two kinds of thread that wait on one. */
#ifndef TASK_PARK_H
#define TASK_PARK_H

enum {
    PARK_EMPTY = 0,
    PARK_NOTIFIED = 1,
    PARK_WAITING = 2,
    PARK_TIMED_OUT = 3 /* a light thread's timer came first */
};

#endif
