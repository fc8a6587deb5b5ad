/* Drivers: pthreads that run carriers. */
#include "task/light/light.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "task/park.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EVENTS_MAX 256
/* Light threads with patience that run in one round; for how long another one is taken. */
#define PATIENT_MAX 4
#define PATIENT_NS (BASE_NS_PER_MS / 4)
#define DRIVER_STACK (128 * 1024)
#define DRIVERS_MAX 1024
/* Spare drivers that stay, and how long the others do. */
#define SPARES_KEPT 4
#define SPARE_NS BASE_NS_PER_S

static _Thread_local struct light_driver *driver_here __attribute__((tls_model("initial-exec")));

/* Not inlined: the address of a thread's variable must not be kept across a switch. */
__attribute__((noinline)) struct light_driver *light_driver_here(void)
{
    return driver_here;
}

struct light_task *light_current(void)
{
    struct light_driver *d = light_driver_here();

    return d ? atomic_load_explicit(&d->current, memory_order_relaxed) : NULL;
}

/* ---- Who has the carrier ---- */

static uint64_t state_make(uint32_t generation, uint32_t run, enum carrier_mode mode)
{
    return (uint64_t)generation << 32 | (uint64_t)(run & 0x7fffffff) << 1 | (uint64_t)mode;
}

static uint32_t state_generation(uint64_t state)
{
    return (uint32_t)(state >> 32);
}

static uint32_t state_run(uint64_t state)
{
    return (uint32_t)state >> 1;
}

/* From HANDLER to LIBRARY; false when the watch has given the carrier to another driver. */
static bool carrier_enter(struct light_driver *d, struct light_carrier *c)
{
    uint64_t state = atomic_load_explicit(&c->state, memory_order_relaxed);

    if (d->carrier != c || state_generation(state) != d->generation)
        return false;
    return atomic_compare_exchange_strong(
        &c->state, &state, state_make(d->generation, state_run(state), CARRIER_LIBRARY));
}

void light_enter(struct light_task *t)
{
    struct light_driver *d = light_driver_here();

    if (carrier_enter(d, t->carrier))
        return;
    d->carrier = NULL;
    light_switch_out(t, AFTER_GO_HOME); /* comes back on the carrier's driver, in library mode */
}

void light_leave(struct light_task *t)
{
    struct light_carrier *c = t->carrier;
    uint64_t state = atomic_load_explicit(&c->state, memory_order_relaxed);

    atomic_store_explicit(
        &c->state, state_make(state_generation(state), state_run(state) + 1, CARRIER_HANDLER),
        memory_order_release);
}

__attribute__((noinline)) void light_switch_out(struct light_task *t, enum light_after after)
{
    struct light_driver *d = light_driver_here();

    d->after = after;
    t->saved_errno = errno;
    light_context_switch(&t->context, &d->context, after == AFTER_END);
}

_Noreturn void light_end(struct light_task *t)
{
    light_enter(t);
    light_wheel_remove(&t->timer);
    light_switch_out(t, AFTER_END);
    __builtin_unreachable();
}

/* ---- Ready light threads ---- */

static void list_push(struct light_list *l, struct light_task *t)
{
    t->next = NULL;
    if (l->tail)
        l->tail->next = t;
    else
        l->head = t;
    l->tail = t;
}

static struct light_task *list_pop(struct light_list *l)
{
    struct light_task *t = l->head;

    if (t) {
        l->head = t->next;
        if (!l->head)
            l->tail = NULL;
    }
    return t;
}

void light_carrier_wake(struct light_carrier *c)
{
    if (atomic_exchange(&c->asleep, false)) {
        uint64_t one = 1;
        ssize_t n = write(c->wake_fd, &one, sizeof one);

        (void)n;
    }
}

/* Whether the calling thread may touch the carrier's own queue. */
static bool owns(const struct light_carrier *c)
{
    const struct light_driver *d = light_driver_here();
    uint64_t state;

    if (!d || d->carrier != c)
        return false;
    state = atomic_load_explicit(&c->state, memory_order_relaxed);
    return state_generation(state) == d->generation && (state & 1) == CARRIER_LIBRARY;
}

static void send_to_inbox(struct light_carrier *c, struct light_task *t)
{
    pthread_mutex_lock(&c->mu);
    list_push(&c->inbox, t);
    atomic_store(&c->inbox_full, true);
    pthread_mutex_unlock(&c->mu);
    light_carrier_wake(c);
}

void light_make_ready(struct light_task *t)
{
    if (owns(t->carrier)) {
        light_context_prefetch(&t->context);
        list_push(&t->carrier->ready, t);
    } else
        send_to_inbox(t->carrier, t);
}

/* ---- Running ---- */

static void task_ended(struct light_task *t)
{
    struct light_carrier *c = t->carrier;
    struct light_runtime *rt = c->rt;
    struct light_stack stack = t->stack; /* t itself lives on it */

    light_context_free(&t->context);
    light_stack_put(&rt->stacks, &stack);
    atomic_fetch_sub(&c->tasks, 1);
    pthread_mutex_lock(&rt->rt.mu);
    if (--rt->rt.count == 0)
        task_queue_wake_all(&rt->rt.ended);
    pthread_mutex_unlock(&rt->rt.mu);
}

/* Runs a light thread until it switches back. False: this driver has lost its carrier. */
static bool run_task(struct light_driver *d, struct light_carrier *c, struct light_task *t)
{
    while (atomic_load_explicit(&t->running, memory_order_acquire))
        sched_yield(); /* another driver is still saving it: a few instructions */
    atomic_store_explicit(&t->running, true, memory_order_relaxed);
    atomic_store_explicit(&d->current, t, memory_order_relaxed);
    light_pace_count(&c->pace, t);
    errno = t->saved_errno;
    light_context_switch(&d->context, &t->context, 0);
    atomic_store_explicit(&d->current, NULL, memory_order_relaxed);
    switch (d->after) {
    case AFTER_PARK:
        atomic_store_explicit(&t->running, false, memory_order_release);
        break;
    case AFTER_GO_HOME: {
        struct light_carrier *home = t->carrier;

        atomic_store_explicit(&t->running, false, memory_order_release);
        send_to_inbox(home, t);
        break;
    }
    case AFTER_END:
        task_ended(t);
        break;
    }
    return d->carrier == c;
}

static void take_inbox(struct light_carrier *c)
{
    struct light_socket *dead;

    if (!atomic_load(&c->inbox_full))
        return;
    pthread_mutex_lock(&c->mu);
    atomic_store(&c->inbox_full, false);
    if (c->inbox.head) {
        if (c->ready.tail)
            c->ready.tail->next = c->inbox.head;
        else
            c->ready.head = c->inbox.head;
        c->ready.tail = c->inbox.tail;
        c->inbox.head = c->inbox.tail = NULL;
    }
    dead = c->dead;
    c->dead = NULL;
    pthread_mutex_unlock(&c->mu);
    light_sockets_free(c->rt, dead);
}

static void end_waits(struct light_carrier *c)
{
    struct light_timer *timer;

    while ((timer = light_wheel_expired(&c->wheel, c->now))) {
        struct light_task *t =
            (struct light_task *)(void *)((char *)timer - offsetof(struct light_task, timer));
        uint32_t state = PARK_WAITING;

        if (!t->park)
            continue; /* it does not wait, or for ever */
        if (timer->wanted > c->now)
            light_wheel_add(&c->wheel, timer, timer->wanted);
        else if (atomic_compare_exchange_strong(&t->park->state, &state, PARK_TIMED_OUT))
            list_push(&c->ready, t);
    }
}

static int wait_ms(struct light_carrier *c)
{
    int64_t next, ms;

    if (c->ready.head || c->later.head)
        return 0;
    next = light_wheel_next(&c->wheel);
    if (next == INT64_MAX)
        return -1;
    ms = (next - base_clock_ns() + BASE_NS_PER_MS - 1) / BASE_NS_PER_MS;
    return ms < 0 ? 0 : ms > INT_MAX ? INT_MAX : (int)ms;
}

static void poll_sockets(struct light_carrier *c)
{
    struct epoll_event events[EVENTS_MAX];
    int timeout = wait_ms(c);
    int n;

    if (timeout != 0) {
        /* Pairs with light_carrier_wake: either the waker sees us asleep or we see its inbox. */
        atomic_store(&c->asleep, true);
        if (atomic_load(&c->inbox_full) || atomic_load(&c->rt->stop))
            timeout = 0;
    }
    n = epoll_wait(c->epoll_fd, events, EVENTS_MAX, timeout);
    atomic_store(&c->asleep, false);
    for (int i = 0; i < n; i++)
        __builtin_prefetch(events[i].data.ptr, 1);
    for (int i = 0; i < n; i++) {
        if (events[i].data.ptr) {
            light_socket_event(events[i].data.ptr, events[i].events);
        } else {
            uint64_t value;
            ssize_t r = read(c->wake_fd, &value, sizeof value);

            (void)r;
        }
    }
}

static bool run_patient(struct light_driver *d, struct light_carrier *c)
{
    struct light_task *t = list_pop(&c->later);
    int64_t end = t ? base_clock_ns() + PATIENT_NS : 0;

    for (int left = PATIENT_MAX; t; t = list_pop(&c->later)) {
        if (!run_task(d, c, t))
            return false;
        if (--left == 0 || base_clock_ns() >= end)
            break;
    }
    return true;
}

/* One round: what is ready now runs, what becomes ready meanwhile runs in the next one. Of those that
 * have patience a few, and of those that take long one: however many they are and whatever they do, the
 * others have their turn soon. */
static bool run_ready(struct light_driver *d, struct light_carrier *c)
{
    struct light_task *last = c->ready.tail;
    struct light_task *t;

    while (last && (t = list_pop(&c->ready))) {
        bool stop_here = t == last;

        if (t->patient || t->spent)
            list_push(&c->later, t);
        else if (!run_task(d, c, t))
            return false;
        if (stop_here)
            break;
    }
    return run_patient(d, c);
}

static void run_carrier(struct light_driver *d)
{
    struct light_carrier *c = d->carrier;

    while (!atomic_load_explicit(&c->rt->stop, memory_order_relaxed) ||
           atomic_load(&c->tasks) > 0) {
        int64_t begin;

        poll_sockets(c);
        begin = c->now = base_clock_ns();
        light_pace_look(&c->pace, c->now);
        take_inbox(c);
        end_waits(c);
        if (!run_ready(d, c))
            return;
        atomic_fetch_add_explicit(&c->busy_ns, (uint64_t)(base_clock_ns() - begin),
                                  memory_order_relaxed);
        if (!c->ready.head && !c->later.head)
            light_pace_pause(c);
    }
}

/* ---- Life of a driver ---- */

static void join_driver(struct light_runtime *rt, struct light_driver *d)
{
    pthread_join(d->thread, NULL);
    base_free(rt->rt.allocator, d);
}

/* A spare one that nobody needed for a while ends, unless few are left. The one that ended before it is
 * joined here, so that at most one keeps its stack. */
static bool leave(struct light_runtime *rt, struct light_driver *d)
{
    struct light_driver **at = &rt->drivers;
    struct light_driver *before;

    pthread_mutex_lock(&rt->rt.mu);
    if (!d->spare || rt->spare_count <= SPARES_KEPT || atomic_load(&rt->stop)) {
        pthread_mutex_unlock(&rt->rt.mu);
        return false;
    }
    while (*at != d)
        at = &(*at)->next;
    *at = d->next;
    rt->driver_count--;
    rt->spare_count--;
    before = rt->left;
    rt->left = d;
    pthread_mutex_unlock(&rt->rt.mu);
    if (before)
        join_driver(rt, before);
    return true;
}

/* Waits to be given a carrier. False: the runtime ends, or nobody needs this driver any more. */
static bool be_spare(struct light_driver *d)
{
    struct light_runtime *rt = d->rt;
    bool go_on;

    pthread_mutex_lock(&rt->rt.mu);
    d->spare = true;
    rt->spare_count++;
    pthread_mutex_unlock(&rt->rt.mu);
    while (!atomic_load(&rt->stop)) {
        pthread_mutex_lock(&rt->rt.mu);
        go_on = !d->spare;
        pthread_mutex_unlock(&rt->rt.mu);
        if (go_on)
            return true;
        if (task_park(&d->park, base_clock_ns() + SPARE_NS) < 0 && leave(rt, d))
            return false;
    }
    return false;
}

static void *driver_main(void *p)
{
    struct light_driver *d = p;

    driver_here = d;
    d->tid = (pid_t)syscall(SYS_gettid);
    pthread_setname_np(pthread_self(), d->rt->name);
    task_short_slices(); /* its light threads wait together, also for other programs */
    light_context_adopt(&d->context);
    do {
        if (d->carrier)
            run_carrier(d);
        d->carrier = NULL;
    } while (be_spare(d));
    driver_here = NULL;
    return NULL;
}

/* rt.mu is held. */
static struct light_driver *find_spare(struct light_runtime *rt)
{
    for (struct light_driver *d = rt->drivers; d; d = d->next)
        if (d->spare)
            return d;
    return NULL;
}

static int create_driver(struct light_runtime *rt, struct light_carrier *c, uint32_t generation)
{
    struct light_driver *d = base_calloc(rt->rt.allocator, sizeof *d);
    pthread_attr_t attr;
    int r;

    if (!d)
        return -ENOMEM;
    d->rt = rt;
    d->carrier = c;
    d->generation = generation;
    task_park_init(&d->park);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, DRIVER_STACK + (size_t)sysconf(_SC_THREAD_STACK_MIN));
    r = task_pthread_create(&d->thread, &attr, driver_main, d);
    pthread_attr_destroy(&attr);
    if (r < 0) {
        base_free(rt->rt.allocator, d);
        return r;
    }
    d->next = rt->drivers;
    rt->drivers = d;
    rt->driver_count++;
    c->driver = d;
    return 0;
}

int light_driver_start(struct light_runtime *rt, struct light_carrier *c, uint32_t generation)
{
    struct light_driver *d;
    int r = 0;

    pthread_mutex_lock(&rt->rt.mu);
    d = find_spare(rt);
    if (d) {
        d->carrier = c;
        d->generation = generation;
        d->spare = false;
        rt->spare_count--;
        c->driver = d;
        task_unpark(&d->park);
    } else {
        r = rt->driver_count < DRIVERS_MAX ? create_driver(rt, c, generation) : -EAGAIN;
    }
    pthread_mutex_unlock(&rt->rt.mu);
    return r;
}

void light_drivers_join(struct light_runtime *rt)
{
    struct light_driver *d;

    for (uint32_t i = 0; i < rt->carrier_count; i++) {
        atomic_store(&rt->carriers[i].inbox_full, true);
        atomic_store(&rt->carriers[i].asleep, true);
        light_carrier_wake(&rt->carriers[i]);
    }
    /* The runtime has stopped, so that none leaves any more once the lock was held here. */
    pthread_mutex_lock(&rt->rt.mu);
    for (d = rt->drivers; d; d = d->next)
        task_unpark(&d->park);
    pthread_mutex_unlock(&rt->rt.mu);
    while ((d = rt->drivers)) {
        rt->drivers = d->next;
        join_driver(rt, d);
    }
    if (rt->left)
        join_driver(rt, rt->left);
}
