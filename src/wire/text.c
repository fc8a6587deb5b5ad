#include "wire/text.h"

#include <string.h>

static uint8_t lower(uint8_t c)
{
    return c >= 'A' && c <= 'Z' ? (uint8_t)(c + ('a' - 'A')) : c;
}

static bool blank(char c)
{
    return c == ' ' || c == '\t';
}

struct wire_text wire_text_of(const char *string)
{
    return (struct wire_text){string, string != NULL ? strlen(string) : 0};
}

struct wire_text wire_text_skip(struct wire_text text, size_t n)
{
    if (n > text.len)
        n = text.len;
    if (n == 0) /* also keeps NULL out of pointer arithmetic */
        return text;
    return (struct wire_text){text.at + n, text.len - n};
}

struct wire_text wire_text_head(struct wire_text text, size_t n)
{
    return (struct wire_text){text.at, n < text.len ? n : text.len};
}

struct wire_text wire_text_trim(struct wire_text text)
{
    while (text.len > 0 && blank(text.at[0]))
        text = wire_text_skip(text, 1);
    while (text.len > 0 && blank(text.at[text.len - 1]))
        text.len--;
    return text;
}

size_t wire_text_find(struct wire_text text, char c)
{
    const char *found = text.len > 0 ? memchr(text.at, c, text.len) : NULL;

    return found != NULL ? (size_t)(found - text.at) : text.len;
}

size_t wire_text_find_any(struct wire_text text, const char *set)
{
    size_t n = 0;

    while (n < text.len && !wire_one_of(text.at[n], set))
        n++;
    return n;
}

bool wire_text_equal(struct wire_text a, struct wire_text b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.at, b.at, a.len) == 0);
}

bool wire_text_equal_nocase(struct wire_text a, struct wire_text b)
{
    if (a.len != b.len)
        return false;
    for (size_t i = 0; i < a.len; i++)
        if (lower((uint8_t)a.at[i]) != lower((uint8_t)b.at[i]))
            return false;
    return true;
}

bool wire_text_is(struct wire_text text, const char *string)
{
    return wire_text_equal_nocase(text, wire_text_of(string));
}

bool wire_text_starts(struct wire_text text, const char *string)
{
    struct wire_text start = wire_text_of(string);

    return text.len >= start.len && wire_text_equal_nocase(wire_text_head(text, start.len), start);
}

bool wire_equal_secret(const void *a, const void *b, size_t len)
{
    const uint8_t *x = a;
    const uint8_t *y = b;
    volatile uint8_t differs = 0; /* volatile: the compiler may not leave the loop early */

    for (size_t i = 0; i < len; i++)
        differs |= (uint8_t)(x[i] ^ y[i]);
    return differs == 0;
}

bool wire_one_of(char c, const char *set)
{
    struct wire_text chars = wire_text_of(set);

    return wire_text_find(chars, c) < chars.len;
}

bool wire_is_alpha(uint8_t c)
{
    return lower(c) >= 'a' && lower(c) <= 'z';
}

bool wire_is_digit(uint8_t c)
{
    return c >= '0' && c <= '9';
}

int wire_hex_value(uint8_t c)
{
    if (wire_is_digit(c))
        return c - '0';
    c = lower(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void wire_put(struct wire_out *out, struct wire_text text)
{
    if (out->len < out->cap && text.len > 0) {
        size_t room = out->cap - out->len;

        memcpy(out->at + out->len, text.at, text.len < room ? text.len : room);
    }
    out->len += text.len;
}

void wire_put_string(struct wire_out *out, const char *string)
{
    wire_put(out, wire_text_of(string));
}

void wire_put_char(struct wire_out *out, char c)
{
    wire_put(out, (struct wire_text){&c, 1});
}

void wire_put_number(struct wire_out *out, uint64_t number)
{
    char digits[20];
    size_t at = sizeof digits;

    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    wire_put(out, (struct wire_text){digits + at, sizeof digits - at});
}
