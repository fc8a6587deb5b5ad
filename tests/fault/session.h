/* session.h: one session under one plan, and what it must leave behind: nothing. */
#ifndef TESTS_FAULT_SESSION_H
#define TESTS_FAULT_SESSION_H

#include "scene.h"

/* What a child tells its parent while it works; in shared memory. */
struct report {
    _Atomic long item;     /* at work on it */
    _Atomic int64_t since; /* for so long */
    _Atomic long done;     /* items that passed */
    _Atomic long struck;   /* of them, faults that befell something */
    _Atomic long noticed;  /* of them, told by a call */
    _Atomic long slow;     /* of them, took long */
    long seen;             /* positions of a session without faults */
    unsigned char kinds[20000];
};

/* Runs it; ends the process when something is wrong. */
void session_run(const struct scene *sc, const struct fault_plan *plan);

#endif
