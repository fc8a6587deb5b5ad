/* The least an event loop per core can cost: edge-triggered epoll, recv, sendmsg. */
#include "floor.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS 256

struct loop {
    pthread_t thread;
    int epoll_fd;
    uint8_t buf[FLOOR_BUFFER];
};

struct peer {
    struct floor_conn conn;
    uint8_t *unsent; /* a peer that does not read: nothing is received from it meanwhile */
    size_t unsent_len, unsent_at;
};

static struct loop *loops;
static uint32_t loop_count, next_loop;

static void peer_end(struct peer *p)
{
    close(p->conn.fd);
    free(p->conn.held);
    free(p->unsent);
    free(p);
}

static bool keep_unsent(struct peer *p, struct floor_reply *reply)
{
    size_t old = p->unsent_len, len = old;
    uint8_t *all;

    for (int i = 0; i < reply->count; i++)
        len += reply->iov[i].iov_len;
    all = realloc(p->unsent, len);
    if (!all)
        return false;
    p->unsent = all;
    p->unsent_len = len;
    for (int i = 0; i < reply->count; i++) {
        memcpy(all + old, reply->iov[i].iov_base, reply->iov[i].iov_len);
        old += reply->iov[i].iov_len;
    }
    return true;
}

static bool send_reply(struct peer *p, struct floor_reply *reply)
{
    while (reply->count > 0) {
        struct msghdr msg = {.msg_iov = reply->iov, .msg_iovlen = (size_t)reply->count};
        ssize_t n = p->unsent ? -1 : sendmsg(p->conn.fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (p->unsent || (n < 0 && errno == EAGAIN))
            return keep_unsent(p, reply);
        if (n < 0)
            return false;
        floor_sent(reply, (size_t)n);
    }
    return true;
}

/* False: the connection is over. */
static bool send_unsent(struct peer *p)
{
    while (p->unsent) {
        ssize_t n = send(p->conn.fd, p->unsent + p->unsent_at, p->unsent_len - p->unsent_at,
                         MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0)
            return errno == EAGAIN;
        p->unsent_at += (size_t)n;
        if (p->unsent_at == p->unsent_len) {
            free(p->unsent);
            p->unsent = NULL;
            p->unsent_at = p->unsent_len = 0;
        }
    }
    return true;
}

static bool answer(struct peer *p, uint8_t *buf, size_t n)
{
    struct floor_reply reply;
    size_t done = 0;
    ptrdiff_t used;

    do {
        used = floor_input(&p->conn, buf + done, n - done, &reply);
        if (used < 0 || !send_reply(p, &reply) || p->conn.closing)
            return false;
        done += (size_t)used;
    } while (used > 0 && done < n);
    return floor_hold(&p->conn, buf + done, n - done);
}

/* Until the socket is empty: a receive that did not fill the buffer has emptied it. */
static bool serve(struct loop *l, struct peer *p)
{
    if (!send_unsent(p))
        return false;
    while (!p->unsent) {
        size_t held = floor_begin(&p->conn, l->buf);
        ssize_t n = recv(p->conn.fd, l->buf + held, sizeof l->buf - held, MSG_DONTWAIT);

        if (n < 0 && errno == EAGAIN)
            return floor_hold(&p->conn, l->buf, held);
        if (n <= 0 || !answer(p, l->buf, held + (size_t)n))
            return false;
        if (held + (size_t)n < sizeof l->buf)
            return true;
    }
    return true;
}

static void *loop_main(void *arg)
{
    struct loop *l = arg;
    struct epoll_event events[EVENTS];

    for (;;) {
        int n = epoll_wait(l->epoll_fd, events, EVENTS, -1);

        for (int i = 0; i < n; i++) {
            struct peer *p = events[i].data.ptr;

            if (!serve(l, p) || (events[i].events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)))
                peer_end(p);
        }
    }
    return NULL;
}

static void accepted(int fd)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
    struct peer *p = calloc(1, sizeof *p);

    if (p) {
        p->conn.fd = fd;
        ev.data.ptr = p;
        if (epoll_ctl(loops[next_loop++ % loop_count].epoll_fd, EPOLL_CTL_ADD, fd, &ev) == 0)
            return;
    }
    free(p);
    close(fd);
}

int main(int argc, char **argv)
{
    loop_count = floor_cores();
    loops = calloc(loop_count, sizeof *loops);
    for (uint32_t i = 0; loops && i < loop_count; i++) {
        loops[i].epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        if (loops[i].epoll_fd < 0 ||
            pthread_create(&loops[i].thread, NULL, loop_main, &loops[i]) != 0) {
            perror(argv[0]);
            return EXIT_FAILURE;
        }
    }
    return loops ? floor_serve(argc, argv, accepted) : EXIT_FAILURE;
}
