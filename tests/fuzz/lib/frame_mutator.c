#include "lib/frame_mutator.h"

#include <zlib.h>

#define FRAMES 256
#define PAYLOADS (1 << 18)

/* libFuzzer's own mutations of plain bytes; not there under AFL++. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most) __attribute__((weak));

struct frame {
    uint8_t first;
    bool flip_mask;  /* masked against the rules */
    uint8_t form;    /* of the length: 0 shortest, 1 and 2 longer than needed */
    uint32_t excess; /* announced, and not there */
    uint8_t key[4];
    size_t at, len; /* of the payload, unmasked */
};

struct list {
    const struct frame_format *format;
    struct frame frames[FRAMES];
    size_t count;
    uint8_t payloads[PAYLOADS];
    size_t used;
    uint32_t random;
};

static uint32_t below(struct list *l, uint32_t n)
{
    return fuzz_random(&l->random, n);
}

/* Room for n payload bytes; NULL when there is none. */
static uint8_t *payload(struct list *l, size_t n, size_t *at)
{
    if (n > PAYLOADS - l->used)
        return NULL;
    *at = l->used;
    l->used += n;
    return l->payloads + *at;
}

/* ---- Reading: whatever is there is taken for frames ---- */

static void parse(struct list *l, const uint8_t *p, size_t left)
{
    while (left >= 2 && l->count < FRAMES) {
        struct frame *f = &l->frames[l->count];
        bool masked = (p[1] & 0x80) != 0;
        size_t more = (p[1] & 0x7f) == 127 ? 8 : (p[1] & 0x7f) == 126 ? 2 : 0;
        size_t head = 2 + more + (masked ? 4 : 0);
        uint64_t len = more > 0 ? 0 : p[1] & 0x7f;
        uint8_t *to;

        if (left < head)
            return;
        *f = (struct frame){.first = p[0], .flip_mask = masked != l->format->masked};
        for (size_t i = 0; i < more; i++)
            len = len << 8 | p[2 + i];
        if (masked)
            memcpy(f->key, p + 2 + more, 4);
        f->len = len < left - head ? (size_t)len : left - head;
        f->excess = len - f->len < 1000000 ? (uint32_t)(len - f->len) : 1000000;
        to = payload(l, f->len, &f->at);
        if (!to)
            return;
        for (size_t i = 0; i < f->len; i++)
            to[i] = p[head + i] ^ f->key[i & 3];
        p += head + f->len;
        left -= head + f->len;
        l->count++;
    }
}

/* ---- Writing ---- */

static size_t put_head(const struct list *l, const struct frame *f, uint8_t head[14])
{
    bool masked = l->format->masked != f->flip_mask;
    uint64_t len = f->len + f->excess;
    size_t more = len > 65535 || f->form == 2 ? 8 : len > 125 || f->form == 1 ? 2 : 0;

    head[0] = f->first;
    head[1] = (uint8_t)((masked ? 0x80 : 0) | (more == 8 ? 127 : more == 2 ? 126 : (uint8_t)len));
    for (size_t i = 0; i < more; i++)
        head[2 + i] = (uint8_t)(len >> 8 * (more - 1 - i));
    if (masked)
        memcpy(head + 2 + more, f->key, 4);
    return 2 + more + (masked ? 4 : 0);
}

/* Whole frames, as many as there is room for. */
static size_t write_all(const struct list *l, uint8_t *out, size_t most)
{
    size_t len = 0;

    for (size_t i = 0; i < l->count; i++) {
        const struct frame *f = &l->frames[i];
        uint8_t head[14];
        size_t n = put_head(l, f, head);
        bool masked = l->format->masked != f->flip_mask;

        if (n + f->len > most - len)
            break;
        memcpy(out + len, head, n);
        for (size_t k = 0; k < f->len; k++)
            out[len + n + k] = l->payloads[f->at + k] ^ (masked ? f->key[k & 3] : 0);
        len += n + f->len;
    }
    return len;
}

/* ---- One change ---- */

static size_t change_bytes(struct list *l, uint8_t *data, size_t size, size_t most)
{
    size_t at;

    if (LLVMFuzzerMutate)
        return LLVMFuzzerMutate(data, size, most);
    if (size == 0 || (size < most && below(l, 4) == 0)) {
        if (size < most)
            data[size++] = (uint8_t)below(l, 256);
        return size;
    }
    at = below(l, (uint32_t)size);
    if (below(l, 2))
        data[at] ^= (uint8_t)(1u << below(l, 8));
    else
        data[at] = (uint8_t)below(l, 256);
    return size;
}

static void insert(struct list *l, size_t at, struct frame f)
{
    if (l->count == FRAMES)
        return;
    memmove(l->frames + at + 1, l->frames + at, (l->count - at) * sizeof f);
    l->frames[at] = f;
    l->count++;
}

static void change_payload(struct list *l, struct frame *f)
{
    size_t room = f->len * 2 + 16, at;
    uint8_t *to = payload(l, room, &at);

    if (!to)
        return;
    memcpy(to, l->payloads + f->at, f->len);
    f->len = change_bytes(l, to, f->len, room);
    f->at = at;
}

static struct frame new_frame(struct list *l)
{
    static const uint8_t firsts[] = {0x81, 0x82, 0x01, 0x02, 0x00, 0x80,
                                     0x89, 0x8a, 0x88, 0xc1, 0xc2, 0x41};
    static const uint16_t lengths[] = {0, 1, 2, 3, 4, 8, 16, 125, 126, 127, 300, 4095, 4096, 16383};
    struct frame f = {.first = firsts[below(l, FUZZ_COUNT(firsts))]};
    size_t len = lengths[below(l, FUZZ_COUNT(lengths))];
    uint8_t *to;

    if ((f.first & 8) && len > 125)
        len = below(l, 126);
    to = payload(l, len, &f.at);
    if (to) {
        f.len = len;
        memset(to, 'a' + (int)below(l, 26), len);
        if ((f.first & 15) == 8 && len >= 2) {
            to[0] = (uint8_t)(3 + below(l, 2));
            to[1] = (uint8_t)(0xe8 + below(l, 20));
        }
    }
    return f;
}

/* One frame becomes two of the same message. */
static void split(struct list *l, size_t i)
{
    struct frame *f = &l->frames[i], rest = *f;

    if (f->first & 8)
        return;
    rest.at += f->len - f->len / 2;
    rest.len = f->len / 2;
    rest.first = f->first & 0x80;
    f->len -= rest.len;
    f->first &= 0x7f;
    f->excess = 0;
    insert(l, i + 1, rest);
}

/* Lengths about which something changes. */
static void resize(struct list *l, struct frame *f)
{
    static const uint32_t lengths[] = {0,    1,    125,   126,   127,   4095, 4096,
                                       4097, 8191, 16384, 20001, 65535, 65536};
    size_t len = lengths[below(l, FUZZ_COUNT(lengths))], at;
    uint8_t *to = payload(l, len, &at);

    if (!to)
        return;
    memset(to, 'x', len);
    memcpy(to, l->payloads + f->at, f->len < len ? f->len : len);
    f->at = at;
    f->len = len;
}

/* The payload becomes what zlib compresses it to, with one way to end it or another. */
static void compress_payload(struct list *l, struct frame *f)
{
    static const int flushes[] = {Z_SYNC_FLUSH, Z_FULL_FLUSH, Z_FINISH, Z_BLOCK, Z_PARTIAL_FLUSH};
    static const int strategies[] = {Z_DEFAULT_STRATEGY, Z_FIXED, Z_HUFFMAN_ONLY, Z_RLE};
    size_t room = f->len + f->len / 8 + 64, at;
    uint8_t *to = payload(l, room, &at);
    z_stream z;

    memset(&z, 0, sizeof z);
    if (!to || deflateInit2(&z, (int)below(l, 10), Z_DEFLATED, -9 - (int)below(l, 7), 1,
                            strategies[below(l, FUZZ_COUNT(strategies))]) != Z_OK)
        return;
    z.next_in = l->payloads + f->at;
    z.avail_in = (uInt)f->len;
    z.next_out = to;
    z.avail_out = (uInt)room;
    deflate(&z, flushes[below(l, FUZZ_COUNT(flushes))]);
    f->at = at;
    f->len = room - z.avail_out;
    if (f->len >= 4 && below(l, 4) && memcmp(to + f->len - 4, "\0\0\xff\xff", 4) == 0)
        f->len -= 4;
    f->first |= 0x40;
    deflateEnd(&z);
}

static void change_head(struct list *l, struct frame *f)
{
    switch (below(l, 6)) {
    case 0:
        f->first ^= (uint8_t)(0x10u << below(l, 4));
        break;
    case 1:
        f->first = (uint8_t)((f->first & 0xf0) | below(l, 16));
        break;
    case 2:
        f->flip_mask = !f->flip_mask && below(l, 2);
        break;
    case 3:
        f->form = (uint8_t)below(l, 3);
        break;
    case 4:
        f->excess = below(l, 2) ? 0 : 1u << below(l, 17);
        break;
    default:
        for (int i = 0; i < 4; i++)
            f->key[i] = below(l, 2) ? 0 : (uint8_t)below(l, 256);
    }
}

static void change(struct list *l)
{
    size_t i = l->count > 0 ? below(l, (uint32_t)l->count) : 0;
    struct frame *f = &l->frames[i], swapped;

    switch (l->count > 0 ? below(l, l->format->deflate ? 12 : 10) : 0) {
    case 0:
        insert(l, i, new_frame(l));
        break;
    case 1:
        insert(l, i, *f);
        break;
    case 2:
        memmove(f, f + 1, (l->count - i - 1) * sizeof *f);
        l->count--;
        break;
    case 3:
        swapped = *f;
        *f = l->frames[l->count - 1];
        l->frames[l->count - 1] = swapped;
        break;
    case 4:
        split(l, i);
        break;
    case 5:
        resize(l, f);
        break;
    case 6:
        change_head(l, f);
        break;
    case 10:
    case 11:
        compress_payload(l, f);
        break;
    default:
        change_payload(l, f);
    }
}

/* ---- All of it ---- */

static struct list *begin(const struct frame_format *format, unsigned seed)
{
    static struct list list;

    list.format = format;
    list.count = list.used = 0;
    list.random = seed * 2654435761u | 1;
    return &list;
}

size_t frame_mutate(const struct frame_format *format, uint8_t *data, size_t size, size_t most,
                    unsigned seed)
{
    struct list *l = begin(format, seed);
    size_t skip = format->settings;

    if (size < skip && most >= skip) {
        memset(data + size, 0, skip - size);
        size = skip;
    }
    if (size < skip || below(l, 12) == 0)
        return change_bytes(l, data, size, most);
    if (below(l, 8) == 0) {
        uint8_t *at = data + below(l, (uint32_t)skip);

        *at = below(l, 2) ? (uint8_t)below(l, 256) : *at ^ (uint8_t)(1u << below(l, 8));
        return size;
    }
    parse(l, data + skip, size - skip);
    for (uint32_t n = 1 + below(l, 4); n > 0; n--)
        change(l);
    return skip + write_all(l, data + skip, most - skip);
}

size_t frame_cross(const struct frame_format *format, const uint8_t *a, size_t a_size,
                   const uint8_t *b, size_t b_size, uint8_t *out, size_t most, unsigned seed)
{
    struct list *l = begin(format, seed);
    size_t skip = format->settings, kept, from;

    if (a_size < skip || b_size < skip || most < skip)
        return 0;
    memcpy(out, a, skip);
    parse(l, a + skip, a_size - skip);
    kept = below(l, (uint32_t)l->count + 1);
    l->count = kept;
    parse(l, b + skip, b_size - skip);
    from = below(l, (uint32_t)(l->count - kept) + 1);
    memmove(l->frames + kept, l->frames + kept + from,
            (l->count - kept - from) * sizeof *l->frames);
    l->count -= from;
    return skip + write_all(l, out + skip, most - skip);
}
