/* The counters of many connections in one: none is forgotten, and of those that have ended nothing waits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "server/server.h"

#define FIELDS (sizeof(tws_stats) / sizeof(uint64_t))

/* Every field is 64 bits wide: 1, 2, 3 and so on. */
static tws_stats numbered(void)
{
    uint64_t fields[FIELDS];
    tws_stats s;

    _Static_assert(sizeof s == sizeof fields, "a field of another width");
    for (size_t i = 0; i < FIELDS; i++)
        fields[i] = i + 1;
    memcpy(&s, fields, sizeof s);
    return s;
}

/* Times of one connection have no sum. */
static bool is_time(size_t field)
{
    return field >= offsetof(tws_stats, open_ms) / sizeof(uint64_t) &&
           field <= offsetof(tws_stats, rtt_us) / sizeof(uint64_t);
}

static bool is_gauge(size_t field)
{
    return field == offsetof(tws_stats, queue_bytes) / sizeof(uint64_t) ||
           field == offsetof(tws_stats, queue_messages) / sizeof(uint64_t);
}

static void test_every_counter(void **state)
{
    tws_stats one = numbered(), sum = {0};
    uint64_t fields[FIELDS];

    (void)state;
    server_add_stats(&sum, &one);
    server_add_stats(&sum, &one);
    memcpy(fields, &sum, sizeof sum);
    for (size_t i = 0; i < FIELDS; i++)
        if (fields[i] != (is_time(i) ? 0 : 2 * (i + 1)))
            fail_msg("field %zu is %llu", i, (unsigned long long)fields[i]);
}

static void test_nothing_waits_when_it_has_ended(void **state)
{
    tws_stats sum = {0};
    uint64_t fields[FIELDS];

    (void)state;
    server_add_ended(&sum, numbered());
    memcpy(fields, &sum, sizeof sum);
    for (size_t i = 0; i < FIELDS; i++)
        if (fields[i] != (is_time(i) || is_gauge(i) ? 0 : i + 1))
            fail_msg("field %zu is %llu", i, (unsigned long long)fields[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_counter),
        cmocka_unit_test(test_nothing_waits_when_it_has_ended),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
