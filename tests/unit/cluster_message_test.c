/* Subjects and messages of a cluster, as bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cluster/message.h"

#include <stdlib.h>
#include <string.h>

static void assert_subject(const char *name, const char *wanted)
{
    char subject[CLUSTER_SUBJECT_MAX];
    size_t n = cluster_subject(subject, "tws", name, name ? strlen(name) : 0, CLUSTER_HASH_DIGITS);

    assert_string_equal(subject, wanted);
    assert_int_equal(n, strlen(wanted));
}

static void test_subjects(void **state)
{
    (void)state;
    assert_subject(NULL, "tws.all");
    assert_subject("", "tws.r.=");
    assert_subject("lobby", "tws.r.lobby");
    assert_subject("Room_7-b", "tws.r.Room_7-b");
    assert_subject("=", "tws.r.=3d");
    assert_subject("a.b", "tws.r.a=2eb");
    assert_subject("*", "tws.r.=2a");
    assert_subject(">", "tws.r.=3e");
    assert_subject("a b\r\n", "tws.r.a=20b=0d=0a");
    assert_subject("~", "tws.r.=7e");
    assert_subject("caf\xc3\xa9", "tws.r.caf=c3=a9");
    /* sha1sum of 200 times "x" */
    {
        char name[201];

        memset(name, 'x', 200);
        name[200] = 0;
        assert_subject(name, "tws.r.~94218caae9904e93a3d7bf578bf4791926fc5e82");
    }
}

/* Names of all lengths around the border: each has a subject of its own that fits. */
static void test_long_names(void **state)
{
    char last[CLUSTER_SUBJECT_MAX] = "", subject[CLUSTER_SUBJECT_MAX];
    char *name = malloc(CLUSTER_NAME_MAX);
    char prefix[CLUSTER_PREFIX_MAX + 1];

    (void)state;
    assert_non_null(name);
    memset(name, '!', CLUSTER_NAME_MAX);
    memset(prefix, 'p', CLUSTER_PREFIX_MAX);
    prefix[CLUSTER_PREFIX_MAX] = 0;
    for (size_t len = 1; len <= CLUSTER_NAME_MAX; len = len < 200 ? len + 1 : 2 * len + 1) {
        size_t n = cluster_subject(subject, prefix, name, len, CLUSTER_HASH_DIGITS);

        assert_int_equal(strlen(subject), n);
        assert_true(n < CLUSTER_SUBJECT_MAX);
        assert_string_not_equal(subject, last);
        assert_int_equal(strspn(subject + CLUSTER_PREFIX_MAX + 3, "0123456789abcdef=~"),
                         n - CLUSTER_PREFIX_MAX - 3);
        strcpy(last, subject);
    }
    free(name);
}

static void test_prefixes(void **state)
{
    char longest[CLUSTER_PREFIX_MAX + 2];

    (void)state;
    memset(longest, 'p', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    assert_false(cluster_prefix_valid(longest));
    longest[CLUSTER_PREFIX_MAX] = 0;
    assert_true(cluster_prefix_valid(longest));
    assert_true(cluster_prefix_valid("a"));
    assert_true(cluster_prefix_valid("shop.chat-1_x"));
    assert_false(cluster_prefix_valid(""));
    assert_false(cluster_prefix_valid("."));
    assert_false(cluster_prefix_valid("a."));
    assert_false(cluster_prefix_valid(".a"));
    assert_false(cluster_prefix_valid("a..b"));
    assert_false(cluster_prefix_valid("a.*"));
    assert_false(cluster_prefix_valid("a >"));
    assert_false(cluster_prefix_valid("$SYS"));
}

static const struct cluster_message data_message = {.kind = CLUSTER_DATA,
                                                    .what = 1,
                                                    .origin = {1, 2, 3},
                                                    .stream = UINT64_C(0x0102030405060708),
                                                    .seq = UINT64_MAX,
                                                    .name = "room",
                                                    .name_len = 4,
                                                    .data = (const uint8_t *)"hello",
                                                    .len = 5};
static const struct cluster_message beat_message = {.kind = CLUSTER_BEAT,
                                                    .what = CLUSTER_ASK | CLUSTER_GONE,
                                                    .stream = 1,
                                                    .members = 1000,
                                                    .beat_ms = 5000,
                                                    .name = "",
                                                    .data = (const uint8_t *)""};

static size_t write_message(uint8_t *out, const struct cluster_message *m)
{
    cluster_message_write(out, m);
    return CLUSTER_HEAD + m->name_len + m->len;
}

static void assert_trip(const struct cluster_message *m)
{
    struct cluster_message back;
    uint8_t bytes[256];
    size_t len = write_message(bytes, m);

    assert_true(cluster_message_read(&back, bytes, len));
    assert_int_equal(back.kind, m->kind);
    assert_int_equal(back.what, m->what);
    assert_memory_equal(back.origin, m->origin, CLUSTER_ORIGIN);
    assert_int_equal(back.stream, m->stream);
    assert_int_equal(back.seq, m->seq);
    assert_int_equal(back.members, m->members);
    assert_int_equal(back.beat_ms, m->beat_ms);
    assert_int_equal(back.name_len, m->name_len);
    assert_memory_equal(back.name, m->name, m->name_len);
    assert_int_equal(back.len, m->len);
    assert_memory_equal(back.data, m->data, m->len);
}

static void test_trips(void **state)
{
    struct cluster_message back;
    uint8_t bytes[256];
    size_t len;

    (void)state;
    assert_trip(&data_message);
    assert_trip(&beat_message);
    len = write_message(bytes, &data_message);
    cluster_message_number(bytes, 3, 4);
    assert_true(cluster_message_read(&back, bytes, len));
    assert_int_equal(back.stream, 3);
    assert_int_equal(back.seq, 4);
}

/* Cut anywhere, in a block of exactly that size: never read beyond it. */
static void test_cut(void **state)
{
    uint8_t bytes[256];
    size_t len = write_message(bytes, &data_message);

    (void)state;
    for (size_t n = 0; n < len; n++) {
        struct cluster_message m;
        uint8_t *exact = malloc(n + 1);
        bool good;

        assert_non_null(exact);
        exact = realloc(exact, n ? n : 1);
        assert_non_null(exact);
        memcpy(exact, bytes, n);
        good = cluster_message_read(&m, exact, n);
        /* Without an end of its own, the payload is what is there. */
        assert_int_equal(good, n >= CLUSTER_HEAD + 4);
        free(exact);
    }
}

static bool reads_with(const struct cluster_message *m, size_t at, uint8_t value)
{
    struct cluster_message back;
    uint8_t bytes[256];
    size_t len = write_message(bytes, m);

    bytes[at] = value;
    return cluster_message_read(&back, bytes, len);
}

static void test_foreign(void **state)
{
    struct cluster_message m = data_message;

    (void)state;
    for (size_t i = 0; i < 4; i++)
        assert_false(reads_with(&data_message, i, 'x'));
    assert_false(reads_with(&data_message, 4, 2)); /* another version */
    assert_false(reads_with(&data_message, 5, 0)); /* no such kind */
    assert_false(reads_with(&data_message, 5, 3));
    assert_false(reads_with(&data_message, 6, 0)); /* opcodes */
    assert_false(reads_with(&data_message, 6, 8));
    assert_false(reads_with(&data_message, 7, 1));
    assert_false(reads_with(&data_message, 54, 1));
    assert_false(reads_with(&data_message, 55, 1));
    assert_false(reads_with(&data_message, 52, 0xff));            /* a name beyond the end */
    assert_false(reads_with(&data_message, CLUSTER_HEAD + 1, 0)); /* a zero in the name */
    assert_false(reads_with(&beat_message, 6, 4));                /* no such flag */
    assert_false(reads_with(&beat_message, 31, 0));               /* no stream */
    m.seq = 0;
    assert_false(reads_with(&m, 0, 'T'));
    m = beat_message;
    m.beat_ms = 0;
    assert_false(reads_with(&m, 0, 'T'));
    m = beat_message;
    m.len = 1;
    assert_false(reads_with(&m, 0, 'T'));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_subjects), cmocka_unit_test(test_long_names),
        cmocka_unit_test(test_prefixes), cmocka_unit_test(test_trips),
        cmocka_unit_test(test_cut),      cmocka_unit_test(test_foreign),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
