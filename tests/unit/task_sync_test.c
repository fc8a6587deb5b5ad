/* What handlers wait with (tws/thread.h): helpers, mutex, condition, channel, between all kinds of thread. */
#include "light_kit.h"

#include <stdlib.h>
#include <unistd.h>

#include <tws/thread.h>

/* ---- Helpers ---- */

static void wait_for_release(void *arg)
{
    (void)arg;
    while (!atomic_load(&released))
        usleep(1000);
}

static void calls_blocking(void *arg)
{
    (void)arg;
    assert_int_equal(tws_blocking(wait_for_release, NULL), TWS_OK);
    atomic_fetch_add(&ran, 1);
}

static void blocking_calls_hand_nothing_over(void **state)
{
    struct task_runtime *rt = runtime(1);
    struct task_stats stats;

    (void)state;
    atomic_store(&ran, 0);
    atomic_store(&released, 0);
    atomic_store(&helped, 0);
    for (int i = 0; i < 5; i++)
        assert_int_equal(task_spawn(rt, calls_blocking, NULL), 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(task_spawn(rt, helps, NULL), 0);
    until(&helped, 10);
    assert_int_equal(atomic_load(&ran), 0);
    task_runtime_stats(rt, &stats);
    assert_int_equal(stats.helpers, 5);
    atomic_store(&released, 1);
    until(&ran, 5);
    finish(rt);
}

static void blocking_runs_in_place_on_a_pthread(void **state)
{
    (void)state;
    atomic_store(&ran, 0);
    assert_int_equal(tws_blocking(count_one, NULL), TWS_OK);
    assert_int_equal(atomic_load(&ran), 1);
}

/* ---- Mutex, condition, channel, between all kinds ---- */

static tws_mutex *mutex;
static long guarded;

static void adds_under_lock(void *arg)
{
    (void)arg;
    for (int i = 0; i < 500; i++) {
        long before;

        if (tws_mutex_lock(mutex, TWS_NO_LIMIT) != TWS_OK)
            abort();
        before = guarded;
        if (i % 50 == 0)
            tws_sleep(1); /* suspended with the lock held */
        guarded = before + 1;
        if (tws_mutex_unlock(mutex) != TWS_OK)
            abort();
    }
    atomic_fetch_add(&ran, 1);
}

static void *adds_on_a_pthread(void *arg)
{
    adds_under_lock(arg);
    return NULL;
}

static void mutex_excludes_all_kinds(void **state)
{
    struct task_runtime *light = runtime(2);
    pthread_t thread;

    (void)state;
    mutex = tws_mutex_new();
    guarded = 0;
    atomic_store(&ran, 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(task_spawn(light, adds_under_lock, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, adds_on_a_pthread, NULL), 0);
    until(&ran, 5);
    pthread_join(thread, NULL);
    assert_int_equal(guarded, 2500);
    assert_int_equal(tws_mutex_lock(mutex, TWS_NOWAIT), TWS_OK);
    assert_int_equal(tws_mutex_lock(mutex, TWS_NOWAIT), TWS_ERR_STATE);
    assert_int_equal(tws_mutex_unlock(mutex), TWS_OK);
    assert_int_equal(tws_mutex_unlock(mutex), TWS_ERR_STATE);
    finish(light);
    tws_mutex_free(mutex);
}

static tws_cond *cond;
static int tickets;

static void takes_a_ticket(void *arg)
{
    (void)arg;
    tws_mutex_lock(mutex, TWS_NO_LIMIT);
    while (tickets == 0)
        if (tws_cond_wait(cond, mutex, TWS_NO_LIMIT) != TWS_OK)
            abort();
    tickets--;
    tws_mutex_unlock(mutex);
    atomic_fetch_add(&ran, 1);
}

static void conditions_wake_one_or_all(void **state)
{
    struct task_runtime *rt = runtime(2);

    (void)state;
    mutex = tws_mutex_new();
    cond = tws_cond_new();
    tickets = 0;
    atomic_store(&ran, 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(task_spawn(rt, takes_a_ticket, NULL), 0);
    assert_int_equal(tws_mutex_lock(mutex, TWS_NO_LIMIT), TWS_OK);
    assert_int_equal(tws_cond_wait(cond, mutex, 20), TWS_ERR_TIMEOUT);
    tickets = 1;
    tws_mutex_unlock(mutex);
    tws_cond_signal(cond);
    until(&ran, 1);
    tws_mutex_lock(mutex, TWS_NO_LIMIT);
    tickets = 9;
    tws_mutex_unlock(mutex);
    tws_cond_broadcast(cond);
    until(&ran, 10);
    finish(rt);
    tws_cond_free(cond);
    tws_mutex_free(mutex);
}

static tws_channel *channel;
static _Atomic long received_sum;

static void sends(void *arg)
{
    for (intptr_t i = 1; i <= 1000; i++)
        if (tws_channel_send(channel, (void *)i, TWS_NO_LIMIT) != TWS_OK)
            abort();
    count_one(arg);
}

static void receives(void *arg)
{
    void *item;
    tws_err err;

    while ((err = tws_channel_receive(channel, &item, TWS_NO_LIMIT)) == TWS_OK)
        atomic_fetch_add(&received_sum, (long)(intptr_t)item);
    if (err == TWS_ERR_CLOSED)
        count_one(arg);
}

static void channels_lose_nothing(void **state)
{
    struct task_runtime *rt = runtime(2);
    void *item = &rt;

    (void)state;
    channel = tws_channel_new(8);
    atomic_store(&ran, 0);
    atomic_store(&received_sum, 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(task_spawn(rt, sends, NULL), 0);
        assert_int_equal(task_spawn(rt, receives, NULL), 0);
    }
    sends(NULL); /* and a pthread */
    until(&ran, 4);
    tws_channel_close(channel);
    until(&ran, 7);
    assert_int_equal(atomic_load(&received_sum), 4 * 500500);
    assert_int_equal(tws_channel_send(channel, NULL, TWS_NOWAIT), TWS_ERR_CLOSED);
    assert_int_equal(tws_channel_receive(channel, &item, TWS_NOWAIT), TWS_ERR_CLOSED);
    assert_null(item);
    finish(rt);
    tws_channel_free(channel);
    assert_null(tws_channel_new(0));
}

/* As everywhere: TWS_NOWAIT is the only negative duration. */
static void negative_durations_are_refused(void **state)
{
    tws_mutex *m = tws_mutex_new();
    tws_cond *c = tws_cond_new();
    tws_channel *ch = tws_channel_new(1);
    void *item = &item;

    (void)state;
    assert_int_equal(tws_mutex_lock(m, -2), TWS_ERR_ARGUMENT);
    assert_int_equal(tws_mutex_unlock(m), TWS_ERR_STATE);
    assert_int_equal(tws_mutex_lock(m, TWS_NOWAIT), TWS_OK);
    assert_int_equal(tws_cond_wait(c, m, -2), TWS_ERR_ARGUMENT);
    assert_int_equal(tws_cond_wait(c, m, TWS_NOWAIT), TWS_ERR_TIMEOUT);
    assert_int_equal(tws_mutex_unlock(m), TWS_OK);
    assert_int_equal(tws_channel_send(ch, ch, -2), TWS_ERR_ARGUMENT);
    assert_int_equal(tws_channel_receive(ch, &item, TWS_NOWAIT), TWS_ERR_TIMEOUT);
    assert_int_equal(tws_channel_send(ch, ch, TWS_NOWAIT), TWS_OK);
    item = &item;
    assert_int_equal(tws_channel_receive(ch, &item, INT64_MIN), TWS_ERR_ARGUMENT);
    assert_null(item);
    assert_int_equal(tws_channel_receive(ch, &item, TWS_NOWAIT), TWS_OK);
    assert_true(item == ch);
    tws_channel_free(ch);
    tws_cond_free(c);
    tws_mutex_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocking_calls_hand_nothing_over),
        cmocka_unit_test(blocking_runs_in_place_on_a_pthread),
        cmocka_unit_test(mutex_excludes_all_kinds),
        cmocka_unit_test(conditions_wake_one_or_all),
        cmocka_unit_test(channels_lose_nothing),
        cmocka_unit_test(negative_durations_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
