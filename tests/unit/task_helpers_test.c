/* Helpers of light threads where no thread can be made. */
#include "light_kit.h"
#include "no_threads.h"

#include <tws/thread.h>

static _Atomic int told;

static void asks(void *wanted)
{
    if (tws_blocking(count_one, NULL) == *(tws_err *)wanted)
        atomic_fetch_add(&told, 1);
}

static void ask(struct task_runtime *rt, tws_err wanted)
{
    atomic_store(&told, 0);
    assert_int_equal(task_spawn(rt, asks, &wanted), 0);
    until(&told, 1);
    assert_int_equal(task_runtime_wait(rt, base_clock_ns() + WAIT_LONG), 0);
}

static void add_ending(struct task_runtime *rt, int n)
{
    struct light_helpers *h = &((struct light_runtime *)rt)->helpers;

    pthread_mutex_lock(&h->mu);
    h->count += (uint32_t)n;
    pthread_mutex_unlock(&h->mu);
}

/* A helper that has looked for work for the last time, and is still counted since it joins another, does
 * none: who counts on it waits for ever. */
static void one_that_ends_takes_nothing(void **state)
{
    struct task_runtime *rt = runtime(1);

    (void)state;
    atomic_store(&ran, 0);
    atomic_store(&no_threads, true);
    ask(rt, TWS_ERR_SYSTEM);
    add_ending(rt, 1);
    ask(rt, TWS_ERR_SYSTEM);
    add_ending(rt, -1);
    assert_int_equal(atomic_load(&ran), 0);
    atomic_store(&no_threads, false);
    ask(rt, TWS_OK);
    atomic_store(&no_threads, true);
    ask(rt, TWS_OK); /* by the one that is there */
    assert_int_equal(atomic_load(&ran), 2);
    atomic_store(&no_threads, false);
    finish(rt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_ends_takes_nothing),
    };

    return cmocka_run_group_tests_name("task_helpers", tests, NULL, NULL);
}
