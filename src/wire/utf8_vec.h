/*
 * What utf8.c asks of the vector code.
 */
#ifndef WIRE_UTF8_VEC_H
#define WIRE_UTF8_VEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/utf8.h"

/*
 * A body function: true when the n bytes are valid UTF-8, given that a character ends with the
 * last of them or an error is before it. A sequence left open at the very end is not seen. n has a
 * minimum: a block, and the three bytes that are looked at before the last block. Reads nothing
 * outside the n bytes.
 */
typedef bool utf8_body_fn(const uint8_t *buf, size_t n);

#define UTF8_BODY_MIN_16 (16 + 3)
#define UTF8_BODY_MIN_32 (32 + 3)

#if defined(WIRE_UTF8_X86)
utf8_body_fn utf8_body_ssse3;
utf8_body_fn utf8_body_avx2;
#elif defined(WIRE_UTF8_NEON)
utf8_body_fn utf8_body_neon;
#endif

#endif
