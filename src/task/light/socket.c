/* Sockets of light threads: try first, then wait for an edge from the carrier's epoll set. */
#include "task/light/light.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* Receives in a row that found the socket full, before other light threads have their turn. */
#define STREAK_MAX 4
/* Who receives so much at a time is busy, until it receives little. */
#define BUSY_BYTES 8192
#define LITTLE_BYTES 2048

int light_socket_init(struct task_socket *s, struct task_runtime *rt)
{
    struct light_runtime *lr = (struct light_runtime *)rt;
    struct light_task *t = light_current();
    struct light_socket *ls;
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
    int flags = fcntl(s->fd, F_GETFL);

    if (flags < 0 || (!(flags & O_NONBLOCK) && fcntl(s->fd, F_SETFL, flags | O_NONBLOCK) < 0))
        return -errno;
    ls = base_calloc(rt->allocator, sizeof *ls);
    if (!ls)
        return -ENOMEM;
    ls->carrier = t && t->carrier->rt == lr ? t->carrier : &lr->carriers[0];
    ls->maybe_input = true;
    ls->user = s;
    s->light = ls;
    ev.data.ptr = ls;
    if (epoll_ctl(ls->carrier->epoll_fd, EPOLL_CTL_ADD, s->fd, &ev) < 0) {
        int saved = errno;

        base_free(rt->allocator, ls);
        s->light = NULL;
        return -saved;
    }
    base_ref_get(&lr->refs);
    return 0;
}

/* The descriptor is closed already. An event of it may be in the carrier's hands, so that only the
 * carrier, between two rounds, may free what it points to. */
void light_socket_close(struct task_socket *s)
{
    struct light_socket *ls = s->light;
    struct light_carrier *c;
    struct light_runtime *rt;
    bool closed;

    if (!ls)
        return; /* there was no memory for it */
    c = ls->carrier;
    rt = c->rt;
    pthread_mutex_lock(&c->mu);
    closed = c->closed;
    if (!closed) {
        ls->next = c->dead;
        c->dead = ls;
        atomic_store(&c->inbox_full, true);
    }
    pthread_mutex_unlock(&c->mu);
    if (closed)
        base_free(rt->rt.allocator, ls);
    light_runtime_unref(rt);
    s->light = NULL;
}

void light_socket_forget(struct task_socket *s)
{
    struct light_carrier *c = s->light->carrier;

    pthread_mutex_lock(&c->mu);
    if (!c->closed) /* else the set's number may be somebody else's */
        epoll_ctl(c->epoll_fd, EPOLL_CTL_DEL, s->fd, NULL);
    pthread_mutex_unlock(&c->mu);
}

void light_sockets_free(struct light_runtime *rt, struct light_socket *list)
{
    while (list) {
        struct light_socket *next = list->next;

        base_free(rt->rt.allocator, list);
        list = next;
    }
}

static void signal_waiter(struct light_socket *s, enum task_dir dir)
{
    struct task_park *waiter;

    atomic_store(&s->event[dir], true);
    /* Pairs with await: either it sees the event or we see it waiting. */
    waiter = atomic_exchange(&s->waiter[dir], NULL);
    if (waiter)
        task_unpark(waiter);
}

void light_socket_event(struct light_socket *s, uint32_t events)
{
    task_prefetch_user(s->user);
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        atomic_store(&s->hung_up, true);
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        signal_waiter(s, TASK_READ);
    if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR))
        signal_waiter(s, TASK_WRITE);
}

void light_socket_shut(struct light_socket *s)
{
    light_socket_event(s, EPOLLHUP);
}

/* Whether the runtime has ended before the connection. Not while one of its threads is in here. */
static bool is_orphan(struct light_socket *s)
{
    struct light_task *t = light_current();
    struct light_carrier *c = s->carrier;
    bool closed;

    if (t && t->carrier->rt == c->rt)
        return false;
    pthread_mutex_lock(&c->mu);
    closed = c->closed;
    pthread_mutex_unlock(&c->mu);
    return closed;
}

/* Nobody tells of edges any more. */
static int await_alone(struct task_socket *s, enum task_dir dir, int64_t deadline)
{
    struct pollfd pfd = {.fd = s->fd, .events = dir == TASK_READ ? POLLIN : POLLOUT};
    int n = task_poll_any(&pfd, 1, deadline);

    if (n < 0)
        return n;
    return n > 0 ? 0 : -ETIMEDOUT;
}

/* Waits for an edge. 0, -ETIMEDOUT or another -errno. */
static int await_edge(struct task_socket *sock, enum task_dir dir, int64_t deadline)
{
    struct light_socket *s = sock->light;
    struct task_park park;
    int r = 0;

    if (atomic_exchange(&s->event[dir], false))
        return 0;
    if (is_orphan(s))
        return await_alone(sock, dir, deadline);
    if (deadline == TASK_NOW)
        return -ETIMEDOUT;
    task_park_init(&park);
    atomic_store(&s->waiter[dir], &park);
    if (!atomic_load(&s->event[dir]))
        r = task_park(&park, deadline);
    else
        r = -ETIMEDOUT; /* it came meanwhile: stop waiting, as after a timeout */
    if (r < 0 && !atomic_exchange(&s->waiter[dir], NULL))
        task_park(&park, TASK_FOREVER); /* somebody is unparking us: let it finish */
    return atomic_exchange(&s->event[dir], false) ? 0 : -ETIMEDOUT;
}

/* A peer that always has more to say must not keep the carrier from the others. */
static void let_others(struct light_socket *s)
{
    struct light_task *t = light_current();

    if (++s->streak < STREAK_MAX)
        return;
    s->streak = 0;
    if (t) {
        t->spent = true;
        light_yield(t);
    }
}

int light_await(struct task_socket *s, int64_t deadline, tws_ms period)
{
    int64_t end = deadline;
    int r;

    s->recv_waits = false;
    if (s->light->maybe_input) {
        let_others(s->light);
        return 0;
    }
    s->light->streak = 0;
    if (period > 0 && deadline != TASK_NOW) {
        int64_t tick = base_clock_coarse_ns() + period * BASE_NS_PER_MS;

        if (tick < end)
            end = tick;
    }
    r = await_edge(s, TASK_READ, end);
    return r == -ETIMEDOUT && end != deadline ? -EAGAIN : r;
}

static void note_received(ssize_t n)
{
    struct light_task *t = light_current();

    if (t && n >= BUSY_BYTES)
        t->spent = true;
    else if (t && n >= 0 && n < LITTLE_BYTES)
        t->spent = false;
}

ssize_t light_recv(struct task_socket *s, void *buf, size_t len)
{
    struct light_socket *ls = s->light;
    ssize_t n = task_recv_now(s->fd, buf, len);

    note_received(n);

    /* A receive that did not fill its buffer has emptied the socket; what comes later is a new edge.
     * Only an end of input may be behind the data without one. */
    ls->maybe_input = n != -EAGAIN && ((size_t)n == len || atomic_load(&ls->hung_up));
    return n;
}

int light_await_send(struct task_socket *s, int64_t deadline)
{
    return await_edge(s, TASK_WRITE, deadline);
}

int light_await_ready(struct task_socket *s, int64_t deadline)
{
    return await_edge(s, TASK_READ, deadline);
}

void light_interrupt(struct task_socket *s)
{
    signal_waiter(s->light, TASK_READ);
}
