/* Base 64 with padding (RFC 4648, section 4). */
#ifndef WIRE_BASE64_H
#define WIRE_BASE64_H

#include <stddef.h>
#include <stdint.h>

/* Characters that encode n bytes. */
#define WIRE_BASE64_LEN(n) (((n) + 2) / 3 * 4)

/* Writes WIRE_BASE64_LEN(len) characters, no terminator; returns their number. */
size_t wire_base64_encode(char *out, const void *data, size_t len);
/* Bytes decoded, or -1: another character, wrong length or padding, bits left over that are not
 * zero (so that every value has one spelling only), or more than `cap` bytes. */
ptrdiff_t wire_base64_decode(uint8_t *out, size_t cap, const char *text, size_t len);

#endif
