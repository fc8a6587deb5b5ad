/*
 * Pieces of text that are not terminated, and a writer into a buffer of bounded size.
 *
 * Letters are ASCII letters and there is no locale: a Kelvin sign never equals a k.
 */
#ifndef WIRE_TEXT_H
#define WIRE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A piece of somebody else's bytes, valid as long as they are. */
struct wire_text {
    const char *at;
    size_t len;
};

/* A terminated string as a text. NULL gives an empty text whose `at` is NULL. */
struct wire_text wire_text_of(const char *string);
/* `text` without its first n bytes, or empty when it has fewer. */
struct wire_text wire_text_skip(struct wire_text text, size_t n);
/* The first n bytes of `text`, or all when it has fewer. */
struct wire_text wire_text_head(struct wire_text text, size_t n);
/* The text without the blanks and tabs around it (OWS, RFC 9110 5.6.3). */
struct wire_text wire_text_trim(struct wire_text text);
/* Position of the first c, or the length when there is none. */
size_t wire_text_find(struct wire_text text, char c);
/* The same of the first character of `set`. */
size_t wire_text_find_any(struct wire_text text, const char *set);

/* Byte for byte. */
bool wire_text_equal(struct wire_text a, struct wire_text b);
/* ASCII letters compare without case, every other byte must be the same. */
bool wire_text_equal_nocase(struct wire_text a, struct wire_text b);
/* `text` against a terminated string, ASCII letters without case. */
bool wire_text_is(struct wire_text text, const char *string);
/* True when `text` begins with `string`, ASCII letters without case. */
bool wire_text_starts(struct wire_text text, const char *string);
/* Byte for byte in a time that depends on `len` only, for secrets. */
bool wire_equal_secret(const void *a, const void *b, size_t len);

/* True when c is one of the characters of `set`. */
bool wire_one_of(char c, const char *set);
bool wire_is_alpha(uint8_t c);
bool wire_is_digit(uint8_t c);
/* Value of a hexadecimal digit, or -1. */
int wire_hex_value(uint8_t c);

/* Collects a message. Stores what fits and counts all of it. */
struct wire_out {
    char *at;
    size_t cap;
    size_t len; /* of the whole message; above cap when it did not fit */
};

void wire_put(struct wire_out *out, struct wire_text text);
void wire_put_string(struct wire_out *out, const char *string);
void wire_put_char(struct wire_out *out, char c);
void wire_put_number(struct wire_out *out, uint64_t number);

#endif
