/*
 * What OpenSSL reads from and writes to: ciphertext that has been received already, and the socket
 * without waiting, with a queue behind it. Writing always succeeds, so that OpenSSL never stops
 * half-way through a record, which would keep it from reading (a key update in between fails then).
 */
#include "net/tls_stream.h"

#include "base/alloc.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

/* More than a record and all that reading could have given rise to: the peer sends without end what
 * has to be answered, and reads nothing. */
#define PENDING_MAX (256 * 1024)

static bool reserve_locked(struct net_tls *t, size_t extra)
{
    uint32_t len = atomic_load_explicit(&t->out_len, memory_order_relaxed);
    size_t need = len + extra;
    size_t cap = t->out_cap ? t->out_cap : 1024;
    uint8_t *grown;

    if (need > PENDING_MAX)
        return false;
    if (t->out_begin > 0 && t->out_begin + need > t->out_cap) {
        memmove(t->out, t->out + t->out_begin, len);
        t->out_begin = 0;
    }
    if (t->out_begin + need <= t->out_cap)
        return true;
    while (cap < need)
        cap *= 2;
    grown = base_resize(t->allocator, t->out, cap);
    if (!grown)
        return false;
    t->out = grown;
    t->out_cap = (uint32_t)cap;
    return true;
}

/* Bytes that went. The whole error is remembered: later sends return it. */
static size_t send_locked(struct net_tls *t, const void *data, size_t len)
{
    size_t done = 0;

    while (done < len && !t->send_error) {
        struct iovec iov = {.iov_base = (uint8_t *)(uintptr_t)data + done, .iov_len = len - done};
        ssize_t n = task_send(t->sock, &iov, 1);

        if (n == -EAGAIN)
            break;
        if (n < 0)
            t->send_error = (int)n;
        else
            done += (size_t)n;
    }
    return done;
}

static void drop_out_locked(struct net_tls *t)
{
    base_free(t->allocator, t->out);
    t->out = NULL;
    t->out_begin = t->out_cap = 0;
    atomic_store_explicit(&t->out_len, 0, memory_order_relaxed);
}

int tls_flush_locked(struct net_tls *t)
{
    uint32_t len = atomic_load_explicit(&t->out_len, memory_order_relaxed);

    if (len > 0 && !t->send_error) {
        size_t n = send_locked(t, t->out + t->out_begin, len);

        t->out_begin += (uint32_t)n;
        len -= (uint32_t)n;
        atomic_store_explicit(&t->out_len, len, memory_order_relaxed);
    }
    if (t->send_error || len == 0)
        drop_out_locked(t);
    if (t->send_error)
        return t->send_error;
    if (len > 0)
        return -EAGAIN;
    if (t->shut_when_empty) {
        t->shut_when_empty = false;
        task_shutdown(t->sock, SHUT_WR);
    }
    return 0;
}

static void append_locked(struct net_tls *t, const uint8_t *data, size_t len)
{
    uint32_t have = atomic_load_explicit(&t->out_len, memory_order_relaxed);

    if (t->send_error || len == 0)
        return;
    if (!reserve_locked(t, len)) {
        t->send_error = -ENOMEM;
        return;
    }
    memcpy(t->out + t->out_begin + have, data, len);
    atomic_store_explicit(&t->out_len, have + (uint32_t)len, memory_order_relaxed);
}

static int bio_write(BIO *bio, const char *data, int len)
{
    struct net_tls *t = BIO_get_data(bio);
    size_t done = 0;

    if (len <= 0)
        return 0;
    if (!t->corked && atomic_load_explicit(&t->out_len, memory_order_relaxed) == 0)
        done = send_locked(t, data, (size_t)len);
    append_locked(t, (const uint8_t *)data + done, (size_t)len - done);
    return len;
}

static int bio_read(BIO *bio, char *buf, int size)
{
    struct net_tls *t = BIO_get_data(bio);
    size_t n = size > 0 ? (size_t)size : 0;

    BIO_clear_retry_flags(bio);
    if (n > t->in_left)
        n = t->in_left;
    if (n == 0) {
        BIO_set_retry_read(bio);
        return -1;
    }
    memcpy(buf, t->in, n);
    t->in += n;
    t->in_left -= n;
    return (int)n;
}

static long bio_ctrl(BIO *bio, int command, long number, void *arg)
{
    (void)bio;
    (void)number;
    (void)arg;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

BIO_METHOD *tls_bio_method(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "libtws");

    if (!method)
        return NULL;
    BIO_meth_set_write(method, bio_write);
    BIO_meth_set_read(method, bio_read);
    BIO_meth_set_ctrl(method, bio_ctrl);
    return method;
}

BIO *tls_bio_new(struct net_tls *t)
{
    BIO *bio = BIO_new(t->shared->method);

    if (!bio)
        return NULL;
    BIO_set_data(bio, t);
    BIO_set_init(bio, 1);
    return bio;
}

struct net_tls *tls_of(const SSL *ssl)
{
    return BIO_get_data(SSL_get_rbio(ssl));
}

void tls_enter_locked(struct net_tls *t, struct net_stream *st)
{
    t->sock = &st->sock;
}
