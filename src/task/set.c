#include "task/set.h"

#include "task/light/light.h"

#include <errno.h>
#include <poll.h>
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

int task_set_watch(struct task_set *set, int fd, short events)
{
    struct epoll_event ev = {.events = (uint32_t)(unsigned short)events | EPOLLET, .data.fd = fd};
    int r = epoll_ctl(set->sock.fd, EPOLL_CTL_ADD, fd, &ev);

    if (r < 0 && errno == EEXIST) { /* for other events, perhaps */
        ev.events = EPOLLIN | EPOLLPRI | EPOLLOUT | EPOLLRDHUP | EPOLLET;
        r = epoll_ctl(set->sock.fd, EPOLL_CTL_MOD, fd, &ev);
    }
    return r < 0 ? -errno : 0;
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

/* Waits in a set; what is ready is looked up anew, since an edge may be an old one. */
static int poll_in_set(struct task_set *set, struct pollfd *fds, size_t count, int64_t deadline)
{
    for (size_t i = 0; i < count; i++) {
        int r = fds[i].fd < 0 ? 0 : task_set_watch(set, fds[i].fd, fds[i].events);

        /* Files that are always ready, and what is no descriptor, are found by poll. */
        if (r < 0 && r != -EPERM && r != -EBADF)
            return r;
    }
    for (;;) {
        int n = task_poll(fds, count, TASK_NOW);
        int r;

        if (n != 0)
            return n;
        r = task_set_await(set, deadline);
        if (r < 0)
            return r == -ETIMEDOUT ? task_poll(fds, count, TASK_NOW) : r;
    }
}

int task_poll_any(struct pollfd *fds, size_t count, int64_t deadline)
{
    struct task_set set = {.sock = {.kind = &task_light, .fd = -1}};
    int n;

    if (!light_current())
        return task_poll(fds, count, deadline);
    n = task_poll(fds, count, TASK_NOW);
    if (n != 0 || deadline == TASK_NOW)
        return n;
    n = task_set_init(&set, task_current_runtime());
    if (n < 0)
        return n;
    n = poll_in_set(&set, fds, count, deadline);
    task_set_destroy(&set);
    return n;
}
