/* Waking: a park that is gone at once, helpers that have been promised, sockets without a carrier;
 * timers; placing new light threads; pauses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <tws/thread.h>

#include "base/clock.h"
#include "task/light/light.h"

#define WAIT_LONG (60 * BASE_NS_PER_S)

static struct task_runtime *runtime(void)
{
    struct task_options opt = {
        .kind = TASK_LIGHT, .stack_size = 64 * 1024, .carriers = 1, .name = "wake-test"};
    struct task_runtime *rt = NULL;

    assert_int_equal(task_runtime_new(&rt, &opt), 0);
    return rt;
}

/* ---- Park ---- */

static _Atomic(struct task_park *) published;
static _Atomic bool waker_stops;

static void *waker(void *arg)
{
    (void)arg;
    while (!atomic_load(&waker_stops)) {
        struct task_park *p = atomic_exchange(&published, NULL);

        if (p)
            task_unpark(p);
    }
    return NULL;
}

/* The waiter's stack may hold anything as soon as it has been woken. */
static void test_park_is_gone(void **state)
{
    pthread_t t;

    (void)state;
    atomic_store(&waker_stops, false);
    assert_int_equal(pthread_create(&t, NULL, waker, NULL), 0);
    for (int i = 0; i < 30000; i++) {
        struct task_park p;

        task_park_init(&p);
        atomic_store(&published, &p);
        assert_int_equal(task_park(&p, TASK_FOREVER), 0);
        memset((void *)&p, 0xa5, sizeof p);
        __asm__ volatile("" : : "r"(&p) : "memory");
    }
    atomic_store(&waker_stops, true);
    pthread_join(t, NULL);
}

/* ---- Helpers ---- */

static _Atomic int begun, wanted;
static _Atomic bool met;

/* Returns when all the others have begun too. */
static void meet(void *arg)
{
    int64_t end = base_clock_ns() + 5 * BASE_NS_PER_S;

    (void)arg;
    atomic_fetch_add(&begun, 1);
    while (atomic_load(&begun) < atomic_load(&wanted) && atomic_load(&met))
        if (base_clock_ns() > end)
            atomic_store(&met, false);
}

static void block(void *arg)
{
    if (tws_blocking(meet, arg) != TWS_OK)
        atomic_store(&met, false);
}

/* One idle helper is one place, however late it wakes: every round needs one more than there are. */
static void test_helper_is_promised_once(void **state)
{
    struct task_runtime *rt = runtime();

    (void)state;
    atomic_store(&met, true);
    for (int jobs = 1; jobs <= 20; jobs++) {
        atomic_store(&begun, 0);
        atomic_store(&wanted, jobs);
        for (int i = 0; i < jobs; i++)
            assert_int_equal(task_spawn(rt, block, NULL), 0);
        assert_int_equal(task_runtime_wait(rt, base_clock_ns() + WAIT_LONG), 0);
    }
    task_runtime_free(rt);
    assert_true(atomic_load(&met));
}

/* ---- Sockets ---- */

/* Nobody looks at the carrier's events any more, but a socket that is cut wakes who waits. */
static void test_shutdown_without_carrier(void **state)
{
    struct task_runtime *rt = runtime();
    struct task_socket sock;
    char byte;
    int fds[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    assert_int_equal(task_socket_init(&sock, rt, fds[0]), 0);
    while (task_await(&sock, TASK_NOW, 0) == 0) /* edges of the beginning */
        assert_int_equal(task_recv(&sock, &byte, 1), -EAGAIN);
    task_runtime_free(rt);
    task_shutdown(&sock, SHUT_RDWR);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(task_await(&sock, base_clock_ns() + WAIT_LONG / 6, 0), 0);
        assert_int_equal(task_recv(&sock, &byte, 1), 0);
    }
    assert_int_equal(task_await_send(&sock, base_clock_ns() + WAIT_LONG / 6), 0);
    task_socket_close(&sock);
    close(fds[1]);
}

/* What the peer does is seen all the same: a connection may be closed after its group. */
static void test_traffic_without_carrier(void **state)
{
    struct task_runtime *rt = runtime();
    struct iovec iov = {.iov_base = (char[65536]){0}, .iov_len = 65536};
    struct task_socket sock;
    char bytes[65536];
    int fds[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    assert_int_equal(task_socket_init(&sock, rt, fds[0]), 0);
    while (task_await(&sock, TASK_NOW, 0) == 0) /* edges of the beginning */
        assert_int_equal(task_recv(&sock, bytes, 1), -EAGAIN);
    while (task_send(&sock, &iov, 1) > 0) {
    }
    task_runtime_free(rt);
    while (task_await(&sock, TASK_NOW, 0) == 0)
        assert_int_equal(task_recv(&sock, bytes, 1), -EAGAIN);
    while (task_await_send(&sock, TASK_NOW) == 0)
        assert_int_equal(task_send(&sock, &iov, 1), -EAGAIN);
    assert_int_equal(write(fds[1], "xy", 2), 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(task_await(&sock, base_clock_ns() + WAIT_LONG / 6, 0), 0);
        assert_int_equal(task_recv(&sock, bytes, 1), 1);
    }
    while (recv(fds[1], bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
    }
    assert_int_equal(task_await_send(&sock, base_clock_ns() + WAIT_LONG / 6), 0);
    close(fds[1]);
    do
        assert_int_equal(task_await(&sock, base_clock_ns() + WAIT_LONG / 6, 0), 0);
    while (task_recv(&sock, bytes, 1) == -EAGAIN);
    task_socket_close(&sock);
}

/* ---- Timers that stay where they were ---- */

static void test_timers_stay(void **state)
{
    static struct light_wheel w;
    struct light_timer t = {.link = NULL};
    int64_t now = 5 * BASE_NS_PER_S, soon = now + 10 * BASE_NS_PER_MS, later = now + BASE_NS_PER_S;

    (void)state;
    light_wheel_init(&w, now);
    light_wheel_set(&w, &t, soon);
    light_wheel_set(&w, &t, later); /* it stands early enough */
    assert_true(t.deadline == soon && t.wanted == later);
    assert_null(light_wheel_expired(&w, soon - BASE_NS_PER_MS));
    assert_true(light_wheel_expired(&w, soon) == &t);
    assert_null(t.link);

    light_wheel_set(&w, &t, later);
    light_wheel_set(&w, &t, soon + BASE_NS_PER_MS); /* it would come too late */
    assert_true(t.deadline == soon + BASE_NS_PER_MS);
    assert_true(light_wheel_expired(&w, soon + BASE_NS_PER_MS) == &t);
    assert_null(light_wheel_expired(&w, later));
}

struct left {
    struct task_park park;
    _Atomic int step;
    bool early, late, lost;
};

/* Waits that others end leave a timer behind, which must neither end the next wait nor be missed by it. */
static void leaves_timers_behind(void *arg)
{
    struct left *l = arg;

    for (int i = 0; i < 20; i++) {
        int64_t deadline = base_clock_ns() + 5 * BASE_NS_PER_MS;

        atomic_store(&l->step, 1); /* the waker's turn */
        if (task_park(&l->park, base_clock_ns() + 2 * BASE_NS_PER_MS) < 0)
            l->lost |= task_park(&l->park, base_clock_ns() + WAIT_LONG) < 0;
        l->late |= task_park(&l->park, deadline) != -ETIMEDOUT;
        l->early |= base_clock_ns() < deadline;
        atomic_store(&l->step, 1);
        l->lost |= task_park(&l->park, TASK_FOREVER) < 0;
    }
    atomic_store(&l->step, 2);
}

static void test_timers_left_behind(void **state)
{
    struct task_runtime *rt = runtime();
    static struct left l;
    int64_t end = base_clock_ns() + WAIT_LONG;
    int step;

    (void)state;
    task_park_init(&l.park);
    assert_int_equal(task_spawn(rt, leaves_timers_behind, &l), 0);
    while ((step = atomic_load(&l.step)) != 2 && base_clock_ns() < end) {
        if (step == 1) {
            atomic_store(&l.step, 0);
            task_unpark(&l.park);
        }
        task_sleep(base_clock_ns() + BASE_NS_PER_MS / 20);
    }
    assert_int_equal(step, 2);
    assert_false(l.early);
    assert_false(l.late);
    assert_false(l.lost);
    task_runtime_free(rt);
}

/* ---- Placing ---- */

struct toiler {
    _Atomic(struct light_carrier *) carrier;
    _Atomic bool stop;
};

/* Keeps its carrier busy and comes back often. */
static void toil(void *arg)
{
    struct toiler *w = arg;

    atomic_store(&w->carrier, light_current()->carrier);
    while (!atomic_load(&w->stop)) {
        int64_t end = base_clock_ns() + 2 * BASE_NS_PER_MS;

        while (base_clock_ns() < end) {
        }
        task_sleep(TASK_NOW);
    }
}

static void test_load_is_measured(void **state)
{
    struct task_runtime *rt = runtime();
    struct toiler w = {.stop = false};
    struct light_carrier *c;
    int64_t end = base_clock_ns() + WAIT_LONG;

    (void)state;
    assert_int_equal(task_spawn(rt, toil, &w), 0);
    while (!(c = atomic_load(&w.carrier)) || atomic_load(&c->load) < 90) {
        assert_true(base_clock_ns() < end);
        task_sleep(base_clock_ns() + BASE_NS_PER_MS);
    }
    atomic_store(&w.stop, true);
    while (atomic_load(&c->load) > 10) {
        assert_true(base_clock_ns() < end);
        task_sleep(base_clock_ns() + BASE_NS_PER_MS);
    }
    task_runtime_free(rt);
}

static uint32_t picked(uint32_t tasks0, uint32_t load0, uint32_t tasks1, uint32_t load1)
{
    struct light_carrier c[2] = {{.index = 0}, {.index = 1}};
    struct light_runtime rt = {.carrier_count = 2, .carriers = c};

    atomic_store(&c[0].tasks, tasks0);
    atomic_store(&c[0].load, load0);
    atomic_store(&c[1].tasks, tasks1);
    atomic_store(&c[1].load, load1);
    return light_pick_carrier(&rt)->index;
}

static void test_new_ones_go_where_less_is_done(void **state)
{
    (void)state;
    assert_int_equal(picked(4, 10, 3, 10), 1); /* the fewest */
    assert_int_equal(picked(3, 40, 4, 0), 0);  /* not much is done anywhere */
    assert_int_equal(picked(3, 90, 4, 10), 1);
    assert_int_equal(picked(3, 90, 4, 80), 0); /* both are busy */
    assert_int_equal(picked(1000, 90, 1200, 10), 1);
    assert_int_equal(picked(1000, 90, 1500, 10), 0); /* it has got many more already */
    assert_int_equal(picked(3, 10, 4, 90), 0);
}

/* ---- Pauses ---- */

/* What a window of 10 ms makes of so many runs of so many light threads. */
static int64_t pause_after(uint32_t runs, uint32_t threads)
{
    struct light_pace p = {.since = 1000, .runs = runs, .threads = threads, .pause = 1};

    light_pace_look(&p, 1000 + 5 * BASE_NS_PER_MS);
    assert_int_equal(p.runs, runs); /* the window is not over */
    assert_int_equal(p.pause, 1);
    light_pace_look(&p, 1000 + 10 * BASE_NS_PER_MS);
    assert_int_equal(p.runs, 0);
    assert_int_equal(p.threads, 0);
    assert_int_equal(p.window, 1);
    return p.pause;
}

static void test_pauses_are_for_many(void **state)
{
    const int64_t most = BASE_NS_PER_MS / 2;

    (void)state;
    assert_int_equal(pause_after(0, 0), 0);
    assert_int_equal(pause_after(1, 1), 0);
    assert_int_equal(pause_after(200, 1), 0);      /* one that waits for each reply */
    assert_int_equal(pause_after(400, 32), 0);     /* few that do */
    assert_int_equal(pause_after(50, 50), 0);      /* not much traffic */
    assert_int_equal(pause_after(500, 500), most); /* 32 come in 640 us */
    assert_int_equal(pause_after(500, 300), 10 * BASE_NS_PER_MS / 500 * 300 / 16);
    assert_int_equal(pause_after(1000, 1000), 320000); /* 32 of them */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_park_is_gone),
        cmocka_unit_test(test_helper_is_promised_once),
        cmocka_unit_test(test_shutdown_without_carrier),
        cmocka_unit_test(test_traffic_without_carrier),
        cmocka_unit_test(test_timers_stay),
        cmocka_unit_test(test_timers_left_behind),
        cmocka_unit_test(test_load_is_measured),
        cmocka_unit_test(test_new_ones_go_where_less_is_done),
        cmocka_unit_test(test_pauses_are_for_many),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
