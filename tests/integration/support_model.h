/*
 * A peer that speaks on the bare socket of one side of a couple, and knows what the other side has to
 * read, and what it is to have written; and that other side, which makes calls at random. Nothing in
 * it waits, and it asserts nothing, since it runs on threads of either kind: the first thing that is
 * wrong is noted.
 */
#ifndef TESTS_INTEGRATION_SUPPORT_MODEL_H
#define TESTS_INTEGRATION_SUPPORT_MODEL_H

#include "support_deflate.h"
#include "support_pair.h"

/* Payload is made from a seed again whenever it is looked at. */
#define MODEL_LEN_MAX 70000u
struct model_message {
    size_t len;
    uint32_t seed;
    uint8_t opcode;
    bool may_miss;      /* written, but what becomes of it is told by a callback */
    bool lost;          /* or given up: it must not come */
    _Atomic int told;   /* callbacks */
    _Atomic int result; /* of the last */
    bool wants_told, seen;
};

/* Messages of both directions are numbered from 0. */
enum { MODEL_MESSAGES = 4096, BESIDE_MESSAGES = 3000 };
struct model {
    struct couple pair;
    tws_conn *c; /* what is tested */
    int fd;      /* the peer's */
    bool deflate;
    struct peer_deflate z;
    uint64_t random;
    const char *fault; /* a constant; NULL: all is well */
    uint64_t steps;

    struct model_message sent[MODEL_MESSAGES]; /* by the peer */
    size_t sent_count;
    uint8_t *wire;
    size_t wire_len, wire_at;

    struct model_message written[MODEL_MESSAGES]; /* by the connection */
    size_t written_count, written_at;
    uint8_t *in;
    size_t in_len;
    uint8_t *message; /* fragments so far */
    size_t message_len;
    unsigned message_first; /* opcode and RSV1 of its first fragment; 0: between messages */
    bool closed, ended;     /* a close frame, the end of the stream has come */

    int64_t beside_last; /* of a second thread's messages */
    bool beside_seen[BESIDE_MESSAGES];

    uint8_t *expected; /* room for one payload */
};

void model_open(struct model *m, uint64_t seed, bool server, int deflate);
void model_close(struct model *m);
uint32_t model_random(struct model *m, uint32_t below);
bool model_wrong(struct model *m, const char *what);
size_t model_length(struct model *m);

/* Makes the payload of a message in m->expected. */
const uint8_t *model_payload(struct model *m, const struct model_message *one);
/* The peer sends some bytes, maybe of one more message. */
void model_feed(struct model *m);
/* A control frame behind all that. */
void model_control(struct model *m, unsigned opcode, const uint8_t *data, size_t len);
/* All that was begun. False: the socket is full. */
bool model_feed_rest(struct model *m);
/* The peer takes what has come, and looks at it. */
void model_drain(struct model *m);
/* A message that the connection is to write. */
struct model_message *model_writes(struct model *m, size_t len, unsigned opcode);
/* It did not. */
void model_unwrites(struct model *m);

/* ---- The connection's side ---- */

#define TAKEN 4
struct run {
    struct model m;
    /* Reading. */
    tws_message shown; /* until the next read; data NULL: nothing */
    size_t shown_at;
    tws_message taken[TAKEN];
    size_t taken_at[TAKEN];
    size_t offset; /* in the message that is streamed */
    const char *terminator;
    bool others; /* a second thread, which may end the connection */
    bool peer_closes;
    /* Writing. */
    tws_writer *writer;
    struct model_message *open;
    size_t written; /* of it */
    bool closing;
    tws_err end; /* the first final error */
};

/* Notes the end. Whether err is TWS_OK. */
bool model_again(struct run *r, tws_err err);
/* Whole messages that have been received, streamed and dropped ones included. */
size_t model_messages_in(struct run *r);
/* What was shown last, or was taken, is as it was. */
void model_look(struct run *r);
tws_err model_read_whole(struct run *r);
/* In any way. */
tws_err model_read_some(struct run *r);
void model_wait_any(struct run *r);
void model_take(struct run *r);
void model_stream_join(struct run *r);
void model_set_limit(struct run *r);
/* In any way. */
void model_write_some(struct run *r);

/* ---- A second thread ---- */

struct beside_message {
    _Atomic int told, result;
    bool wants_told, refused, unknown;
};
struct beside {
    struct job job;
    tws_conn *c;
    _Atomic bool stop;
    uint64_t random;
    uint32_t count;
    const char *wrong;
    struct beside_message messages[BESIDE_MESSAGES];
};
void beside_start(struct beside *b, struct run *r, uint64_t seed);
/* All callbacks have come. */
bool beside_told(const struct beside *b);
void beside_compare(const struct beside *b, struct model *m);
/* Whether what the peer has received is one of those. */
bool model_is_beside(struct model *m, unsigned opcode, const uint8_t *data, size_t len);

#endif
