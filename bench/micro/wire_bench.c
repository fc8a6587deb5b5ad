/*
 * Nanoseconds per call and gigabytes per second of masking and UTF-8 validation.
 *
 *     wire_bench [NAME]    only the rows whose name contains NAME
 *
 * Each figure is the best of several runs: on a machine that is also doing other things, the
 * shortest run is the one that was disturbed least.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "wire/cpu.h"
#include "wire/frame.h"
#include "wire/mask.h"
#include "wire/utf8.h"

#define RUNS 200
#define RUN_NS 100000.0
#define BIG 65536

static const size_t sizes[] = {16, 125, 1000, BIG};

struct job {
    void (*fn)(const struct job *job, size_t times);
    void (*mask)(uint8_t *dst, const uint8_t *src, size_t len, const uint8_t key[4],
                 uint64_t offset);
    bool (*feed)(struct wire_utf8 *u, const uint8_t *buf, size_t len);
    uint8_t *dst;
    const uint8_t *src;
    size_t len;
};

/* The compiler must believe that somebody reads p. */
static inline void keep(const void *p)
{
    __asm__ volatile("" : : "g"(p) : "memory");
}

static void run_mask(const struct job *job, size_t times)
{
    static const uint8_t key[4] = {0x37, 0xfa, 0x21, 0x3d};

    for (size_t i = 0; i < times; i++) {
        job->mask(job->dst, job->src, job->len, key, i);
        keep(job->dst);
    }
}

static void run_utf8(const struct job *job, size_t times)
{
    for (size_t i = 0; i < times; i++) {
        struct wire_utf8 u = WIRE_UTF8_INIT;

        if (!job->feed(&u, job->src, job->len) || !wire_utf8_complete(&u)) {
            fprintf(stderr, "wire_bench: valid text refused\n");
            exit(1);
        }
        keep(&u);
    }
}

static void run_parse(const struct job *job, size_t times)
{
    static const struct wire_frame_rules rules = {true, 0};
    struct wire_frame f;

    for (size_t i = 0; i < times; i++) {
        if (wire_frame_parse(&f, job->src, job->len, &rules, false) <= 0) {
            fprintf(stderr, "wire_bench: valid header refused\n");
            exit(1);
        }
        keep(&f);
    }
}

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double measure(const struct job *job)
{
    size_t times = 1;
    double best = 1e18, spent = 0;

    while (spent < RUN_NS) {
        double start = now_ns();

        times *= 2;
        job->fn(job, times);
        spent = now_ns() - start;
    }
    for (int i = 0; i < RUNS; i++) {
        double start = now_ns(), each;

        job->fn(job, times);
        each = (now_ns() - start) / (double)times;
        if (each < best)
            best = each;
    }
    return best;
}

static void report(const char *name, struct job job, const char *only)
{
    if (only && !strstr(name, only))
        return;
    printf("%-28s", name);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        double ns;

        job.len = sizes[i];
        ns = measure(&job);
        printf(" %9.1f ns %6.2f GB/s", ns, (double)job.len / ns);
    }
    printf("\n");
}

static void report_mask(const uint8_t *src, uint8_t *dst, const char *only)
{
    struct job job = {.fn = run_mask, .src = src, .dst = dst};
    struct job in_place = {.fn = run_mask, .src = dst, .dst = dst};

    job.mask = in_place.mask = wire_mask_copy;
    report("mask in place", in_place, only);
    report("mask copy", job, only);
    job.mask = wire_mask_copy_portable;
    report("mask copy portable", job, only);
#if defined(WIRE_MASK_X86)
    job.mask = wire_mask_copy_sse2;
    report("mask copy sse2", job, only);
    if (wire_cpu_has_avx2()) {
        job.mask = wire_mask_copy_avx2;
        report("mask copy avx2", job, only);
    }
#endif
}

static void report_utf8(const char *kind, const uint8_t *text, const char *only)
{
    struct job job = {.fn = run_utf8, .src = text};
    char name[64];

    job.feed = wire_utf8_feed;
    snprintf(name, sizeof(name), "utf8 %s", kind);
    report(name, job, only);
    job.feed = wire_utf8_feed_portable;
    snprintf(name, sizeof(name), "utf8 %s portable", kind);
    report(name, job, only);
#if defined(WIRE_UTF8_X86)
    if (wire_cpu_has_ssse3()) {
        job.feed = wire_utf8_feed_ssse3;
        snprintf(name, sizeof(name), "utf8 %s ssse3", kind);
        report(name, job, only);
    }
    if (wire_cpu_has_avx2()) {
        job.feed = wire_utf8_feed_avx2;
        snprintf(name, sizeof(name), "utf8 %s avx2", kind);
        report(name, job, only);
    }
#elif defined(WIRE_UTF8_NEON)
    job.feed = wire_utf8_feed_neon;
    snprintf(name, sizeof(name), "utf8 %s neon", kind);
    report(name, job, only);
#endif
}

static void report_parse(const char *only)
{
    static const uint8_t header[8] = {0x81, 0xfe, 0x03, 0xe8, 1, 2, 3, 4};
    struct job job = {.fn = run_parse, .src = header, .len = sizeof(header)};

    if (!only || strstr("frame parse", only))
        printf("%-28s %9.1f ns\n", "frame parse", measure(&job));
}

/*
 * Text whose characters never straddle one of the sizes: what a unit of bytes does not fill is
 * filled with ASCII.
 */
static void fill(uint8_t *out, const char *unit)
{
    size_t unit_len = strlen(unit), at = 0;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        size_t units = (sizes[i] - at) / unit_len;

        for (size_t k = 0; k < units * unit_len; k++)
            out[at++] = (uint8_t)unit[k % unit_len];
        while (at < sizes[i])
            out[at++] = '.';
    }
}

int main(int argc, char **argv)
{
    const char *only = argc > 1 ? argv[1] : NULL;
    /* Used from one byte past an aligned start: payloads lie behind headers. */
    static _Alignas(64) uint8_t src[BIG + 1], dst[BIG + 1];

    memset(dst, 1, BIG + 1);
    printf("%-28s", "");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        printf(" %16zu bytes ", sizes[i]);
    printf("\n");
    report_parse(only);
    fill(src + 1, "a");
    report_mask(src + 1, dst + 1, only);
    report_utf8("ascii", src + 1, only);
    fill(src + 1, "price 9 \xe2\x82\xac, caf\xc3\xa9; ");
    report_utf8("mixed", src + 1, only);
    fill(src + 1, "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e");
    report_utf8("three-byte", src + 1, only);
    return 0;
}
