#ifndef LOAD_FRAME_H
#define LOAD_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* RFC 6455 section 5.2, seen from a client. */
enum opcode { OP_CONT = 0, OP_TEXT = 1, OP_BINARY = 2, OP_CLOSE = 8, OP_PING = 9, OP_PONG = 10 };

enum {
    FRAME_HEADER_MAX = 14,
    FRAME_CONTROL_MAX = 125,
    FRAME_CLOSE_NO_CODE = 1005,
};

struct frame_header {
    bool fin, rsv1, masked;
    uint8_t opcode;
    uint64_t length;
};

/* Bytes the header takes; 0 = more bytes are needed; -1 = no peer may send this. */
int frame_parse(const uint8_t *p, size_t n, struct frame_header *h);

/* Writes the header of a masked, final frame. Returns its length. */
size_t frame_put_header(uint8_t *out, enum opcode op, bool rsv1, uint64_t length,
                        const uint8_t key[4]);

/* out = in ^ key; both may be the same. */
void frame_mask(uint8_t *out, const uint8_t *in, size_t n, const uint8_t key[4]);

/* Close code of a close frame's payload, FRAME_CLOSE_NO_CODE for none, -1 for an invalid one. */
int frame_close_code(const uint8_t *payload, size_t n);

#endif
