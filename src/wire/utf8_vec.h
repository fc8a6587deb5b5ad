/*
 * What utf8.c asks of the vector code.
 */
#ifndef WIRE_UTF8_VEC_H
#define WIRE_UTF8_VEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/utf8.h"

#if defined(WIRE_UTF8_X86)
/*
 * True when the n bytes are valid UTF-8, given that a character ends with the last of them or an
 * error is before it: a sequence left open at the very end is not seen. n has a minimum: a block,
 * and the three bytes that are looked at before the last block. Reads nothing outside the n bytes.
 */
#define UTF8_BODY_MIN_SSSE3 (16 + 3)
#define UTF8_BODY_MIN_AVX2 (32 + 3)
bool utf8_body_ssse3(const uint8_t *buf, size_t n);
bool utf8_body_avx2(const uint8_t *buf, size_t n);
#endif

#endif
