/*
 * queue.h: messages that wait for a slow peer, so that their sender need not.
 *
 * tws_write_async() hands a message over and returns. Where it goes depends on the writer mode:
 *
 *   TWS_WRITER_DEMAND    this thread tries the socket without waiting. Only what the socket does
 *                        not take is queued, and a writer thread sends it. That thread leaves when
 *                        the queue is empty: only a peer that cannot keep up has one.
 *   TWS_WRITER_RESIDENT  every message is queued; one writer thread sends them, from the first one
 *                        to the end of the connection.
 *   TWS_WRITER_NONE      nothing is queued: the call writes as tws_write_message() does.
 *
 * A writer is of the same kind as the server's other threads, and a kernel thread for connections
 * without a server. When none can be made, nothing is lost: whoever next uses the connection, or
 * the server's watch, sends what the socket takes, and the policy acts when the queue is full.
 *
 * Order. Messages of one thread leave in the order of its calls, also when it mixes queued and
 * synchronous ones: a synchronous write first waits, within its write timeout, for every message
 * that was queued before it, by anybody. Messages queued while a tws_writer is open leave after it.
 * Pings, pongs and close frames pass between queued messages, never inside one.
 *
 * Ending. tws_close() and tws_close_start() let queued messages leave before the close frame, as
 * far as they do within the close timeout; a peer that had taken none of them for that long already
 * is not waited for. tws_abort(), the peer's close frame and every error drop them: their memory
 * goes back at once, or when their completion has run if they have one, and each completes with the
 * code that ended the connection.
 *
 * A peer that takes not a byte of what is queued for as long as the write timeout ends the
 * connection with TWS_ERR_STALLED under the policies CLOSE and WAIT. Under DROP_NEWEST and
 * DROP_OLDEST the policy governs alone: such a peer stays, and loses messages, until keepalive or
 * idle timeout end it.
 *
 * Callbacks (completion and water marks) run on a thread of the library's own, one after the other
 * for all connections of a server (for one without: of that connection), in the order in which the
 * messages of a connection left or were given up.
 * It is made when one is due and leaves after a moment without work. They never run inside the call
 * that queued the message, and never with a lock of the library held. They should be short: others
 * wait behind them. They may use the connection in every way; its memory is theirs during the call,
 * also when all references have been given back. They may not drain or free the server
 * (TWS_ERR_STATE). When no thread can be made they run inside a read call on the connection's own
 * thread, at its end, or inside tws_server_free().
 */
#ifndef TWS_QUEUE_H
#define TWS_QUEUE_H

#include <tws/error.h>
#include <tws/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What happens to a message that finds the queue full. */
typedef enum tws_queue_policy {
    /* TWS_ERR_OVERFLOW: the queue is dropped and the connection closed with 1013 (default). */
    TWS_QUEUE_CLOSE = 0,
    /* The call waits for room, at most `wait`; then TWS_ERR_QUEUE_FULL and the message is not taken.
     * It does not wait behind a tws_writer that the calling thread has open itself. */
    TWS_QUEUE_WAIT = 1,
    /* TWS_ERR_QUEUE_FULL at once: the message is not taken. */
    TWS_QUEUE_DROP_NEWEST = 2,
    /* The oldest messages make room and complete with TWS_ERR_DROPPED; never one that is half sent. */
    TWS_QUEUE_DROP_OLDEST = 3
} tws_queue_policy;

typedef enum tws_writer_mode {
    TWS_WRITER_DEMAND = 0, /* default */
    TWS_WRITER_NONE = 1,
    TWS_WRITER_RESIDENT = 2
} tws_writer_mode;

/*
 * The queue has grown above high_water, or fallen back to low_water. Alternating, beginning with
 * high; a rise that is over before it could be told is not told. Runs as completions do.
 */
typedef void (*tws_water_fn)(tws_conn *c, bool high, uint64_t bytes, void *arg);

/*
 * How a connection's queue behaves. Member `queue` of tws_conn_options, filled by the initialiser
 * of the options around it; for tws_set_queue() by tws_queue_options_init() or tws_get_queue().
 *
 * Bytes are payload bytes; those of prepared messages count too, although all connections share
 * them.
 */
typedef struct tws_queue_options {
    size_t size;
    uint64_t max_bytes;      /* default 1 MiB; 0: no limit */
    uint32_t max_messages;   /* default 4,096; 0: no limit */
    tws_queue_policy policy; /* default TWS_QUEUE_CLOSE */
    tws_ms wait;             /* policy WAIT; default 5,000; 0: for ever; TWS_NOWAIT: not at all */
    tws_writer_mode writer;  /* default TWS_WRITER_DEMAND */
    tws_water_fn on_water;   /* default none */
    void *arg;               /* handed to on_water */
    uint64_t high_water;     /* bytes; default 0: three quarters of max_bytes */
    uint64_t low_water;      /* bytes; default 0: a quarter of high_water */
    uint64_t reserved[8];
} tws_queue_options;

/**
 * Fills queue options with their defaults.
 *
 * @param opt filled
 * @param size sizeof *opt; use the macro tws_queue_options_init(opt)
 * Threads: any.
 */
TWS_API void tws_queue_options_init_sized(tws_queue_options *opt, size_t size);
#define tws_queue_options_init(opt) tws_queue_options_init_sized((opt), sizeof *(opt))

/**
 * Changes how the queue of a connection behaves. Messages that are queued already stay queued.
 *
 * From TWS_WRITER_RESIDENT to another mode, the writer leaves when the queue is empty.
 *
 * @param c the connection
 * @param opt from tws_queue_options_init() or tws_get_queue(); copied
 * @return TWS_OK; TWS_ERR_ARGUMENT for a policy, mode or time that does not exist, or a low_water
 *         above high_water; TWS_ERR_MEMORY.
 * Threads: any; holds from the next message on.
 */
TWS_API tws_err tws_set_queue(tws_conn *c, const tws_queue_options *opt);

/**
 * Reads how the queue of a connection behaves.
 *
 * @param c the connection
 * @param out filled
 * @param size sizeof *out; use the macro tws_get_queue(c, out)
 * Threads: any.
 */
TWS_API void tws_get_queue_sized(tws_conn *c, tws_queue_options *out, size_t size);
#define tws_get_queue(c, out) tws_get_queue_sized((c), (out), sizeof *(out))

/*
 * A message that was accepted has left, or never will. `result` is TWS_OK when the system has taken
 * all of it, TWS_ERR_DROPPED, TWS_ERR_MEMORY, or the code that ended the connection.
 */
typedef void (*tws_written_fn)(tws_conn *c, tws_err result, void *arg);

/**
 * Sends a message without waiting for the peer.
 *
 * Waits never, except under TWS_QUEUE_WAIT with a full queue and in the mode TWS_WRITER_NONE.
 * TWS_OK means accepted: done is called exactly once, whatever happens to the connection. After any
 * other code it is not called.
 *
 * @param c the connection
 * @param opcode TWS_TEXT or TWS_BINARY
 * @param data the payload; may be NULL when len is 0
 * @param len bytes
 * @param done called when the message has left or was given up; NULL: nothing, and costs nothing
 * @param arg handed to done
 * @return TWS_OK; TWS_ERR_ARGUMENT; TWS_ERR_TEXT; TWS_ERR_MESSAGE_SIZE when it is larger than the
 *         write limit or than max_bytes: it could never be queued, so use tws_write_message();
 *         TWS_ERR_QUEUE_FULL; TWS_ERR_OVERFLOW: this message was one too many under TWS_QUEUE_CLOSE
 *         and the connection is being closed; TWS_ERR_MEMORY; TWS_ERR_CLOSED once closing has begun;
 *         any ending of the connection. In the mode TWS_WRITER_NONE as tws_write_message().
 * Threads: any, also inside callbacks.
 * Ownership: data stays the caller's and is not needed after the call.
 * RFC: 6455 5.2, 6.1
 */
TWS_API tws_err tws_write_async(tws_conn *c, tws_opcode opcode, const void *data, size_t len,
                                tws_written_fn done, void *arg);

/**
 * Waits until every message that is queued now has left or was dropped.
 *
 * "Left" means that the system has taken it, not that the peer has it.
 *
 * @param c the connection
 * @param ms how long to wait; 0: no limit; TWS_NOWAIT: not at all
 * @return TWS_OK; TWS_ERR_TIMEOUT; TWS_ERR_ARGUMENT; TWS_ERR_STATE when this thread has a tws_writer
 *         open on c, behind which messages wait; any ending of the connection that came first.
 * Threads: any.
 */
TWS_API tws_err tws_queue_wait(tws_conn *c, tws_ms ms);

/* What a connection's queue holds and has done. */
typedef struct tws_queue_stats {
    uint64_t bytes, messages;           /* queued now */
    uint64_t peak_bytes, peak_messages; /* most at any one time */
    uint64_t accepted;                  /* messages for which a call returned TWS_OK */
    uint64_t direct;                    /* of those: taken by the socket at once, never queued */
    uint64_t sent;                      /* of those: left, direct ones included */
    uint64_t failed;                    /* of those: given up because the connection ended */
    uint64_t dropped_oldest;            /* of those: dropped by TWS_QUEUE_DROP_OLDEST */
    uint64_t dropped_newest;            /* not taken: TWS_QUEUE_DROP_NEWEST, or no writer (hub) */
    uint64_t wait_timeouts;             /* not taken: TWS_QUEUE_WAIT ran out of time */
    uint64_t overflows;                 /* TWS_QUEUE_CLOSE closed the connection: 0 or 1 */
    uint64_t writers_started;           /* writer threads, over time */
    bool writer_running;
} tws_queue_stats;

/**
 * Reads what the queue holds and has done.
 *
 * accepted is the sum of messages, sent, failed and dropped_oldest.
 *
 * @param c the connection
 * @param out filled; zero for a connection that never queued anything
 * @param size sizeof *out; use the macro tws_queue_get_stats(c, out)
 * Threads: any.
 */
TWS_API void tws_queue_stats_sized(tws_conn *c, tws_queue_stats *out, size_t size);
#define tws_queue_get_stats(c, out) tws_queue_stats_sized((c), (out), sizeof *(out))

#ifdef __cplusplus
}
#endif
#endif
