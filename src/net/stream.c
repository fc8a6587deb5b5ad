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

/* None of this can fail on a socket that is one, but for what Unix sockets have no use for. */
static void set_tcp(int fd, const struct net_tcp *tcp)
{
    int one = 1, receive = (int)tcp->receive_buffer, send = (int)tcp->send_buffer;

    if (tcp->nodelay)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (receive > 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive, sizeof receive);
    if (send > 0)
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send, sizeof send);
}

int net_stream_init(struct net_stream *st, struct task_runtime *rt, int fd,
                    const struct net_tcp *tcp)
{
    st->ops = &plain_ops;
    st->tls = NULL;
    if (tcp)
        set_tcp(fd, tcp);
    return task_socket_init(&st->sock, rt, fd);
}

int net_stream_inherit(struct net_stream *st, struct task_runtime *rt, int fd)
{
    st->ops = &plain_ops;
    st->tls = NULL;
    return task_socket_inherit(&st->sock, rt, fd);
}
