#include "http.h"

#include "http_request.h"

#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    CLIENTS = 32,
    HEAD_BYTES = 8192,
    /* Milliseconds. */
    REQUEST_TIME = 5000, /* for a whole head, however it drips */
    ANSWER_TIME = 10000, /* for the whole answer */
    LINGER_TIME = 1000,  /* for what a client still sends after its last answer */
    IDLE_TIME = 120000,  /* between requests */
    ACCEPT_PAUSE = 100,  /* after accept() found no descriptor left */
};

enum client_state { CLIENT_IDLE, CLIENT_READING, CLIENT_WRITING, CLIENT_LINGERING };

struct client {
    int fd; /* -1: a free place */
    enum client_state state;
    int64_t deadline;
    bool keep_alive;
    char head[HEAD_BYTES];
    size_t head_len;
    struct text answer;
    size_t sent;
};

struct http_server {
    int fd;
    http_page page;
    const char *type;
    void *arg;
    int64_t accept_after;
    struct text body;
    struct client client[CLIENTS];
};

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- Listening ---- */

/* Splits HOST:PORT or [HOST]:PORT. */
static bool split_address(const char *address, char *host, size_t size, const char **port)
{
    const char *colon = strrchr(address, ':');
    if (colon == NULL || colon[1] == '\0' || strspn(colon + 1, "0123456789") != strlen(colon + 1)) {
        return false;
    }
    size_t len = (size_t)(colon - address);
    if (len >= 2 && address[0] == '[' && address[len - 1] == ']') {
        address++;
        len -= 2;
    }
    if (len == 0 || len >= size) {
        return false;
    }
    memcpy(host, address, len);
    host[len] = '\0';
    *port = colon + 1;
    return strlen(*port) <= 5 && strtol(*port, NULL, 10) <= UINT16_MAX;
}

static int listen_on(const struct addrinfo *a)
{
    int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (fd < 0) {
        return -errno;
    }
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, CLIENTS) != 0) {
        int error = errno;
        close(fd);
        return -error;
    }
    return fd;
}

int http_open(struct http_server **out, const char *address, http_page page, const char *type,
              void *arg, const char **why)
{
    char host[256];
    const char *port;
    if (!split_address(address, host, sizeof host, &port)) {
        *why = "expected HOST:PORT, port 0 to 65535";
        return -EINVAL;
    }
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *list;
    int code = getaddrinfo(host, port, &hints, &list);
    if (code != 0) {
        *why = gai_strerror(code);
        return -EADDRNOTAVAIL;
    }
    int fd = listen_on(list);
    freeaddrinfo(list);
    if (fd < 0) {
        *why = strerror(-fd);
        return fd;
    }
    struct http_server *s = calloc(1, sizeof *s);
    if (s == NULL) {
        close(fd);
        *why = strerror(ENOMEM);
        return -ENOMEM;
    }
    s->fd = fd;
    s->page = page;
    s->type = type;
    s->arg = arg;
    for (int i = 0; i < CLIENTS; i++) {
        s->client[i].fd = -1;
    }
    *out = s;
    return 0;
}

void http_address(const struct http_server *s, char *buf, size_t size)
{
    struct sockaddr_storage a;
    socklen_t len = sizeof a;
    char host[64];
    char port[8];
    buf[0] = '\0';
    if (getsockname(s->fd, (struct sockaddr *)&a, &len) == 0 &&
        getnameinfo((struct sockaddr *)&a, len, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) == 0) {
        snprintf(buf, size, strchr(host, ':') == NULL ? "%s:%s" : "[%s]:%s", host, port);
    }
}

/* ---- One client ---- */

static void drop(struct client *c)
{
    close(c->fd);
    text_free(&c->answer);
    c->fd = -1;
}

static void wait_for_request(struct client *c)
{
    c->state = c->head_len > 0 ? CLIENT_READING : CLIENT_IDLE;
    c->deadline = now_ms() + (c->head_len > 0 ? REQUEST_TIME : IDLE_TIME);
}

/* Fills the answer: head, and the body unless only the head was asked for. */
static void compose(struct client *c, int status, const char *type, const char *body, size_t len,
                    bool head_only)
{
    text_clear(&c->answer);
    text_addf(&c->answer, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n", status,
              http_reason(status), type, len);
    if (status == 405) {
        text_add(&c->answer, "Allow: GET, HEAD\r\n");
    }
    text_addf(&c->answer, "Connection: %s\r\n\r\n", c->keep_alive ? "keep-alive" : "close");
    if (!head_only) {
        text_add(&c->answer, body);
    }
    c->state = CLIENT_WRITING;
    c->sent = 0;
    c->deadline = now_ms() + ANSWER_TIME;
}

static void refuse(struct client *c, int status, bool head_only)
{
    char body[64];
    int len = snprintf(body, sizeof body, "%d %s\n", status, http_reason(status));
    compose(c, status, "text/plain; charset=utf-8", body, (size_t)len, head_only);
}

static void answer_page(struct http_server *s, struct client *c, const struct http_request *r)
{
    static const char index[] = "<!DOCTYPE html><title>exporter</title>"
                                "<p><a href=\"/metrics\">metrics</a></p>\n";
    if (strcmp(r->path, "/metrics") == 0) {
        text_clear(&s->body);
        if (s->page(s->arg, &s->body) < 0) {
            refuse(c, 500, r->head);
        } else {
            compose(c, 200, s->type, s->body.data, s->body.len, r->head);
        }
    } else if (strcmp(r->path, "/") == 0) {
        compose(c, 200, "text/html; charset=utf-8", index, sizeof index - 1, r->head);
    } else {
        refuse(c, 404, r->head);
    }
}

/* Answers the request in the buffer when it is whole. */
static void take_request(struct http_server *s, struct client *c)
{
    size_t len = http_head_length(c->head, c->head_len);
    if (len == 0 && c->head_len < HEAD_BYTES) {
        if (c->state == CLIENT_IDLE && c->head_len > 0) {
            wait_for_request(c);
        }
        return;
    }
    struct http_request r = {.head = false};
    int status = len == 0 ? 431 : http_parse(c->head, len, &r);
    c->keep_alive = len != 0 && r.keep_alive;
    if (status != 200) {
        refuse(c, status, r.head);
    } else {
        answer_page(s, c, &r);
    }
    c->head_len -= len;
    memmove(c->head, c->head + len, c->head_len);
}

/* To close while bytes wait unread would reset the connection, and with it the answer. */
static void linger(struct client *c)
{
    shutdown(c->fd, SHUT_WR);
    c->state = CLIENT_LINGERING;
    c->head_len = 0;
    c->deadline = now_ms() + LINGER_TIME;
}

static void send_answer(struct http_server *s, struct client *c)
{
    while (c->state == CLIENT_WRITING) {
        if (text_failed(&c->answer)) {
            drop(c);
            return;
        }
        ssize_t n = send(c->fd, c->answer.data + c->sent, c->answer.len - c->sent, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno != EAGAIN && errno != EINTR) {
                drop(c);
            }
            return;
        }
        c->sent += (size_t)n;
        if (c->sent < c->answer.len) {
            return;
        }
        if (!c->keep_alive) {
            linger(c);
            return;
        }
        wait_for_request(c);
        take_request(s, c); /* the next one may be in the buffer already */
    }
}

static void receive(struct http_server *s, struct client *c)
{
    ssize_t n = recv(c->fd, c->head + c->head_len, HEAD_BYTES - c->head_len, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n <= 0) {
        drop(c);
        return;
    }
    if (c->state == CLIENT_LINGERING) {
        return;
    }
    c->head_len += (size_t)n;
    take_request(s, c);
    send_answer(s, c);
}

static void expire(struct http_server *s, struct client *c)
{
    if (c->state != CLIENT_READING) {
        drop(c);
        return;
    }
    c->keep_alive = false;
    c->head_len = 0;
    refuse(c, 408, false);
    send_answer(s, c);
}

/* ---- All of them ---- */

/* A free place; when there is none, that of the client whose time is up first makes way, so that
 * no number of slow clients keeps a new one out. */
static struct client *place(struct http_server *s)
{
    struct client *first = &s->client[0];
    for (int i = 0; i < CLIENTS; i++) {
        struct client *c = &s->client[i];
        if (c->fd < 0) {
            return c;
        }
        if (c->deadline < first->deadline) {
            first = c;
        }
    }
    drop(first);
    return first;
}

static void accept_client(struct http_server *s)
{
    int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            s->accept_after = now_ms() + ACCEPT_PAUSE;
        }
        return;
    }
    struct client *c = place(s);
    c->fd = fd;
    c->state = CLIENT_READING;
    c->head_len = 0;
    c->sent = 0;
    c->answer = (struct text){.data = NULL};
    c->deadline = now_ms() + REQUEST_TIME;
}

/* Fills POLL with the listener and every client. Returns how long to wait. */
static int64_t prepare(const struct http_server *s, struct pollfd *poll)
{
    int64_t now = now_ms();
    int64_t wait = IDLE_TIME;
    bool pausing = s->accept_after > now;
    poll[CLIENTS] = (struct pollfd){.fd = pausing ? -1 : s->fd, .events = POLLIN};
    if (pausing) {
        wait = s->accept_after - now;
    }
    for (int i = 0; i < CLIENTS; i++) {
        const struct client *c = &s->client[i];
        poll[i] =
            (struct pollfd){.fd = c->fd, .events = c->state == CLIENT_WRITING ? POLLOUT : POLLIN};
        if (c->fd >= 0 && c->deadline - now < wait) {
            wait = c->deadline > now ? c->deadline - now : 0;
        }
    }
    return wait;
}

static void handle(struct http_server *s, const struct pollfd *poll)
{
    for (int i = 0; i < CLIENTS; i++) {
        struct client *c = &s->client[i];
        if (poll[i].fd < 0 || poll[i].revents == 0) {
            continue;
        }
        if (c->state == CLIENT_WRITING) {
            send_answer(s, c);
        } else {
            receive(s, c);
        }
    }
    if (poll[CLIENTS].revents != 0) {
        accept_client(s);
    }
    int64_t now = now_ms();
    for (int i = 0; i < CLIENTS; i++) {
        if (s->client[i].fd >= 0 && s->client[i].deadline <= now) {
            expire(s, &s->client[i]);
        }
    }
}

int http_serve(struct http_server *s, const volatile sig_atomic_t *stop, const sigset_t *mask)
{
    while (!*stop) {
        struct pollfd poll[CLIENTS + 1];
        int64_t wait = prepare(s, poll);
        struct timespec timeout = {.tv_sec = wait / 1000, .tv_nsec = wait % 1000 * 1000000};
        if (ppoll(poll, CLIENTS + 1, &timeout, mask) < 0) {
            if (errno == EINTR) {
                continue;
            }
            return -errno;
        }
        handle(s, poll);
    }
    return 0;
}

void http_close(struct http_server *s)
{
    if (s == NULL) {
        return;
    }
    for (int i = 0; i < CLIENTS; i++) {
        if (s->client[i].fd >= 0) {
            drop(&s->client[i]);
        }
    }
    text_free(&s->body);
    close(s->fd);
    free(s);
}
