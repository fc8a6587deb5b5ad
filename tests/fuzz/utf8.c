/*
 * UTF-8, every implementation that this processor can run against a plain decoder, in pieces and at
 * every alignment.
 *
 * Input: a byte for the cuts, one for the alignment, then the text.
 */
#include "wire/utf8.h"
#include "fuzz.h"
#include "lib/reference.h"
#include "wire/cpu.h"

typedef bool feed_fn(struct wire_utf8 *u, const uint8_t *buf, size_t len);

/* 0: valid and complete; 1: valid so far; -1: not valid. */
static int in_pieces(feed_fn *feed, const uint8_t *text, size_t len, struct fuzz_cuts cuts,
                     size_t shift)
{
    struct wire_utf8 u = WIRE_UTF8_INIT;
    size_t at = 0, good = reference_text_good(text, len);
    bool valid = true;

    while (at < len) {
        size_t step = fuzz_next_cut(&cuts);
        size_t n = step < len - at ? step : len - at;
        uint8_t *copy = malloc(n + shift);
        bool now;

        FUZZ_CHECK(copy != NULL);
        memcpy(copy + shift, text + at, n);
        now = feed(&u, copy + shift, n);
        free(copy);
        FUZZ_CHECK(valid || !now); /* once bad, always bad */
        valid = now;
        at += n;
        /* Seen as soon as the bytes show it. */
        FUZZ_CHECK(valid == (at <= good));
    }
    return !valid ? -1 : wire_utf8_complete(&u) ? 0 : 1;
}

static void check(feed_fn *feed, const uint8_t *text, size_t len, uint8_t cuts, size_t shift,
                  int expected)
{
    FUZZ_CHECK(in_pieces(feed, text, len, fuzz_cuts_of(cuts), shift) == expected);
    FUZZ_CHECK(in_pieces(feed, text, len, fuzz_cuts_of(0), shift) == expected);
}

static void check_prefix(const uint8_t *text, size_t len, size_t most, int expected)
{
    size_t n = wire_utf8_prefix(text, len, most);

    FUZZ_CHECK(n <= len && n <= most);
    FUZZ_CHECK(n + 3 >= (len < most ? len : most));
    if (expected == 0)
        FUZZ_CHECK(reference_text(text, n) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size < 1024 ? size : 1024};
    uint8_t cuts = fuzz_byte(&in);
    uint8_t shift = fuzz_byte(&in);
    int expected = reference_text(in.at, in.left);
    uint8_t *copy = fuzz_copy(in.at, in.left);

    FUZZ_CHECK(wire_utf8_valid(copy, in.left) == (expected == 0));
    check(wire_utf8_feed, copy, in.left, cuts, shift & 31, expected);
    check(wire_utf8_feed_portable, copy, in.left, cuts, shift & 31, expected);
#ifdef WIRE_UTF8_X86
    if (wire_cpu_has_ssse3())
        check(wire_utf8_feed_ssse3, copy, in.left, cuts, shift & 31, expected);
    if (wire_cpu_has_avx2())
        check(wire_utf8_feed_avx2, copy, in.left, cuts, shift & 31, expected);
#endif
#ifdef WIRE_UTF8_NEON
    check(wire_utf8_feed_neon, copy, in.left, cuts, shift & 31, expected);
#endif
    check_prefix(copy, in.left, shift, expected);
    free(copy);
    return 0;
}
