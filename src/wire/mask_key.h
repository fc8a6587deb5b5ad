/*
 * What the masking implementations share: the key turned to a position of the payload, and short
 * inputs.
 */
#ifndef WIRE_MASK_KEY_H
#define WIRE_MASK_KEY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The four key bytes for payload positions offset to offset + 3, in memory order. */
static inline uint32_t mask_word(const uint8_t key[4], uint64_t offset)
{
    unsigned turn = (unsigned)(offset & 3) * 8;
    uint32_t k;

    memcpy(&k, key, sizeof(k));
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return k << turn | k >> (-turn & 31);
#else
    return k >> turn | k << (-turn & 31);
#endif
}

/* The same, twice: positions offset to offset + 7. */
static inline uint64_t mask_dword(const uint8_t key[4], uint64_t offset)
{
    return mask_word(key, offset) * UINT64_C(0x100000001);
}

/*
 * For len below 16: two words that may overlap. Both are read before one is written, since dst may
 * be src.
 */
static inline void mask_short(uint8_t *dst, const uint8_t *src, size_t len, const uint8_t key[4],
                              uint64_t offset)
{
    if (len >= 8) {
        uint64_t a, b;

        memcpy(&a, src, 8);
        memcpy(&b, src + len - 8, 8);
        a ^= mask_dword(key, offset);
        b ^= mask_dword(key, offset + len - 8);
        memcpy(dst, &a, 8);
        memcpy(dst + len - 8, &b, 8);
    } else if (len >= 4) {
        uint32_t a, b;

        memcpy(&a, src, 4);
        memcpy(&b, src + len - 4, 4);
        a ^= mask_word(key, offset);
        b ^= mask_word(key, offset + len - 4);
        memcpy(dst, &a, 4);
        memcpy(dst + len - 4, &b, 4);
    } else {
        for (size_t i = 0; i < len; i++)
            dst[i] = src[i] ^ key[(offset + i) & 3];
    }
}

#endif
