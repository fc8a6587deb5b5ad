#include "net/listen.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Splits "HOST:PORT" or "[IPV6]:PORT"; an empty host means every address. */
static int split_host_port(const char *address, char *host, size_t host_size, const char **port)
{
    const char *colon = strrchr(address, ':');
    const char *begin = address;
    size_t len;

    if (!colon || colon[1] == 0 || strlen(colon + 1) > 5 ||
        colon[1 + strspn(colon + 1, "0123456789")] != 0 || strtoul(colon + 1, NULL, 10) > 65535)
        return -EINVAL;
    len = (size_t)(colon - begin);
    if (len >= 2 && begin[0] == '[' && begin[len - 1] == ']') {
        begin++;
        len -= 2;
    } else if (memchr(begin, ':', len)) {
        return -EINVAL; /* an IPv6 address needs brackets */
    }
    if (len >= host_size)
        return -EINVAL;
    memcpy(host, begin, len);
    host[len] = 0;
    *port = colon + 1;
    return 0;
}

static int open_listener(const struct sockaddr *addr, socklen_t len, int backlog, bool reuse_port)
{
    int one = 1;
    int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int saved;

    if (fd < 0)
        return -errno;
    if (addr->sa_family != AF_UNIX) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (reuse_port && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one) < 0)
            goto fail;
        /* "[::]:80" and "0.0.0.0:80" are two addresses; either may be asked for without the other. */
        if (addr->sa_family == AF_INET6)
            setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    }
    if (bind(fd, addr, len) < 0 || listen(fd, backlog) < 0)
        goto fail;
    return fd;
fail:
    saved = errno;
    close(fd);
    return -saved;
}

static int listen_tcp(struct net_listener *l, const char *address, int backlog, bool reuse_port)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    char host[256];
    const char *port = NULL;
    int r = split_host_port(address, host, sizeof host, &port);

    if (r < 0)
        return r;
    r = getaddrinfo(host[0] ? host : NULL, port, &hints, &list);
    if (r != 0)
        return r == EAI_MEMORY ? -ENOMEM : r == EAI_SYSTEM && errno ? -errno : -EADDRNOTAVAIL;
    r = -EADDRNOTAVAIL;
    for (struct addrinfo *ai = list; ai && r < 0; ai = ai->ai_next)
        r = open_listener(ai->ai_addr, ai->ai_addrlen, backlog, reuse_port);
    freeaddrinfo(list);
    if (r < 0)
        return r;
    l->fd = r;
    return 0;
}

/* A socket file that nobody accepts on is left over from a program that ended. */
static void remove_stale(const struct sockaddr_un *un, socklen_t len)
{
    struct stat st;
    int fd;

    if (lstat(un->sun_path, &st) < 0 || !S_ISSOCK(st.st_mode))
        return;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    if (connect(fd, (const struct sockaddr *)un, len) < 0 && errno == ECONNREFUSED)
        unlink(un->sun_path);
    close(fd);
}

static int listen_unix(struct net_listener *l, const char *path, int backlog)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    size_t n = strlen(path);
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    struct stat st;
    int fd;

    if (n == 0 || n >= sizeof un.sun_path)
        return -EINVAL;
    memcpy(un.sun_path, path, n);
    if (path[0] == '@')
        un.sun_path[0] = 0;
    else
        remove_stale(&un, ++len);
    fd = open_listener((struct sockaddr *)&un, len, backlog, false);
    if (fd < 0)
        return fd;
    l->fd = fd;
    if (path[0] != '@' && lstat(path, &st) == 0) {
        l->unlink_path = true;
        l->dev = st.st_dev;
        l->ino = st.st_ino;
    }
    return 0;
}

int net_listen(struct net_listener *l, const char *address, int backlog, bool reuse_port)
{
    l->fd = -1;
    l->unlink_path = false;
    l->inherited = l->provisional = false;
    if (strncmp(address, "unix:", 5) == 0)
        return listen_unix(l, address + 5, backlog);
    return listen_tcp(l, address, backlog, reuse_port);
}

void net_listener_close(struct net_listener *l)
{
    struct sockaddr_un un;
    socklen_t len = sizeof un;
    struct stat st;

    if (l->fd < 0)
        return;
    /* Only if nobody has put another file in its place meanwhile. */
    if (l->unlink_path && getsockname(l->fd, (struct sockaddr *)&un, &len) == 0 &&
        lstat(un.sun_path, &st) == 0 && st.st_dev == l->dev && st.st_ino == l->ino)
        unlink(un.sun_path);
    if (!l->provisional)
        close(l->fd);
    l->fd = -1;
}

int net_accept(const struct net_listener *l, struct sockaddr_storage *addr, socklen_t *len)
{
    int fd;

    *len = sizeof *addr;
    do
        fd = accept4(l->fd, (struct sockaddr *)addr, len, SOCK_CLOEXEC);
    while (fd < 0 && (errno == EINTR || errno == ECONNABORTED || errno == EPROTO));
    if (fd < 0)
        return errno == EWOULDBLOCK ? -EAGAIN : -errno;
    return fd;
}
