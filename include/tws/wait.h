/*
 * wait.h: time limits of single calls, waiting for a pong, and for any of several things.
 *
 * The read and write timeouts (conn.h) hold for each call. Beside them: a limit of one call
 * (tws_read_message_within(), tws_write_message_within()), and one moment for all calls of a direction
 * (tws_set_deadline()). Pings and pongs take the write timeout or deadline, or tws_ping_within().
 *
 * tws_wait_any() is for the few places where one thread, and not one for each, has to look at more
 * than one thing: a connection and a pipe, a handful of dialled connections, a terminal beside both.
 *
 *     tws_wait_item items[] = {{.conn = c}, {.fd = STDIN_FILENO, .events = POLLIN}};
 *     char line[80];
 *     while (tws_wait_any(items, 2, TWS_NO_LIMIT, NULL) == TWS_OK) {
 *         if (items[0].ready && tws_read_message(c, &m) != TWS_OK)
 *             break;
 *         if (items[1].ready && read(STDIN_FILENO, line, sizeof line) <= 0)
 *             break;
 *     }
 */
#ifndef TWS_WAIT_H
#define TWS_WAIT_H

#include <tws/conn.h>

#include <poll.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Time limits ---- */

/**
 * Reads the next message, with a time limit of this one call in place of the read timeout.
 *
 * For several calls under one limit, pieces of a streamed message for instance, see
 * tws_set_deadline().
 *
 * @param c the connection
 * @param m as for tws_read_message()
 * @param ms how long to wait; 0: no limit; TWS_NOWAIT: only what has arrived
 * @return as tws_read_message(); TWS_ERR_ARGUMENT.
 * Threads: one at a time.
 * Ownership: as tws_read_message().
 */
TWS_API tws_err tws_read_message_within(tws_conn *c, tws_message *m, tws_ms ms);

/**
 * Sends one message, with a time limit of this one call in place of the write timeout.
 *
 * @param c the connection
 * @param opcode TWS_TEXT or TWS_BINARY
 * @param data the payload; may be NULL when len is 0
 * @param len bytes
 * @param ms how long it may take, waiting for other threads' messages included; 0: no limit;
 *        TWS_NOWAIT: as that write timeout
 * @return as tws_write_message().
 * Threads: any.
 * Ownership: data stays the caller's.
 */
TWS_API tws_err tws_write_message_within(tws_conn *c, tws_opcode opcode, const void *data,
                                         size_t len, tws_ms ms);

/**
 * Sends a ping, with a time limit of this one call in place of the write timeout.
 *
 * @param c the connection
 * @param data as for tws_ping()
 * @param len bytes
 * @param ms how long it may wait behind a frame that is half sent, and for the peer to take it;
 *        0: no limit; TWS_NOWAIT: as that write timeout
 * @return as tws_ping().
 * Threads: any.
 * RFC: 6455 5.5.2
 */
TWS_API tws_err tws_ping_within(tws_conn *c, const void *data, size_t len, tws_ms ms);

/**
 * Sets one moment by which all reads, or all writes, have to be done: a deadline in place of the
 * timeout of each call.
 *
 * Holds for every call of that direction that begins from now on, also tws_reader_read(),
 * tws_writer_write() and tws_ping(), until the next tws_set_deadline() or tws_set_timeout() of that
 * direction. Once it has passed, calls do as with TWS_NOWAIT: reads return what has arrived,
 * writes do not wait for the peer; else TWS_ERR_TIMEOUT, and the connection goes on.
 *
 * @param c the connection
 * @param which TWS_TIMEOUT_READ or TWS_TIMEOUT_WRITE
 * @param ms from now; 0: no limit; TWS_NOWAIT: it has passed
 * @return TWS_OK; TWS_ERR_ARGUMENT.
 * Threads: any.
 */
TWS_API tws_err tws_set_deadline(tws_conn *c, tws_timeout which, tws_ms ms);

/* ---- Waiting ---- */

/**
 * Sends a ping and waits for its pong.
 *
 * While another thread reads the connection, the pong comes in there and this call only waits.
 * When nobody does, the call reads for itself: it answers pings, notices a close frame, and stops
 * before the first data frame, which is left for the next read; a thread that comes to read
 * meanwhile waits its turn within its own read timeout. As any read, that ends what
 * tws_read_message() has shown. A thread that has read and is busy with its message counts as
 * reading: the pong is noticed in its next read.
 *
 * A peer may answer only the last of several pings (RFC 6455 5.5.3), so a pong answers all earlier
 * calls of this function too.
 *
 * @param c the connection
 * @param data at most 125 bytes for the ping to carry, different from those of other pings under
 *        way; NULL with len 0: eight bytes that the library chooses
 * @param len bytes
 * @param ms how long to send and wait; 0: no limit, but the write timeout holds
 * @param rtt_us set to the microseconds from sending to the pong's arrival; -1 on errors; may be NULL
 * @return TWS_OK; TWS_ERR_TIMEOUT; TWS_ERR_ARGUMENT; TWS_ERR_CONTROL_SIZE; TWS_ERR_STATE when
 *         nobody else reads and a message came first or is half read (read it, and ask again), or
 *         inside one of the connection's handlers; else as tws_ping().
 * Threads: any.
 * RFC: 6455 5.5.2, 5.5.3
 */
TWS_API tws_err tws_ping_wait(tws_conn *c, const void *data, size_t len, tws_ms ms,
                              int64_t *rtt_us);

/* Zero all that is not used; an item that is all zero is nothing. */
typedef struct tws_wait_item {
    tws_conn *conn; /* a connection to read from; NULL: a descriptor, or nothing */
    int fd;         /* without conn; below 0: nothing, never ready */
    short events;   /* of fd: POLLIN, POLLOUT and others, as for poll(2); 0: nothing */
    short revents;  /* set: what poll(2) says of fd; POLLIN of a connection that is ready */
    bool ready;     /* set */
    uint64_t reserved;
} tws_wait_item;

/**
 * Waits until at least one of several things is ready.
 *
 * A connection is ready when a message, or the beginning of one, or the rest of one that was half
 * read, is there, be it in the system's buffers, in the library's or inside TLS; or when it is
 * over or closing, also by another thread's tws_close() meanwhile: then reading gives the error.
 * Control frames alone do not make it ready; they are handled here, with keepalive and idle timeouts,
 * as in a read call. Reading a whole message may still wait for the rest of it:
 * tws_read_message_within() with TWS_NOWAIT does not.
 *
 * For the connections this call is a read: the calling thread is the one that reads them, and what
 * tws_read_message() has shown of them ends. Read timeouts do not count.
 *
 * The same connection or descriptor may stand there several times; all of them become ready. A
 * descriptor that is not open is ready with POLLNVAL, a regular file always.
 *
 * The call costs time in proportion to the count, as poll(2) does, and on a light thread some system
 * calls for each item when it has to wait.
 *
 * @param items what to wait for; ready and revents of each are set, also on errors
 * @param count how many
 * @param ms how long; 0: no limit; TWS_NOWAIT: only look
 * @param n_ready set to how many are ready, 0 on errors; may be NULL
 * @return TWS_OK; TWS_ERR_TIMEOUT: none is; TWS_ERR_BUSY: another thread reads one of the
 *         connections, for which ready is set alone; TWS_ERR_ARGUMENT: ms, or nothing to wait for
 *         without a limit; TWS_ERR_MEMORY; TWS_ERR_SYSTEM: no descriptors.
 * Threads: any; for each connection the one that reads.
 */
TWS_API tws_err tws_wait_any(tws_wait_item *items, size_t count, tws_ms ms, size_t *n_ready);

#ifdef __cplusplus
}
#endif
#endif
