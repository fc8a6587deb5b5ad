/* What the fuzz targets share: a check that stays in every build, bytes taken off the input, and
 * numbers that look random but follow from the input. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);         \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#define FUZZ_COUNT(array) (sizeof(array) / sizeof(array)[0])

struct fuzz_input {
    const uint8_t *at;
    size_t left;
};

/* The next byte; 0 behind the last one. */
static inline uint8_t fuzz_byte(struct fuzz_input *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->at++;
}

/* Up to n bytes; *got says how many there were. */
static inline const uint8_t *fuzz_bytes(struct fuzz_input *in, size_t n, size_t *got)
{
    const uint8_t *p = in->at;

    *got = n < in->left ? n : in->left;
    in->at += *got;
    in->left -= *got;
    return p;
}

/* The bytes up to the next line feed, which is taken too, or all of them; in a block of their own
 * size, with a zero behind them, so that AddressSanitizer sees one byte too many. */
static inline char *fuzz_line(struct fuzz_input *in, size_t *len)
{
    const uint8_t *end = in->left > 0 ? memchr(in->at, '\n', in->left) : NULL;
    size_t n = end ? (size_t)(end - in->at) : in->left;
    char *copy = malloc(n + 1);

    FUZZ_CHECK(copy != NULL);
    if (n > 0)
        memcpy(copy, in->at, n);
    copy[n] = 0;
    in->at += n + (end != NULL);
    in->left -= n + (end != NULL);
    *len = n;
    return copy;
}

/* A copy in a block of its own size. */
static inline uint8_t *fuzz_copy(const void *data, size_t len)
{
    uint8_t *copy = malloc(len > 0 ? len : 1);

    FUZZ_CHECK(copy != NULL);
    if (len > 0)
        memcpy(copy, data, len);
    return copy;
}

/* Below n, which is above 0. */
static inline uint32_t fuzz_random(uint32_t *state, uint32_t n)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state % n;
}

/* Small pieces of one thing are enough after so many: the rest comes in larger ones, or runs would be
 * slow for nothing. */
#define FUZZ_PIECES 500
#define FUZZ_LARGE_PIECE 4096

/* Where a stream of bytes is cut into pieces. */
struct fuzz_cuts {
    uint8_t style; /* 0: by size; 1: behind each byte; else at random, in pieces below 2^style */
    uint32_t state;
    uint32_t count;
    size_t size; /* 0: nowhere */
};

static inline struct fuzz_cuts fuzz_cuts_of(uint8_t byte)
{
    return (struct fuzz_cuts){byte & 15, 0x9e3779b9u ^ byte, 0, 0};
}

/* Pieces of one size. */
static inline struct fuzz_cuts fuzz_cuts_each(size_t size)
{
    return (struct fuzz_cuts){0, 0, 0, size};
}

static inline size_t fuzz_next_cut(struct fuzz_cuts *cuts)
{
    if (cuts->style == 0)
        return cuts->size > 0 ? cuts->size : SIZE_MAX;
    if (++cuts->count > FUZZ_PIECES)
        return FUZZ_LARGE_PIECE;
    if (cuts->style == 1)
        return 1;
    return 1 + fuzz_random(&cuts->state, 1u << cuts->style);
}

#endif
