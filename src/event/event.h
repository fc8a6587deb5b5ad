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

struct event_worker {
    struct event_worker *next, **link;
    uintptr_t thread;
};

struct event_parallel {
    tws_conn *conn;
    void (*on_message)(tws_conn *c, tws_message *m, void *arg);
    void *arg;
    uint32_t limit; /* constant */
    task_mutex mu;
    uint32_t busy;                /* mu: messages that wait for a worker or are being handled */
    uint32_t count, idle;         /* mu: workers, and those that wait */
    uint32_t begin, waiting;      /* mu: messages in the ring */
    struct event_worker *workers; /* mu: for who asks whether he is one */
    struct task_queue work;       /* mu: idle workers */
    struct task_queue room;       /* mu: the reader, while `limit` are busy */
    struct task_queue gone;       /* mu: woken when count becomes 0 */
    bool stop;                    /* mu: the reader waits for that */
    tws_message ring[];           /* mu: `limit` of them */
};

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
