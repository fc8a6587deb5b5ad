/*
 * stream.h: a connected byte stream over TCP or a Unix socket, plain or TLS (tls.h).
 *
 * Results and waiting are those of task.h; nothing here knows frames.
 */
#ifndef NET_STREAM_H
#define NET_STREAM_H

#include "task/task.h"

struct net_stream;

struct net_stream_ops {
    int (*await)(struct net_stream *st, int64_t deadline, tws_ms period);
    ssize_t (*recv)(struct net_stream *st, void *buf, size_t len);
    ssize_t (*send)(struct net_stream *st, const struct iovec *iov, int count);
    int (*await_send)(struct net_stream *st, int64_t deadline);
    void (*shutdown)(struct net_stream *st, int how);
    void (*close)(struct net_stream *st);
};

struct net_tls;

struct net_stream {
    const struct net_stream_ops *ops;
    struct task_socket sock;
    struct net_tls *tls; /* NULL: plain */
};

/* Settings of a socket that the system keeps. */
struct net_tcp {
    bool nodelay;
    uint32_t receive_buffer, send_buffer; /* bytes; 0: as the system has it */
};

/* Takes fd over and makes it ready for threads of rt (NULL: kernel threads). 0 or -errno; then fd
 * is still the caller's. tcp: NULL leaves them as they are. */
int net_stream_init(struct net_stream *st, struct task_runtime *rt, int fd,
                    const struct net_tcp *tcp);

/* The same for a socket that another process has had. */
int net_stream_inherit(struct net_stream *st, struct task_runtime *rt, int fd);

static inline int net_stream_wakeable(struct net_stream *st)
{
    return task_socket_wakeable(&st->sock);
}

static inline void net_stream_nudge(struct net_stream *st)
{
    task_nudge(&st->sock);
}

/* Another process has it now; or it has had it, and not kept it. */
static inline void net_stream_forget(struct net_stream *st)
{
    task_socket_forget(&st->sock);
}

static inline void net_stream_again(struct net_stream *st)
{
    task_socket_again(&st->sock);
}

static inline int net_stream_await(struct net_stream *st, int64_t deadline, tws_ms period)
{
    return st->ops->await(st, deadline, period);
}

static inline ssize_t net_stream_recv(struct net_stream *st, void *buf, size_t len)
{
    return st->ops->recv(st, buf, len);
}

static inline ssize_t net_stream_send(struct net_stream *st, const struct iovec *iov, int count)
{
    return st->ops->send(st, iov, count);
}

/* Of plain streams, see task_send_file(). */
static inline ssize_t net_stream_send_file(struct net_stream *st, int fd, int64_t *offset,
                                           size_t len)
{
    return task_send_file(&st->sock, fd, offset, len);
}

static inline int net_stream_await_send(struct net_stream *st, int64_t deadline)
{
    return st->ops->await_send(st, deadline);
}

/* True when recv needs its buffer while it waits. */
static inline bool net_stream_recv_waits(const struct net_stream *st)
{
    return task_recv_waits(&st->sock);
}

/* The descriptor was seen to be readable. */
static inline void net_stream_hint_input(struct net_stream *st)
{
    task_hint_input(&st->sock);
}

/* Bytes sent that the peer's system has not acknowledged; 0 when that cannot be told. */
static inline int64_t net_stream_unsent(const struct net_stream *st)
{
    return task_unsent(&st->sock);
}

static inline void net_stream_interrupt(struct net_stream *st)
{
    task_interrupt(&st->sock);
}

/* For handshakes. Waits for input and takes it: bytes, 0 at its end, -ETIMEDOUT or -errno. */
ssize_t net_stream_recv_by(struct net_stream *st, void *buf, size_t len, int64_t deadline);
/* Sends all of it. 0, -ETIMEDOUT or -errno. */
int net_stream_send_by(struct net_stream *st, const void *data, size_t len, int64_t deadline);

static inline void net_stream_shutdown(struct net_stream *st, int how)
{
    st->ops->shutdown(st, how);
}

static inline void net_stream_close(struct net_stream *st)
{
    st->ops->close(st);
}

#endif
