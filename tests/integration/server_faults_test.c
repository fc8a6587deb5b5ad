/*
 * A server when the system or its peers misbehave: accept and thread creation that fail, no
 * descriptors, signals, storms of resets. It stays up, refuses politely, recovers by itself, and
 * uses no processor time meanwhile.
 */
#include "no_threads.h"
#include "support_events.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- System calls that fail on demand ---- */

/* The sanitizers' own, where there is one. */
int sanitizer_accept4(int fd, struct sockaddr *addr, socklen_t *len,
                      int flags) __asm__("__interceptor_accept4") __attribute__((weak));

static _Atomic int accept_error;         /* errno of the next calls */
static _Atomic unsigned accept_failures; /* how many of them fail */

/* Under another name here, because the system's header declares it with a union of pointers. */
int failing_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags) __asm__("accept4");

int failing_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
    static int (*real)(int, struct sockaddr *, socklen_t *, int);
    struct pollfd pfd = {.fd = fd, .events = POLLIN};
    unsigned left = atomic_load(&accept_failures);

    /* While somebody waits: a last look of the batch before must not use up what is meant for him. */
    if (left > 0 && poll(&pfd, 1, 0) > 0 &&
        atomic_compare_exchange_strong(&accept_failures, &left, left - 1)) {
        errno = atomic_load(&accept_error);
        return -1;
    }
    if (sanitizer_accept4)
        return sanitizer_accept4(fd, addr, len, flags);
    if (!real) {
        void *symbol = next_symbol("accept4");

        memcpy(&real, &symbol, sizeof real);
    }
    return real(fd, addr, len, flags);
}

/* ---- Helpers ---- */

static tws_server_stats stats_of(tws_server *s)
{
    tws_server_stats st;

    tws_server_get_stats(s, &st);
    return st;
}

static void check_echo(const char *address)
{
    struct client c;

    client_open(&c, address);
    client_send_text(&c, "served");
    client_expect_text(&c, "served");
    client_close(&c);
}

static int64_t cpu_ms(void)
{
    struct rusage use;

    getrusage(RUSAGE_SELF, &use);
    return (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * INT64_C(1000) +
           (use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1000;
}

/* Processor time that this process uses while nothing is asked of it. */
static void assert_idle_cpu(void)
{
    int64_t before = cpu_ms();

    support_pause_ms(1000);
    /* A loop that spins uses what it gets of 1,000 ms; waiting a few dozen times takes 50 at most. */
    assert_in_range(cpu_ms() - before, 0, 250);
}

/* ---- accept ---- */

/* B119: no error of accept ends the loop, and none makes it spin. */
static void test_accept_errors(void **state)
{
    static const int errors[] = {ECONNABORTED, EINTR, EPROTO,   ENOBUFS,
                                 ENOMEM,       EPERM, ENETDOWN, EHOSTUNREACH};
    static const int refusing[] = {EMFILE, ENFILE};
    tws_server_options opt;
    struct support_server s;

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    support_server_start(&s, &opt);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        atomic_store(&accept_error, errors[i]);
        atomic_store(&accept_failures, 5);
        check_echo(s.address);
        assert_int_equal(atomic_load(&accept_failures), 0);
    }
    for (size_t i = 0; i < 2; i++) { /* these cost the peer its connection, but it is told so */
        char answer[512];

        atomic_store(&accept_error, refusing[i]);
        atomic_store(&accept_failures, 1);
        assert_int_equal(client_http(s.address, "", answer, sizeof answer), 503);
        check_echo(s.address);
    }
    assert_int_equal(stats_of(s.server).refused_descriptors, 2);
    tws_server_free(s.server);
}

/* B119: as long as accept fails for good, the server rests between its tries. */
static void test_accept_fails_for_long(void **state)
{
    tws_server_options opt;
    struct support_server s;
    struct client c;
    unsigned tries;

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    support_server_start(&s, &opt);
    atomic_store(&accept_error, ENOBUFS);
    atomic_store(&accept_failures, 1000000);
    c.fd = client_dial(s.address);
    WAIT_FOR(atomic_load(&accept_failures) < 1000000 - 2);
    assert_idle_cpu();
    tries = 1000000 - atomic_load(&accept_failures);
    assert_in_range(tries, 1, 500);
    atomic_store(&accept_failures, 0);
    assert_int_equal(client_upgrade(&c, c.fd, NULL), 101);
    client_close(&c);
    atomic_store(&accept_failures, 1000000);
    tws_server_free(s.server); /* stops at once also while it rests */
    atomic_store(&accept_failures, 0);
}

/* B119: connections that are reset before they are accepted. */
static void test_reset_storm(void **state)
{
    tws_server_options opt;
    struct support_server s;

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    support_server_start(&s, &opt);
    for (int i = 0; i < 500; i++) {
        struct client c = {.fd = client_dial(s.address)};

        assert_true(c.fd >= 0);
        if (i % 2)
            client_send_bytes(c.fd, "GET / HTTP/1.1\r\n", 16);
        client_reset(&c);
    }
    check_echo(s.address);
    WAIT_FOR(stats_of(s.server).threads == 0);
    assert_int_equal(stats_of(s.server).handshaking, 0);
    tws_server_free(s.server);
}

/* ---- Descriptors ---- */

/* Lowers the limit so that no descriptor is left; the old limit. */
static struct rlimit exhaust_descriptors(void)
{
    struct rlimit old, tight;
    int next;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    next = fcntl(0, F_DUPFD_CLOEXEC, 0); /* the lowest that is free */
    assert_true(next >= 0);
    close(next);
    tight = old;
    tight.rlim_cur = (rlim_t)next;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    return old;
}

/* With none left, peers are told 503, open connections go on, nothing spins; and when there are
 * some again, all is as before. */
static void test_no_descriptors(void **state)
{
    enum { TRIES = 12 };
    tws_server_options opt;
    struct support_server s;
    struct client open, c;
    struct rlimit old;
    int fd[TRIES];

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    support_server_start(&s, &opt);
    check_echo(s.address);
    client_open(&open, s.address);
    WAIT_FOR(stats_of(s.server).threads == 1);
    for (int i = 0; i < TRIES; i++) { /* descriptors of the clients' own are needed before */
        fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(fd[i] >= 0);
    }
    old = exhaust_descriptors();
    for (int i = 0; i < TRIES; i++) {
        struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

        in.sin_port = htons((uint16_t)strtoul(strrchr(s.address, ':') + 1, NULL, 10));
        assert_int_equal(connect(fd[i], (struct sockaddr *)&in, sizeof in), 0);
        assert_int_equal(client_upgrade(&c, fd[i], NULL), 503);
        assert_non_null(strstr(c.head, "\r\nRetry-After: "));
        if (i == 0)
            assert_idle_cpu();
        client_send_text(&open, "undisturbed");
        client_expect_text(&open, "undisturbed");
        free(c.buf); /* the descriptor itself stays taken */
    }
    assert_int_equal(stats_of(s.server).refused_descriptors, TRIES);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    for (int i = 0; i < TRIES; i++)
        close(fd[i]);
    check_echo(s.address);
    client_close(&open);
    tws_server_free(s.server);
}

/* ---- Threads ---- */

static void test_no_threads(void **state)
{
    struct support_census before = support_census();
    char request[1024], answer[1024];
    tws_server_options opt;
    struct support_server s;
    tws_server *never;
    struct client open;
    tws_error e;
    bool light;

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    light = opt.threads == TWS_THREADS_LIGHT;
    support_server_start(&s, &opt);
    client_open(&open, s.address);
    client_request(request, sizeof request, NULL);
    atomic_store(&no_threads, true);
    for (int i = 0; i < 10; i++) {
        if (!light) /* a light thread needs no thread of the system's */
            assert_int_equal(client_http(s.address, request, answer, sizeof answer), 503);
        client_send_text(&open, "undisturbed");
        client_expect_text(&open, "undisturbed");
    }
    assert_idle_cpu();
    assert_int_equal(stats_of(s.server).refused_threads, light ? 0 : 10);
    assert_int_equal(stats_of(s.server).threads, 1);
    assert_err(tws_server_start(&never, &opt, &e), TWS_ERR_SYSTEM);
    assert_int_equal(e.sys_errno, EAGAIN);
    assert_null(never);
    atomic_store(&no_threads, false);
    check_echo(s.address);
    client_close(&open);
    tws_server_free(s.server);
    support_assert_census(before);
}

/* Messages that should be handled at once are handled one by one then, in order. */
static void test_no_workers(void **state)
{
    struct stage st = {.diary = {.opened = 0}};
    tws_server_options opt;

    (void)state;
    support_server_options(&opt, NULL, NULL);
    stage_open(&st, 4, &opt);
    WAIT_FOR(atomic_load(&st.diary.opened) == 1);
    atomic_store(&no_threads, true);
    for (char c = 'a'; c <= 'z'; c++)
        client_send(&st.client, CLIENT_FIN | CLIENT_TEXT, &c, 1);
    for (char c = 'a'; c <= 'z'; c++)
        if (opt.threads == TWS_THREADS_KERNEL)
            client_expect(&st.client, CLIENT_FIN | CLIENT_TEXT, &c, 1);
    if (opt.threads == TWS_THREADS_KERNEL)
        assert_int_equal(atomic_load(&st.diary.most_running), 1);
    atomic_store(&no_threads, false);
    client_close(&st.client);
    stage_await_close(&st);
    stage_close(&st);
}

/* A dial whose events find no thread fails, without events. */
static void test_no_thread_for_events(void **state)
{
    struct support_census before = support_census();
    struct diary d = {.opened = 0};
    tws_dial_options opt;
    tws_server_options o;
    struct support_server s;
    tws_conn *c;
    char url[200];
    tws_error e;
    tws_events ev;

    (void)state;
    support_server_options(&o, support_echo, NULL);
    o.threads = TWS_THREADS_LIGHT; /* which can go on */
    support_server_start(&s, &o);
    check_echo(s.address);
    diary_events(&ev, 0);
    tws_dial_options_init(&opt);
    opt.events = &ev;
    opt.events_arg = &d;
    snprintf(url, sizeof url, "ws://%s/", s.address);
    for (int way = 0; way < 2; way++) {
        opt.group = NULL;
        if (way)
            assert_ok(tws_group_new(&opt.group, NULL));
        atomic_store(&no_threads, true);
        assert_err(tws_dial(&c, url, &opt, NULL, &e), TWS_ERR_SYSTEM);
        atomic_store(&no_threads, false);
        assert_null(c);
        assert_int_equal(e.code, TWS_ERR_SYSTEM);
        tws_group_free(opt.group);
    }
    assert_int_equal(atomic_load(&d.opened), 0);
    tws_server_free(s.server);
    support_assert_census(before);
}

/* ---- Signals ---- */

static _Atomic unsigned signals_seen;

static void note_signal(int sig)
{
    (void)sig;
    atomic_fetch_add(&signals_seen, 1);
}

struct user_thread {
    pthread_t thread;
    int fd;
    _Atomic(tws_conn *) conn;
    _Atomic unsigned messages;
    _Atomic bool torn;
    tws_err err;
};

/* A thread of the user's own, which takes signals, serves a connection by itself. */
static void *user_main(void *arg)
{
    struct user_thread *u = arg;
    tws_upgrade_options opt;
    tws_conn *c;
    tws_message m;

    tws_upgrade_options_init(&opt);
    opt.conn.ping_interval = 1000;
    opt.conn.ping_timeout = 1000;
    u->err = tws_upgrade(&c, u->fd, NULL, 0, &opt, NULL);
    if (u->err)
        return NULL;
    atomic_store(&u->conn, c);
    while ((u->err = tws_read_message(c, &m)) == TWS_OK) {
        if (!support_filled(m.data, m.len, (unsigned)m.len))
            atomic_store(&u->torn, true);
        u->err = tws_write_message(c, m.opcode, m.data, m.len);
        if (u->err)
            break;
        atomic_fetch_add(&u->messages, 1);
    }
    return NULL;
}

/* A listening socket and a client of it; the accepted descriptor. */
static int accept_own(struct client *c)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof in;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char address[32], request[1024];
    int fd;

    assert_int_equal(bind(listener, (struct sockaddr *)&in, sizeof in), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&in, &len), 0);
    snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(in.sin_port));
    memset(c, 0, sizeof *c);
    c->fd = client_dial(address);
    fd = accept(listener, NULL, NULL);
    close(listener);
    assert_true(fd >= 0);
    assert_true(client_send_bytes(c->fd, request, client_request(request, sizeof request, NULL)));
    return fd;
}

/* B120: signals without SA_RESTART, while it waits to receive and while it is blocked in a send;
 * the data is intact, and keepalive still counts the time. */
static void test_signals(void **state)
{
    const size_t len = 6 << 20;
    struct sigaction sa = {.sa_handler = note_signal}, old;
    uint8_t *data = support_alloc(len), *wire = support_alloc(len + CLIENT_HEAD_MAX);
    struct user_thread u = {.err = TWS_OK};
    struct sender s = {.piece = 0};
    struct client_frame f;
    struct client c;
    size_t n;

    (void)state;
    assert_int_equal(sigaction(SIGUSR1, &sa, &old), 0);
    u.fd = accept_own(&c);
    support_thread(&u.thread, user_main, &u);
    assert_int_equal(client_read_head(&c), 101);
    WAIT_FOR(atomic_load(&u.conn) != NULL);
    support_fill(data, len, (unsigned)len);
    n = client_frame(wire, CLIENT_FIN | CLIENT_BINARY, data, len);
    sender_start(&s, c.fd, wire, n);
    for (int i = 0; i < 100; i++) { /* it receives, then is blocked sending: nobody reads yet */
        pthread_kill(u.thread, SIGUSR1);
        support_pause_ms(2);
    }
    do
        assert_true(client_next(&c, &f));
    while (f.opcode == CLIENT_PING);
    assert_int_equal(f.opcode, CLIENT_BINARY);
    assert_int_equal(f.len, len);
    assert_memory_equal(f.data, data, len);
    assert_true(sender_join(&s));
    for (int i = 0; i < 100; i++) { /* and now it waits */
        pthread_kill(u.thread, SIGUSR1);
        support_pause_ms(1);
    }
    /* Signals all the time: silence must be noticed in spite of them. */
    for (tws_error e = {.code = TWS_OK}; !e.code; tws_conn_error(atomic_load(&u.conn), &e)) {
        pthread_kill(u.thread, SIGUSR1);
        support_pause_ms(20);
    }
    pthread_join(u.thread, NULL);
    assert_int_equal(u.err, TWS_ERR_PEER_SILENT);
    assert_false(atomic_load(&u.torn));
    assert_int_equal(atomic_load(&u.messages), 1);
    assert_in_range(atomic_load(&signals_seen), 50, 100000);
    tws_conn_unref(u.conn);
    sigaction(SIGUSR1, &old, NULL);
    client_close(&c);
    free(wire);
    free(data);
}

/* ---- Connections that come and go under broadcasts ---- */

struct caster {
    pthread_t thread;
    tws_server *server;
    _Atomic bool *stop;
    bool pings;
    _Atomic unsigned long sent;
};

static bool cast_one(tws_conn *c, void *arg)
{
    struct caster *k = arg;
    tws_err err = k->pings ? tws_ping(c, "x", 1) : tws_write_text(c, "to everybody");

    if (!err)
        atomic_fetch_add(&k->sent, 1);
    return true;
}

static void *caster_main(void *arg)
{
    struct caster *k = arg;

    while (!atomic_load(k->stop))
        tws_server_each(k->server, cast_one, k);
    return NULL;
}

/* B126: clients connect and reset in a loop while four threads broadcast and ping. */
static void test_reset_under_broadcast(void **state)
{
    enum { CLIENTS = 200, CASTERS = 4 };
    struct support_census before = support_census();
    struct caster casters[CASTERS];
    tws_server_options opt;
    struct support_server s;
    _Atomic bool stop = false;
    struct client stays;

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    opt.upgrade.conn.write_timeout = 2000;
    support_server_start(&s, &opt);
    client_open(&stays, s.address);
    for (int i = 0; i < CASTERS; i++) {
        casters[i] = (struct caster){.server = s.server, .stop = &stop, .pings = i % 2};
        support_thread(&casters[i].thread, caster_main, &casters[i]);
    }
    for (int i = 0; i < CLIENTS; i++) {
        struct client_frame f;
        struct client c;

        client_open(&c, s.address);
        if (i % 2)
            assert_true(client_next(&c, &f));
        if (i % 3)
            client_reset(&c);
        else
            client_close(&c);
        assert_true(client_next(&stays, &f)); /* the one that stays gets everything, in frames */
    }
    client_reset(&stays);
    atomic_store(&stop, true);
    for (int i = 0; i < CASTERS; i++) {
        pthread_join(casters[i].thread, NULL);
        assert_true(atomic_load(&casters[i].sent) > 0);
    }
    WAIT_FOR(stats_of(s.server).threads == 0);
    assert_int_equal(stats_of(s.server).upgraded, CLIENTS + 1);
    tws_server_free(s.server);
    support_assert_census(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accept_errors),
        cmocka_unit_test(test_accept_fails_for_long),
        cmocka_unit_test(test_reset_storm),
        cmocka_unit_test(test_no_descriptors),
        cmocka_unit_test(test_no_threads),
        cmocka_unit_test(test_no_workers),
        cmocka_unit_test(test_no_thread_for_events),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_reset_under_broadcast),
    };

    return cmocka_run_group_tests_name("server_faults", tests, NULL, NULL);
}
