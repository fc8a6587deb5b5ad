#include "task/set.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS 8

int task_set_init(struct task_set *set, struct task_runtime *rt)
{
    int fd = epoll_create1(EPOLL_CLOEXEC);
    int r;

    if (fd < 0)
        return -errno;
    r = task_socket_init(&set->sock, rt, fd);
    if (r < 0)
        close(fd);
    return r;
}

void task_set_destroy(struct task_set *set)
{
    task_socket_close(&set->sock);
}

int task_set_add(struct task_set *set, int fd, enum task_dir dir)
{
    struct epoll_event ev = {.events = (dir == TASK_READ ? EPOLLIN : EPOLLOUT) | EPOLLET,
                             .data.fd = fd};

    return epoll_ctl(set->sock.fd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

int task_set_await(struct task_set *set, int64_t deadline)
{
    struct epoll_event events[EVENTS];
    int n = epoll_wait(set->sock.fd, events, EVENTS, 0);

    if (n > 0)
        return 0;
    n = set->sock.kind->await_ready(&set->sock, deadline);
    if (n == 0)
        epoll_wait(set->sock.fd, events, EVENTS, 0); /* the next edge is a new one */
    return n;
}
