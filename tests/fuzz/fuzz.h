/* What the fuzz targets share: a check that stays in every build, and bytes taken off the input. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);         \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

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

#endif
