/* What stands in the place of the library's calls of the system. */
#include "inject_private.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FAIL(call, fd, result)                                                                     \
    do {                                                                                           \
        int fail_error_ = fault_strike(CALL_##call, fd);                                           \
        if (fail_error_) {                                                                         \
            errno = fail_error_;                                                                   \
            return result;                                                                         \
        }                                                                                          \
    } while (0)

/* One line for each: what it is declared as, and what it does. */
#define STAND_IN(type, name, ...)                                                                  \
    type fault_##name(__VA_ARGS__);                                                                \
    type fault_##name(__VA_ARGS__)

/* ---- Edges ---- */

/*
 * An edge-triggered set tells of bytes once. A transfer that was cut short, or told to try again, for
 * no reason of the system's must therefore bring the edge about itself.
 */
enum { MOST_FDS = 4096 };
static _Atomic int set_of[MOST_FDS];
static struct epoll_event event_of[MOST_FDS];

static void edge_again(int fd)
{
    if (fd >= 0 && fd < MOST_FDS && atomic_load(&set_of[fd]) > 0)
        epoll_ctl(atomic_load(&set_of[fd]), EPOLL_CTL_MOD, fd, &event_of[fd]);
}

STAND_IN(int, epoll_ctl, int set, int op, int fd, struct epoll_event *event)
{
    int r;

    if (op == EPOLL_CTL_ADD)
        FAIL(epoll_ctl, fd, -1);
    if (fd >= 0 && fd < MOST_FDS && event && op != EPOLL_CTL_DEL)
        event_of[fd] = *event;
    r = epoll_ctl(set, op, fd, event);
    if (fd >= 0 && fd < MOST_FDS)
        atomic_store(&set_of[fd], op == EPOLL_CTL_DEL || r != 0 ? 0 : set);
    return r;
}

/* ---- Transfers ---- */

/* After some errors a socket is of no use any more, and both sides see that. */
static void break_socket(int fd, int error)
{
    if (error == ECONNRESET || error == EPIPE || error == ETIMEDOUT || error == ENOTCONN)
        shutdown(fd, SHUT_RDWR);
}

#define FAIL_TRANSFER(call, fd, len)                                                               \
    size_t fault_wanted_ = len;                                                                    \
    int fail_error_ = fault_strike_transfer(CALL_##call, fd, &len);                                \
    if (fail_error_) {                                                                             \
        edge_again(fd);                                                                            \
        break_socket(fd, fail_error_);                                                             \
        errno = fail_error_;                                                                       \
        return -1;                                                                                 \
    }

static ssize_t cut(int fd, ssize_t n, bool was_cut)
{
    int saved = errno;

    if (n > 0 && was_cut)
        edge_again(fd);
    errno = saved;
    return n;
}

STAND_IN(ssize_t, recv, int fd, void *buf, size_t len, int flags)
{
    FAIL_TRANSFER(recv, fd, len)
    return cut(fd, recv(fd, buf, len, flags), len < fault_wanted_);
}

/* Descriptors that came with the bytes. */
static void see_received(struct msghdr *msg)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c))
        for (size_t at = CMSG_LEN(0); c->cmsg_type == SCM_RIGHTS && at < c->cmsg_len;
             at += sizeof(int)) {
            int fd;

            memcpy(&fd, (unsigned char *)c + at, sizeof fd);
            fault_fd_received(fd);
        }
}

STAND_IN(ssize_t, recvmsg, int fd, struct msghdr *msg, int flags)
{
    size_t len = msg->msg_iovlen ? msg->msg_iov[0].iov_len : 0, all = len, count = msg->msg_iovlen;
    ssize_t n;
    FAIL_TRANSFER(recvmsg, fd, len)

    (void)fault_wanted_;
    if (len < all) {
        msg->msg_iovlen = 1;
        msg->msg_iov[0].iov_len = len;
    }
    n = cut(fd, recvmsg(fd, msg, flags), len < all);
    if (n >= 0 && msg->msg_controllen > 0)
        see_received(msg);
    if (all) {
        msg->msg_iov[0].iov_len = all;
        msg->msg_iovlen = count;
    }
    return n;
}

STAND_IN(ssize_t, sendmsg, int fd, const struct msghdr *msg, int flags)
{
    struct iovec first;
    struct msghdr part = *msg;
    size_t len = 0, all;

    for (size_t i = 0; i < (size_t)msg->msg_iovlen; i++)
        len += msg->msg_iov[i].iov_len;
    all = len;
    {
        FAIL_TRANSFER(sendmsg, fd, len)
        (void)fault_wanted_;
    }
    if (len < all) {
        size_t i = 0;

        while (msg->msg_iov[i].iov_len == 0)
            i++;
        first = (struct iovec){msg->msg_iov[i].iov_base, len};
        part.msg_iov = &first;
        part.msg_iovlen = 1;
    }
    return cut(fd, sendmsg(fd, &part, flags), len < all);
}

STAND_IN(ssize_t, sendfile, int out, int in, off_t *offset, size_t len)
{
    FAIL_TRANSFER(sendfile, out, len)
    return cut(out, sendfile(out, in, offset, len), len < fault_wanted_);
}

STAND_IN(ssize_t, read, int fd, void *buf, size_t len)
{
    FAIL_TRANSFER(read, fd, len)
    (void)fault_wanted_;
    return read(fd, buf, len);
}

STAND_IN(ssize_t, pread, int fd, void *buf, size_t len, off_t offset)
{
    FAIL_TRANSFER(pread, fd, len)
    (void)fault_wanted_;
    return pread(fd, buf, len, offset);
}

STAND_IN(ssize_t, write, int fd, const void *buf, size_t len)
{
    FAIL(write, fd, -1);
    return write(fd, buf, len);
}

/* ---- Descriptors ---- */

static int made(int fd, bool counting)
{
    fault_fd_new(fd, counting);
    return fd;
}

/* One that was aborted is gone. */
STAND_IN(int, accept4, int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
    int error = fault_strike(CALL_accept4, fd), peer;

    if (error && error != ECONNABORTED) {
        errno = error;
        return -1;
    }
    peer = made(accept4(fd, addr, len, flags), false);
    if (peer >= 0 && error) {
        close(peer);
        errno = error;
        return -1;
    }
    return peer;
}

STAND_IN(int, socket, int domain, int type, int protocol)
{
    FAIL(socket, -1, -1);
    return made(socket(domain, type, protocol), false);
}

STAND_IN(int, socketpair, int domain, int type, int protocol, int fds[2])
{
    FAIL(socketpair, -1, -1);
    if (socketpair(domain, type, protocol, fds) < 0)
        return -1;
    made(fds[0], false);
    made(fds[1], false);
    return 0;
}

STAND_IN(int, eventfd, unsigned count, int flags)
{
    FAIL(eventfd, -1, -1);
    return made(eventfd(count, flags), true);
}

STAND_IN(int, epoll_create1, int flags)
{
    FAIL(epoll_create1, -1, -1);
    return made(epoll_create1(flags), false);
}

STAND_IN(int, open, const char *path, int flags, ...)
{
    mode_t mode = 0;
    va_list ap;

    va_start(ap, flags);
    if (flags & O_CREAT)
        mode = va_arg(ap, mode_t);
    va_end(ap);
    FAIL(open, -1, -1);
    return made(open(path, flags, mode), false);
}

STAND_IN(FILE *, fopen, const char *path, const char *mode)
{
    FAIL(fopen, -1, NULL);
    return fopen(path, mode);
}

STAND_IN(int, dup3, int from, int to, int flags)
{
    FAIL(dup3, to, -1);
    return dup3(from, to, flags);
}

/* Linux has closed it whatever it says. */
STAND_IN(int, close, int fd)
{
    int error = fault_strike(CALL_close, fd), r;

    if (fd >= 0 && fd < MOST_FDS)
        atomic_store(&set_of[fd], 0);
    r = close(fd);
    if (error) {
        errno = error;
        return -1;
    }
    return r;
}

/* Flags are never refused. */
STAND_IN(int, fcntl, int fd, int op, ...)
{
    va_list ap;
    long arg;

    va_start(ap, op);
    arg = va_arg(ap, long);
    va_end(ap);
    if (op != F_DUPFD_CLOEXEC)
        return fcntl(fd, op, arg);
    FAIL(fcntl, fd, -1);
    return made(fcntl(fd, op, arg), false);
}

STAND_IN(int, ioctl, int fd, unsigned long op, ...)
{
    va_list ap;
    void *arg;

    va_start(ap, op);
    arg = va_arg(ap, void *);
    va_end(ap);
    FAIL(ioctl, fd, -1);
    return ioctl(fd, op, arg);
}

/* ---- Sockets ---- */

STAND_IN(int, bind, int fd, const struct sockaddr *addr, socklen_t len)
{
    FAIL(bind, fd, -1);
    return bind(fd, addr, len);
}

STAND_IN(int, listen, int fd, int backlog)
{
    FAIL(listen, fd, -1);
    return listen(fd, backlog);
}

/* Interrupted, it goes on in the background. */
STAND_IN(int, connect, int fd, const struct sockaddr *addr, socklen_t len)
{
    int error = fault_strike(CALL_connect, fd);

    if (error == EINTR)
        connect(fd, addr, len);
    if (error) {
        errno = error;
        return -1;
    }
    return connect(fd, addr, len);
}

STAND_IN(int, setsockopt, int fd, int level, int name, const void *value, socklen_t len)
{
    FAIL(setsockopt, fd, -1);
    return setsockopt(fd, level, name, value, len);
}

STAND_IN(int, getsockopt, int fd, int level, int name, void *value, socklen_t *len)
{
    FAIL(getsockopt, fd, -1);
    return getsockopt(fd, level, name, value, len);
}

STAND_IN(int, getsockname, int fd, struct sockaddr *addr, socklen_t *len)
{
    FAIL(getsockname, fd, -1);
    return getsockname(fd, addr, len);
}

/* A reset by the peer disconnects; a Unix socket stays connected whatever the other side does. */
static bool can_be_reset(int fd)
{
    int domain = AF_UNIX;
    socklen_t len = sizeof domain;

    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len);
    return domain != AF_UNIX && !fault_was_received(fd);
}

STAND_IN(int, getpeername, int fd, struct sockaddr *addr, socklen_t *len)
{
    int error = fault_strike(CALL_getpeername, fd);

    if (error == ENOTCONN && !can_be_reset(fd))
        error = ENOBUFS;
    if (error) {
        break_socket(fd, error);
        errno = error;
        return -1;
    }
    return getpeername(fd, addr, len);
}

/* Not connected is what a socket is whose peer has gone: nobody can be waiting on it. */
STAND_IN(int, shutdown, int fd, int how)
{
    int error = fault_strike(CALL_shutdown, fd);
    int r = shutdown(fd, error ? SHUT_RDWR : how);

    if (error) {
        errno = error;
        return -1;
    }
    return r;
}

STAND_IN(int, getaddrinfo, const char *host, const char *port, const struct addrinfo *hints,
         struct addrinfo **out)
{
    int error = fault_strike(CALL_getaddrinfo, -1);

    if (error == EAI_SYSTEM)
        errno = EMFILE;
    return error ? error : getaddrinfo(host, port, hints, out);
}

/* ---- Waiting and time ---- */

STAND_IN(int, epoll_wait, int set, struct epoll_event *events, int most, int ms)
{
    FAIL(epoll_wait, -1, -1);
    return epoll_wait(set, events, most, ms);
}

STAND_IN(int, ppoll, struct pollfd *fds, nfds_t count, const struct timespec *wait,
         const sigset_t *mask)
{
    FAIL(ppoll, count ? fds[0].fd : -1, -1);
    return ppoll(fds, count, wait, mask);
}

STAND_IN(int, clock_gettime, clockid_t clock, struct timespec *ts)
{
    int r = clock_gettime(clock, ts);

    if (r == 0 && (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE))
        fault_clock(ts);
    return r;
}

STAND_IN(int, nanosleep, const struct timespec *wait, struct timespec *left)
{
    FAIL(nanosleep, -1, -1);
    return nanosleep(wait, left);
}

STAND_IN(int, clock_nanosleep, clockid_t clock, int flags, const struct timespec *at,
         struct timespec *left)
{
    struct timespec limit = *at;
    int error = fault_strike(CALL_clock_nanosleep, -1);

    if (error)
        return error;
    if (flags & TIMER_ABSTIME)
        fault_clock_to_system(&limit);
    return clock_nanosleep(clock, flags, &limit, left);
}

static long futex(va_list ap)
{
    uint32_t *word = va_arg(ap, uint32_t *);
    int op = va_arg(ap, int);
    uint32_t value = va_arg(ap, uint32_t);
    const struct timespec *at = va_arg(ap, const struct timespec *);
    struct timespec limit;

    if (op != FUTEX_WAIT_BITSET_PRIVATE)
        return syscall(SYS_futex, word, op, value, NULL, NULL, 0);
    FAIL(futex, -1, -1);
    if (at) {
        limit = *at;
        fault_clock_to_system(&limit);
    }
    return syscall(SYS_futex, word, op, value, at ? &limit : NULL, NULL, FUTEX_BITSET_MATCH_ANY);
}

STAND_IN(long, syscall, long number, ...)
{
    va_list ap;
    long r = 0;

    va_start(ap, number);
    if (number == SYS_futex) {
        r = futex(ap);
    } else if (number == SYS_sched_setattr) {
        int error = fault_strike(CALL_sched_setattr, -1);
        long pid = va_arg(ap, int);
        void *attr = va_arg(ap, void *);

        r = error ? -1 : syscall(number, pid, attr, 0);
        if (error)
            errno = error;
    } else {
        r = syscall(number);
    }
    va_end(ap);
    return r;
}

/* ---- Threads, pages, entropy ---- */

STAND_IN(int, pthread_create, pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *),
         void *arg)
{
    int error = fault_strike(CALL_pthread_create, -1);

    return error ? error : pthread_create(t, attr, fn, arg);
}

STAND_IN(int, sched_getaffinity, pid_t pid, size_t size, cpu_set_t *set)
{
    FAIL(sched_getaffinity, -1, -1);
    return sched_getaffinity(pid, size, set);
}

STAND_IN(void *, mmap, void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
    FAIL(mmap, -1, MAP_FAILED);
    return mmap(addr, len, prot, flags, fd, offset);
}

STAND_IN(int, mprotect, void *addr, size_t len, int prot)
{
    FAIL(mprotect, -1, -1);
    return mprotect(addr, len, prot);
}

STAND_IN(int, madvise, void *addr, size_t len, int advice)
{
    FAIL(madvise, -1, -1);
    return madvise(addr, len, advice);
}

STAND_IN(ssize_t, getrandom, void *buf, size_t len, unsigned flags)
{
    FAIL(getrandom, -1, -1);
    return getrandom(buf, len, flags);
}
