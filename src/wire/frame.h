/*
 * The WebSocket frame header (RFC 6455 section 5.2): parse and write, strictly.
 *
 * Pure functions over bytes. A header may arrive in any number of pieces: call the parser again
 * with the same bytes and more. Nothing is remembered between calls, so the result never depends
 * on where the input was cut.
 */
#ifndef WIRE_FRAME_H
#define WIRE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* RFC 6455 section 5.2, "opcode"; all other values are reserved and refused. */
enum wire_opcode {
    WIRE_CONT = 0,
    WIRE_TEXT = 1,
    WIRE_BINARY = 2,
    WIRE_CLOSE = 8,
    WIRE_PING = 9,
    WIRE_PONG = 10
};

/* Two bytes, an eight byte length, a four byte masking key. */
#define WIRE_FRAME_HEADER_MAX 14
/* Largest payload of a control frame (RFC 6455 section 5.5). */
#define WIRE_CONTROL_MAX 125

#define WIRE_RSV1 4
#define WIRE_RSV2 2
#define WIRE_RSV3 1

struct wire_frame {
    uint64_t len;   /* payload bytes, below 2^63 */
    uint8_t key[4]; /* masking key as on the wire; all zero when not masked */
    uint8_t opcode; /* enum wire_opcode */
    uint8_t rsv;    /* WIRE_RSV1 | WIRE_RSV2 | WIRE_RSV3 */
    bool fin;
    bool masked;
    uint8_t hlen; /* header bytes; set by the parser, ignored by the writer */
};

/* What is wrong with a header. Every one of them ends the connection with 1002. */
enum wire_fault {
    WIRE_OK = 0,
    WIRE_FAULT_RSV,                 /* a reserved bit that nothing has negotiated */
    WIRE_FAULT_OPCODE,              /* reserved opcode: 3-7, 11-15 */
    WIRE_FAULT_CONTROL_FIN,         /* fragmented control frame */
    WIRE_FAULT_CONTROL_LEN,         /* control payload above 125 bytes */
    WIRE_FAULT_LENGTH_FORM,         /* length not in its shortest form */
    WIRE_FAULT_LENGTH_TOP_BIT,      /* 64-bit length of 2^63 or more */
    WIRE_FAULT_MASK,                /* masked by a server, or not masked by a client */
    WIRE_FAULT_CONT_WITHOUT_START,  /* continuation while no message is open */
    WIRE_FAULT_DATA_INSIDE_MESSAGE, /* new text or binary while a message is open */
    WIRE_FAULT_COUNT                /* number of values above, not a fault */
};

struct wire_frame_rules {
    bool expect_masked;  /* true in a server: its peer must mask */
    uint8_t rsv_allowed; /* on the first frame of a data message only; WIRE_RSV1 with deflate */
};

/*
 * Reads one frame header from the start of buf.
 *
 * in_message: a fragmented data message is open (its last frame has not been seen).
 * Returns the number of header bytes (> 0) with *f filled; 0 when len bytes are a good start but
 * not a whole header; or -(enum wire_fault). A fault is reported as soon as the bytes show it and
 * stays the same fault when more bytes follow. *f is defined only after a result above 0.
 */
int wire_frame_parse(struct wire_frame *f, const uint8_t *buf, size_t len,
                     const struct wire_frame_rules *rules, bool in_message);

/*
 * Writes the header for f in its shortest form and returns its size (2 to 14). f->key is written
 * when f->masked is set. f->len must be below 2^63, and the frame one that the rules above allow:
 * the writer does not check.
 */
size_t wire_frame_write(uint8_t out[WIRE_FRAME_HEADER_MAX], const struct wire_frame *f);

/* Size of the header that wire_frame_write makes for a payload of len bytes. */
size_t wire_frame_header_len(uint64_t len, bool masked);

/* One line for people: "control frame is fragmented". Never NULL. */
const char *wire_fault_text(enum wire_fault fault);

static inline bool wire_opcode_is_control(uint8_t opcode)
{
    return (opcode & 8) != 0;
}

#endif
