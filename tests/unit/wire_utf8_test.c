/*
 * UTF-8: every implementation against a decoder that is as plain as it can be, on all short byte
 * sequences, at every cut, at guard pages, and on mutated text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "guard.h"
#include "rng.h"
#include "wire/cpu.h"
#include "wire/utf8.h"

typedef bool feed_fn(struct wire_utf8 *u, const uint8_t *buf, size_t len);

struct variant {
    const char *name;
    feed_fn *feed;
};

static struct variant variants[4];
static size_t variant_count;

/* The variants that this CPU can run. */
static int find_variants(void **state)
{
    (void)state;
    variants[variant_count++] = (struct variant){"best", wire_utf8_feed};
    variants[variant_count++] = (struct variant){"portable", wire_utf8_feed_portable};
#if defined(WIRE_UTF8_X86)
    if (wire_cpu_has_ssse3())
        variants[variant_count++] = (struct variant){"ssse3", wire_utf8_feed_ssse3};
    if (wire_cpu_has_avx2())
        variants[variant_count++] = (struct variant){"avx2", wire_utf8_feed_avx2};
    else
        print_message("no AVX2 here: that variant is not tested\n");
#elif defined(WIRE_UTF8_NEON)
    variants[variant_count++] = (struct variant){"neon", wire_utf8_feed_neon};
#endif
    return 0;
}

/* Is a code point between lo and hi one that UTF-8 may encode in a form that starts at min? */
static bool possible(uint32_t lo, uint32_t hi, uint32_t min)
{
    if (lo < min)
        lo = min;
    if (hi > 0x10ffff)
        hi = 0x10ffff;
    return lo <= hi && !(lo >= 0xd800 && hi <= 0xdfff);
}

/*
 * The reference. Returns the index of the first byte that no valid text can have there, or n.
 * *complete tells whether the n bytes end between characters.
 */
static size_t first_bad(const uint8_t *p, size_t n, bool *complete)
{
    static const uint32_t min_of[4] = {0, 0x80, 0x800, 0x10000};
    size_t i = 0;

    *complete = false;
    while (i < n) {
        unsigned need = p[i] < 0x80 ? 0 : p[i] < 0xe0 ? 1 : p[i] < 0xf0 ? 2 : 3;
        uint32_t lo = p[i] & (need == 0 ? 0x7f : 0x3f >> need), hi;

        if ((p[i] >= 0x80 && p[i] < 0xc0) || p[i] >= 0xf8)
            return i;
        for (unsigned k = 0; k <= need; k++) {
            if (i + k == n)
                return n;
            if (k > 0 && (p[i + k] & 0xc0) != 0x80)
                return i + k;
            lo = k > 0 ? lo << 6 | (p[i + k] & 0x3f) : lo;
            hi = ((lo + 1) << 6 * (need - k)) - 1;
            if (!possible(lo << 6 * (need - k), hi, min_of[need]))
                return i + k;
        }
        i += need + 1;
    }
    *complete = true;
    return n;
}

/* Feeds all of p at once and compares. */
static void check_whole(const struct variant *v, const uint8_t *p, size_t n, size_t bad,
                        bool complete)
{
    struct wire_utf8 u = WIRE_UTF8_INIT;
    bool good = v->feed(&u, p, n);

    if (good != (bad >= n))
        fail_msg("%s: %zu bytes, bad at %zu: says %d", v->name, n, bad, good);
    if (good && wire_utf8_complete(&u) != complete)
        fail_msg("%s: %zu bytes: complete is not %d", v->name, n, complete);
    if (!good &&
        (wire_utf8_complete(&u) || v->feed(&u, (const uint8_t *)"a", 1) || v->feed(&u, NULL, 0)))
        fail_msg("%s: %zu bytes: a bad text became good again", v->name, n);
}

/* At both guard pages, with every variant, and in one shot. */
static void check_text(struct guard *g, const uint8_t *text, size_t n)
{
    bool complete;
    size_t bad = first_bad(text, n, &complete);

    for (size_t i = 0; i < variant_count; i++)
        check_whole(&variants[i], guard_tail(g, text, n), n, bad, complete);
    assert_int_equal(wire_utf8_valid(guard_tail(g, text, n), n), bad == n && complete);
    for (size_t i = 0; i < variant_count; i++)
        check_whole(&variants[i], guard_head(g, text, n), n, bad, complete);
}

/* Every prefix is judged like the reference: fail-fast to the byte. */
static void check_prefixes(struct guard *g, const uint8_t *text, size_t n)
{
    for (size_t len = 0; len <= n; len++)
        check_text(g, text, len);
}

/* Three pieces with every two cuts: after each piece the answer is that for the prefix. */
static void check_cuts(const uint8_t *text, size_t n)
{
    bool complete[512];
    size_t bad = n;

    assert_true(n < 512);
    for (size_t len = 0; len <= n; len++)
        bad = first_bad(text, len, &complete[len]);
    for (size_t i = 0; i < variant_count; i++) {
        for (size_t a = 0; a <= n; a++) {
            for (size_t b = a; b <= n; b++) {
                const size_t from[3] = {0, a, b}, to[3] = {a, b, n};
                struct wire_utf8 u = WIRE_UTF8_INIT;

                for (int k = 0; k < 3; k++) {
                    bool good = variants[i].feed(&u, text + from[k], to[k] - from[k]);

                    if (good != (bad >= to[k]) ||
                        wire_utf8_complete(&u) != (good && complete[to[k]]))
                        fail_msg("%s: cuts at %zu and %zu of %zu", variants[i].name, a, b, n);
                }
            }
        }
    }
}

/* B076, B078, B080, B082 and the classics */
static void test_known_texts(void **state)
{
    static const struct {
        const char *text;
        bool valid;
    } cases[] = {
        {"", true},
        {"Hello", true},
        {"\xce\xba\xcf\x8c\xcf\x83\xce\xbc\xce\xb5\xe2\x82\xac\xf0\x9f\x98\x80", true}, /* B078 */
        {"\x80", false},                                                                /* B076 */
        {"\xc0\xaf", false},
        {"\xe0\x80\xaf", false},
        {"\xc3\x28", false},
        {"\xff", false},
        {"ab\xfe", false},
        {"ok\xc3\x28", false}, /* B080 */
        {"\xe2"
         "A",
         false},
        {"\xe2\x82", false},         /* B082 */
        {"\xed\x9f\xbf", true},      /* U+D7FF */
        {"\xed\xa0\x80", false},     /* U+D800 */
        {"\xed\xbf\xbf", false},     /* U+DFFF */
        {"\xee\x80\x80", true},      /* U+E000 */
        {"\xef\xbf\xbf", true},      /* U+FFFF is no character, but it is encodable */
        {"\xf0\x90\x80\x80", true},  /* U+10000 */
        {"\xf0\x8f\xbf\xbf", false}, /* overlong */
        {"\xf4\x8f\xbf\xbf", true},  /* U+10FFFF */
        {"\xf4\x90\x80\x80", false}, /* U+110000 */
        {"\xf8\x88\x80\x80\x80", false},
        {"\xc2\x80\x80", false},
    };
    struct guard g;

    (void)state;
    guard_open(&g, 128);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const uint8_t *text = (const uint8_t *)cases[i].text;
        size_t n = strlen(cases[i].text);

        assert_int_equal(wire_utf8_valid(text, n), cases[i].valid);
        check_prefixes(&g, text, n);
        check_cuts(text, n);
    }
    assert_true(wire_utf8_valid(NULL, 0));
    guard_close(&g);
}

/* A sequence inside a longer text, where the vector code meets it. */
static void check_embedded(const uint8_t *seq, size_t n, size_t at)
{
    static uint8_t text[96];
    bool complete, between;
    size_t bad = first_bad(seq, n, &between);

    complete = bad == n && between;
    memset(text, 'a', sizeof(text));
    memcpy(text + at, seq, n);
    /* The portable code has had its turn a byte at a time, and the best is one of the others. */
    for (size_t i = variant_count > 2 ? 2 : 0; i < variant_count; i++) {
        struct wire_utf8 u = WIRE_UTF8_INIT;
        bool good = variants[i].feed(&u, text, sizeof(text));

        if (good != complete)
            fail_msg("%s: %02x %02x %02x at %zu: %d", variants[i].name, seq[0], seq[1], seq[2], at,
                     good);
    }
}

/* The last byte of a sequence, fed alone. */
static void check_step(struct wire_utf8 u, const uint8_t *seq, size_t n, bool before_good)
{
    bool complete;
    size_t bad = first_bad(seq, n, &complete);
    bool good = wire_utf8_feed_portable(&u, seq + n - 1, 1);

    if (good != (before_good && bad == n) || wire_utf8_complete(&u) != (good && complete))
        fail_msg("%02x %02x %02x, %zu bytes: %d", seq[0], seq[1], seq[2], n, good);
}

/*
 * All sequences of one, two and three bytes, a byte at a time: the answer turns at the right byte.
 */
static void test_all_three_byte_sequences(void **state)
{
    uint8_t seq[4] = {0};

    (void)state;
    for (unsigned a = 0; a < 256; a++) {
        struct wire_utf8 one = WIRE_UTF8_INIT;
        bool good_one;

        seq[0] = (uint8_t)a;
        check_step(one, seq, 1, true);
        check_embedded(seq, 1, 20 + a % 40);
        good_one = wire_utf8_feed_portable(&one, seq, 1);
        for (unsigned b = 0; b < 256; b++) {
            struct wire_utf8 two = one;
            bool good_two;

            seq[1] = (uint8_t)b;
            check_step(one, seq, 2, good_one);
            check_embedded(seq, 2, 20 + (a + b) % 40);
            good_two = wire_utf8_feed_portable(&two, seq + 1, 1);
            for (unsigned c = 0; c < 256; c++) {
                seq[2] = (uint8_t)c;
                check_step(two, seq, 3, good_two);
            }
        }
    }
}

/* The same inside a longer text. ASCII at the front is left to the test above. */
static void test_all_three_byte_sequences_embedded(void **state)
{
    uint8_t seq[4] = {0};

    (void)state;
    for (unsigned a = 0x80; a < 256; a++) {
        for (unsigned bc = 0; bc <= 0xffff; bc++) {
            seq[0] = (uint8_t)a;
            seq[1] = (uint8_t)(bc >> 8);
            seq[2] = (uint8_t)bc;
            check_embedded(seq, 3, 20 + bc % 37);
        }
    }
}

/* Four bytes: all of the first two, and what matters of the others. */
static void test_four_byte_borders(void **state)
{
    static const uint8_t border[] = {0x00, 0x7f, 0x80, 0x81, 0x8f, 0x90, 0x9f,
                                     0xa0, 0xbf, 0xc0, 0xc2, 0xe0, 0xf0, 0xff};
    enum { BORDERS = sizeof(border) };
    uint8_t seq[4];

    (void)state;
    for (unsigned ab = 0xe000; ab <= 0xffff; ab++) {
        for (unsigned cd = 0; cd < BORDERS * BORDERS; cd++) {
            bool complete;
            size_t bad;

            seq[0] = (uint8_t)(ab >> 8);
            seq[1] = (uint8_t)ab;
            seq[2] = border[cd / BORDERS];
            seq[3] = border[cd % BORDERS];
            bad = first_bad(seq, 4, &complete);
            check_whole(&variants[1], seq, 4, bad, complete);
            check_embedded(seq, 4, 20 + (ab + cd) % 43);
        }
    }
}

static size_t encode(uint8_t *out, uint32_t cp)
{
    if (cp < 0x80) {
        out[0] = (uint8_t)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (uint8_t)(0xc0 | cp >> 6);
        out[1] = (uint8_t)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (uint8_t)(0xe0 | cp >> 12);
        out[1] = (uint8_t)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (uint8_t)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (uint8_t)(0xf0 | cp >> 18);
    out[1] = (uint8_t)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (uint8_t)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (uint8_t)(0x80 | (cp & 0x3f));
    return 4;
}

/* Valid text of at most cap bytes; mix says how much of it is ASCII (8: all of it). */
static size_t random_text(struct rng *rng, uint8_t *out, size_t cap, unsigned mix)
{
    static const uint32_t top[] = {0x80, 0x800, 0xd800, 0x10000, 0x110000};
    size_t n = 0;

    while (n + 4 <= cap) {
        uint32_t limit = rng_below(rng, 8) < mix ? 0x80 : top[rng_below(rng, 5)], cp;

        do
            cp = (uint32_t)rng_below(rng, limit);
        while (cp >= 0xd800 && cp <= 0xdfff);
        n += encode(out + n, cp);
    }
    return n;
}

/* Every code point, in one text of more than four megabytes. */
static void test_all_code_points(void **state)
{
    size_t cap = 0x110000 * 4, n = 0;
    uint8_t *text = malloc(cap);

    (void)state;
    assert_non_null(text);
    for (uint32_t cp = 0; cp < 0x110000; cp++)
        if (cp < 0xd800 || cp > 0xdfff)
            n += encode(text + n, cp);
    for (size_t i = 0; i < variant_count; i++)
        check_whole(&variants[i], text, n, n, true);
    for (uint32_t cp = 0xd800; cp <= 0xdfff; cp++) {
        uint8_t bad[4];

        assert_false(wire_utf8_valid(bad, encode(bad, cp)));
    }
    free(text);
}

static void test_every_cut_of_a_text(void **state)
{
    static const char mixed[] =
        "plain ASCII that fills a vector or two, then "
        "\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5 \xf0\x9f\x98\x80\xf0\x9f\x8e\x89 "
        "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xe3\x81\xae\xe6\x96\x87\xe7\xab\xa0\xe3\x80\x82 end";
    static const char *const ends[] = {"",         "\xe2\x82", "\xe2\x82 ", "\xf0\x9f\x98",
                                       "\xed\xa0", "\x80"};
    uint8_t text[200];
    struct guard g;

    (void)state;
    guard_open(&g, sizeof(text));
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        size_t n = sizeof(mixed) - 1, m = strlen(ends[i]);

        memcpy(text, mixed, n);
        memcpy(text + n, ends[i], m);
        check_cuts(text, n + m);
        check_prefixes(&g, text, n + m);
    }
    guard_close(&g);
}

/* Each kind of error at each place of texts of each length: the place relative to a vector counts. */
static void test_errors_at_every_place(void **state)
{
    static const char *const errors[] = {
        "\x80",     "\xc0\x80",         "\xc3",         "\xe0\x9f\xbf",     "\xed\xa0\x80",
        "\xe2\x82", "\xf0\x8f\xbf\xbf", "\xf0\x9f\x98", "\xf4\x90\x80\x80", "\xf5",
        "\xff",     "\xe2\x82\xac\x80"};
    struct guard g;
    uint8_t text[160];

    (void)state;
    guard_open(&g, sizeof(text));
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        size_t m = strlen(errors[i]);

        for (size_t n = m; n <= sizeof(text); n += 1 + n / 16) {
            for (size_t at = 0; at + m <= n; at++) {
                memset(text, 'x', n);
                memcpy(text + at, errors[i], m);
                check_text(&g, text, n);
                /* and between characters of two bytes */
                for (size_t k = 0; k < n; k++)
                    text[k] = k < at ? ((at - k) % 2 ? 0xa9 : 0xc3) : text[k];
                check_text(&g, text, n);
            }
        }
    }
    guard_close(&g);
}

static void mutate(struct rng *rng, uint8_t *text, size_t *n)
{
    size_t at = rng_below(rng, *n);

    switch (rng_below(rng, 5)) {
    case 0:
        text[at] ^= (uint8_t)(1u << rng_below(rng, 8));
        break;
    case 1:
        text[at] = (uint8_t)rng_next(rng);
        break;
    case 2:
        memmove(text + at, text + at + 1, *n - at - 1);
        *n -= 1;
        break;
    case 3:
        text[at] = (uint8_t)(0x80 + rng_below(rng, 0x80));
        break;
    default:
        *n = at + 1;
        break;
    }
}

static void test_random_and_mutated(void **state)
{
    struct rng rng = {99};
    struct guard g;
    uint8_t text[600];

    (void)state;
    guard_open(&g, sizeof(text));
    for (int round = 0; round < 30000; round++) {
        size_t n = random_text(&rng, text, 8 + rng_below(&rng, round % 8 ? 150 : 590),
                               (unsigned)rng_below(&rng, 9));
        size_t changes = rng_below(&rng, 4);

        while (changes-- > 0 && n > 1)
            mutate(&rng, text, &n);
        check_text(&g, text, n);
    }
    for (int round = 0; round < 10000; round++) {
        size_t n = rng_below(&rng, 100);

        rng_fill(&rng, text, n);
        check_text(&g, text, n);
    }
    guard_close(&g);
}

/* Long mutated text in random pieces; a fault is found in the piece that holds it. */
static void test_random_pieces(void **state)
{
    enum { CAP = 5000 };
    static uint8_t text[CAP];
    struct rng rng = {1234};

    (void)state;
    for (int round = 0; round < 1500; round++) {
        const struct variant *v = &variants[rng_below(&rng, variant_count)];
        size_t n = random_text(&rng, text, CAP, (unsigned)rng_below(&rng, 9)), at = 0, bad;
        struct wire_utf8 u = WIRE_UTF8_INIT;
        bool complete, good = true;

        if (rng_below(&rng, 3))
            mutate(&rng, text, &n);
        bad = first_bad(text, n, &complete);
        while (at < n && good) {
            size_t part = 1 + rng_below(&rng, rng_below(&rng, 4) ? 12 : 500);

            part = part < n - at ? part : n - at;
            good = v->feed(&u, text + at, part);
            at += part;
            assert_int_equal(good, bad >= n || bad >= at);
        }
        if (good)
            assert_int_equal(wire_utf8_complete(&u), complete);
    }
}

static void test_prefix(void **state)
{
    static const uint8_t text[] = "a\xc3\xa9"
                                  "b\xe2\x82\xac"
                                  "c\xf0\x9f\x98\x80"
                                  "d";
    static const uint8_t stray[] = "a\x80\x80\x80\x80\x80";
    size_t n = sizeof(text) - 1;
    struct guard g;

    (void)state;
    guard_open(&g, n);
    for (size_t max = 0; max <= n + 2; max++) {
        const uint8_t *p = guard_tail(&g, text, n);
        size_t got = wire_utf8_prefix(p, n, max), next;

        assert_true(got <= max && got <= n);
        assert_true(wire_utf8_valid(text, got));
        /* longest: no border lies between it and the limit */
        for (next = got + 1; next <= max && next <= n; next++)
            assert_false(wire_utf8_valid(text, next));
    }
    assert_int_equal(wire_utf8_prefix(NULL, 0, 10), 0);
    /* what is not UTF-8 loses three bytes at most */
    for (size_t max = 0; max < sizeof(stray); max++)
        assert_true(wire_utf8_prefix(stray, sizeof(stray) - 1, max) + 3 >= max);
    guard_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_texts),
        cmocka_unit_test(test_all_three_byte_sequences),
        cmocka_unit_test(test_all_three_byte_sequences_embedded),
        cmocka_unit_test(test_four_byte_borders),
        cmocka_unit_test(test_all_code_points),
        cmocka_unit_test(test_every_cut_of_a_text),
        cmocka_unit_test(test_errors_at_every_place),
        cmocka_unit_test(test_random_and_mutated),
        cmocka_unit_test(test_random_pieces),
        cmocka_unit_test(test_prefix),
    };

    return cmocka_run_group_tests_name("wire_utf8", tests, find_variants, NULL);
}
