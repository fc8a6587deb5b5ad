/*
 * Messages that come from a file, in constant memory.
 *
 * Two ways. A regular file that is not compressed leaves in frames of known length: their payload
 * goes from the file to the socket inside the system, or through one borrowed buffer. Everything
 * else, whose length or form shows only as it is read, goes through a tws_writer.
 */
#include <tws/stream.h>

#include "conn/codec.h"
#include "conn/pieces.h"
#include "conn/watch.h"
#include "wire/mask.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>

/* From this on sendfile is worth a header in a packet of its own. */
#define SENDFILE_MIN 65536
/* The write timeout is one for so many bytes. */
#define PART (256 * 1024)
/* Room for a header before what is read. */
#define HEAD WIRE_FRAME_HEADER_MAX
#define CHUNK (CONN_BUFFER - HEAD)
#define UNKNOWN UINT64_MAX

struct file_message {
    tws_conn *c;
    tws_opcode opcode;
    int fd;
    int64_t at;      /* offset; below 0: what is read has no position */
    uint64_t left;   /* bytes of the message still to be read; UNKNOWN */
    size_t fragment; /* payload of each; 0: one frame */
    bool known;      /* left is what the file has */
    bool check;      /* text: to be looked at */
    bool in_system;  /* sendfile will do */
    bool begun;      /* a frame of it has left */
    struct wire_utf8 utf8;
    uint8_t *buf;
    int error; /* errno of the file; 0: it ended too early */
};

static tws_err file_failed(struct file_message *f, int error)
{
    f->error = error;
    return TWS_ERR_FILE;
}

/* ---- Frames of known length ---- */

/* Reads exactly len bytes into the buffer, behind the room for a header, and looks at them. */
static tws_err read_chunk(struct file_message *f, size_t len)
{
    uint8_t *to = f->buf + HEAD;
    size_t done = 0;

    while (done < len) {
        ssize_t n = task_file_read(f->fd, to + done, len - done, f->at + (int64_t)done);

        if (n <= 0)
            return file_failed(f, (int)-n);
        done += (size_t)n;
    }
    f->at += (int64_t)len;
    f->left -= len;
    if (f->check && !wire_utf8_feed(&f->utf8, to, len))
        return TWS_ERR_TEXT;
    if (f->check && f->left == 0 && !wire_utf8_complete(&f->utf8))
        return TWS_ERR_TEXT;
    return TWS_OK;
}

struct file_frame {
    struct wire_frame frame;
    uint64_t sent; /* payload bytes */
    enum conn_turn turn;
    struct conn_wait wait;
    bool begun;
};

/* A timeout begins anew with every part; a deadline does not. */
static void count_sent(struct file_frame *fr, uint64_t n)
{
    if ((fr->sent + n) / PART != fr->sent / PART && fr->wait.ms > 0)
        fr->wait.deadline = 0;
    fr->sent += n;
}

/* The chunk in the buffer, behind the header if it is the first. */
static tws_err send_chunk(struct file_message *f, struct file_frame *fr, size_t len)
{
    uint8_t header[HEAD];
    uint8_t *from = f->buf + HEAD;
    struct iovec iov = {.iov_base = from, .iov_len = len};
    tws_err err;

    if (fr->frame.masked)
        wire_mask(from, len, fr->frame.key, fr->sent);
    if (!fr->begun) {
        size_t n = wire_frame_write(header, &fr->frame);

        memcpy(from - n, header, n);
        iov.iov_base = from - n;
        iov.iov_len += n;
    }
    err = conn_send_part(f->c, &iov, 1, fr->turn, &fr->wait, &fr->begun);
    count_sent(fr, len);
    return err;
}

/* What is left of the frame, read piece by piece. */
static tws_err send_read(struct file_message *f, struct file_frame *fr)
{
    tws_err err = TWS_OK;

    while (!err && fr->sent < fr->frame.len) {
        uint64_t left = fr->frame.len - fr->sent;
        size_t len = left < CHUNK ? (size_t)left : CHUNK;

        if (conn_state(f->c) != CONN_OPEN)
            return conn_sticky(f->c);
        err = read_chunk(f, len);
        if (!err)
            err = send_chunk(f, fr, len);
    }
    return err;
}

/* The frame's payload inside the system; what cannot be sent so is read. */
static tws_err send_in_system(struct file_message *f, struct file_frame *fr)
{
    uint8_t header[HEAD];
    struct iovec iov = {.iov_base = header, .iov_len = wire_frame_write(header, &fr->frame)};
    tws_err err = conn_send_part(f->c, &iov, 1, fr->turn, &fr->wait, &fr->begun);

    while (!err && fr->sent < fr->frame.len) {
        uint64_t left = fr->frame.len - fr->sent;
        int64_t before = f->at;
        int error;

        if (conn_state(f->c) != CONN_OPEN)
            return conn_sticky(f->c);
        err = conn_send_file_part(f->c, f->fd, &f->at, left < PART ? (size_t)left : PART, fr->turn,
                                  &fr->wait, &error);
        if (!err && (error == EINVAL || error == ENOSYS)) {
            f->in_system = false;
            return send_read(f, fr);
        }
        if (!err && error)
            err = file_failed(f, error == ENODATA ? 0 : error);
        count_sent(fr, (uint64_t)(f->at - before));
        f->left -= (uint64_t)(f->at - before);
    }
    return err;
}

/* Ends a connection whose frame will never be whole. */
static void cut(struct file_message *f, tws_err err)
{
    struct conn_cause cause = {TWS_ERR_CLOSED, TWS_PHASE_WRITE, TWS_CAUSE_LOCAL, f->error,
                               "a file that was being sent ended early or could not be read"};

    if (err == TWS_ERR_TEXT)
        cause.detail = "text from a file turned out not to be UTF-8";
    else if (err != TWS_ERR_FILE)
        cause.detail = "a frame was abandoned half-way";
    conn_end(f->c, &cause);
}

/* With the role. */
static tws_err send_frame(struct file_message *f, struct file_frame *fr, size_t first)
{
    tws_conn *c = f->c;
    tws_err err = TWS_OK;

    fr->frame.masked = !c->server;
    if (fr->frame.masked && !conn_mask_key(c, fr->frame.key))
        return TWS_ERR_SYSTEM;
    if (first > 0 || fr->frame.len == 0) {
        err = send_chunk(f, fr, first);
        if (!err)
            err = send_read(f, fr);
    } else {
        err = send_in_system(f, fr);
    }
    if (err && fr->begun)
        cut(f, err);
    if (!err) {
        CONN_COUNT(c->count.bytes_out, fr->frame.len);
        if (fr->frame.fin)
            CONN_COUNT(c->count.messages_out, 1);
    }
    return err;
}

/* Reads the beginning, or all of a small frame, before anything of it leaves. */
static tws_err one_frame(struct file_message *f, uint64_t len, enum conn_turn turn)
{
    struct file_frame fr = {.frame = {.opcode = f->begun ? WIRE_CONT : (uint8_t)f->opcode,
                                      .fin = len == f->left,
                                      .len = len},
                            .turn = turn,
                            .wait = conn_write_wait(f->c)};
    size_t first = len < CHUNK ? (size_t)len : CHUNK;
    tws_err err;

    if (f->in_system && len >= SENDFILE_MIN)
        first = 0;
    err = first > 0 ? read_chunk(f, first) : TWS_OK;
    if (!err)
        err = conn_turn_take(f->c, turn, &fr.wait);
    if (err)
        return err;
    err = send_frame(f, &fr, first);
    conn_turn_give(f->c);
    return err;
}

static tws_err fragments(struct file_message *f)
{
    tws_err err = conn_writer_claim(f->c, f);

    if (err)
        return err;
    do {
        err = one_frame(f, f->left < f->fragment ? f->left : f->fragment, CONN_TURN_WRITER);
        f->begun = f->begun || !err;
    } while (!err && f->left > 0);
    if (err && f->begun) { /* see tws_writer_close() */
        tws_close_start(f->c, TWS_CLOSE_INTERNAL_ERROR, "message abandoned");
        if (err == TWS_ERR_TIMEOUT)
            err = TWS_ERR_STALLED;
    }
    conn_writer_unclaim(f->c);
    return err;
}

/* sendfile comes after a header that cannot be taken back, so what cannot be read is found before. */
static tws_err probe(struct file_message *f)
{
    ssize_t n = f->in_system && f->left > 0 ? task_file_read(f->fd, f->buf, 1, f->at) : 1;

    return n > 0 ? TWS_OK : file_failed(f, (int)-n);
}

static tws_err write_frames(struct file_message *f)
{
    tws_err err;

    f->buf = base_pool_get(&f->c->env->buffers);
    if (!f->buf)
        return TWS_ERR_MEMORY;
    f->in_system = f->c->server && !f->check && !net_stream_is_tls(&f->c->stream);
    err = probe(f);
    if (!err)
        err = f->fragment > 0 && f->fragment < f->left ? fragments(f)
                                                       : one_frame(f, f->left, CONN_TURN_DATA);
    base_pool_put(&f->c->env->buffers, f->buf);
    return err;
}

/* ---- Everything else, through a writer ---- */

/* Waits until a pipe has something; or, with TASK_NOW, looks. TWS_ERR_TIMEOUT: it has not. */
static tws_err await_pipe(struct file_message *f, int64_t deadline)
{
    tws_conn *c = f->c;
    struct pollfd fds[2] = {{.fd = f->fd, .events = POLLIN}, {.fd = -1, .events = POLLIN}};
    struct conn_watch watch;
    struct task_event event;
    int n = task_poll(fds, 1, TASK_NOW);

    if (n == 0 && deadline != TASK_NOW) {
        if (task_event_init(&event) < 0)
            return TWS_ERR_SYSTEM;
        fds[1].fd = event.fd;
        pthread_mutex_lock(&c->mu);
        conn_watch_add_locked(c, &watch, &event);
        if (conn_state(c) != CONN_OPEN)
            task_event_set(&event);
        pthread_mutex_unlock(&c->mu);
        do {
            task_event_clear(&event);
            n = conn_state(c) == CONN_OPEN ? task_poll_any(fds, 2, deadline) : 0;
        } while (n > 0 && fds[0].revents == 0);
        pthread_mutex_lock(&c->mu);
        conn_watch_remove_locked(&watch);
        pthread_mutex_unlock(&c->mu);
        task_event_destroy(&event);
    }
    if (n < 0)
        return file_failed(f, -n);
    if (n > 0)
        return TWS_OK;
    return conn_state(c) == CONN_OPEN ? TWS_ERR_TIMEOUT : conn_sticky(c);
}

/* Some bytes into the buffer; *n 0 at the end. */
static tws_err read_some(struct file_message *f, size_t size, size_t *n)
{
    size_t len = f->left < size ? (size_t)f->left : size;
    tws_err err = f->at < 0 && len > 0 ? await_pipe(f, TASK_FOREVER) : TWS_OK;
    ssize_t r;

    *n = 0;
    if (err || len == 0)
        return err;
    r = task_file_read(f->fd, f->buf, len, f->at);
    if (r < 0 || (r == 0 && f->left != UNKNOWN))
        return file_failed(f, (int)-r);
    if (f->at >= 0)
        f->at += r;
    if (f->left != UNKNOWN)
        f->left -= (uint64_t)r;
    *n = (size_t)r;
    return TWS_OK;
}

static tws_err copy_all(struct file_message *f, tws_writer *w)
{
    size_t size = f->fragment > 0 && f->fragment < CONN_BUFFER ? f->fragment : CONN_BUFFER;
    size_t n = 0, gathered = 0;
    tws_err err;

    do {
        err = read_some(f, size - gathered, &n);
        if (!err && n > 0)
            err = tws_writer_write(w, f->buf, n);
        gathered += n;
        if (!err && n > 0 &&
            (gathered == size || (f->at < 0 && await_pipe(f, TASK_NOW) == TWS_ERR_TIMEOUT))) {
            err = conn_writer_flush(w);
            gathered = 0;
        }
    } while (!err && n > 0);
    return err;
}

static tws_err write_through(struct file_message *f, tws_compression mode)
{
    tws_writer *w;
    tws_err err, end;

    f->buf = base_pool_get(&f->c->env->buffers);
    if (!f->buf)
        return TWS_ERR_MEMORY;
    err = tws_next_writer_as(f->c, f->opcode, mode, &w);
    if (!err) {
        err = copy_all(f, w);
        if (err)
            conn_writer_fail(w, err);
        end = tws_writer_close(w);
        if (!err || err == TWS_ERR_TIMEOUT) /* of which only the end tells what came of it */
            err = end;
    }
    base_pool_put(&f->c->env->buffers, f->buf);
    return err;
}

/* ---- The caller's ---- */

/* Where to read and how much, from what the descriptor is. */
static tws_err examine(struct file_message *f, int64_t offset, int64_t length)
{
    struct stat st;

    if (fstat(f->fd, &st) < 0)
        return file_failed(f, errno);
    f->at = offset;
    f->left = length < 0 ? UNKNOWN : (uint64_t)length;
    if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode)) {
        f->at = -1;
        return offset > 0 ? TWS_ERR_ARGUMENT : TWS_OK;
    }
    if (!S_ISREG(st.st_mode) || st.st_size == 0)
        return TWS_OK; /* its size is not known: /proc has such files */
    if (offset > st.st_size || length > st.st_size - offset)
        return file_failed(f, 0);
    if (length < 0)
        f->left = (uint64_t)(st.st_size - offset);
    f->known = true;
    return TWS_OK;
}

tws_err tws_write_file(tws_conn *c, tws_opcode opcode, int fd, int64_t offset, int64_t length,
                       size_t fragment_size)
{
    struct file_message f = {.c = c,
                             .opcode = opcode,
                             .fd = fd,
                             .fragment = fragment_size,
                             .check = opcode == TWS_TEXT && c->check_utf8,
                             .utf8 = WIRE_UTF8_INIT};
    tws_compression mode = conn_deflate_mode(c);
    uint64_t max = conn_limit(c, TWS_LIMIT_WRITE);
    tws_err err;

    if ((opcode != TWS_TEXT && opcode != TWS_BINARY) || offset < 0 || length < TWS_FILE_REST)
        return TWS_ERR_ARGUMENT;
    err = examine(&f, offset, length);
    if (!err && f.left != UNKNOWN && max > 0 && f.left > max)
        err = TWS_ERR_MESSAGE_SIZE;
    if (!err && f.known && !conn_deflate_wanted(c, mode, f.left))
        err = write_frames(&f);
    else if (!err)
        err = write_through(&f, mode);
    if (err == TWS_ERR_FILE)
        errno = f.error;
    return err;
}
