/*
 * Tokens, field values and comma lists of RFC 9110, section 5.6.
 *
 * Everything here is ASCII only and knows no locale.
 */
#ifndef WIRE_TOKEN_H
#define WIRE_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/text.h"

struct http_field;
struct http_head;

/* tchar, RFC 9110 5.6.2. */
static inline bool token_char(uint8_t c)
{
    /* One bit for each of the 128 ASCII characters. */
    static const uint32_t chars[4] = {0, 0x03ff6cfa, 0xc7fffffe, 0x57ffffff};

    return c < 128 && (chars[c >> 5] >> (c & 31) & 1) != 0;
}

/* Visible character, blank, tab or a byte above 127: what a field value may hold, 5.5. */
bool token_value_char(uint8_t c);
/* One or more tchar. */
bool token_valid(struct wire_text text);
/* A field value a sender may write: value characters, no blank or tab at either end. May be
 * empty. Refuses CR, LF and NUL, so a value that passes cannot start another line. */
bool token_value_valid(struct wire_text text);

/*
 * One pass over the elements of a comma list. Commas inside quoted strings do not separate, empty
 * elements are skipped (RFC 9110 5.6.1), blanks around an element are cut off. Over a head it
 * joins all lines of the same name, as RFC 9110 5.3 does.
 */
struct token_list {
    const struct http_head *head; /* NULL: over one text */
    const uint8_t *buf;
    const char *name;
    const struct http_field *field;
    struct wire_text rest;
    int ended; /* 0, or what token_list_next goes on to answer: 1 for the end, -1 */
};

/* `name`, `head` and `buf` must outlive the list. */
void token_list_of_head(struct token_list *list, const struct http_head *head, const uint8_t *buf,
                        const char *name);
void token_list_of_text(struct token_list *list, struct wire_text text);
/* 1: `element` is the next one, quotes included; 0: the end; -1: a quoted string is not closed or
 * holds a character it may not. After 0 and -1 the answer stays the same. */
int token_list_next(struct token_list *list, struct wire_text *element);
/* True when the whole list under `name` is well formed and one element is `token`, without case. */
bool token_list_has(const struct http_head *head, const uint8_t *buf, const char *name,
                    const char *token);

/* `quoted` starts with a double quote. Length of the quoted string with both quotes, or 0 when it
 * is not closed or holds a character it may not (RFC 9110 5.6.4). */
size_t token_quoted_length(struct wire_text quoted);
/* Removes the backslashes from what stood between the quotes, into out[0..cap). Returns the
 * length of the result, which is not stored beyond `cap`. */
size_t token_unescape(char *out, size_t cap, struct wire_text inside);

#endif
