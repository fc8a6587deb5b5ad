/*
 * A second reading of RFC 6455 and RFC 7692, written to be plain: it has all bytes at once, copies
 * everything, and shares no code with the library but zlib. What it makes of a stream of frames is
 * what a connection has to make of it, wherever the stream was cut. It inflates with the largest
 * window: a peer that passes the one agreed on may be found out or not.
 */
#ifndef TESTS_FUZZ_LIB_REFERENCE_H
#define TESTS_FUZZ_LIB_REFERENCE_H

#include <zlib.h>

#include "fuzz.h"

#define REFERENCE_MESSAGES 512
#define REFERENCE_ROOM (1 << 20) /* payload bytes of all messages */

struct reference_message {
    uint8_t opcode;
    bool compressed;
    bool unsure; /* the stream of compressed data was ended by a final block: not laid down how it
                    goes on */
    size_t at, len; /* in room */
};

enum reference_end {
    REFERENCE_CUT = 1,      /* the bytes end without a close frame */
    REFERENCE_CLOSED = 2,   /* a valid close frame */
    REFERENCE_PROTOCOL = 4, /* 1002 */
    REFERENCE_TEXT = 8,     /* 1007 */
    REFERENCE_INFLATE = 16, /* 1007 */
    REFERENCE_TOO_BIG = 32, /* 1009 */
    REFERENCE_FLOOD = 64    /* 1008 */
};

struct reference {
    /* Rules. */
    bool masked;  /* the sender has to mask; else it must not */
    bool deflate; /* RSV1 is allowed */
    bool fresh;   /* each message is compressed by itself */
    size_t max_message;
    uint32_t max_fragments;
    bool any_text; /* text is not checked */

    /* Results. */
    struct reference_message messages[REFERENCE_MESSAGES];
    size_t count;
    unsigned end;  /* of enum reference_end: one, or several if they may come in either order */
    uint16_t code; /* of the peer's close frame */
    char reason[128];
    size_t pings, pongs;
    uint32_t ping_sum, pong_sum; /* of the payloads of all of them */
    bool unsure;                 /* from some message on */
    uint8_t *room;               /* one for all runs */
    size_t used;
    size_t frames, fragments;

    /* The message being read. */
    bool open;
    struct reference_message now;
    uint64_t wire_len;
    size_t text_at; /* so much has been checked */
    uint32_t small;
    unsigned fault; /* that its inflated bytes have shown */
    z_stream z;
    bool z_open;
    bool boundary; /* between two blocks */
    bool ended;    /* behind a final one */
};

/* The rules are set, all else is zero. Stops at the first fault, and when a table is full. */
void reference_read(struct reference *r, const uint8_t *wire, size_t len);
void reference_free(struct reference *r);
bool reference_code_valid(unsigned code);
/* 0: valid and complete; 1: valid so far; -1: not valid. */
int reference_text(const uint8_t *text, size_t len);
/* The longest beginning that is valid so far. */
size_t reference_text_good(const uint8_t *text, size_t len);
uint32_t reference_sum(uint32_t sum, const uint8_t *data, size_t len);

#endif
