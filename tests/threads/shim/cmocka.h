/*
 * cmocka.h: as much of cmocka as the tests of light threads use, for processors that the machine has no
 * cmocka for. The first failed check ends the program.
 */
#ifndef CROSS_CMOCKA_H
#define CROSS_CMOCKA_H

#include <stdio.h>
#include <stdlib.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};

#define cross_check(ok, text)                                                                      \
    do {                                                                                           \
        if (!(ok)) {                                                                               \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, text);                              \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#define assert_true(c) cross_check(c, #c)
#define assert_false(c) cross_check(!(c), "not: " #c)
#define assert_null(p) cross_check((p) == NULL, #p " is not NULL")
#define assert_non_null(p) cross_check((p) != NULL, #p " is NULL")
#define assert_int_equal(a, b) cross_check((long long)(a) == (long long)(b), #a " is not " #b)
#define assert_int_not_equal(a, b) cross_check((long long)(a) != (long long)(b), #a " is " #b)
#define assert_in_range(v, low, high) cross_check((v) >= (low) && (v) <= (high), #v)

#define cmocka_unit_test(f)                                                                        \
    {                                                                                              \
#f, f                                                                                      \
    }
#define cmocka_run_group_tests(tests, setup, teardown)                                             \
    cross_run(tests, sizeof(tests) / sizeof((tests)[0]))
#define cmocka_run_group_tests_name(name, tests, setup, teardown)                                  \
    cmocka_run_group_tests(tests, setup, teardown)

static int cross_run(const struct CMUnitTest *tests, size_t count)
{
    void *state = NULL;

    for (size_t i = 0; i < count; i++) {
        tests[i].run(&state);
        printf("ok %s\n", tests[i].name);
        fflush(stdout);
    }
    printf("%zu tests passed\n", count);
    return EXIT_SUCCESS;
}

#endif
