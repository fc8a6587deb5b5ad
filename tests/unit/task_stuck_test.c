/* Handlers that do not come back: their carrier goes to another driver. */
#include "light_kit.h"

#include <sys/resource.h>
#include <unistd.h>

static void spins(void *arg)
{
    (void)arg;
    while (!atomic_load(&released)) {
    }
    task_sleep(base_clock_ns() + BASE_NS_PER_MS); /* goes home */
    atomic_fetch_add(&ran, 1);
}

static void blocks(void *arg)
{
    (void)arg;
    while (!atomic_load(&released))
        usleep(1000);
    task_sleep(base_clock_ns() + BASE_NS_PER_MS);
    atomic_fetch_add(&ran, 1);
}

static int gate[2];

/* In one system call, so that no processor time tells of it either. */
static void waits(void *arg)
{
    char byte;

    (void)arg;
    assert_int_equal(read(gate[0], &byte, 1), 1);
    task_sleep(base_clock_ns() + BASE_NS_PER_MS);
    atomic_fetch_add(&ran, 1);
}

/* With one carrier, the others can only run if the carrier is taken from the one that is stuck. `most`:
 * descriptors that may be open meanwhile. */
static void stuck(void (*how)(void *), rlim_t most)
{
    struct task_runtime *rt = runtime(1);
    struct task_stats stats;
    struct rlimit was, limit;

    atomic_store(&ran, 0);
    atomic_store(&released, 0);
    atomic_store(&helped, 0);
    assert_int_equal(pipe(gate), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    limit = (struct rlimit){.rlim_cur = most < was.rlim_cur ? most : was.rlim_cur,
                            .rlim_max = was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int i = 0; i < 20; i++)
        assert_int_equal(task_spawn(rt, helps, NULL), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(task_spawn(rt, how, NULL), 0);
    until(&helped, 20);
    assert_int_equal(atomic_load(&ran), 0);
    atomic_store(&released, 1);
    assert_int_equal(write(gate[1], "xxx", 3), 3);
    until(&ran, 3);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    task_runtime_stats(rt, &stats);
    assert_true(stats.handovers >= 3);
    finish(rt);
    close(gate[0]);
    close(gate[1]);
}

static void others_run_beside_one_that_spins(void **state)
{
    (void)state;
    stuck(spins, RLIM_INFINITY);
}

static void others_run_beside_one_that_blocks(void **state)
{
    (void)state;
    stuck(blocks, RLIM_INFINITY);
}

static void others_run_beside_one_that_waits(void **state)
{
    (void)state;
    stuck(waits, RLIM_INFINITY);
}

/* Nothing can be opened, so that nobody can look up in /proc what a thread does. */
static void others_run_without_descriptors(void **state)
{
    (void)state;
    stuck(waits, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_run_beside_one_that_spins),
        cmocka_unit_test(others_run_beside_one_that_blocks),
        cmocka_unit_test(others_run_beside_one_that_waits),
        cmocka_unit_test(others_run_without_descriptors),
    };

    return cmocka_run_group_tests_name("task_stuck", tests, NULL, NULL);
}
