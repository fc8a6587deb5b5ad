/* A small HTTP server for one page. One thread; slow clients have a deadline and cannot hold up others. */
#include "metrics.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"

enum { CLIENTS = 16, REQUEST_MAX = 4096 };
#define CLIENT_TIME (5 * NS_PER_S)

struct client {
    int fd; /* -1 = free */
    uint64_t deadline;
    size_t have;
    char request[REQUEST_MAX];
    char *answer;
    size_t length, sent;
};

struct metrics {
    const struct run *run;
    struct ticker *ticker;
    int listener, stop;
    pthread_t thread;
    struct client clients[CLIENTS];
};

static int listen_on(const char *address, const char **why)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list = NULL;
    char host[256];
    const char *colon = strrchr(address, ':');
    int fd = -1, on = 1;
    *why = "it must be HOST:PORT";
    if (colon == NULL || colon[1] == '\0' || (size_t)(colon - address) >= sizeof host)
        return -1;
    const char *from = address;
    size_t len = (size_t)(colon - address);
    if (len >= 2 && from[0] == '[' && from[len - 1] == ']') {
        from++;
        len -= 2;
    }
    memcpy(host, from, len);
    host[len] = '\0';
    int rc = getaddrinfo(len != 0 ? host : NULL, colon + 1, &hints, &list);
    if (rc != 0) {
        *why = gai_strerror(rc);
        return -1;
    }
    fd = socket(list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(fd, list->ai_addr, list->ai_addrlen) != 0 || listen(fd, CLIENTS) != 0) {
        *why = strerror(errno);
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    freeaddrinfo(list);
    return fd;
}

static void drop(struct client *c)
{
    close(c->fd);
    free(c->answer);
    c->answer = NULL;
    c->fd = -1;
}

static void accept_client(struct metrics *m)
{
    for (int i = 0; i < CLIENTS; i++) {
        struct client *c = &m->clients[i];
        if (c->fd >= 0)
            continue;
        c->fd = accept4(m->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        c->deadline = clock_ns() + CLIENT_TIME;
        c->have = c->length = c->sent = 0;
        return;
    }
}

static bool full(const struct metrics *m)
{
    for (int i = 0; i < CLIENTS; i++)
        if (m->clients[i].fd < 0)
            return false;
    return true;
}

/* Joins head and body; takes `body`, which may be NULL. */
static void answer(struct client *c, const char *status, const char *type, char *body, size_t n,
                   bool head_only)
{
    size_t size = 0;
    FILE *f = open_memstream(&c->answer, &size);
    if (f != NULL) {
        fprintf(f,
                "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
                "Access-Control-Allow-Origin: *\r\nConnection: close\r\n\r\n",
                status, type, n);
        if (body != NULL && !head_only)
            fwrite(body, 1, n, f);
        if (fclose(f) == 0)
            c->length = size;
    }
    free(body);
}

static void handle(struct metrics *m, struct client *c)
{
    static const char plain[] = "text/plain; charset=utf-8";
    char method[8], path[64];
    bool parsed = sscanf(c->request, "%7s %63s", method, path) == 2;
    bool head = parsed && strcmp(method, "HEAD") == 0;
    if (!parsed || (!head && strcmp(method, "GET") != 0)) {
        answer(c, "405 Method Not Allowed", plain, strdup("GET only\n"), 9, false);
        return;
    }
    path[strcspn(path, "?")] = '\0';
    if (strcmp(path, "/metrics") != 0) {
        answer(c, "404 Not Found", plain, strdup("see /metrics\n"), 13, head);
        return;
    }
    size_t n = 0;
    char *text = metrics_text(m->run, m->ticker, &n);
    if (text == NULL)
        answer(c, "500 Internal Server Error", plain, strdup("out of memory\n"), 14, head);
    else
        answer(c, "200 OK", "text/plain; version=0.0.4; charset=utf-8", text, n, head);
}

static void read_client(struct metrics *m, struct client *c)
{
    ssize_t n = recv(c->fd, c->request + c->have, REQUEST_MAX - 1 - c->have, 0);
    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
            drop(c);
        return;
    }
    c->have += (size_t)n;
    c->request[c->have] = '\0';
    if (strstr(c->request, "\r\n\r\n") != NULL) {
        handle(m, c);
        if (c->answer == NULL)
            drop(c);
    } else if (c->have == REQUEST_MAX - 1) {
        drop(c);
    }
}

static void write_client(struct client *c)
{
    ssize_t n = send(c->fd, c->answer + c->sent, c->length - c->sent, MSG_NOSIGNAL);
    if (n > 0)
        c->sent += (size_t)n;
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        c->sent = c->length;
    if (c->sent == c->length)
        drop(c);
}

static void *serve(void *arg)
{
    struct metrics *m = arg;
    while (1) {
        struct pollfd set[CLIENTS + 2];
        set[0] = (struct pollfd){.fd = m->stop, .events = POLLIN};
        set[1] = (struct pollfd){.fd = full(m) ? -1 : m->listener, .events = POLLIN};
        bool idle = true;
        for (int i = 0; i < CLIENTS; i++) {
            struct client *c = &m->clients[i];
            short events = c->answer != NULL ? POLLOUT : POLLIN;
            set[i + 2] = (struct pollfd){.fd = c->fd, .events = events};
            idle = idle && c->fd < 0;
        }
        if (poll(set, CLIENTS + 2, idle ? -1 : 500) < 0 && errno != EINTR)
            return NULL;
        if (set[0].revents != 0)
            return NULL;
        uint64_t now = clock_ns();
        for (int i = 0; i < CLIENTS; i++) {
            struct client *c = &m->clients[i];
            if (c->fd < 0)
                continue;
            if (set[i + 2].revents != 0 && c->answer == NULL)
                read_client(m, c);
            else if (set[i + 2].revents != 0)
                write_client(c);
            if (c->fd >= 0 && c->deadline <= now)
                drop(c);
        }
        if (set[1].revents != 0)
            accept_client(m);
    }
}

struct metrics *metrics_start(const char *address, const struct run *r, struct ticker *t,
                              const char **why)
{
    struct metrics *m = calloc(1, sizeof *m);
    if (m == NULL) {
        *why = "out of memory";
        return NULL;
    }
    m->run = r;
    m->ticker = t;
    for (int i = 0; i < CLIENTS; i++)
        m->clients[i].fd = -1;
    m->stop = eventfd(0, EFD_CLOEXEC);
    m->listener = listen_on(address, why);
    if (m->stop < 0 || m->listener < 0)
        goto fail;
    *why = "no thread";
    if (pthread_create(&m->thread, NULL, serve, m) != 0)
        goto fail;
    return m;
fail:
    if (m->listener >= 0)
        close(m->listener);
    if (m->stop >= 0)
        close(m->stop);
    free(m);
    return NULL;
}

void metrics_stop(struct metrics *m)
{
    if (m == NULL)
        return;
    eventfd_write(m->stop, 1);
    pthread_join(m->thread, NULL);
    for (int i = 0; i < CLIENTS; i++)
        if (m->clients[i].fd >= 0)
            drop(&m->clients[i]);
    close(m->listener);
    close(m->stop);
    free(m);
}
