/* Light threads: spawn and end, park and wake, timers, hand-over, stacks, sockets. */
#include "light_kit.h"

#include "base/page.h"

#include <errno.h>
#include <fenv.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Spawning ---- */

#if defined(LIGHT_TSAN)
enum { MANY = 5000 }; /* a fibre of the sanitizer's own costs a millisecond */
#else
enum { MANY = 100000 };
#endif

static long resident_kib(void)
{
    FILE *f = fopen("/proc/self/statm", "re");
    long pages = 0;

    assert_non_null(f);
    if (fscanf(f, "%*d %ld", &pages) != 1)
        pages = 0;
    fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Stacks are reused: memory does not grow with the number of threads that have been. `make bench-spawn`
 * sets TWS_SPAWNS. */
static void spawns_and_ends_many(void **state)
{
    struct task_runtime *rt = runtime(2);
    struct light_runtime *lr = (struct light_runtime *)rt;
    const char *wanted = getenv("TWS_SPAWNS");
    int many = wanted ? atoi(wanted) : MANY;
    int64_t begin = base_clock_ns();
    int slabs = 0;

    (void)state;
    atomic_store(&ran, 0);
    for (int i = 0; i < many; i++) {
        if (wanted && i % (many / 10) == 0)
            printf("%d spawned: %ld KiB resident\n", i, resident_kib());
        while (task_runtime_count(rt) > 500)
            task_sleep(base_clock_ns() + BASE_NS_PER_MS / 10);
        assert_int_equal(task_spawn(rt, count_one, NULL), 0);
    }
    assert_int_equal(task_runtime_wait(rt, base_clock_ns() + WAIT_LONG), 0);
    assert_int_equal(atomic_load(&ran), many);
    if (wanted)
        printf("%d spawned and ended: %ld KiB resident, %ld ns each\n", many, resident_kib(),
               (long)((base_clock_ns() - begin) / many));
    assert_int_equal(lr->stacks.in_use, 0);
    for (const struct light_slot *slot = lr->stacks.free; slot;
         slot = *(void *const *)(const void *)slot)
        slabs++;
    assert_true(slabs <= 9 * 64); /* 501 at one time */
    finish(rt);
}

static void spawn_more(void *arg)
{
    struct task_runtime *rt = arg;

    for (int i = 0; i < 10; i++)
        assert_int_equal(task_spawn(rt, count_one, NULL), 0);
}

static void spawns_from_a_light_thread(void **state)
{
    struct task_runtime *rt = runtime(2);

    (void)state;
    atomic_store(&ran, 0);
    assert_int_equal(task_spawn(rt, spawn_more, rt), 0);
    until(&ran, 10);
    finish(rt);
}

/* ---- Park, wake, sleep ---- */

struct ping_pong {
    struct task_park park[2];
    int rounds;
    int turn;
};

static void player(struct ping_pong *p, int me)
{
    for (int i = 0; i < p->rounds; i++) {
        if (task_park(&p->park[me], TASK_FOREVER) < 0)
            abort();
        if (p->turn++ % 2 != me)
            abort();
        task_unpark(&p->park[1 - me]);
    }
    atomic_fetch_add(&ran, 1);
}

static void player_0(void *arg)
{
    player(arg, 0);
}

static void player_1(void *arg)
{
    player(arg, 1);
}

/* No wake-up is lost between carriers, nor between a light thread and a pthread. */
static void parks_and_wakes_across_carriers(void **state)
{
    struct task_runtime *rt = runtime(2);
    struct ping_pong p = {.rounds = 20000};

    (void)state;
    atomic_store(&ran, 0);
    task_park_init(&p.park[0]);
    task_park_init(&p.park[1]);
    assert_int_equal(task_spawn(rt, player_0, &p), 0);
    assert_int_equal(task_spawn(rt, player_1, &p), 0);
    task_unpark(&p.park[0]);
    until(&ran, 2);
    finish(rt);
}

static void parks_and_wakes_with_a_pthread(void **state)
{
    struct task_runtime *rt = runtime(1);
    struct ping_pong p = {.rounds = 5000};

    (void)state;
    atomic_store(&ran, 0);
    task_park_init(&p.park[0]);
    task_park_init(&p.park[1]);
    assert_int_equal(task_spawn(rt, player_0, &p), 0);
    task_unpark(&p.park[0]);
    player(&p, 1);
    until(&ran, 2);
    finish(rt);
}

struct sleeper {
    int64_t deadline;
    _Atomic int64_t woke;
};

static void sleep_until(void *arg)
{
    struct sleeper *s = arg;

    task_sleep(s->deadline);
    atomic_store(&s->woke, base_clock_ns());
}

static void sleeps_never_end_early(void **state)
{
    enum { N = 200 };
    static struct sleeper s[N];
    struct task_runtime *rt = runtime(2);

    (void)state;
    for (int i = 0; i < N; i++) {
        s[i].deadline = base_clock_ns() + (i * 7 % 300) * BASE_NS_PER_MS;
        atomic_store(&s[i].woke, 0);
        assert_int_equal(task_spawn(rt, sleep_until, &s[i]), 0);
    }
    finish(rt);
    for (int i = 0; i < N; i++)
        assert_true(atomic_load(&s[i].woke) >= s[i].deadline);
}

static void park_times_out(void *arg)
{
    struct task_park p;

    (void)arg;
    task_park_init(&p);
    for (int i = 0; i < 3; i++)
        assert_int_equal(task_park(&p, base_clock_ns() + 2 * BASE_NS_PER_MS), -ETIMEDOUT);
    assert_int_equal(task_park(&p, TASK_NOW), -ETIMEDOUT);
    task_unpark(&p);
    assert_int_equal(task_park(&p, TASK_FOREVER), 0);
    atomic_fetch_add(&ran, 1);
}

static void parks_time_out_and_can_be_used_again(void **state)
{
    struct task_runtime *rt = runtime(1);

    (void)state;
    atomic_store(&ran, 0);
    assert_int_equal(task_spawn(rt, park_times_out, NULL), 0);
    until(&ran, 1);
    finish(rt);
}

/* ---- The wheel ---- */

static void wheel_gives_every_timer_once_and_in_time(void **state)
{
    enum { N = 3000 };
    static struct light_timer t[N];
    static struct light_wheel w;
    int64_t now = 12345678901;
    unsigned seed = 1;
    int given = 0;

    (void)state;
    light_wheel_init(&w, now);
    memset(t, 0, sizeof t);
    assert_true(light_wheel_next(&w) == INT64_MAX);
    for (int i = 0; i < N; i++) {
        seed = seed * 1103515245 + 12345;
        light_wheel_add(&w, &t[i], now + (int64_t)(seed % 200000) * BASE_NS_PER_MS);
        if (i % 3 == 0)
            light_wheel_remove(&t[i]);
    }
    while (light_wheel_next(&w) != INT64_MAX) {
        struct light_timer *due;
        int64_t next = light_wheel_next(&w);

        now = next > now ? next : now;
        while ((due = light_wheel_expired(&w, now))) {
            assert_true(due->deadline <= now);
            assert_true(now - due->deadline <= 2 * BASE_NS_PER_MS);
            assert_int_not_equal((due - t) % 3, 0);
            given++;
        }
        now += BASE_NS_PER_MS / 2;
    }
    assert_int_equal(given, N - (N + 2) / 3);
}

static void wheel_survives_a_long_sleep(void **state)
{
    static struct light_wheel w;
    struct light_timer near = {0}, far = {0}, later = {0};
    int64_t now = 5 * BASE_NS_PER_S;
    int64_t hours = 7200 * BASE_NS_PER_S;

    (void)state;
    light_wheel_init(&w, now);
    light_wheel_add(&w, &near, now + BASE_NS_PER_MS);
    light_wheel_add(&w, &far, now + 3600 * BASE_NS_PER_S);
    light_wheel_add(&w, &later, now + 2 * hours);
    now += hours;
    assert_non_null(light_wheel_expired(&w, now));
    assert_non_null(light_wheel_expired(&w, now));
    assert_null(light_wheel_expired(&w, now));
    assert_null(near.link);
    assert_null(far.link);
    assert_non_null(later.link);
}

/* ---- What survives a switch ---- */

static void keeps_errno(void *arg)
{
    int mine = (int)(intptr_t)arg;

    for (int i = 0; i < 200; i++) {
        errno = mine;
        task_sleep(base_clock_ns() + BASE_NS_PER_MS / 10);
        if (errno != mine)
            return;
    }
    atomic_fetch_add(&ran, 1);
}

static void errno_survives_a_switch(void **state)
{
    struct task_runtime *rt = runtime(1);

    (void)state;
    atomic_store(&ran, 0);
    for (intptr_t i = 1; i <= 5; i++)
        assert_int_equal(task_spawn(rt, keeps_errno, (void *)i), 0);
    until(&ran, 5);
    finish(rt);
}

static void keeps_rounding(void *arg)
{
    int mine = (int)(intptr_t)arg;

    fesetround(mine);
    for (int i = 0; i < 50; i++) {
        task_sleep(base_clock_ns() + BASE_NS_PER_MS / 10);
        if (fegetround() != mine)
            return;
    }
    fesetround(FE_TONEAREST);
    atomic_fetch_add(&ran, 1);
}

static void rounding_mode_survives_a_switch(void **state)
{
    struct task_runtime *rt = runtime(1);

    (void)state;
    atomic_store(&ran, 0);
    assert_int_equal(task_spawn(rt, keeps_rounding, (void *)FE_UPWARD), 0);
    assert_int_equal(task_spawn(rt, keeps_rounding, (void *)FE_DOWNWARD), 0);
    assert_int_equal(task_spawn(rt, keeps_rounding, (void *)FE_TONEAREST), 0);
    until(&ran, 3);
    finish(rt);
}

/* ---- Stacks ---- */

static void measured_depth_is_told(void **state)
{
    struct task_options opt = {
        .kind = TASK_LIGHT, .stack_size = 64 * 1024, .carriers = 1, .paint = true, .name = "t"};
    struct task_runtime *rt = NULL;
    struct task_stats stats;

    (void)state;
    assert_int_equal(task_runtime_new(&rt, &opt), 0);
    assert_int_equal(task_spawn(rt, count_one, NULL), 0);
    assert_int_equal(task_runtime_wait(rt, base_clock_ns() + WAIT_LONG), 0);
    task_runtime_stats(rt, &stats);
    assert_true(stats.deepest_stack > 100);
    assert_true(stats.deepest_stack < 64 * 1024);
    finish(rt);
}

#if !defined(LIGHT_ASAN) && !defined(LIGHT_TSAN)
static volatile int depth_left = 1 << 30;

__attribute__((noinline)) static int recurse(volatile char *above)
{
    volatile char frame[1024];

    frame[0] = above ? above[0] : 1;
    return --depth_left > 0 ? recurse(frame) + frame[0] : 0;
}

static void overflows(void *arg)
{
    (void)arg;
    recurse(NULL);
}

/* In a child, since it ends the process: by the fault at the guard page and not by luck later. */
static void overflow_faults_at_the_guard(void **state)
{
    pid_t pid = fork();
    int status = 0;

    (void)state;
    if (pid == 0) {
        struct rlimit none = {0, 0};

        setrlimit(RLIMIT_CORE, &none);
        signal(SIGSEGV, SIG_DFL);
        struct task_runtime *rt = runtime(1);

        for (int i = 0; i < 3; i++)
            task_spawn(rt, sleep_until, &(struct sleeper){.deadline = INT64_MAX / 2});
        task_spawn(rt, overflows, NULL);
        task_sleep(base_clock_ns() + WAIT_LONG);
        _exit(0);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSEGV);
}
#endif

/* Pages have 4, 16 or 64 KiB; guards and what is given back are whole ones. */
static void stacks_begin_and_end_with_pages(void **state)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct light_stacks s;
    struct light_stack stack[2];

    (void)state;
    light_stacks_init(&s, NULL, 20 * 1000, false);
    for (int i = 0; i < 2; i++) {
        assert_true(light_stack_get(&s, &stack[i]));
        assert_int_equal((uintptr_t)stack[i].low % page, 0);
        assert_int_equal(stack[i].size % page, 0);
        assert_true(stack[i].size >= 20 * 1000);
    }
    assert_true((size_t)labs(stack[1].low - stack[0].low) >= stack[0].size + page);
    for (int i = 0; i < 2; i++)
        light_stack_put(&s, &stack[i]);
    light_stacks_destroy(&s);
}

static void what_is_given_back_is_whole_pages(void **state)
{
    size_t page = base_page_size();
    char *p = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_true(p != MAP_FAILED);
    memset(p, 1, 4 * page);
    base_page_give_back((uintptr_t)p + 1, (uintptr_t)p + 4 * page - 1);
    for (size_t i = 0; i < 4 * page; i++)
        assert_int_equal(p[i], i < page || i >= 3 * page);
    base_page_give_back((uintptr_t)p + 1, (uintptr_t)p + page); /* no whole page */
    base_page_give_back((uintptr_t)p + page, (uintptr_t)p);
    assert_int_equal(p[page - 1], 1);
    munmap(p, 4 * page);
}

static void unused_stacks_are_given_back(void **state)
{
    struct light_stacks s;
    struct light_stack stack[130];

    (void)state;
    light_stacks_init(&s, NULL, 64 * 1024, false);
    for (int i = 0; i < 130; i++)
        assert_true(light_stack_get(&s, &stack[i]));
    assert_int_equal(s.in_use, 130);
    for (int i = 0; i < 129; i++)
        light_stack_put(&s, &stack[i]);
    light_stacks_trim(&s, base_clock_ns() + BASE_NS_PER_S, BASE_NS_PER_S / 2);
    assert_int_equal(s.in_use, 1);
    /* Only the slab with the one in use is left, and that one is whole. */
    memset(stack[129].low, 1, stack[129].size);
    light_stack_put(&s, &stack[129]);
    light_stacks_trim(&s, base_clock_ns() + BASE_NS_PER_S, BASE_NS_PER_S / 2);
    assert_null(s.slabs);
    assert_null(s.free);
    light_stacks_destroy(&s);
}

/* ---- Sockets ---- */

struct socket_pair {
    int fds[2];
    struct task_runtime *rt;
};

static void echo_one(void *arg)
{
    struct socket_pair *p = arg;
    struct task_socket s;
    char buf[64];

    if (task_socket_init(&s, p->rt, p->fds[1]) < 0)
        abort();
    for (;;) {
        ssize_t n;
        int r = task_await(&s, TASK_FOREVER, 0);

        if (r < 0)
            abort();
        n = task_recv(&s, buf, sizeof buf);
        if (n == -EAGAIN)
            continue;
        if (n <= 0)
            break;
        struct iovec iov = {.iov_base = buf, .iov_len = (size_t)n};

        if (task_send(&s, &iov, 1) != n)
            abort();
    }
    task_socket_close(&s);
    atomic_fetch_add(&ran, 1);
}

static void sockets_wait_for_edges(void **state)
{
    struct task_runtime *rt = runtime(2);
    struct socket_pair p = {.rt = rt};
    char buf[64];

    (void)state;
    atomic_store(&ran, 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, p.fds), 0);
    assert_int_equal(task_spawn(rt, echo_one, &p), 0);
    for (int i = 0; i < 2000; i++) {
        size_t len = (size_t)(i % 63) + 1, got = 0;

        memset(buf, i, len);
        assert_int_equal(write(p.fds[0], buf, len), len);
        while (got < len) {
            ssize_t n = read(p.fds[0], buf + got, len - got);

            assert_true(n > 0);
            got += (size_t)n;
        }
    }
    close(p.fds[0]);
    until(&ran, 1);
    finish(rt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spawns_and_ends_many),
        cmocka_unit_test(spawns_from_a_light_thread),
        cmocka_unit_test(parks_and_wakes_across_carriers),
        cmocka_unit_test(parks_and_wakes_with_a_pthread),
        cmocka_unit_test(sleeps_never_end_early),
        cmocka_unit_test(parks_time_out_and_can_be_used_again),
        cmocka_unit_test(wheel_gives_every_timer_once_and_in_time),
        cmocka_unit_test(wheel_survives_a_long_sleep),
        cmocka_unit_test(errno_survives_a_switch),
        cmocka_unit_test(rounding_mode_survives_a_switch),
        cmocka_unit_test(measured_depth_is_told),
#if !defined(LIGHT_ASAN) && !defined(LIGHT_TSAN)
        cmocka_unit_test(overflow_faults_at_the_guard),
#endif
        cmocka_unit_test(stacks_begin_and_end_with_pages),
        cmocka_unit_test(what_is_given_back_is_whole_pages),
        cmocka_unit_test(unused_stacks_are_given_back),
        cmocka_unit_test(sockets_wait_for_edges),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
