/*
 * The least a light thread per connection can cost: the loop of floor-epoll, but each connection has a
 * stack of its own, on which the straight loop of floor-thread runs. The switch is the library's.
 */
#include "floor.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "task/light/context.h"

#define EVENTS 256
#define STACK (64 * 1024)

struct loop {
    pthread_t thread;
    int epoll_fd;
    struct light_context context;
    struct peer *current;
    uint8_t buf[FLOOR_BUFFER];
};

struct peer { /* at the top of its stack */
    struct floor_conn conn;
    struct light_context context;
    struct loop *loop;
    char *stack;
    bool ended;
};

static struct loop *loops;
static uint32_t loop_count, next_loop;
static _Thread_local struct loop *loop_here;

static void wait_event(struct peer *p)
{
    light_context_switch(&p->context, &p->loop->context, 0);
}

/* The loop's buffer is another's while this one waits: what was not sent goes to a place of its own. */
static bool keep_unsent(struct floor_reply *reply, uint8_t **own)
{
    size_t len = 0;

    for (int i = 0; i < reply->count; i++)
        len += reply->iov[i].iov_len;
    *own = malloc(len);
    if (!*own)
        return false;
    len = 0;
    for (int i = 0; i < reply->count; i++) {
        const uint8_t *from = reply->iov[i].iov_base;

        for (size_t k = 0; k < reply->iov[i].iov_len; k++)
            (*own)[len++] = from[k];
    }
    reply->iov[0] = (struct iovec){.iov_base = *own, .iov_len = len};
    reply->count = 1;
    return true;
}

static bool send_reply(struct peer *p, struct floor_reply *reply)
{
    uint8_t *own = NULL;
    bool ok = true;

    while (ok && reply->count > 0) {
        struct msghdr msg = {.msg_iov = reply->iov, .msg_iovlen = (size_t)reply->count};
        ssize_t n = sendmsg(p->conn.fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n >= 0) {
            floor_sent(reply, (size_t)n);
        } else if (errno == EAGAIN) {
            ok = own || keep_unsent(reply, &own);
            wait_event(p);
        } else {
            ok = false;
        }
    }
    free(own);
    return ok;
}

/* What comes behind a reply is held over it: the buffer may be another's afterwards. */
static bool answer(struct peer *p, uint8_t *buf, size_t n)
{
    struct floor_reply reply;
    ptrdiff_t used = floor_input(&p->conn, buf, n, &reply);

    return used >= 0 && floor_hold(&p->conn, buf + used, n - (size_t)used) &&
           send_reply(p, &reply) && !p->conn.closing;
}

static void connection(struct peer *p)
{
    bool maybe_more = true;

    for (;;) {
        uint8_t *buf = p->loop->buf;
        size_t held;
        ssize_t n;

        if (!maybe_more)
            wait_event(p);
        held = floor_begin(&p->conn, buf);
        n = recv(p->conn.fd, buf + held, FLOOR_BUFFER - held, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) {
            maybe_more = false;
            if (!floor_hold(&p->conn, buf, held))
                return;
            continue;
        }
        maybe_more = held + (size_t)n == FLOOR_BUFFER;
        if (n <= 0 || !answer(p, buf, held + (size_t)n))
            return;
    }
}

static void light_main(void)
{
    struct peer *p = loop_here->current;

    light_context_entered(&p->context);
    connection(p);
    free(p->conn.held);
    close(p->conn.fd);
    p->ended = true;
    light_context_switch(&p->context, &p->loop->context, 1);
}

static void *loop_main(void *arg)
{
    struct loop *l = arg;
    struct epoll_event events[EVENTS];

    loop_here = l;
    light_context_adopt(&l->context);
    for (;;) {
        int n = epoll_wait(l->epoll_fd, events, EVENTS, -1);

        for (int i = 0; i < n; i++) {
            struct peer *p = l->current = events[i].data.ptr;

            light_context_switch(&l->context, &p->context, 0);
            if (p->ended)
                munmap(p->stack, STACK);
        }
    }
    return NULL;
}

static void accepted(int fd)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
    char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct peer *p;

    if (stack == MAP_FAILED) {
        close(fd);
        return;
    }
    p = (struct peer *)(void *)(stack + STACK - ((sizeof *p + 63) & ~(size_t)63));
    p->conn.fd = fd;
    p->stack = stack;
    p->loop = &loops[next_loop++ % loop_count];
    light_context_make(&p->context, stack, (size_t)((char *)p - stack), light_main);
    ev.data.ptr = p;
    if (epoll_ctl(p->loop->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0) {
        munmap(stack, STACK);
        close(fd);
    }
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
