/* One connection to a Redis server. */
#include "redis/redis.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_PORT 6379
/* Received at most before replies are taken out: hiredis moves all that is left for each KiB of them. */
#define RECEIVE_MAX (64 * 1024)
#define PARTS_MAX 16

int64_t redis_now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* ---- Bytes ---- */

size_t link_pending(const struct link *l)
{
    return l->len - l->sent;
}

static bool make_room(struct link *l, size_t len)
{
    size_t cap = l->cap ? l->cap : 4096;
    char *out;

    if (l->sent > 0) {
        memmove(l->out, l->out + l->sent, l->len - l->sent);
        l->len -= l->sent;
        l->sent = 0;
    }
    while (cap - l->len < len)
        cap *= 2;
    if (cap == l->cap)
        return true;
    out = realloc(l->out, cap);
    if (!out)
        return false;
    l->out = out;
    l->cap = cap;
    return true;
}

bool link_command(struct link *l, int argc, const char **argv, const size_t *lens)
{
    char *text = NULL;
    int len = redisFormatCommandArgv(&text, argc, argv, lens);
    bool room;

    if (len < 0)
        return false;
    room = l->cap - l->len >= (size_t)len || make_room(l, (size_t)len);
    if (room) {
        memcpy(l->out + l->len, text, (size_t)len);
        l->len += (size_t)len;
    }
    redisFreeCommand(text);
    return room;
}

bool link_send(struct link *l)
{
    while (l->sent < l->len) {
        ssize_t n = send(l->fd, l->out + l->sent, l->len - l->sent, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK;
        l->sent += (size_t)n;
    }
    l->sent = l->len = 0;
    return true;
}

bool link_receive(struct link *l)
{
    char buf[16384];

    for (size_t got = 0; got < RECEIVE_MAX; got += sizeof buf) {
        ssize_t n = recv(l->fd, buf, sizeof buf, MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK;
        if (n == 0 || redisReaderFeed(l->reader, buf, (size_t)n) != REDIS_OK)
            return false;
        l->heard = redis_now_ms();
        if ((size_t)n < sizeof buf)
            break;
    }
    return true;
}

bool link_has_input(const struct link *l)
{
    struct pollfd p = {.fd = l->fd, .events = POLLIN};

    return poll(&p, 1, 0) > 0;
}

#if HIREDIS_MAJOR < 1
typedef int parts;
#else
typedef size_t parts;
#endif

/* hiredis makes room for as many parts as are announced; no answer to what is asked here has more. */
static void *few_parts(const redisReadTask *task, parts count)
{
    const redisReplyObjectFunctions *own = task->privdata;

    return count <= PARTS_MAX ? own->createArray(task, count) : NULL;
}

static bool make_reader(struct link *l)
{
    l->reader = redisReaderCreate();
    if (!l->reader)
        return false;
    l->functions = *l->reader->fn;
    l->functions.createArray = few_parts;
    l->reader->privdata = l->reader->fn;
    l->reader->fn = &l->functions;
    return true;
}

redisReply *link_reply(struct link *l, bool *broken)
{
    void *reply = NULL;

    *broken = redisReaderGetReply(l->reader, &reply) != REDIS_OK;
    return reply;
}

/* ---- Beginning and end ---- */

static redisContext *dial(const tws_redis_options *o)
{
    struct timeval tv = {o->connect_timeout / 1000, o->connect_timeout % 1000 * 1000};
    const char *at = o->address, *colon = strrchr(at, ':');
    size_t len = colon ? (size_t)(colon - at) : strlen(at);
    char host[256];
    int port = DEFAULT_PORT;

    if (*at == '/')
        return redisConnectUnixWithTimeout(at, tv);
    if (*at == '[') {
        at++;
        len = strcspn(at, "]");
        colon = at[len] && at[len + 1] == ':' ? at + len + 1 : NULL;
    }
    if (colon)
        port = (int)strtol(colon + 1, NULL, 10);
    snprintf(host, sizeof host, "%.*s", (int)len, at);
    return redisConnectWithTimeout(host, port, tv);
}

/* The next reply, waited for. */
static redisReply *await_reply(struct link *l, int64_t deadline)
{
    struct pollfd p = {.fd = l->fd, .events = POLLIN};
    redisReply *reply;
    bool broken;

    for (;;) {
        int64_t left = deadline - redis_now_ms();

        reply = link_reply(l, &broken);
        if (reply || broken || left <= 0)
            return reply;
        if (poll(&p, 1, (int)left) < 0 && errno != EINTR)
            return NULL;
        if (p.revents && !link_receive(l))
            return NULL;
    }
}

static bool expect_no_error(struct link *l, int64_t deadline, char *why, size_t size)
{
    redisReply *reply = await_reply(l, deadline);
    bool good = reply && reply->type != REDIS_REPLY_ERROR;

    if (!reply)
        snprintf(why, size, "no answer");
    else if (!good)
        snprintf(why, size, "%s", reply->str);
    if (reply)
        freeReplyObject(reply);
    return good;
}

/* A PING besides: an AUTH alone would not show that the server is ready. */
static bool sign_on(struct link *l, const tws_redis_options *o, char *why, size_t size)
{
    const char *auth[3] = {"AUTH", o->user ? o->user : o->password, o->password}, *ping = "PING";
    int64_t deadline = redis_now_ms() + o->connect_timeout;

    if ((o->password && !link_command(l, o->user ? 3 : 2, auth, NULL)) ||
        !link_command(l, 1, &ping, NULL) || !link_send(l)) {
        snprintf(why, size, "cannot send");
        return false;
    }
    if (o->password && !expect_no_error(l, deadline, why, size)) {
        /* Servers say "unknown command" with its arguments: of what they say only the first word. */
        size_t word = strspn(why, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");

        snprintf(why + word, size - word, "%sAUTH was not accepted", word > 0 ? ": " : "");
        return false;
    }
    return expect_no_error(l, deadline, why, size);
}

bool link_open(struct link *l, const tws_redis_options *o, char *why, size_t size)
{
    redisContext *c = dial(o);
    int one = 1;

    l->sent = l->len = 0;
    if (!c || c->err) {
        snprintf(why, size, "%s", c ? c->errstr : "no memory");
        redisFree(c);
        return false;
    }
    l->fd = redisFreeKeepFd(c);
    fcntl(l->fd, F_SETFD, FD_CLOEXEC);
    setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* fails for Unix sockets */
    l->heard = l->asked = redis_now_ms();
    if (!make_reader(l))
        snprintf(why, size, "no memory");
    else if (sign_on(l, o, why, size))
        return true;
    link_close(l);
    return false;
}

void link_close(struct link *l)
{
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
    if (l->reader)
        redisReaderFree(l->reader);
    l->reader = NULL;
    free(l->out);
    l->out = NULL;
    l->sent = l->len = l->cap = 0;
}
