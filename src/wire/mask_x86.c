/*
 * Masking with SSE2 (every x86-64) and AVX2. As in the portable code, the last vector is read
 * before the loop and written after it, so that no length needs a byte loop.
 */
#include "wire/mask.h"

#if defined(WIRE_MASK_X86)

#include <immintrin.h>

#include "wire/mask_key.h"

static inline __m128i load16(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

static inline void store16(uint8_t *p, __m128i v)
{
    _mm_storeu_si128((__m128i *)(void *)p, v);
}

static inline __m128i key16(const uint8_t key[4], uint64_t offset)
{
    return _mm_set1_epi32((int)mask_word(key, offset));
}

void wire_mask_copy_sse2(uint8_t *dst, const uint8_t *src, size_t len, const uint8_t key[4],
                         uint64_t offset)
{
    __m128i k, last;
    size_t i = 0;

    if (len < 16) {
        mask_short(dst, src, len, key, offset);
        return;
    }
    k = key16(key, offset);
    last = _mm_xor_si128(load16(src + len - 16), key16(key, offset + len - 16));
    for (; i + 64 <= len; i += 64) {
        __m128i a = load16(src + i), b = load16(src + i + 16);
        __m128i c = load16(src + i + 32), d = load16(src + i + 48);

        store16(dst + i, _mm_xor_si128(a, k));
        store16(dst + i + 16, _mm_xor_si128(b, k));
        store16(dst + i + 32, _mm_xor_si128(c, k));
        store16(dst + i + 48, _mm_xor_si128(d, k));
    }
    for (; i + 16 <= len; i += 16)
        store16(dst + i, _mm_xor_si128(load16(src + i), k));
    store16(dst + len - 16, last);
}

#define TARGET_AVX2 __attribute__((target("avx2")))

TARGET_AVX2 static inline __m256i load32(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

TARGET_AVX2 static inline void store32(uint8_t *p, __m256i v)
{
    _mm256_storeu_si256((__m256i *)(void *)p, v);
}

TARGET_AVX2 static inline __m256i key32(const uint8_t key[4], uint64_t offset)
{
    return _mm256_set1_epi32((int)mask_word(key, offset));
}

TARGET_AVX2 void wire_mask_copy_avx2(uint8_t *dst, const uint8_t *src, size_t len,
                                     const uint8_t key[4], uint64_t offset)
{
    __m256i k, last;
    size_t i = 0;

    if (len < 32) {
        wire_mask_copy_sse2(dst, src, len, key, offset);
        return;
    }
    k = key32(key, offset);
    last = _mm256_xor_si256(load32(src + len - 32), key32(key, offset + len - 32));
    for (; i + 128 <= len; i += 128) {
        __m256i a = load32(src + i), b = load32(src + i + 32);
        __m256i c = load32(src + i + 64), d = load32(src + i + 96);

        store32(dst + i, _mm256_xor_si256(a, k));
        store32(dst + i + 32, _mm256_xor_si256(b, k));
        store32(dst + i + 64, _mm256_xor_si256(c, k));
        store32(dst + i + 96, _mm256_xor_si256(d, k));
    }
    for (; i + 32 <= len; i += 32)
        store32(dst + i, _mm256_xor_si256(load32(src + i), k));
    store32(dst + len - 32, last);
}

#else
/* A translation unit must not be empty. */
typedef int wire_mask_x86_unused;
#endif
