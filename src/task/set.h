/*
 * set.h: waiting for any of several descriptors, on either kind of thread.
 *
 * An epoll set of its own, which a light thread's carrier watches as if it were a socket. For
 * moments when a thread waits for more than one thing; connections need none.
 */
#ifndef TASK_SET_H
#define TASK_SET_H

#include "task/task.h"

struct task_set {
    struct task_socket sock; /* the epoll set */
};

/* rt may be NULL: kernel threads. 0 or -errno; after that it needs no destroy. */
int task_set_init(struct task_set *set, struct task_runtime *rt);
/* The descriptors in it are the caller's. */
void task_set_destroy(struct task_set *set);
/* dir TASK_READ or TASK_WRITE. Closing fd takes it out. 0 or -errno. */
int task_set_add(struct task_set *set, int fd, enum task_dir dir);
/* The same for poll(2)'s events; fd may be in it already. */
int task_set_watch(struct task_set *set, int fd, short events);
/*
 * Until something has happened to one of them, since it was added or since the last call; errors
 * and hang-ups count. May return early: look at all of them, and wait again. 0, -ETIMEDOUT or
 * -errno.
 */
int task_set_await(struct task_set *set, int64_t deadline);

#endif
