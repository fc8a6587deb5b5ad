#include "wire/utf8.h"

#include <string.h>

#include "wire/cpu.h"
#include "wire/utf8_vec.h"

/*
 * The automaton of RFC 3629 section 4. A state is a shift count into the 64-bit row of the next
 * byte, and the six bits found there are the next state: one load that does not depend on the
 * state, and one shift that does.
 */
enum {
    ACCEPT = 0,    /* between characters */
    NEED1 = 6,     /* one more continuation, any */
    NEED2 = 12,    /* two more */
    NEED3 = 18,    /* three more */
    AFTER_E0 = 24, /* A0 to BF, then one more */
    AFTER_ED = 30, /* 80 to 9F, then one more */
    AFTER_F0 = 36, /* 90 to BF, then two more */
    AFTER_F4 = 42, /* 80 to 8F, then two more */
    REJECT = 48
};

#define ROW(accept, need1, need2, need3, e0, ed, f0, f4)                                           \
    ((uint64_t)(accept) << ACCEPT | (uint64_t)(need1) << NEED1 | (uint64_t)(need2) << NEED2 |      \
     (uint64_t)(need3) << NEED3 | (uint64_t)(e0) << AFTER_E0 | (uint64_t)(ed) << AFTER_ED |        \
     (uint64_t)(f0) << AFTER_F0 | (uint64_t)(f4) << AFTER_F4 | (uint64_t)REJECT << REJECT)

/* A byte that may only begin a character, and the state after it. */
#define LEAD(next) ROW(next, REJECT, REJECT, REJECT, REJECT, REJECT, REJECT, REJECT)
#define CONT(e0, ed, f0, f4) ROW(REJECT, ACCEPT, NEED1, NEED2, e0, ed, f0, f4)
#define CONT_8X CONT(REJECT, NEED1, REJECT, NEED2)
#define CONT_9X CONT(REJECT, NEED1, NEED2, REJECT)
#define CONT_AB CONT(NEED1, REJECT, NEED2, REJECT)

#define X2(row) row, row
#define X4(row) X2(row), X2(row)
#define X8(row) X4(row), X4(row)
#define X16(row) X8(row), X8(row)
#define X32(row) X16(row), X16(row)
#define X64(row) X32(row), X32(row)

static const uint64_t rows[256] = {
    X64(LEAD(ACCEPT)), X64(LEAD(ACCEPT)),                                   /* 00-7F */
    X16(CONT_8X),      X16(CONT_9X),      X32(CONT_AB),                     /* 80-BF */
    X2(LEAD(REJECT)),  X2(LEAD(NEED1)),   X4(LEAD(NEED1)),                  /* C0-C7 */
    X8(LEAD(NEED1)),   X16(LEAD(NEED1)),                                    /* C8-DF */
    LEAD(AFTER_E0),    X4(LEAD(NEED2)),   X8(LEAD(NEED2)),                  /* E0-EC */
    LEAD(AFTER_ED),    X2(LEAD(NEED2)),                                     /* ED-EF */
    LEAD(AFTER_F0),    X2(LEAD(NEED3)),   LEAD(NEED3),      LEAD(AFTER_F4), /* F0-F4 */
    LEAD(REJECT),      X2(LEAD(REJECT)),  X8(LEAD(REJECT)),                 /* F5-FF */
};

static unsigned step(unsigned state, uint8_t byte)
{
    return (unsigned)(rows[byte] >> state) & 63;
}

static unsigned step_all(unsigned state, const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        state = step(state, p[i]);
    return state;
}

static uint64_t load64(const uint8_t *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof(v));
    return v;
}

/* For short runs: a word at a time, the last word overlapping the one before it. */
static bool all_ascii(const uint8_t *p, size_t n)
{
    uint64_t seen = 0;

    if (n >= 8) {
        for (size_t i = 0; i + 8 <= n; i += 8)
            seen |= load64(p + i);
        seen |= load64(p + n - 8);
    } else {
        for (size_t i = 0; i < n; i++)
            seen |= p[i];
    }
    return (seen & UINT64_C(0x8080808080808080)) == 0;
}

/*
 * Bytes of the sequence that is still open at the end of p: a lead byte, and fewer continuations
 * than it announces. 0 when there is none.
 */
static size_t open_tail(const uint8_t *p, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        uint8_t b = p[n - back];

        if (b >= 0xc0)
            return back < (b >= 0xf0 ? 4u : b >= 0xe0 ? 3u : 2u) ? back : 0;
        if (b < 0x80)
            return 0;
    }
    return 0;
}

/* From ACCEPT over n bytes, without vectors. */
static unsigned run_portable(const uint8_t *p, size_t n)
{
    unsigned state = ACCEPT;

    while (n > 0 && state != REJECT) {
        size_t part = n < 32 ? n : 32;

        if (state != ACCEPT || !all_ascii(p, part))
            state = step_all(state, p, part);
        p += part;
        n -= part;
    }
    return state;
}

#if defined(WIRE_UTF8_X86) || defined(WIRE_UTF8_NEON)
/*
 * From ACCEPT over n bytes with vectors, which judge whole characters. An open sequence at the end
 * is left to the automaton; in front of it no second one may be open.
 */
static unsigned run_vector(const uint8_t *p, size_t n, utf8_body_fn *body)
{
    size_t tail = open_tail(p, n);

    n -= tail;
    if (tail > 0 && open_tail(p, n) > 0)
        return REJECT;
    return body(p, n) ? step_all(ACCEPT, p + n, tail) : REJECT;
}
#endif

/* Below the minimum of a body and an open sequence, the next smaller step takes over. */
#if defined(WIRE_UTF8_X86)
static unsigned run_ssse3(const uint8_t *p, size_t n)
{
    return n < UTF8_BODY_MIN_16 + 3 ? run_portable(p, n) : run_vector(p, n, utf8_body_ssse3);
}

static unsigned run_avx2(const uint8_t *p, size_t n)
{
    return n < UTF8_BODY_MIN_32 + 3 ? run_ssse3(p, n) : run_vector(p, n, utf8_body_avx2);
}
#elif defined(WIRE_UTF8_NEON)
static unsigned run_neon(const uint8_t *p, size_t n)
{
    return n < UTF8_BODY_MIN_16 + 3 ? run_portable(p, n) : run_vector(p, n, utf8_body_neon);
}
#endif

/* Brings an open sequence to its end, then hands the rest to run. */
static inline bool feed(struct wire_utf8 *u, const uint8_t *p, size_t n,
                        unsigned (*run)(const uint8_t *, size_t))
{
    unsigned state = u->state;

    while (state != ACCEPT && state != REJECT && n > 0) {
        state = step(state, *p++);
        n--;
    }
    if (state == ACCEPT && n > 0)
        state = run(p, n);
    u->state = (uint8_t)state;
    return state != REJECT;
}

bool wire_utf8_feed_portable(struct wire_utf8 *u, const uint8_t *buf, size_t len)
{
    return feed(u, buf, len, run_portable);
}

#if defined(WIRE_UTF8_X86)
bool wire_utf8_feed_ssse3(struct wire_utf8 *u, const uint8_t *buf, size_t len)
{
    return feed(u, buf, len, run_ssse3);
}

bool wire_utf8_feed_avx2(struct wire_utf8 *u, const uint8_t *buf, size_t len)
{
    return feed(u, buf, len, run_avx2);
}
#elif defined(WIRE_UTF8_NEON)
bool wire_utf8_feed_neon(struct wire_utf8 *u, const uint8_t *buf, size_t len)
{
    return feed(u, buf, len, run_neon);
}
#endif

static unsigned run_best(const uint8_t *p, size_t n)
{
    /* Most messages are short and ASCII: no question to the CPU for them. */
    if (n < 64 && all_ascii(p, n))
        return ACCEPT;
#if defined(WIRE_UTF8_X86)
    if (wire_cpu_has_avx2())
        return run_avx2(p, n);
    if (wire_cpu_has_ssse3())
        return run_ssse3(p, n);
    return run_portable(p, n);
#elif defined(WIRE_UTF8_NEON)
    return run_neon(p, n);
#else
    return run_portable(p, n);
#endif
}

bool wire_utf8_feed(struct wire_utf8 *u, const uint8_t *buf, size_t len)
{
    return feed(u, buf, len, run_best);
}

bool wire_utf8_complete(const struct wire_utf8 *u)
{
    return u->state == ACCEPT;
}

bool wire_utf8_valid(const uint8_t *buf, size_t len)
{
    return len == 0 || run_best(buf, len) == ACCEPT;
}

size_t wire_utf8_prefix(const uint8_t *buf, size_t len, size_t max)
{
    size_t n = len < max ? len : max;

    return n - open_tail(buf, n);
}
