/*
 * UTF-8 validation sixteen bytes at a time with SSSE3 and thirty-two with AVX2. See utf8_table.h
 * for the method.
 *
 * Blocks carry nothing from one to the next: the bytes before a block are read again from memory,
 * at p - 1, p - 2 and p - 3. That makes the last block simple, since it may overlap the one before
 * it, and ASCII can be skipped without a second thought.
 */
#include "wire/utf8_vec.h"

#if defined(WIRE_UTF8_X86)

#include <immintrin.h>

#include "wire/utf8_table.h"

#define TARGET_SSSE3 __attribute__((target("ssse3")))
#define TARGET_AVX2 __attribute__((target("avx2")))

static inline __m128i load16(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

static inline bool ascii16(__m128i v)
{
    return _mm_movemask_epi8(v) == 0;
}

/* The upper nibble of each byte. There is no shift of bytes: shift wider words, drop the rest. */
static inline __m128i high16(__m128i v)
{
    return _mm_and_si128(_mm_srli_epi16(v, 4), _mm_set1_epi8(0x0f));
}

/* Not zero where here, or the three bytes before it, break a rule. */
TARGET_SSSE3 static inline __m128i check16(__m128i here, __m128i prev1, __m128i prev2,
                                           __m128i prev3)
{
    __m128i prev_low = _mm_and_si128(prev1, _mm_set1_epi8(0x0f));
    __m128i pairs =
        _mm_and_si128(_mm_and_si128(_mm_shuffle_epi8(load16(utf8_prev_high), high16(prev1)),
                                    _mm_shuffle_epi8(load16(utf8_prev_low), prev_low)),
                      _mm_shuffle_epi8(load16(utf8_here_high), high16(here)));
    /* The top bit stays set only for E0 and above two back, F0 and above three back. */
    __m128i third = _mm_subs_epu8(prev2, _mm_set1_epi8((char)(0xe0 - 0x80)));
    __m128i fourth = _mm_subs_epu8(prev3, _mm_set1_epi8((char)(0xf0 - 0x80)));
    __m128i due = _mm_and_si128(_mm_or_si128(third, fourth), _mm_set1_epi8((char)0x80));

    /* A continuation after a continuation must be where one is due, and the other way round. */
    return _mm_xor_si128(due, pairs);
}

TARGET_SSSE3 static inline __m128i check16_at(const uint8_t *p)
{
    return check16(load16(p), load16(p - 1), load16(p - 2), load16(p - 3));
}

/* Steps over whole ASCII blocks; may stop early, and goes past last only over ASCII. */
static const uint8_t *skip_ascii16(const uint8_t *p, const uint8_t *last)
{
    while (last - p >= 48 && ascii16(_mm_or_si128(_mm_or_si128(load16(p), load16(p + 16)),
                                                  _mm_or_si128(load16(p + 32), load16(p + 48)))))
        p += 64;
    while (p < last && ascii16(load16(p)))
        p += 16;
    return p;
}

TARGET_SSSE3 bool utf8_body_ssse3(const uint8_t *buf, size_t n)
{
    const uint8_t *last = buf + n - 16;
    const uint8_t *p = skip_ascii16(buf, last);
    __m128i err = _mm_setzero_si128();

    if (p == buf) {
        __m128i here = load16(p);

        err = check16(here, _mm_slli_si128(here, 1), _mm_slli_si128(here, 2),
                      _mm_slli_si128(here, 3));
        p += 16;
    }
    while (p < last) {
        if (ascii16(_mm_or_si128(load16(p), load16(p - 3)))) {
            p = skip_ascii16(p + 16, last);
            continue;
        }
        err = _mm_or_si128(err, check16_at(p));
        p += 16;
    }
    err = _mm_or_si128(err, check16_at(last));
    return _mm_movemask_epi8(_mm_cmpeq_epi8(err, _mm_setzero_si128())) == 0xffff;
}

TARGET_AVX2 static inline __m256i load32(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

TARGET_AVX2 static inline bool ascii32(__m256i v)
{
    return _mm256_movemask_epi8(v) == 0;
}

TARGET_AVX2 static inline __m256i high32(__m256i v)
{
    return _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(0x0f));
}

TARGET_AVX2 static inline __m256i lookup32(const uint8_t table[16], __m256i index)
{
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load16(table)), index);
}

TARGET_AVX2 static inline __m256i check32(__m256i here, __m256i prev1, __m256i prev2, __m256i prev3)
{
    __m256i prev_low = _mm256_and_si256(prev1, _mm256_set1_epi8(0x0f));
    __m256i pairs = _mm256_and_si256(_mm256_and_si256(lookup32(utf8_prev_high, high32(prev1)),
                                                      lookup32(utf8_prev_low, prev_low)),
                                     lookup32(utf8_here_high, high32(here)));
    __m256i third = _mm256_subs_epu8(prev2, _mm256_set1_epi8((char)(0xe0 - 0x80)));
    __m256i fourth = _mm256_subs_epu8(prev3, _mm256_set1_epi8((char)(0xf0 - 0x80)));
    __m256i due = _mm256_and_si256(_mm256_or_si256(third, fourth), _mm256_set1_epi8((char)0x80));

    return _mm256_xor_si256(due, pairs);
}

TARGET_AVX2 static inline __m256i check32_at(const uint8_t *p)
{
    return check32(load32(p), load32(p - 1), load32(p - 2), load32(p - 3));
}

/* For the first block: zero bytes stand before it. */
TARGET_AVX2 static inline __m256i check32_first(const uint8_t *p)
{
    __m256i here = load32(p);
    __m256i low = _mm256_permute2x128_si256(here, here, 0x08);

    return check32(here, _mm256_alignr_epi8(here, low, 15), _mm256_alignr_epi8(here, low, 14),
                   _mm256_alignr_epi8(here, low, 13));
}

TARGET_AVX2 static inline const uint8_t *skip_ascii32(const uint8_t *p, const uint8_t *last)
{
    while (last - p >= 96 &&
           ascii32(_mm256_or_si256(_mm256_or_si256(load32(p), load32(p + 32)),
                                   _mm256_or_si256(load32(p + 64), load32(p + 96)))))
        p += 128;
    while (p < last && ascii32(load32(p)))
        p += 32;
    return p;
}

TARGET_AVX2 bool utf8_body_avx2(const uint8_t *buf, size_t n)
{
    const uint8_t *last = buf + n - 32;
    const uint8_t *p = skip_ascii32(buf, last);
    __m256i err = _mm256_setzero_si256();

    if (p == buf) {
        err = check32_first(p);
        p += 32;
    }
    while (p < last) {
        if (ascii32(_mm256_or_si256(load32(p), load32(p - 3)))) {
            p = skip_ascii32(p + 32, last);
            continue;
        }
        err = _mm256_or_si256(err, check32_at(p));
        p += 32;
    }
    err = _mm256_or_si256(err, check32_at(last));
    return _mm256_testz_si256(err, err) != 0;
}

#else
/* A translation unit must not be empty. */
typedef int wire_utf8_x86_unused;
#endif
