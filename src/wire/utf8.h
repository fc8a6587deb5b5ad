/*
 * UTF-8 validation (RFC 3629, as RFC 6455 section 8.1 demands), incremental and fail-fast.
 *
 * Refused: overlong forms, surrogates (U+D800 to U+DFFF), code points above U+10FFFF, stray
 * continuation bytes and unfinished sequences.
 */
#ifndef WIRE_UTF8_H
#define WIRE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* State of one text that arrives in pieces. Zero is the start. */
struct wire_utf8 {
    uint8_t state;
};
#define WIRE_UTF8_INIT                                                                             \
    {                                                                                              \
        0                                                                                          \
    }

/*
 * Takes the next len bytes of the text. Returns false when the text so far cannot be continued to
 * valid UTF-8 any more, also in the middle of a sequence; every later call returns false too.
 */
bool wire_utf8_feed(struct wire_utf8 *u, const uint8_t *buf, size_t len);

/* True when the text so far is valid and may end here: no sequence is open. */
bool wire_utf8_complete(const struct wire_utf8 *u);

/* True when the len bytes are valid UTF-8 from first to last. buf may be NULL when len is 0. */
bool wire_utf8_valid(const uint8_t *buf, size_t len);

/*
 * Length of the longest prefix of buf, at most max bytes, that does not end inside a character.
 * Meant for cutting valid text to size; bytes that are not UTF-8 are only ever cut by up to three.
 */
size_t wire_utf8_prefix(const uint8_t *buf, size_t len, size_t max);

/* The single implementations, for tests and measurements. All give the same answers. */
bool wire_utf8_feed_portable(struct wire_utf8 *u, const uint8_t *buf, size_t len);
#if defined(__x86_64__)
#define WIRE_UTF8_X86 1
/* Only where wire_cpu_has_ssse3() and wire_cpu_has_avx2() say so. */
bool wire_utf8_feed_ssse3(struct wire_utf8 *u, const uint8_t *buf, size_t len);
bool wire_utf8_feed_avx2(struct wire_utf8 *u, const uint8_t *buf, size_t len);
#elif defined(__aarch64__) && defined(__ARM_NEON)
#define WIRE_UTF8_NEON 1
bool wire_utf8_feed_neon(struct wire_utf8 *u, const uint8_t *buf, size_t len);
#endif

#endif
