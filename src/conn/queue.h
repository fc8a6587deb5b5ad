/*
 * queue.h: messages that wait for a slow peer, inside.
 *
 * The queue belongs to c->mu, and is made when it is first needed. Its head may be half sent: then
 * nothing else may leave before the rest of it, also not what is in `out`. Whoever has the writer's
 * role sends from it: a writer thread, or in passing any thread that gives the role back.
 */
#ifndef CONN_QUEUE_H
#define CONN_QUEUE_H

#include <tws/prepared.h>
#include <tws/queue.h>

#include "conn/conn.h"
#include "conn/deflate.h"

/* ---- For the hub ---- */

/* A message that is handed over, and what became of it. */
struct conn_publish {
    tws_prepared *prepared;
    tws_written_fn done; /* as for tws_write_prepared_async() */
    void *arg;
    tws_err err;      /* TWS_OK: accepted; TWS_ERR_QUEUE_FULL: not taken; else as tws_write_async */
    bool direct;      /* the socket has taken all of it already; else it is queued */
    uint32_t dropped; /* older messages that made room for it */
    uint64_t seq;     /* in the queue; 0: it never was there */
};

/*
 * tws_write_prepared_async for a publisher, with several messages at once: never waits, whatever the
 * policy (under WAIT a full queue refuses at once) and whatever the writer mode (under NONE a message
 * that would have to wait is refused with TWS_ERR_QUEUE_FULL; only for the rest of a frame that the
 * socket took half of, a writer is started). Several messages leave in one system call.
 */
void conn_publish(tws_conn *c, struct conn_publish *list, size_t count);

/* ---- When a connection has ended ---- */

/* Part of whatever its owner keeps about the connection. */
struct conn_end_hook {
    struct conn_end_hook *next, *prev; /* c->mu */
    /* Called once, where completions run (tws/queue.h), with no lock held; c is valid during it. The
     * hook is the owner's again. */
    void (*fn)(tws_conn *c, struct conn_end_hook *hook);
    bool linked; /* c->mu */
};

/* False: the connection has ended already, and fn will not be called. */
bool conn_on_end(tws_conn *c, struct conn_end_hook *hook);
/* True: fn will not be called. False: it has been or is about to be, in another thread. */
bool conn_off_end(tws_conn *c, struct conn_end_hook *hook);

/* ---- Inside ---- */

/* A message on its way. */
struct queue_item {
    struct queue_item *next;
    tws_written_fn done; /* NULL: nobody needs to know */
    void *arg;
    uint64_t seq; /* in the order of queueing */
    uint64_t len; /* payload bytes */
    const uint8_t *payload;
    tws_prepared *prepared; /* a reference; NULL: payload lies behind the item */
    tws_err result;
    uint8_t opcode;
    uint8_t mode;        /* tws_compression */
    bool encoded;        /* iov holds what is still to be sent */
    bool begun;          /* half sent: nothing else may be sent before the rest */
    bool bound;          /* compressed with the context: no other message may be sent before it */
    bool counted;        /* in the queue's bytes and messages: it did not leave at once */
    bool borrowed;       /* payload is the caller's, who is still here */
    bool on_stack;       /* the item too */
    bool gone;           /* for its caller: it is not queued any more */
    bool fresh;          /* compressed without this connection's context */
    uint64_t compressed; /* bytes of a prepared compressed form; 0: plain */
    struct conn_deflated deflated; /* its payload, when compressed here */
    struct iovec iov[2];
    int iov_count;
    uint8_t header[WIRE_FRAME_HEADER_MAX];
};

struct conn_queue { /* mu */
    tws_queue_options opt;
    struct queue_item *head, *tail;
    uint32_t in_hand; /* items from the head on that the writer's role is sending just now */
    bool firm;    /* the first of them was begun or bound already: its own flags may change now */
    uint64_t seq; /* of the last item */
    uint64_t bytes, messages;
    bool writer;               /* a writer thread exists */
    bool blocked;              /* whoever sends from here waits for the peer */
    int64_t blocked_since;     /* when that began; kept until a byte has left */
    _Atomic bool stranded;     /* no writer could be made; written under mu */
    bool yield;                /* the writer lets somebody pass who waits for the role */
    struct queue_turn *asking; /* threads that wait for the role */
    struct task_queue work;    /* the writer waits here */
    struct task_queue changed; /* threads that wait for room, or for their messages to leave */
    struct queue_item *told_head, *told_tail; /* completions that are due */
    bool high, high_told;                     /* water */
    tws_queue_stats count;                    /* without the present state */
};

/* A thread that waits for the writer's role. */
struct queue_turn {
    struct queue_turn *next;
    enum conn_turn turn;
    uint64_t seq; /* data: queued messages up to this one leave first */
};

static inline struct conn_queue *conn_queue(const tws_conn *c)
{
    return atomic_load_explicit(&c->queue, memory_order_acquire);
}

/* ---- queue.c ---- */

/* The queue, made when it is first needed. NULL: no memory. */
struct conn_queue *conn_queue_make_locked(tws_conn *c);
/* Options of a connection's environment, if this is its first. */
void conn_queue_options(tws_conn *c, const tws_queue_options *opt);
void conn_queue_free(tws_conn *c);
/* Runs one callback if one is due. mu is held, but not during the callback. */
bool conn_queue_tell_locked(tws_conn *c);
/* What is wrong with options; NULL when all is well. */
const char *conn_queue_check(const tws_queue_options *opt);
/* Closing without grace: gives up what is queued, except what is half sent or in hand. */
void conn_queue_drop_locked(tws_conn *c);
/* The peer has taken nothing of the queue for as long as the close timeout. */
bool conn_queue_stuck_locked(tws_conn *c);
/* The connection has ended: everything that nobody holds in hand. */
void conn_queue_end_locked(tws_conn *c);
/* The head has left, or never will. */
void conn_queue_pop_locked(tws_conn *c, tws_err result);
/* The item behind `before`, or the head. */
void conn_queue_take_out_locked(tws_conn *c, struct queue_item *before, tws_err result);
/* The last item that has to stay: in hand, begun or bound. NULL: none has to. */
struct queue_item *conn_queue_fixed_locked(const struct conn_queue *q, bool begun_too);
/* Waits until the queue has changed, sending from it if nobody else does. mu is held, but not
 * meanwhile. TWS_ERR_TIMEOUT, or an ending. */
tws_err conn_queue_await_locked(tws_conn *c, int64_t deadline);
/* An item's callback is due. */
void conn_queue_told_locked(tws_conn *c, struct queue_item *it);
/* The queue has grown or shrunk. */
void conn_queue_water_locked(tws_conn *c);
/* Gives an item's memory back. */
void conn_queue_item_free(tws_conn *c, struct queue_item *it);

/* ---- prepared.c ---- */

/* The frame of p for c, a server's, in at most two pieces that last as long as p. */
struct prepared_frame {
    struct iovec iov[2];
    int count;
    size_t compressed; /* payload bytes of a compressed form; 0: plain */
};
void conn_prepared_frame(tws_conn *c, tws_prepared *p, struct prepared_frame *f);
/* Gives a reference back, with locks held. False: that would call the application; it has not been. */
bool conn_prepared_drop(tws_prepared *p);

/* ---- push.c: sending from the queue, with the writer's role ---- */

enum queue_push {
    QUEUE_EMPTY, /* nothing is left that may leave */
    QUEUE_MORE,  /* the budget is used up */
    QUEUE_FULL,  /* the socket takes no more */
    QUEUE_OVER   /* the connection has ended */
};

/* Whether something of the queue may be sent now by who has the role. */
bool conn_queue_ready_locked(const tws_conn *c);
/* Sends at most `rounds` batches, with control frames between them. Role held, mu held but not
 * meanwhile. begun_only: only the rest of a half-sent message. */
enum queue_push conn_queue_push_locked(tws_conn *c, int rounds, bool begun_only);
/* Waits for the peer. Role held, mu held but not meanwhile. */
tws_err conn_queue_room_locked(tws_conn *c, int64_t deadline);

/* ---- queue_writer.c ---- */

/* Sees to it that what is queued leaves. mu is held. */
void conn_queue_start_locked(tws_conn *c);
/* For turn.c: whether a thread must wait for the queue first. */
bool conn_queue_before_locked(const tws_conn *c, enum conn_turn turn, uint64_t seq);
/* Nobody else will: sends what stands before such a thread. Role held, mu held but not meanwhile. */
tws_err conn_queue_clear_locked(tws_conn *c, enum conn_turn turn, uint64_t seq,
                                struct conn_wait *w);
/* No writer could be made, so the reader sends when it comes by. */
static inline bool conn_queue_stranded(const tws_conn *c)
{
    const struct conn_queue *q = conn_queue(c);

    return q && atomic_load_explicit(&q->stranded, memory_order_relaxed);
}
/* No writer could be made, so who waits for the queue sends its head himself. TWS_OK also when there
 * is a writer. mu is held, but not meanwhile. */
tws_err conn_queue_help_locked(tws_conn *c, int64_t deadline);
/* Somebody waits for the role who may have it before the next queued message. */
bool conn_queue_asked_locked(const tws_conn *c);

#endif
