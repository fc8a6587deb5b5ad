#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "deflate.h"
#include "payload.h"

static int put_slot(struct frames *f, const struct bodies *b, unsigned slot, const uint8_t *payload,
                    size_t len, bool deflated, bool zero_mask)
{
    uint8_t key[4] = {0};
    if (!zero_mask && getrandom(key, sizeof key, 0) != (ssize_t)sizeof key)
        return -1;
    uint8_t *out = f->bytes + f->start[slot];
    size_t head = frame_put_header(out, b->text ? OP_TEXT : OP_BINARY, deflated, len, key);
    frame_mask(out + head, payload, len, key);
    unsigned stamp_offset = deflated ? DEFLATE_STAMP_OFFSET : 0;
    f->stamp_at[slot] = f->start[slot] + head + stamp_offset;
    for (unsigned i = 0; i < sizeof f->stamp_key[slot]; i++)
        f->stamp_key[slot][i] = key[(stamp_offset + i) & 3];
    f->start[slot + 1] = f->start[slot] + head + len;
    return 0;
}

int frames_build(struct frames *f, const struct bodies *b, int window_bits, int level,
                 bool zero_mask)
{
    size_t room = b->size;
    uint8_t *scratch = NULL;
    int rc = -1;
    *f = (struct frames){.bytes = NULL};
    if (window_bits != 0) {
        room = deflate_room(b->size);
        scratch = malloc(room);
        if (scratch == NULL)
            goto out;
    }
    f->bytes = malloc(b->slots * (room + FRAME_HEADER_MAX));
    if (f->bytes == NULL)
        goto out;
    for (unsigned i = 0; i < b->slots; i++) {
        const uint8_t *payload = bodies_slot(b, i);
        size_t len = b->size;
        if (window_bits != 0) {
            len = deflate_message(scratch, room, payload, b->size, b->stamp, window_bits, level);
            if (len == 0)
                goto out;
            payload = scratch;
        }
        if (put_slot(f, b, i, payload, len, window_bits != 0, zero_mask) != 0)
            goto out;
    }
    rc = 0;
out:
    free(scratch);
    if (rc != 0)
        frames_clear(f);
    return rc;
}

void frames_clear(struct frames *f)
{
    free(f->bytes);
    f->bytes = NULL;
}

void frames_stamp(struct frames *f, const struct bodies *b, unsigned slot, const struct stamp *s)
{
    if (b->stamp == 0)
        return;
    uint8_t plain[STAMP_FULL];
    stamp_write(plain, b->stamp, s);
    uint8_t *out = f->bytes + f->stamp_at[slot];
    uint64_t key, word;
    memcpy(&key, f->stamp_key[slot], sizeof key);
    for (unsigned i = 0; i < b->stamp; i += sizeof word) {
        memcpy(&word, plain + i, sizeof word);
        word ^= key;
        memcpy(out + i, &word, sizeof word);
    }
}
