/*
 * Mutations that know frames: the payloads change, frames come, go, split and change their bits, and
 * each is written with the length and mask that belong to it, so that what follows is still read as
 * frames. Every so often the bytes change as bytes, and lengths and masks with them.
 */
#ifndef TESTS_FUZZ_LIB_FRAME_MUTATOR_H
#define TESTS_FUZZ_LIB_FRAME_MUTATOR_H

#include "fuzz.h"

struct frame_format {
    size_t settings; /* bytes before the frames */
    bool masked;     /* frames are */
    bool deflate;    /* compressed payloads make sense */
};

/* Changes data[0..size) in place, up to `most` bytes; the new size. */
size_t frame_mutate(const struct frame_format *format, uint8_t *data, size_t size, size_t most,
                    unsigned seed);
/* The settings and first frames of one, the last frames of the other. */
size_t frame_cross(const struct frame_format *format, const uint8_t *a, size_t a_size,
                   const uint8_t *b, size_t b_size, uint8_t *out, size_t most, unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size,
                                 uint8_t *out, size_t most, unsigned seed);

/* What libFuzzer, and AFL++ through lib/afl_mutator.c, call. */
#define FRAME_MUTATOR(settings, masked, deflate)                                                   \
    static const struct frame_format frames = {settings, masked, deflate};                         \
    size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)         \
    {                                                                                              \
        return frame_mutate(&frames, data, size, most, seed);                                      \
    }                                                                                              \
    size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b,            \
                                     size_t b_size, uint8_t *out, size_t most, unsigned seed)      \
    {                                                                                              \
        return frame_cross(&frames, a, a_size, b, b_size, out, most, seed);                        \
    }

#endif
