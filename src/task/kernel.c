/* Kernel threads: a pthread per connection, where a blocking recv is the wait. */
#include "task/task.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/page.h"
#include "task/light/context.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <netinet/in.h>
#include <netinet/tcp.h>

#define KERNEL_STACK ((size_t)256 * 1024)

/* ---- Threads ---- */

struct kernel_runtime {
    struct task_runtime rt;
    size_t stack_size;
    char name[16];
    _Atomic uint32_t next_core; /* index of the core that the next thread gets */
    uint32_t core_count;
    cpu_set_t cores; /* that this process may use */
    bool spread;
    bool have_last; /* rt.mu */
    pthread_t last; /* rt.mu: ended, to be joined by the next one that ends */
};

struct kernel_start {
    struct kernel_runtime *k;
    void (*fn)(void *);
    void *arg;
};

static int kernel_runtime_new(struct task_runtime **out, const struct task_options *opt)
{
    struct kernel_runtime *k = base_calloc(opt->allocator, sizeof *k);

    if (!k)
        return -ENOMEM;
    k->rt.allocator = opt->allocator;
    pthread_mutex_init(&k->rt.mu, NULL);
    k->stack_size = opt->stack_size ? opt->stack_size : KERNEL_STACK;
    if (k->stack_size < (size_t)sysconf(_SC_THREAD_STACK_MIN))
        k->stack_size = (size_t)sysconf(_SC_THREAD_STACK_MIN);
    strncpy(k->name, opt->name, sizeof k->name - 1);
    if (opt->spread && sched_getaffinity(0, sizeof k->cores, &k->cores) == 0)
        k->core_count = (uint32_t)CPU_COUNT(&k->cores);
    k->spread = k->core_count > 1;
    *out = &k->rt;
    return 0;
}

static void kernel_runtime_free(struct task_runtime *rt)
{
    struct kernel_runtime *k = (struct kernel_runtime *)rt;

    if (k->have_last)
        pthread_join(k->last, NULL);
    pthread_mutex_destroy(&rt->mu);
    base_free(rt->allocator, k);
}

/*
 * Every ending thread joins the one that ended before it, so that at most one ended thread keeps
 * its stack, without a thread whose work is to join.
 */
static void kernel_retire(struct kernel_runtime *k)
{
    bool join, abandoned;
    pthread_t previous;

    pthread_mutex_lock(&k->rt.mu);
    join = k->have_last;
    previous = k->last;
    k->last = pthread_self();
    k->have_last = true;
    pthread_mutex_unlock(&k->rt.mu);
    if (join)
        pthread_join(previous, NULL);

    /* The last one to get here is `last`: it has joined the one before. */
    pthread_mutex_lock(&k->rt.mu);
    if (--k->rt.count == 0)
        task_queue_wake_all(&k->rt.ended);
    abandoned = k->rt.count == 0 && k->rt.released;
    pthread_mutex_unlock(&k->rt.mu);
    if (abandoned) {
        k->have_last = false;
        pthread_detach(pthread_self());
        kernel_runtime_free(&k->rt);
    }
}

void task_runtime_release(struct task_runtime *rt)
{
    bool last;

    if (!rt)
        return;
    pthread_mutex_lock(&rt->mu);
    last = rt->count == 0;
    rt->released = true;
    pthread_mutex_unlock(&rt->mu);
    if (last)
        kernel_runtime_free(rt);
}

/* Where this thread's stack begins and how much of it may be given back; 0 in foreign threads. */
static _Thread_local uintptr_t stack_top;
static _Thread_local size_t stack_usable;
static _Thread_local struct task_runtime *current_runtime;

struct task_runtime *kernel_current_runtime(void)
{
    return current_runtime;
}

static void *kernel_main(void *p)
{
    struct kernel_start start = *(struct kernel_start *)p;
    struct kernel_runtime *k = start.k;

    base_free(k->rt.allocator, p);
    pthread_setname_np(pthread_self(), k->name);
    stack_top = (uintptr_t)__builtin_frame_address(0);
    stack_usable = k->stack_size / 2;
    current_runtime = &k->rt;
    start.fn(start.arg);
    kernel_retire(k);
    return NULL;
}

void kernel_trim_stack(void)
{
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);

    if (stack_top)
        base_page_give_back(stack_top - stack_usable, here - TASK_STACK_BELOW);
}

/* The core for the next thread: each allowed one in turn. */
static void pick_core(struct kernel_runtime *k, cpu_set_t *set)
{
    uint32_t index = k->next_core++ % k->core_count;

    CPU_ZERO(set);
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, &k->cores) && index-- == 0) {
            CPU_SET(core, set);
            return;
        }
    }
}

static int create_thread(struct kernel_runtime *k, struct kernel_start *start)
{
    pthread_attr_t attr;
    pthread_t thread;
    int r = pthread_attr_init(&attr);

    if (r != 0)
        return -r;
    pthread_attr_setstacksize(&attr, k->stack_size);
    if (k->spread) {
        cpu_set_t set;

        pick_core(k, &set);
        pthread_attr_setaffinity_np(&attr, sizeof set, &set);
    }
    r = task_pthread_create(&thread, &attr, kernel_main, start);
    pthread_attr_destroy(&attr);
    return r;
}

static int kernel_spawn(struct task_runtime *rt, void (*fn)(void *), void *arg)
{
    struct kernel_runtime *k = (struct kernel_runtime *)rt;
    struct kernel_start *start = base_alloc(rt->allocator, sizeof *start);
    int r;

    if (!start)
        return -ENOMEM;
    start->k = k;
    start->fn = fn;
    start->arg = arg;
    pthread_mutex_lock(&rt->mu);
    rt->count++;
    pthread_mutex_unlock(&rt->mu);
    r = create_thread(k, start);
    if (r == 0)
        return 0;
    pthread_mutex_lock(&rt->mu);
    if (--rt->count == 0)
        task_queue_wake_all(&rt->ended);
    pthread_mutex_unlock(&rt->mu);
    base_free(rt->allocator, start);
    return r;
}

/* ---- What blocks elsewhere and is not waited for ---- */

struct background {
    void (*fn)(void *);
    void *arg;
};

static void *background_main(void *p)
{
    struct background b = *(struct background *)p;

    base_free(NULL, p);
    pthread_setname_np(pthread_self(), "tws-background");
    b.fn(b.arg);
    return NULL;
}

/* Nobody waits for it, so it may outlive everything: it has malloc's memory, not a caller's. */
static int kernel_background(struct task_runtime *rt, void (*fn)(void *), void *arg)
{
    struct background *b = base_alloc(NULL, sizeof *b);
    pthread_attr_t attr;
    pthread_t thread;
    int r;

    (void)rt;
    if (!b)
        return -ENOMEM;
    b->fn = fn;
    b->arg = arg;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, KERNEL_STACK);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    r = task_pthread_create(&thread, &attr, background_main, b);
    pthread_attr_destroy(&attr);
    if (r < 0)
        base_free(NULL, b);
    return r;
}

/* ---- Sockets ---- */

/*
 * A shutdown for reading, which interrupts a wait over TCP and leaves the peer's sending alone, would
 * make a Unix peer's next write fail: its answer to our close frame. So Unix sockets have an eventfd
 * beside them, at the price of one poll before every receive.
 */
static int kernel_socket_init(struct task_socket *s, struct task_runtime *rt)
{
    int flags = fcntl(s->fd, F_GETFL);
    int domain = AF_UNSPEC;
    socklen_t len = sizeof domain;

    (void)rt;
    if (flags < 0)
        return -errno;
    if ((flags & O_NONBLOCK) && fcntl(s->fd, F_SETFL, flags & ~O_NONBLOCK) < 0)
        return -errno;
    if (getsockopt(s->fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_UNIX) {
        s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (s->wake_fd < 0)
            return -errno;
    }
    return 0;
}

static void kernel_socket_close(struct task_socket *s)
{
    if (s->wake_fd >= 0)
        close(s->wake_fd);
    if (s->edge_fd >= 0)
        close(s->edge_fd);
}

static int set_recv_wait(struct task_socket *s, tws_ms period)
{
    struct timeval tv = {.tv_sec = period / 1000, .tv_usec = period % 1000 * 1000};

    if (setsockopt(s->fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv) < 0)
        return -errno;
    s->recv_wait = period;
    return 0;
}

/* After an interrupt recv returns 0 for "nothing yet" too: has the peer really ended its side? */
static bool peer_ended(struct task_socket *s)
{
    struct tcp_info info;
    socklen_t len = sizeof info;

    if (getsockopt(s->fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
        return true; /* not TCP: nothing was shut down */
    return info.tcpi_state != TCP_ESTABLISHED && info.tcpi_state != TCP_FIN_WAIT1 &&
           info.tcpi_state != TCP_FIN_WAIT2;
}

static bool has_input(struct task_socket *s)
{
    int n;

    return (ioctl(s->fd, FIONREAD, &n) == 0 && n > 0) || peer_ended(s);
}

/*
 * After an interrupt (a shutdown for reading) poll reports input for ever, but what the peer sends
 * still arrives. An edge-triggered epoll set tells when. One descriptor, only for connections that
 * were interrupted in a wait, and only until they are closed. One edge may stand for several things,
 * for the peer's last bytes and its end, so what is there already is asked for first.
 */
static int await_edge(struct task_socket *s, int64_t deadline)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET};
    int n;

    if (s->edge_fd < 0) {
        s->edge_fd = epoll_create1(EPOLL_CLOEXEC);
        if (s->edge_fd < 0)
            return -errno;
        if (epoll_ctl(s->edge_fd, EPOLL_CTL_ADD, s->fd, &ev) < 0)
            return -errno;
    }
    if (has_input(s))
        return 0;
    n = task_poll_one(s->edge_fd, POLLIN, deadline);
    if (n < 0)
        return n;
    n = epoll_wait(s->edge_fd, &ev, 1, 0);
    return n < 0 && errno != EINTR ? -errno : 0;
}

static int await_input(struct task_socket *s, int64_t deadline)
{
    struct pollfd pfd[2] = {{.fd = s->fd, .events = POLLIN}, {.fd = s->wake_fd, .events = POLLIN}};
    int n = task_poll(pfd, s->wake_fd < 0 ? 1 : 2, deadline);

    if (n < 0)
        return n;
    if (pfd[1].revents)
        task_event_clear(&(struct task_event){.fd = s->wake_fd});
    return n > 0 ? 0 : -ETIMEDOUT;
}

static int kernel_await(struct task_socket *s, int64_t deadline, tws_ms period)
{
    int64_t end = deadline;
    int r;

    s->recv_waits = false;
    if (s->wake_fd < 0 && atomic_load(&s->interrupted))
        return await_edge(s, deadline);
    if (s->wake_fd < 0 && deadline == TASK_FOREVER) {
        s->recv_waits = true;
        return s->recv_wait == period ? 0 : set_recv_wait(s, period);
    }
    if (period > 0 && deadline != TASK_NOW) {
        int64_t tick = base_clock_ns() + period * BASE_NS_PER_MS;

        if (tick < end)
            end = tick;
    }
    r = await_input(s, end);
    return r == -ETIMEDOUT && end != deadline ? -EAGAIN : r;
}

/* A receive that was to wait did not. The mode belongs to the socket, not to the descriptor: another one
 * of it may have been made non-blocking (by who gave us a dup() of his), or a file is being sent. Then the
 * wait is by other means, and not round and round. 0: there may be input. */
static int wait_outside(const struct task_socket *s)
{
    int64_t end = s->recv_wait > 0 ? base_clock_ns() + s->recv_wait * BASE_NS_PER_MS : TASK_FOREVER;
    int flags = fcntl(s->fd, F_GETFL);
    int r = -ETIMEDOUT;

    if (flags >= 0 && (flags & O_NONBLOCK))
        r = task_poll_one(s->fd, POLLIN, end);
    return r == -ETIMEDOUT ? -EAGAIN : r;
}

static ssize_t kernel_recv(struct task_socket *s, void *buf, size_t len)
{
    int64_t begin = s->recv_waits && s->recv_wait > 0 ? base_clock_coarse_ns() : 0;

    for (;;) {
        ssize_t n = recv(s->fd, buf, len, s->recv_waits ? 0 : MSG_DONTWAIT);

        if (n > 0) {
            task_prefetch_user(s);
            return n;
        }
        if (n == 0)
            return atomic_load(&s->interrupted) && !peer_ended(s) ? -EAGAIN : 0;
        if (errno == EAGAIN && s->recv_waits) {
            int r = wait_outside(s);

            if (r < 0)
                return r;
            continue;
        }
        if (errno != EINTR)
            return -errno;
        /* A restarted wait begins its period anew: under a storm of signals count by the clock. */
        if (begin && base_clock_coarse_ns() - begin >= s->recv_wait * BASE_NS_PER_MS)
            return -EAGAIN;
    }
}

/*
 * Calls that never wait need not be points of cancellation, which cost two atomic operations each. The
 * sanitizers know the library's functions only.
 */
#if defined(LIGHT_ASAN) || defined(LIGHT_TSAN)
#define recv_now(fd, buf, len) recv(fd, buf, len, MSG_DONTWAIT)
#define send_now(fd, msg) sendmsg(fd, msg, MSG_DONTWAIT | MSG_NOSIGNAL)
#define send_one_now(fd, msg) send_now(fd, msg)
#else
#define recv_now(fd, buf, len)                                                                     \
    syscall(SYS_recvfrom, fd, buf, len, MSG_DONTWAIT, (void *)NULL, (void *)NULL)
#define send_now(fd, msg) syscall(SYS_sendmsg, fd, msg, MSG_DONTWAIT | MSG_NOSIGNAL)
#define send_one_now(fd, msg)                                                                      \
    syscall(SYS_sendto, fd, (msg)->msg_iov->iov_base, (msg)->msg_iov->iov_len,                     \
            MSG_DONTWAIT | MSG_NOSIGNAL, (void *)NULL, 0)
#endif

ssize_t task_recv_now(int fd, void *buf, size_t len)
{
    ssize_t n;

    do
        n = recv_now(fd, buf, len);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

ssize_t task_send(struct task_socket *s, const struct iovec *iov, int count)
{
    struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)count};
    ssize_t n;

    do
        n = count == 1 ? send_one_now(s->fd, &msg) : send_now(s->fd, &msg);
    while (n < 0 && errno == EINTR);
    return n < 0 ? task_failed(errno) : n;
}

int64_t task_unsent(const struct task_socket *s)
{
    int bytes = 0;

    return ioctl(s->fd, SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

static int kernel_await_send(struct task_socket *s, int64_t deadline)
{
    return task_poll_one(s->fd, POLLOUT, deadline);
}

static int kernel_await_ready(struct task_socket *s, int64_t deadline)
{
    return task_poll_one(s->fd, POLLIN, deadline);
}

/* The one thing that wakes a thread inside recv without a signal and without ending the sending. */
static void kernel_interrupt(struct task_socket *s)
{
    if (atomic_exchange(&s->interrupted, true))
        return;
    if (s->wake_fd >= 0)
        task_event_set(&(struct task_event){.fd = s->wake_fd});
    else
        shutdown(s->fd, SHUT_RD);
}

const struct task_kind task_kernel = {
    .name = "kernel",
    .runtime_new = kernel_runtime_new,
    .runtime_free = kernel_runtime_free,
    .stats = NULL,
    .spawn = kernel_spawn,
    .socket_init = kernel_socket_init,
    .socket_close = kernel_socket_close,
    .await = kernel_await,
    .recv = kernel_recv,
    .await_send = kernel_await_send,
    .await_ready = kernel_await_ready,
    .interrupt = kernel_interrupt,
    .background = kernel_background,
};
