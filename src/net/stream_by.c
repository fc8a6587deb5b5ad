/* A stream of any kind, by a deadline: apart from what makes one, which fuzzers replace. */
#include "net/stream.h"

#include <errno.h>

ssize_t net_stream_recv_by(struct net_stream *st, void *buf, size_t len, int64_t deadline)
{
    ssize_t n;

    do {
        n = net_stream_await(st, deadline, 0);
        if (n == 0)
            n = net_stream_recv(st, buf, len);
    } while (n == -EAGAIN);
    return n;
}

int net_stream_send_by(struct net_stream *st, const void *data, size_t len, int64_t deadline)
{
    struct iovec rest = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};

    while (rest.iov_len > 0) {
        ssize_t n = net_stream_send(st, &rest, 1);

        if (n == -EAGAIN)
            n = net_stream_await_send(st, deadline); /* 0: nothing sent yet */
        if (n < 0)
            return (int)n;
        rest.iov_base = (char *)rest.iov_base + n;
        rest.iov_len -= (size_t)n;
    }
    return 0;
}
