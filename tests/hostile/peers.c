/* Threads, epoll, and the life of a peer. */
#include "hostile.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define TICK_MS 10
#define CONNECT_MS 10000
/* Read in one go before others have their turn. */
#define READ_MAX 65536

enum stage { RESTING, CONNECTING, SHAKING, ASKING, ACTING };

struct peer {
    const struct behaviour *b;
    const struct script *script;
    struct worker *w;
    struct met *met;
    uint32_t number;
    int fd;
    SSL *ssl;
    enum stage stage;
    uint32_t events; /* that epoll watches */
    int64_t due, began, leaves;
    size_t at; /* in the script */
    bool asked, half_closed, blocked;
    struct follower follower;
};

struct worker {
    struct plan *plan;
    pthread_t thread;
    int epoll;
    struct peer *peers;
    size_t count;
    struct met *met; /* by chosen behaviour */
    uint32_t random;
    bool failed;
};

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000;
}

static uint32_t random_below(struct worker *w, uint32_t n)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 17;
    w->random ^= w->random << 5;
    return n > 0 ? w->random % n : 0;
}

SSL *peer_ssl(struct peer *p)
{
    return p->ssl;
}

/* ---- The end of a connection ---- */

static void count(uint64_t *counters, const uint16_t *values, size_t n, unsigned value)
{
    for (size_t i = 0; i < n; i++) {
        if (i == n - 1 || values[i] == value) {
            counters[i]++;
            return;
        }
    }
}

static void note_end(struct peer *p)
{
    struct met *m = p->met;
    uint64_t lasted = (uint64_t)(now_ms() - p->began);

    if (p->follower.status)
        count(m->statuses, met_statuses, STATUSES, p->follower.status);
    if (p->follower.close_code)
        count(m->closes, met_closes, CLOSES, p->follower.close_code);
    if (!p->follower.head_len && p->stage > CONNECTING)
        m->silent++;
    if (p->stage > CONNECTING && lasted > m->longest_ms)
        m->longest_ms = lasted;
}

static void rest(struct peer *p)
{
    p->due = now_ms() + p->b->rest_ms + random_below(p->w, p->b->rest_ms);
    p->stage = RESTING;
}

/* counter: how it ended. */
static void end(struct peer *p, uint64_t *counter, bool reset)
{
    static const struct linger cut = {1, 0};

    ++*counter;
    note_end(p);
    if (reset)
        setsockopt(p->fd, SOL_SOCKET, SO_LINGER, &cut, sizeof cut);
    SSL_free(p->ssl);
    p->ssl = NULL;
    close(p->fd);
    p->fd = -1;
    rest(p);
}

/* ---- Sending and receiving ---- */

static void watch(struct peer *p, uint32_t events)
{
    struct epoll_event e = {.events = events | EPOLLRDHUP, .data.ptr = p};

    if (p->events == events)
        return;
    p->events = events;
    epoll_ctl(p->w->epoll, EPOLL_CTL_MOD, p->fd, &e);
}

/* Bytes that went; 0: none now; -1: it is over. */
static ssize_t put(struct peer *p, const void *data, size_t len)
{
    ssize_t n;

    if (p->ssl) {
        int r = SSL_write(p->ssl, data, (int)len);
        int why = r > 0 ? 0 : SSL_get_error(p->ssl, r);

        n = r > 0 ? r : why == SSL_ERROR_WANT_WRITE || why == SSL_ERROR_WANT_READ ? 0 : -1;
    } else {
        n = send(p->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            n = 0;
    }
    if (n > 0)
        p->met->sent += (uint64_t)n;
    return n;
}

bool peer_send(struct peer *p, const void *data, size_t len)
{
    return put(p, data, len) >= 0;
}

/* As put(); 0 with *ended: end of the stream. */
static ssize_t get(struct peer *p, void *buf, size_t len, bool *ended)
{
    ssize_t n;

    *ended = false;
    if (p->ssl) {
        int r = SSL_read(p->ssl, buf, (int)len);
        int why = r > 0 ? 0 : SSL_get_error(p->ssl, r);

        *ended = why == SSL_ERROR_ZERO_RETURN;
        n = r > 0                                                                 ? r
            : *ended || why == SSL_ERROR_WANT_WRITE || why == SSL_ERROR_WANT_READ ? 0
                                                                                  : -1;
    } else {
        n = recv(p->fd, buf, len, MSG_DONTWAIT);
        *ended = n == 0;
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            n = 0;
    }
    if (n > 0)
        p->met->received += (uint64_t)n;
    return n;
}

/* False: the connection is over, and has been ended. */
static bool receive(struct peer *p, size_t most)
{
    uint8_t buf[16384];
    size_t total = 0;

    while (total < most) {
        size_t room = most - total < sizeof buf ? most - total : sizeof buf;
        bool ended;
        ssize_t n = get(p, buf, room, &ended);

        if (n > 0) {
            follow(&p->follower, buf, (size_t)n);
            total += (size_t)n;
        } else if (n < 0 || ended) {
            end(p, n < 0 && !p->ssl ? &p->met->resets : &p->met->ends, false);
            return false;
        } else {
            break;
        }
    }
    return true;
}

/* Up to `most` bytes of the script; false: the connection is over. */
static bool play(struct peer *p, size_t most)
{
    const struct script *s = p->script;

    while (s && most > 0 && (p->at < s->len || s->again < s->len)) {
        size_t len;
        ssize_t n;

        if (p->at == s->len)
            p->at = s->again;
        len = s->len - p->at < most ? s->len - p->at : most;
        n = put(p, s->data + p->at, len);
        if (n < 0) {
            end(p, &p->met->resets, false);
            return false;
        }
        if (n == 0)
            break;
        p->at += (size_t)n;
        most -= (size_t)n;
    }
    return true;
}

/* ---- Stages ---- */

static void begin_acting(struct peer *p)
{
    p->stage = ACTING;
    p->due = 0;
    p->leaves = p->b->life_ms ? now_ms() + p->b->life_ms : INT64_MAX;
    watch(p, p->b->deaf || p->b->sips ? 0 : EPOLLIN);
}

/* Connected, and past TLS where there is any. */
static void ask(struct peer *p)
{
    char text[512];
    size_t len;

    if (p->b->depth != AT_WEBSOCKET && !p->b->with_request) {
        begin_acting(p);
        return;
    }
    len = wire_request(text, sizeof text, p->b->compresses);
    if (put(p, text, len) != (ssize_t)len) {
        end(p, &p->met->resets, false);
        return;
    }
    if (p->b->with_request) {
        begin_acting(p);
        return;
    }
    p->stage = ASKING;
    watch(p, EPOLLIN);
}

static void shake(struct peer *p)
{
    int r = SSL_do_handshake(p->ssl);
    int why = r == 1 ? 0 : SSL_get_error(p->ssl, r);

    if (r == 1)
        ask(p);
    else if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE)
        watch(p, why == SSL_ERROR_WANT_READ ? EPOLLIN : EPOLLOUT);
    else
        end(p, &p->met->tls_failed, false);
}

static void connected(struct peer *p)
{
    struct plan *plan = p->w->plan;
    int error = 0;
    socklen_t len = sizeof error;

    if (getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0 || error) {
        end(p, &p->met->not_connected, false);
        return;
    }
    p->met->connections++;
    p->stage = SHAKING;
    if (!plan->secure || p->b->depth == AT_TCP) {
        ask(p);
        return;
    }
    p->ssl = SSL_new(p->b->only_1_2 ? plan->tls_1_2 : plan->tls);
    if (!p->ssl || SSL_set_fd(p->ssl, p->fd) != 1) {
        end(p, &p->met->tls_failed, false);
        return;
    }
    SSL_set_connect_state(p->ssl);
    shake(p);
}

static struct sockaddr_in source(const struct peer *p)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    uint32_t n = p->b->one_address ? 0 : p->number + 1;

    a.sin_addr.s_addr = htonl(0x7f010000u + n / 250 * 256 + n % 250 + 1);
    return a;
}

static void begin(struct peer *p)
{
    struct plan *plan = p->w->plan;
    struct epoll_event e = {.events = EPOLLOUT | EPOLLRDHUP, .data.ptr = p};
    struct sockaddr_in from = source(p);
    int one = 1, small = 4096;

    p->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (p->fd < 0) {
        p->w->failed = true;
        rest(p);
        return;
    }
    setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (p->b->sips || p->b->deaf)
        setsockopt(p->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    if (plan->spread) {
        setsockopt(p->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
        bind(p->fd, (struct sockaddr *)&from, sizeof from);
    }
    memset(&p->follower, 0, sizeof p->follower);
    p->at = 0;
    p->half_closed = false;
    p->events = EPOLLOUT;
    p->began = now_ms();
    p->leaves = p->began + CONNECT_MS;
    p->stage = CONNECTING;
    if ((connect(p->fd, (struct sockaddr *)&plan->address, sizeof plan->address) < 0 &&
         errno != EINPROGRESS) ||
        epoll_ctl(p->w->epoll, EPOLL_CTL_ADD, p->fd, &e) < 0)
        end(p, &p->met->not_connected, false);
}

/* What the behaviour does now and then. */
static void act(struct peer *p, int64_t now)
{
    const struct behaviour *b = p->b;

    if (now >= p->leaves) {
        end(p, &p->met->left, b->leaving == LEAVE_RESET);
        return;
    }
    p->due = now + b->every_ms;
    if (!play(p, b->piece ? b->piece : READ_MAX))
        return;
    if (b->act && !b->act(p)) {
        end(p, &p->met->resets, false);
        return;
    }
    if (b->half_closes && !p->half_closed && p->script && p->at == p->script->len) {
        p->half_closed = true;
        if (p->ssl)
            SSL_shutdown(p->ssl);
        else
            shutdown(p->fd, SHUT_WR);
    }
    if (b->sips)
        receive(p, 100);
}

/* A deaf peer notices the end all the same. */
static void happened(struct peer *p, uint32_t events)
{
    if (p->stage == CONNECTING) {
        connected(p);
    } else if (p->stage == SHAKING) {
        shake(p);
    } else if ((p->b->deaf || p->b->sips) && p->stage == ACTING) {
        if (events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP))
            end(p, events & EPOLLERR ? &p->met->resets : &p->met->ends, false);
    } else if (receive(p, READ_MAX) && p->stage == ASKING && p->follower.status) {
        if (p->follower.status == 101)
            begin_acting(p);
        else
            watch(p, EPOLLIN); /* refused: read on to the end */
    }
}

static void timed(struct peer *p, int64_t now)
{
    if (p->stage == RESTING && now >= p->due)
        begin(p);
    else if (p->stage == ACTING && now >= p->due)
        act(p, now);
    else if (p->stage == CONNECTING && now >= p->leaves)
        end(p, &p->met->not_connected, false);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    int64_t stop = now_ms() + w->plan->seconds * INT64_C(1000), next = 0;
    static const struct linger cut = {1, 0};

    while (!*w->plan->stop && now_ms() < stop) {
        struct epoll_event events[256];
        int n = epoll_wait(w->epoll, events, 256, TICK_MS);
        int64_t now;

        for (int i = 0; i < n; i++) {
            struct peer *p = events[i].data.ptr;

            if (p->fd >= 0)
                happened(p, events[i].events);
        }
        now = now_ms();
        if (now < next)
            continue;
        next = now + TICK_MS;
        for (size_t i = 0; i < w->count; i++)
            timed(&w->peers[i], now);
    }
    for (size_t i = 0; i < w->count; i++) {
        struct peer *p = &w->peers[i];

        if (p->fd < 0)
            continue;
        if (i % 2)
            setsockopt(p->fd, SOL_SOCKET, SO_LINGER, &cut, sizeof cut);
        end(p, &p->met->left, false);
    }
    return NULL;
}

/* ---- All of them ---- */

static void enlist(struct worker *w, size_t index, uint32_t number, int64_t begin_at)
{
    struct plan *plan = w->plan;
    size_t which = number % plan->chosen_count;

    w->peers[index] =
        (struct peer){.b = plan->chosen[which],
                      .script = plan->chosen[which]->make ? &plan->scripts[which] : NULL,
                      .w = w,
                      .met = &w->met[which],
                      .number = number,
                      .fd = -1,
                      .due = begin_at};
}

static bool prepare(struct worker *w, struct plan *plan, uint32_t first, uint32_t number)
{
    int64_t now = now_ms();

    w->plan = plan;
    w->random = 88172645u + first * 7919u;
    w->count = number;
    w->peers = calloc(number ? number : 1, sizeof *w->peers);
    w->met = calloc(plan->chosen_count, sizeof *w->met);
    w->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!w->peers || !w->met || w->epoll < 0)
        return false;
    for (uint32_t i = 0; i < number; i++)
        enlist(w, i, first + i, now + (int64_t)plan->ramp_ms * i / number);
    return pthread_create(&w->thread, NULL, work, w) == 0;
}

static void add(struct met *sum, const struct met *one)
{
    uint64_t longest = sum->longest_ms > one->longest_ms ? sum->longest_ms : one->longest_ms;

    for (size_t i = 0; i < sizeof *sum / sizeof(uint64_t); i++)
        ((uint64_t *)(void *)sum)[i] += ((const uint64_t *)(const void *)one)[i];
    sum->longest_ms = longest;
}

bool hostile_run(struct plan *plan)
{
    struct worker *workers = calloc(plan->threads, sizeof *workers);
    uint32_t first = 0, started = 0;
    bool ok = workers != NULL;

    while (ok && started < plan->threads) {
        uint32_t number = (plan->peers - first) / (plan->threads - started);

        ok = prepare(&workers[started], plan, first, number);
        started += ok;
        first += number;
    }
    for (uint32_t i = 0; i < started; i++) {
        struct worker *w = &workers[i];

        pthread_join(w->thread, NULL);
        for (size_t k = 0; k < plan->chosen_count; k++)
            add(&plan->met[k], &w->met[k]);
        ok = ok && !w->failed;
        close(w->epoll);
        free(w->met);
        free(w->peers);
    }
    free(workers);
    return ok;
}
