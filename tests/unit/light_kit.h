/* light_kit.h: what the tests of light threads share. One copy for each test program. */
#ifndef LIGHT_KIT_H
#define LIGHT_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "task/light/light.h"

#define WAIT_LONG (60 * BASE_NS_PER_S)

static inline struct task_runtime *runtime(uint32_t carriers)
{
    struct task_options opt = {
        .kind = TASK_LIGHT, .stack_size = 64 * 1024, .carriers = carriers, .name = "light-test"};
    struct task_runtime *rt = NULL;

    assert_int_equal(task_runtime_new(&rt, &opt), 0);
    return rt;
}

static inline void finish(struct task_runtime *rt)
{
    assert_int_equal(task_runtime_wait(rt, base_clock_ns() + WAIT_LONG), 0);
    assert_int_equal(task_runtime_count(rt), 0);
    task_runtime_free(rt);
}

static void until(_Atomic int *value, int wanted)
{
    int64_t end = base_clock_ns() + WAIT_LONG;

    while (atomic_load(value) < wanted && base_clock_ns() < end)
        task_sleep(base_clock_ns() + BASE_NS_PER_MS);
    assert_true(atomic_load(value) >= wanted);
}

static _Atomic int ran;

static __attribute__((unused)) void count_one(void *arg)
{
    (void)arg;
    atomic_fetch_add(&ran, 1);
}

static _Atomic int helped;
static _Atomic int released __attribute__((unused)); /* not by all */

static __attribute__((unused)) void helps(void *arg)
{
    (void)arg;
    for (int i = 0; i < 20; i++)
        task_sleep(base_clock_ns() + BASE_NS_PER_MS);
    atomic_fetch_add(&helped, 1);
}

#endif
