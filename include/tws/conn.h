/*
 * conn.h: one WebSocket connection: read, write, close, and what is known about it.
 *
 * Somebody must read. Pings are answered, pongs and close frames noticed, keepalive and idle
 * timeouts kept inside read calls only. A handler that only writes should read too, with a read
 * timeout or on a second thread.
 *
 * Threads. One thread reads a connection at a time; a second one gets TWS_ERR_BUSY. Any number of
 * threads write, ping, close, abort, set timeouts and read statistics at once; nothing has to be
 * locked by the caller. A function that may be called from any thread needs a reference that
 * outlives the call: a handler's connection is valid until the handler returns, everywhere else
 * take one with tws_conn_ref().
 *
 * Memory. Buffers are lent by pools that the connections of a server or group share; the allocator of
 * their options (types.h) is the one hook for all memory.
 *
 * Errors. Functions that can fail return a tws_err. After a code for which tws_err_is_final() is
 * true the connection is over and has already shut itself down; tws_conn_error() has the details.
 */
#ifndef TWS_CONN_H
#define TWS_CONN_H

#include <tws/error.h>
#include <tws/queue.h>
#include <tws/types.h>

#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a connection behaves. Part of other option structs; filled by their initialisers. */
typedef struct tws_conn_options {
    /* One tws_read_message, or one tws_reader_read, may wait so long; 0: for ever (default). */
    tws_ms read_timeout;
    tws_ms write_timeout; /* for one write, whole; default 10,000 */
    tws_ms close_timeout; /* for the closing handshake; default 5,000 */
    /* TWS_ERR_IDLE, 1001, when no byte of a data message came for so long; 0: never (default). */
    tws_ms idle_timeout;
    tws_ms ping_interval; /* ping a peer that has been silent so long; default 30,000; 0: never */
    tws_ms ping_timeout;  /* TWS_ERR_PEER_SILENT when silent so long after; default 20,000 */
    uint64_t max_message; /* TWS_ERR_TOO_BIG, 1009: bytes received; default 16 MiB; 0: no limit */
    uint64_t max_write;   /* TWS_ERR_MESSAGE_SIZE: bytes sent; default 0: no limit */
    /* TWS_ERR_FLOOD, 1008: frames under 4 KiB in one message; default 65,536; 0: no limit. */
    uint32_t max_fragments;
    /* TWS_ERR_FLOOD, 1008: pings and pongs received per second; default 5,000; 0: no limit. */
    uint32_t max_control_rate;
    /* TWS_ERR_SLOW, 1008: average bytes per second of a frame that has been incomplete for 30 s;
     * default 64; 0: no limit. */
    uint32_t min_rate;
    bool join_replies; /* see tws_write_message(); default true where a server watches over it */
    /* Text goes unchecked both ways, against RFC 6455, but for prepared messages and what a hub
     * publishes, which many connections share; default false. */
    bool no_utf8_check;
    bool tcp_delay; /* leave Nagle's algorithm on; default false: TCP_NODELAY is set */
    /* tws_handoff_send() of another thread need not wait for the next message; costs a kernel thread's
     * connection over TCP a descriptor, and a system call for each receive; default false. */
    bool handoff;
    void *user;              /* first value of tws_conn_user() */
    tws_queue_options queue; /* of tws_write_async(), see queue.h */
    /*
     * TWS_ERR_FLOOD, 1008: bytes received per second, averaged over 4 s, so that a burst of 4 s'
     * worth is allowed; the time a handler takes between reads is not held against the peer.
     * Default 0: no limit.
     */
    uint64_t max_rate;
    /* TWS_ERR_FLOOD, 1008: fragments under 4 KiB received per second, of all messages; default
     * 262,144; 0: no limit. */
    uint32_t max_fragment_rate;
    /* TWS_ERR_FLOOD, 1008: TLS key updates and attempts to renegotiate in 10 s; default 64; 0: no
     * limit. Not for an SSL * of the application's own that has an info callback. */
    uint32_t max_tls_updates;
    /*
     * Bytes that the system may hold for this socket before they are read and after they are written
     * (SO_RCVBUF, SO_SNDBUF: Linux takes twice as much, and no more than net.core.rmem_max and
     * wmem_max). At most 1 GiB. Default 0: the system's, which grow (tcp_rmem, tcp_wmem).
     */
    uint32_t receive_buffer;
    uint32_t send_buffer;
    uint64_t reserved[13];
} tws_conn_options;

/*
 * Runs on the connection's own thread, whose stack is stack_size bytes: large buffers belong on the
 * heap. When it returns, the library closes the connection with 1000 if that was not done; from then
 * on none of its handlers is called and tws_server_each() does not visit it.
 */
typedef void (*tws_connection_fn)(tws_conn *c, void *arg);

/* ---- Reading ---- */

/**
 * Reads the next message, waiting until it is there whole.
 *
 * Control frames that come before it are handled here: pings are answered, a close frame is
 * answered and ends the connection. Text is checked as it arrives. The first read after a
 * streamed message (tws_next_reader()) drops what was left of that one.
 *
 * @param c the connection
 * @param m filled on TWS_OK, see tws_message for how long the bytes last; emptied otherwise
 * @return TWS_OK; TWS_ERR_TIMEOUT when the read timeout ran out: nothing is lost, also in the
 *         middle of a frame, and the next call goes on; TWS_ERR_BUSY; TWS_ERR_MEMORY never: lack of
 *         memory ends the connection with TWS_ERR_RESOURCE; any ending of the connection.
 * Threads: one at a time.
 * Ownership: the bytes stay the connection's; tws_message_take() makes them yours.
 * RFC: 6455 5, 6.2
 */
TWS_API tws_err tws_read_message(tws_conn *c, tws_message *m);

/**
 * Makes the bytes of the message that was read last the caller's own.
 *
 * Costs no copy when the message had a buffer to itself, as large ones have.
 *
 * @param c the connection that m was read from
 * @param m the message; its data pointer may change
 * @return TWS_OK; TWS_ERR_MEMORY; TWS_ERR_STATE when m is not the last message read from c.
 * Threads: the one that reads.
 * Ownership: release m with tws_message_free(), from any thread, also after the connection ended.
 */
TWS_API tws_err tws_message_take(tws_conn *c, tws_message *m);

/**
 * Releases a message that tws_message_take() made the caller's own.
 *
 * Does nothing to a message that was not taken, so it may be called on every message.
 *
 * @param m the message; data becomes NULL and len 0 if it was taken
 * Threads: any.
 */
TWS_API void tws_message_free(tws_message *m);

/**
 * Waits for the next message to begin, to be read in pieces with tws_reader_read().
 *
 * What was left of an earlier message is dropped. Limits count as for whole messages.
 *
 * @param c the connection
 * @param opcode set to TWS_TEXT or TWS_BINARY
 * @return as tws_read_message().
 * Threads: one at a time.
 * RFC: 6455 5.4
 */
TWS_API tws_err tws_next_reader(tws_conn *c, tws_opcode *opcode);

/**
 * Reads some bytes of the message that tws_next_reader() began.
 *
 * Waits until there is at least one byte or the message has ended. Text pieces may end inside a
 * character; the whole text has been checked when the end is reported.
 *
 * @param c the connection
 * @param buf where the bytes go
 * @param size room in buf, at least 1
 * @param n set to the number of bytes, 0 on errors; 0 with TWS_OK: the message has ended
 * @return TWS_OK; TWS_ERR_STATE when no message is open; else as tws_read_message().
 * Threads: one at a time.
 */
TWS_API tws_err tws_reader_read(tws_conn *c, void *buf, size_t size, size_t *n);

/* ---- Writing ---- */

/**
 * Sends one message as one frame and waits until the system has taken all of it.
 *
 * Messages of several threads go out whole, one after the other, and after those that were queued
 * before by tws_write_async(). A message that could not be begun
 * within the write timeout was not sent at all (TWS_ERR_TIMEOUT) and the connection goes on; one
 * that was stopped inside the frame ends the connection (TWS_ERR_STALLED).
 *
 * With a write timeout of TWS_NOWAIT the call does not wait for the peer: a message that finds no
 * room in the socket's send buffer gives TWS_ERR_TIMEOUT, one that finds room for only a part
 * TWS_ERR_STALLED. It still waits for another thread's write as long as that makes progress.
 *
 * While a handler answers several messages that arrived together, replies of its own thread may be
 * held back for a moment and sent as one (option join_replies), at most until the next read waits
 * or some milliseconds have gone; an error of that send is returned by a later call.
 *
 * A write fails when the peer has gone. What had come before can still be read. If a close frame is in
 * it, the connection has ended with TWS_ERR_PEER_CLOSED and that code and reason, not with
 * TWS_ERR_NETWORK: the write finds it unless another thread is reading or more than 16 KiB stand before
 * it, in which cases the reads find it when they come to it, or the library when the handler returns.
 * A peer that resets the connection may take what it said with it.
 *
 * @param c the connection
 * @param opcode TWS_TEXT or TWS_BINARY
 * @param data the payload; may be NULL when len is 0
 * @param len bytes
 * @return TWS_OK; TWS_ERR_ARGUMENT; TWS_ERR_TEXT; TWS_ERR_MESSAGE_SIZE; TWS_ERR_TIMEOUT;
 *         TWS_ERR_STATE when this thread has a tws_writer open on c; TWS_ERR_CLOSED once a close
 *         frame has been sent; TWS_ERR_SYSTEM when the system has no random bytes for a client's mask,
 *         and nothing was sent; any ending of the connection.
 * Threads: any.
 * Ownership: data stays the caller's and is not needed after the call. Bytes shown by
 *         tws_read_message() may be sent as they are.
 * RFC: 6455 5.2, 6.1
 */
TWS_API tws_err tws_write_message(tws_conn *c, tws_opcode opcode, const void *data, size_t len);

/**
 * Sends a zero-terminated string as a text message.
 *
 * @param c the connection
 * @param text UTF-8
 * @return as tws_write_message().
 * Threads: any.
 */
TWS_API tws_err tws_write_text(tws_conn *c, const char *text);

/**
 * Sends one message that lies in several pieces, as one frame.
 *
 * @param c the connection
 * @param opcode TWS_TEXT or TWS_BINARY
 * @param iov the pieces; not changed
 * @param count how many; 0 to 1,024
 * @return as tws_write_message().
 * Threads: any.
 */
TWS_API tws_err tws_writev_message(tws_conn *c, tws_opcode opcode, const struct iovec *iov,
                                   int count);

/**
 * Begins a message that is written in pieces, as fragments.
 *
 * Until tws_writer_close(), data messages of other threads wait (at most their write timeout);
 * pings, pongs and close frames pass between the fragments. For a file or pipe there is
 * tws_write_file() (stream.h).
 *
 * @param c the connection
 * @param opcode TWS_TEXT or TWS_BINARY
 * @param w set to the writer; NULL on failure
 * @return TWS_OK; TWS_ERR_MEMORY; TWS_ERR_STATE when this thread has one open already; else as
 *         tws_write_message().
 * Threads: any; the writer itself is used by the thread that opened it.
 * Ownership: tws_writer_close(), also when tws_writer_write() has failed.
 * RFC: 6455 5.4
 */
TWS_API tws_err tws_next_writer(tws_conn *c, tws_opcode opcode, tws_writer **w);

/**
 * Appends bytes to a message begun with tws_next_writer().
 *
 * Small pieces are gathered and leave as fragments of 16 KiB.
 *
 * @param w the writer
 * @param data the bytes
 * @param len how many
 * @return as tws_write_message(). After TWS_ERR_TEXT or TWS_ERR_MESSAGE_SIZE, which leave the
 *         connection with a message it cannot end, tws_writer_close() ends the connection with 1011,
 *         unless nothing of the message had left.
 * Threads: the one that opened w.
 */
TWS_API tws_err tws_writer_write(tws_writer *w, const void *data, size_t len);

/**
 * Sends what is left and ends the message.
 *
 * @param w the writer; invalid afterwards whatever is returned
 * @return as tws_write_message(): after TWS_ERR_TIMEOUT nothing of the message was sent, while
 *         TWS_ERR_STALLED ends the connection, with 1011 when it happened between two fragments;
 *         TWS_ERR_TEXT when the text ended inside a character.
 * Threads: the one that opened w.
 */
TWS_API tws_err tws_writer_close(tws_writer *w);

/**
 * Sends replies that join_replies holds back, now.
 *
 * Not needed for correctness: nothing is held while the reader waits or while a handler runs long.
 *
 * @param c the connection
 * @return as tws_write_message().
 * Threads: any.
 */
TWS_API tws_err tws_flush(tws_conn *c);

/**
 * Sends a ping.
 *
 * It passes between messages that wait, and between the fragments of one. Behind a frame that is half
 * sent it waits, at most the write timeout: TWS_ERR_TIMEOUT.
 *
 * @param c the connection
 * @param data at most 125 bytes that the peer's pong brings back; may be NULL when len is 0
 * @param len bytes
 * @return TWS_OK; TWS_ERR_CONTROL_SIZE; else as tws_write_message().
 * Threads: any.
 * RFC: 6455 5.5.2
 */
TWS_API tws_err tws_ping(tws_conn *c, const void *data, size_t len);

/**
 * Sends a pong that nobody asked for. Pings are answered by the library.
 *
 * @param c the connection
 * @param data at most 125 bytes; may be NULL when len is 0
 * @param len bytes
 * @return as tws_ping().
 * Threads: any.
 * RFC: 6455 5.5.3
 */
TWS_API tws_err tws_pong(tws_conn *c, const void *data, size_t len);

/* ---- Ending ---- */

/**
 * Closes the connection: sends a close frame, waits for the peer's, and ends. May block up to the
 * close timeout; tws_close_start() does not.
 *
 * Wakes every call that is blocked on the connection, in any thread: they return TWS_ERR_CLOSED.
 * When another thread is stuck inside a frame to a peer that does not read, no close frame can be
 * sent any more; that frame is abandoned and the connection is cut. May be called any number of
 * times and together with tws_abort(); later calls wait for the first one to finish and return the
 * same. Called from the connection's own handler it works the same; from one of its ping, pong or
 * close handlers it only begins, as tws_close_start() does.
 *
 * A handler need not call it: when it returns, the library closes with 1000.
 *
 * A write that waits for the peer counts as stuck, also before its first byte. Messages of
 * tws_write_async() are not stuck but waited for: see queue.h.
 *
 * @param c the connection
 * @param code 1000 to 1003, 1007 to 1014, 3000 to 4999; or 0 (or 1005) for a close frame without code
 * @param reason UTF-8, at most 123 bytes, or NULL
 * @return TWS_OK when the connection is over and both close frames were exchanged;
 *         TWS_ERR_CLOSE_TIMEOUT when it is over but the peer did not answer in time;
 *         TWS_ERR_CLOSE_CODE, TWS_ERR_CONTROL_SIZE, TWS_ERR_TEXT for arguments: nothing was sent and
 *         the connection stays open; or how the connection ended, when it did so by itself or
 *         without a close frame from the peer.
 * Threads: any.
 * RFC: 6455 5.5.1, 7
 */
TWS_API tws_err tws_close(tws_conn *c, uint16_t code, const char *reason);

/**
 * Begins to close the connection and returns without waiting.
 *
 * Blocked calls wake as from tws_close(), and the close frame leaves as soon as the socket takes it.
 * The rest of the closing handshake is done when the connection's handler has returned (within the
 * close timeout), or by a later tws_close(). Right for code that holds a lock or closes many.
 *
 * @param c the connection
 * @param code as for tws_close()
 * @param reason as for tws_close()
 * @return TWS_OK; TWS_ERR_CLOSE_CODE, TWS_ERR_CONTROL_SIZE, TWS_ERR_TEXT for arguments; or how the
 *         connection has ended already.
 * Threads: any.
 * RFC: 6455 5.5.1
 */
TWS_API tws_err tws_close_start(tws_conn *c, uint16_t code, const char *reason);

/**
 * Cuts the connection at once, without a close frame.
 *
 * Wakes every blocked call; never waits. The peer sees 1006. Safe to call any number of times.
 *
 * @param c the connection
 * Threads: any.
 */
TWS_API void tws_abort(tws_conn *c);

/**
 * Takes one more reference on a connection.
 *
 * @param c the connection
 * @return c
 * Threads: any that already holds a valid reference.
 * Ownership: give it back with tws_conn_unref().
 */
TWS_API tws_conn *tws_conn_ref(tws_conn *c);

/**
 * Gives a reference back. The last one frees the connection; if it was still open it is cut.
 *
 * @param c the connection, or NULL
 * Threads: any.
 */
TWS_API void tws_conn_unref(tws_conn *c);

/* ---- Handlers ---- */

/*
 * Called on the reading thread, inside a read call, for a ping or pong. `data` is valid during the
 * call. A ping handler returns true to have the library send the pong, false when it did so itself
 * or wants none. The return value of a pong handler has no effect.
 */
typedef bool (*tws_control_fn)(tws_conn *c, const void *data, size_t len, void *arg);
/*
 * Called on the reading thread when the peer's close frame has arrived, before it is answered.
 * `code` is 1005 when the frame had none; `reason` is zero-terminated.
 */
typedef void (*tws_close_fn)(tws_conn *c, uint16_t code, const char *reason, void *arg);

/**
 * Sets what is called when a ping arrives.
 *
 * @param c the connection
 * @param fn the handler, or NULL for none: every ping is answered
 * @param arg handed to fn
 * Threads: the one that reads, or before reading begins.
 */
TWS_API void tws_set_ping_handler(tws_conn *c, tws_control_fn fn, void *arg);

/**
 * Sets what is called when a pong arrives.
 *
 * @param c the connection
 * @param fn the handler, or NULL
 * @param arg handed to fn
 * Threads: the one that reads, or before reading begins.
 */
TWS_API void tws_set_pong_handler(tws_conn *c, tws_control_fn fn, void *arg);

/**
 * Sets what is called when the peer's close frame arrives.
 *
 * @param c the connection
 * @param fn the handler, or NULL
 * @param arg handed to fn
 * Threads: the one that reads, or before reading begins.
 */
TWS_API void tws_set_close_handler(tws_conn *c, tws_close_fn fn, void *arg);

/* ---- Timeouts and limits, while it runs ---- */

typedef enum tws_timeout {
    TWS_TIMEOUT_READ = 1,  /* TWS_NOWAIT allowed */
    TWS_TIMEOUT_WRITE = 2, /* TWS_NOWAIT allowed */
    TWS_TIMEOUT_CLOSE = 3,
    TWS_TIMEOUT_IDLE = 4,
    TWS_TIMEOUT_PING_INTERVAL = 5,
    TWS_TIMEOUT_PING = 6
} tws_timeout;

/**
 * Changes a timeout. Meanings and defaults are those of tws_conn_options. For one moment that several
 * calls have to keep, see tws_set_deadline() in wait.h, for a limit of one call
 * tws_read_message_within() and tws_write_message_within() there.
 *
 * Holds from the next call on; a call that is waiting keeps the value it began with, except that
 * a shorter ping interval is taken up when the present one ends.
 *
 * @param c the connection
 * @param which the timeout
 * @param value milliseconds; 0: no limit
 * @return TWS_OK; TWS_ERR_ARGUMENT.
 * Threads: any.
 */
TWS_API tws_err tws_set_timeout(tws_conn *c, tws_timeout which, tws_ms value);

/**
 * Reads a timeout.
 *
 * @param c the connection
 * @param which the timeout
 * @return milliseconds, 0 for no limit; TWS_NOWAIT. Of a deadline, what is left of it.
 * Threads: any.
 */
TWS_API tws_ms tws_get_timeout(tws_conn *c, tws_timeout which);

typedef enum tws_limit {
    TWS_LIMIT_MESSAGE = 1,
    TWS_LIMIT_WRITE = 2,
    TWS_LIMIT_FRAGMENTS = 3,
    TWS_LIMIT_CONTROL_RATE = 4,
    TWS_LIMIT_RATE = 5,
    TWS_LIMIT_FRAGMENT_RATE = 6
} tws_limit;

/**
 * Changes a limit. Meanings and defaults are those of tws_conn_options.
 *
 * @param c the connection
 * @param which the limit
 * @param value 0: no limit
 * @return TWS_OK; TWS_ERR_ARGUMENT.
 * Threads: any; holds from the next message on.
 */
TWS_API tws_err tws_set_limit(tws_conn *c, tws_limit which, uint64_t value);

/* ---- What is known about it ---- */

/**
 * Copies the error record: how the connection ended, or code TWS_OK while it is open.
 *
 * @param c the connection
 * @param out filled
 * Threads: any.
 */
TWS_API void tws_conn_error(tws_conn *c, tws_error *out);

/**
 * Attaches a pointer of the caller's.
 *
 * @param c the connection
 * @param user any value
 * Threads: any.
 * Ownership: never freed by the library.
 */
TWS_API void tws_conn_set_user(tws_conn *c, void *user);

/**
 * The pointer that was attached last.
 *
 * @param c the connection
 * @return the pointer, at first that of the options or of the upgrade hook.
 * Threads: any.
 */
TWS_API void *tws_conn_user(tws_conn *c);

/**
 * A number that no other connection of this process has or will have.
 *
 * @param c the connection
 * @return the number, above 0.
 * Threads: any.
 */
TWS_API uint64_t tws_conn_id(const tws_conn *c);

/**
 * The request that opened this connection: path, query, headers, cookies.
 *
 * @param c the connection
 * @return the request, valid as long as c; NULL when the connection was not opened by a request
 *         the library has seen.
 * Threads: any.
 */
TWS_API const tws_request *tws_conn_request(const tws_conn *c);

/**
 * The subprotocol that was agreed.
 *
 * @param c the connection
 * @return its name, or NULL for none; valid as long as c.
 * Threads: any.
 * RFC: 6455 1.9
 */
TWS_API const char *tws_conn_subprotocol(const tws_conn *c);

/**
 * The peer's address as text, for example "127.0.0.1:50312", "[::1]:50312" or "unix".
 *
 * @param c the connection
 * @param buf where it goes; zero-terminated whenever size is above 0
 * @param size room in buf; 64 is enough for TCP
 * @return the length of the whole text, as snprintf() counts.
 * Threads: any.
 */
TWS_API size_t tws_conn_peer_address(const tws_conn *c, char *buf, size_t size);

/**
 * The local address as text, in the form of tws_conn_peer_address(); "unix:PATH" for Unix sockets.
 *
 * @param c the connection
 * @param buf where it goes; zero-terminated whenever size is above 0
 * @param size room in buf
 * @return the length of the whole text, as snprintf() counts; 0 when it cannot be found out.
 * Threads: any.
 */
TWS_API size_t tws_conn_local_address(const tws_conn *c, char *buf, size_t size);

/* Counters of one connection. */
typedef struct tws_stats {
    uint64_t messages_in, messages_out;
    uint64_t bytes_in, bytes_out; /* payload bytes of data messages, as the caller sees them */
    uint64_t wire_in, wire_out;   /* all bytes, from the first frame on */
    uint64_t pings_in, pings_out, pongs_in, pongs_out;
    uint64_t fragments_in; /* data frames that were part of a fragmented message */
    uint64_t timeouts;     /* reads and writes that returned TWS_ERR_TIMEOUT */
    uint64_t joined;       /* replies that left together with another one */
    int64_t open_ms;       /* since the handshake */
    int64_t idle_ms;       /* since the last byte was received */
    int64_t rtt_us;        /* last measured by a keepalive ping; -1: not yet */
    uint64_t compressed_messages_in, compressed_messages_out;
    /* Payload of those messages on the wire, and what it stands for. */
    uint64_t compressed_in, compressed_out, original_in, original_out;
    uint64_t queue_bytes, queue_messages; /* waiting now, see tws_queue_get_stats() */
    uint64_t queue_accepted;              /* messages that tws_write_async() took */
    uint64_t queue_dropped_oldest, queue_dropped_newest, queue_wait_timeouts, queue_overflows;
    uint64_t writers_started; /* threads that sent what was queued */
} tws_stats;

/**
 * Reads the counters of a connection. They are exact once the calls that change them have returned.
 *
 * @param c the connection
 * @param out filled
 * @param size sizeof *out; use the macro tws_conn_stats(c, out)
 * Threads: any.
 */
TWS_API void tws_conn_stats_sized(tws_conn *c, tws_stats *out, size_t size);
#define tws_conn_stats(c, out) tws_conn_stats_sized((c), (out), sizeof *(out))

#ifdef __cplusplus
}
#endif
#endif
