/* From nothing to an open connection: TCP, TLS, opening handshake. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conn.h"

/* So many connections go through one local address to one server before the next 127.0.0.x is used. */
enum { PORTS_PER_ADDRESS = 20000, LOOPBACK_ADDRESSES = 200 };

static bool is_loopback4(const struct address *a)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&a->sa;
    return a->sa.ss_family == AF_INET && (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
}

/* Chooses the local address. False: leave it to the kernel. */
static bool pick_source(const struct conn *c, const struct address *to, struct address *from)
{
    const struct worker *w = c->worker;
    const struct options *o = w->run->opt;
    if (o->source_count != 0) {
        *from = o->sources[(c->id / o->url_count + w->source_shift) % o->source_count];
        return from->sa.ss_family == to->sa.ss_family;
    }
    unsigned n = c->id / o->url_count / PORTS_PER_ADDRESS + w->source_shift;
    if (n == 0 || !is_loopback4(to))
        return false;
    struct sockaddr_in *v4 = (struct sockaddr_in *)&from->sa;
    memset(v4, 0, sizeof *v4);
    v4->sin_family = AF_INET;
    v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK + n % LOOPBACK_ADDRESSES);
    from->len = sizeof *v4;
    return true;
}

static void set_options(const struct conn *c, int fd)
{
    const struct options *o = c->worker->run->opt;
    int on = 1;
    int rcvbuf = c->muted ? o->mute_rcvbuf : o->rcvbuf;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (rcvbuf != 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof rcvbuf);
    if (o->sndbuf != 0)
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &o->sndbuf, sizeof o->sndbuf);
}

/* A socket that is connecting, or -1 with errno. */
static int dial(const struct conn *c, const struct address *to)
{
    struct address from;
    int on = 1;
    int fd = socket(to->sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    set_options(c, fd);
    if (pick_source(c, to, &from)) {
        setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
        if (bind(fd, (struct sockaddr *)&from.sa, from.len) != 0)
            goto fail;
    }
    if (connect(fd, (const struct sockaddr *)&to->sa, to->len) == 0 || errno == EINPROGRESS)
        return fd;
fail:;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

static unsigned source_choices(const struct options *o)
{
    return o->source_count != 0 ? o->source_count : LOOPBACK_ADDRESSES;
}

static int dial_any_source(struct conn *c, const struct address *to)
{
    struct worker *w = c->worker;
    for (unsigned tries = source_choices(w->run->opt); tries > 0; tries--) {
        int fd = dial(c, to);
        if (fd >= 0 || (errno != EADDRNOTAVAIL && errno != EADDRINUSE))
            return fd;
        w->source_shift++;
    }
    errno = EADDRNOTAVAIL;
    return -1;
}

/* Tries the next address of the host. False when there is none left, with errno of the last one. */
static bool try_address(struct conn *c)
{
    unsigned first = atomic_load(&c->url->preferred);
    while (c->address_tried < c->url->addrs) {
        const struct address *to = &c->url->addr[(first + c->address_tried++) % c->url->addrs];
        int fd = dial_any_source(c, to);
        if (fd < 0)
            continue;
        struct epoll_event ev = {.events = EPOLLOUT, .data.ptr = c};
        c->stream.fd = fd;
        c->events = EPOLLOUT;
        if (epoll_ctl(c->worker->epoll, EPOLL_CTL_ADD, fd, &ev) == 0)
            return true;
        stream_close(&c->stream);
    }
    return false;
}

void conn_connect(struct conn *c, uint64_t due)
{
    struct worker *w = c->worker;
    c->state = CONN_CONNECTING;
    c->due = due;
    c->deadline = clock_ns() + (uint64_t)(w->run->opt->connect_timeout * 1e9);
    counter_add(&w->stats->connecting, 1);
    list_add(&w->opening, c);
    if (!try_address(c))
        conn_fail(c, error_from_errno(errno));
}

/* The request is in the buffer that will take the answer: nobody answers half a request. */
static void write_request(struct conn *c)
{
    size_t length = c->worker->run->requests[c->url_index].length;
    struct handshake *h = c->handshake;
    while (h->sent < length) {
        ssize_t n = stream_write(&c->stream, h->head + h->sent, length - h->sent);
        if (n == STREAM_AGAIN) {
            conn_watch(c, EPOLLOUT);
            return;
        }
        if (n <= 0) {
            conn_fail(c, n == 0 ? ERR_EOF : error_from_errno(stream_error(&c->stream)));
            return;
        }
        h->sent += (size_t)n;
    }
    conn_watch(c, EPOLLIN);
}

static void start_upgrade(struct conn *c)
{
    c->handshake = malloc(sizeof *c->handshake);
    if (c->handshake == NULL || handshake_new_key(c->handshake->key) != 0) {
        conn_fail(c, ERR_IO);
        return;
    }
    const struct request *q = &c->worker->run->requests[c->url_index];
    memcpy(c->handshake->head, q->text, q->length);
    memcpy(c->handshake->head + q->key_at, c->handshake->key, HANDSHAKE_KEY);
    c->handshake->sent = 0;
    c->handshake->have = 0;
    c->state = CONN_UPGRADE;
    write_request(c);
}

static void continue_tls(struct conn *c)
{
    bool wants_write = false;
    int rc = stream_handshake(&c->stream, &wants_write);
    if (rc == STREAM_AGAIN)
        conn_watch(c, wants_write ? EPOLLOUT : EPOLLIN);
    else if (rc == 1)
        start_upgrade(c);
    else
        conn_fail(c, errno == ECONNRESET ? ERR_RESET : ERR_TLS);
}

static void tcp_connected(struct conn *c)
{
    struct worker *w = c->worker;
    int err = 0;
    socklen_t len = sizeof err;
    if (getsockopt(c->stream.fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0)
        err = errno;
    if (err != 0) {
        stream_close(&c->stream);
        if (!try_address(c))
            conn_fail(c, error_from_errno(err));
        return;
    }
    if (c->address_tried > 1)
        atomic_store(&c->url->preferred,
                     (atomic_load(&c->url->preferred) + c->address_tried - 1) % c->url->addrs);
    c->connected = clock_ns();
    hist_add(&w->stats->connect, c->connected - c->due);
    if (!c->url->tls) {
        start_upgrade(c);
        return;
    }
    c->state = CONN_TLS;
    if (stream_start_tls(&c->stream, w->run->tls, c->url, w->run->opt->insecure) != 0)
        conn_fail(c, ERR_TLS);
    else
        continue_tls(c);
}

/* Memory that only an open connection needs. False when there is none. */
static bool equip(struct conn *c, const struct deflate_terms *t)
{
    struct worker *w = c->worker;
    const struct options *o = w->run->opt;
    bool loop_closed = o->rate == 0 && c->sender;
    c->frames = worker_frames(w, t->agreed ? t->client_bits : 0);
    if (t->agreed)
        c->inflater = inflater_new(t);
    if (loop_closed)
        c->tx.when = calloc(o->pipeline, sizeof *c->tx.when);
    if (o->broadcast)
        c->seen = calloc(o->senders, sizeof *c->seen);
    return c->frames != NULL && (c->inflater != NULL || !t->agreed) &&
           (c->tx.when != NULL || !loop_closed) && (c->seen != NULL || !o->broadcast);
}

static void opened(struct conn *c, const struct handshake_answer *a)
{
    struct worker *w = c->worker;
    uint64_t now = clock_ns();
    if (!equip(c, &a->deflate)) {
        conn_fail(c, ERR_IO);
        return;
    }
    list_remove(&w->opening, c);
    c->state = CONN_OPEN;
    c->last_rx = now;
    hist_add(&w->stats->handshake, now - c->connected);
    counter_add(&w->stats->connecting, (uint64_t)-1);
    counter_add(&w->stats->opened, 1);
    counter_add(&w->stats->open_now, 1);
    counter_add(&w->stats->deflated, a->deflate.agreed);
    counter_set(&w->stats->last_open_ns, now);
    counter_add(&w->url_stats[c->url_index].open, 1);
    if (!c->muted)
        atomic_fetch_add(&w->run->readers, 1);
    atomic_fetch_add(&w->run->open, 1);
    conn_watch(c, c->muted ? 0 : EPOLLIN);
    if (atomic_fetch_add(&w->run->settled, 1) + 1 == w->run->opt->connections)
        eventfd_write(w->run->wake, 1);

    struct handshake *h = c->handshake;
    size_t rest = h->have - a->length;
    c->handshake = NULL;
    if (!c->muted && rest != 0)
        conn_input(c, (uint8_t *)h->head + a->length, rest, now);
    free(h);
    if (c->state == CONN_OPEN && w->run->opt->early && w->phase < PHASE_DRAIN)
        conn_start_schedule(c, now);
    /* TLS may hold bytes already that epoll knows nothing of. */
    if (c->state == CONN_OPEN && !c->muted && c->stream.ssl != NULL)
        conn_receive(c);
}

static void read_answer(struct conn *c)
{
    struct handshake *h = c->handshake;
    struct handshake_answer a;
    ssize_t n = stream_read(&c->stream, h->head + h->have, HANDSHAKE_HEAD_MAX - h->have);
    if (n == STREAM_AGAIN)
        return;
    if (n <= 0) {
        conn_fail(c, n == 0 ? ERR_EOF : error_from_errno(stream_error(&c->stream)));
        return;
    }
    h->have += (size_t)n;
    switch (handshake_read(h, c->worker->run->opt, &a)) {
    case HANDSHAKE_MORE:
        if (c->stream.ssl != NULL)
            read_answer(c);
        break;
    case HANDSHAKE_DONE:
        opened(c, &a);
        break;
    case HANDSHAKE_STATUS:
        counter_add(&c->worker->stats->status[a.status], 1);
        conn_end(c);
        break;
    case HANDSHAKE_INVALID:
        conn_fail(c, ERR_HANDSHAKE_INVALID);
        break;
    }
}

void conn_progress(struct conn *c, uint32_t events)
{
    if (c->state == CONN_CONNECTING) {
        tcp_connected(c);
    } else if (c->state == CONN_TLS) {
        continue_tls(c);
    } else {
        if ((events & EPOLLOUT) != 0)
            write_request(c);
        else
            read_answer(c);
    }
}
