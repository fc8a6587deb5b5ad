/* Groups of threads, cancelling, sets of descriptors, and what runs in the background, on both kinds. */
#include "light_kit.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <tws/thread.h>

#include "task/cancel.h"
#include "task/set.h"

static tws_group *group_of(tws_threads threads)
{
    tws_group_options opt;
    tws_group *g = NULL;

    tws_group_options_init(&opt);
    opt.threads = threads;
    opt.carriers = 2;
    assert_int_equal(tws_group_new(&g, &opt), TWS_OK);
    assert_non_null(g);
    return g;
}

/* Runs the same on threads of both kinds. */
static void on_both(void (*fn)(void *arg), void *arg)
{
    for (int kind = 0; kind < 2; kind++) {
        tws_group *g = group_of(kind ? TWS_THREADS_LIGHT : TWS_THREADS_KERNEL);

        assert_int_equal(tws_group_spawn(g, fn, arg), TWS_OK);
        assert_int_equal(tws_group_wait(g, 60000), TWS_OK);
        tws_group_free(g);
    }
}

/* ---- Groups ---- */

static tws_channel *gate;
static tws_group *own;
static _Atomic int refused;

static void wait_at_gate(void *arg)
{
    void *item;

    (void)arg;
    if (tws_group_wait(own, 0) == TWS_ERR_STATE)
        atomic_fetch_add(&refused, 1);
    tws_channel_receive(gate, &item, 0);
    if (atomic_fetch_add(&ran, 1) == 0) /* a thread of the group may add to it */
        tws_group_spawn(own, count_one, NULL);
}

static void groups(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        own = group_of(kind ? TWS_THREADS_LIGHT : TWS_THREADS_KERNEL);
        gate = tws_channel_new(1);
        atomic_store(&ran, 0);
        atomic_store(&refused, 0);
        assert_int_equal(tws_group_wait(own, 0), TWS_OK);
        for (int i = 0; i < 50; i++)
            assert_int_equal(tws_group_spawn(own, wait_at_gate, NULL), TWS_OK);
        until(&refused, 50);
        assert_int_equal(tws_group_count(own), 50);
        assert_int_equal(tws_group_wait(own, TWS_NOWAIT), TWS_ERR_TIMEOUT);
        assert_int_equal(tws_group_wait(own, 5), TWS_ERR_TIMEOUT);
        assert_int_equal(tws_group_wait(own, -2), TWS_ERR_ARGUMENT);
        tws_channel_close(gate);
        assert_int_equal(tws_group_wait(own, 0), TWS_OK);
        assert_int_equal(atomic_load(&ran), 51);
        assert_int_equal(tws_group_count(own), 0);
        tws_group_free(own);
        tws_channel_free(gate);
    }
}

static void group_options(void **state)
{
    tws_group_options opt;
    tws_group *g = NULL;

    (void)state;
    tws_group_options_init(&opt);
    assert_int_equal(opt.threads, TWS_THREADS_KERNEL);
    opt.stack_size = 1000;
    assert_int_equal(tws_group_new(&g, &opt), TWS_ERR_ARGUMENT);
    assert_null(g);
    tws_group_options_init(&opt);
    opt.threads = TWS_THREADS_LIGHT;
    opt.carriers = 1025;
    assert_int_equal(tws_group_new(&g, &opt), TWS_ERR_ARGUMENT);
    tws_group_options_init(&opt);
    opt.threads = (tws_threads)7;
    assert_int_equal(tws_group_new(&g, &opt), TWS_ERR_ARGUMENT);
    tws_group_options_init(&opt);
    opt.size = 0;
    assert_int_equal(tws_group_new(&g, &opt), TWS_ERR_ARGUMENT);
    assert_int_equal(tws_group_new(&g, NULL), TWS_OK);
    tws_group_free(g);
    tws_group_free(NULL);
}

/* ---- The runtime of a thread ---- */

static struct task_runtime *seen;
static _Atomic int shared_made, shared_released;

static void *make_shared(void *arg)
{
    atomic_fetch_add(&shared_made, 1);
    return arg;
}

static void release_shared(void *shared)
{
    (void)shared;
    atomic_fetch_add(&shared_released, 1);
}

static void looks_at_runtime(void *arg)
{
    seen = task_current_runtime();
    for (int i = 0; i < 3; i++)
        if (task_runtime_share(seen, make_shared, arg, release_shared) != arg)
            abort();
}

static void current_runtime(void **state)
{
    int thing;

    (void)state;
    assert_null(task_current_runtime());
    atomic_store(&shared_made, 0);
    atomic_store(&shared_released, 0);
    on_both(looks_at_runtime, &thing);
    assert_non_null(seen);
    assert_int_equal(atomic_load(&shared_made), 2);
    assert_int_equal(atomic_load(&shared_released), 2);
}

/* ---- Cancelling ---- */

static void cancelling(void **state)
{
    struct task_cancel c;
    struct task_cancel_link a, b, none;

    (void)state;
    task_cancel_init(&c);
    atomic_store(&ran, 0);
    assert_true(task_cancel_join(&a, &c, count_one, NULL));
    assert_true(task_cancel_join(&b, &c, count_one, NULL));
    assert_true(task_cancel_join(&none, NULL, count_one, NULL));
    task_cancel_leave(&a);
    assert_false(task_cancel_is_set(&c));
    task_cancel_set(&c);
    task_cancel_set(&c);
    assert_int_equal(atomic_load(&ran), 1);
    assert_true(task_cancel_is_set(&c));
    assert_false(task_cancel_is_set(NULL));
    task_cancel_leave(&b);
    task_cancel_leave(&none);
    assert_false(task_cancel_join(&a, &c, count_one, NULL));
    task_cancel_destroy(&c);
}

/* ---- Sets ---- */

/* What makes the second of two sockets readable while a thread waits for either. */
static void waits_for_any(void *arg)
{
    struct task_set set;
    int pairs[2][2];
    char byte;

    (void)arg;
    for (int i = 0; i < 2; i++)
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pairs[i]) < 0)
            abort();
    if (task_set_init(&set, task_current_runtime()) < 0 ||
        task_set_add(&set, pairs[0][0], TASK_READ) < 0 ||
        task_set_add(&set, pairs[1][0], TASK_READ) < 0)
        abort();
    if (task_set_await(&set, TASK_NOW) != -ETIMEDOUT ||
        task_set_await(&set, base_clock_ns() + 5 * BASE_NS_PER_MS) != -ETIMEDOUT)
        abort();
    for (int round = 0; round < 20; round++) {
        int which = round % 2;

        if (write(pairs[which][1], "x", 1) != 1)
            abort();
        while (read(pairs[which][0], &byte, 1) != 1)
            if (task_set_await(&set, base_clock_ns() + WAIT_LONG) < 0)
                abort();
    }
    close(pairs[1][1]); /* a hang-up counts */
    if (task_set_await(&set, base_clock_ns() + WAIT_LONG) < 0)
        abort();
    close(pairs[1][0]); /* and takes itself out */
    task_set_await(&set, base_clock_ns() + 5 * BASE_NS_PER_MS);
    task_set_destroy(&set);
    close(pairs[0][0]);
    close(pairs[0][1]);
}

static void sets(void **state)
{
    (void)state;
    on_both(waits_for_any, NULL);
}

/* ---- In the background ---- */

static void goes_to_background(void *arg)
{
    (void)arg;
    for (int i = 0; i < 5; i++)
        if (task_background(task_current_runtime(), helps, NULL) < 0)
            abort();
}

static void background(void **state)
{
    (void)state;
    atomic_store(&helped, 0);
    on_both(goes_to_background, NULL); /* the end of light threads waits; that of others does not */
    until(&helped, 10);
    assert_int_equal(task_background(NULL, helps, NULL), 0);
    until(&helped, 11);
}

static void counts_its_cores(void *arg)
{
    cpu_set_t cores;

    atomic_store((_Atomic int *)arg,
                 sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : -1);
}

static void kernel_threads_get_a_core_each_unless_told_otherwise(void **state)
{
    tws_group_options opt;
    _Atomic int all = 0, cores = 0;
    tws_group *g;

    (void)state;
    counts_its_cores(&all);
    tws_group_options_init(&opt);
    for (int i = 0; i < 2; i++) {
        opt.no_spread = i == 1;
        assert_int_equal(tws_group_new(&g, &opt), TWS_OK);
        assert_int_equal(tws_group_spawn(g, counts_its_cores, &cores), TWS_OK);
        assert_int_equal(tws_group_wait(g, 60000), TWS_OK);
        assert_int_equal(atomic_load(&cores), opt.no_spread ? atomic_load(&all) : 1);
        tws_group_free(g);
    }
}

static void waits_for_own(void *arg)
{
    (void)arg;
    if (tws_group_wait(own, 1000) == TWS_ERR_STATE)
        atomic_fetch_add(&refused, 1);
}

static void blocks_in_own(void *arg)
{
    tws_blocking(waits_for_own, arg);
}

/* What a thread of a group waits for cannot wait for the group, on whatever thread it runs. */
static void blocked_by_itself(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        own = group_of(kind ? TWS_THREADS_LIGHT : TWS_THREADS_KERNEL);
        atomic_store(&refused, 0);
        assert_int_equal(tws_group_spawn(own, blocks_in_own, NULL), TWS_OK);
        assert_int_equal(tws_group_wait(own, 60000), TWS_OK);
        assert_int_equal(atomic_load(&refused), 1);
        tws_group_free(own);
    }
}

/* ---- Signals ---- */

static _Atomic int wrong;

static void looks_at_mask(void *arg)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    static const int others[] = {SIGTERM, SIGINT, SIGHUP, SIGCHLD, SIGPIPE, SIGUSR1, SIGALRM};
    sigset_t set;

    (void)arg;
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        if (sigismember(&set, faults[i]) != 0)
            atomic_fetch_add(&wrong, 1);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (sigismember(&set, others[i]) != 1)
            atomic_fetch_add(&wrong, 1);
    atomic_fetch_add(&helped, 1);
}

static void looks_everywhere(void *arg)
{
    looks_at_mask(arg);
    tws_blocking(looks_at_mask, arg);
    if (task_background(task_current_runtime(), looks_at_mask, arg) != 0)
        abort();
}

/* No signal of the process comes to the library's threads, but their own faults do. */
static void signals(void **state)
{
    struct task_service service;

    (void)state;
    atomic_store(&helped, 0);
    on_both(looks_everywhere, NULL);
    assert_int_equal(task_service_start(&service, "test", false, looks_at_mask, NULL), 0);
    task_service_join(&service);
    until(&helped, 7);
    assert_int_equal(atomic_load(&wrong), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups),
        cmocka_unit_test(group_options),
        cmocka_unit_test(kernel_threads_get_a_core_each_unless_told_otherwise),
        cmocka_unit_test(current_runtime),
        cmocka_unit_test(cancelling),
        cmocka_unit_test(sets),
        cmocka_unit_test(background),
        cmocka_unit_test(blocked_by_itself),
        cmocka_unit_test(signals),
    };

    return cmocka_run_group_tests_name("task_group", tests, NULL, NULL);
}
