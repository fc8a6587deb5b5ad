/*
 * Redis. Uses only what every program may: the public headers, and hiredis. One thread of our own has
 * both connections: it connects, moves the bytes, and hands over what comes.
 */
#include "redis/redis.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* What stop() grants to messages that the server has not acknowledged. */
#define FLUSH_MS 1000

struct redis {
    tws_mutex *mu;
    tws_cond *changed; /* room, nothing pending any more, or stop */
    tws_group *group;
    tws_redis_options opt; /* its strings are the next ones */
    char *address, *user, *password;
    tws_cluster *cluster;
    int wake_fd;
    struct link pub, sub; /* mu: their output; the rest is the thread's */
    bool up, stop;        /* mu */
    uint64_t unanswered;  /* mu: published, without a reply yet */
    uint64_t errors;      /* mu */
    unsigned seed;
};

static void lock(struct redis *r)
{
    tws_mutex_lock(r->mu, TWS_NO_LIMIT);
}

static void unlock(struct redis *r)
{
    tws_mutex_unlock(r->mu);
}

static void wake(const struct redis *r)
{
    uint64_t one = 1;

    while (write(r->wake_fd, &one, sizeof one) < 0 && errno == EINTR) {
        /* A full counter wakes as well. */
    }
}

/* ---- What comes ---- */

static bool is_word(const redisReply *reply, const char *word)
{
    return reply->type == REDIS_REPLY_STRING && strcmp(reply->str, word) == 0;
}

static void handle(struct redis *r, const struct link *l, const redisReply *reply)
{
    if (l == &r->sub && reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
        is_word(reply->element[0], "message") && reply->element[1]->type == REDIS_REPLY_STRING &&
        reply->element[2]->type == REDIS_REPLY_STRING) {
        tws_broker_received(r->cluster, reply->element[1]->str, reply->element[2]->str,
                            reply->element[2]->len);
        return;
    }
    lock(r);
    r->errors += reply->type == REDIS_REPLY_ERROR;
    /* To PUBLISH the answer is a number, or an error; to PING it is neither. */
    if (l == &r->pub && r->unanswered > 0 &&
        (reply->type == REDIS_REPLY_INTEGER || reply->type == REDIS_REPLY_ERROR) &&
        --r->unanswered == 0)
        tws_cond_broadcast(r->changed);
    unlock(r);
}

static bool read_link(struct redis *r, struct link *l)
{
    bool alive = link_receive(l), broken = false;
    redisReply *reply;

    while ((reply = link_reply(l, &broken))) {
        handle(r, l, reply);
        freeReplyObject(reply);
    }
    return alive && !broken;
}

/* ---- Serving ---- */

/* False: a ping has not been answered in time. When this thread was kept for long, by what it handed
 * over or because the process stood still, the answer may wait in the socket. */
static bool look_after(struct redis *r, struct link *l, int64_t now)
{
    const char *ping = "PING";
    bool alive = true;

    if (l->asked > l->heard && now - l->asked >= r->opt.ping_interval && !link_has_input(l))
        return false;
    if (now - l->heard >= r->opt.ping_interval && now - l->asked >= r->opt.ping_interval) {
        l->asked = now;
        lock(r);
        alive = link_command(l, 1, &ping, NULL);
        unlock(r);
    }
    return alive;
}

/* Sends what there is; true for *more when the socket takes no more now. */
static bool write_link(struct redis *r, struct link *l, bool *more)
{
    bool alive;

    lock(r);
    alive = link_send(l);
    *more = link_pending(l) > 0;
    if (l == &r->pub && !*more)
        tws_cond_broadcast(r->changed);
    unlock(r);
    return alive;
}

static const char *serve(struct redis *r)
{
    struct pollfd p[3] = {
        {.fd = r->wake_fd, .events = POLLIN}, {.fd = r->pub.fd}, {.fd = r->sub.fd}};
    struct link *links[] = {&r->pub, &r->sub};
    uint64_t count;
    bool stop = false;

    while (!stop) {
        int64_t now = redis_now_ms();

        for (int i = 0; i < 2; i++) {
            bool more = false;

            if (!look_after(r, links[i], now))
                return "no answer";
            if (!write_link(r, links[i], &more))
                return "the connection was lost";
            p[i + 1].events = (short)(POLLIN | (more ? POLLOUT : 0));
        }
        poll(p, 3, (int)(r->opt.ping_interval < 1000 ? r->opt.ping_interval : 1000) / 2 + 1);
        if (p[0].revents && read(r->wake_fd, &count, sizeof count) < 0)
            count = 0;
        for (int i = 0; i < 2; i++)
            if (p[i + 1].revents & (POLLIN | POLLHUP | POLLERR) && !read_link(r, links[i]))
                return "the connection was lost";
        lock(r);
        stop = r->stop;
        unlock(r);
    }
    return "stopped";
}

static tws_ms delay_of(struct redis *r, unsigned failed)
{
    tws_ms delay = r->opt.retry_first;

    while (failed-- > 0 && delay < r->opt.retry_most)
        delay *= 2;
    if (delay > r->opt.retry_most)
        delay = r->opt.retry_most;
    r->seed = r->seed * 1103515245u + 12345u;
    delay = delay / 2 + (tws_ms)(r->seed >> 16) % (delay / 2 + 1);
    return delay > 0 ? delay : 1;
}

static void set_up(struct redis *r, bool up)
{
    lock(r);
    r->up = up;
    r->unanswered = 0;
    if (!up) {
        link_close(&r->pub);
        link_close(&r->sub);
    }
    tws_cond_broadcast(r->changed);
    unlock(r);
}

static void run(void *arg)
{
    struct redis *r = arg;
    char why[256];

    for (unsigned failed = 0;; failed++) {
        why[0] = 0;
        if (link_open(&r->pub, &r->opt, why, sizeof why) &&
            link_open(&r->sub, &r->opt, why, sizeof why)) {
            failed = 0;
            set_up(r, true);
            tws_broker_up(r->cluster, false, r->opt.address);
            snprintf(why, sizeof why, "%s", serve(r));
        }
        set_up(r, false);
        lock(r);
        if (r->stop) {
            unlock(r);
            return;
        }
        unlock(r);
        tws_broker_down(r->cluster, why);
        lock(r);
        if (!r->stop)
            tws_cond_wait(r->changed, r->mu, delay_of(r, failed));
        unlock(r);
    }
}

/* ---- The table ---- */

static tws_err redis_start(void *state, tws_cluster *c, tws_error *error)
{
    struct redis *r = state;

    (void)error;
    r->cluster = c;
    r->seed = (unsigned)(uintptr_t)c ^ (unsigned)redis_now_ms();
    return tws_group_spawn(r->group, run, r) == TWS_OK ? TWS_OK : TWS_ERR_SYSTEM;
}

/* Waits for something to change; false once the deadline has passed. mu is held. */
static bool changed_by(struct redis *r, int64_t deadline)
{
    int64_t left = deadline - redis_now_ms(); /* looked at once: 0 would mean for ever */

    if (left <= 0)
        return false;
    tws_cond_wait(r->changed, r->mu, left);
    return true;
}

static void redis_stop(void *state)
{
    struct redis *r = state;
    int64_t deadline = redis_now_ms() + FLUSH_MS;

    lock(r);
    while (r->up && r->unanswered > 0 && changed_by(r, deadline))
        ;
    r->stop = true;
    tws_cond_broadcast(r->changed);
    unlock(r);
    wake(r);
    tws_group_wait(r->group, TWS_NO_LIMIT);
}

/* mu is held. */
static tws_err command_locked(struct redis *r, struct link *l, int argc, const char **argv,
                              const size_t *lens)
{
    bool first = link_pending(l) == 0;

    if (!r->up)
        return TWS_ERR_CLOSED;
    if (!link_command(l, argc, argv, lens))
        return TWS_ERR_MEMORY;
    if (first)
        wake(r);
    return TWS_OK;
}

static tws_err redis_subscribe(void *state, const char *subject)
{
    struct redis *r = state;
    const char *argv[] = {"SUBSCRIBE", subject};
    tws_err err;

    lock(r);
    err = command_locked(r, &r->sub, 2, argv, NULL);
    unlock(r);
    return err;
}

static void redis_unsubscribe(void *state, const char *subject)
{
    struct redis *r = state;
    const char *argv[] = {"UNSUBSCRIBE", subject};

    lock(r);
    command_locked(r, &r->sub, 2, argv, NULL); /* without a connection there is nothing to end */
    unlock(r);
}

static tws_err redis_publish(void *state, const char *subject, const void *data, size_t len,
                             tws_ms ms)
{
    struct redis *r = state;
    const char *argv[] = {"PUBLISH", subject, data};
    const size_t lens[] = {strlen("PUBLISH"), strlen(subject), len};
    int64_t deadline = redis_now_ms() + ms;
    tws_err err = TWS_OK;

    lock(r);
    while (!err && r->up && link_pending(&r->pub) > r->opt.max_pending)
        if (!changed_by(r, deadline))
            err = TWS_ERR_TIMEOUT;
    if (!err)
        err = command_locked(r, &r->pub, 3, argv, lens);
    if (!err)
        r->unanswered++;
    unlock(r);
    return err;
}

static void redis_look(void *state, tws_broker_stats *out)
{
    struct redis *r = state;

    lock(r);
    out->pending_bytes = r->up ? link_pending(&r->pub) : 0;
    out->errors = r->errors;
    unlock(r);
}

static void redis_release(void *state)
{
    struct redis *r = state;

    tws_group_free(r->group);
    link_close(&r->pub);
    link_close(&r->sub);
    if (r->wake_fd >= 0)
        close(r->wake_fd);
    tws_cond_free(r->changed);
    tws_mutex_free(r->mu);
    free(r->address);
    free(r->user);
    free(r->password);
    free(r);
}

/* ---- Options ---- */

void tws_redis_options_init_sized(tws_redis_options *opt, size_t size)
{
    tws_redis_options o;

    memset(&o, 0, sizeof o);
    o.size = size;
    o.address = "127.0.0.1:6379";
    o.connect_timeout = 2000;
    o.ping_interval = 2000;
    o.retry_first = 50;
    o.retry_most = 500;
    o.max_pending = 1u << 20;
    memset(opt, 0, size);
    memcpy(opt, &o, size < sizeof o ? size : sizeof o);
}

static tws_err refuse(tws_error *error, tws_err err, const char *text)
{
    if (error) {
        memset(error, 0, sizeof *error);
        error->code = err;
        error->cause = TWS_CAUSE_LOCAL;
        snprintf(error->text, sizeof error->text, "redis: %s", text);
    }
    return err;
}

static bool is_time(tws_ms ms)
{
    return ms > 0 && ms <= 3600000;
}

static const char *refusal(const tws_redis_options *o)
{
    if (!o->address || !*o->address || strlen(o->address) > 255)
        return "an address has 1 to 255 bytes";
    if (strstr(o->address, "://"))
        return "an address is HOST:PORT or a path; there is no TLS";
    if (o->user && !o->password)
        return "a user needs a password";
    if (!is_time(o->connect_timeout) || !is_time(o->ping_interval) || !is_time(o->retry_first) ||
        !is_time(o->retry_most))
        return "times are 1 to 3,600,000 ms";
    if (o->retry_most < o->retry_first)
        return "retry_most is below retry_first";
    return NULL;
}

static bool keep(const char **option, char **copy)
{
    *copy = *option ? strdup(*option) : NULL;
    if (*option && !*copy)
        return false;
    *option = *copy;
    return true;
}

static bool make_parts(struct redis *r)
{
    tws_group_options group;

    tws_group_options_init(&group);
    r->mu = tws_mutex_new();
    r->changed = tws_cond_new();
    return r->mu && r->changed && keep(&r->opt.address, &r->address) &&
           keep(&r->opt.user, &r->user) && keep(&r->opt.password, &r->password) &&
           tws_group_new(&r->group, &group) == TWS_OK;
}

tws_err tws_redis_open(tws_broker *out, const tws_redis_options *opt, tws_error *error)
{
    struct redis *r = calloc(1, sizeof *r);
    const char *why;
    tws_err err = TWS_OK;

    tws_broker_init(out);
    if (!r)
        return refuse(error, TWS_ERR_MEMORY, "no memory");
    r->wake_fd = r->pub.fd = r->sub.fd = -1;
    tws_redis_options_init(&r->opt);
    if (opt)
        memcpy(&r->opt, opt, opt->size < sizeof r->opt ? opt->size : sizeof r->opt);
    why = opt && opt->size == 0 ? "options without an initialiser" : refusal(&r->opt);
    if (why)
        err = refuse(error, TWS_ERR_ARGUMENT, why);
    else if (!make_parts(r))
        err = refuse(error, TWS_ERR_MEMORY, "no memory");
    else if ((r->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
        err = refuse(error, TWS_ERR_SYSTEM, "no descriptor");
    if (err) {
        redis_release(r);
        return err;
    }
    out->name = "redis";
    out->state = r;
    out->start = redis_start;
    out->stop = redis_stop;
    out->subscribe = redis_subscribe;
    out->unsubscribe = redis_unsubscribe;
    out->publish = redis_publish;
    out->look = redis_look;
    out->release = redis_release;
    return TWS_OK;
}
