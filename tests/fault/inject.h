/*
 * inject.h: faults for the library. Its calls of the system and of malloc are renamed in the object
 * code (calls.txt), so that they come here first; those of the tests do not. OpenSSL's memory comes
 * here too.
 */
#ifndef TESTS_FAULT_INJECT_H
#define TESTS_FAULT_INJECT_H

#include <stdbool.h>

#include <tws/types.h>

enum fault_mode {
    FAULT_NONE,
    FAULT_HOOK,      /* the caller's allocator fails at a position */
    FAULT_MEMORY,    /* any allocation of library, zlib or OpenSSL does */
    FAULT_CALL,      /* the system call at a position does, with each of its errors */
    FAULT_KIND,      /* one kind of call does, from its n-th on */
    FAULT_LEAP,      /* at a reading of the clock an hour has passed */
    FAULT_STILL,     /* from a reading of the clock on it stands still */
    FAULT_SHORT,     /* every read and write moves one byte */
    FAULT_INTERRUPT, /* every second call is interrupted */
    FAULT_AGAIN,     /* every second transfer says EAGAIN */
    FAULT_SIGNALS    /* signals all the time */
};

#define FAULT_CALLS(X)                                                                             \
    X(accept4, ECONNABORTED, EMFILE, ENFILE, ENOBUFS, EINTR)                                       \
    X(bind, EADDRINUSE, EACCES)                                                                    \
    X(clock_nanosleep, EINTR)                                                                      \
    X(close, EINTR, EIO)                                                                           \
    X(connect, ECONNREFUSED, ETIMEDOUT, ENETUNREACH, EINTR)                                        \
    X(dup3, EBUSY, EINTR)                                                                          \
    X(epoll_create1, EMFILE, ENOMEM)                                                               \
    X(epoll_ctl, ENOMEM, ENOSPC)                                                                   \
    X(epoll_wait, EINTR)                                                                           \
    X(eventfd, EMFILE, ENFILE, ENOMEM)                                                             \
    X(fcntl, EMFILE)                                                                               \
    X(fopen, EMFILE, ENOMEM)                                                                       \
    X(futex, EINTR, EAGAIN)                                                                        \
    X(getaddrinfo, EAI_MEMORY, EAI_AGAIN, EAI_NONAME, EAI_SYSTEM)                                  \
    X(getpeername, ENOTCONN, ENOBUFS)                                                              \
    X(getrandom, ENOSYS, EIO, EINTR)                                                               \
    X(getsockname, ENOBUFS)                                                                        \
    X(getsockopt, ENOBUFS)                                                                         \
    X(ioctl, EINVAL)                                                                               \
    X(listen, EADDRINUSE)                                                                          \
    X(madvise, ENOMEM)                                                                             \
    X(mmap, ENOMEM)                                                                                \
    X(mprotect, ENOMEM)                                                                            \
    X(nanosleep, EINTR)                                                                            \
    X(open, EMFILE, ENFILE)                                                                        \
    X(ppoll, ENOMEM, EINTR)                                                                        \
    X(pread, EIO, EINTR)                                                                           \
    X(pthread_create, EAGAIN)                                                                      \
    X(read, EIO, EINTR, EAGAIN)                                                                    \
    X(recv, ECONNRESET, ETIMEDOUT, ENOMEM, EINTR, EAGAIN)                                          \
    X(recvmsg, ECONNRESET, ENOMEM, EINTR, EAGAIN)                                                  \
    X(sched_getaffinity, ENOSYS)                                                                   \
    X(sched_setattr, EPERM)                                                                        \
    X(sendfile, ECONNRESET, EINVAL, EIO, ENOMEM, EINTR, EAGAIN)                                    \
    X(sendmsg, EPIPE, ECONNRESET, ENOBUFS, ENOMEM, ETIMEDOUT, EINTR, EAGAIN)                       \
    X(setsockopt, ENOBUFS)                                                                         \
    X(shutdown, ENOTCONN)                                                                          \
    X(socket, EMFILE, ENFILE, ENOBUFS, EAFNOSUPPORT)                                               \
    X(socketpair, EMFILE, ENFILE)                                                                  \
    X(write, EINTR)

enum fault_call {
#define FAULT_ENUM_(name, ...) CALL_##name,
    FAULT_CALLS(FAULT_ENUM_)
#undef FAULT_ENUM_
        CALL_COUNT
};

/* A position that is never reached: for counting. */
#define FAULT_NEVER (1L << 40)

struct fault_plan {
    enum fault_mode mode;
    long position;    /* from 1 */
    bool onward;      /* all later ones too */
    unsigned variant; /* which of the errors */
    int call;         /* FAULT_KIND */
};

/* Before anything of OpenSSL. */
void fault_init(void);
/* Begins to count. NULL: no faults. */
void fault_arm(const struct fault_plan *plan);
/* While paused nothing is counted, and nothing fails. */
void fault_pause(bool paused);
/* Sockets that are connected now are spared from now on. */
void fault_spare_open(void);
/* How many positions were passed since fault_arm(), and whether something was made to fail. */
long fault_seen(void);
bool fault_struck(void);
/* Whether others are hit as well: an hour has passed for all. */
bool fault_everywhere(void);
/* Whether OpenSSL is short of memory too; whether an allocation of its own has failed. */
bool fault_in_openssl(void);
bool fault_struck_openssl(void);
/* Whether calls must not notice. */
bool fault_is_mild(void);
/* The kinds of the calls that were counted, up to so many; how many. */
long fault_trace(unsigned char *kinds, long most);
const char *fault_call_name(int call);
unsigned fault_call_errors(int call);

/* Blocks of the library, and of OpenSSL. */
long fault_live(void);
long fault_live_openssl(void);
/* The caller's allocator; NULL unless FAULT_HOOK. */
const tws_allocator *fault_allocator(void);

#endif
