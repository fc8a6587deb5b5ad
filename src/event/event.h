/*
 * event.h: running a connection by events, inside.
 *
 * All of one run is on the stack of the thread that reads; only parallel handling has memory of its
 * own, made with the first message.
 */
#ifndef EVENT_EVENT_H
#define EVENT_EVENT_H

#include <tws/event.h>

#include "conn/conn.h"

struct event_parallel;

struct event_run {
    tws_conn *conn;
    const tws_events *events; /* whole and valid */
    void *arg;
    uintptr_t thread;                /* that reads */
    struct event_parallel *parallel; /* conn's mu, written by the reader; NULL: not needed so far */
};

/* Copies a table of any size. What is wrong with it; NULL: nothing. */
const char *event_take(tws_events *own, const tws_events *in);
/* From now on tws_events_wait() waits. False: events run already, or have run. */
bool event_claim(tws_conn *c);
/* After that: until on_close has returned. How the connection ended. */
tws_err event_run(tws_conn *c, const tws_events *events, void *arg);

/* ---- parallel.c ---- */

/* Has a message handled, on another thread if that is possible. Waits while too many are. */
void event_handle_parallel(struct event_run *r, tws_message *m);
/* Until no handler runs; frees it. NULL is fine. */
void event_parallel_end(struct event_run *r);
/* Whether the calling thread handles messages for it. */
bool event_parallel_here(struct event_parallel *p);

#endif
