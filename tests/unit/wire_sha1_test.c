/*
 * SHA-1: vectors of FIPS 180 and RFC 3174, and OpenSSL as a second opinion.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <openssl/sha.h>

#include "guard.h"
#include "rng.h"
#include "wire/sha1.h"

static void assert_digest(const void *data, size_t len, const char *hex)
{
    uint8_t digest[WIRE_SHA1_LEN];
    char got[2 * WIRE_SHA1_LEN + 1];

    wire_sha1(data, len, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(got + 2 * i, 3, "%02x", digest[i]);
    assert_string_equal(got, hex);
}

static void test_vectors(void **state)
{
    const char *two_blocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    const char *long_one = "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
                           "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu";
    char *million = malloc(1000000);

    (void)state;
    assert_non_null(million);
    memset(million, 'a', 1000000);
    assert_digest(NULL, 0, "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    assert_digest("abc", 3, "a9993e364706816aba3e25717850c26c9cd0d89d");
    assert_digest(two_blocks, strlen(two_blocks), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
    assert_digest(long_one, strlen(long_one), "a49b2446a02c645bf419f995b67091253a04a259");
    assert_digest(million, 1000000, "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    free(million);
}

static void test_every_length_against_openssl(void **state)
{
    struct rng rng = {99};
    struct guard g;

    (void)state;
    guard_open(&g, 400);
    for (size_t len = 0; len <= 400; len++) {
        uint8_t data[400];
        uint8_t expected[SHA_DIGEST_LENGTH];
        uint8_t got[WIRE_SHA1_LEN];

        rng_fill(&rng, data, len);
        SHA1(data, len, expected);
        wire_sha1(guard_tail(&g, data, len), len, got);
        assert_memory_equal(got, expected, sizeof expected);
    }
    guard_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_every_length_against_openssl),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
