/* A TLS stream's calls: waiting, receiving, sending, ending. */
#include "net/tls_stream.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <openssl/err.h>

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#define RECORD_HEAD 5
/* With less, ciphertext would come in crumbs. */
#define LITTLE_ROOM 512
/* Pieces are put together here to leave as one record; larger ones in a borrowed buffer. */
#define SMALL_RECORD 1536
/* Records of one send: then the lock is free for a moment, for the reader. */
#define SEND_RECORDS 4
/* How often a waiting reader tries to send what only reading gave rise to and the socket did not take:
 * nobody else may ever send again. */
#define PENDING_MS 50
/* A record comes in fewer receives than that. */
#define BARREN_MAX 64

static struct net_tls *lock(struct net_stream *st)
{
    struct net_tls *t = st->tls;

    pthread_mutex_lock(&t->mu);
    tls_enter_locked(t, st);
    return t;
}

static void unlock(struct net_tls *t)
{
    pthread_mutex_unlock(&t->mu);
}

/* OpenSSL judges its calls by what is in this thread's queue of errors. Clearing it costs as much as
 * decrypting a small record, so it is looked at first. */
static void clear_errors(void)
{
    if (ERR_peek_error() != 0)
        ERR_clear_error();
}

/* ---- Where records begin ---- */

void tls_track(struct net_tls *t, const uint8_t *data, size_t len)
{
    while (len > 0) {
        size_t n;

        if (t->body_left > 0) {
            n = len < t->body_left ? len : t->body_left;
            t->body_left = (uint16_t)(t->body_left - n);
        } else {
            n = RECORD_HEAD - t->head_len < (int)len ? (size_t)(RECORD_HEAD - t->head_len) : len;
            memcpy(t->head + t->head_len, data, n);
            t->head_len = (uint8_t)(t->head_len + n);
            if (t->head_len == RECORD_HEAD) {
                t->body_left = (uint16_t)(t->head[3] << 8 | t->head[4]);
                t->head_len = 0;
            }
        }
        data += n;
        len -= n;
    }
}

/* How much may be received into the caller's buffer at once. Inside a record no more than its rest:
 * OpenSSL holds its beginning, so its plaintext may be longer than what is received now, and would
 * run over ciphertext behind it. */
static size_t receive_limit(const struct net_tls *t, size_t size)
{
    size_t rest = t->body_left;

    if (t->head_len > 0)
        rest = RECORD_HEAD - t->head_len;
    return rest > 0 && rest < size ? rest : size;
}

/* ---- Receiving ---- */

static void stash_free(struct net_tls *t)
{
    if (t->stash)
        base_pool_put(&t->shared->buffers, t->stash);
    t->stash = NULL;
    t->stash_begin = t->stash_end = 0;
}

/* Decrypts what is there, as far as buf has room. */
static size_t decrypt_locked(struct net_tls *t, uint8_t *buf, size_t size)
{
    size_t done = 0;

    clear_errors();
    while (done < size) {
        size_t n = 0, left = t->in_left;
        int r = SSL_read_ex(t->ssl, buf + done, size - done, &n);

        if (r == 1) {
            done += n;
            if (t->in_left == 0 && SSL_pending(t->ssl) == 0)
                break;
            continue;
        }
        r = SSL_get_error(t->ssl, r);
        if (r == SSL_ERROR_ZERO_RETURN)
            t->got_close = true;
        else if (r != SSL_ERROR_WANT_READ)
            t->failed = tls_failure_locked(t, r);
        else if (t->in_left > 0 && t->in_left < left)
            continue; /* a message of TLS itself was handled; there is more */
        break;
    }
    if (!t->failed && tls_updates_too_many_locked(t))
        t->failed = -EOVERFLOW;
    t->more = !t->got_close && !t->failed && (t->in_left > 0 || SSL_pending(t->ssl) > 0);
    return done;
}

static size_t decrypt(struct net_stream *st, const uint8_t *in, size_t in_len, uint8_t *buf,
                      size_t size)
{
    struct net_tls *t = lock(st);
    size_t n;

    t->in = in;
    t->in_left = in_len;
    n = decrypt_locked(t, buf, size);
    if (in == NULL || in != buf) { /* from the stash */
        t->stash_begin = t->stash_end - (uint32_t)t->in_left;
        if (t->in_left == 0)
            stash_free(t);
    }
    t->in = NULL;
    t->in_left = 0;
    /* An adopted SSL may have begun to read a record; once it has nothing, records can be followed. */
    if (!t->tracked && !t->more && !SSL_has_pending(t->ssl) &&
        strcmp(SSL_rstate_string(t->ssl), "RH") == 0)
        t->tracked = true;
    unlock(t);
    return n;
}

/* What a receive without plaintext means. */
static ssize_t nothing_read(const struct net_tls *t)
{
    if (t->failed)
        return t->failed;
    return t->got_close ? 0 : -EAGAIN;
}

static ssize_t ended(struct net_stream *st)
{
    struct net_tls *t = lock(st);

    tls_note_locked(t, 0, "the peer ended the connection without ending TLS (no close_notify)");
    t->failed = -ECONNABORTED;
    unlock(t);
    return -ECONNABORTED;
}

/* Into the caller's buffer, and decrypted there. */
static ssize_t recv_in_place(struct net_stream *st, void *buf, size_t size)
{
    struct net_tls *t = st->tls;
    ssize_t n = task_recv(&st->sock, buf, receive_limit(t, size));

    if (n <= 0)
        return n < 0 ? n : ended(st);
    t->received = true;
    tls_track(t, buf, (size_t)n);
    n = (ssize_t)decrypt(st, buf, (size_t)n, buf, size);
    return n > 0 ? n : nothing_read(t);
}

/* Into a buffer beside it: when there is little room, and for an adopted SSL, which may hold part of
 * a record that nobody has followed. */
static ssize_t recv_into_stash(struct net_stream *st)
{
    struct net_tls *t = st->tls;
    ssize_t n;

    t->stash = base_pool_get(&t->shared->buffers);
    if (!t->stash)
        return -ENOMEM;
    n = task_recv(&st->sock, t->stash, TLS_BUFFER);
    if (n <= 0) {
        stash_free(t);
        return n < 0 ? n : ended(st);
    }
    t->received = true;
    if (t->tracked)
        tls_track(t, t->stash, (size_t)n);
    t->stash_begin = 0;
    t->stash_end = (uint32_t)n;
    return n;
}

static ssize_t receive(struct net_stream *st, void *buf, size_t size)
{
    struct net_tls *t = st->tls;
    ssize_t n;

    if (t->failed || t->got_close)
        return nothing_read(t);
    if (!t->more && t->tracked && size >= LITTLE_ROOM)
        return recv_in_place(st, buf, size);
    if (!t->more) {
        n = recv_into_stash(st);
        if (n < 0)
            return n;
    }
    n = (ssize_t)decrypt(st, t->stash ? t->stash + t->stash_begin : NULL,
                         t->stash_end - t->stash_begin, buf, size);
    return n > 0 ? n : nothing_read(t);
}

static ssize_t tls_recv(struct net_stream *st, void *buf, size_t size)
{
    struct net_tls *t = st->tls;
    ssize_t n;

    t->received = false;
    n = receive(st, buf, size);
    if (n != -EAGAIN)
        t->barren = 0;
    else if (t->received && t->barren++ == 0)
        t->barren_since = base_clock_ns();
    return n;
}

/*
 * A peer may send for ever without sending any plaintext: a record byte by byte, or key updates. That
 * neither breaks its silence nor stops the clock. 0, -EAGAIN or -ETIMEDOUT as task_await().
 */
static int judge_barren(struct net_tls *t, int64_t deadline, tws_ms period)
{
    int64_t now = base_clock_ns();

    if (t->barren > BARREN_MAX && now >= deadline)
        return -ETIMEDOUT;
    if (period <= 0 || now - t->barren_since < period * BASE_NS_PER_MS)
        return 0;
    t->barren_since = now;
    return -EAGAIN;
}

bool net_tls_readable(const struct net_stream *st)
{
    const struct net_tls *t = st->tls;

    return t && (t->more || t->failed || t->got_close);
}

tws_ms net_tls_pending(const struct net_stream *st)
{
    const struct net_tls *t = st->tls;

    return t && atomic_load_explicit(&t->out_len, memory_order_relaxed) > 0 ? PENDING_MS : 0;
}

static int tls_await(struct net_stream *st, int64_t deadline, tws_ms period)
{
    struct net_tls *t = st->tls;
    int64_t end = deadline;
    int r;

    if (net_tls_readable(st)) {
        st->sock.recv_waits = false;
        return 0;
    }
    if (t->barren > 0) {
        r = judge_barren(t, deadline, period);
        if (r < 0)
            return r;
    }
    if (atomic_load_explicit(&t->out_len, memory_order_relaxed) > 0) {
        lock(st);
        r = tls_flush_locked(t);
        unlock(t);
        if (r == -EAGAIN && deadline == TASK_FOREVER) {
            period = period > 0 && period < PENDING_MS ? period : PENDING_MS;
        } else if (r == -EAGAIN) {
            int64_t tick = base_clock_ns() + PENDING_MS * BASE_NS_PER_MS;

            end = tick < deadline ? tick : deadline;
        }
    }
    r = task_await(&st->sock, end, period);
    return r == -ETIMEDOUT && end != deadline ? -EAGAIN : r;
}

/* ---- Sending ---- */

struct pieces {
    const struct iovec *iov;
    int count;
    size_t skip; /* bytes of the first that are done */
};

static size_t pieces_len(const struct pieces *p, size_t max)
{
    size_t len = 0;

    for (int i = 0; i < p->count && len < max; i++)
        len += p->iov[i].iov_len;
    len -= p->count > 0 ? p->skip : 0;
    return len < max ? len : max;
}

static void pieces_advance(struct pieces *p, size_t n)
{
    n += p->skip;
    while (p->count > 0 && n >= p->iov->iov_len) {
        n -= p->iov->iov_len;
        p->iov++;
        p->count--;
    }
    p->skip = n;
}

/*
 * How much goes into the next record. Its last byte may have to be told as not taken, and whoever
 * then gives up must know whether any byte of a piece was taken: so a record never ends behind the
 * first byte of a piece, unless the piece ends there too.
 */
static size_t record_len(const struct pieces *p)
{
    size_t len = pieces_len(p, TLS_BUFFER);
    size_t at = 0;

    if (len < TLS_BUFFER)
        return len;
    for (int i = 0; i < p->count && at < len; i++) {
        size_t piece = p->iov[i].iov_len - (i == 0 ? p->skip : 0);

        if (len - at == 1 && piece > 1 && i > 0)
            return len - 1;
        at += piece;
    }
    return len;
}

static void pieces_copy(const struct pieces *p, uint8_t *to, size_t len)
{
    size_t skip = p->skip;

    for (int i = 0; len > 0; i++) {
        size_t n = p->iov[i].iov_len - skip;

        n = n < len ? n : len;
        if (n > 0)
            memcpy(to, (const uint8_t *)p->iov[i].iov_base + skip, n);
        to += n;
        len -= n;
        skip = 0;
    }
}

static int write_record_locked(struct net_tls *t, const void *data, size_t len)
{
    size_t n = 0;
    int r = SSL_write_ex(t->ssl, data, len, &n);

    if (r == 1)
        return t->send_error;
    r = tls_failure_locked(t, SSL_get_error(t->ssl, r));
    t->send_error = r;
    return r;
}

__attribute__((noinline)) static int write_small_locked(struct net_tls *t, const struct pieces *p,
                                                        size_t len)
{
    uint8_t record[SMALL_RECORD];

    pieces_copy(p, record, len);
    return write_record_locked(t, record, len);
}

/* One record of *len bytes; fewer when there is no memory to join pieces. */
static int write_pieces_locked(struct net_tls *t, const struct pieces *p, size_t *len)
{
    size_t first = p->iov->iov_len - p->skip;
    uint8_t *record = NULL;
    int r;

    if (first < *len && *len <= SMALL_RECORD)
        return write_small_locked(t, p, *len);
    if (first < *len)
        record = base_pool_get(&t->shared->buffers);
    if (!record) {
        *len = first < *len ? first : *len;
        return write_record_locked(t, (const uint8_t *)p->iov->iov_base + p->skip, *len);
    }
    pieces_copy(p, record, *len);
    r = write_record_locked(t, record, *len);
    base_pool_put(&t->shared->buffers, record);
    return r;
}

/*
 * Whether the socket will take at least the beginning of a record. What has been encrypted must leave,
 * so it is asked before: else a write that finds no room could not be given up without harm. A
 * socket that can be written has room for a third of its buffer, so it is asked only now and then.
 */
static bool room_locked(struct net_tls *t, size_t len)
{
    struct pollfd pfd = {.fd = t->sock->fd, .events = POLLOUT};

    if (t->room < len) {
        if (task_poll(&pfd, 1, TASK_NOW) == 0)
            return false;
        t->room = t->room_max;
    }
    t->room -= len < t->room ? (uint32_t)len : t->room;
    return true;
}

/*
 * The socket may take a part of a record only. The rest leaves later, but the bytes in it have been
 * encrypted: they count as taken, all but the last, which is taken when the whole record has left.
 * So the caller goes on waiting for it, as with a plain socket.
 */
static ssize_t send_locked(struct net_tls *t, struct pieces *p)
{
    ssize_t done = 0;
    int r = tls_flush_locked(t);

    if (r < 0)
        return r;
    if (t->owed && pieces_len(p, 1) > 0) {
        t->owed = false;
        pieces_advance(p, 1);
        done = 1;
    }
    clear_errors();
    for (int i = 0; i < SEND_RECORDS; i++) {
        size_t len = record_len(p);

        if (len == 0)
            break;
        if (!room_locked(t, len))
            return done > 0 ? done : -EAGAIN;
        r = write_pieces_locked(t, p, &len);
        if (r < 0)
            return done > 0 ? done : r;
        pieces_advance(p, len);
        done += (ssize_t)len;
        if (atomic_load_explicit(&t->out_len, memory_order_relaxed) > 0) {
            t->owed = true;
            t->room = 0;
            done--;
            return done > 0 ? done : -EAGAIN;
        }
    }
    return done;
}

static ssize_t tls_send(struct net_stream *st, const struct iovec *iov, int count)
{
    struct pieces p = {.iov = iov, .count = count};
    struct net_tls *t = lock(st);
    ssize_t n;

    pieces_advance(&p, 0); /* past empty ones */
    n = t->close_sent ? -EPIPE : send_locked(t, &p);
    unlock(t);
    return n;
}

static int tls_await_send(struct net_stream *st, int64_t deadline)
{
    return task_await_send(&st->sock, deadline);
}

/* ---- Ending ---- */

/* Our close_notify, behind what is pending; never inside somebody's record. */
static void send_close_locked(struct net_tls *t)
{
    if (t->close_sent || t->send_error || t->error || SSL_in_init(t->ssl))
        return;
    t->close_sent = true;
    ERR_clear_error();
    SSL_shutdown(t->ssl);
    ERR_clear_error();
}

static void tls_shutdown(struct net_stream *st, int how)
{
    struct net_tls *t = lock(st);

    if (how == SHUT_WR) {
        tls_flush_locked(t);
        send_close_locked(t);
        t->shut_when_empty = true;
        if (tls_flush_locked(t) < 0 && t->send_error)
            task_shutdown(&st->sock, SHUT_WR);
    } else if (how == SHUT_RDWR) {
        if (tls_flush_locked(t) == 0 && !t->owed)
            send_close_locked(t);
        task_shutdown(&st->sock, how);
    } else {
        task_shutdown(&st->sock, how);
    }
    unlock(t);
}

void tls_free(struct net_tls *t)
{
    if (t->ssl) {
        /* Else OpenSSL would take the session for a broken one and not resume it. */
        SSL_set_shutdown(t->ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
        tls_updates_forget(t);
        SSL_set_bio(t->ssl, NULL, NULL); /* another's reference may outlive us */
        SSL_free(t->ssl);
    }
    stash_free(t);
    base_free(t->allocator, t->out);
    base_free(t->allocator, t->error);
    base_free(t->allocator, t->name);
    tls_set_unref(t->set);
    tls_set_unref(t->other);
    tws_tls_unref(t->shared);
    pthread_mutex_destroy(&t->mu);
    base_free(t->allocator, t);
}

static void tls_close(struct net_stream *st)
{
    tls_free(st->tls);
    st->tls = NULL;
    task_socket_close(&st->sock);
}

const struct net_stream_ops tls_stream_ops = {
    .await = tls_await,
    .recv = tls_recv,
    .send = tls_send,
    .await_send = tls_await_send,
    .shutdown = tls_shutdown,
    .close = tls_close,
};
