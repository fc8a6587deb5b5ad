/*
 * Masking: the RFC's example, and every implementation against a byte at a time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "guard.h"
#include "rng.h"
#include "wire/cpu.h"
#include "wire/mask.h"

typedef void mask_fn(uint8_t *dst, const uint8_t *src, size_t len, const uint8_t key[4],
                     uint64_t offset);

struct variant {
    const char *name;
    mask_fn *fn;
};

/* The variants that this CPU can run. Portable and best are always there. */
static size_t variants(struct variant out[4])
{
    size_t n = 0;

    out[n++] = (struct variant){"best", wire_mask_copy};
    out[n++] = (struct variant){"portable", wire_mask_copy_portable};
#if defined(WIRE_MASK_X86)
    out[n++] = (struct variant){"sse2", wire_mask_copy_sse2};
    if (wire_cpu_has_avx2())
        out[n++] = (struct variant){"avx2", wire_mask_copy_avx2};
    else
        print_message("no AVX2 here: that variant is not tested\n");
#endif
    return n;
}

/* RFC 6455 section 5.3, literally. */
static void reference(uint8_t *dst, const uint8_t *src, size_t len, const uint8_t key[4],
                      uint64_t offset)
{
    for (size_t i = 0; i < len; i++)
        dst[i] = src[i] ^ key[(i + offset) % 4];
}

static void expect_same(const struct variant *v, const uint8_t *got, const uint8_t *want,
                        size_t len, size_t align, uint64_t offset)
{
    if (memcmp(got, want, len) != 0)
        fail_msg("%s: wrong bytes, length %zu, alignment %zu, offset %llu", v->name, len, align,
                 (unsigned long long)offset);
}

/* RFC 6455 section 5.7: a masked "Hello". */
static void test_rfc_example(void **state)
{
    static const uint8_t key[4] = {0x37, 0xfa, 0x21, 0x3d};
    static const uint8_t wire[5] = {0x7f, 0x9f, 0x4d, 0x51, 0x58};
    uint8_t buf[5];

    (void)state;
    memcpy(buf, wire, sizeof(buf));
    wire_mask(buf, sizeof(buf), key, 0);
    assert_memory_equal(buf, "Hello", 5);
    wire_mask(buf, 2, key, 0);
    wire_mask(buf + 2, 3, key, 2);
    assert_memory_equal(buf, wire, 5);
}

static void test_nothing(void **state)
{
    static const uint8_t key[4] = {1, 2, 3, 4};
    struct variant v[4];
    size_t n = variants(v);
    uint8_t byte = 9;

    (void)state;
    wire_mask(&byte, 0, key, 3);
    for (size_t i = 0; i < n; i++)
        v[i].fn(&byte, &byte, 0, key, 1);
    assert_int_equal(byte, 9);
}

/* One length and offset at every alignment of both ends, in place and copying, at guard pages. */
static void check_length(const struct variant *v, size_t len, const uint8_t key[4], uint64_t offset,
                         struct guard *in, struct guard *out)
{
    uint8_t *data = malloc(len + 1), *want = malloc(len + 1), *p, *q;
    struct rng rng = {len * 977 + offset + 1};

    assert_non_null(data);
    assert_non_null(want);
    rng_fill(&rng, data, len);
    reference(want, data, len, key, offset);

    p = guard_tail(in, data, len);
    v->fn(p, p, len, key, offset);
    expect_same(v, p, want, len, 0, offset);
    p = guard_head(in, data, len);
    v->fn(p, p, len, key, offset);
    expect_same(v, p, want, len, 0, offset);

    p = guard_tail(in, data, len);
    q = guard_head(out, NULL, len);
    v->fn(q, p, len, key, offset);
    expect_same(v, q, want, len, 0, offset);
    assert_memory_equal(p, data, len);
    free(data);
    free(want);
}

static void test_every_length_and_offset(void **state)
{
    static const uint8_t key[4] = {0xa1, 0x5b, 0x00, 0xfe};
    /* 2^32 - 2 and its neighbours: an offset must not be cut to 32 bits or lose its lower ones. */
    static const uint64_t offsets[] = {0, 1, 2, 3, 0xfffffffe, 0x100000001, 0x7ffffffffffffffd};
    struct guard in, out;
    struct variant v[4];
    size_t n = variants(v);

    (void)state;
    guard_open(&in, 512);
    guard_open(&out, 512);
    for (size_t i = 0; i < n; i++)
        for (size_t len = 0; len <= 300; len++)
            for (size_t k = 0; k < sizeof(offsets) / sizeof(offsets[0]); k++)
                check_length(&v[i], len, key, offsets[k], &in, &out);
    guard_close(&in);
    guard_close(&out);
}

/* Every pair of alignments of source and target; the bytes around the target stay as they were. */
static void test_every_alignment(void **state)
{
    static const size_t lens[] = {1, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 160, 300};
    static uint8_t src[512], dst[512], want[512];
    struct rng rng = {77};
    struct variant v[4];
    size_t n = variants(v);
    uint8_t key[4];

    (void)state;
    rng_fill(&rng, src, sizeof(src));
    rng_fill(&rng, key, 4);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < sizeof(lens) / sizeof(lens[0]); k++) {
            for (size_t align = 0; align < 32 * 32; align++) {
                size_t s = align / 32, d = align % 32;

                memset(dst, 0x5a, sizeof(dst));
                memset(want, 0x5a, sizeof(want));
                reference(want + 32 + d, src + s, lens[k], key, align);
                v[i].fn(dst + 32 + d, src + s, lens[k], key, align);
                expect_same(&v[i], dst, want, sizeof(dst), align, align);
            }
        }
    }
}

static void test_big(void **state)
{
    static const size_t lens[] = {4095, 65536, 65537, 1000003};
    struct variant v[4];
    size_t n = variants(v);
    struct rng rng = {4242};

    (void)state;
    for (size_t k = 0; k < sizeof(lens) / sizeof(lens[0]); k++) {
        size_t len = lens[k];
        uint8_t *data = malloc(len), *want = malloc(len), *got = malloc(len);
        uint64_t offset = rng_next(&rng);
        uint8_t key[4];

        assert_true(data && want && got);
        rng_fill(&rng, key, 4);
        rng_fill(&rng, data, len);
        reference(want, data, len, key, offset);
        for (size_t i = 0; i < n; i++) {
            memset(got, 0, len);
            v[i].fn(got, data, len, key, offset);
            expect_same(&v[i], got, want, len, 0, offset);
        }
        free(data);
        free(want);
        free(got);
    }
}

/* A payload that is unmasked in pieces, as it arrives, comes out as if done at once. */
static void test_pieces(void **state)
{
    enum { LEN = 2000 };
    static uint8_t data[LEN], want[LEN], got[LEN];
    struct rng rng = {5};
    struct variant v[4];
    size_t n = variants(v);

    (void)state;
    for (int round = 0; round < 500; round++) {
        uint64_t base = rng_next(&rng) >> rng_below(&rng, 60);
        const struct variant *use = &v[rng_below(&rng, n)];
        size_t at = 0;
        uint8_t key[4];

        rng_fill(&rng, key, 4);
        rng_fill(&rng, data, LEN);
        reference(want, data, LEN, key, base);
        memcpy(got, data, LEN);
        while (at < LEN) {
            size_t part = 1 + rng_below(&rng, rng_below(&rng, 8) ? 20 : 400);

            if (part > LEN - at)
                part = LEN - at;
            use->fn(got + at, got + at, part, key, base + at);
            at += part;
        }
        expect_same(use, got, want, LEN, 0, base);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rfc_example),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_every_length_and_offset),
        cmocka_unit_test(test_every_alignment),
        cmocka_unit_test(test_big),
        cmocka_unit_test(test_pieces),
    };

    return cmocka_run_group_tests_name("wire_mask", tests, NULL, NULL);
}
