/* The parts of the exporter that take text apart, and those that a test machine cannot show alive: control groups of
 * both kinds. */
#include "file.h"
#include "http_request.h"
#include "kernel_memory.h"
#include "target.h"
#include "text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check_cgroup(const char *content, int expected_result, uint64_t expected)
{
    FILE *f = tmpfile();
    assert_non_null(f);
    fputs(content, f);
    fflush(f);
    uint64_t bytes = 1;
    assert_int_equal(cgroup_memory_read(fileno(f), &bytes), expected_result);
    if (expected_result == 0) {
        assert_int_equal(bytes, expected);
        assert_int_equal(cgroup_memory_read(fileno(f), &bytes), 0); /* again, from the start */
        assert_int_equal(bytes, expected);
    }
    fclose(f);
}

static void control_group_files(void **state)
{
    (void)state;
    check_cgroup("anon 1\nfile 2\nkernel 8192\nkernel_stack 4096\nslab 7\n", 0, 8192);
    check_cgroup("anon 1\nkernel_stack 100\npagetables 20\npercpu 3\nslab 4000\nsock 9\n", 0, 4123);
    check_cgroup("65536\n", 0, 65536);
    check_cgroup("", -EPROTO, 0);
}

static void fields_of_a_file(void **state)
{
    (void)state;
    static const char text[] = "Slab:  12 kB\nSlabs: 3\nPss:\t7 kB\nempty:\nlast 5";
    uint64_t n = 0;
    assert_int_equal(file_field(text, "Slab:", &n), 0);
    assert_int_equal(n, 12 * 1024);
    assert_int_equal(file_field(text, "Slabs:", &n), 0);
    assert_int_equal(n, 3);
    assert_int_equal(file_field(text, "Pss:", &n), 0);
    assert_int_equal(n, 7 * 1024);
    assert_int_equal(file_field(text, "last ", &n), 0);
    assert_int_equal(n, 5);
    assert_int_equal(file_field(text, "ss:", &n), -ENOENT);
    assert_int_equal(file_field("x y\n", "x", &n), -ENOENT);
    assert_int_equal(file_field("", "x", &n), -ENOENT);
}

static void heads_of_requests(void **state)
{
    (void)state;
    static const struct {
        const char *head;
        int status;
        bool keep_alive;
    } cases[] = {
        {"GET /metrics HTTP/1.1\r\n\r\n", 200, true},
        {"GET /metrics HTTP/1.0\r\n\r\n", 200, false},
        {"GET /metrics HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", 200, true},
        {"GET /metrics HTTP/1.1\r\nCONNECTION: close\r\n\r\n", 200, false},
        {"GET /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 200, true},
        {"GET /metrics HTTP/1.1\r\nContent-Length:7\r\n\r\n", 413, false},
        {"GET /metrics HTTP/1.1\r\n folded\r\n\r\n", 400, false},
        {"GET /metrics HTTP/1.1\r\nName : x\r\n\r\n", 400, false},
        {"GET /metrics HTTP/1.1\r\n: x\r\n\r\n", 400, false},
        {"GET  HTTP/1.1\r\n\r\n", 400, false},
        {"GET /metrics HTTP/1.11\r\n\r\n", 400, false},
        {"GET /metrics HTTP/1.2\r\n\r\n", 505, false},
        {"GETS /metrics HTTP/1.1\r\n\r\n", 405, false},
        {"\r\n\r\n", 400, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct http_request r;
        size_t len = strlen(cases[i].head);
        assert_int_equal(http_head_length(cases[i].head, len), len);
        assert_int_equal(http_head_length(cases[i].head, len - 1), 0);
        /* A buffer of just this size: a read past its end is seen by the sanitizer. */
        char *exact = malloc(len);
        assert_non_null(exact);
        memcpy(exact, cases[i].head, len);
        assert_int_equal(http_parse(exact, len, &r), cases[i].status);
        assert_int_equal(r.keep_alive, cases[i].keep_alive);
        free(exact);
    }
}

static void text_grows_and_escapes(void **state)
{
    (void)state;
    struct text t = {.data = NULL};
    text_label(&t, "a", "x\"y\\z\nend");
    assert_string_equal(t.data, "a=\"x\\\"y\\\\z\\nend\"");
    text_clear(&t);
    for (int i = 0; i < 10000; i++) {
        text_addf(&t, "%04d", i);
    }
    assert_int_equal(t.len, 40000);
    assert_memory_equal(t.data + 39996, "9999", 5);
    assert_false(text_failed(&t));
    text_free(&t);
}

static void many_targets(void **state)
{
    (void)state;
    struct targets *t = calloc(1, sizeof *t);
    assert_non_null(t);
    const char *why = NULL;
    char spec[64];
    for (int i = 0; i < TARGET_MAX; i++) {
        snprintf(spec, sizeof spec, "server=s%d,comm=nobody", i);
        assert_int_equal(targets_add(t, spec, &why), 0);
    }
    assert_int_equal(targets_add(t, "server=more,comm=nobody", &why), -EINVAL);
    assert_string_equal(why, "too many servers");
    assert_int_equal(targets_add(t, "server=s0,comm=nobody", &why), -EINVAL);
    targets_free(t);
    free(t);
}

/* A whole file of servers gives way to a whole file of others. */
static void file_of_targets_changes(void **state)
{
    (void)state;
    char path[] = "/tmp/exporter-unit-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    struct targets *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->file = path;
    for (int turn = 0; turn < 3; turn++) {
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        for (int i = 0; i < TARGET_MAX; i++) {
            fprintf(f, "server=turn%d-%d,pid=%d\n", turn, i, i == 0 ? (int)getpid() : 1 << 30);
        }
        fclose(f);
        targets_refresh(t);
        assert_int_equal(t->bad_lines, 0);
        assert_int_equal(t->count, TARGET_MAX);
        assert_true(t->item[0].attached);
        assert_false(t->item[1].attached);
    }
    unlink(path);
    targets_refresh(t);
    assert_int_equal(t->count, 0);
    targets_free(t);
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(control_group_files), cmocka_unit_test(fields_of_a_file),
        cmocka_unit_test(heads_of_requests),   cmocka_unit_test(text_grows_and_escapes),
        cmocka_unit_test(many_targets),        cmocka_unit_test(file_of_targets_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
