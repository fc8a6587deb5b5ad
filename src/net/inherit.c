#include "net/inherit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* sd_listen_fds(3) */
#define FIRST_FD 3
#define MAX_FDS 1024

static int fault(const char **why, int error, const char *text)
{
    *why = text;
    return -error;
}

/* A number and nothing else; -1 when it is none. */
static long number(const char *text)
{
    char *end;
    long n;

    if (text[strspn(text, "0123456789")] != 0 || text[0] == 0)
        return -1;
    errno = 0;
    n = strtol(text, &end, 10);
    return errno == 0 && n <= INT_MAX ? n : -1;
}

/* Whether the descriptor at `index` has that name. */
static bool is_named(const char *names, long index, const char *wanted)
{
    size_t len;

    while (names && index-- > 0) {
        names = strchr(names, ':');
        if (names)
            names++;
    }
    if (!names)
        return false;
    len = strcspn(names, ":");
    return len == strlen(wanted) && memcmp(names, wanted, len) == 0;
}

static int from_manager(const char *wanted, int *fds, int max, const char **why)
{
    const char *pid = getenv("LISTEN_PID");
    const char *count = getenv("LISTEN_FDS");
    const char *names = getenv("LISTEN_FDNAMES");
    long n = count ? number(count) : 0;
    int found = 0;

    if (!pid || !count)
        return fault(why, ENOENT, "LISTEN_PID or LISTEN_FDS is not set: nobody has passed sockets");
    if (number(pid) != (long)getpid())
        return fault(why, ESRCH,
                     "LISTEN_PID names another process: the sockets are not for this one");
    if (n < 1 || n > MAX_FDS)
        return fault(why, EINVAL, "LISTEN_FDS is no number from 1 to 1,024");
    for (long i = 0; i < n; i++) {
        int fd = FIRST_FD + (int)i;

        if (wanted[0] && !is_named(names, i, wanted))
            continue;
        if (fcntl(fd, F_GETFD) > 0)
            return fault(why, EBUSY, "a passed socket is close-on-exec, so somebody has taken it");
        if (found < max)
            fds[found] = fd;
        found++;
    }
    return found > 0 ? found : fault(why, ENOENT, "no socket of that name in LISTEN_FDNAMES");
}

int net_inherited(const char *address, int *fds, int max, const char **why)
{
    long fd;

    if (strncmp(address, "systemd:", 8) == 0)
        return from_manager(address + 8, fds, max, why);
    if (strncmp(address, "fd:", 3) != 0)
        return 0;
    fd = number(address + 3);
    if (fd < 0)
        return fault(why, EINVAL, "not a number");
    if (max > 0)
        fds[0] = (int)fd;
    return 1;
}

static int option(int fd, int name)
{
    int value = 0;
    socklen_t len = sizeof value;

    return getsockopt(fd, SOL_SOCKET, name, &value, &len) < 0 ? -errno : value;
}

int net_listen_inherited(struct net_listener *l, int fd, const char **why)
{
    int flags = fcntl(fd, F_GETFL);
    int domain;

    l->fd = -1;
    l->unlink_path = false;
    if (flags < 0)
        return fault(why, EBADF, "no such descriptor");
    domain = option(fd, SO_DOMAIN);
    if (domain < 0)
        return fault(why, ENOTSOCK, "not a socket");
    if (domain != AF_INET && domain != AF_INET6 && domain != AF_UNIX)
        return fault(why, EAFNOSUPPORT, "neither an IP nor a Unix socket");
    if (option(fd, SO_TYPE) != SOCK_STREAM)
        return fault(why, EPROTOTYPE, "not a stream socket");
    if (option(fd, SO_ACCEPTCONN) != 1)
        return fault(why, EINVAL, "not listening (a connection, or listen() was not called)");
    /* Of all processes that have it: between poll and accept another one may take the connection, and
     * a blocking accept would wait for the next one. Never undone: others rely on it by then. */
    if (!(flags & O_NONBLOCK) && fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return fault(why, errno, "cannot be made non-blocking");
    l->fd = fd;
    l->inherited = l->provisional = true;
    return 0;
}

void net_listener_own(struct net_listener *l, bool own)
{
    if (!l->inherited)
        return;
    fcntl(l->fd, F_SETFD, own ? FD_CLOEXEC : 0);
    l->provisional = !own;
}

int net_connected(int fd, union net_peer *peer)
{
    struct sockaddr_storage addr = {.ss_family = AF_UNSPEC};
    socklen_t len = sizeof addr;
    int type = option(fd, SO_TYPE);

    if (type == -EBADF || (type >= 0 && type != SOCK_STREAM))
        return -ENOTSOCK;
    if (type < 0)
        return type;
    if (getpeername(fd, (struct sockaddr *)&addr, &len) < 0)
        return -errno;
    net_peer_save(peer, (struct sockaddr *)&addr);
    return option(fd, SO_DOMAIN);
}
