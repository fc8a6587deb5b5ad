/*
 * The task layer with kernel threads: parking, queues, runtimes, services, and sockets whose waits
 * another thread ends.
 */
#include "integration/support.h"

#include "base/clock.h"
#include "task/task.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static int64_t in_ms(int64_t ms)
{
    return base_clock_ns() + ms * BASE_NS_PER_MS;
}

/* ---- Deadlines ---- */

static void test_deadline(void **state)
{
    int64_t now = base_clock_ns();

    (void)state;
    assert_int_equal(task_deadline(TWS_NO_LIMIT), TASK_FOREVER);
    assert_int_equal(task_deadline(TWS_NOWAIT), TASK_NOW);
    assert_int_equal(task_deadline(INT64_MAX), TASK_FOREVER); /* no overflow */
    assert_in_range(task_deadline(1000) - now, 1000 * BASE_NS_PER_MS, 60000 * BASE_NS_PER_MS);
}

/* ---- Park ---- */

struct parked {
    struct task_park park;
    pthread_t thread;
    _Atomic int result;
    _Atomic bool ready;
};

static void *park_main(void *arg)
{
    struct parked *p = arg;

    atomic_store(&p->ready, true);
    atomic_store(&p->result, task_park(&p->park, in_ms(SUPPORT_HANG_MS)));
    return NULL;
}

static void test_park(void **state)
{
    struct task_park p;
    int64_t begin;

    (void)state;
    task_park_init(&p);
    begin = base_clock_ns();
    assert_int_equal(task_park(&p, in_ms(20)), -ETIMEDOUT);
    assert_true(base_clock_ns() - begin >= 20 * BASE_NS_PER_MS);
    assert_int_equal(task_park(&p, TASK_NOW), -ETIMEDOUT);
    task_unpark(&p); /* the word comes first, twice: it counts once */
    task_unpark(&p);
    assert_int_equal(task_park(&p, TASK_NOW), 0);
    assert_int_equal(task_park(&p, TASK_NOW), -ETIMEDOUT);
    for (int i = 0; i < 200; i++) {
        struct parked t = {.result = 1};

        task_park_init(&t.park);
        support_thread(&t.thread, park_main, &t);
        if (i % 2)
            WAIT_FOR(atomic_load(&t.ready));
        task_unpark(&t.park);
        pthread_join(t.thread, NULL);
        assert_int_equal(atomic_load(&t.result), 0);
    }
}

/* ---- Queue ---- */

struct line {
    task_mutex mu;
    struct task_queue queue;     /* mu */
    int waiting, order[8], done; /* mu */
};

struct waiter {
    struct line *line;
    int id, result;
    int64_t ms;
    pthread_t thread;
};

static void *wait_main(void *arg)
{
    struct waiter *w = arg;

    pthread_mutex_lock(&w->line->mu);
    w->line->waiting++;
    w->result = task_queue_wait(&w->line->queue, &w->line->mu, in_ms(w->ms));
    w->line->order[w->line->done++] = w->id;
    pthread_mutex_unlock(&w->line->mu);
    return NULL;
}

static int locked(struct line *l, const int *value)
{
    int v;

    pthread_mutex_lock(&l->mu);
    v = *value;
    pthread_mutex_unlock(&l->mu);
    return v;
}

/* Woken in the order of arrival; one at a time, or all. */
static void test_queue(void **state)
{
    struct line l = {.mu = PTHREAD_MUTEX_INITIALIZER};
    struct waiter w[8];

    (void)state;
    for (int i = 0; i < 8; i++) {
        w[i] = (struct waiter){.line = &l, .id = i, .ms = i == 3 ? 20 : SUPPORT_HANG_MS};
        support_thread(&w[i].thread, wait_main, &w[i]);
        WAIT_FOR(locked(&l, &l.waiting) == i + 1);
    }
    pthread_join(w[3].thread, NULL); /* gives up from the middle of the line */
    assert_int_equal(w[3].result, -ETIMEDOUT);
    for (int i = 0; i < 4; i++) {
        pthread_mutex_lock(&l.mu);
        task_queue_wake_one(&l.queue);
        pthread_mutex_unlock(&l.mu);
        WAIT_FOR(locked(&l, &l.done) == 2 + i);
    }
    pthread_mutex_lock(&l.mu);
    task_queue_wake_all(&l.queue);
    assert_null(l.queue.head);
    task_queue_wake_one(&l.queue); /* nobody: nothing */
    pthread_mutex_unlock(&l.mu);
    for (int i = 0; i < 8; i++) {
        if (i != 3)
            pthread_join(w[i].thread, NULL);
        assert_int_equal(w[i].result, i == 3 ? -ETIMEDOUT : 0);
    }
    assert_int_equal(l.order[1], 0);
    assert_int_equal(l.order[2], 1);
    assert_int_equal(l.order[3], 2);
    assert_int_equal(l.order[4], 4);
}

/* ---- Runtimes and services ---- */

struct job {
    _Atomic unsigned ran, masked, named;
    _Atomic bool go;
};

static void job_main(void *arg)
{
    struct job *j = arg;
    char name[16] = "";

    pthread_getname_np(pthread_self(), name, sizeof name);
    atomic_fetch_add(&j->named, strcmp(name, "unit-test") == 0);
    task_trim_stack(); /* harmless at any time */
    while (!atomic_load(&j->go))
        task_sleep(in_ms(1));
    atomic_fetch_add(&j->ran, 1);
}

static void test_runtime(void **state)
{
    enum { JOBS = 20 };
    struct support_census before = support_census();
    struct task_options opt = {
        .kind = TASK_KERNEL, .stack_size = 1, .spread = true, .name = "unit-test"};
    struct task_runtime *rt;
    struct job j = {.ran = 0};

    (void)state;
    assert_int_equal(task_runtime_new(&rt, &opt), 0);
    assert_int_equal(task_runtime_count(rt), 0);
    assert_int_equal(task_runtime_wait(rt, TASK_NOW), 0);
    for (int i = 0; i < JOBS; i++)
        assert_int_equal(task_spawn(rt, job_main, &j), 0);
    assert_int_equal(task_runtime_count(rt), JOBS);
    assert_int_equal(task_runtime_wait(rt, in_ms(20)), -ETIMEDOUT);
    atomic_store(&j.go, true);
    assert_int_equal(task_runtime_wait(rt, TASK_FOREVER), 0);
    assert_int_equal(atomic_load(&j.ran), JOBS);
    assert_int_equal(atomic_load(&j.named), JOBS);
    task_runtime_free(rt);
    task_runtime_free(NULL);
    support_assert_census(before); /* every one of them joined */
}

/* What a thread's own fault raises. */
static bool is_fault(int sig)
{
    return sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE || sig == SIGILL || sig == SIGTRAP ||
           sig == SIGSYS;
}

static void service_main(void *arg)
{
    struct job *j = arg;
    sigset_t mask;
    char name[16];

    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    for (int sig = 1; sig < 32; sig++)
        if (sig != SIGKILL && sig != SIGSTOP && sigismember(&mask, sig) == is_fault(sig))
            return;
    atomic_fetch_add(&j->masked, 1);
    pthread_getname_np(pthread_self(), name, sizeof name);
    atomic_fetch_add(&j->named, strcmp(name, "a-service") == 0);
}

/* Services run with all signals blocked but those of a fault of their own, and leave the caller's mask as it was. */
static void test_service(void **state)
{
    struct task_service s;
    struct job j = {.ran = 0};
    sigset_t before, after;

    (void)state;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(task_service_start(&s, "a-service", true, service_main, &j), 0);
    task_service_join(&s);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    assert_int_equal(sigismember(&before, SIGUSR1), sigismember(&after, SIGUSR1));
    assert_int_equal(atomic_load(&j.masked), 1);
    assert_int_equal(atomic_load(&j.named), 1);
}

static void test_event(void **state)
{
    struct task_event e;
    struct pollfd pfd;

    (void)state;
    assert_int_equal(task_event_init(&e), 0);
    pfd = (struct pollfd){.fd = e.fd, .events = POLLIN};
    assert_int_equal(task_poll(&pfd, 1, TASK_NOW), 0);
    assert_int_equal(task_poll(&pfd, 1, in_ms(10)), 0);
    errno = 77;
    task_event_set(&e);
    task_event_set(&e);
    assert_int_equal(errno, 77);
    assert_int_equal(task_poll(&pfd, 1, TASK_FOREVER), 1);
    task_event_clear(&e);
    assert_int_equal(task_poll(&pfd, 1, TASK_NOW), 0);
    task_event_destroy(&e);
    task_event_destroy(&e);
}

/* ---- Sockets ---- */

struct pair {
    struct task_socket sock;
    struct client peer;
};

/* Over TCP, where an interrupt leaves the peer's direction open. */
static void pair_open(struct pair *p)
{
    struct sockaddr_storage addr;
    socklen_t len = sizeof addr;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int fd;

    memset(p, 0, sizeof *p);
    assert_int_equal(listen(listener, 1), 0); /* any port of any address */
    assert_int_equal(getsockname(listener, (struct sockaddr *)&addr, &len), 0);
    p->peer.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(p->peer.fd, (struct sockaddr *)&addr, len), 0);
    fd = accept(listener, NULL, NULL);
    close(listener);
    assert_int_equal(task_socket_init(&p->sock, NULL, fd), 0);
}

static void pair_close(struct pair *p)
{
    task_socket_close(&p->sock);
    client_close(&p->peer);
}

/* The mode is the socket's: whoever has another descriptor of it changes it for all. */
static void test_made_non_blocking(void **state)
{
    struct pair p;
    char buf[8];
    int second;
    int64_t began;

    (void)state;
    pair_open(&p);
    second = dup(p.sock.fd);
    assert_int_equal(fcntl(second, F_SETFL, fcntl(second, F_GETFL) | O_NONBLOCK), 0);
    assert_int_equal(task_await(&p.sock, TASK_FOREVER, 50), 0);
    assert_true(task_recv_waits(&p.sock));
    began = base_clock_ns();
    assert_int_equal(task_recv(&p.sock, buf, sizeof buf), -EAGAIN); /* the period, and no less */
    assert_true(base_clock_ns() - began >= 40 * BASE_NS_PER_MS);
    assert_int_equal(task_await(&p.sock, TASK_FOREVER, 0), 0);
    assert_true(client_send_bytes(p.peer.fd, "x", 1));
    assert_int_equal(task_recv(&p.sock, buf, sizeof buf), 1);
    close(second);
    pair_close(&p);
}

static void test_socket_waits(void **state)
{
    struct pair p;
    char buf[8];

    (void)state;
    pair_open(&p);
    assert_int_equal(task_await(&p.sock, TASK_NOW, 0), -ETIMEDOUT);
    assert_int_equal(task_await(&p.sock, in_ms(20), 0), -ETIMEDOUT);
    assert_int_equal(task_await(&p.sock, in_ms(SUPPORT_HANG_MS), 20), -EAGAIN); /* the period */
    assert_int_equal(task_await(&p.sock, TASK_FOREVER, 20), 0); /* recv itself will wait */
    assert_true(task_recv_waits(&p.sock));
    assert_int_equal(task_recv(&p.sock, buf, sizeof buf), -EAGAIN);
    assert_true(client_send_bytes(p.peer.fd, "abc", 3));
    assert_int_equal(task_await(&p.sock, in_ms(SUPPORT_HANG_MS), 0), 0);
    assert_false(task_recv_waits(&p.sock));
    assert_int_equal(task_recv(&p.sock, buf, sizeof buf), 3);
    assert_int_equal(task_recv(&p.sock, buf, sizeof buf), -EAGAIN);
    client_close(&p.peer);
    assert_int_equal(task_await(&p.sock, TASK_FOREVER, 0), 0);
    assert_int_equal(task_recv(&p.sock, buf, sizeof buf), 0);
    pair_close(&p);
}

struct receiving {
    struct pair *pair;
    pthread_t thread;
    _Atomic bool begun;
    _Atomic bool done;
    ssize_t result;
    char buf[8];
};

static void *receive_main(void *arg)
{
    struct receiving *r = arg;
    int n;

    atomic_store(&r->begun, true);
    n = task_await(&r->pair->sock, TASK_FOREVER, 0);
    r->result = n ? n : task_recv(&r->pair->sock, r->buf, sizeof r->buf);
    atomic_store(&r->done, true);
    return NULL;
}

/* An interrupt wakes a receive for good; what the peer sends afterwards can still be read, and its
 * end is still seen. */
static void test_interrupt(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        struct pair p;
        struct receiving r = {.pair = &p};
        char buf[8];
        ssize_t n;

        pair_open(&p);
        support_thread(&r.thread, receive_main, &r);
        if (i % 2)
            WAIT_FOR(atomic_load(&r.begun));
        task_interrupt(&p.sock);
        task_interrupt(&p.sock);
        pthread_join(r.thread, NULL);
        assert_int_equal(r.result, -EAGAIN);
        assert_true(client_send_bytes(p.peer.fd, "later", 5));
        do {
            assert_int_equal(task_await(&p.sock, in_ms(SUPPORT_HANG_MS), 0), 0);
            n = task_recv(&p.sock, buf, sizeof buf);
        } while (n == -EAGAIN);
        assert_int_equal(n, 5);
        if (task_await(&p.sock, in_ms(2), 0) == 0) /* its side is still open */
            assert_int_equal(task_recv(&p.sock, buf, sizeof buf), -EAGAIN);
        client_close(&p.peer);
        do {
            assert_int_equal(task_await(&p.sock, in_ms(SUPPORT_HANG_MS), 0), 0);
            n = task_recv(&p.sock, buf, sizeof buf);
        } while (n == -EAGAIN);
        assert_int_equal(n, 0);
        pair_close(&p);
    }
}

/* What comes together is found together: bytes that do not fit into the first receive, and the end
 * right behind them. */
static void test_interrupt_burst(void **state)
{
    static const ssize_t pieces[] = {8, 2, 0};
    struct pair p;
    char buf[8];
    ssize_t n;

    (void)state;
    pair_open(&p);
    task_interrupt(&p.sock);
    do { /* until there is an edge to wait for */
        n = task_await(&p.sock, in_ms(2), 0);
        assert_true(n == -ETIMEDOUT || task_recv(&p.sock, buf, sizeof buf) == -EAGAIN);
    } while (n == 0);
    assert_true(client_send_bytes(p.peer.fd, "last words", 10));
    client_close(&p.peer);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(task_await(&p.sock, in_ms(SUPPORT_HANG_MS), 0), 0);
        assert_int_equal(task_recv(&p.sock, buf, sizeof buf), pieces[i]);
    }
    pair_close(&p);
}

static void test_shutdown_wakes(void **state)
{
    struct pair p;
    struct receiving r = {.pair = &p};

    (void)state;
    pair_open(&p);
    support_thread(&r.thread, receive_main, &r);
    WAIT_FOR(atomic_load(&r.begun));
    task_shutdown(&p.sock, SHUT_RDWR);
    pthread_join(r.thread, NULL);
    assert_int_equal(r.result, 0);
    pair_close(&p);
}

static void *await_send_main(void *arg)
{
    struct receiving *r = arg;

    atomic_store(&r->begun, true);
    r->result = task_await_send(&r->pair->sock, TASK_FOREVER);
    return NULL;
}

static void test_send(void **state)
{
    static char zeros[65536];
    struct pair p;
    struct receiving r = {.pair = &p};
    struct iovec iov[2] = {{.iov_base = "ab", .iov_len = 2}, {.iov_base = "c", .iov_len = 1}};
    char buf[8];
    ssize_t n;

    (void)state;
    pair_open(&p);
    assert_int_equal(task_await_send(&p.sock, TASK_NOW), 0);
    assert_int_equal(task_send(&p.sock, iov, 2), 3);
    assert_int_equal(recv(p.peer.fd, buf, sizeof buf, MSG_WAITALL | MSG_DONTWAIT), 3);
    iov[0] = (struct iovec){.iov_base = zeros, .iov_len = sizeof zeros};
    do
        n = task_send(&p.sock, iov, 1);
    while (n > 0);
    assert_int_equal(n, -EAGAIN);
    assert_int_equal(task_await_send(&p.sock, in_ms(20)), -ETIMEDOUT);
    support_thread(&r.thread, await_send_main, &r);
    WAIT_FOR(atomic_load(&r.begun));
    task_shutdown(&p.sock, SHUT_RDWR);
    pthread_join(r.thread, NULL);
    assert_int_equal(r.result, 0);
    assert_int_equal(task_send(&p.sock, iov, 1), -EPIPE); /* and no signal */
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_park),
        cmocka_unit_test(test_queue),
        cmocka_unit_test(test_runtime),
        cmocka_unit_test(test_service),
        cmocka_unit_test(test_event),
        cmocka_unit_test(test_made_non_blocking),
        cmocka_unit_test(test_socket_waits),
        cmocka_unit_test(test_interrupt),
        cmocka_unit_test(test_interrupt_burst),
        cmocka_unit_test(test_shutdown_wakes),
        cmocka_unit_test(test_send),
    };

    return cmocka_run_group_tests_name("task_kernel", tests, NULL, NULL);
}
