/* echo_broadcast.h: a path on which every message goes to all connections on it. */
#ifndef ECHO_BROADCAST_H
#define ECHO_BROADCAST_H

#include <tws/hub.h>

/* Before the first connection and after the last. False: no memory. */
bool broadcast_open(const char *path);
void broadcast_close(void);

/* Whether this connection asked for that path. */
bool broadcast_wanted(const tws_conn *c);
/* Its handler. */
void broadcast(tws_conn *c);

/* NULL when there is no such path. */
tws_hub *broadcast_hub(void);

#endif
