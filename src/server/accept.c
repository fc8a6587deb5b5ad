/*
 * The accepting thread. It only accepts: whatever a peer can delay happens on the peer's own thread.
 * When descriptors, threads or places run out, it answers 503, without a thread and without waiting.
 */
#include "server/server.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Connections accepted from one listener before the others get their turn. */
#define ACCEPT_BATCH 64
/* Refused sockets that are still being told so. */
#define REFUSED_MAX 64
#define REFUSED_MS 1000
/* How long listeners rest when the system has no memory for a socket. */
#define BACKOFF_MIN_MS 10
#define BACKOFF_MAX_MS 1000

struct refused {
    int fd;
    int64_t deadline;
};

struct acceptor {
    tws_server *s;
    struct pollfd *fds;                  /* listeners, the stop event, refused sockets */
    struct refused refused[REFUSED_MAX]; /* oldest first */
    size_t refused_count;
    int spare; /* given up to be able to accept and refuse when there is no other descriptor */
    int64_t rest_until;
    tws_ms backoff;
};

/* ---- Refusing ---- */

static void refused_drop(struct acceptor *a, size_t i)
{
    close(a->refused[i].fd);
    a->refused_count--;
    memmove(a->refused + i, a->refused + i + 1, (a->refused_count - i) * sizeof *a->refused);
}

/* Why a peer is refused: to it, and with numbers to the log. */
static void log_refusal(struct acceptor *a, const struct server_refusal *r,
                        const union net_peer *peer)
{
    struct base_log_gate *gate = &a->s->log_refused;
    char address[64];

    if (!a->s->log.fn)
        return;
    net_peer_text(peer, address, sizeof address);
    if (r->limit > 0)
        base_log_limited(&a->s->log, gate, TWS_LOG_WARNING, "refused %s: %s: %u, the limit is %u",
                         address, r->why, r->number, r->limit);
    else
        base_log_limited(&a->s->log, gate, TWS_LOG_WARNING, "refused %s: %s", address, r->why);
}

/* To a peer that expects TLS: the alert internal_error, which may come before everything else. */
static void refuse_tls(struct task_socket *sock)
{
    static const uint8_t alert[] = {21, 3, 1, 0, 2, 2, 80};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)alert, .iov_len = sizeof alert};

    task_send(sock, &iov, 1);
}

static void refuse_plain(struct acceptor *a, struct task_socket *sock,
                         const struct server_refusal *why)
{
    static const tws_header retry[] = {{"Retry-After", "1"}};
    char body[96];
    struct handshake_response r = {.status = why->status,
                                   .server = a->s->cfg->server_name,
                                   .body = body,
                                   .body_len =
                                       (size_t)snprintf(body, sizeof body, "%s\n", why->why),
                                   .headers = retry,
                                   .nheaders = 1};
    char text[768];
    ptrdiff_t len = handshake_write_response(text, sizeof text, &r);
    struct iovec iov = {.iov_base = text, .iov_len = len > 0 ? (size_t)len : 0};

    if (len > 0 && len <= (ptrdiff_t)sizeof text)
        task_send(sock, &iov, 1);
}

/* Answers and lets the peer read it: the socket is closed when the peer has closed its side, or
 * after a second. */
static void refuse(struct acceptor *a, const struct net_listener *l, int fd,
                   const union net_peer *peer, const struct server_refusal *why)
{
    struct task_socket sock = {.fd = fd};

    pthread_mutex_lock(&a->s->mu);
    ++*why->counter;
    pthread_mutex_unlock(&a->s->mu);
    log_refusal(a, why, peer);
    if (l->plain)
        refuse_plain(a, &sock, why);
    else
        refuse_tls(&sock);
    shutdown(fd, SHUT_WR);
    if (a->refused_count == REFUSED_MAX)
        refused_drop(a, 0);
    a->refused[a->refused_count].fd = fd;
    a->refused[a->refused_count].deadline = base_clock_ns() + REFUSED_MS * BASE_NS_PER_MS;
    a->refused_count++;
}

/* Reads what a refused peer sent, so that closing does not reset. False: it is done. */
static bool refused_read(int fd)
{
    char buf[4096];
    ssize_t n = task_recv_now(fd, buf, sizeof buf);

    return n > 0 || n == -EAGAIN;
}

static void refused_step(struct acceptor *a, const struct pollfd *fds, size_t count)
{
    int64_t now = base_clock_ns();

    for (size_t i = count; i-- > 0;)
        if ((fds[i].revents && !refused_read(a->refused[i].fd)) || now >= a->refused[i].deadline)
            refused_drop(a, i);
}

/* ---- Accepting ---- */

static bool over(uint32_t number, uint32_t limit)
{
    return limit > 0 && number >= limit;
}

bool server_admit_locked(tws_server *s, const union net_peer *peer, struct server_refusal *r)
{
    const tws_server_options *o = &s->opt;
    struct net_peer_key key;
    int counted = 1;

    s->totals.accepted++;
    if (over(s->connections, o->max_connections)) {
        *r = (struct server_refusal){503, "the server is full", &s->totals.refused_full,
                                     s->connections, o->max_connections};
        return false;
    }
    if (over(s->handshaking, o->max_handshakes)) {
        *r = (struct server_refusal){503, "too many handshakes at once",
                                     &s->totals.refused_handshakes, s->handshaking,
                                     o->max_handshakes};
        return false;
    }
    if (o->max_per_address > 0 && net_peer_key(peer, &key))
        counted = address_table_add(&s->per_address, &key, o->max_per_address);
    if (counted == 0)
        *r = (struct server_refusal){503, "too many connections from this address",
                                     &s->totals.refused_address, o->max_per_address,
                                     o->max_per_address};
    else if (counted < 0)
        *r = (struct server_refusal){503, "no memory", &s->totals.refused_threads, 0, 0};
    if (counted != 1)
        return false;
    s->connections++;
    s->handshaking++;
    if (s->connections > s->crowd)
        s->crowd = s->connections;
    return true;
}

/* New connections of one address per second. */
static bool admit_rate(tws_server *s, const union net_peer *peer, struct server_refusal *r)
{
    uint32_t rate = s->opt.max_address_rate;
    uint32_t burst = s->opt.address_burst > 0 ? s->opt.address_burst : rate;
    struct net_peer_key key;

    if (rate == 0 || !net_peer_key(peer, &key) ||
        rate_table_take(&s->rates, &key, base_clock_coarse_ns(), rate, burst))
        return true;
    *r = (struct server_refusal){429, "too many new connections from this address in a second",
                                 &s->totals.refused_rate, burst + 1, rate};
    return false;
}

static void serve(struct acceptor *a, const struct net_listener *l, int fd,
                  const struct sockaddr_storage *addr)
{
    tws_server *s = a->s;
    union net_peer peer;
    struct server_refusal r = {503, "no memory", &s->totals.refused_threads, 0, 0};
    bool fits;

    net_peer_save(&peer, (const struct sockaddr *)addr);
    fits = admit_rate(s, &peer, &r);
    pthread_mutex_lock(&s->mu);
    if (fits)
        fits = server_admit_locked(s, &peer, &r);
    else
        s->totals.accepted++;
    pthread_mutex_unlock(&s->mu);
    if (fits && server_peer_spawn(s, fd, &peer, l->plain) < 0) {
        pthread_mutex_lock(&s->mu);
        s->handshaking--;
        pthread_mutex_unlock(&s->mu);
        server_forget_socket(s, &peer);
        r = (struct server_refusal){503, "no thread", &s->totals.refused_threads, 0, 0};
        fits = false;
    }
    if (!fits)
        refuse(a, l, fd, &peer, &r);
}

/* There is no descriptor to accept with: give one up, accept, refuse. False: nothing to give. */
static bool accept_and_refuse(struct acceptor *a, const struct net_listener *l)
{
    struct server_refusal r = {503, "no descriptor", &a->s->totals.refused_descriptors, 0, 0};
    struct sockaddr_storage addr;
    union net_peer peer;
    socklen_t len;
    int fd;

    if (a->refused_count > 0) {
        refused_drop(a, 0);
    } else if (a->spare >= 0) {
        close(a->spare);
        a->spare = -1;
    } else {
        return false;
    }
    fd = net_accept(l, &addr, &len);
    if (fd < 0)
        return false;
    net_peer_save(&peer, (const struct sockaddr *)&addr);
    refuse(a, l, fd, &peer, &r);
    return true;
}

static void rest(struct acceptor *a, int error)
{
    char text[64];

    a->backoff = a->backoff ? a->backoff * 2 : BACKOFF_MIN_MS;
    if (a->backoff > BACKOFF_MAX_MS)
        a->backoff = BACKOFF_MAX_MS;
    a->rest_until = base_clock_ns() + a->backoff * BASE_NS_PER_MS;
    base_logf(&a->s->log, TWS_LOG_WARNING, "accept: %s; trying again in %d ms",
              strerror_r(error, text, sizeof text), (int)a->backoff);
}

static void accept_batch(struct acceptor *a, const struct net_listener *l)
{
    for (int i = 0; i < ACCEPT_BATCH; i++) {
        struct sockaddr_storage addr;
        socklen_t len;
        int fd = net_accept(l, &addr, &len);

        if (fd == -EAGAIN)
            return;
        if (fd == -EMFILE || fd == -ENFILE) {
            if (accept_and_refuse(a, l))
                continue;
            rest(a, -fd);
            return;
        }
        if (fd < 0) {
            rest(a, -fd);
            return;
        }
        a->backoff = 0;
        serve(a, l, fd, &addr);
    }
}

/* ---- The loop ---- */

/* Until something has to be done even if no descriptor becomes ready. */
static int64_t next_deadline(const struct acceptor *a, bool resting)
{
    int64_t deadline = resting ? a->rest_until : TASK_FOREVER;

    for (size_t i = 0; i < a->refused_count; i++)
        if (a->refused[i].deadline < deadline)
            deadline = a->refused[i].deadline;
    return deadline;
}

static bool accept_once(struct acceptor *a)
{
    tws_server *s = a->s;
    size_t n = s->listener_count;
    size_t refused = a->refused_count;
    bool resting = a->rest_until > base_clock_ns();

    for (size_t i = 0; i < n; i++)
        a->fds[i] = (struct pollfd){.fd = resting ? -1 : s->listeners[i].fd, .events = POLLIN};
    a->fds[n] = (struct pollfd){.fd = s->stop.fd, .events = POLLIN};
    for (size_t i = 0; i < refused; i++)
        a->fds[n + 1 + i] = (struct pollfd){.fd = a->refused[i].fd, .events = POLLIN};
    if (task_poll(a->fds, n + 1 + refused, next_deadline(a, resting)) < 0) {
        rest(a, ENOMEM); /* which poll cannot do */
        task_sleep(a->rest_until);
        return !atomic_load(&s->stopping);
    }
    if (a->fds[n].revents)
        return false;
    refused_step(a, a->fds + n + 1, refused);
    for (size_t i = 0; i < n; i++)
        if (a->fds[i].revents)
            accept_batch(a, &s->listeners[i]);
    if (a->spare < 0)
        a->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return true;
}

bool server_accept_prepare(tws_server *s)
{
    size_t count = s->listener_count + 1 + REFUSED_MAX;

    s->accept_fds = base_calloc(server_allocator(s), count * sizeof *s->accept_fds);
    return s->accept_fds != NULL;
}

void server_accept_main(void *server)
{
    struct acceptor a = {.s = server};

    a.spare = a.s->accept_spare;
    a.fds = a.s->accept_fds;
    while (accept_once(&a)) {
    }
    for (size_t i = 0; i < a.s->listener_count; i++)
        net_listener_close(&a.s->listeners[i]);
    while (a.refused_count > 0)
        refused_drop(&a, 0);
    if (a.spare >= 0)
        close(a.spare);
    a.s->accept_spare = -1;
}
