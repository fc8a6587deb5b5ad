/* resolve.h: names to addresses, with a deadline. */
#ifndef NET_RESOLVE_H
#define NET_RESOLVE_H

#include <netdb.h>
#include <stdint.h>

#include "task/cancel.h"

/*
 * The addresses of a host (a name, or an IP literal without brackets) for TCP, in the system's order;
 * freeaddrinfo(). localhost and names below it are ::1 and 127.0.0.1. getaddrinfo() runs on a background thread; when the wait ends early it is left to
 * itself. 0; -ETIMEDOUT; -ECANCELED; -ENOMEM or another -errno when there is no thread; or
 * getaddrinfo()'s error in *gai, with -EHOSTUNREACH.
 */
int net_resolve(struct addrinfo **out, const char *host, uint16_t port, struct task_runtime *rt,
                int64_t deadline, struct task_cancel *cancel, int *gai);

#endif
