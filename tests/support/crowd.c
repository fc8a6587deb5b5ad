#include "crowd.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BUFFER (256 * 1024)
#define TICK_MS 50

enum { STAY, LEAVE, LEAVE_RESET };

struct one {
    int fd;
    bool watched;
    uint8_t *rest; /* an incomplete frame */
    size_t rest_len, rest_cap;
    double budget; /* bytes it may still read */
    _Atomic uint32_t pace;
    _Atomic int wish;
    _Atomic int end;
    _Atomic unsigned close_code;
    _Atomic uint64_t messages, bytes;
};

struct crowd {
    struct crowd_options opt;
    struct one *all;
    int epoll_fd, wake_fd;
    pthread_t thread;
    _Atomic bool stop, wishes;
    uint8_t *buf;
    int64_t last_tick;
};

static int64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* ---- Connecting ---- */

static bool say_all(int fd, const char *text)
{
    size_t left = strlen(text);

    while (left > 0) {
        ssize_t n = send(fd, text, left, MSG_NOSIGNAL);

        if (n <= 0)
            return false;
        text += n;
        left -= (size_t)n;
    }
    return true;
}

/* Reads to the end of the head, byte by byte: what follows it stays in the socket. */
static bool hear_head(int fd)
{
    char head[2048];
    size_t n = 0;

    while (n < sizeof head - 1 && recv(fd, head + n, 1, 0) == 1) {
        head[++n] = 0;
        if (n >= 4 && memcmp(head + n - 4, "\r\n\r\n", 4) == 0)
            return strncmp(head, "HTTP/1.1 101 ", 13) == 0;
    }
    errno = EPROTO;
    return false;
}

static int dial(const struct crowd_options *opt, size_t number)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char request[512];
    int one = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    to.sin_port = htons((uint16_t)strtoul(strrchr(opt->address, ':') + 1, NULL, 10));
    if (opt->receive_buffer > 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &opt->receive_buffer, sizeof opt->receive_buffer);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    snprintf(request, sizeof request,
             "GET /%zu HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
             "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
             number, opt->address);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0 && say_all(fd, request) &&
        hear_head(fd) && fcntl(fd, F_SETFL, O_NONBLOCK) == 0)
        return fd;
    close(fd);
    return -1;
}

/* ---- Frames ---- */

static void finish(struct crowd *c, struct one *o, enum crowd_end end)
{
    if (o->fd < 0)
        return;
    (void)c;
    close(o->fd); /* leaves the epoll set too */
    o->fd = -1;
    free(o->rest);
    o->rest = NULL;
    o->rest_len = o->rest_cap = 0;
    atomic_store(&o->end, end);
}

static void answer_close(struct one *o, const uint8_t *payload, size_t len)
{
    uint8_t frame[8] = {0x88, 0x80}; /* masked with zeros */
    size_t n = len >= 2 ? 2 : 0;

    frame[1] |= (uint8_t)n;
    if (n)
        memcpy(frame + 6, payload, n);
    if (send(o->fd, frame, 6 + n, MSG_NOSIGNAL) >= 0)
        atomic_store(&o->close_code, n ? (unsigned)payload[0] << 8 | payload[1] : 1005);
}

/* The size of the frame that begins at p, with its header's; 0: more bytes are needed to tell. */
static uint64_t frame_size(const uint8_t *p, size_t len, size_t *head)
{
    uint64_t size = 0;

    if (len < 2)
        return 0;
    *head = (p[1] & 127) < 126 ? 2 : (p[1] & 127) == 126 ? 4 : 10;
    if (len < *head)
        return 0;
    if (*head == 2)
        return 2 + (uint64_t)(p[1] & 127);
    for (size_t i = 2; i < *head; i++)
        size = size << 8 | p[i];
    return *head + size;
}

/* Uses up whole frames; how many bytes. */
static size_t use_frames(struct crowd *c, struct one *o, const uint8_t *p, size_t len)
{
    size_t used = 0, head;

    while (o->fd >= 0) {
        uint64_t size = frame_size(p + used, len - used, &head);
        const uint8_t *f = p + used;

        if (size == 0 || size > len - used)
            break;
        used += (size_t)size;
        if (f[0] == 0x81 || f[0] == 0x82) {
            atomic_fetch_add(&o->messages, 1);
            if (c->opt.on_message)
                c->opt.on_message(c->opt.arg, (size_t)(o - c->all), f + head, (size_t)size - head);
        } else if (f[0] == 0x88) {
            answer_close(o, f + head, (size_t)size - head);
        } else if (f[0] != 0x89 && f[0] != 0x8a) {
            finish(c, o, CROWD_BROKEN);
        }
    }
    return used;
}

static bool keep_rest(struct one *o, const uint8_t *p, size_t len)
{
    if (o->rest_cap < len) {
        uint8_t *more = realloc(o->rest, len + 1024);

        if (!more)
            return false;
        o->rest = more;
        o->rest_cap = len + 1024;
    }
    if (len > 0)
        memmove(o->rest, p, len);
    o->rest_len = len;
    return true;
}

static void hear(struct crowd *c, struct one *o, size_t most)
{
    size_t before = o->rest_len, used;
    ssize_t n;

    if (before > BUFFER / 2) { /* no test sends frames of that size */
        finish(c, o, CROWD_BROKEN);
        return;
    }
    if (before > 0)
        memcpy(c->buf, o->rest, before);
    n = recv(o->fd, c->buf + before, most < BUFFER - before ? most : BUFFER - before, 0);
    if (n <= 0) {
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        finish(c, o,
               n < 0                             ? CROWD_RESET
               : atomic_load(&o->close_code) > 0 ? CROWD_CLOSED
                                                 : CROWD_EOF);
        return;
    }
    atomic_fetch_add(&o->bytes, (uint64_t)n);
    if (atomic_load(&o->pace) != CROWD_ALL)
        o->budget -= (double)n;
    used = use_frames(c, o, c->buf, before + (size_t)n);
    if (o->fd >= 0 && !keep_rest(o, c->buf + used, before + (size_t)n - used))
        finish(c, o, CROWD_BROKEN);
}

/* ---- The thread ---- */

static void watch(struct crowd *c, struct one *o, bool on)
{
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = o};

    if (o->watched == on || o->fd < 0)
        return;
    epoll_ctl(c->epoll_fd, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, o->fd, &e);
    o->watched = on;
}

static void grant_wishes(struct crowd *c)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};

    if (!atomic_exchange(&c->wishes, false))
        return;
    for (size_t i = 0; i < c->opt.count; i++) {
        struct one *o = &c->all[i];
        int wish = atomic_load(&o->wish);

        watch(c, o, atomic_load(&o->pace) == CROWD_ALL);
        if (wish == STAY || o->fd < 0)
            continue;
        if (wish == LEAVE_RESET)
            setsockopt(o->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        finish(c, o, CROWD_LEFT);
    }
}

/* Those that read slowly read a little more. */
static void tick(struct crowd *c)
{
    int64_t now = now_ns();
    double seconds = (double)(now - c->last_tick) / 1e9;

    if (seconds < TICK_MS / 1000.0)
        return;
    c->last_tick = now;
    for (size_t i = 0; i < c->opt.count; i++) {
        struct one *o = &c->all[i];
        uint32_t pace = atomic_load(&o->pace);

        if (pace == CROWD_ALL || pace == 0 || o->fd < 0)
            continue;
        o->budget += pace * seconds;
        if (o->budget >= 1)
            hear(c, o, (size_t)o->budget);
    }
}

static void *run(void *arg)
{
    struct crowd *c = arg;
    struct epoll_event events[128];

    while (!atomic_load(&c->stop)) {
        int n = epoll_wait(c->epoll_fd, events, 128, TICK_MS);

        for (int i = 0; i < n; i++) {
            struct one *o = events[i].data.ptr;
            uint64_t value;

            if (o && o->fd >= 0)
                hear(c, o, BUFFER);
            else if (!o && read(c->wake_fd, &value, sizeof value) < 0)
                continue;
        }
        grant_wishes(c);
        tick(c);
    }
    return NULL;
}

static void wake(struct crowd *c)
{
    uint64_t one = 1;

    atomic_store(&c->wishes, true);
    if (write(c->wake_fd, &one, sizeof one) < 0)
        return; /* it is awake */
}

/* ---- Life ---- */

static bool start(struct crowd *c)
{
    struct epoll_event e = {.events = EPOLLIN};

    c->buf = malloc(BUFFER);
    c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!c->buf || c->epoll_fd < 0 || c->wake_fd < 0)
        return false;
    epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, c->wake_fd, &e);
    for (size_t i = 0; i < c->opt.count; i++) {
        c->all[i].fd = dial(&c->opt, i);
        if (c->all[i].fd < 0)
            return false;
        watch(c, &c->all[i], true);
    }
    c->last_tick = now_ns();
    return pthread_create(&c->thread, NULL, run, c) == 0;
}

static void release(struct crowd *c)
{
    for (size_t i = 0; i < c->opt.count; i++)
        finish(c, &c->all[i], CROWD_LEFT);
    if (c->epoll_fd >= 0)
        close(c->epoll_fd);
    if (c->wake_fd >= 0)
        close(c->wake_fd);
    free(c->buf);
    free(c->all);
    free(c);
}

struct crowd *crowd_new(const struct crowd_options *opt)
{
    struct crowd *c = calloc(1, sizeof *c);
    int error;

    if (!c)
        return NULL;
    c->opt = *opt;
    c->epoll_fd = c->wake_fd = -1;
    c->all = calloc(opt->count + 1, sizeof *c->all);
    if (!c->all) {
        free(c);
        return NULL;
    }
    for (size_t i = 0; i < opt->count; i++) {
        c->all[i].fd = -1;
        atomic_store(&c->all[i].pace, CROWD_ALL);
    }
    if (start(c))
        return c;
    error = errno;
    release(c);
    errno = error;
    return NULL;
}

void crowd_pace(struct crowd *c, size_t client, uint32_t bytes)
{
    atomic_store(&c->all[client].pace, bytes);
    wake(c);
}

void crowd_leave(struct crowd *c, size_t client, bool reset)
{
    atomic_store(&c->all[client].wish, reset ? LEAVE_RESET : LEAVE);
    wake(c);
}

struct crowd_state crowd_look(const struct crowd *c, size_t client)
{
    struct one *o = &c->all[client];

    return (struct crowd_state){.end = (enum crowd_end)atomic_load(&o->end),
                                .close_code = atomic_load(&o->close_code),
                                .messages = atomic_load(&o->messages),
                                .bytes = atomic_load(&o->bytes)};
}

void crowd_free(struct crowd *c)
{
    if (!c)
        return;
    atomic_store(&c->stop, true);
    wake(c);
    pthread_join(c->thread, NULL);
    release(c);
}
