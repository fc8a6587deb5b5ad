/*
 * What compression costs: bytes of memory and milliseconds of CPU per megabyte, for each window and
 * memory level, and for each way to keep what earlier messages have taught.
 *
 *     deflate_table [-l LEVEL] [-n CONNECTIONS] [-s BYTES]
 *
 * Connections take turns, message by message, so that the states of many do not stay in the cache.
 * Messages are JSON texts of BYTES each, all different. Each figure is CPU time of this thread, the
 * least of several runs.
 *
 * Ways: fresh: no context takeover, a shared stream for each message. window: takeover, a shared
 * stream that is given the connection's window before a message. stream: takeover, a stream for
 * each connection. It is the library's own code that is run (src/conn/zstream.h).
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "conn/zstream.h"
#include "conn/zstream_z.h"

#define MESSAGES 512
#define RUNS 3
#define TAIL 4

enum way { FRESH, WINDOW, STREAM, WAYS };

static const char *const way_names[WAYS] = {"fresh", "window", "stream"};

static struct {
    int level;
    size_t connections, size;
} options = {1, 64, 1000};
static size_t turns; /* of each connection: enough to fill the largest window */

/* ---- Memory that counts itself ---- */

static size_t allocated;

static void *count_alloc(size_t size, void *arg)
{
    size_t *block = malloc(size + 64);

    (void)arg;
    if (!block) {
        fprintf(stderr, "deflate_table: no memory\n");
        exit(1);
    }
    *block = size;
    allocated += size;
    return block + 8;
}

static void count_release(void *at, void *arg)
{
    size_t *block = at;

    (void)arg;
    if (!block)
        return;
    allocated -= block[-8];
    free(block - 8);
}

static void *count_resize(void *at, size_t size, void *arg)
{
    void *block = count_alloc(size, arg);
    size_t old = ((size_t *)at)[-8];

    memcpy(block, at, old < size ? old : size);
    count_release(at, arg);
    return block;
}

static const tws_allocator counting = {count_alloc, count_resize, count_release, NULL};

/* ---- Messages ---- */

static uint8_t *originals;    /* MESSAGES of options.size */
static uint8_t *compressed;   /* one for each turn, in a row */
static size_t *compressed_at; /* where each begins, and where the last one ends */

static unsigned next_random(void)
{
    static uint64_t state = UINT64_C(0x9e3779b97f4a7c15);

    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state >> 33);
}

/* One object of a feed of prices; as many as fit make a message. */
static size_t fill_object(char *out, size_t room)
{
    static const char *const symbols[] = {"EURUSD", "USDJPY", "GBPCHF",
                                          "AUDNZD", "XAUUSD", "BTCEUR"};
    int n =
        snprintf(out, room,
                 "{\"type\":\"quote\",\"id\":%u,\"symbol\":\"%s\",\"bid\":%u.%05u,\"ask\":%u.%05u,"
                 "\"time\":\"2024-05-%02uT%02u:%02u:%02u.%03uZ\",\"venue\":%u},",
                 next_random() % 10000000, symbols[next_random() % 6], next_random() % 200,
                 next_random() % 100000, next_random() % 200, next_random() % 100000,
                 1 + next_random() % 28, next_random() % 24, next_random() % 60, next_random() % 60,
                 next_random() % 1000, next_random() % 12);

    return n > 0 && (size_t)n < room ? (size_t)n : 0;
}

static void make_messages(void)
{
    for (size_t m = 0; m < MESSAGES; m++) {
        char *out = (char *)originals + m * options.size;
        size_t at = 0, n;

        memset(out, ' ', options.size);
        while ((n = fill_object(out + at, options.size - at)) > 0)
            at += n;
    }
}

/* What connection c sends in its turn t. */
static const uint8_t *original(size_t c, size_t t)
{
    return originals + (c * 37 + t) % MESSAGES * options.size;
}

/* ---- One way at work ---- */

struct work {
    enum way way;
    int bits;
    struct zstream_pool pool;
    struct zstream **streams;    /* STREAM: each connection's */
    struct zstream_past **pasts; /* WINDOW */
    size_t turns;                /* messages of each connection in a run */
    size_t in, out;              /* bytes */
};

static void work_begin(struct work *w, int level, int memory_level)
{
    zstream_pool_init(&w->pool, &counting, level, memory_level);
    w->streams = calloc(options.connections, sizeof(struct zstream *));
    w->pasts = calloc(options.connections, sizeof(struct zstream_past *));
    if (!w->streams || !w->pasts)
        exit(1);
    for (size_t c = 0; c < options.connections && w->way == STREAM; c++)
        w->streams[c] = zstream_new(&counting, level, memory_level, w->bits);
}

static void work_end(struct work *w)
{
    for (size_t c = 0; c < options.connections; c++) {
        zstream_free(w->streams[c]);
        base_free(&counting, w->pasts[c]);
    }
    free(w->streams);
    free(w->pasts);
    zstream_pool_destroy(&w->pool);
}

static struct zstream *take(struct work *w, size_t c)
{
    struct zstream *s;

    if (w->way == STREAM)
        return w->streams[c];
    s = zstream_get(&w->pool, w->bits);
    if (w->way == WINDOW)
        zstream_load(s, w->pasts[c]);
    return s;
}

static void give(struct work *w, size_t c, struct zstream *s)
{
    if (w->way == WINDOW)
        zstream_save(s, &w->pasts[c]);
    if (w->way != STREAM)
        zstream_put(&w->pool, s);
}

/* Forgets what a run has taught, so that the next one begins as the first did. */
static void forget(struct work *w)
{
    for (size_t c = 0; c < options.connections; c++) {
        if (w->streams[c])
            zstream_reset(w->streams[c]);
        if (w->pasts[c])
            w->pasts[c]->len = 0;
    }
}

static void deflate_run(struct work *w)
{
    size_t at = 0, i = 0;

    for (size_t t = 0; t < w->turns; t++) {
        for (size_t c = 0; c < options.connections; c++) {
            struct zstream *s = take(w, c);
            size_t room = options.size + 64;

            s->z.next_in = (Bytef *)(uintptr_t)original(c, t);
            s->z.avail_in = (uInt)options.size;
            s->z.next_out = compressed + at;
            s->z.avail_out = (uInt)room;
            if (deflate(&s->z, Z_SYNC_FLUSH) != Z_OK || s->z.avail_in > 0) {
                fprintf(stderr, "deflate_table: deflate failed\n");
                exit(1);
            }
            compressed_at[i++] = at;
            at += room - s->z.avail_out;
            give(w, c, s);
        }
    }
    compressed_at[i] = at;
    w->in = i * options.size;
    w->out = at - i * TAIL; /* which is not sent */
}

static void inflate_run(struct work *w)
{
    static uint8_t out[1 << 16];
    size_t i = 0;

    for (size_t t = 0; t < w->turns; t++) {
        for (size_t c = 0; c < options.connections; c++, i++) {
            struct zstream *s = take(w, c);

            s->z.next_in = compressed + compressed_at[i];
            s->z.avail_in = (uInt)(compressed_at[i + 1] - compressed_at[i]);
            s->z.next_out = out;
            s->z.avail_out = sizeof out;
            if (inflate(&s->z, Z_SYNC_FLUSH) != Z_OK ||
                sizeof out - s->z.avail_out != options.size ||
                memcmp(out, original(c, t), options.size) != 0) {
                fprintf(stderr, "deflate_table: inflate failed\n");
                exit(1);
            }
            give(w, c, s);
        }
    }
}

/* ---- Measuring ---- */

static double cpu_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Microseconds per megabyte of original. */
static double measure(struct work *w, void (*run)(struct work *))
{
    double best = 1e18;

    for (int i = 0; i < RUNS; i++) {
        double begin, each;

        forget(w);
        begin = cpu_us();
        run(w);
        each = (cpu_us() - begin) / ((double)(w->turns * options.connections * options.size) / 1e6);
        if (each < best)
            best = each;
    }
    return best;
}

struct result {
    double us, ratio;
    size_t kept; /* bytes of a connection between two messages */
};

/* Runs one cell. Inflates what the last deflate_run() has made, so with the same way and window. */
static struct result cell(enum way way, int bits, int level, int memory_level)
{
    struct work w = {.way = way, .bits = bits, .turns = turns};
    struct result r;
    size_t before = allocated;

    work_begin(&w, level, memory_level);
    r.us = measure(&w, level > 0 ? deflate_run : inflate_run);
    r.ratio = level > 0 ? (double)w.in / (double)w.out : 0;
    /* Without the shared stream, which is the only one in its pool. */
    zstream_pool_trim(&w.pool, INT64_MAX);
    r.kept = (allocated - before) / options.connections;
    work_end(&w);
    return r;
}

/* What one stream takes while it works. */
static size_t stream_bytes(int level, int memory_level, int bits)
{
    static uint8_t out[1 << 16];
    size_t before = allocated, bytes;
    struct zstream *s = zstream_new(&counting, level, memory_level, bits);

    if (level == 0) { /* the window comes with the first message */
        s->z.next_in = compressed;
        s->z.avail_in = (uInt)compressed_at[1];
        s->z.next_out = out;
        s->z.avail_out = sizeof out;
        inflate(&s->z, Z_SYNC_FLUSH);
    }
    bytes = allocated - before;
    zstream_free(s);
    return bytes;
}

/* ---- Tables ---- */

static const char *const titles[] = {
    "CPU to deflate, milliseconds per megabyte", "Size, original to compressed",
    "A connection's own memory between two messages, KiB", "A compressor's memory at work, KiB"};
#define TITLES (sizeof titles / sizeof *titles)

static void deflate_tables(enum way way)
{
    char *text[TITLES];
    size_t len[TITLES];
    FILE *table[TITLES];

    for (size_t i = 0; i < TITLES; i++) {
        table[i] = open_memstream(&text[i], &len[i]);
        fprintf(table[i], "\n%s: %s, level %d\n\n| window | ", way_names[way], titles[i],
                options.level);
        for (int memory_level = 1; memory_level <= 9; memory_level++)
            fprintf(table[i], "memory %d | ", memory_level);
        fprintf(table[i], "\n|---|---|---|---|---|---|---|---|---|---|\n");
    }
    for (int bits = ZSTREAM_BITS_MIN; bits <= ZSTREAM_BITS_MAX; bits++) {
        for (size_t i = 0; i < TITLES; i++)
            fprintf(table[i], "| %d |", bits);
        for (int memory_level = 1; memory_level <= 9; memory_level++) {
            struct result r = cell(way, bits, options.level, memory_level);
            size_t state = stream_bytes(options.level, memory_level, bits);

            fprintf(table[0], " %.1f |", r.us / 1e3);
            fprintf(table[1], " %.2f |", r.ratio);
            fprintf(table[2], " %.1f |", (double)r.kept / 1024);
            fprintf(table[3], " %.1f |", (double)state / 1024);
        }
        for (size_t i = 0; i < TITLES; i++)
            fprintf(table[i], "\n");
    }
    for (size_t i = 0; i < TITLES; i++) {
        fclose(table[i]);
        if (i != 3 || way == FRESH) /* the same for all ways */
            printf("%s", text[i]);
        free(text[i]);
    }
    fflush(stdout);
}

static void inflate_table(void)
{
    printf("\nInflating: milliseconds per megabyte of original, and KiB\n\n"
           "| window | fresh | window | stream | window: kept | stream: kept | at work |\n"
           "|---|---|---|---|---|---|---|\n");
    for (int bits = ZSTREAM_BITS_MIN; bits <= ZSTREAM_BITS_MAX; bits++) {
        struct result r[WAYS];

        for (enum way way = FRESH; way < WAYS; way++) {
            cell(way, bits, options.level, 8);
            r[way] = cell(way, bits, 0, 0);
        }
        printf("| %d | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f |\n", bits, r[FRESH].us / 1e3,
               r[WINDOW].us / 1e3, r[STREAM].us / 1e3, (double)r[WINDOW].kept / 1024,
               (double)r[STREAM].kept / 1024, (double)stream_bytes(0, 0, bits) / 1024);
    }
}

static void read_options(int argc, char **argv)
{
    int c;

    while ((c = getopt(argc, argv, "l:n:s:")) != -1) {
        unsigned long n = c == '?' ? 0 : strtoul(optarg, NULL, 10);

        if (n == 0 || (c == 'l' && n > 9) || (c == 's' && n > 60000)) {
            fprintf(stderr, "usage: deflate_table [-l LEVEL] [-n CONNECTIONS] [-s BYTES]\n");
            exit(2);
        }
        if (c == 'l')
            options.level = (int)n;
        else if (c == 'n')
            options.connections = n;
        else
            options.size = n;
    }
    turns = 65536 / options.size + 1;
}

int main(int argc, char **argv)
{
    size_t messages;

    read_options(argc, argv);
    messages = turns * options.connections;
    originals = malloc(MESSAGES * options.size);
    compressed = malloc(messages * (options.size + 64));
    compressed_at = malloc((messages + 1) * sizeof(size_t));
    if (!originals || !compressed || !compressed_at)
        return 1;
    make_messages();
    printf("zlib %s; level %d, %zu connections, messages of %zu bytes\n", zlibVersion(),
           options.level, options.connections, options.size);
    for (enum way way = FRESH; way < WAYS; way++)
        deflate_tables(way);
    inflate_table();
    free(originals);
    free(compressed);
    free(compressed_at);
    return 0;
}
