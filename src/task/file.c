/*
 * Files. Reading one may block for a moment, as a handler may: a light thread that is stuck in it is
 * noticed by the watch like any other.
 */
#include "task/task.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/sendfile.h>
#include <unistd.h>

/* sendfile has no flag against SIGPIPE either, which would come to the thread that called: it is blocked,
 * and taken away if it was raised. */
static ssize_t send_quietly(int to, int from, off_t *at, size_t len)
{
    static const struct timespec at_once;
    sigset_t pipe, old, before;
    ssize_t n;

    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigemptyset(&before);
    sigpending(&before);
    pthread_sigmask(SIG_BLOCK, &pipe, &old);
    do
        n = sendfile(to, from, at, len);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        n = task_failed(errno);
    if (n == -EPIPE && !sigismember(&before, SIGPIPE))
        while (sigtimedwait(&pipe, NULL, &at_once) < 0 && errno == EINTR) {
        }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return n;
}

/*
 * sendfile has no flag that says not to wait, and sockets of kernel threads block. So the socket is
 * made non-blocking for the length of the call. A reader that begins to receive in this moment waits by
 * poll instead.
 */
ssize_t task_send_file(struct task_socket *s, int fd, int64_t *offset, size_t len)
{
    int flags = s->light ? -1 : fcntl(s->fd, F_GETFL);
    off_t at = *offset;
    ssize_t n;

    if (flags >= 0)
        fcntl(s->fd, F_SETFL, flags | O_NONBLOCK);
    n = send_quietly(s->fd, fd, &at, len);
    if (flags >= 0)
        fcntl(s->fd, F_SETFL, flags);
    *offset = at;
    return n;
}

ssize_t task_file_read(int fd, void *buf, size_t len, int64_t offset)
{
    ssize_t n;

    do
        n = offset < 0 ? read(fd, buf, len) : pread(fd, buf, len, offset);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}
