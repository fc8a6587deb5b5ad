/* kit.c: see kit.h. */
#include "kit.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

/* ---- Counted memory ---- */

static void *counted_alloc(size_t size, void *arg)
{
    struct heap *h = arg;
    void *p = malloc(size);
    if (p != NULL) {
        atomic_fetch_add_explicit(&h->blocks, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&h->bytes, (int64_t)malloc_usable_size(p), memory_order_relaxed);
    }
    return p;
}

static void counted_release(void *block, void *arg)
{
    struct heap *h = arg;
    if (block != NULL) {
        atomic_fetch_sub_explicit(&h->blocks, 1, memory_order_relaxed);
        atomic_fetch_sub_explicit(&h->bytes, (int64_t)malloc_usable_size(block),
                                  memory_order_relaxed);
        free(block);
    }
}

static void *counted_resize(void *block, size_t size, void *arg)
{
    struct heap *h = arg;
    if (block == NULL) {
        return counted_alloc(size, arg);
    }
    int64_t before = (int64_t)malloc_usable_size(block);
    void *p = realloc(block, size);
    if (p != NULL) {
        atomic_fetch_add_explicit(&h->bytes, (int64_t)malloc_usable_size(p) - before,
                                  memory_order_relaxed);
    }
    return p;
}

tws_allocator heap_allocator(struct heap *h)
{
    return (tws_allocator){counted_alloc, counted_resize, counted_release, h};
}

/* AddressSanitizer's malloc has no mallinfo2(). */
extern size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

size_t malloc_settle(void)
{
    struct mallinfo2 all;
    if (__sanitizer_get_current_allocated_bytes) {
        return __sanitizer_get_current_allocated_bytes();
    }
    malloc_trim(0);
    all = mallinfo2();
    return all.uordblks + all.hblkhd;
}

/* ---- Chance ---- */

/* Weyl steps, mixed twice: enough to scatter sizes and places. */
uint64_t dice_roll(struct dice *d)
{
    uint64_t x = d->state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    x = (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ (x >> 32);
}

uint64_t dice_below(struct dice *d, uint64_t below)
{
    return dice_roll(d) % below;
}

size_t dice_size(struct dice *d, size_t most)
{
    unsigned bits = 0;
    while (bits < 62 && (most >> bits) > 1) {
        bits++;
    }
    size_t size = (size_t)1 << dice_below(d, bits + 1);
    size += (size_t)dice_below(d, size);
    return size < most ? size : most;
}

/* ---- Numbered messages ---- */

size_t numbered_size(uint64_t number)
{
    struct dice d = {number};
    return sizeof number + (size_t)dice_below(&d, NUMBERED_MAX - sizeof number + 1);
}

static uint8_t numbered_byte(uint64_t number, size_t at)
{
    return (uint8_t)(number * 31 + (at >> 3) * 7);
}

void numbered_fill(uint8_t *buf, uint64_t number)
{
    size_t len = numbered_size(number);
    memcpy(buf, &number, sizeof number);
    for (size_t i = sizeof number; i < len; i++) {
        buf[i] = numbered_byte(number, i);
    }
}

uint64_t numbered_check(const void *data, size_t len)
{
    const uint8_t *p = data;
    uint64_t number;
    if (len < sizeof number) {
        return UINT64_MAX;
    }
    memcpy(&number, p, sizeof number);
    if (numbered_size(number) != len) {
        return UINT64_MAX;
    }
    for (size_t i = sizeof number; i < len; i++) {
        if (p[i] != numbered_byte(number, i)) {
            return UINT64_MAX;
        }
    }
    return number;
}

/* ---- Pools ---- */

/* Characters of one to four bytes, right to left, combining, beyond the first plane. */
static const char *const characters[] = {"a",      " ", "\n",   "ß",         "ю",  "ש",
                                         "ع",      "़",  "€",    "語",        "한", "\u0301",
                                         "\uffff", "𝄞", "🧵", "\U0010ffff"};

bool pool_make(struct pool *p, size_t size)
{
    struct dice d = {size};
    const size_t kinds = sizeof characters / sizeof *characters;
    p->size = size;
    p->text = malloc(size);
    p->bytes = malloc(size);
    if (p->text == NULL || p->bytes == NULL) {
        pool_drop(p);
        return false;
    }
    for (size_t at = 0; at < size;) {
        const char *c = characters[dice_below(&d, kinds)];
        size_t len = strlen(c);
        if (len > size - at) { /* the last few bytes */
            c = "~";
            len = 1;
        }
        memcpy(p->text + at, c, len);
        at += len;
    }
    /* Half of it runs of one byte, so that compressing has something to do, half noise. */
    for (size_t at = 0; at < size; at++) {
        uint64_t r = dice_roll(&d);
        p->bytes[at] = (uint8_t)(((at >> 9) & 1) != 0 ? at >> 9 : r);
    }
    return true;
}

void pool_drop(struct pool *p)
{
    free(p->text);
    free(p->bytes);
    *p = (struct pool){NULL, NULL, 0};
}

static bool inside_character(const struct pool *p, size_t at)
{
    return at < p->size && (p->text[at] & 0xc0) == 0x80;
}

const uint8_t *pool_cut(const struct pool *p, struct dice *d, tws_opcode opcode, size_t *len)
{
    size_t from = (size_t)dice_below(d, p->size - *len + 1);
    if (opcode == TWS_BINARY) {
        return p->bytes + from;
    }
    size_t to = from + *len;
    while (inside_character(p, from)) {
        from--;
    }
    while (inside_character(p, to)) {
        to++;
    }
    *len = to - from;
    return p->text + from;
}
