/* inherit.h: listening sockets that this process was started with, or has made itself. */
#ifndef NET_INHERIT_H
#define NET_INHERIT_H

#include "net/address.h"
#include "net/listen.h"

/*
 * The descriptors that an address stands for: "fd:N" for one, "systemd:NAME" for those of that name
 * among the ones that LISTEN_FDS tells of, "systemd:" for all of them. Stores at most `max`. How many
 * there are, 0 for any other form of address, or -errno with *why.
 */
int net_inherited(const char *address, int *fds, int max, const char **why);
/* Listens on one of them, which stays somebody else's until net_listener_own(). 0 or -errno with
 * *why. */
int net_listen_inherited(struct net_listener *l, int fd, const char **why);
/* An inherited socket is the listener's from now on, or is given back. */
void net_listener_own(struct net_listener *l, bool own);

/*
 * The family of a stream socket that is connected, and with whom. -ENOTSOCK: it is no stream socket;
 * -ENOTCONN: it is connected no more (the peer has reset it), or never was; or what the system said.
 */
int net_connected(int fd, union net_peer *peer);

#endif
