/* Runtimes, service threads, events, poll: what does not depend on the kind of thread. */
#include "task/task.h"

#include "base/clock.h"
#include "task/light/light.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SLICE_NS 100000 /* the least that Linux takes */

static const struct task_kind *kind_of(enum task_kind_id id)
{
    switch (id) {
    case TASK_KERNEL:
        return &task_kernel;
    case TASK_LIGHT:
        return &task_light;
    }
    return NULL;
}

int task_runtime_new(struct task_runtime **out, const struct task_options *opt)
{
    const struct task_kind *kind = kind_of(opt->kind);
    int r;

    if (!kind)
        return -ENOTSUP;
    r = kind->runtime_new(out, opt);
    if (r < 0)
        return r;
    (*out)->kind = kind;
    return 0;
}

int task_spawn(struct task_runtime *rt, void (*fn)(void *arg), void *arg)
{
    return rt->kind->spawn(rt, fn, arg);
}

uint32_t task_runtime_count(struct task_runtime *rt)
{
    uint32_t count;

    pthread_mutex_lock(&rt->mu);
    count = rt->count;
    pthread_mutex_unlock(&rt->mu);
    return count;
}

void task_runtime_stats(struct task_runtime *rt, struct task_stats *out)
{
    *out = (struct task_stats){.carriers = 0};
    if (rt->kind->stats)
        rt->kind->stats(rt, out);
}

int task_runtime_wait(struct task_runtime *rt, int64_t deadline)
{
    int r = 0;

    pthread_mutex_lock(&rt->mu);
    while (rt->count > 0 && r == 0)
        r = task_queue_wait(&rt->ended, &rt->mu, deadline);
    r = rt->count > 0 ? r : 0;
    pthread_mutex_unlock(&rt->mu);
    return r;
}

void task_runtime_free(struct task_runtime *rt)
{
    if (!rt)
        return;
    task_runtime_wait(rt, TASK_FOREVER);
    if (rt->shared) {
        rt->shared_release(rt->shared);
        task_runtime_wait(rt, TASK_FOREVER); /* it may have given rise to threads until then */
    }
    rt->kind->runtime_free(rt);
}

struct task_runtime *task_current_runtime(void)
{
    struct light_task *t = light_current();

    return t ? &t->carrier->rt->rt : kernel_current_runtime();
}

bool task_runtime_here(const struct task_runtime *rt)
{
    return task_current_runtime() == rt || light_waiting_runtime() == rt;
}

void *task_runtime_share(struct task_runtime *rt, void *(*make)(void *arg), void *arg,
                         void (*release)(void *shared))
{
    void *shared;

    pthread_mutex_lock(&rt->mu);
    if (!rt->shared) {
        rt->shared = make(arg);
        rt->shared_release = release;
    }
    shared = rt->shared;
    pthread_mutex_unlock(&rt->mu);
    return shared;
}

int task_background(struct task_runtime *rt, void (*fn)(void *arg), void *arg)
{
    return (rt ? rt->kind : &task_kernel)->background(rt, fn, arg);
}

/*
 * Who wakes among as many runnable threads as there are busy connections, or beside other programs,
 * waits its turn behind all of them when weights and slices are equal. A short slice gives it an early
 * deadline, so that it runs soon after it wakes, for no more in all (Linux 6.12 and later; elsewhere
 * this is refused or has no effect, and does no harm). The priority it was started with stays.
 */
void task_short_slices(void)
{
    struct {
        uint32_t size;
        uint32_t policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attr = {.size = sizeof attr, .policy = SCHED_OTHER, .runtime = SLICE_NS};

    if (sched_getscheduler(0) != SCHED_OTHER)
        return;
    attr.nice = getpriority(PRIO_PROCESS, 0); /* of this thread alone */
    syscall(SYS_sched_setattr, 0, &attr, 0);
}

static void *service_main(void *p)
{
    struct task_service *s = p;

    pthread_setname_np(pthread_self(), s->name);
    if (s->urgent)
        task_short_slices();
    s->fn(s->arg);
    return NULL;
}

int task_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                        void *arg)
{
    /* What a thread's own fault raises ends the process at once where it is blocked: nothing of the
     * application's that writes crash reports would be asked. */
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t others, old;
    int r;

    sigfillset(&others);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&others, faults[i]);
    pthread_sigmask(SIG_SETMASK, &others, &old);
    r = pthread_create(thread, attr, fn, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return -r;
}

int task_service_start(struct task_service *s, const char *name, bool urgent, void (*fn)(void *),
                       void *arg)
{
    s->fn = fn;
    s->arg = arg;
    s->name = name;
    s->urgent = urgent;
    return task_pthread_create(&s->thread, NULL, service_main, s);
}

void task_service_join(struct task_service *s)
{
    pthread_join(s->thread, NULL);
}

int task_event_init(struct task_event *e)
{
    e->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return e->fd < 0 ? -errno : 0;
}

void task_event_destroy(struct task_event *e)
{
    if (e->fd >= 0)
        close(e->fd);
    e->fd = -1;
}

void task_event_set(struct task_event *e)
{
    int saved = errno;
    uint64_t one = 1;
    ssize_t n = write(e->fd, &one, sizeof one); /* EAGAIN: it is set already, many times */

    (void)n;
    errno = saved;
}

void task_event_clear(struct task_event *e)
{
    uint64_t value;
    ssize_t n = read(e->fd, &value, sizeof value);

    (void)n;
}

int task_poll(struct pollfd *fds, size_t count, int64_t deadline)
{
    for (;;) {
        struct timespec ts;
        struct timespec *limit = NULL;
        int n;

        if (deadline != TASK_FOREVER) {
            int64_t left = deadline > 0 ? deadline - base_clock_ns() : 0;

            ts = base_timespec(left > 0 ? left : 0);
            limit = &ts;
        }
        n = ppoll(fds, count, limit, NULL);
        if (n >= 0)
            return n;
        if (errno != EINTR)
            return -errno;
    }
}

int task_poll_one(int fd, short events, int64_t deadline)
{
    struct pollfd pfd = {.fd = fd, .events = events};
    int n = task_poll(&pfd, 1, deadline);

    if (n < 0)
        return n;
    return n > 0 ? 0 : -ETIMEDOUT;
}

uintptr_t task_self(void)
{
    struct light_task *t = light_current();

    return t ? (uintptr_t)t : (uintptr_t)pthread_self();
}

void task_set_label(uint64_t label)
{
    struct light_task *t = light_current();

    if (t)
        atomic_store_explicit(&t->label, label, memory_order_relaxed);
}

void task_trim_stack(void)
{
    struct light_task *t = light_current();

    if (t)
        light_trim_stack(t);
    else
        kernel_trim_stack();
}

static void light_sleep(int64_t deadline)
{
    struct task_park p;

    task_park_init(&p);
    task_park(&p, deadline); /* nobody knows of it: the deadline comes */
}

void task_sleep(int64_t deadline)
{
    if (light_current()) {
        light_sleep(deadline);
        return;
    }
    struct timespec ts = base_timespec(deadline);

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR) {
    }
}

void task_yield(void)
{
    struct light_task *t = light_current();

    if (t)
        light_yield(t);
}

void task_patient(bool patient)
{
    struct light_task *t = light_current();

    if (t)
        t->patient = patient;
}

/* ---- Sockets: dispatch ---- */

static int socket_init(struct task_socket *s, struct task_runtime *rt, int fd, bool shared)
{
    s->kind = rt ? rt->kind : &task_kernel;
    s->fd = fd;
    s->recv_waits = false;
    s->recv_wait = shared ? -1 : 0; /* not known */
    s->edge_fd = -1;
    s->wake_fd = -1;
    s->light = NULL;
    atomic_init(&s->interrupted, false);
    return s->kind->socket_init(s, rt);
}

int task_socket_init(struct task_socket *s, struct task_runtime *rt, int fd)
{
    return socket_init(s, rt, fd, false);
}

int task_socket_inherit(struct task_socket *s, struct task_runtime *rt, int fd)
{
    return socket_init(s, rt, fd, true);
}

int task_socket_wakeable(struct task_socket *s)
{
    if (s->light || s->wake_fd >= 0)
        return 0;
    s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return s->wake_fd < 0 ? -errno : 0;
}

void task_nudge(struct task_socket *s)
{
    if (s->light)
        s->kind->interrupt(s);
    else if (s->wake_fd >= 0)
        task_event_set(&(struct task_event){.fd = s->wake_fd});
}

/* An epoll set goes on watching a socket of which there is another descriptor, here or in another process,
 * also when ours is closed. So it is taken out by hand, and something else is put in the descriptor's
 * place. */
void task_socket_forget(struct task_socket *s)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (s->light)
        light_socket_forget(s);
    if (null < 0)
        return; /* then it is open here too until it is closed */
    dup3(null, s->fd, O_CLOEXEC);
    close(null);
}

void task_socket_again(struct task_socket *s)
{
    int flags = fcntl(s->fd, F_GETFL);

    s->recv_wait = -1;
    if (flags >= 0)
        fcntl(s->fd, F_SETFL, s->light ? flags | O_NONBLOCK : flags & ~O_NONBLOCK);
}

void task_socket_close(struct task_socket *s)
{
    if (s->light && s->fd >= 0) /* there may be one more: a child's, or the application's */
        light_socket_forget(s);
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
    s->kind->socket_close(s);
}

int task_await(struct task_socket *s, int64_t deadline, tws_ms period)
{
    return s->kind->await(s, deadline, period);
}

void task_hint_input(struct task_socket *s)
{
    if (s->light)
        s->light->maybe_input = true;
}

ssize_t task_recv(struct task_socket *s, void *buf, size_t len)
{
    ssize_t n = s->kind->recv(s, buf, len);

    return n < 0 ? task_failed((int)-n) : n;
}

int task_await_send(struct task_socket *s, int64_t deadline)
{
    return s->kind->await_send(s, deadline);
}

void task_shutdown(struct task_socket *s, int how)
{
    shutdown(s->fd, how);
    if (s->light && how == SHUT_RDWR)
        light_socket_shut(s->light);
}

void task_interrupt(struct task_socket *s)
{
    s->kind->interrupt(s);
}
