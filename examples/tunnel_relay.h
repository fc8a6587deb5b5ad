/*
 * tunnel_relay.h: bytes between a WebSocket connection and a TCP socket, both ways, with half-closes.
 */
#ifndef TUNNEL_RELAY_H
#define TUNNEL_RELAY_H

#include <tws/stream.h>
#include <tws/tws.h>
#include <tws/wait.h>

/*
 * Passes bytes until both directions have ended or one side has failed, then closes c and fd. Works on
 * any thread; the second direction runs on a thread of the group.
 */
void relay(tws_conn *c, int fd, tws_group *group);

/* Connects to "HOST:PORT". A descriptor that does not block, or -errno. */
int tcp_connect(const char *address);

/* Listens on "HOST:PORT". A descriptor that does not block, or -errno. */
int tcp_listen(const char *address);

#endif
