/*
 * event.h: the same connections with handlers in place of a loop.
 *
 *     static void message(tws_conn *c, tws_message *m, void *arg)
 *     {
 *         tws_write_message(c, m->opcode, m->data, m->len);
 *     }
 *
 *     tws_events events;
 *     tws_events_init(&events);
 *     events.on_message = message;
 *     opt.events = &events;          // of tws_server_options or tws_dial_options; or
 *     tws_run(c, &events, arg);      // a connection that somebody upgraded or dialled
 *
 * One table serves any number of connections; what belongs to one of them is in tws_conn_user() or
 * its session (session.h). The handlers of one connection run on one thread, one after the other,
 * unless `parallel` says otherwise; those of different connections at the same time. Each may block,
 * and may read on, write, close and abort; a slow one holds up its own connection only, whose peer
 * is not read from meanwhile.
 *
 * The order is on_open, then messages, pings and pongs as they come, then on_close. When the opening
 * handshake fails there is no event at all (upgrade.on_handshake_end tells of that); after on_open
 * there is always an on_close, however the connection ends, and nothing after it. tws_close() in a
 * handler does the closing handshake there; on_close follows on the thread that reads, when every
 * handler has returned. From another thread, before what the handlers use is freed:
 *
 *     tws_close(c, TWS_CLOSE_NORMAL, NULL);   // the handshake
 *     tws_events_wait(c, TWS_NO_LIMIT);       // on_close has returned
 *     tws_conn_unref(c);
 *
 * A connection that was given to another process (handoff.h) ends here with TWS_ERR_HANDED_OVER.
 *
 * C has no panics that could be caught: a handler that crashes takes the process with it.
 */
#ifndef TWS_EVENT_H
#define TWS_EVENT_H

#include <tws/conn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The most that tws_events.parallel may be. */
#define TWS_PARALLEL_MAX 1024

/* Handlers; each may be NULL. `arg` is that of tws_run() or of the options. */
typedef struct tws_events {
    size_t size; /* set by the initialiser */
    /* First of all; also when the connection has ended already. */
    void (*on_open)(tws_conn *c, void *arg);
    /*
     * `m` is valid until the handler returns; tws_message_take(c, m) makes it yours for longer, and
     * then yours to free, on this thread and with `parallel` too. tws_message_free() on one that was
     * not taken does nothing. NULL: messages are dropped.
     */
    void (*on_message)(tws_conn *c, tws_message *m, void *arg);
    /* Return true to have the library send the pong, which it does too without a handler. */
    bool (*on_ping)(tws_conn *c, const void *data, size_t len, void *arg);
    void (*on_pong)(tws_conn *c, const void *data, size_t len, void *arg);
    /*
     * Exactly once and last: the closing handshake is over, the descriptor shut down, no other
     * handler of this connection runs, and none will. `e` says how it ended, as tws_conn_error(),
     * and is valid during the call. What the handlers need can be freed here. `c` can be used, but
     * no longer be written to or read; tws_conn_unref() may give the application's reference back.
     */
    void (*on_close)(tws_conn *c, const tws_error *e, void *arg);
    /*
     * 0 or 1 (default): messages are handled in order on the thread that reads. n: up to n messages
     * of one connection at once, on further threads of the same kind, which are made when needed
     * and leave after a second without work. Order is lost: a later message may be handled before
     * an earlier one. While n are being handled the connection is not read, so that the peer feels
     * it. on_ping and on_pong still run on the thread that reads, beside on_message. on_close waits
     * for all. A message is copied for its handler; when there is no memory or no thread for that it
     * is handled on the thread that reads. The others cannot read: TWS_ERR_BUSY. At most
     * TWS_PARALLEL_MAX.
     */
    uint32_t parallel;
    uint64_t reserved[8];
} tws_events;

/**
 * Fills a table with the defaults: no handlers, not parallel.
 *
 * @param ev the table
 * @param size sizeof *ev; use the macro tws_events_init(ev)
 * Threads: any.
 */
TWS_API void tws_events_init_sized(tws_events *ev, size_t size);
#define tws_events_init(ev) tws_events_init_sized((ev), sizeof *(ev))

/**
 * Runs a connection by events, on the calling thread, until it has ended.
 *
 * Reads until that fails, then does the closing handshake. A read that times out (read_timeout,
 * default none, or tws_set_deadline(), which any handler may move) ends the connection as it would
 * end a loop: with 1001 and TWS_ERR_IDLE. Handlers that were set with tws_set_ping_handler() and tws_set_pong_handler() are replaced by those of the
 * table that are not NULL.
 *
 * Within on_connection of a tws_server it chooses events for this connection alone. A connection can
 * be run once.
 *
 * @param c the connection; a reference is held until on_close has returned
 * @param ev the handlers; copied
 * @param arg handed to them
 * @return how the connection ended, as tws_conn_error() has it: TWS_ERR_PEER_CLOSED,
 *         TWS_ERR_CLOSED and any other ending, never TWS_OK; or, without any event,
 *         TWS_ERR_ARGUMENT when the table is NULL, was not initialised, or has too large a
 *         `parallel`, TWS_ERR_STATE when events of c run or have run already.
 * Threads: any; one that a handler of c does not wait for.
 */
TWS_API tws_err tws_run(tws_conn *c, const tws_events *ev, void *arg);

/**
 * Waits until on_close has returned. tws_close() does not: it waits for the closing handshake only.
 *
 * For threads that want to free what handlers use; to do that in on_close needs no waiting.
 *
 * @param c the connection
 * @param ms how long to wait; 0: no limit; TWS_NOWAIT: not at all
 * @return TWS_OK when no handler runs and none will be called any more, also when no events are run
 *         on c; TWS_ERR_TIMEOUT; TWS_ERR_ARGUMENT; TWS_ERR_STATE on a thread that runs a handler of
 *         c.
 * Threads: any but those that run the handlers of c.
 */
TWS_API tws_err tws_events_wait(tws_conn *c, tws_ms ms);

#ifdef __cplusplus
}
#endif
#endif
