#include "net/connect.h"

#include "base/clock.h"
#include "task/set.h"

#include <errno.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

/* A Unix socket whose backlog is full gives no event when there is room again. */
#define BACKLOG_RETRY_MS 10

struct attempt {
    const struct addrinfo *to;
    int fd; /* -1: not begun, or failed */
};

struct race {
    struct net_connect *c;
    struct attempt attempts[NET_CONNECT_MAX];
    uint32_t count, begun, running;
    int error; /* of the last failure */
    bool have_set;
    struct task_set set;
    struct task_event wake; /* cancelled; fd -1: nobody can */
};

static void note_address(struct net_connect *c, const struct addrinfo *ai)
{
    c->address_len = ai->ai_addrlen < sizeof c->address ? ai->ai_addrlen : sizeof c->address;
    memcpy(&c->address, ai->ai_addr, c->address_len);
}

/* ---- The order ---- */

static const struct addrinfo *next_of(const struct addrinfo *ai, int family, bool same)
{
    while (ai && ((ai->ai_family == family) != same ||
                  (ai->ai_family != AF_INET && ai->ai_family != AF_INET6)))
        ai = ai->ai_next;
    return ai;
}

/* Families take turns, beginning with the first address's (RFC 8305 4). */
static void order(struct race *r)
{
    const struct net_connect *c = r->c;
    int family = c->list ? c->list->ai_family : AF_UNSPEC;
    const struct addrinfo *same = next_of(c->list, family, true);
    const struct addrinfo *other = next_of(c->list, family, false);
    bool turn = true;

    while ((same || other) && r->count < NET_CONNECT_MAX) {
        const struct addrinfo **from = (turn && same) || !other ? &same : &other;

        if (!c->source || c->source->sa_family == (*from)->ai_family)
            r->attempts[r->count++] = (struct attempt){.to = *from, .fd = -1};
        *from = next_of((*from)->ai_next, family, from == &same);
        turn = !turn;
    }
}

/* ---- One attempt ---- */

/* A port of the ephemeral range that nobody listens on can be connected to itself. */
static bool is_itself(int fd)
{
    struct sockaddr_storage a, b;
    socklen_t la = sizeof a, lb = sizeof b;

    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    return getsockname(fd, (struct sockaddr *)&a, &la) == 0 &&
           getpeername(fd, (struct sockaddr *)&b, &lb) == 0 && la == lb && memcmp(&a, &b, la) == 0;
}

/* 0: connected; -EINPROGRESS; or why not. */
static int outcome(int fd)
{
    struct sockaddr_storage peer;
    socklen_t len = sizeof peer;
    int error = 0;
    socklen_t size = sizeof error;

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
        return -errno;
    if (error)
        return task_failed(error);
    if (getpeername(fd, (struct sockaddr *)&peer, &len) < 0)
        return errno == ENOTCONN ? -EINPROGRESS : -errno;
    return is_itself(fd) ? -ECONNREFUSED : 0;
}

static int begin_attempt(const struct net_connect *c, const struct addrinfo *to)
{
    int one = 1;
    int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int saved;

    if (fd < 0)
        return -errno;
    if (c->source) {
        /* The port is chosen at connect, so that one address is not out of ports at 28,000. */
        setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
        if (bind(fd, c->source, c->source_len) < 0)
            goto fail;
    }
    if (connect(fd, to->ai_addr, to->ai_addrlen) == 0 || errno == EINPROGRESS || errno == EINTR)
        return fd;
fail:
    saved = errno;
    close(fd);
    return -saved;
}

static void attempt_failed(struct race *r, struct attempt *a, int error)
{
    if (a->fd >= 0) {
        close(a->fd);
        r->running--;
    }
    a->fd = -1;
    r->error = error;
    note_address(r->c, a->to);
}

/* The outcome of an attempt that runs: its socket when it is connected, else -EINPROGRESS. */
static int look_at(struct race *r, struct attempt *a)
{
    int result = outcome(a->fd);
    int fd = a->fd;

    if (result == -EINPROGRESS)
        return result;
    if (result < 0) {
        attempt_failed(r, a, result);
        return -EINPROGRESS;
    }
    note_address(r->c, a->to);
    a->fd = -1;
    return fd;
}

/* ---- The race ---- */

static void wake(void *arg)
{
    task_event_set(arg);
}

/* Made when there is something to wait for: a connection within this machine is there at once. */
static int make_set(struct race *r)
{
    int result = 0;

    if (r->have_set)
        return 0;
    result = task_set_init(&r->set, r->c->runtime);
    if (result < 0)
        return result;
    r->have_set = true;
    if (r->wake.fd >= 0)
        result = task_set_add(&r->set, r->wake.fd, TASK_READ);
    for (uint32_t i = 0; i < r->begun && result == 0; i++)
        if (r->attempts[i].fd >= 0)
            result = task_set_add(&r->set, r->attempts[i].fd, TASK_WRITE);
    return result;
}

/* Begins the next attempt: its socket when it is connected already, -EINPROGRESS when the race goes
 * on, or what ends it. */
static int start_next(struct race *r)
{
    struct attempt *a = &r->attempts[r->begun++];
    int fd = begin_attempt(r->c, a->to);
    int result;

    if (fd == -EMFILE || fd == -ENFILE || fd == -ENOBUFS || fd == -ENOMEM) {
        attempt_failed(r, a, fd);
        return r->running ? -EINPROGRESS : fd; /* one that runs may still succeed */
    }
    if (fd < 0) {
        attempt_failed(r, a, fd);
        return -EINPROGRESS;
    }
    a->fd = fd;
    r->running++;
    result = look_at(r, a);
    if (result >= 0 || a->fd < 0 || !r->have_set)
        return result;
    result = task_set_add(&r->set, a->fd, TASK_WRITE);
    return result < 0 ? result : -EINPROGRESS;
}

static int look_at_all(struct race *r)
{
    int result = -EINPROGRESS;

    for (uint32_t i = 0; i < r->begun && result == -EINPROGRESS; i++)
        if (r->attempts[i].fd >= 0)
            result = look_at(r, &r->attempts[i]);
    return result;
}

static int run_race(struct race *r)
{
    const struct net_connect *c = r->c;
    int64_t next = 0; /* when the next attempt begins */

    for (;;) {
        uint32_t running;
        int64_t until = c->deadline;
        int result;

        if (task_cancel_is_set(c->cancel))
            return -ECANCELED;
        if (r->begun < r->count && (r->running == 0 || base_clock_ns() >= next)) {
            result = start_next(r);
            if (result != -EINPROGRESS)
                return result;
            next = r->attempts[r->begun - 1].fd < 0 ? 0 : base_clock_ns() + c->attempt_delay;
            continue;
        }
        if (r->running == 0)
            return r->error;
        result = make_set(r);
        if (result < 0)
            return result;
        if (r->begun < r->count && next < until)
            until = next;
        result = task_set_await(&r->set, until);
        if (result < 0 && (result != -ETIMEDOUT || until == c->deadline))
            return result;
        running = r->running;
        result = look_at_all(r);
        if (result != -EINPROGRESS)
            return result;
        if (base_clock_ns() >=
            c->deadline) /* also of a socket that is ready, but never connected */
            return -ETIMEDOUT;
        if (r->running < running)
            next = 0; /* a failure: no reason to wait */
    }
}

static void end_race(struct race *r)
{
    for (uint32_t i = 0; i < r->begun; i++)
        if (r->attempts[i].fd >= 0)
            close(r->attempts[i].fd);
    if (r->have_set)
        task_set_destroy(&r->set);
}

int net_connect(struct net_connect *c)
{
    struct race r = {.c = c, .error = -EAFNOSUPPORT, .wake.fd = -1};
    struct task_cancel_link link;
    int result;

    memset(&c->address, 0, sizeof c->address);
    c->address_len = 0;
    order(&r);
    if (c->cancel) {
        result = task_event_init(&r.wake);
        if (result < 0)
            return result;
    }
    if (task_cancel_join(&link, c->cancel, wake, &r.wake)) {
        result = run_race(&r);
        task_cancel_leave(&link);
    } else {
        result = -ECANCELED;
    }
    end_race(&r);
    task_event_destroy(&r.wake);
    return result;
}

/* ---- Unix sockets ---- */

static int wait_for_backlog(struct task_runtime *rt, int64_t deadline, struct task_event *wakeup)
{
    int64_t until = base_clock_ns() + BACKLOG_RETRY_MS * BASE_NS_PER_MS;
    struct task_set set;
    int r;

    if (until > deadline)
        return -ETIMEDOUT;
    r = task_set_init(&set, rt);
    if (r < 0)
        return r;
    if (wakeup->fd >= 0)
        r = task_set_add(&set, wakeup->fd, TASK_READ);
    if (r == 0)
        r = task_set_await(&set, until);
    task_set_destroy(&set);
    return r == -ETIMEDOUT ? 0 : r;
}

static int try_unix(const struct sockaddr_un *un, socklen_t len)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int saved;

    if (fd < 0)
        return -errno;
    if (connect(fd, (const struct sockaddr *)un, len) == 0)
        return fd;
    saved = errno;
    close(fd);
    return -saved;
}

int net_connect_unix(const char *path, struct task_runtime *rt, int64_t deadline,
                     struct task_cancel *cancel)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct task_event wakeup = {.fd = -1};
    struct task_cancel_link link;
    size_t n = strlen(path);
    int r = 0;

    if (n == 0 || n >= sizeof un.sun_path)
        return -ENAMETOOLONG;
    memcpy(un.sun_path, path, n + 1);
    if (cancel)
        r = task_event_init(&wakeup);
    if (r < 0)
        return r;
    if (task_cancel_join(&link, cancel, wake, &wakeup)) {
        socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + 1);

        while ((r = try_unix(&un, len)) == -EAGAIN || r == -EINTR) {
            int waited = wait_for_backlog(rt, deadline, &wakeup);

            if (task_cancel_is_set(cancel))
                waited = -ECANCELED;
            if (waited < 0) {
                r = waited;
                break;
            }
        }
        task_cancel_leave(&link);
    } else {
        r = -ECANCELED;
    }
    task_event_destroy(&wakeup);
    return r;
}

int net_source_parse(const char *text, struct sockaddr_storage *out, socklen_t *len)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_PASSIVE};
    struct addrinfo *list = NULL;

    if (getaddrinfo(text, NULL, &hints, &list) != 0)
        return -EINVAL;
    memset(out, 0, sizeof *out);
    memcpy(out, list->ai_addr, list->ai_addrlen);
    *len = list->ai_addrlen;
    freeaddrinfo(list);
    return 0;
}
