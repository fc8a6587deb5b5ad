#include "lib/memory_stream.h"

#include <errno.h>
#include <sys/socket.h>

#include "base/random.h"

struct memory_stream memory;

static int memory_await(struct net_stream *st, int64_t deadline, tws_ms period)
{
    (void)st;
    (void)period;
    if (memory.pauses == 0 || ++memory.waits % memory.pauses != 0 || memory.paused ||
        memory.in_at == memory.in_len)
        return 0;
    memory.paused = true;
    return deadline == TASK_FOREVER ? -EAGAIN : -ETIMEDOUT;
}

static ssize_t memory_recv(struct net_stream *st, void *buf, size_t len)
{
    size_t n = memory.in_len - memory.in_at;
    size_t most = fuzz_next_cut(&memory.receives);

    (void)st;
    memory.paused = false;
    if (memory.ended_in || n == 0)
        return memory.reset && !memory.ended_in ? -ECONNRESET : 0;
    if (n > most)
        n = most;
    if (n > len)
        n = len;
    memcpy(buf, memory.in + memory.in_at, n);
    memory.in_at += n;
    return (ssize_t)n;
}

static ssize_t memory_send(struct net_stream *st, const struct iovec *iov, int count)
{
    size_t most = fuzz_next_cut(&memory.sends), sent = 0;

    (void)st;
    if (memory.ended_out || (memory.breaks_at > 0 && memory.out_len >= memory.breaks_at))
        return -EPIPE;
    memory.refused = !memory.refused && most % 4 == 1 && memory.sends.style > 1;
    if (memory.refused)
        return -EAGAIN;
    for (int i = 0; i < count && sent < most; i++) {
        size_t n = iov[i].iov_len < most - sent ? iov[i].iov_len : most - sent;
        size_t room = memory.out_len < MEMORY_OUT ? MEMORY_OUT - memory.out_len : 0;

        if (n > 0 && room > 0)
            memcpy(memory.out + memory.out_len, iov[i].iov_base, n < room ? n : room);
        memory.out_len += n;
        sent += n;
    }
    return (ssize_t)sent;
}

static int memory_await_send(struct net_stream *st, int64_t deadline)
{
    (void)st;
    (void)deadline;
    return 0;
}

static void memory_shutdown(struct net_stream *st, int how)
{
    (void)st;
    memory.ended_in = memory.ended_in || how != SHUT_WR;
    memory.ended_out = memory.ended_out || how != SHUT_RD;
}

static void memory_close(struct net_stream *st)
{
    (void)st;
    memory.closed++;
    FUZZ_CHECK(memory.closed == memory.opened);
}

static void memory_interrupt(struct task_socket *s)
{
    atomic_store(&s->interrupted, true);
}

static const struct net_stream_ops memory_ops = {
    .await = memory_await,
    .recv = memory_recv,
    .send = memory_send,
    .await_send = memory_await_send,
    .shutdown = memory_shutdown,
    .close = memory_close,
};

/*
 * TLS, where a redirect leads to it, works on the socket itself. What it sends goes nowhere: the
 * descriptor is none.
 */
static int memory_socket_await(struct task_socket *s, int64_t deadline, tws_ms period)
{
    (void)s;
    return memory_await(NULL, deadline, period);
}

static ssize_t memory_socket_recv(struct task_socket *s, void *buf, size_t len)
{
    (void)s;
    return memory_recv(NULL, buf, len);
}

static int memory_socket_await_send(struct task_socket *s, int64_t deadline)
{
    (void)s;
    return memory_await_send(NULL, deadline);
}

static void memory_socket_close(struct task_socket *s)
{
    (void)s;
    memory_close(NULL);
}

static const struct task_kind memory_kind = {
    .name = "memory",
    .socket_close = memory_socket_close,
    .await = memory_socket_await,
    .recv = memory_socket_recv,
    .await_send = memory_socket_await_send,
    .interrupt = memory_interrupt,
};

void memory_begin(const uint8_t *in, size_t len)
{
    static uint8_t out[MEMORY_OUT];

    memory = (struct memory_stream){.in = in, .in_len = len, .out = out};
}

int net_stream_init(struct net_stream *st, struct task_runtime *rt, int fd,
                    const struct net_tcp *tcp)
{
    (void)rt;
    (void)tcp;
    FUZZ_CHECK(memory.opened == memory.closed);
    memory.opened++;
    memory.ended_in = memory.ended_out = false;
    memset(st, 0, sizeof *st);
    st->ops = &memory_ops;
    st->sock.kind = &memory_kind;
    st->sock.fd = fd;
    st->sock.edge_fd = st->sock.wake_fd = -1;
    return 0;
}

struct net_stream memory_open(void)
{
    struct net_stream st;

    net_stream_init(&st, NULL, MEMORY_FD, NULL);
    return st;
}

/* The same key in every run, and one that masks: 0x41 'A' and so on. */
bool base_random(void *buf, size_t len)
{
    for (size_t i = 0; i < len; i++)
        ((uint8_t *)buf)[i] = (uint8_t)(0x41 + i % 16);
    return true;
}
