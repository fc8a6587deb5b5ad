#ifndef LOAD_PAYLOAD_H
#define LOAD_PAYLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "frame.h"

/*
 * Message bodies. A run has a few different bodies ("slots"), made once; which one a message uses
 * follows from its connection and number, so that the receiving side knows what to compare with. A
 * body begins with a stamp in hexadecimal when it has room:
 *   32 bytes: scheduled time (16 digits), connection (8), number on that connection (8)
 *    8 bytes: number only, in bodies of 8 to 31 bytes
 * Bodies under 8 bytes and files have none; their replies are matched by order.
 */
enum { STAMP_FULL = 32, STAMP_SHORT = 8, SLOTS_MAX = 64 };

struct stamp {
    uint64_t time;
    uint32_t conn, seq;
};

struct bodies {
    size_t size;
    unsigned slots; /* a power of two */
    unsigned stamp; /* STAMP_FULL, STAMP_SHORT or 0 */
    bool text;
    uint8_t *plain; /* slots * size bytes (file: size bytes); stamps left blank */
    size_t stride;  /* size, or 0 when all slots share one body */
};

enum body_kind { BODY_TEXT, BODY_UTF8, BODY_BINARY };

/* Both return 0, or -1 with *why set. */
int bodies_generate(struct bodies *b, size_t size, enum body_kind kind, const char **why);
int bodies_from_file(struct bodies *b, const char *path, bool text, const char **why);
void bodies_clear(struct bodies *b);

static inline const uint8_t *bodies_slot(const struct bodies *b, unsigned slot)
{
    return b->plain + b->stride * slot;
}

/* Messages of one connection walk through the slots; connections start at different ones. */
static inline unsigned bodies_pick(const struct bodies *b, uint32_t conn, uint32_t seq)
{
    return (conn * 7 + seq) & (b->slots - 1);
}

void stamp_write(uint8_t *out, unsigned len, const struct stamp *s);

/* False when it is not hexadecimal. */
bool stamp_read(const uint8_t *in, unsigned len, struct stamp *s);

bool utf8_valid(const uint8_t *p, size_t n);

/*
 * Ready-made masked frames, one for each slot, back to back: messages of consecutive numbers leave in
 * one system call, and only their stamps are written anew. Each slot has its own random key, made when the run starts:
 * masking costs the generator nothing per message, and a server cannot tell. One set for each thread.
 */
struct frames {
    uint8_t *bytes;
    size_t start[SLOTS_MAX + 1];
    size_t stamp_at[SLOTS_MAX];
    uint8_t stamp_key[SLOTS_MAX][8]; /* the mask as it falls on the stamp */
};

/* window_bits: 0 = not deflated, else 8 to 15. Returns 0 or -1. */
int frames_build(struct frames *f, const struct bodies *b, int window_bits, int level,
                 bool zero_mask);
void frames_clear(struct frames *f);
void frames_stamp(struct frames *f, const struct bodies *b, unsigned slot, const struct stamp *s);

#endif
