/* watch.h: waiting for a connection and other things at once, and for pongs. */
#ifndef CONN_WATCH_H
#define CONN_WATCH_H

#include "conn/conn.h"

/* A thread that has to see when the connection closes, while it waits elsewhere. */
struct conn_watch {
    struct conn_watch *next, **prev; /* mu */
    struct task_event *event;
};
void conn_watch_add_locked(tws_conn *c, struct conn_watch *w, struct task_event *event);
void conn_watch_remove_locked(struct conn_watch *w);
/* Wakes who waits for a change of the connection: its state, or the reader's leaving. */
void conn_events_wake_locked(tws_conn *c);
/* Takes the reader's role, to give it up as soon as there is more to read than control frames: a thread
 * that comes to read waits for that. False: somebody has it, or wants it. */
bool conn_pump_begin_locked(tws_conn *c, uintptr_t *before);
/* mu is not held. */
void conn_pump_end(tws_conn *c, uintptr_t before);
/* A pong has come. `before`: it answers the keepalive ping that was sent then; 0. */
void conn_pings_answer(tws_conn *c, const uint8_t *data, size_t len, int64_t before);

#endif
