/*
 * Prometheus text with values that would break its lines.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "metrics/prometheus.h"

static void test_escapes(void **state)
{
    char text[256] = "";
    struct prometheus p = {text, sizeof text, 0};

    (void)state;
    prometheus_family(&p, "a", "gauge", "one\ntwo \\ \"three\"");
    prometheus_count(&p, "a", "room", "\"} 1\nb \\", 7);
    assert_string_equal(text, "# HELP a one\\ntwo \\\\ \"three\"\n# TYPE a gauge\n"
                              "a{room=\"\\\"} 1\\nb \\\\\"} 7\n");
    assert_int_equal(p.len, strlen(text));
}

/* However long a value is, its line is whole, and all of it is counted. */
static void test_long(void **state)
{
    static char value[2001], text[4096];
    struct prometheus p = {text, sizeof text, 0}, small = {text, 100, 0};

    (void)state;
    memset(value, '"', sizeof value - 1);
    prometheus_count(&p, "a", "room", value, 1);
    assert_int_equal(p.len, strlen(text));
    assert_int_equal(p.len, strlen("a{room=\"\"} 1\n") + 4000);
    assert_string_equal(text + p.len - 5, "\"} 1\n");
    prometheus_count(&small, "a", "room", value, 1);
    assert_int_equal(small.len, p.len);
    assert_int_equal(strlen(text), 99);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_long),
    };

    return cmocka_run_group_tests_name("metrics_prometheus", tests, NULL, NULL);
}
