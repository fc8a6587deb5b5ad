/*
 * handoff.h: give an open connection to another process, for restarts that drop nobody.
 *
 * The two processes share a connected Unix stream socket: of socketpair(), or of a listening one. The
 * old process sends connections one by one, `tws_server_each(server, send_one, h)`, and the new one
 * serves or receives them:
 *
 *     static bool send_one(tws_conn *c, void *h)                // old
 *     {
 *         tws_handoff_send(h, c, NULL, 0, 1000, NULL);          // if not, it stays here
 *         return true;
 *     }
 *
 * and
 *
 *     do err = tws_handoff_serve(h, server, 0, NULL);           // new
 *     while (err == TWS_OK || err == TWS_ERR_REFUSED);
 *
 * With the descriptor go what was negotiated, the request, the bytes received but not yet read, and
 * data of the application's. The peer notices nothing. At every moment exactly one side has the
 * connection: the sender lets go when the receiver has said that it has it, and when that does not
 * come, goes on with the connection itself.
 *
 * A listening socket needs no hand-off: let the new process inherit it and listen on "fd:N".
 *
 * Both processes must trust each other with the connections, but a receiver checks all it gets.
 */
#ifndef TWS_HANDOFF_H
#define TWS_HANDOFF_H

#include <tws/server.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One end of the socket between two processes. */
typedef struct tws_handoff tws_handoff;

/* Bytes of the application's that go with a connection, at most. */
#define TWS_HANDOFF_DATA_MAX 65536

/**
 * Takes one end of the socket between two processes.
 *
 * @param out set to it; NULL on failure
 * @param fd a connected Unix stream socket
 * @return TWS_OK; TWS_ERR_ARGUMENT when it is not one; TWS_ERR_SYSTEM when the system does not tell;
 *         TWS_ERR_MEMORY.
 * Threads: any.
 * Ownership: fd is the library's, but for failures. End it with tws_handoff_free().
 */
TWS_API tws_err tws_handoff_new(tws_handoff **out, int fd);

/**
 * Closes the socket and frees it. The other side's calls return TWS_ERR_EOF.
 *
 * @param h it, or NULL
 * Threads: any; nobody else may use h meanwhile.
 */
TWS_API void tws_handoff_free(tws_handoff *h);

/**
 * Hands a connection to the other process.
 *
 * Queued messages and held replies leave first. When the call succeeds the connection has ended here
 * with TWS_ERR_HANDED_OVER: no close frame is sent and the socket is not shut down; every call on it
 * returns that code; a handler just returns. Messages that other threads wanted to write meanwhile
 * were not sent and get that code as well. When the call fails the connection goes on as before.
 *
 * Any thread may call it. A read call of another thread is stopped where it waits for the next message,
 * and returns TWS_ERR_HANDED_OVER (or goes on waiting, if it comes to nothing); a thread that is working
 * on a message is waited for, so that its answer is not lost. With light threads, over Unix sockets and
 * with the option `handoff` of tws_conn_options that takes no time; else it happens at the next message
 * or keepalive, and not while the thread is inside tws_wait_any(). The thread that reads may call it
 * itself, between two reads. With tws_events.parallel,
 * answers of messages that are still being worked on are lost: count them.
 *
 * The message that was read last is not valid any more, as after a read. Timeouts, limits, handlers
 * and the user pointer do not go along: the receiver sets its own.
 *
 * @param h the way to the other process
 * @param c the connection, of either role
 * @param data for the other process: tws_handoff_data(); may be NULL when len is 0. It is looked at
 *        while the connection's reader stands still, so it may be what the handler keeps of it.
 * @param len bytes, at most TWS_HANDOFF_DATA_MAX
 * @param ms how long it may take, with waiting for messages to leave and for other hand-offs of h;
 *        0: no limit
 * @param error filled on failure when not NULL
 * @return TWS_OK; TWS_ERR_UNSUPPORTED over TLS, and when messages are compressed with context
 *         takeover; TWS_ERR_STATE in the middle of a message that is being received, or sent by this
 *         thread, and inside c's ping, pong and close handlers (on_message of tws_events is fine);
 *         TWS_ERR_BUSY when another thread is handing c over; TWS_ERR_TIMEOUT; TWS_ERR_SYSTEM when the
 *         other side refused it, or went away; TWS_ERR_ARGUMENT; TWS_ERR_MEMORY; any ending of the
 *         connection. When the other side was silent for too long, h is of no more use, which its next
 *         call says with TWS_ERR_SYSTEM.
 * Threads: any, also several with one h.
 * Ownership: the caller's references stay the caller's.
 */
TWS_API tws_err tws_handoff_send(tws_handoff *h, tws_conn *c, const void *data, size_t len,
                                 tws_ms ms, tws_error *error);

/**
 * Receives a connection and has a server run its handler for it, on a thread of its own.
 *
 * It counts for the server's limits, drains and statistics as if the server had accepted it; the
 * upgrade hook is not asked again. Its timeouts and limits are those of the server's options.
 *
 * @param h the way to the other process
 * @param s the server
 * @param ms how long to wait for a connection; 0: no limit; TWS_NOWAIT: not at all
 * @param error filled on failure when not NULL
 * @return TWS_OK; TWS_ERR_TIMEOUT when none came; TWS_ERR_EOF when the other side has closed its end;
 *         TWS_ERR_REFUSED: a connection was refused, because the server is full, draining, does not
 *         compress as it needs or has no thread or descriptor left, or because its peer has just
 *         reset it, and stays with the other side; the call may be repeated; TWS_ERR_PROTOCOL: what
 *         came is not a connection in the form of this library version, h is of no more use;
 *         TWS_ERR_MEMORY, the same; TWS_ERR_SYSTEM; TWS_ERR_ARGUMENT.
 * Threads: any, also several with one h.
 */
TWS_API tws_err tws_handoff_serve(tws_handoff *h, tws_server *s, tws_ms ms, tws_error *error);

/**
 * Receives a connection for the calling thread, without a server.
 *
 * @param out set to the connection, with one reference; NULL on failure
 * @param h the way to the other process
 * @param opt options, or NULL for the defaults; `conn`, `deflate` (NULL: the defaults, for connections
 *        that compress) and `allocator` are used
 * @param ms as for tws_handoff_serve()
 * @param error filled on failure when not NULL
 * @return as tws_handoff_serve(); TWS_ERR_REFUSED for lack of memory.
 * Threads: any, also several with one h.
 * Ownership: the caller gives the connection back with tws_conn_unref().
 */
TWS_API tws_err tws_handoff_receive(tws_conn **out, tws_handoff *h, const tws_upgrade_options *opt,
                                    tws_ms ms, tws_error *error);

/**
 * What tws_handoff_send() was given to go with a connection.
 *
 * @param c the connection
 * @param len set to its length when not NULL
 * @return the bytes, valid as long as c, with a zero behind them; NULL when c was not handed over by
 *         another process.
 * Threads: any.
 */
TWS_API const void *tws_handoff_data(const tws_conn *c, size_t *len);

#ifdef __cplusplus
}
#endif
#endif
