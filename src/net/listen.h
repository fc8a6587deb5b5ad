/* listen.h: listening sockets. */
#ifndef NET_LISTEN_H
#define NET_LISTEN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

struct net_listener {
    int fd;
    bool unlink_path; /* a socket file of ours, to be removed */
    bool plain;       /* the owner's note: no TLS here */
    bool inherited;   /* see inherit.h */
    bool provisional; /* closing leaves the socket open: it is still somebody else's */
    dev_t dev;        /* of that file, to tell whether it still is ours */
    ino_t ino;
};

/*
 * Listens on "HOST:PORT", "[IPV6]:PORT", ":PORT", "unix:PATH" or "unix:@NAME", without blocking
 * accepts. 0 or -errno; -EINVAL for text that is no address, -EADDRNOTAVAIL for a name that cannot
 * be resolved.
 */
int net_listen(struct net_listener *l, const char *address, int backlog, bool reuse_port);
void net_listener_close(struct net_listener *l);

/* The descriptor of the next connection, or -errno: -EAGAIN when there is none. */
int net_accept(const struct net_listener *l, struct sockaddr_storage *addr, socklen_t *len);

#endif
