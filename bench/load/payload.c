#include "payload.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Slots of all bodies together stay about within a core's cache. */
enum { SLOT_BUDGET = 96 * 1024 };

static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    *state = x;
    return x * UINT64_C(0x2545f4914f6cdd1d);
}

/*
 * Text with about the redundancy of chat or JSON: words of a small vocabulary (a deflated 1,000 byte body
 * is about half as long), so that compression has something to do and is not a farce.
 */
static void fill_text(uint8_t *out, size_t n, bool wide, uint64_t *seed)
{
    static const char *const ascii[] = {
        "the",    "message", "user",  "\"id\":",  "room",   "value",   "time", "status",
        "update", "\"on\"",  "price", "quantity", "server", "channel", "join", "leave",
        "{",      "}",       "[1,2]", "null",     "true",   "hello",   "from", "world"};
    static const char *const utf8[] = {
        "привет", "мир",  "grüße", "señor", "日本語", "こんにちは", "世界",   "😀",
        "🚀🌍",     "Ω≈ç√", "naïve", "ελλά",  "עברית",  "العربية",    "한국어", "ok"};
    size_t at = 0;
    while (at < n) {
        uint64_t r = next_random(seed);
        char number[8];
        const char *word;
        if ((r & 3) == 0) {
            snprintf(number, sizeof number, "%u", (unsigned)(r >> 40) % 100000);
            word = number;
        } else if (wide) {
            word = utf8[(r >> 8) % (sizeof utf8 / sizeof *utf8)];
        } else {
            word = ascii[(r >> 8) % (sizeof ascii / sizeof *ascii)];
        }
        size_t len = strlen(word);
        if (len >= n - at) { /* a character is never cut */
            memset(out + at, '.', n - at);
            return;
        }
        memcpy(out + at, word, len);
        at += len;
        out[at++] = ' ';
    }
}

static void fill_binary(uint8_t *out, size_t n, uint64_t *seed)
{
    for (size_t at = 0; at < n; at += 8) {
        uint64_t r = next_random(seed);
        memcpy(out + at, &r, n - at < 8 ? n - at : 8);
    }
}

static unsigned slots_for(size_t size)
{
    unsigned n = 1;
    while (n < SLOTS_MAX && (size_t)n * 2 * (size + FRAME_HEADER_MAX) <= SLOT_BUDGET)
        n *= 2;
    return n;
}

int bodies_generate(struct bodies *b, size_t size, enum body_kind kind, const char **why)
{
    uint64_t seed = UINT64_C(0x9e3779b97f4a7c15);
    *b = (struct bodies){.size = size, .text = kind != BODY_BINARY, .stride = size};
    b->slots = slots_for(size);
    b->stamp = size >= STAMP_FULL ? STAMP_FULL : size >= STAMP_SHORT ? STAMP_SHORT : 0;
    b->plain = malloc(b->slots * size + 1);
    if (b->plain == NULL) {
        *why = "out of memory";
        return -1;
    }
    for (unsigned i = 0; i < b->slots; i++) {
        uint8_t *body = b->plain + i * size;
        memset(body, '0', b->stamp);
        if (kind == BODY_BINARY)
            fill_binary(body + b->stamp, size - b->stamp, &seed);
        else
            fill_text(body + b->stamp, size - b->stamp, kind == BODY_UTF8, &seed);
    }
    return 0;
}

int bodies_from_file(struct bodies *b, const char *path, bool text, const char **why)
{
    *b = (struct bodies){.text = text, .slots = 1};
    FILE *f = fopen(path, "rb");
    int rc = -1;
    if (f == NULL)
        goto fail_errno;
    if (fseek(f, 0, SEEK_END) != 0)
        goto fail_errno;
    long size = ftell(f);
    if (size < 0 || fseek(f, 0, SEEK_SET) != 0)
        goto fail_errno;
    if (size > 1L << 30) {
        *why = "it is larger than 1 GiB";
        goto out;
    }
    b->size = (size_t)size;
    b->plain = malloc(b->size + 1);
    if (b->plain == NULL)
        goto fail_errno;
    if (fread(b->plain, 1, b->size, f) != b->size)
        goto fail_errno;
    if (text && !utf8_valid(b->plain, b->size)) {
        *why = "it is not UTF-8 text: send it with --binary";
        goto out;
    }
    b->slots = slots_for(b->size);
    rc = 0;
    goto out;
fail_errno:
    *why = strerror(errno != 0 ? errno : EIO);
out:
    if (f != NULL)
        fclose(f);
    return rc;
}

void bodies_clear(struct bodies *b)
{
    free(b->plain);
    *b = (struct bodies){.size = 0};
}

static void put_hex(uint8_t *out, uint32_t v)
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 7; i >= 0; i--, v >>= 4)
        out[i] = (uint8_t)digits[v & 15];
}

static bool get_hex(const uint8_t *in, uint32_t *v)
{
    uint32_t out = 0;
    for (int i = 0; i < 8; i++) {
        uint8_t c = in[i];
        unsigned digit;
        if (c >= '0' && c <= '9')
            digit = c - '0';
        else if (c >= 'a' && c <= 'f')
            digit = c - 'a' + 10U;
        else
            return false;
        out = out << 4 | digit;
    }
    *v = out;
    return true;
}

void stamp_write(uint8_t *out, unsigned len, const struct stamp *s)
{
    if (len == STAMP_SHORT) {
        put_hex(out, s->seq);
    } else if (len == STAMP_FULL) {
        put_hex(out, (uint32_t)(s->time >> 32));
        put_hex(out + 8, (uint32_t)s->time);
        put_hex(out + 16, s->conn);
        put_hex(out + 24, s->seq);
    }
}

bool stamp_read(const uint8_t *in, unsigned len, struct stamp *s)
{
    uint32_t high, low;
    *s = (struct stamp){.time = 0};
    if (len == STAMP_SHORT)
        return get_hex(in, &s->seq);
    if (len != STAMP_FULL || !get_hex(in, &high) || !get_hex(in + 8, &low))
        return false;
    s->time = (uint64_t)high << 32 | low;
    return get_hex(in + 16, &s->conn) && get_hex(in + 24, &s->seq);
}

bool utf8_valid(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint8_t c = p[i++];
        if (c < 0x80)
            continue;
        unsigned more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;
        if (c < 0xc2 || c > 0xf4 || n - i < more)
            return false;
        uint8_t low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
        uint8_t high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
        if (p[i] < low || p[i] > high)
            return false;
        for (unsigned k = 1; k < more; k++)
            if ((p[i + k] & 0xc0) != 0x80)
                return false;
        i += more;
    }
    return true;
}
