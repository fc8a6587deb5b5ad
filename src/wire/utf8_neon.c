/*
 * UTF-8 validation sixteen bytes at a time on AArch64, where NEON is always there. See
 * utf8_table.h for the method and utf8_x86.c for the way blocks are walked: it is the same here.
 */
#include "wire/utf8_vec.h"

#if defined(WIRE_UTF8_NEON)

#include <arm_neon.h>

#include "wire/utf8_table.h"

static inline bool ascii16(uint8x16_t v)
{
    return vmaxvq_u8(v) < 0x80;
}

/* Not zero where here, or the three bytes before it, break a rule. */
static inline uint8x16_t check16(uint8x16_t here, uint8x16_t prev1, uint8x16_t prev2,
                                 uint8x16_t prev3)
{
    uint8x16_t high = vqtbl1q_u8(vld1q_u8(utf8_prev_high), vshrq_n_u8(prev1, 4));
    uint8x16_t low = vqtbl1q_u8(vld1q_u8(utf8_prev_low), vandq_u8(prev1, vdupq_n_u8(0x0f)));
    uint8x16_t next = vqtbl1q_u8(vld1q_u8(utf8_here_high), vshrq_n_u8(here, 4));
    uint8x16_t pairs = vandq_u8(vandq_u8(high, low), next);
    uint8x16_t third = vcgeq_u8(prev2, vdupq_n_u8(0xe0));
    uint8x16_t fourth = vcgeq_u8(prev3, vdupq_n_u8(0xf0));
    uint8x16_t due = vandq_u8(vorrq_u8(third, fourth), vdupq_n_u8(0x80));

    return veorq_u8(due, pairs);
}

static inline uint8x16_t check16_at(const uint8_t *p)
{
    return check16(vld1q_u8(p), vld1q_u8(p - 1), vld1q_u8(p - 2), vld1q_u8(p - 3));
}

/* For the first block: zero bytes stand before it. */
static inline uint8x16_t check16_first(const uint8_t *p)
{
    uint8x16_t zero = vdupq_n_u8(0), here = vld1q_u8(p);

    return check16(here, vextq_u8(zero, here, 15), vextq_u8(zero, here, 14),
                   vextq_u8(zero, here, 13));
}

/* Steps over whole ASCII blocks; may stop early, and goes past last only over ASCII. */
static const uint8_t *skip_ascii16(const uint8_t *p, const uint8_t *last)
{
    while (last - p >= 48 && ascii16(vorrq_u8(vorrq_u8(vld1q_u8(p), vld1q_u8(p + 16)),
                                              vorrq_u8(vld1q_u8(p + 32), vld1q_u8(p + 48)))))
        p += 64;
    while (p < last && ascii16(vld1q_u8(p)))
        p += 16;
    return p;
}

bool utf8_body_neon(const uint8_t *buf, size_t n)
{
    const uint8_t *last = buf + n - 16;
    const uint8_t *p = skip_ascii16(buf, last);
    uint8x16_t err = vdupq_n_u8(0);

    if (p == buf) {
        err = check16_first(p);
        p += 16;
    }
    while (p < last) {
        if (ascii16(vorrq_u8(vld1q_u8(p), vld1q_u8(p - 3)))) {
            p = skip_ascii16(p + 16, last);
            continue;
        }
        err = vorrq_u8(err, check16_at(p));
        p += 16;
    }
    err = vorrq_u8(err, check16_at(last));
    return vmaxvq_u8(err) == 0;
}

#else
/* A translation unit must not be empty. */
typedef int wire_utf8_neon_unused;
#endif
