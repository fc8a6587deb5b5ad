#include "stats.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>

const char *error_name(enum error_kind kind)
{
#define ERROR_NAME(id, name) name,
    static const char *const names[] = {ERROR_KINDS(ERROR_NAME)};
#undef ERROR_NAME
    return names[kind];
}

enum error_kind error_from_errno(int err)
{
    switch (err) {
    case ECONNREFUSED:
        return ERR_REFUSED;
    case ECONNRESET:
    case EPIPE:
    case ECONNABORTED:
        return ERR_RESET;
    case ETIMEDOUT:
        return ERR_CONNECT_TIMEOUT;
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ENETDOWN:
        return ERR_UNREACHABLE;
    case EADDRNOTAVAIL:
    case EADDRINUSE:
        return ERR_NO_PORT;
    default:
        return ERR_IO;
    }
}

static void add_all(counter *dst, const counter *src, size_t n)
{
    for (size_t i = 0; i < n; i++)
        counter_add(&dst[i], counter_get(&src[i]));
}

void stats_merge(struct stats *dst, const struct stats *src)
{
    static const size_t plain[] = {
        offsetof(struct stats, sent),       offsetof(struct stats, received),
        offsetof(struct stats, bytes_up),   offsetof(struct stats, bytes_down),
        offsetof(struct stats, payload_up), offsetof(struct stats, payload_down),
        offsetof(struct stats, scheduled),  offsetof(struct stats, expected),
        offsetof(struct stats, in_flight),  offsetof(struct stats, written_off),
        offsetof(struct stats, censored),   offsetof(struct stats, connecting),
        offsetof(struct stats, opened),     offsetof(struct stats, open_now),
        offsetof(struct stats, failed),     offsetof(struct stats, lost),
        offsetof(struct stats, deflated),   offsetof(struct stats, muted_closed),
        offsetof(struct stats, behind),     offsetof(struct stats, queued),
    };
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        add_all((counter *)((char *)dst + plain[i]),
                (const counter *)((const char *)src + plain[i]), 1);
    if (counter_get(&src->last_open_ns) > counter_get(&dst->last_open_ns))
        counter_set(&dst->last_open_ns, counter_get(&src->last_open_ns));
    add_all(dst->errors, src->errors, ERR_KINDS);
    add_all(dst->status, src->status, STATUS_CODES);
    add_all(dst->closed, src->closed, CLOSE_CODES);
    for (int i = 0; i < WHEN_COUNT; i++) {
        hist_merge(&dst->latency[i], &src->latency[i]);
        hist_merge(&dst->lag[i], &src->lag[i]);
    }
    hist_merge(&dst->connect, &src->connect);
    hist_merge(&dst->handshake, &src->handshake);
}

void stats_errors(const struct stats *s, void (*fn)(void *arg, const char *kind, uint64_t n),
                  void *arg)
{
    char name[32];
    for (int i = 0; i < ERR_KINDS; i++)
        if (counter_get(&s->errors[i]) != 0)
            fn(arg, error_name((enum error_kind)i), counter_get(&s->errors[i]));
    for (int i = 0; i < STATUS_CODES; i++) {
        if (counter_get(&s->status[i]) == 0)
            continue;
        snprintf(name, sizeof name, "handshake_status_%03d", i);
        fn(arg, name, counter_get(&s->status[i]));
    }
    for (int i = 0; i < CLOSE_CODES; i++) {
        if (counter_get(&s->closed[i]) == 0)
            continue;
        snprintf(name, sizeof name, "closed_%d", CLOSE_FIRST + i);
        fn(arg, name, counter_get(&s->closed[i]));
    }
}

static void add_error(void *arg, const char *kind, uint64_t n)
{
    (void)kind;
    *(uint64_t *)arg += n;
}

uint64_t stats_error_total(const struct stats *s)
{
    uint64_t n = 0;
    stats_errors(s, add_error, &n);
    return n;
}
