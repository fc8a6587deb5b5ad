#include "wire/base64.h"

#include "wire/text.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t wire_base64_encode(char *out, const void *data, size_t len)
{
    const uint8_t *p = data;
    char *o = out;

    for (; len >= 3; len -= 3, p += 3) {
        *o++ = alphabet[p[0] >> 2];
        *o++ = alphabet[(p[0] & 3) << 4 | p[1] >> 4];
        *o++ = alphabet[(p[1] & 15) << 2 | p[2] >> 6];
        *o++ = alphabet[p[2] & 63];
    }
    if (len > 0) {
        uint8_t second = len == 2 ? p[1] : 0;

        *o++ = alphabet[p[0] >> 2];
        *o++ = alphabet[(p[0] & 3) << 4 | second >> 4];
        *o++ = len == 2 ? alphabet[(second & 15) << 2] : '=';
        *o++ = '=';
    }
    return (size_t)(o - out);
}

static int value_of(char character)
{
    uint8_t c = (uint8_t)character;

    if (wire_is_digit(c))
        return c - '0' + 52;
    if (wire_is_alpha(c))
        return c >= 'a' ? c - 'a' + 26 : c - 'A';
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

ptrdiff_t wire_base64_decode(uint8_t *out, size_t cap, const char *text, size_t len)
{
    size_t padding = 0;
    size_t n = 0;
    uint32_t bits = 0;
    unsigned nbits = 0;

    if (len % 4 != 0)
        return -1;
    while (padding < 2 && padding < len && text[len - 1 - padding] == '=')
        padding++;
    for (size_t i = 0; i < len - padding; i++) {
        int value = value_of(text[i]);

        if (value < 0)
            return -1;
        bits = (bits << 6 | (uint32_t)value) & 0xffff;
        nbits += 6;
        if (nbits < 8)
            continue;
        nbits -= 8;
        if (n == cap)
            return -1;
        out[n++] = (uint8_t)(bits >> nbits);
    }
    return (bits & ((1U << nbits) - 1)) == 0 ? (ptrdiff_t)n : -1;
}
