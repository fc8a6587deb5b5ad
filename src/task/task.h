/*
 * task.h: what a connection's thread is, and everything in the library that can wait.
 *
 * Two kinds of thread stand behind one table (struct task_kind): kernel threads, where a blocking
 * recv is the wait, and light threads, where a wait switches to the next ready light thread.
 * Nothing outside this folder calls poll, recv, send or a thread's wait by itself.
 *
 * Results are 0 or above, or a negative errno:
 *   -ETIMEDOUT  the deadline came
 *   -TASK_LOST  the system has given the peer up: its own ETIMEDOUT, which is the end of a socket
 *   -EAGAIN     a try would have to wait; from task_recv after a whole `period` of silence
 * A socket that was shut down wakes its waiters: they see end of input or EPIPE.
 */
#ifndef TASK_TASK_H
#define TASK_TASK_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <tws/types.h>

#define TASK_LOST ETIME
/* The negative result of a call on a socket that failed with this errno. */
static inline int task_failed(int error)
{
    return error == ETIMEDOUT ? -TASK_LOST : -error;
}

/* What the system said, of a negative result. */
static inline int task_errno(int result)
{
    return result == -TASK_LOST ? ETIMEDOUT : -result;
}

/* Points in time: base_clock_ns(). */
#define TASK_FOREVER INT64_MAX
#define TASK_NOW INT64_C(0)

struct task_kind;
struct pollfd;

/* A point in time in place of a duration. */
#define TASK_AT(t) ((tws_ms) - (t))
/* now + ms; TASK_FOREVER for 0, TASK_NOW for TWS_NOWAIT, t for TASK_AT(t). */
int64_t task_deadline(tws_ms ms);

/* ---- Park and wake: one thread waits for one word from another. ---- */

struct task_park {
    _Atomic uint32_t state;
    _Atomic(void *) task; /* the light thread that waits; NULL: a kernel thread */
};

void task_park_init(struct task_park *p);
/* Until task_unpark(), which may come first, or the deadline. 0 or -ETIMEDOUT. */
int task_park(struct task_park *p, int64_t deadline);
/* From any thread. p is not touched any more once the waiter may have gone on. */
void task_unpark(struct task_park *p);

/* ---- Queue: threads that wait for a state that a mutex guards. ---- */

/* For short sections only: never held across anything that waits. */
typedef pthread_mutex_t task_mutex;

struct task_wait {
    struct task_wait *next, *prev;
    struct task_park park;
    bool queued;
};

struct task_queue { /* guarded by the mutex that its waiters name */
    struct task_wait *head, *tail;
};

/* Waits in order of arrival. mu is held at the call and again at return. 0 or -ETIMEDOUT. */
int task_queue_wait(struct task_queue *q, task_mutex *mu, int64_t deadline);
void task_queue_wake_one(struct task_queue *q);
void task_queue_wake_all(struct task_queue *q);

/* ---- Threads ---- */

enum task_kind_id { TASK_KERNEL = 0, TASK_LIGHT = 1 };

#define TASK_STACK_MIN ((size_t)16 * 1024)
#define TASK_CARRIERS_MAX 1024

struct task_options {
    enum task_kind_id kind;
    size_t stack_size; /* 0: 256 KiB, light 64 KiB */
    bool spread;       /* kernel threads: one core each in turn */
    uint32_t carriers; /* of light threads, up to TASK_CARRIERS_MAX; 0: one per core */
    bool no_pause;     /* light threads: carriers look for events as often as they can */
    bool paint;        /* light threads: measure how deep stacks are used */
    tws_ms stuck_ms;   /* light threads: when a handler counts as stuck; 0: the default */
    /* Told when one was: what the thread called itself, and how long it took. */
    void (*on_stuck)(void *arg, uint64_t label, tws_ms ms);
    void *on_stuck_arg;
    const char *name; /* of the threads, at most 15 characters */
    const tws_allocator *allocator;
};

/* The threads of one server. */
struct task_runtime {
    const struct task_kind *kind;
    const tws_allocator *allocator;
    task_mutex mu;
    uint32_t count;          /* mu: threads spawned and not yet ended */
    bool released;           /* mu: the last thread frees it */
    struct task_queue ended; /* mu: woken when count becomes 0 */
    void *shared;            /* mu: see task_runtime_share() */
    void (*shared_release)(void *shared);
};

/* 0 or -errno. */
int task_runtime_new(struct task_runtime **out, const struct task_options *opt);
/* Runs fn(arg) on a new thread. 0 or -errno; then fn will not run. */
int task_spawn(struct task_runtime *rt, void (*fn)(void *arg), void *arg);
uint32_t task_runtime_count(struct task_runtime *rt);
struct task_stats { /* of light threads; zero for kernel threads */
    uint32_t carriers, helpers, stacks;
    uint64_t handovers;
    size_t deepest_stack;
};
void task_runtime_stats(struct task_runtime *rt, struct task_stats *out);
/* Until no spawned thread is left. 0 or -ETIMEDOUT. */
int task_runtime_wait(struct task_runtime *rt, int64_t deadline);
/* Waits for and joins every thread. NULL is fine. */
void task_runtime_free(struct task_runtime *rt);
/* Kernel threads only: frees it without waiting, by its last thread if there still are any. The caller
 * may be one of them. NULL is fine. */
void task_runtime_release(struct task_runtime *rt);
struct tws_group;
struct task_runtime *task_group_runtime(struct tws_group *g);
/* The runtime that spawned the calling thread; NULL in threads of the application's own. */
struct task_runtime *task_current_runtime(void);
/* Whether the calling thread is one of rt's, or runs what one of them waits for (tws_blocking()). */
bool task_runtime_here(const struct task_runtime *rt);
/*
 * Something that all threads of a runtime share: made by the first who asks, released with the
 * runtime. make(arg) may return NULL, and is asked again then.
 */
void *task_runtime_share(struct task_runtime *rt, void *(*make)(void *arg), void *arg,
                         void (*release)(void *shared));
/*
 * Runs fn(arg), which may block, on a helper pthread of rt, or on one of its own (rt NULL, or kernel
 * threads), and does not wait for it. The end of a runtime of light threads does. 0 or -errno; then
 * fn will not run.
 */
int task_background(struct task_runtime *rt, void (*fn)(void *arg), void *arg);

/* A thread of the library's own beside the connections': accepting, watching. */
struct task_service {
    pthread_t thread;
    void (*fn)(void *arg);
    void *arg;
    const char *name;
    bool urgent; /* asks for short slices, so that it does not starve behind the connections */
};

/* name at most 15 characters, constant. 0 or -errno. */
int task_service_start(struct task_service *s, const char *name, bool urgent, void (*fn)(void *),
                       void *arg);
void task_service_join(struct task_service *s);

/* Asks for short slices for the calling pthread. */
void task_short_slices(void);

/* Tells the running threads apart: equal only within one thread. Never 0. */
uintptr_t task_self(void);
void task_sleep(int64_t deadline);
/* On a light thread: lets the others of its carrier run first. For long work that never waits. */
void task_yield(void);
/* On a light thread: those of its carrier that have no patience go first from now on, or no longer. For
 * work that strangers can ask for: kernel threads have the system to share out the processor. */
void task_patient(bool patient);
/* Gives back stack pages that an earlier, deeper call touched on this spawned thread. */
void task_trim_stack(void);
/* What on_stuck calls the present thread. */
void task_set_label(uint64_t label);

/* ---- Events: a descriptor that makes task_poll() return. ---- */

struct task_event {
    int fd;
};

int task_event_init(struct task_event *e); /* 0 or -errno */
void task_event_destroy(struct task_event *e);
void task_event_set(struct task_event *e); /* async-signal-safe */
void task_event_clear(struct task_event *e);
/* poll(2) with a deadline, restarted after signals. The number of ready descriptors, or -errno. */
int task_poll(struct pollfd *fds, size_t count, int64_t deadline);
/* Until a descriptor is ready for these events. 0, -ETIMEDOUT or -errno. */
int task_poll_one(int fd, short events, int64_t deadline);
/* The same on either kind of thread; on a light one it waits in a set of its own (set.h). */
int task_poll_any(struct pollfd *fds, size_t count, int64_t deadline);

/* ---- Sockets ---- */

enum task_dir { TASK_READ, TASK_WRITE };

struct task_socket {
    const struct task_kind *kind;
    int fd;
    _Atomic bool interrupted; /* kernel threads: the reading side has been shut down */
    /* Kernel threads; the reader's own. */
    bool recv_waits;            /* the next task_recv blocks in the system call itself */
    tws_ms recv_wait;           /* SO_RCVTIMEO as it stands */
    int edge_fd;                /* waits for new input after an interrupt; -1: none yet */
    int wake_fd;                /* Unix sockets, and who wants to be nudged: an eventfd; -1: none */
    struct light_socket *light; /* light threads */
};

/* Cache lines of a connection, which its socket stands at the beginning of: fetched together, before
 * they are needed one after the other. */
#define TASK_USER_LINES 16
static inline void task_prefetch_user(const struct task_socket *s)
{
    for (int line = -1; line < TASK_USER_LINES - 1; line++)
        __builtin_prefetch((const char *)s + line * 64, 1);
}

/* Takes fd over. rt may be NULL: kernel threads. 0 or -errno (fd is then still the caller's). */
int task_socket_init(struct task_socket *s, struct task_runtime *rt, int fd);
/* The same for a socket that another process has had: its settings and its modes are not as they are
 * when new, and there may be descriptors of it elsewhere. */
int task_socket_inherit(struct task_socket *s, struct task_runtime *rt, int fd);
/* From now on task_nudge() works also for kernel threads over TCP. 0 or -errno. */
int task_socket_wakeable(struct task_socket *s);
/* Makes a wait for input return 0, once, without harm. Does nothing where that is not possible. */
void task_nudge(struct task_socket *s);
/* Another process has the socket now: nothing that is still done here may reach it. */
void task_socket_forget(struct task_socket *s);
/* Another process has had the socket and not kept it: sets its modes again. */
void task_socket_again(struct task_socket *s);
/* close(2). Nobody may be inside a call. */
void task_socket_close(struct task_socket *s);

/*
 * Before every task_recv: waits until there may be input, needing no buffer meanwhile, or arranges
 * that task_recv itself waits. `deadline` is exact and costs a system call; with TASK_FOREVER there
 * is none, and task_recv returns -EAGAIN after `period` milliseconds of silence (0: never).
 * 0, -ETIMEDOUT, -EAGAIN (period), or another -errno.
 */
int task_await(struct task_socket *s, int64_t deadline, tws_ms period);
/* By other means than task_await() input has been seen: the next one does not wait for it. */
void task_hint_input(struct task_socket *s);
/* Bytes, 0 at end of input, -EAGAIN, or -errno. */
ssize_t task_recv(struct task_socket *s, void *buf, size_t len);
/* True after task_await when task_recv needs its buffer while it waits. */
static inline bool task_recv_waits(const struct task_socket *s)
{
    return s->recv_waits;
}
/* Tries to send, never waits. Bytes taken, -EAGAIN when none, or -errno. Never raises SIGPIPE. */
ssize_t task_send(struct task_socket *s, const struct iovec *iov, int count);
/* For descriptors that are not sockets of connections (yet): tries to receive, never waits. */
ssize_t task_recv_now(int fd, void *buf, size_t len);
/* As task_send() for bytes of a file, from *offset on, which is moved; 0: the file has no more. -EINVAL
 * or -ENOSYS: not from such a file. */
ssize_t task_send_file(struct task_socket *s, int fd, int64_t *offset, size_t len);
/* Up to len bytes of a file, from offset on; or of a pipe, offset below 0, which may wait: see
 * task_poll_any(). 0 at the end, or -errno. */
ssize_t task_file_read(int fd, void *buf, size_t len, int64_t offset);
/* Bytes sent that have not been acknowledged; 0 when that cannot be told. */
int64_t task_unsent(const struct task_socket *s);
/* Until some bytes can be sent or the socket was shut down. 0, -ETIMEDOUT or -errno. */
int task_await_send(struct task_socket *s, int64_t deadline);
/*
 * Wakes the thread that waits for input, for good: from now on its waits end at once when there is
 * none. What the peer still sends can be read on, by waiting with a deadline.
 */
void task_interrupt(struct task_socket *s);
/* shutdown(2) by SHUT_RD, SHUT_WR or SHUT_RDWR; wakes both directions as that says. */
void task_shutdown(struct task_socket *s, int how);

/* ---- The table ---- */

struct task_kind {
    const char *name;
    int (*runtime_new)(struct task_runtime **out, const struct task_options *opt);
    void (*runtime_free)(struct task_runtime *rt);
    void (*stats)(struct task_runtime *rt, struct task_stats *out); /* NULL: nothing to tell */
    int (*spawn)(struct task_runtime *rt, void (*fn)(void *), void *arg);
    int (*socket_init)(struct task_socket *s, struct task_runtime *rt);
    void (*socket_close)(struct task_socket *s);
    int (*await)(struct task_socket *s, int64_t deadline, tws_ms period);
    ssize_t (*recv)(struct task_socket *s, void *buf, size_t len);
    int (*await_send)(struct task_socket *s, int64_t deadline);
    /* Input on a descriptor that is received from by other means: 0 once for every edge. */
    int (*await_ready)(struct task_socket *s, int64_t deadline);
    void (*interrupt)(struct task_socket *s);
    int (*background)(struct task_runtime *rt, void (*fn)(void *), void *arg);
};

extern const struct task_kind task_kernel;
/* pthread_create() with the signals blocked that are for the application's threads. 0 or -errno. */
int task_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                        void *arg);
/* What task_trim_stack() leaves below its own frame: the red zone and the calls it makes. */
#define TASK_STACK_BELOW 512
/* task_trim_stack() and task_current_runtime() of kernel threads. */
void kernel_trim_stack(void);
struct task_runtime *kernel_current_runtime(void);
extern const struct task_kind task_light;

#endif
