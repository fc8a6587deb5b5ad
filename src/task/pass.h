/* pass.h: bytes and a descriptor over a Unix stream socket. These calls block their pthread. */
#ifndef TASK_PASS_H
#define TASK_PASS_H

#include "task/task.h"

/* Sends all of it, the descriptor (-1: none) with the first byte. 0 or -errno; *begun: whether some of
 * it has left. */
int task_pass_send(int sock, const struct iovec *iov, int count, int fd, int64_t deadline,
                   bool *begun);
/* Receives exactly len bytes, and the descriptor that comes with them unless fd is NULL; -1 in *fd when
 * none came. How many: len, or 0 at the end; -EBADMSG for more descriptors than that and for an end
 * in the middle; -EMFILE when len bytes have come and this process had no room for the descriptor; or
 * -errno. *begun: whether something has come. */
ssize_t task_pass_recv(int sock, void *data, size_t len, int *fd, int64_t deadline, bool *begun);

#endif
