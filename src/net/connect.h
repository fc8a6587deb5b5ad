/* connect.h: connecting, to the first of several addresses that answers (RFC 8305). */
#ifndef NET_CONNECT_H
#define NET_CONNECT_H

#include <netdb.h>
#include <stdint.h>
#include <sys/socket.h>

#include "task/cancel.h"

/* Addresses that are tried; more are left out. */
#define NET_CONNECT_MAX 32

struct net_connect {
    struct task_runtime *runtime;  /* NULL: kernel threads */
    const struct addrinfo *list;   /* in order of preference */
    const struct sockaddr *source; /* to connect from; NULL: any. The other family is left out. */
    socklen_t source_len;
    int64_t deadline;
    int64_t attempt_delay; /* ns */
    struct task_cancel *cancel;
    /* Result: what was connected to, or failed last; ss_family 0: nothing was tried. */
    struct sockaddr_storage address;
    socklen_t address_len;
};

/*
 * Tries the addresses with the families taking turns, beginning with that of the first one; the next
 * one starts when one has failed, or has not answered within attempt_delay. The first connection is
 * kept, the other attempts are closed. A connected socket, or -errno: -ETIMEDOUT, -ECANCELED,
 * -EAFNOSUPPORT when no address has the source's family, or that of the attempt that failed last.
 */
int net_connect(struct net_connect *c);

/* To a Unix socket's path. A connected socket or -errno. Waits while the backlog is full. */
int net_connect_unix(const char *path, struct task_runtime *rt, int64_t deadline,
                     struct task_cancel *cancel);

/* An IP literal as a source. 0 or -EINVAL. */
int net_source_parse(const char *text, struct sockaddr_storage *out, socklen_t *len);

#endif
