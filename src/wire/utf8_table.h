/*
 * Tables of the vector UTF-8 variants.
 *
 * The method is the table lookup of John Keiser and Daniel Lemire, "Validating UTF-8 In Less Than
 * One Instruction Per Byte" (Software: Practice and Experience 51, 2021). Every error that shows
 * in two neighbouring bytes is decided by three nibbles: both of the earlier byte, the upper one
 * of the later byte. Each nibble looks up the set of errors that it does not rule out; an error
 * is real when all three sets hold it. What two bytes cannot show, a third and fourth byte that
 * must or must not be a continuation, is compared with the bytes two and three places before.
 */
#ifndef WIRE_UTF8_TABLE_H
#define WIRE_UTF8_TABLE_H

#include <stdint.h>

enum utf8_error {
    UTF8_TOO_SHORT = 0x01, /* a lead byte, then no continuation */
    UTF8_TOO_LONG = 0x02,  /* ASCII, then a continuation */
    UTF8_OVERLONG2 = 0x04, /* C0, C1 */
    UTF8_OVERLONG3 = 0x08, /* E0, then below A0 */
    UTF8_SURROGATE = 0x10, /* ED, then A0 or above */
    UTF8_ABOVE_9X = 0x20,  /* above U+10FFFF: F4, then 90 or above; F5 and up, then 9x to Bx */
    UTF8_OVERLONG4 = 0x40, /* F0, then 8x ... */
    UTF8_ABOVE_8X = 0x40,  /* ... and F5 and up, then 8x: no pair of bytes can mean both */
    UTF8_TWO_CONTS = 0x80, /* two continuations: right or wrong is up to the bytes before */
    /* Errors that do not depend on the lower nibble of the earlier byte. */
    UTF8_ANY_LOW = UTF8_TOO_SHORT | UTF8_TOO_LONG | UTF8_TWO_CONTS,
    UTF8_ANY_F = UTF8_ANY_LOW | UTF8_ABOVE_9X | UTF8_ABOVE_8X
};

/* By the upper nibble of the earlier byte. */
static const uint8_t utf8_prev_high[16] = {
    UTF8_TOO_LONG,
    UTF8_TOO_LONG,
    UTF8_TOO_LONG,
    UTF8_TOO_LONG,
    UTF8_TOO_LONG,
    UTF8_TOO_LONG,
    UTF8_TOO_LONG,
    UTF8_TOO_LONG,
    UTF8_TWO_CONTS,
    UTF8_TWO_CONTS,
    UTF8_TWO_CONTS,
    UTF8_TWO_CONTS,
    UTF8_TOO_SHORT | UTF8_OVERLONG2,
    UTF8_TOO_SHORT,
    UTF8_TOO_SHORT | UTF8_OVERLONG3 | UTF8_SURROGATE,
    UTF8_TOO_SHORT | UTF8_OVERLONG4 | UTF8_ABOVE_8X | UTF8_ABOVE_9X,
};

/* By its lower nibble. */
static const uint8_t utf8_prev_low[16] = {
    UTF8_ANY_LOW | UTF8_OVERLONG2 | UTF8_OVERLONG3 | UTF8_OVERLONG4,
    UTF8_ANY_LOW | UTF8_OVERLONG2,
    UTF8_ANY_LOW,
    UTF8_ANY_LOW,
    UTF8_ANY_LOW | UTF8_ABOVE_9X,
    UTF8_ANY_F,
    UTF8_ANY_F,
    UTF8_ANY_F,
    UTF8_ANY_F,
    UTF8_ANY_F,
    UTF8_ANY_F,
    UTF8_ANY_F,
    UTF8_ANY_F,
    UTF8_ANY_F | UTF8_SURROGATE,
    UTF8_ANY_F,
    UTF8_ANY_F,
};

/* By the upper nibble of the later byte. */
#define UTF8_ANY_CONT (UTF8_TOO_LONG | UTF8_TWO_CONTS | UTF8_OVERLONG2)
static const uint8_t utf8_here_high[16] = {
    UTF8_TOO_SHORT,
    UTF8_TOO_SHORT,
    UTF8_TOO_SHORT,
    UTF8_TOO_SHORT,
    UTF8_TOO_SHORT,
    UTF8_TOO_SHORT,
    UTF8_TOO_SHORT,
    UTF8_TOO_SHORT,
    UTF8_ANY_CONT | UTF8_OVERLONG3 | UTF8_OVERLONG4 | UTF8_ABOVE_8X,
    UTF8_ANY_CONT | UTF8_OVERLONG3 | UTF8_ABOVE_9X,
    UTF8_ANY_CONT | UTF8_SURROGATE | UTF8_ABOVE_9X,
    UTF8_ANY_CONT | UTF8_SURROGATE | UTF8_ABOVE_9X,
    UTF8_TOO_SHORT,
    UTF8_TOO_SHORT,
    UTF8_TOO_SHORT,
    UTF8_TOO_SHORT,
};

#endif
