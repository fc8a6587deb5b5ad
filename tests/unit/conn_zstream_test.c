/* Streams of zlib: what they know of earlier bytes, from where they can begin again, and pools. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "conn/zstream_z.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 40000 };

static size_t pack(struct zstream *s, uint8_t *out, const void *data, size_t len, int flush)
{
    s->z.next_in = (void *)(uintptr_t)data;
    s->z.avail_in = (uInt)len;
    s->z.next_out = out;
    s->z.avail_out = ROOM;
    deflate(&s->z, flush);
    assert_int_equal(s->z.avail_in, 0);
    return ROOM - s->z.avail_out;
}

static void unpack(struct zstream *s, uint8_t *packed, size_t len, const void *want, size_t size)
{
    static uint8_t out[ROOM];

    s->z.next_in = packed;
    s->z.avail_in = (uInt)len;
    s->z.next_out = out;
    s->z.avail_out = ROOM;
    assert_int_equal(inflate(&s->z, Z_SYNC_FLUSH), Z_OK);
    assert_int_equal(s->z.avail_in, 0);
    assert_int_equal(ROOM - s->z.avail_out, size);
    assert_memory_equal(out, want, size);
}

static size_t message(char *text, int n)
{
    return (size_t)snprintf(text, 400, "{\"id\":%d,\"name\":\"number %d\",\"list\":[%d,%d,%d]}", n,
                            n * 7, n + 1, n * n, n * 3);
}

/* A window that is put away after each message does the same as a stream that stays. */
static void test_past(void **state)
{
    static uint8_t kept[ROOM], moved[ROOM];
    char text[400];

    (void)state;
    for (int bits = ZSTREAM_BITS_MIN; bits <= ZSTREAM_BITS_MAX; bits++) {
        struct zstream *stays = zstream_new(NULL, 6, 5, bits);
        struct zstream *in = zstream_new(NULL, 0, 0, bits);
        struct zstream_past *out_past = NULL, *in_past = NULL;
        size_t first = 0, last = 0, apart = 0;

        for (int n = 0; n < 300; n++) {
            struct zstream *fresh = zstream_new(NULL, 6, 5, bits);
            size_t len = message(text, n), size;

            zstream_load(fresh, out_past);
            size = pack(fresh, moved, text, len, Z_SYNC_FLUSH);
            assert_true(zstream_save(fresh, &out_past));
            zstream_free(fresh);
            apart += size;
            last = pack(stays, kept, text, len, Z_SYNC_FLUSH);
            if (n == 0)
                first = last;

            zstream_load(in, in_past);
            unpack(in, moved, size, text, len);
            assert_true(zstream_save(in, &in_past));
            zstream_reset(in);
        }
        assert_true(last * 4 < first * 3);
        assert_in_range(apart, 300, 300 * first * 3 / 4);
        assert_in_range(out_past->len, 200, (size_t)1 << bits);
        assert_true(in_past->len <= (size_t)1 << bits && out_past->cap <= (size_t)1 << bits);
        free(out_past);
        free(in_past);
        zstream_free(stays);
        zstream_free(in);
    }
}

/* A compressor that was left in the middle begins again as a new one. */
static void test_abandon(void **state)
{
    static uint8_t data[ROOM], out[ROOM], want[ROOM];
    uint32_t x = 1;

    (void)state;
    for (size_t i = 0; i < ROOM; i++) {
        x = x * 1103515245 + 12345;
        data[i] = (uint8_t)(x >> (16 + i % 2)); /* hardly compresses */
    }
    for (int level = 1; level <= 9; level++) {
        for (size_t before = 0; before <= 30000; before = before * 3 + 1) {
            struct zstream *s = zstream_new(NULL, level, 5, 12);
            struct zstream *other = zstream_new(NULL, level, 5, 12);
            struct zstream *in = zstream_new(NULL, 0, 0, 12);
            size_t n;

            pack(s, out, data, before, Z_NO_FLUSH);
            zstream_abandon(s);
            n = pack(s, out, "a new message, a new message", 28, Z_SYNC_FLUSH);
            assert_int_equal(pack(other, want, "a new message, a new message", 28, Z_SYNC_FLUSH),
                             n);
            assert_memory_equal(out, want, n);
            unpack(in, out, n, "a new message, a new message", 28);
            zstream_free(s);
            zstream_free(other);
            zstream_free(in);
        }
    }
}

static void test_pool(void **state)
{
    struct zstream_pool p;
    struct zstream *a, *b, *c;

    (void)state;
    zstream_pool_init(&p, NULL, 1, 5);
    assert_int_equal(zstream_pool_count(&p), 0);
    a = zstream_get(&p, 12);
    b = zstream_get(&p, 15);
    assert_int_equal(a->bits, 12);
    assert_int_equal(b->bits, 15);
    assert_true(zstream_size(b) > zstream_size(a));
    zstream_put(&p, a);
    c = zstream_get(&p, 12); /* the one that was given back */
    assert_ptr_equal(c, a);
    zstream_put(&p, c);
    zstream_put(&p, b);
    assert_int_equal(zstream_pool_count(&p), 2);
    zstream_pool_trim(&p, base_clock_coarse_ns() - BASE_NS_PER_S * 1000); /* used since */
    assert_int_equal(zstream_pool_count(&p), 2);
    a = zstream_get(&p, 9);
    zstream_pool_trim(&p, base_clock_coarse_ns());
    assert_int_equal(zstream_pool_count(&p), 1);
    zstream_drop(&p, a);
    assert_int_equal(zstream_pool_count(&p), 0);
    zstream_pool_destroy(&p);
}

/* No more than some are kept. */
static void test_pool_is_bounded(void **state)
{
    struct zstream *all[40];
    struct zstream_pool p;

    (void)state;
    zstream_pool_init(&p, NULL, 0, 0);
    for (int i = 0; i < 40; i++)
        assert_non_null(all[i] = zstream_get(&p, 9 + i % 7));
    assert_int_equal(zstream_pool_count(&p), 40);
    for (int i = 0; i < 40; i++)
        zstream_put(&p, all[i]);
    assert_in_range(zstream_pool_count(&p), 1, 20);
    zstream_pool_destroy(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_past),
        cmocka_unit_test(test_abandon),
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_pool_is_bounded),
    };

    return cmocka_run_group_tests_name("conn_zstream", tests, NULL, NULL);
}
