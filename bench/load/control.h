#ifndef LOAD_CONTROL_H
#define LOAD_CONTROL_H

#include <stdio.h>

#include "result.h"
#include "ticker.h"

/* The main thread's part: moves the run from phase to phase and takes the samples. */
struct control {
    struct run *run;
    struct result *result;
    struct ticker *ticker; /* NULL: nobody looks */
    FILE *events;          /* NULL: nobody listens */
    int signals;           /* signalfd for SIGINT and SIGTERM */
    uint64_t next_tick;
};

/* Runs from the first connect to the last close. The threads must have been started. */
void control_run(struct control *k);

/* The last line of the events. */
void control_event_end(struct control *k);

#endif
