#ifndef LOAD_CONN_H
#define LOAD_CONN_H

#include "clock.h"
#include "frame.h"
#include "handshake.h"
#include "stream.h"
#include "worker.h"

enum conn_state {
    CONN_IDLE,
    CONN_CONNECTING, /* TCP */
    CONN_TLS,
    CONN_UPGRADE, /* request and answer */
    CONN_OPEN,
    CONN_CLOSING, /* our close frame is out */
    CONN_GONE,
};

/* The message that is being received. */
struct conn_rx {
    uint8_t head[FRAME_HEADER_MAX]; /* of a header that came in pieces */
    uint8_t head_have;
    bool in_frame, fin, in_message, compressed;
    bool resolved, bad, reordered, unexpected;
    uint8_t opcode; /* of the frame */
    uint8_t message_opcode;
    uint8_t control_have;
    uint64_t left; /* of the frame's payload */
    size_t offset; /* in the message body */
    uint64_t seq, due;
    uint32_t sender;
    const uint8_t *body; /* what it is compared with */
    uint8_t stamp[STAMP_FULL];
    uint8_t control[FRAME_CONTROL_MAX];
};

/* Messages leave in batches of ready-made frames; see payload.h. */
struct conn_tx {
    uint64_t next;   /* first message not wholly given to the socket */
    unsigned batch;  /* messages begun, from next on */
    size_t offset;   /* bytes of the batch that are out */
    uint64_t credit; /* closed loop: messages that may begin */
    uint64_t *when;  /* closed loop: due times, by number modulo pipeline */
    bool behind;     /* the socket or --max-inflight holds it back: its lag is not ours */
    bool cut;        /* the run is over and it was behind: nothing more begins */
    bool queued;     /* in the heap */
    uint8_t *control;
    size_t control_len, control_offset;
};

struct conn {
    struct worker *worker;
    struct stream stream;
    struct url *url;
    unsigned url_index;
    uint32_t id; /* over all threads */
    uint8_t state;
    bool sender, muted;
    bool close_seen;
    uint32_t events; /* that epoll watches */
    unsigned address_tried;
    uint64_t due, connected; /* scheduled connect; TCP established */
    uint64_t deadline;
    struct conn *next, *prev; /* in one of the worker's lists */
    uint64_t start;           /* of the schedule */
    uint64_t received, last_rx;
    uint64_t expect;  /* number of the next reply to a message of its own */
    uint64_t skipped; /* numbers jumped over by later ones, not (yet) seen */
    uint32_t *seen;   /* broadcast: next number of each sender */
    struct conn_rx rx;
    struct conn_tx tx;
    struct handshake *handshake;
    struct inflater *inflater;
    struct frames *frames;
};

/* conn_open.c: from nothing to an open connection. */
void conn_connect(struct conn *c, uint64_t due);
void conn_progress(struct conn *c, uint32_t events); /* before CONN_OPEN */

/* conn.c: states and endings. */
void conn_watch(struct conn *c, uint32_t events);
void conn_count(struct conn *c, enum error_kind kind);
/* Ends the connection and counts it as failed or lost, by the state it is in. */
void conn_end(struct conn *c);
void conn_fail(struct conn *c, enum error_kind kind); /* conn_count and conn_end */
/* The peer sent a close frame: answer it, and wait for the end of the stream. */
void conn_peer_closed(struct conn *c, int code);
/* Our own closing handshake. */
void conn_close(struct conn *c);
/* A deadline passed. */
void conn_expire(struct conn *c);
/* Messages that are still owed are put to account; once, when the drain is over. */
void conn_settle(struct conn *c);

/* conn_tx.c */
void conn_start_schedule(struct conn *c, uint64_t start);
/* Sends what is due. The connection may be gone afterwards. */
void conn_send(struct conn *c);
/* Closed loop: replies came, so more messages may begin, due now. */
void conn_credit(struct conn *c, uint64_t now);
bool conn_queue_control(struct conn *c, enum opcode op, const uint8_t *payload, size_t n);
uint64_t conn_due(const struct conn *c, uint64_t n);
uint64_t conn_scheduled(const struct conn *c, uint64_t now);

/* conn_rx.c */
void conn_receive(struct conn *c);
/* Bytes that came with the head of the handshake's answer. */
bool conn_input(struct conn *c, const uint8_t *p, size_t n, uint64_t now);

#endif
