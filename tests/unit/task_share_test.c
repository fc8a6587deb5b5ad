/* How a carrier is shared: who has patience, or always has input, does not keep the others waiting. */
#include "light_kit.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Of those in the state a few run between two turns of another, and never none. */
enum { CROWD = 50, TURNS = 200, FEW = 4 };

static _Atomic int turns, most, least, ready, stop;

static void keeps_running(void *arg)
{
    (void)arg;
    task_patient(true);
    atomic_fetch_add(&ready, 1);
    while (!atomic_load(&stop)) {
        atomic_fetch_add(&turns, 1);
        task_yield();
    }
    task_patient(false);
    atomic_fetch_add(&ran, 1);
}

/* Each turn takes longer than all that have patience may in one round. */
static void takes_long(void *arg)
{
    (void)arg;
    task_patient(true);
    atomic_fetch_add(&ready, 1);
    while (!atomic_load(&stop)) {
        int64_t end = base_clock_ns() + BASE_NS_PER_MS / 2;

        while (base_clock_ns() < end)
            ;
        atomic_fetch_add(&turns, 1);
        task_yield();
    }
    atomic_fetch_add(&ran, 1);
}

static void comes_and_goes(void *arg)
{
    (void)arg;
    atomic_fetch_add(&turns, 1);
    atomic_fetch_add(&ran, 1);
}

static void is_as_others(void *arg)
{
    (void)arg;
    if (light_current()->patient)
        abort();
    atomic_fetch_add(&ran, 1);
}

struct source {
    struct task_runtime *rt;
    int fds[2];
};

/* Always finds as much as it asks for. */
static void reads_on(void *arg)
{
    struct source *from = arg;
    struct task_socket s;

    if (task_socket_init(&s, from->rt, from->fds[1]) < 0)
        abort();
    atomic_fetch_add(&ready, 1);
    while (!atomic_load(&stop)) {
        char byte;

        if (task_await(&s, TASK_FOREVER, 0) < 0 || task_recv(&s, &byte, 1) != 1)
            abort();
        atomic_fetch_add(&turns, 1);
    }
    task_socket_close(&s);
    atomic_fetch_add(&ran, 1);
}

static void measures(void *arg)
{
    (void)arg;
    while (atomic_load(&ready) < CROWD)
        task_yield();
    task_yield(); /* all of them have asked by now */
    for (int i = 0; i < TURNS; i++) {
        int before = atomic_load(&turns), between;

        task_yield();
        between = atomic_load(&turns) - before;
        if (between > atomic_load(&most))
            atomic_store(&most, between);
        if (between < atomic_load(&least))
            atomic_store(&least, between);
    }
    atomic_store(&stop, 1);
    atomic_fetch_add(&ran, 1);
}

/* `count` light threads on the one carrier, and one that measures what it sees of them. */
static void share(void (*fn)(void *), void *const args[], int count, int per_turn)
{
    struct task_runtime *rt = runtime(1);

    atomic_store(&ran, 0);
    atomic_store(&turns, 0);
    atomic_store(&ready, CROWD - count);
    atomic_store(&stop, 0);
    atomic_store(&most, 0);
    atomic_store(&least, CROWD * 100);
    for (int i = 0; i < count; i++) {
        if (args)
            ((struct source *)args[i])->rt = rt;
        assert_int_equal(task_spawn(rt, fn, args ? args[i] : NULL), 0);
    }
    assert_int_equal(task_spawn(rt, measures, NULL), 0);
    until(&ran, count + 1);
    finish(rt);
    assert_in_range(atomic_load(&least), 1, FEW * per_turn);
    assert_in_range(atomic_load(&most), 1, FEW * per_turn);
}

static void those_with_patience_wait(void **state)
{
    (void)state;
    share(keeps_running, NULL, CROWD, 1);
}

static void of_those_that_take_long_one_runs(void **state)
{
    (void)state;
    share(takes_long, NULL, CROWD, 1);
    assert_int_equal(atomic_load(&most), 1);
}

/* Spawns a crowd and measures how many of it run before its own next turn. */
static void is_crowded(void *arg)
{
    struct task_runtime *rt = arg;
    int seen = 0;

    for (int i = 0; i < CROWD; i++)
        if (task_spawn(rt, comes_and_goes, NULL) < 0)
            abort();
    while (seen < CROWD) {
        int now;

        task_yield();
        now = atomic_load(&turns);
        if (now - seen > atomic_load(&most))
            atomic_store(&most, now - seen);
        seen = now;
    }
    atomic_fetch_add(&ran, 1);
}

static void new_ones_wait_their_turn(void **state)
{
    /* With ThreadSanitizer spawning takes so long that another driver would get the carrier meanwhile. */
    struct task_options opt = {.kind = TASK_LIGHT,
                               .stack_size = 64 * 1024,
                               .carriers = 1,
                               .stuck_ms = 3600 * 1000,
                               .name = "light-test"};
    struct task_runtime *rt;

    (void)state;
    assert_int_equal(task_runtime_new(&rt, &opt), 0);
    atomic_store(&ran, 0);
    atomic_store(&turns, 0);
    atomic_store(&most, 0);
    assert_int_equal(task_spawn(rt, is_crowded, rt), 0);
    until(&ran, CROWD + 1);
    finish(rt);
    assert_in_range(atomic_load(&most), 1, FEW);
}

/* A new one has patience only until its first turn. */
static void new_ones_do_not_wait_for_ever(void **state)
{
    struct task_runtime *rt = runtime(1);

    (void)state;
    atomic_store(&ran, 0);
    assert_int_equal(task_spawn(rt, is_as_others, NULL), 0);
    until(&ran, 1);
    finish(rt);
}

/* Four receives, and the others have their turn; who takes that much again and again waits for longer. */
static void who_always_has_input_lets_others_run(void **state)
{
    enum { READERS = 10, RECEIVES = 4, ENOUGH = 32768 };
    static char bytes[ENOUGH];
    struct source from[READERS];
    void *args[READERS];

    (void)state;
    for (int i = 0; i < READERS; i++) {
        args[i] = &from[i];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, from[i].fds), 0);
        assert_int_equal(write(from[i].fds[0], bytes, ENOUGH), ENOUGH);
    }
    share(reads_on, args, READERS, RECEIVES);
    for (int i = 0; i < READERS; i++)
        close(from[i].fds[0]);
}

/* ---- Drivers that were needed for a while ---- */

/* Outside the library: its carrier goes on with another driver. */
static void blocks(void *arg)
{
    struct timespec ts = {.tv_nsec = 5 * 1000 * 1000};

    (void)arg;
    while (!atomic_load(&stop))
        nanosleep(&ts, NULL);
    atomic_fetch_add(&ran, 1);
}

static uint32_t drivers_of(struct task_runtime *rt)
{
    struct light_runtime *lr = (struct light_runtime *)rt;
    uint32_t count;

    pthread_mutex_lock(&rt->mu);
    count = lr->driver_count;
    pthread_mutex_unlock(&rt->mu);
    return count;
}

static void await_drivers(struct task_runtime *rt, uint32_t least_wanted, uint32_t most_wanted)
{
    int64_t end = base_clock_ns() + WAIT_LONG;
    uint32_t count;

    while (((count = drivers_of(rt)) < least_wanted || count > most_wanted) &&
           base_clock_ns() < end)
        task_sleep(base_clock_ns() + BASE_NS_PER_MS);
    assert_in_range(count, least_wanted, most_wanted);
}

/* Each that blocks keeps a driver; when they have gone, few stay. */
static void drivers_leave_when_nobody_needs_them(void **state)
{
    enum { BLOCKING = 12, KEPT = 4 };
    struct task_runtime *rt = runtime(1);

    (void)state;
    for (int wave = 1; wave <= 2; wave++) {
        atomic_store(&ran, 0);
        atomic_store(&stop, 0);
        for (int i = 0; i < BLOCKING; i++)
            assert_int_equal(task_spawn(rt, blocks, NULL), 0);
        await_drivers(rt, BLOCKING, BLOCKING + 1);
        atomic_store(&stop, 1);
        until(&ran, BLOCKING);
        if (wave == 1) /* the runtime ends before those of the second have left */
            await_drivers(rt, 1 + KEPT, 1 + KEPT);
    }
    finish(rt);
}

/* ---- How the system schedules drivers ---- */

struct scheduled {
    struct task_runtime *rt;
    int nice[3]; /* of the asking pthread, of its service, of a light thread's driver */
    uint64_t slice[3];
    _Atomic int at;
};

static void note_schedule(void *arg)
{
    struct scheduled *s = arg;
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attr = {0};
    int at = atomic_load(&s->at);

    if (syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0) != 0)
        attr.runtime = 0; /* not here */
    s->nice[at] = getpriority(PRIO_PROCESS, 0);
    s->slice[at] = attr.runtime;
    atomic_store(&s->at, at + 1);
}

/* On a pthread of its own, which nobody asks for its old priority afterwards. */
static void *starts_with_less_priority(void *arg)
{
    struct scheduled *s = arg;
    struct task_service service;

    if (setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + 1) != 0)
        abort();
    note_schedule(s);
    if (task_service_start(&service, "a-service", true, note_schedule, s) != 0)
        abort();
    task_service_join(&service);
    s->rt = runtime(1);
    if (task_spawn(s->rt, note_schedule, s) != 0)
        abort();
    return NULL;
}

/* Short slices for those that many wait for, and the priority that whoever started them had. */
static void drivers_have_short_slices_and_their_priority(void **state)
{
    struct scheduled s = {0};
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, starts_with_less_priority, &s), 0);
    pthread_join(thread, NULL);
    until(&s.at, 3);
    finish(s.rt);
    assert_int_equal(s.nice[1], s.nice[0]);
    assert_int_equal(s.nice[2], s.nice[0]);
    assert_int_equal(s.slice[2], s.slice[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_with_patience_wait),
        cmocka_unit_test(of_those_that_take_long_one_runs),
        cmocka_unit_test(new_ones_wait_their_turn),
        cmocka_unit_test(new_ones_do_not_wait_for_ever),
        cmocka_unit_test(who_always_has_input_lets_others_run),
        cmocka_unit_test(drivers_leave_when_nobody_needs_them),
        cmocka_unit_test(drivers_have_short_slices_and_their_priority),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
