/*
 * chat_slow.h: a member that pretends to read slowly, so that the policy of its queue can be seen.
 *
 * A page cannot stop reading. So the server keeps the connection busy with a message that is open
 * for two seconds at a time: what is said meanwhile waits in the queue, which holds five. When the
 * two seconds are over the message ends, and tells what the queue has come to:
 *
 *     {"type":"slow","waiting":N,"dropped":N}      then follows what has waited
 */
#ifndef CHAT_SLOW_H
#define CHAT_SLOW_H

#include <tws/conn.h>

enum { SLOW_MS = 2000, SLOW_MESSAGES = 5 };

struct slow {
    tws_conn *conn;
    tws_writer *gate; /* the open message */
    tws_ms since;
};

/* "close", "drop-newest" or "drop-oldest". */
bool slow_policy(const char *name, tws_queue_policy *policy);
/* False: the connection has ended. */
bool slow_begin(struct slow *s, tws_conn *c, tws_queue_policy policy);
/* To be called after each read, also one that timed out. False: the connection has ended. */
bool slow_look(struct slow *s);
void slow_end(struct slow *s);

#endif
