/*
 * light.h: light threads, inside.
 *
 * A light thread is a stack and a saved context. It belongs to one carrier for its whole life. A
 * carrier is an epoll set, a queue of ready light threads, a timer wheel and an inbox. A driver is
 * a pthread that runs a carrier: it switches to a ready light thread, which switches back when it
 * has to wait.
 *
 * A light thread that does not come back is noticed by the watch, which gives its carrier to
 * another driver. The old driver then has no carrier: when its light thread enters the library
 * again it is sent home, to the carrier's inbox, and the driver becomes a spare one.
 *
 * carrier->state decides who may touch a carrier's own structures: it holds the generation (which
 * driver), a number that changes with every run of a light thread, and a mode. Only in the mode
 * CARRIER_HANDLER, while application code runs, may the watch take the carrier away.
 */
#ifndef TASK_LIGHT_H
#define TASK_LIGHT_H

#include "base/ref.h"
#include "task/light/context.h"
#include "task/light/stack.h"
#include "task/light/wheel.h"
#include "task/task.h"

struct light_task {
    struct light_task *next; /* in a ready queue or inbox */
    struct light_carrier *carrier;
    struct light_context context;
    struct light_stack stack;
    struct light_timer timer;
    struct task_park *park; /* what the timer ends; NULL: nothing, it was left behind */
    void (*fn)(void *arg);
    void *arg;
    _Atomic uint64_t label; /* for the log: what the application calls it */
    bool patient;           /* its own: see task_patient() */
    bool spent;             /* receives much at a time, or without end: as patient */
    int saved_errno;
    uint32_t ran_in;      /* the window of its carrier's pace that counted it */
    _Atomic bool running; /* its context is not saved yet: whoever resumes it waits */
};

/* What a driver does for the light thread that has just switched to it. */
enum light_after { AFTER_PARK, AFTER_END, AFTER_GO_HOME };

struct light_driver {
    struct light_driver *next; /* all of a runtime's */
    struct light_runtime *rt;
    struct light_carrier *carrier; /* NULL: spare, or its carrier was taken */
    uint32_t generation;           /* of carrier->state while this driver has it */
    struct light_task *_Atomic current;
    enum light_after after;
    struct light_context context; /* of the driver's own stack, while a light thread runs */
    pthread_t thread;
    pid_t tid;
    struct task_park park; /* a spare driver waits for a carrier here */
    bool spare;            /* rt->rt.mu */
};

struct light_list {
    struct light_task *head, *tail;
};

enum carrier_mode { CARRIER_LIBRARY = 0, CARRIER_HANDLER = 1 };

/*
 * When to look for events again. A loop that polls whenever it can finds one or two events at a time,
 * and pays a sleep, a wake-up and a system call for each; its peers pay the wake-up. A carrier with
 * much traffic on many sockets therefore pauses before it looks again, until some have come.
 */
struct light_pace {
    int64_t since;    /* when the present window began */
    uint32_t window;  /* its number */
    uint32_t runs;    /* of light threads, in it */
    uint32_t threads; /* different ones among them */
    int64_t pause;    /* ns; 0: none */
};

struct light_carrier {
    struct light_runtime *rt;
    uint32_t index;
    int epoll_fd, wake_fd;
    _Atomic uint64_t state;   /* generation << 32 | run << 1 | mode */
    struct light_list ready;  /* driver's */
    struct light_list later;  /* ready too, but with patience */
    struct light_wheel wheel; /* driver's */
    int64_t now;              /* driver's: when the present round began */
    struct light_pace pace;   /* driver's */
    _Atomic uint32_t tasks;   /* light threads that live here */
    _Atomic uint64_t busy_ns; /* spent outside epoll_wait */
    _Atomic uint32_t load;    /* percent of late that was; the watch's measure */

    task_mutex mu;
    struct light_list inbox;     /* mu */
    struct light_socket *dead;   /* mu: to be freed between two rounds */
    bool closed;                 /* mu: no driver looks at it any more */
    _Atomic bool asleep;         /* in epoll_wait, or about to be */
    _Atomic bool inbox_full;     /* a hint: something is in inbox or dead */
    struct light_driver *driver; /* rt->mu */

    /* The watch's. */
    uint64_t watch_state;
    int64_t watch_since, watch_cpu;
    uint64_t watch_busy;
};

struct light_job;

struct light_helpers { /* pthreads that run what blocks */
    task_mutex mu;
    struct light_job *head, *tail; /* mu: waiting for a helper */
    struct task_queue idle, gone;  /* mu */
    uint32_t count;                /* mu */
    uint32_t takers;               /* mu: of them, those that will look for another job */
    bool stop;                     /* mu */
    bool have_last;                /* mu */
    pthread_t last;                /* mu: ended, to be joined */
};

struct light_runtime {
    struct task_runtime rt;
    struct base_ref refs; /* its owner, and every socket: connections may outlive their server */
    struct light_helpers helpers;
    struct light_stacks stacks;
    uint32_t carrier_count;
    struct light_carrier *carriers;
    char name[16];
    struct task_service watch;
    bool watch_runs;
    struct task_park watch_park;
    _Atomic bool stop;
    bool no_pause;
    tws_ms stuck_ms;
    void (*on_stuck)(void *arg, uint64_t label, tws_ms ms);
    void *on_stuck_arg;
    _Atomic uint64_t handovers;
    struct light_driver *drivers; /* rt.mu */
    uint32_t driver_count;        /* rt.mu */
    uint32_t spare_count;         /* rt.mu */
    struct light_driver *left;    /* rt.mu: ended, to be joined by the next one that ends */
};

struct light_socket {
    struct light_carrier *carrier;
    _Atomic(struct task_park *) waiter[2]; /* by enum task_dir */
    _Atomic bool event[2];                 /* an edge that nobody has looked at yet */
    _Atomic bool hung_up;
    const struct task_socket *user; /* perhaps closed: for fetching what is around it only */
    bool maybe_input;               /* reader's: the last receive did not empty the socket */
    uint8_t streak;                 /* reader's: receives in a row that did not */
    struct light_socket *next;
};

/* ---- driver.c ---- */

/* The driver of the calling pthread; NULL in threads that are not ours. Never keep the answer
 * across a switch: a light thread may come back on another pthread. */
struct light_driver *light_driver_here(void);
struct light_task *light_current(void);
int light_driver_start(struct light_runtime *rt, struct light_carrier *carrier,
                       uint32_t generation);
/* Takes the right to touch the carrier from the watch, going home first if need be. Only from a
 * light thread. */
void light_enter(struct light_task *t);
/* Back to application code. */
void light_leave(struct light_task *t);
/* The light thread's function has returned. Does not. */
_Noreturn void light_end(struct light_task *t);
/* Switches to the driver. In the library's mode. */
void light_switch_out(struct light_task *t, enum light_after after);
/* From any thread. */
void light_make_ready(struct light_task *t);
void light_carrier_wake(struct light_carrier *c);
/* All spawned light threads have ended: drivers end, and are joined. */
void light_drivers_join(struct light_runtime *rt);

/* ---- pace.c ---- */

/* Works out the pause when a window is over. */
void light_pace_look(struct light_pace *p, int64_t now);
/* t is about to run. */
void light_pace_count(struct light_pace *p, struct light_task *t);
/* Nothing is ready: lets some events come together, if that is worth while. */
void light_pace_pause(const struct light_carrier *c);

/* ---- light.c ---- */

/* For a new light thread: the carrier with the fewest, in the main. */
struct light_carrier *light_pick_carrier(struct light_runtime *rt);
void light_runtime_unref(struct light_runtime *rt);
int light_park(struct light_task *t, struct task_park *p, int64_t deadline);
void light_yield(struct light_task *t);
void light_trim_stack(struct light_task *t);

/* ---- blocking.c ---- */

void light_helpers_init(struct light_helpers *h);
void light_helpers_stop(struct light_helpers *h);
/* Whose light thread waits for what this pthread runs; NULL. */
struct task_runtime *light_waiting_runtime(void);
int light_background(struct task_runtime *rt, void (*fn)(void *), void *arg);

/* ---- watch.c ---- */

void light_watch_main(void *runtime);

/* ---- socket.c ---- */

int light_socket_init(struct task_socket *s, struct task_runtime *rt);
void light_socket_close(struct task_socket *s);
/* No more events of it. */
void light_socket_forget(struct task_socket *s);
int light_await(struct task_socket *s, int64_t deadline, tws_ms period);
ssize_t light_recv(struct task_socket *s, void *buf, size_t len);
int light_await_send(struct task_socket *s, int64_t deadline);
int light_await_ready(struct task_socket *s, int64_t deadline);
void light_interrupt(struct task_socket *s);
/* The socket was shut down both ways: also threads of the application's own wake, which may wait
 * longer than there is a carrier. */
void light_socket_shut(struct light_socket *s);
void light_socket_event(struct light_socket *s, uint32_t events);
void light_sockets_free(struct light_runtime *rt, struct light_socket *list);

#endif
