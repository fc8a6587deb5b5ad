/*
 * The way to a server: names and several addresses, time that runs out and tws_cancel_now() at every
 * step.
 */
#include "support_dial.h"

#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- A resolver in the test's hands: this definition comes before the C library's. ---- */

static struct {
    pthread_mutex_t mu;
    pthread_cond_t changed;
    int asked, answered;
    bool open; /* slow.test is answered */
} resolver = {.mu = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

typedef int getaddrinfo_fn(const char *, const char *, const struct addrinfo *, struct addrinfo **);

static int wait_for_answer(void)
{
    pthread_mutex_lock(&resolver.mu);
    resolver.asked++;
    while (!resolver.open)
        pthread_cond_wait(&resolver.changed, &resolver.mu);
    resolver.answered++;
    pthread_mutex_unlock(&resolver.mu);
    return EAI_AGAIN;
}

int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                struct addrinfo **list)
{
    getaddrinfo_fn *real = (getaddrinfo_fn *)(uintptr_t)dlsym(RTLD_NEXT, "getaddrinfo");
    struct addrinfo *second;
    int r;

    if (!host || hints->ai_flags & AI_NUMERICHOST)
        return real(host, port, hints, list);
    if (strcmp(host, "slow.test") == 0)
        return wait_for_answer();
    if (strcmp(host, "dual.test") != 0)
        return real(host, port, hints, list);
    r = real("::1", port, hints, list);
    if (r == 0)
        r = real("127.0.0.1", port, hints, &second);
    if (r == 0)
        (*list)->ai_next = second;
    return r;
}

static int resolver_asked(void)
{
    int n;

    pthread_mutex_lock(&resolver.mu);
    n = resolver.asked - resolver.answered;
    pthread_mutex_unlock(&resolver.mu);
    return n;
}

/* Lets the abandoned lookups end. */
static void resolver_answer(void)
{
    pthread_mutex_lock(&resolver.mu);
    resolver.open = true;
    pthread_cond_broadcast(&resolver.changed);
    pthread_mutex_unlock(&resolver.mu);
    WAIT_FOR(resolver_asked() == 0);
    resolver.open = false;
}

/* ---- Several addresses ---- */

/* The handshake's server side, and the end. */
static void serve_one(struct fake *f, struct dialing *d)
{
    struct fake_request r;
    int fd = fake_accept(f);

    assert_true(fake_read_request(fd, &r));
    fake_upgrade(fd, &r, "", NULL, 0);
    dialing_join(d, TWS_OK);
    close(fd);
    dialing_end(d);
}

/* B195: a name with an address of each family, and a server on one of them. */
static void test_either_family(void **state)
{
    static const int families[] = {AF_INET, AF_INET6};
    static const char *const names[] = {"localhost", "dual.test"};
    struct support_census before = support_census();
    tws_dial_options opt;

    (void)state;
    tws_dial_options_init(&opt);
    opt.attempt_delay = 60000; /* a refused attempt is not waited for */
    for (int i = 0; i < 4; i++) {
        struct fake f;
        struct dialing d;
        char url[256];

        fake_listen(&f, families[i % 2]);
        snprintf(url, sizeof url, "ws://%s:%u/", names[i / 2], f.port);
        dialing_start(&d, url, &opt);
        serve_one(&f, &d);
        fake_close(&f);
    }
    support_assert_census(before);
}

/* One address does not answer: the next one is tried beside it, and the slow attempt is given up. */
static void test_race(void **state)
{
    struct support_census before = support_census();
    struct fake deaf, good;
    struct dialing d;
    tws_dial_options opt;
    char url[256];

    (void)state;
    fake_listen_dual(&deaf, &good, false);
    tws_dial_options_init(&opt);
    opt.attempt_delay = 20;
    snprintf(url, sizeof url, "ws://dual.test:%u/", good.port);
    dialing_start(&d, url, &opt);
    serve_one(&good, &d);
    fake_close(&good);
    fake_close(&deaf);
    support_assert_census(before);
}

static void test_nobody_answers(void **state)
{
    struct fake f;
    struct dialing d;
    char url[256];

    (void)state;
    fake_listen(&f, AF_INET);
    fake_close(&f); /* a port that nobody listens on */
    snprintf(url, sizeof url, "ws://dual.test:%u/", f.port);
    dialing_start(&d, url, NULL);
    dialing_join(&d, TWS_ERR_CONNECT);
    assert_int_equal(d.error.sys_errno, ECONNREFUSED);
    assert_int_equal(d.error.phase, TWS_PHASE_CONNECT);
    assert_int_equal(d.error.cause, TWS_CAUSE_NETWORK);
    assert_non_null(strstr(d.error.text, "dual.test"));
    assert_non_null(strstr(d.error.text, "127.0.0.1:"));
    dialing_end(&d);
    dialing_start(&d, "ws://no-such-host.invalid/", NULL);
    dialing_join(&d, TWS_ERR_RESOLVE);
    assert_int_equal(d.error.phase, TWS_PHASE_RESOLVE);
    assert_non_null(strstr(d.error.text, "no-such-host.invalid"));
    dialing_end(&d);
}

/* ---- Time and cancelling ---- */

/* What a dial can be stuck in. */
enum stage { AT_RESOLVE, AT_CONNECT, AT_RACE, AT_UNIX, AT_TLS, AT_HANDSHAKE, STAGES };
static const tws_phase phases[] = {TWS_PHASE_RESOLVE, TWS_PHASE_CONNECT, TWS_PHASE_CONNECT,
                                   TWS_PHASE_CONNECT, TWS_PHASE_TLS,     TWS_PHASE_HANDSHAKE};

struct stuck {
    struct fake f, second;
    struct dialing d;
    int asked;
    int fds[80];
    int nfds;
};

/* A Unix socket's queue, full. */
static void fill_unix(struct stuck *s)
{
    for (;;) {
        struct sockaddr_un un = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        snprintf(un.sun_path, sizeof un.sun_path, "%.107s", s->f.host);
        if (connect(fd, (struct sockaddr *)&un, sizeof un) < 0) {
            close(fd);
            return;
        }
        assert_in_range(s->nfds, 0, 79);
        s->fds[s->nfds++] = fd;
    }
}

static void stick(struct stuck *s, enum stage stage, const tws_dial_options *opt)
{
    char url[256];

    memset(s, 0, sizeof *s);
    s->f.fd = s->second.fd = -1;
    s->f.port = s->second.port = 1;
    s->asked = resolver_asked();
    switch (stage) {
    case AT_RESOLVE:
        snprintf(url, sizeof url, "ws://slow.test/");
        break;
    case AT_CONNECT:
        fake_listen_deaf(&s->f, AF_INET);
        snprintf(url, sizeof url, "ws://%s/", s->f.host);
        break;
    case AT_RACE:
        fake_listen_dual(&s->f, &s->second, true);
        snprintf(url, sizeof url, "ws://dual.test:%u/", s->f.port);
        break;
    case AT_UNIX:
        fake_listen(&s->f, AF_UNIX);
        fill_unix(s);
        snprintf(url, sizeof url, "ws+unix:%s:/", s->f.host);
        break;
    default:
        fake_listen(&s->f, AF_INET);
        snprintf(url, sizeof url, "%s://%s/", stage == AT_TLS ? "wss" : "ws", s->f.host);
        break;
    }
    dialing_start(&s->d, url, opt);
    if (stage == AT_RESOLVE)
        WAIT_FOR(resolver_asked() > s->asked);
    if (stage == AT_TLS || stage == AT_HANDSHAKE) {
        char byte;

        s->fds[s->nfds++] = fake_accept(&s->f);
        assert_int_equal(recv(s->fds[0], &byte, 1, MSG_PEEK), 1); /* it waits for our answer */
    }
}

static void unstick(struct stuck *s)
{
    resolver_answer();
    dialing_end(&s->d);
    for (int i = 0; i < s->nfds; i++)
        close(s->fds[i]);
    fake_close(&s->f);
    fake_close(&s->second);
}

static void test_cancel(void **state)
{
    struct support_census before = support_census();

    (void)state;
    for (int stage = 0; stage < STAGES; stage++) {
        tws_dial_options opt;
        struct stuck s;

        tws_dial_options_init(&opt);
        opt.timeout = 0;
        opt.attempt_delay = 20;
        opt.cancel = tws_cancel_new();
        stick(&s, (enum stage)stage, &opt);
        support_pause_ms(stage == AT_RACE ? 60 : 5); /* likely in the wait; true in any case */
        assert_false(atomic_load(&s.d.done));
        tws_cancel_now(opt.cancel);
        dialing_join(&s.d, TWS_ERR_CANCELLED);
        assert_int_equal(s.d.error.phase, phases[stage]);
        assert_int_equal(s.d.error.cause, TWS_CAUSE_LOCAL);
        unstick(&s);
        assert_true(tws_cancel_is_set(opt.cancel));
        tws_cancel_free(opt.cancel);
    }
    support_assert_census(before);
}

/* One that is set already, and one for several dials; without effect on what has succeeded. */
static void test_cancel_many(void **state)
{
    tws_dial_options opt;
    struct dialing stuck[8], open;
    struct fake f;
    tws_message m;
    int fd;

    (void)state;
    fake_listen(&f, AF_INET);
    tws_dial_options_init(&opt);
    opt.timeout = 0;
    opt.cancel = tws_cancel_new();
    assert_false(tws_cancel_is_set(opt.cancel));
    fd = dialing_open(&open, &f, &opt);
    for (int i = 0; i < 8; i++)
        dialing_start_fake(&stuck[i], &f, "/", &opt);
    tws_cancel_now(opt.cancel);
    tws_cancel_now(opt.cancel);
    for (int i = 0; i < 8; i++) {
        dialing_join(&stuck[i], TWS_ERR_CANCELLED);
        dialing_end(&stuck[i]);
    }
    dialing_start_fake(&stuck[0], &f, "/", &opt);
    dialing_join(&stuck[0], TWS_ERR_CANCELLED);
    dialing_end(&stuck[0]);
    fake_send_frame(fd, 0x81, "still", 5);
    assert_ok(tws_read_message(open.conn, &m));
    assert_string_equal(m.data, "still");
    close(fd);
    dialing_end(&open);
    tws_cancel_free(opt.cancel);
    tws_cancel_free(NULL);
    fake_close(&f);
}

static void cancel_on_answer(bool sent, const char *head, size_t len, void *cancel)
{
    (void)head;
    (void)len;
    if (!sent)
        tws_cancel_now(cancel);
}

/* The last moment: the answer is there, and the socket has been cut. No connection is handed out. */
static void test_cancel_at_the_end(void **state)
{
    struct support_census before = support_census();
    struct fake_request r;
    tws_dial_options opt;
    struct dialing d;
    struct fake f;
    int fd;

    (void)state;
    fake_listen(&f, AF_INET);
    tws_dial_options_init(&opt);
    opt.cancel = tws_cancel_new();
    opt.on_head = cancel_on_answer;
    opt.hook_arg = opt.cancel;
    dialing_start_fake(&d, &f, "/", &opt);
    fd = fake_accept(&f);
    assert_true(fake_read_request(fd, &r));
    fake_upgrade(fd, &r, "", NULL, 0);
    dialing_join(&d, TWS_ERR_CANCELLED);
    assert_null(d.conn);
    assert_int_equal(d.error.phase, TWS_PHASE_HANDSHAKE);
    dialing_end(&d);
    close(fd);
    tws_cancel_free(opt.cancel);
    fake_close(&f);
    support_assert_census(before);
}

static void test_timeouts(void **state)
{
    struct support_census before = support_census();

    (void)state;
    for (int i = 0; i < 2 * STAGES; i++) {
        enum stage stage = (enum stage)(i / 2);
        tws_dial_options opt;
        struct stuck s;

        tws_dial_options_init(&opt);
        opt.attempt_delay = 20;
        if (i % 2) {
            opt.timeout = 120;
        } else {
            opt.timeout = 0;
            opt.resolve_timeout = stage == AT_RESOLVE ? 120 : 0;
            opt.connect_timeout = stage >= AT_CONNECT && stage <= AT_UNIX ? 120 : 0;
            opt.tls_timeout = stage == AT_TLS ? 120 : 0;
            opt.handshake_timeout = stage == AT_HANDSHAKE ? 120 : 0;
        }
        stick(&s, stage, &opt);
        dialing_join(&s.d, TWS_ERR_HANDSHAKE_TIMEOUT);
        assert_int_equal(s.d.error.phase, phases[stage]);
        assert_int_equal(s.d.error.cause, TWS_CAUSE_TIMEOUT);
        unstick(&s);
    }
    support_assert_census(before);
}

/* A server that keeps sending, but never comes to the end. */
static void test_drip(void **state)
{
    struct fake f;
    struct dialing d;
    struct fake_request r;
    tws_dial_options opt;
    int fd;

    (void)state;
    fake_listen(&f, AF_INET);
    tws_dial_options_init(&opt);
    opt.handshake_timeout = 150;
    dialing_start_fake(&d, &f, "/", &opt);
    fd = fake_accept(&f);
    assert_true(fake_read_request(fd, &r));
    fake_say(fd, "HTTP/1.1 101 X\r\nX: ");
    while (!atomic_load(&d.done) && client_send_bytes(fd, "y", 1))
        support_pause_ms(5);
    dialing_join(&d, TWS_ERR_HANDSHAKE_TIMEOUT);
    close(fd);
    dialing_end(&d);
    /* The body of a refusal: what came in time. */
    dialing_start_fake(&d, &f, "/", &opt);
    fd = fake_accept(&f);
    assert_true(fake_read_request(fd, &r));
    fake_say(fd, "HTTP/1.1 403 X\r\nContent-Length: 100\r\n\r\npart");
    dialing_join(&d, TWS_ERR_REFUSED);
    assert_string_equal(tws_response_body(d.response, NULL), "part");
    close(fd);
    dialing_end(&d);
    fake_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_either_family),  cmocka_unit_test(test_race),
        cmocka_unit_test(test_nobody_answers), cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_cancel_many),    cmocka_unit_test(test_cancel_at_the_end),
        cmocka_unit_test(test_timeouts),       cmocka_unit_test(test_drip),
    };

    return cmocka_run_group_tests_name("client_way", tests, NULL, NULL);
}
