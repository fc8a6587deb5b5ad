#include "task/pass.h"

#include "base/iov.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Descriptors that are looked at in one message, all but one of which are too many. */
#define FDS_MAX 16
#define PIECES_MAX 4

union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
};

/* After a call that has failed: 0 when it is to be made again, else why not. */
static int again(int sock, short events, int64_t deadline)
{
    if (errno == EINTR)
        return 0;
    return errno == EAGAIN ? task_poll_one(sock, events, deadline) : -errno;
}

static void attach(struct msghdr *msg, union control *control, int fd)
{
    struct cmsghdr *c;

    memset(control, 0, sizeof *control);
    msg->msg_control = control->bytes;
    msg->msg_controllen = CMSG_SPACE(sizeof fd);
    c = CMSG_FIRSTHDR(msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
}

int task_pass_send(int sock, const struct iovec *iov, int count, int fd, int64_t deadline,
                   bool *begun)
{
    struct iovec pieces[PIECES_MAX];
    struct msghdr msg = {.msg_iov = pieces};
    union control control;

    *begun = false;
    memcpy(pieces, iov, (size_t)count * sizeof *iov);
    if (fd >= 0)
        attach(&msg, &control, fd);
    while (count > 0) {
        ssize_t n;

        msg.msg_iovlen = (size_t)count;
        n = sendmsg(sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0) {
            int r = again(sock, POLLOUT, deadline);

            if (r < 0)
                return r;
            continue;
        }
        *begun = *begun || n > 0;
        if (n > 0)
            msg.msg_controllen = 0;
        base_iov_advance(&msg.msg_iov, &count, (size_t)n);
    }
    return 0;
}

/* The system had no room for the descriptor of a message in this process's table. */
static bool is_lost(struct msghdr *msg, const int *fd)
{
    return fd && *fd < 0 && (msg->msg_flags & MSG_CTRUNC) && !CMSG_FIRSTHDR(msg);
}

/* Takes the one descriptor that is wanted. False: there were others, which are closed. */
static bool detach(struct msghdr *msg, int *fd)
{
    bool good = !(msg->msg_flags & MSG_CTRUNC);

    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < n; i++) {
            int got;

            memcpy(&got, CMSG_DATA(c) + i * sizeof got, sizeof got);
            if (fd && *fd < 0) {
                *fd = got;
            } else {
                close(got);
                good = false;
            }
        }
    }
    return good;
}

ssize_t task_pass_recv(int sock, void *data, size_t len, int *fd, int64_t deadline, bool *begun)
{
    size_t got = 0;
    bool lost = false;

    *begun = false;
    if (fd)
        *fd = -1;
    while (got < len) {
        union control control;
        struct iovec iov = {.iov_base = (char *)data + got, .iov_len = len - got};
        struct msghdr msg = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
        ssize_t n = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

        if (n < 0) {
            int r = again(sock, POLLIN, deadline);

            if (r < 0)
                return r;
            continue;
        }
        if (is_lost(&msg, fd))
            lost = true;
        else if (!detach(&msg, fd))
            return -EBADMSG;
        if (n == 0)
            return got > 0 ? -EBADMSG : 0;
        *begun = true;
        got += (size_t)n;
    }
    return lost ? -EMFILE : (ssize_t)len;
}
