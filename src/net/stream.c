#include "net/stream.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static int plain_await(struct net_stream *st, int64_t deadline, tws_ms period)
{
    return task_await(&st->sock, deadline, period);
}

static ssize_t plain_recv(struct net_stream *st, void *buf, size_t len)
{
    return task_recv(&st->sock, buf, len);
}

static ssize_t plain_send(struct net_stream *st, const struct iovec *iov, int count)
{
    return task_send(&st->sock, iov, count);
}

static int plain_await_send(struct net_stream *st, int64_t deadline)
{
    return task_await_send(&st->sock, deadline);
}

static void plain_shutdown(struct net_stream *st, int how)
{
    task_shutdown(&st->sock, how);
}

static void plain_close(struct net_stream *st)
{
    task_socket_close(&st->sock);
}

static const struct net_stream_ops plain_ops = {
    .await = plain_await,
    .recv = plain_recv,
    .send = plain_send,
    .await_send = plain_await_send,
    .shutdown = plain_shutdown,
    .close = plain_close,
};

int net_stream_init(struct net_stream *st, struct task_runtime *rt, int fd, bool nodelay)
{
    int one = 1;

    st->ops = &plain_ops;
    st->tls = NULL;
    if (nodelay) /* refused by Unix sockets, which need no such thing */
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return task_socket_init(&st->sock, rt, fd);
}

int net_stream_inherit(struct net_stream *st, struct task_runtime *rt, int fd)
{
    st->ops = &plain_ops;
    st->tls = NULL;
    return task_socket_inherit(&st->sock, rt, fd);
}
