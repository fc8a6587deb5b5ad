#include "wire/sha1.h"

#include <string.h>

#define BLOCK 64

static uint32_t rotate(uint32_t x, unsigned n)
{
    return x << n | x >> (32 - n);
}

static uint32_t load_be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void store_be32(uint8_t *p, uint32_t x)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(x >> (24 - 8 * i));
}

/* f of FIPS 180-4, 4.1.1, plus the round constant of 4.2.1. */
static uint32_t mix(unsigned round, uint32_t b, uint32_t c, uint32_t d)
{
    if (round < 20)
        return ((b & c) ^ (~b & d)) + 0x5a827999;
    if (round < 40)
        return (b ^ c ^ d) + 0x6ed9eba1;
    if (round < 60)
        return ((b & c) ^ (b & d) ^ (c & d)) + 0x8f1bbcdc;
    return (b ^ c ^ d) + 0xca62c1d6;
}

/* FIPS 180-4, 6.1.2. */
static void add_block(uint32_t state[5], const uint8_t block[BLOCK])
{
    uint32_t w[80];
    uint32_t a = state[0];
    uint32_t b = state[1];
    uint32_t c = state[2];
    uint32_t d = state[3];
    uint32_t e = state[4];

    for (unsigned t = 0; t < 16; t++)
        w[t] = load_be32(block + (size_t)4 * t);
    for (unsigned t = 16; t < 80; t++)
        w[t] = rotate(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
    for (unsigned t = 0; t < 80; t++) {
        uint32_t next = rotate(a, 5) + mix(t, b, c, d) + e + w[t];

        e = d;
        d = c;
        c = rotate(b, 30);
        b = a;
        a = next;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
}

void wire_sha1(const void *data, size_t len, uint8_t digest[WIRE_SHA1_LEN])
{
    uint32_t state[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    uint8_t tail[2 * BLOCK] = {0};
    const uint8_t *p = data;
    size_t left = len;

    for (; left >= BLOCK; left -= BLOCK, p += BLOCK)
        add_block(state, p);

    /* Padding: a one bit, zeros, the length in bits as 64 bits, up to one or two whole blocks. */
    size_t padded = left + 9 <= BLOCK ? BLOCK : 2 * BLOCK;

    if (left > 0)
        memcpy(tail, p, left);
    tail[left] = 0x80;
    store_be32(tail + padded - 8, (uint32_t)((uint64_t)len >> 29));
    store_be32(tail + padded - 4, (uint32_t)((uint64_t)len << 3));
    for (size_t at = 0; at < padded; at += BLOCK)
        add_block(state, tail + at);
    for (unsigned i = 0; i < 5; i++)
        store_be32(digest + (size_t)4 * i, state[i]);
}
