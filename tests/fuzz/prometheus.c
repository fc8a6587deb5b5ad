/*
 * The text for Prometheus with hostile label values and helps: a small parser of the format reads it
 * back to the same. Input: lines: help, label values; a byte says how large the buffer is.
 */
#include "metrics/prometheus.h"
#include "fuzz.h"

#define VALUES 4

struct text {
    const char *at;
    size_t left;
};

static void expect(struct text *t, const char *what)
{
    size_t len = strlen(what);

    FUZZ_CHECK(t->left >= len && memcmp(t->at, what, len) == 0);
    t->at += len;
    t->left -= len;
}

/* One escaped text up to the character `end` is `wanted`. */
static void expect_text(struct text *t, const char *wanted, char end)
{
    for (; t->left > 0 && *t->at != end; wanted++) {
        char c = *t->at;

        FUZZ_CHECK(c != '\n');
        if (c == '\\') {
            FUZZ_CHECK(t->left > 1);
            t->at++;
            t->left--;
            FUZZ_CHECK(*t->at == '\\' || *t->at == 'n' || (*t->at == '"' && end == '"'));
            c = *t->at == 'n' ? '\n' : *t->at;
        }
        FUZZ_CHECK(c == *wanted);
        t->at++;
        t->left--;
    }
    FUZZ_CHECK(*wanted == 0 && t->left > 0);
    t->at++;
    t->left--;
}

static void write_all(struct prometheus *p, const char *help, char *values[VALUES])
{
    prometheus_family(p, "name", "counter", help);
    for (int i = 0; i < VALUES; i++)
        prometheus_count(p, "name", "label", values[i], UINT64_MAX);
    prometheus_counter(p, "last", help, 0);
}

static void check(struct text t, const char *help, char *values[VALUES])
{
    expect(&t, "# HELP name ");
    expect_text(&t, help, '\n');
    expect(&t, "# TYPE name counter\n");
    for (int i = 0; i < VALUES; i++) {
        expect(&t, "name{label=\"");
        expect_text(&t, values[i], '"');
        expect(&t, "} 18446744073709551615\n");
    }
    expect(&t, "# HELP last ");
    expect_text(&t, help, '\n');
    expect(&t, "# TYPE last counter\nlast 0\n");
    FUZZ_CHECK(t.left == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    size_t room = fuzz_byte(&in) * (size_t)8, len;
    char *help = fuzz_line(&in, &len), *values[VALUES];
    struct prometheus whole = {NULL, 0, 0}, part = {malloc(room + 1), room, 0};

    for (int i = 0; i < VALUES; i++) {
        values[i] = fuzz_line(&in, &len);
        for (char *c = values[i]; *c; c++) /* lines end at a line feed, so it is spelt otherwise */
            *c = *c == '\v' ? '\n' : *c;
    }
    write_all(&whole, help, values);
    whole = (struct prometheus){malloc(whole.len + 1), whole.len + 1, 0};
    FUZZ_CHECK(whole.buf != NULL && part.buf != NULL);
    write_all(&whole, help, values);
    FUZZ_CHECK(whole.len < whole.size && strlen(whole.buf) == whole.len);
    check((struct text){whole.buf, whole.len}, help, values);
    write_all(&part, help, values);
    FUZZ_CHECK(part.len == whole.len);
    FUZZ_CHECK(room == 0 ||
               (strlen(part.buf) < room && strncmp(part.buf, whole.buf, strlen(part.buf)) == 0));
    for (int i = 0; i < VALUES; i++)
        free(values[i]);
    free(part.buf);
    free(whole.buf);
    free(help);
    return 0;
}
