/*
 * A bare epoll echo server: the floor that speed checks of the load generator measure against. It answers the
 * opening handshake, unmasks and echoes frames, answers close and ping, and checks nothing.
 *   echo_peer PORT [THREADS]
 * Prints "listening" when ready and "messages N" when SIGTERM ends it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BUFFER = 256 * 1024, EVENTS = 256, THREADS_MAX = 16 };

struct peer {
    int fd;
    bool upgraded, closing;
    uint8_t *in; /* what is left of an unfinished frame */
    size_t in_len, in_room;
    uint8_t *out; /* what the socket did not take */
    size_t out_len, out_at, out_room;
};

struct loop {
    pthread_t thread;
    int epoll, listener;
    _Atomic uint64_t messages;
    uint8_t *buffer; /* received bytes; frames are unmasked in place and echoed from here */
    uint8_t *reply;
    size_t reply_len, reply_room;
};

static void drop(struct peer *p)
{
    close(p->fd);
    free(p->in);
    free(p->out);
    free(p);
}

static void watch(struct loop *l, struct peer *p, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = p};
    epoll_ctl(l->epoll, EPOLL_CTL_MOD, p->fd, &ev);
}

static bool grow(uint8_t **data, size_t *room, size_t need)
{
    if (need <= *room)
        return true;
    size_t size = *room != 0 ? *room : 4096;
    while (size < need)
        size *= 2;
    uint8_t *grown = realloc(*data, size);
    if (grown == NULL)
        return false;
    *data = grown;
    *room = size;
    return true;
}

/* Sends or keeps. False: the connection is over. */
static bool give(struct loop *l, struct peer *p, const uint8_t *data, size_t n)
{
    if (p->out_len == 0) {
        ssize_t sent = send(p->fd, data, n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN)
            return false;
        if (sent > 0) {
            data += sent;
            n -= (size_t)sent;
        }
        if (n == 0)
            return true;
        watch(l, p, EPOLLOUT);
    }
    if (!grow(&p->out, &p->out_room, p->out_len + n))
        return false;
    memcpy(p->out + p->out_len, data, n);
    p->out_len += n;
    return true;
}

static bool flush(struct loop *l, struct peer *p)
{
    while (p->out_at < p->out_len) {
        ssize_t n = send(p->fd, p->out + p->out_at, p->out_len - p->out_at, MSG_NOSIGNAL);
        if (n < 0)
            return errno == EAGAIN;
        p->out_at += (size_t)n;
    }
    p->out_at = p->out_len = 0;
    watch(l, p, EPOLLIN);
    return !p->closing;
}

static bool upgrade(struct loop *l, struct peer *p, char *head)
{
    static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    char text[128], accept[64], answer[256];
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    char *key = strstr(head, "Sec-WebSocket-Key: ");
    if (key == NULL)
        return false;
    snprintf(text, sizeof text, "%.24s%s", key + strlen("Sec-WebSocket-Key: "), guid);
    if (EVP_Digest(text, strlen(text), digest, &n, EVP_sha1(), NULL) != 1)
        return false;
    EVP_EncodeBlock((unsigned char *)accept, digest, (int)n);
    int len = snprintf(answer, sizeof answer,
                       "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                       "Connection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
                       accept);
    p->upgraded = true;
    return give(l, p, (uint8_t *)answer, (size_t)len);
}

static void unmask(uint8_t *data, size_t n, const uint8_t key[4])
{
    uint64_t wide, word;
    uint8_t twice[8];
    memcpy(twice, key, 4);
    memcpy(twice + 4, key, 4);
    memcpy(&wide, twice, 8);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        memcpy(&word, data + i, 8);
        word ^= wide;
        memcpy(data + i, &word, 8);
    }
    for (; i < n; i++)
        data[i] ^= key[i & 3];
}

/* Echoes one frame if it is complete. Bytes used, 0 = incomplete, -1 = over. */
static ssize_t echo_frame(struct loop *l, struct peer *p, uint8_t *data, size_t n)
{
    if (n < 2)
        return 0;
    size_t head = 2, len = data[1] & 0x7f;
    size_t wide = len == 126 ? 2 : len == 127 ? 8 : 0;
    if (n < head + wide + 4)
        return 0;
    for (size_t i = 0; i < wide; i++)
        len = i == 0 ? data[2] : len << 8 | data[2 + i];
    head += wide + 4;
    if (n - head < len)
        return 0;
    unmask(data + head, len, data + head - 4);
    uint8_t op = data[0] & 0x0f;
    if (op == 8)
        p->closing = true;
    if (op == 9)
        data[0] = 0x8a;
    if (op < 8 && (data[0] & 0x80) != 0)
        l->messages++;
    /* The header without mask goes right before the payload. */
    uint8_t *out = data + 4;
    memmove(out, data, 2 + wide);
    out[1] &= 0x7f;
    if (!grow(&l->reply, &l->reply_room, l->reply_len + 2 + wide + len))
        return -1;
    memcpy(l->reply + l->reply_len, out, 2 + wide + len);
    l->reply_len += 2 + wide + len;
    return (ssize_t)(head + len);
}

static bool echo_all(struct loop *l, struct peer *p, uint8_t *data, size_t n)
{
    size_t at = 0;
    l->reply_len = 0;
    while (!p->closing) {
        ssize_t used = echo_frame(l, p, data + at, n - at);
        if (used < 0)
            return false;
        if (used == 0)
            break;
        at += (size_t)used;
    }
    if (l->reply_len != 0 && !give(l, p, l->reply, l->reply_len))
        return false;
    if (p->closing)
        return p->out_len != 0;
    p->in_len = n - at;
    if (p->in_len == 0)
        return true;
    if (data != p->in && !grow(&p->in, &p->in_room, p->in_len))
        return false;
    memmove(p->in, data + at, p->in_len);
    return true;
}

/* The first bytes: a whole request, as every client here sends it. */
static bool take_head(struct loop *l, struct peer *p, uint8_t *data, size_t n)
{
    data[n] = '\0';
    char *end = strstr((char *)data, "\r\n\r\n");
    if (end == NULL || !upgrade(l, p, (char *)data))
        return false;
    size_t used = (size_t)(end + 4 - (char *)data);
    return used == n || echo_all(l, p, data + used, n - used);
}

static bool readable(struct loop *l, struct peer *p)
{
    if (p->in_len == 0) {
        ssize_t n = recv(p->fd, l->buffer, BUFFER, 0);
        if (n <= 0)
            return n < 0 && errno == EAGAIN;
        return p->upgraded ? echo_all(l, p, l->buffer, (size_t)n)
                           : take_head(l, p, l->buffer, (size_t)n);
    }
    if (!grow(&p->in, &p->in_room, p->in_len + BUFFER))
        return false;
    ssize_t n = recv(p->fd, p->in + p->in_len, BUFFER, 0);
    if (n <= 0)
        return n < 0 && errno == EAGAIN;
    return echo_all(l, p, p->in, p->in_len + (size_t)n);
}

/* One at a time, so that the loops share them. */
static void accept_one(struct loop *l)
{
    int on = 1;
    int fd = accept4(l->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return;
    struct peer *p = calloc(1, sizeof *p);
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = p};
    if (p == NULL || epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &ev) != 0) {
        free(p);
        close(fd);
        return;
    }
    p->fd = fd;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static void *serve(void *arg)
{
    struct loop *l = arg;
    struct epoll_event events[EVENTS];
    while (1) {
        int n = epoll_wait(l->epoll, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            struct peer *p = events[i].data.ptr;
            if (p == NULL) {
                accept_one(l);
                continue;
            }
            bool ok = (events[i].events & EPOLLOUT) != 0 ? flush(l, p) : readable(l, p);
            if (!ok)
                drop(p);
        }
    }
    return NULL;
}

static int listen_on(uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    int on = 1;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(fd, 4096) != 0) {
        perror("echo_peer");
        exit(1);
    }
    return fd;
}

static void start(struct loop *l, int listener)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLEXCLUSIVE, .data.ptr = NULL};
    l->listener = listener;
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    l->buffer = malloc(BUFFER + 1);
    if (l->buffer == NULL || epoll_ctl(l->epoll, EPOLL_CTL_ADD, l->listener, &ev) != 0 ||
        pthread_create(&l->thread, NULL, serve, l) != 0) {
        perror("echo_peer");
        exit(1);
    }
}

int main(int argc, char **argv)
{
    static struct loop loops[THREADS_MAX];
    long port = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
    long threads = argc > 2 ? strtol(argv[2], NULL, 10) : 2;
    int got;
    uint64_t messages = 0;
    sigset_t set;
    struct rlimit limit;
    if (port < 1 || port > 65535 || threads < 1 || threads > THREADS_MAX) {
        fputs("usage: echo_peer PORT [THREADS]\n", stderr);
        return 2;
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    int listener = listen_on((uint16_t)port);
    for (long i = 0; i < threads; i++)
        start(&loops[i], listener);
    puts("listening");
    fflush(stdout);
    sigwait(&set, &got);
    for (long i = 0; i < threads; i++)
        messages += loops[i].messages;
    printf("messages %llu\n", (unsigned long long)messages);
    fflush(stdout);
    _exit(0); /* the loops still run */
}
