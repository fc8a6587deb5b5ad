/* kit.h: what both programs of the soak share: counted memory, data that both sides can make, chance. */
#ifndef SOAK_KIT_H
#define SOAK_KIT_H

#include <tws/types.h>

#include <stdatomic.h>

/* Memory of the library, counted: what lives, in blocks and in bytes as malloc counts them. */
struct heap {
    _Atomic int64_t blocks, bytes;
};

tws_allocator heap_allocator(struct heap *h);
/* Gives every free page back to the system, so that resident memory is what is in use, and returns what malloc has
 * given out: the library's, OpenSSL's and the C library's. */
size_t malloc_settle(void);

/* A generator of numbers that depend on nothing but the seed. */
struct dice {
    uint64_t state;
};

uint64_t dice_roll(struct dice *d);
/* From 0 to below - 1. */
uint64_t dice_below(struct dice *d, uint64_t below);
/* From 1 to most, every order of magnitude as likely as another. */
size_t dice_size(struct dice *d, size_t most);

/* Numbered messages of rooms and floods: 8 bytes with the number, then bytes that follow from it. */
enum { NUMBERED_MAX = 8192 };
size_t numbered_size(uint64_t number);
void numbered_fill(uint8_t *buf, uint64_t number);
/* The number; UINT64_MAX when a byte is wrong. */
uint64_t numbered_check(const void *data, size_t len);

/* Text and other bytes to cut messages out of. Text is mostly not ASCII. */
struct pool {
    uint8_t *text, *bytes;
    size_t size;
};

bool pool_make(struct pool *p, size_t size);
void pool_drop(struct pool *p);
/* About so many bytes from a place by chance; text is not cut inside a character. */
const uint8_t *pool_cut(const struct pool *p, struct dice *d, tws_opcode opcode, size_t *len);

#endif
