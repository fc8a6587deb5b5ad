/* Light threads as a kind of thread: the table's functions. */
#include "task/light/light.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/page.h"
#include "task/park.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LIGHT_STACK ((size_t)64 * 1024)
#define DEFAULT_STUCK_MS 10
/* Placing new light threads: percent of time at work that is much, and how much more than another's;
 * how many more of them a less busy carrier may get. */
#define LOAD_HIGH 50
#define LOAD_GAP 30
#define LOAD_SLACK 16
#if defined(LIGHT_ASAN) || defined(LIGHT_TSAN)
#define STACK_FACTOR 4 /* instrumented frames are larger */
#else
#define STACK_FACTOR 1
#endif

/* ---- Runtime ---- */

static int carrier_init(struct light_runtime *rt, struct light_carrier *c, uint32_t index)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL};

    c->rt = rt;
    c->index = index;
    pthread_mutex_init(&c->mu, NULL);
    light_wheel_init(&c->wheel, base_clock_ns());
    c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->epoll_fd < 0 || c->wake_fd < 0 ||
        epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, c->wake_fd, &ev) < 0)
        return -errno;
    return 0;
}

static void carrier_close(struct light_carrier *c)
{
    struct light_socket *dead;

    pthread_mutex_lock(&c->mu);
    c->closed = true;
    dead = c->dead;
    c->dead = NULL;
    pthread_mutex_unlock(&c->mu);
    light_sockets_free(c->rt, dead);
    if (c->epoll_fd >= 0)
        close(c->epoll_fd);
    if (c->wake_fd >= 0)
        close(c->wake_fd);
}

void light_runtime_unref(struct light_runtime *rt)
{
    if (!base_ref_put(&rt->refs))
        return;
    for (uint32_t i = 0; i < rt->carrier_count; i++)
        pthread_mutex_destroy(&rt->carriers[i].mu);
    base_free(rt->rt.allocator, rt->carriers);
    pthread_mutex_destroy(&rt->rt.mu);
    base_free(rt->rt.allocator, rt);
}

static uint32_t core_count(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) < 0)
        return 1;
    return (uint32_t)CPU_COUNT(&set);
}

static void runtime_stop(struct light_runtime *rt)
{
    atomic_store(&rt->stop, true);
    if (rt->watch_runs) {
        task_unpark(&rt->watch_park);
        task_service_join(&rt->watch);
    }
    light_drivers_join(rt);
    light_helpers_stop(&rt->helpers);
    for (uint32_t i = 0; i < rt->carrier_count; i++)
        carrier_close(&rt->carriers[i]);
    light_stacks_destroy(&rt->stacks);
    light_runtime_unref(rt);
}

static int runtime_start(struct light_runtime *rt)
{
    int r = 0;

    for (uint32_t i = 0; i < rt->carrier_count; i++) {
        rt->carriers[i].epoll_fd = rt->carriers[i].wake_fd = -1;
        if (r == 0)
            r = carrier_init(rt, &rt->carriers[i], i);
        else
            pthread_mutex_init(&rt->carriers[i].mu, NULL);
    }
    for (uint32_t i = 0; i < rt->carrier_count && r == 0; i++)
        r = light_driver_start(rt, &rt->carriers[i], 0);
    if (r == 0)
        r = task_service_start(&rt->watch, "tws-light", true, light_watch_main, rt);
    rt->watch_runs = r == 0;
    return r;
}

static int light_runtime_new(struct task_runtime **out, const struct task_options *opt)
{
    struct light_runtime *rt = base_calloc(opt->allocator, sizeof *rt);
    int r;

    if (!rt)
        return -ENOMEM;
    base_ref_init(&rt->refs);
    rt->rt.allocator = opt->allocator;
    pthread_mutex_init(&rt->rt.mu, NULL);
    strncpy(rt->name, opt->name, sizeof rt->name - 1);
    rt->stuck_ms = opt->stuck_ms > 0 ? opt->stuck_ms : DEFAULT_STUCK_MS;
    rt->no_pause = opt->no_pause;
    rt->on_stuck = opt->on_stuck;
    rt->on_stuck_arg = opt->on_stuck_arg;
    task_park_init(&rt->watch_park);
    light_helpers_init(&rt->helpers);
    light_stacks_init(&rt->stacks, opt->allocator,
                      (opt->stack_size ? opt->stack_size : LIGHT_STACK) * STACK_FACTOR, opt->paint);
    rt->carrier_count = opt->carriers ? opt->carriers : core_count();
    rt->carriers = base_calloc(opt->allocator, rt->carrier_count * sizeof *rt->carriers);
    if (!rt->carriers)
        rt->carrier_count = 0;
    r = rt->carriers ? runtime_start(rt) : -ENOMEM;
    if (r < 0) {
        runtime_stop(rt);
        return r;
    }
    *out = &rt->rt;
    return 0;
}

static void light_stats(struct task_runtime *rt, struct task_stats *out)
{
    struct light_runtime *lr = (struct light_runtime *)rt;

    out->carriers = lr->carrier_count;
    out->handovers = atomic_load(&lr->handovers);
    pthread_mutex_lock(&lr->stacks.mu);
    out->stacks = lr->stacks.in_use;
    out->deepest_stack = lr->stacks.deepest;
    pthread_mutex_unlock(&lr->stacks.mu);
    pthread_mutex_lock(&lr->helpers.mu);
    out->helpers = lr->helpers.count;
    pthread_mutex_unlock(&lr->helpers.mu);
}

static void light_runtime_free(struct task_runtime *rt)
{
    runtime_stop((struct light_runtime *)rt);
}

/* ---- Spawning ---- */

static void light_main(void)
{
    struct light_task *t = light_current();

    light_context_entered(&t->context);
    t->patient = false; /* its turn has come */
    light_leave(t);
    t->fn(t->arg);
    light_end(t);
}

static bool much_busier(const struct light_carrier *a, const struct light_carrier *b)
{
    uint32_t load = atomic_load_explicit(&a->load, memory_order_relaxed);

    return load >= LOAD_HIGH &&
           load >= atomic_load_explicit(&b->load, memory_order_relaxed) + LOAD_GAP;
}

/* Where that one is much busier than another, the other, unless it has many more already: what new
 * ones will cost is not known, and the load is that of a while ago. */
struct light_carrier *light_pick_carrier(struct light_runtime *rt)
{
    struct light_carrier *fewest = &rt->carriers[0], *best;

    for (uint32_t i = 1; i < rt->carrier_count; i++)
        if (atomic_load(&rt->carriers[i].tasks) < atomic_load(&fewest->tasks))
            fewest = &rt->carriers[i];
    best = fewest;
    for (uint32_t i = 0; i < rt->carrier_count; i++) {
        struct light_carrier *c = &rt->carriers[i];
        uint32_t tasks = atomic_load(&fewest->tasks);

        if (much_busier(best, c) && atomic_load(&c->tasks) <= tasks + tasks / 4 + LOAD_SLACK)
            best = c;
    }
    return best;
}

static int light_spawn(struct task_runtime *rt, void (*fn)(void *), void *arg)
{
    struct light_runtime *lr = (struct light_runtime *)rt;
    struct light_stack stack;
    struct light_task *t;

    if (!light_stack_get(&lr->stacks, &stack))
        return -ENOMEM;
    /* The thread's own record lies at the top of its stack, in a page that is touched anyway. */
    t = (struct light_task *)(void *)(stack.low + stack.size - ((sizeof *t + 63) & ~(size_t)63));
    memset(t, 0, sizeof *t);
    t->stack = stack;
    t->fn = fn;
    t->arg = arg;
    t->carrier = light_pick_carrier(lr);
    t->patient = true; /* strangers ask for new ones: those that are there go first */
    light_context_make(&t->context, stack.low, (size_t)((char *)t - stack.low), light_main);
    pthread_mutex_lock(&rt->mu);
    rt->count++;
    pthread_mutex_unlock(&rt->mu);
    atomic_fetch_add(&t->carrier->tasks, 1);
    light_make_ready(t);
    return 0;
}

/* ---- Waiting ---- */

int light_park(struct light_task *t, struct task_park *p, int64_t deadline)
{
    uint32_t state = PARK_EMPTY;

    light_enter(t);
    atomic_store_explicit(&p->task, t, memory_order_relaxed);
    if (atomic_compare_exchange_strong(&p->state, &state, PARK_WAITING)) {
        if (deadline != TASK_FOREVER) {
            t->park = p;
            light_wheel_set(&t->carrier->wheel, &t->timer, deadline);
        }
        light_switch_out(t, AFTER_PARK);
        t->park = NULL; /* the timer stays: the next wait will most likely have a later deadline */
    }
    light_leave(t);
    return atomic_exchange(&p->state, PARK_EMPTY) == PARK_NOTIFIED ? 0 : -ETIMEDOUT;
}

void light_yield(struct light_task *t)
{
    light_enter(t);
    light_make_ready(t); /* its own carrier's: not before this round has ended */
    light_switch_out(t, AFTER_PARK);
    light_leave(t);
}

void light_trim_stack(struct light_task *t)
{
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);

    /* A stack that is being measured would look used where its pattern is gone. */
    if (!t->carrier->rt->stacks.paint)
        base_page_give_back((uintptr_t)t->stack.low, here - TASK_STACK_BELOW);
}

const struct task_kind task_light = {
    .name = "light",
    .runtime_new = light_runtime_new,
    .runtime_free = light_runtime_free,
    .stats = light_stats,
    .spawn = light_spawn,
    .socket_init = light_socket_init,
    .socket_close = light_socket_close,
    .await = light_await,
    .recv = light_recv,
    .await_send = light_await_send,
    .await_ready = light_await_ready,
    .interrupt = light_interrupt,
    .background = light_background,
};
