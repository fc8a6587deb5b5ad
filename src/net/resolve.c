#include "net/resolve.h"

#include "base/alloc.h"
#include "base/ref.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Shared by who waits and the thread that looks the name up. In malloc's memory: an abandoned lookup
 * may outlive everything else. */
struct lookup {
    struct base_ref refs;
    char port[6];
    task_mutex mu;
    struct task_queue waiter; /* mu */
    bool done, cancelled;     /* mu */
    int gai;                  /* mu */
    int sys_errno;            /* mu */
    struct addrinfo *list;    /* mu */
    char host[];
};

static int look_up(const char *host, const char *port, int flags, struct addrinfo **list)
{
    /* Without AI_ADDRCONFIG: it hides ::1 where no other IPv6 address is set up, and an address that
     * cannot be reached is found out by the attempt. */
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};

    return getaddrinfo(host, port, &hints, list);
}

/* RFC 6761 6.3: localhost is this machine, by either family, whatever else a file or server says. */
static bool is_localhost(const char *host)
{
    static const char name[] = "localhost";
    size_t len = strlen(host);

    if (len > 0 && host[len - 1] == '.')
        len--;
    return len >= sizeof name - 1 &&
           strncasecmp(host + len - (sizeof name - 1), name, sizeof name - 1) == 0 &&
           (len == sizeof name - 1 || host[len - sizeof name] == '.');
}

/* What need not be asked of anybody: literals, and localhost. */
static bool known(const char *host, const char *port, struct addrinfo **list)
{
    struct addrinfo *second = NULL;

    if (!is_localhost(host))
        return look_up(host, port, AI_NUMERICHOST, list) == 0;
    if (look_up("::1", port, AI_NUMERICHOST, list) != 0)
        return look_up("127.0.0.1", port, AI_NUMERICHOST, list) == 0;
    if (look_up("127.0.0.1", port, AI_NUMERICHOST, &second) == 0)
        (*list)->ai_next = second;
    return true;
}

static void lookup_put(struct lookup *l)
{
    if (!base_ref_put(&l->refs))
        return;
    if (l->list)
        freeaddrinfo(l->list);
    pthread_mutex_destroy(&l->mu);
    base_free(NULL, l);
}

static void lookup_main(void *arg)
{
    struct lookup *l = arg;
    struct addrinfo *list = NULL;
    int gai = look_up(l->host, l->port, 0, &list);
    int saved = errno;

    pthread_mutex_lock(&l->mu);
    l->gai = gai;
    l->sys_errno = saved;
    l->list = gai == 0 ? list : NULL;
    l->done = true;
    task_queue_wake_all(&l->waiter);
    pthread_mutex_unlock(&l->mu);
    lookup_put(l);
}

static void lookup_cancel(void *arg)
{
    struct lookup *l = arg;

    pthread_mutex_lock(&l->mu);
    l->cancelled = true;
    task_queue_wake_all(&l->waiter);
    pthread_mutex_unlock(&l->mu);
}

static int lookup_await(struct lookup *l, int64_t deadline, struct addrinfo **out, int *gai)
{
    int r = 0;

    pthread_mutex_lock(&l->mu);
    while (!l->done && !l->cancelled && r == 0)
        r = task_queue_wait(&l->waiter, &l->mu, deadline);
    if (l->cancelled) {
        r = -ECANCELED;
    } else if (l->done) {
        *gai = l->gai;
        *out = l->list;
        l->list = NULL;
        r = l->gai == 0 ? 0 : -EHOSTUNREACH;
        if (l->gai == EAI_SYSTEM)
            r = -l->sys_errno;
        if (l->gai == EAI_MEMORY)
            r = -ENOMEM;
    }
    pthread_mutex_unlock(&l->mu);
    return r;
}

int net_resolve(struct addrinfo **out, const char *host, uint16_t port, struct task_runtime *rt,
                int64_t deadline, struct task_cancel *cancel, int *gai)
{
    size_t len = strlen(host);
    struct task_cancel_link link;
    struct lookup *l;
    int r;

    *out = NULL;
    *gai = 0;
    l = base_calloc(NULL, sizeof *l + len + 1);
    if (!l)
        return -ENOMEM;
    base_ref_init(&l->refs);
    pthread_mutex_init(&l->mu, NULL);
    memcpy(l->host, host, len + 1);
    snprintf(l->port, sizeof l->port, "%u", (unsigned)port);
    if (known(l->host, l->port, out)) {
        lookup_put(l);
        return 0;
    }
    if (!task_cancel_join(&link, cancel, lookup_cancel, l)) {
        lookup_put(l);
        return -ECANCELED;
    }
    base_ref_get(&l->refs);
    r = task_background(rt, lookup_main, l);
    if (r == 0)
        r = lookup_await(l, deadline, out, gai);
    else
        lookup_put(l);
    task_cancel_leave(&link);
    lookup_put(l);
    return r;
}
