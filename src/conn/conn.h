/*
 * conn.h: one connection, inside.
 *
 * Who guards what. A connection has one short lock, `mu`, never held across anything that waits,
 * and two roles that a thread takes for the length of a call:
 *   - the reader: flag `reading`, taken by compare and swap; owns everything named "reader's";
 *   - the writer: flag `writing` under mu; owns the stream's sending side and `out`.
 * A closing connection is read on, to find the peer's close frame, by whoever closes it: it wakes
 * the reader, waits for it to leave, and takes its role.
 */
#ifndef CONN_CONN_H
#define CONN_CONN_H

#include <tws/conn.h>

#include "base/dict.h"
#include "base/log.h"
#include "conn/env.h"
#include "net/address.h"
#include "net/stream.h"
#include "net/tls.h"
#include "wire/frame.h"
#include "wire/utf8.h"

/* Masking keys drawn in advance; the writer's. */
struct conn_keys {
    uint64_t generation; /* of the process they were drawn in */
    uint32_t left;       /* bytes */
    uint32_t single;     /* keys that were drawn one by one */
    uint8_t bytes[240];
};

enum conn_state {
    CONN_OPEN,
    CONN_CLOSING, /* we began to close: no more data out, none handed to the caller */
    CONN_ENDED    /* shut down; the error record is final */
};

/* Limits whose passing ends a connection; also the labels of the counters. */
enum conn_passed {
    CONN_PASSED_NONE,
    CONN_PASSED_MESSAGE,
    CONN_PASSED_RATIO,
    CONN_PASSED_FRAGMENTS,
    CONN_PASSED_FRAGMENT_RATE,
    CONN_PASSED_CONTROL_RATE,
    CONN_PASSED_RATE,
    CONN_PASSED_MIN_RATE,
    CONN_PASSED_TLS_UPDATES,
    CONN_PASSED_QUEUE,
    CONN_PASSED_ENDS
};

/* By events. */
enum conn_handled {
    CONN_HANDLED_NOT,
    CONN_HANDLED_NOW, /* or about to be */
    CONN_HANDLED_DONE /* on_close has returned */
};

/* The error record, small; the public one is made from it when somebody asks. */
struct conn_error {
    tws_err code;
    tws_phase phase;
    tws_cause cause;
    int sys_errno;
    uint16_t close_code;
    uint16_t sent_code; /* of our close frame; 0: none sent */
    bool clean;
    bool cut; /* the peer closed in the middle of a message */
    uint8_t reason_len;
    char reason[TWS_REASON_MAX];
    const char *detail; /* a constant: what exactly was wrong; NULL */
    /* The limit that was passed; with got and allowed both 0 when there are no numbers. */
    enum conn_passed passed;
    uint64_t got, allowed;
};

/* Received bytes. The small area behind the connection is used until it proves too small. */
struct conn_input {
    uint8_t *buf;
    uint32_t cap; /* one more byte is there, for the zero behind a message */
    uint32_t rd, wr;
    uint8_t *area; /* NULL: none */
    uint32_t area_cap;
    uint32_t late;    /* bytes that came in this call after its time was over */
    uint8_t hot;      /* receives for which a borrowed buffer is kept although it is empty */
    bool filled;      /* the last receive filled the buffer: there is probably more */
    bool borrowed;    /* buf is from env->buffers */
    bool deep;        /* TLS may have used more of the stack than waiting needs */
    uint8_t *zero_at; /* where a byte was overwritten with zero; NULL */
    uint8_t zero_was;
    uint8_t *kept; /* from env->buffers, for who still looks at a message in it; NULL */
};

/* A message that is put together in a buffer of its own, which may become the caller's. */
struct conn_owned {
    const tws_allocator *allocator;
    _Atomic uint32_t refs; /* once it is a taken message: holders */
    bool lent;             /* by the library, which frees it, to a handler that may take it */
    uint8_t data[];
};
struct conn_assembly {
    struct conn_owned *block; /* NULL: none */
    size_t len, cap;          /* of data, without the byte for the zero */
    bool pooled;              /* block is from env->buffers */
};

/* The data frame and message that are being received; reader's. */
struct conn_incoming {
    struct wire_frame frame; /* the frame whose payload is being received */
    uint64_t frame_done;     /* payload bytes of it that have been unmasked and checked */
    uint64_t message_len;    /* payload bytes of all frames of the message before this one */
    int64_t waited;          /* ns spent waiting for the rest of an incomplete frame */
    uint64_t waited_bytes;   /* bytes that came meanwhile */
    uint32_t small_frames;
    uint32_t clear; /* compressed: bytes of frame_done that stand in the input, from rd on */
    struct wire_utf8 utf8;
    /* What was handed out last; NULL. Writers compare with it, hence atomic; conn_view(). */
    _Atomic(const uint8_t *) view;
    size_t view_len;
    uint32_t view_room; /* bytes before it, of headers that have been read, which are free */
    uint8_t opcode;     /* of the message */
    bool in_frame;      /* a data frame's header has been taken, its payload not yet whole */
    bool in_message;    /* a data message has begun and its last frame has not ended */
    bool streaming;     /* opened by tws_next_reader */
    bool skipping;      /* what is left of it is being dropped, maybe by several calls */
    bool compressed;    /* the message is */
    uint8_t owed;       /* bytes of the terminator behind the last message, see stream.c */
    bool in_place;      /* frame_done bytes of the frame still stand in the input, from rd on */
    _Atomic bool more;  /* a whole message waits in the input behind the one handed out */
    struct conn_assembly whole;
};

struct conn_counters { /* each written by one role only, read by anybody */
    _Atomic uint64_t messages_in, bytes_in, wire_in, pings_in, pongs_in, fragments_in; /* reader */
    _Atomic uint64_t messages_out, bytes_out, wire_out, joined;                        /* writer */
    _Atomic uint64_t pings_out, pongs_out, timeouts; /* anybody, CONN_ADD */
};

/* Counters of control frames, which both roles and callers add to. */
#define CONN_ADD(counter, n) atomic_fetch_add_explicit(&(counter), (n), memory_order_relaxed)
#define CONN_COUNT(counter, n)                                                                     \
    atomic_store_explicit(&(counter),                                                              \
                          atomic_load_explicit(&(counter), memory_order_relaxed) + (n),            \
                          memory_order_relaxed)

enum { CONN_TIMEOUTS = TWS_TIMEOUT_PING + 1, CONN_LIMITS = TWS_LIMIT_FRAGMENT_RATE + 1 };

struct tws_conn {
    _Atomic uint64_t refs; /* the callers', and CONN_KEEP for each of the library's own */
    bool server;           /* our side */
    bool check_utf8;       /* constant */
    bool join;             /* constant */
    bool telling;          /* env->mu: in env's list */
    uint8_t handled;       /* mu: enum conn_handled */
    struct conn_env *env;
    struct net_stream stream;
    union net_peer peer; /* constant */
    uint64_t id;
    _Atomic(void *) user;
    _Atomic tws_ms timeouts[CONN_TIMEOUTS];
    _Atomic uint64_t limits[CONN_LIMITS];
    uint32_t min_rate; /* constant */

    /* Reader's. */
    _Atomic bool reading;
    bool pinged;              /* a keepalive ping is out */
    bool ping_owed;           /* or could not leave behind what is queued */
    bool drop;                /* the reader is finishing the closing handshake: data is dropped */
    _Atomic uintptr_t reader; /* task_self() of the thread in a read call; kept after it */
    struct conn_input in;
    struct conn_incoming msg;
    _Atomic int64_t last_rx; /* coarse */
    int64_t last_data;       /* coarse: last byte of a data message */
    int64_t ping_mark;       /* what the peer had taken then, see conn_queue_progress() */
    uint32_t control_count;
    uint32_t fragment_count;
    int64_t control_since;
    int64_t fragment_since;
    double rate_level; /* bytes above what max_rate has allowed so far */
    int64_t rate_at;   /* coarse: when that was worked out */
    tws_control_fn on_ping, on_pong;
    tws_close_fn on_close;
    void *ping_arg, *pong_arg, *close_arg;

    /* Any thread, under mu unless said otherwise. */
    task_mutex mu;
    _Atomic uint8_t state; /* enum conn_state; written under mu */
    bool writing;          /* somebody has the writer's role */
    bool write_blocked;    /* and waits for the peer to take data */
    bool close_wanted;     /* our close frame is to be sent before anything else */
    bool close_queued;     /* it has been put into out or sent */
    bool pong_wanted;
    bool peer_closed; /* the peer's close frame has come */
    bool finishing;   /* somebody is doing the closing handshake */
    /* See handover.c. */
    _Atomic bool lend_wanted; /* written under mu: somebody wants to hand the connection over */
    bool lent;                /* the reader waits, inside its call, until that is over */
    bool handing;             /* it is in the hands of another process, maybe */
    /* Ended by a failed write: what came before may still be read, and a close frame in it tells more
     * than that write. */
    _Atomic bool rest_readable;
    _Atomic bool pinging; /* a hint for the reader: pings is not empty */
    bool pumping;         /* the reader only handles control frames, see ping.c */
    bool out_lent;        /* writer's: `out` is conn_out_lend()'s */
    uint8_t pong_len;
    uint8_t pong_data[WIRE_CONTROL_MAX];
    uint16_t controls;              /* threads that wait to send a ping or pong */
    _Atomic uint32_t reader_wanted; /* threads that wait for `reading` to become false */
    _Atomic uintptr_t only_reader;  /* nobody else may read: parallel events; 0: whoever comes */
    struct task_queue turns;        /* threads that want the writer's role */
    struct task_queue events; /* threads that wait for the reader to leave or for the end; also
                                       for the end of `handled` */
    struct conn_error error;
    void *writer; /* who has a message open: a tws_writer, or a file that is being sent */
    uintptr_t writer_owner;
    struct conn_counters count;
    int64_t opened;
    int64_t ping_sent; /* reader's: when the keepalive ping left; 0 */
    _Atomic int64_t rtt_us;

    /* Writer's: bytes that must leave before anything else. */
    uint8_t *out;
    uint32_t out_begin;
    _Atomic uint32_t out_len; /* a hint for others */
    struct hold_slot *hold;
    struct conn_keys *keys; /* behind the connection in its block; NULL: none (servers) */

    _Atomic(struct conn_queue *) queue; /* set once, under mu; NULL: nothing was ever queued */
    struct conn_end_hook *end_hooks;    /* mu */
    tws_conn *tell_next;                /* env->mu */

    _Atomic(struct base_dict *) session; /* set once; NULL: nothing was ever stored */
    struct event_run *run;               /* mu: events are being run; NULL */

    struct conn_ping *pings;    /* mu: sent and waited for, in the order of sending */
    struct conn_watch *watches; /* mu: threads that wait for more than this connection */
    struct conn_stream *bytes;  /* reader's, owned; NULL: no terminator, see stream.c */

    const tws_request *request; /* owned; released by request_free */
    void (*request_free)(struct tws_conn *c);
    char *subprotocol;            /* owned, constant; NULL: none */
    struct conn_handed *handed;   /* owned, constant: came from another process; NULL: it did not */
    struct conn_deflate *deflate; /* owned, constant; NULL: no compression was agreed */
};

/* What another process has sent with a connection. */
struct conn_handed {
    size_t len;
    uint8_t data[];
};

struct conn_setup {
    struct conn_env *env;
    struct net_stream stream; /* taken over */
    union net_peer peer;
    bool server;
    const tws_conn_options *options;
    void *user;
};

/* ---- conn.c ---- */

/* `block` is from env->blocks and becomes the connection; `area` bytes at its end are the receive
 * area. */
tws_conn *conn_init(void *block, const struct conn_setup *setup, size_t area);
void conn_options_init(tws_conn_options *opt);
/* What is not allowed in them; NULL when all is well. */
const char *conn_options_fault(const tws_conn_options *c);
/* What they say of the socket. */
struct net_tcp conn_tcp(const tws_conn_options *c);
/* A client's: the rest of `block` becomes its keys and its receive area. */
tws_conn *conn_init_client(void *block, const struct conn_setup *setup);
/* Bytes that were received before the connection was made. False when they do not fit. */
bool conn_feed(tws_conn *c, const void *data, size_t len);
static inline enum conn_state conn_state(const tws_conn *c)
{
    return (enum conn_state)atomic_load(&c->state);
}
static inline tws_ms conn_timeout(tws_conn *c, tws_timeout which)
{
    return atomic_load_explicit(&c->timeouts[which], memory_order_relaxed);
}
static inline uint64_t conn_limit(tws_conn *c, tws_limit which)
{
    return atomic_load_explicit(&c->limits[which], memory_order_relaxed);
}

/* References of the library's own threads and lists. They keep the memory, not the connection: when
 * the callers have given theirs back it is cut. */
#define CONN_KEEP (UINT64_C(1) << 32)
void conn_keep(tws_conn *c);
void conn_drop(tws_conn *c);
/* Takes a reference as tws_conn_ref() does, if the callers still have one. */
bool conn_try_ref(tws_conn *c);

/* A thread of the same kind as the calling one, if that is the library's, else as the connection's
 * own helpers. 0 or -errno. */
int conn_spawn(tws_conn *c, void (*fn)(void *), void *arg);

/* ---- tell.c: callbacks ---- */

/* There is something to tell about c. mu is held. */
void conn_tell_locked(tws_conn *c);

/* ---- end.c: the error record and the end ---- */

struct conn_cause {
    tws_err code;
    tws_phase phase;
    tws_cause cause;
    int sys_errno;
    const char *detail;
};

/* Ends the connection; the first call's cause is kept. Returns the code that ended it. */
tws_err conn_end(tws_conn *c, const struct conn_cause *cause);
tws_err conn_end_locked(tws_conn *c, const struct conn_cause *cause);
/* Sends a close frame with that code if it can be sent without waiting long, then ends. */
tws_err conn_fail(tws_conn *c, const struct conn_cause *cause, uint16_t close_code);
/* The peer has passed a limit: the same, with both numbers in the record. */
struct conn_excess {
    tws_err code;
    enum conn_passed passed;
    uint64_t got, allowed;
    const char *detail;
};
tws_err conn_fail_limit(tws_conn *c, const struct conn_excess *e, uint16_t close_code);
/* Which limit ended it. */
enum conn_passed conn_passed(tws_conn *c);
/* As conn_fail() but for the sending; conn_kick() does that. */
tws_err conn_fail_locked(tws_conn *c, const struct conn_cause *cause, uint16_t close_code);
/* A negative errno from the stream while reading or writing. */
tws_err conn_io_failed(tws_conn *c, tws_phase phase, int error);
/* The peer's close frame was read after a failed write had ended the connection. */
void conn_farewell_locked(tws_conn *c, uint16_t code, const uint8_t *reason, size_t len);
/* Close frames have gone both ways, also when the socket is still open. */
bool conn_closed_clean(tws_conn *c);
/* What a call on a connection that is closing or over returns. */
tws_err conn_sticky(tws_conn *c);
tws_err conn_sticky_locked(const tws_conn *c);

/* ---- input.c ---- */

/* Receives at least one byte more, with room for `need` bytes from rd on. Handles keepalive. */
tws_err conn_input_fill(tws_conn *c, uint32_t need, int64_t deadline);
/* Receives straight into a caller's buffer; input must be empty. */
tws_err conn_input_direct(tws_conn *c, void *buf, size_t size, size_t *n, int64_t deadline);
/* Receives what is there, if there is room, without waiting. False: nothing. */
bool conn_input_more(tws_conn *c);
/* How long to wait before silence has to be looked at; 0: for ever. */
tws_ms conn_silence_period(tws_conn *c);
/* What is held or stranded leaves before the reader waits. */
void conn_before_wait(tws_conn *c);
/* Ends an open connection that has had no data for as long as the idle timeout. */
tws_err conn_check_idle(tws_conn *c, int64_t now);
/* Gives a borrowed buffer back when nothing is in it. */
void conn_input_release(tws_conn *c);
/* Leaves the bytes that were shown last as they are and goes on in another buffer. False: no memory. */
bool conn_input_keep_view(tws_conn *c);
/* Puts back the byte that the zero behind the last message stands for. */
static inline void conn_input_restore(tws_conn *c)
{
    if (c->in.zero_at) {
        *c->in.zero_at = c->in.zero_was;
        c->in.zero_at = NULL;
    }
}
static inline const uint8_t *conn_view(tws_conn *c)
{
    return atomic_load_explicit(&c->msg.view, memory_order_acquire);
}
static inline void conn_set_view(tws_conn *c, const uint8_t *view)
{
    /* Released: who closes writes where the message stood once it sees that nobody looks at it. */
    atomic_store_explicit(&c->msg.view, view, memory_order_release);
}
static inline void conn_set_more(tws_conn *c, bool more)
{
    atomic_store_explicit(&c->msg.more, more, memory_order_relaxed);
}
static inline uint32_t conn_input_len(const tws_conn *c)
{
    return c->in.wr - c->in.rd;
}

/* How many bytes before a message that this thread read last may be overwritten. */
static inline uint32_t conn_view_room(tws_conn *c, const void *data, size_t len)
{
    return data && atomic_load_explicit(&c->reader, memory_order_relaxed) == task_self() &&
                   data == conn_view(c) && len == c->msg.view_len
               ? c->msg.view_room
               : 0;
}

/* ---- frame.c: frames off the input, control frames handled ---- */

static inline struct wire_frame_rules conn_frame_rules(const tws_conn *c)
{
    return (struct wire_frame_rules){.expect_masked = c->server,
                                     .rsv_allowed = c->deflate ? WIRE_RSV1 : 0};
}
/* Until a data frame's header stands at the read position, which is not taken; or, if `one`, until a
 * control frame has been handled. *f is the header. */
tws_err conn_next_header(tws_conn *c, struct wire_frame *f, bool one, int64_t deadline);
/* Until a data frame's header has been taken (msg.in_frame). */
tws_err conn_next_frame(tws_conn *c, int64_t deadline);
/* Unmasks, in place, and checks (unless compressed) len more bytes of the frame's payload. */
tws_err conn_frame_payload(tws_conn *c, uint8_t *data, size_t len);
/* The frame's last byte has been handled. */
tws_err conn_frame_ended(tws_conn *c);
/* Ends a connection whose frames arrive too slowly. Call after a wait that did not complete one. */
tws_err conn_frame_slow(tws_conn *c);

/* ---- rate.c ---- */

/* n bytes have come after a wait for them. Ends a connection that receives more than max_rate. */
tws_err conn_rate_judge(tws_conn *c, size_t n, int64_t waited_from);
/* One more event of a kind of which only so many are allowed in a second; *count and *since are what
 * is remembered of them. How many there were when that is too many, else 0. */
uint32_t conn_rate_excess(uint32_t *count, int64_t *since, uint64_t limit);

/* ---- read.c ---- */

/* Waits, until the deadline, only for a thread that pumps control frames. */
tws_err conn_reader_enter(tws_conn *c, int64_t deadline);
/* The same, and what was shown last stays as it is. */
tws_err conn_reader_claim(tws_conn *c, int64_t deadline);
void conn_reader_leave(tws_conn *c);
static inline int64_t conn_read_deadline(tws_conn *c)
{
    return task_deadline(conn_timeout(c, TWS_TIMEOUT_READ));
}
/* A read of any kind begins: what the last one showed is over. */
void conn_forget_shown(tws_conn *c);
/* With the role: tws_next_reader() and tws_reader_read(), whose conditions hold. */
tws_err conn_next_reader(tws_conn *c, int64_t deadline);
tws_err conn_reader_read(tws_conn *c, uint8_t *buf, size_t size, size_t *n, int64_t deadline);
/* What a message is put together in, for the reader. False: no memory. */
bool conn_assembly_resize(tws_conn *c, size_t cap);
void conn_assembly_free(tws_conn *c);
/* Ends the connection for lack of memory. */
tws_err conn_read_no_memory(tws_conn *c);
/* A taken message is shown to a handler, which may take it once more; then the library's hold on it
 * is given back. */
void conn_message_lend(tws_message *m);
void conn_message_reclaim(tws_message *m);
/* Reads and drops what is left of the message that is being received. */
tws_err conn_skip_message(tws_conn *c, int64_t deadline);

/* ---- out.c: bytes that must leave before anything else ---- */

/* Appends a frame, masked in a client. Caller has the writer's role, or mu while nobody has it.
 * False: no room or no memory. */
bool conn_out_append(tws_conn *c, const struct wire_frame *f, const struct iovec *iov, int count);
static inline uint32_t conn_out_len(const tws_conn *c)
{
    return atomic_load_explicit(&c->out_len, memory_order_relaxed);
}
/* n bytes of it have left. */
void conn_out_sent(tws_conn *c, uint32_t n);
void conn_out_free(tws_conn *c);
/* Has `out`, which is empty, stand in the caller's room for control frames, until it is empty again. */
#define CONN_LENT (2 * (WIRE_FRAME_HEADER_MAX + WIRE_CONTROL_MAX))
void conn_out_lend(tws_conn *c, uint8_t room[CONN_LENT]);

/* ---- turn.c: the writer's role ---- */

/* Who asks for the role: what may pass, and when it has to give up. */
enum conn_turn {
    CONN_TURN_DATA,    /* a data message: not inside somebody's open writer */
    CONN_TURN_WRITER,  /* a fragment of the open writer */
    CONN_TURN_CONTROL, /* a ping or pong: between fragments too */
    CONN_TURN_CLOSE    /* the closing handshake: also when the connection is closing */
};

/* A deadline that is worked out when it is needed first: most calls never wait. */
struct conn_wait {
    tws_ms ms; /* 0: for ever; TWS_NOWAIT */
    int64_t deadline;
};
int64_t conn_wait_deadline(struct conn_wait *w);

/* Whether the calling thread has a tws_writer open. mu is held. */
static inline bool conn_own_writer_locked(const tws_conn *c)
{
    return c->writer && c->writer_owner == task_self();
}
tws_err conn_turn_take(tws_conn *c, enum conn_turn turn, struct conn_wait *w);
/* The same without waiting; false when somebody else has it. mu is held. */
bool conn_turn_try_locked(tws_conn *c);
/* Sends wanted control frames as far as the socket takes them, then lets the next thread go on. */
void conn_turn_give(tws_conn *c);
void conn_turn_give_locked(tws_conn *c);
/* The same without sending anything. */
void conn_turn_release_locked(tws_conn *c);
/* Puts wanted control frames into `out`. The role is held. */
void conn_queue_wanted_locked(tws_conn *c);
/* Sends what is wanted or held, if that needs no waiting; for the watcher and for closing. */
void conn_kick(tws_conn *c);

/* ---- handover.c: to another process ---- */

/*
 * Takes both roles and sends what is to leave first. On TWS_OK the connection is between two messages,
 * with nothing but received bytes in hand, until conn_handover_end().
 */
tws_err conn_handover_begin(tws_conn *c, tws_ms ms, int64_t deadline);
/* gone: the other process has it, and it ends here. Else it goes on. How it ended otherwise, if so. */
tws_err conn_handover_end(tws_conn *c, bool gone);
/* Ends a connection here that another process has: its socket is left alone. */
void conn_disown(tws_conn *c);
/* The reader's, inside a read call: lets that thread go first. */
void conn_handover_lend(tws_conn *c);

/* ---- keys.c ---- */

/* A fresh, unpredictable masking key. With the writer's role, or mu while nobody has it. False when
 * the system has none. */
bool conn_mask_key(tws_conn *c, uint8_t key[4]);

/* ---- send.c: with the writer's role ---- */

/* Whether the peer has taken more since the mark was set; sets it anew. Any thread. */
bool conn_queue_progress(tws_conn *c, int64_t *mark);
/* A frame that is made already, header and all, in a server. */
tws_err conn_send_made(tws_conn *c, const struct iovec *iov, int count, enum conn_turn turn,
                       struct conn_wait *w);
/* One frame, masked in a client. f->len is the sum of the pieces. */
tws_err conn_send_frame(tws_conn *c, struct wire_frame *f, const struct iovec *iov, int count,
                        uint32_t room, enum conn_turn turn, struct conn_wait *w);
/* Takes the role and sends what is held. */
tws_err conn_flush(tws_conn *c, enum conn_turn turn, struct conn_wait *w);
/* Messages are queued: nothing of later calls may leave before them. */
bool conn_queue_waiting_locked(const tws_conn *c);
/* Has a pong sent, now or by the thread that is sending. Reader's. */
tws_err conn_pong(tws_conn *c, const uint8_t *data, size_t len);

/* ---- write.c ---- */

struct conn_deflated;
/* One frame that is to be written. */
struct conn_outgoing {
    struct wire_frame frame;
    const struct iovec *iov;
    int count;
    uint64_t payload;               /* bytes of the caller's: what the counters count */
    const struct conn_deflated *as; /* what a whole message was compressed to; NULL */
    uint32_t room; /* bytes before a single piece that may be overwritten with the header */
    tws_ms ms;     /* how long it may take */
};
static inline struct conn_wait conn_write_wait(tws_conn *c)
{
    return (struct conn_wait){.ms = conn_timeout(c, TWS_TIMEOUT_WRITE), .deadline = 0};
}
/* Takes the role for it. */
tws_err conn_write_frame(tws_conn *c, struct conn_outgoing *o, enum conn_turn turn);

/* ---- farewell.c: a close frame that lies unread when writing fails ---- */

struct conn_farewell {
    bool found;
    bool cut; /* it stands in the middle of a message */
    uint8_t reason_len;
    uint16_t code;
    uint8_t reason[TWS_REASON_MAX];
};
/* Looks for it in what has been received, unless somebody reads. Takes nothing and does not wait; a close
 * frame behind more than a buffer of messages is left to who reads those. */
void conn_farewell_look(tws_conn *c, struct conn_farewell *out);
/* The handler has returned: goes through what it has not read, as far as a connection's end has any. */
void conn_farewell_read(tws_conn *c);

/* ---- close_code.c ---- */

/* Of what tws_close() and others take. 0 becomes TWS_CLOSE_NO_STATUS; *len is the reason's. */
tws_err conn_check_close(uint16_t *code, const char *reason, size_t *len);

/* ---- close.c ---- */

/* Wakes a reader that waits for input; its call returns, seeing the new state. */
void conn_wake_reader_locked(tws_conn *c);
/* The peer's close frame has been read; mu is not held. Returns what reads now return. */
tws_err conn_peer_closed(tws_conn *c, const uint8_t *payload, size_t len);
/*
 * Everything that is left to do when the handler has returned: closes with `code` if that has not
 * begun, finishes the closing handshake, lets the peer read what was sent, ends.
 */
void conn_finish(tws_conn *c, uint16_t code);

#endif
