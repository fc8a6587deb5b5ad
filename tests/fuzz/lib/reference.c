#include "lib/reference.h"

/* ---- Text, RFC 3629: decode, and compare with what the code point would be encoded as ---- */

static int decode_one(const uint8_t *p, size_t len, size_t *used)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = p[0] < 0x80   ? 1
               : p[0] < 0xc2 ? 0
               : p[0] < 0xe0 ? 2
               : p[0] < 0xf0 ? 3
               : p[0] < 0xf5 ? 4
                             : 0;
    uint32_t low, high;

    if (n == 0)
        return -1;
    *used = n;
    low = high = n == 1 ? p[0] : p[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if (i < len && (p[i] & 0xc0) != 0x80)
            return -1;
        low = low << 6 | (i < len ? p[i] & 0x3fu : 0);
        high = high << 6 | (i < len ? p[i] & 0x3fu : 0x3fu);
    }
    /* Whatever the missing bytes will be, it has to be possible that they make it valid. */
    if (high < least[n] || low > 0x10ffff || (low >= 0xd800 && high <= 0xdfff))
        return -1;
    return n <= len ? 0 : 1;
}

/* From *at on, which is moved behind the last whole character. */
static int text_from(const uint8_t *text, size_t len, size_t *at)
{
    while (*at < len) {
        size_t used;
        int result = decode_one(text + *at, len - *at, &used);

        if (result != 0)
            return result;
        *at += used;
    }
    return 0;
}

int reference_text(const uint8_t *text, size_t len)
{
    size_t at = 0;

    return text_from(text, len, &at);
}

size_t reference_text_good(const uint8_t *text, size_t len)
{
    size_t at = 0;

    for (size_t end = 1; end <= len; end++)
        if (text_from(text, end, &at) < 0)
            return end - 1;
    return len;
}

bool reference_code_valid(unsigned code)
{
    return (code >= 1000 && code <= 1014 && code != 1004 && code != 1005 && code != 1006) ||
           (code >= 3000 && code <= 4999);
}

uint32_t reference_sum(uint32_t sum, const uint8_t *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        sum = sum * 31 + data[i] + 1;
    return sum * 31 + 7;
}

/* ---- Payload ---- */

static size_t room_left(const struct reference *r)
{
    return REFERENCE_ROOM - r->used - r->now.len;
}

static void check_text(struct reference *r, bool last)
{
    int result;

    if (r->now.opcode != 1 || r->any_text)
        return;
    result = text_from(r->room + r->now.at, r->now.len, &r->text_at);
    if (result < 0 || (last && result > 0))
        r->fault |= REFERENCE_TEXT;
}

static void inflate_some(struct reference *r, const uint8_t *data, size_t len)
{
    r->z.next_in = (Bytef *)(uintptr_t)data;
    r->z.avail_in = (uInt)len;
    do {
        size_t room = room_left(r);
        int result;

        r->z.next_out = r->room + r->now.at + r->now.len;
        r->z.avail_out = (uInt)room;
        result = inflate(&r->z, Z_SYNC_FLUSH);
        r->now.len += room - r->z.avail_out;
        r->boundary = result == Z_STREAM_END || (r->z.data_type & 0xff) == 128;
        if (result == Z_STREAM_END) {
            r->unsure = r->ended = true;
            inflateReset(&r->z);
        } else if (result != Z_OK && result != Z_BUF_ERROR) {
            r->fault |= REFERENCE_INFLATE;
            return;
        }
    } while (r->z.avail_in > 0 && r->z.avail_out > 0);
    if (r->max_message > 0 && r->now.len > r->max_message)
        r->fault |= REFERENCE_TOO_BIG;
}

static void add_payload(struct reference *r, const uint8_t *data, size_t len)
{
    if (r->now.compressed) {
        if (len > 0)
            inflate_some(r, data, len);
    } else {
        FUZZ_CHECK(len <= room_left(r));
        memcpy(r->room + r->now.at + r->now.len, data, len);
        r->now.len += len;
    }
    check_text(r, false);
}

static void end_message(struct reference *r)
{
    static const uint8_t tail[4] = {0, 0, 0xff, 0xff};

    if (r->now.compressed) {
        /* Byte by byte: it may end a final block, and what is left of it is not needed then. */
        r->ended = r->boundary;
        for (size_t i = 0; i < sizeof tail && !r->ended; i++)
            inflate_some(r, tail + i, 1);
        if (!r->boundary)
            r->fault |= REFERENCE_INFLATE;
        if (r->fresh)
            inflateReset(&r->z);
    }
    check_text(r, true);
    r->open = false;
    if (r->fault)
        return;
    r->now.unsure = r->unsure;
    r->messages[r->count++] = r->now;
    r->used += r->now.len;
}

/* ---- Frames ---- */

static unsigned begin_message(struct reference *r, uint8_t first)
{
    r->open = true;
    r->now = (struct reference_message){
        .opcode = first & 15, .compressed = (first & 0x40) != 0, .at = r->used};
    r->wire_len = 0;
    r->text_at = 0;
    r->small = 0;
    r->boundary = true;
    if (r->now.compressed && !r->z_open) {
        FUZZ_CHECK(inflateInit2(&r->z, -15) == Z_OK);
        r->z_open = true;
    }
    return 0;
}

/* What the first two bytes show, section 5.2. */
static bool head_allowed(const struct reference *r, uint8_t first, const uint8_t *second)
{
    uint8_t opcode = first & 15;
    uint8_t allowed = r->deflate && (opcode == 1 || opcode == 2) ? 0x40 : 0;

    if ((opcode > 2 && opcode < 8) || opcode > 10 || (first & 0x70 & ~allowed))
        return false;
    if (opcode >= 8 && !(first & 0x80))
        return false;
    if (opcode == 0 ? !r->open : opcode < 8 && r->open)
        return false;
    return !second ||
           (((*second & 0x80) != 0) == r->masked && (opcode < 8 || (*second & 0x7f) <= 125));
}

static unsigned control(struct reference *r, uint8_t opcode, const uint8_t *data, size_t len)
{
    if (opcode == 9) {
        r->pings++;
        r->ping_sum = reference_sum(r->ping_sum, data, len);
        return 0;
    }
    if (opcode == 10) {
        r->pongs++;
        r->pong_sum = reference_sum(r->pong_sum, data, len);
        return 0;
    }
    r->code = 1005;
    if (len == 0)
        return REFERENCE_CLOSED;
    if (len == 1)
        return REFERENCE_PROTOCOL;
    r->code = (uint16_t)(data[0] << 8 | data[1]);
    if (!reference_code_valid(r->code))
        return REFERENCE_PROTOCOL;
    if (reference_text(data + 2, len - 2) != 0)
        return REFERENCE_TEXT;
    memcpy(r->reason, data + 2, len - 2);
    return REFERENCE_CLOSED;
}

/* Limits, in the order in which the header shows that they are passed. */
static unsigned limits(struct reference *r, uint8_t first, uint64_t len)
{
    uint64_t max = r->max_message;

    if (r->now.compressed && max > 0)
        max = max * 2 + 4096;
    if (max > 0 && (len > max || r->wire_len > max - len))
        return REFERENCE_TOO_BIG;
    if ((first & 15) == 0 || !(first & 0x80)) {
        r->fragments++;
        r->small += len < 4096;
    }
    return r->max_fragments > 0 && r->small > r->max_fragments ? REFERENCE_FLOOD : 0;
}

struct frame {
    uint8_t first;
    size_t head;
    uint64_t len;
    uint8_t key[4];
};

/* 0; REFERENCE_CUT: not all of it is there, with REFERENCE_PROTOCOL when that may be seen already. */
static unsigned read_head(const struct reference *r, const uint8_t *p, size_t left, struct frame *f)
{
    size_t more;

    if (left == 0)
        return REFERENCE_CUT;
    f->first = p[0];
    if (!head_allowed(r, p[0], left > 1 ? p + 1 : NULL))
        return REFERENCE_PROTOCOL;
    if (left < 2)
        return REFERENCE_CUT;
    more = (p[1] & 0x7f) == 127 ? 8 : (p[1] & 0x7f) == 126 ? 2 : 0;
    f->head = 2 + more + (r->masked ? 4 : 0);
    if (left < 2 + more)
        return REFERENCE_CUT | (more == 8 ? REFERENCE_PROTOCOL : 0);
    f->len = more > 0 ? 0 : p[1] & 0x7f;
    for (size_t i = 0; i < more; i++)
        f->len = f->len << 8 | p[2 + i];
    if ((more == 2 && f->len < 126) || (more == 8 && (f->len < 65536 || f->len >> 63)))
        return REFERENCE_PROTOCOL;
    if (left < f->head)
        return REFERENCE_CUT;
    memset(f->key, 0, 4);
    if (r->masked)
        memcpy(f->key, p + 2 + more, 4);
    return 0;
}

/* One data frame of which `have` bytes are there. */
static unsigned data_frame(struct reference *r, const struct frame *f, const uint8_t *data,
                           size_t have)
{
    unsigned end;

    if (!r->open)
        begin_message(r, f->first);
    end = limits(r, f->first, f->len);
    if (end)
        return end;
    add_payload(r, data, have);
    r->wire_len += f->len;
    if (!r->fault && have == f->len && (f->first & 0x80))
        end_message(r);
    if (!r->fault)
        return have < f->len ? REFERENCE_CUT : 0;
    if (!r->now.compressed)
        return r->fault;
    /* Which fault of one piece is seen first, and whether it is before the piece ends, is open. */
    return REFERENCE_TEXT | REFERENCE_INFLATE | REFERENCE_TOO_BIG |
           (have < f->len ? REFERENCE_CUT : 0);
}

static unsigned next_frame(struct reference *r, const uint8_t *p, size_t left, size_t *size)
{
    struct frame f;
    unsigned end = read_head(r, p, left, &f);
    size_t have;
    uint8_t *data;

    if (end)
        return end;
    have = left - f.head < f.len ? left - f.head : (size_t)f.len;
    if ((f.first & 15) >= 8 && have < f.len)
        return REFERENCE_CUT;
    data = fuzz_copy(p + f.head, have);
    for (size_t i = 0; i < have; i++)
        data[i] ^= f.key[i & 3];
    end =
        (f.first & 15) >= 8 ? control(r, f.first & 15, data, have) : data_frame(r, &f, data, have);
    free(data);
    *size = f.head + have;
    r->frames++;
    return end;
}

void reference_read(struct reference *r, const uint8_t *wire, size_t len)
{
    static uint8_t room[REFERENCE_ROOM];
    size_t at = 0;

    r->room = room;
    while (!r->end && r->count < REFERENCE_MESSAGES && room_left(r) > REFERENCE_ROOM / 4) {
        size_t size = 0;

        r->end = next_frame(r, wire + at, len - at, &size);
        at += size;
    }
}

void reference_free(struct reference *r)
{
    if (r->z_open)
        inflateEnd(&r->z);
    r->z_open = false;
}
