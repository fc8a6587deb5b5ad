#include "frame.h"

#include <string.h>

int frame_parse(const uint8_t *p, size_t n, struct frame_header *h)
{
    if (n < 2)
        return 0;
    h->fin = (p[0] & 0x80) != 0;
    h->rsv1 = (p[0] & 0x40) != 0;
    h->opcode = p[0] & 0x0f;
    h->masked = (p[1] & 0x80) != 0;
    h->length = p[1] & 0x7f;
    if ((p[0] & 0x30) != 0 || h->masked || (h->opcode > OP_BINARY && h->opcode < OP_CLOSE) ||
        h->opcode > OP_PONG)
        return -1;
    if (h->opcode >= OP_CLOSE && (!h->fin || h->rsv1 || h->length > FRAME_CONTROL_MAX))
        return -1;
    if (h->length < 126)
        return 2;
    size_t wide = h->length == 126 ? 2 : 8;
    if (n < 2 + wide)
        return 0;
    h->length = 0;
    for (size_t i = 0; i < wide; i++)
        h->length = h->length << 8 | p[2 + i];
    bool minimal = wide == 2 ? h->length > 125 : h->length > 0xffff;
    return minimal && (h->length >> 63) == 0 ? (int)(2 + wide) : -1;
}

size_t frame_put_header(uint8_t *out, enum opcode op, bool rsv1, uint64_t length,
                        const uint8_t key[4])
{
    size_t n = 0;
    out[n++] = (uint8_t)(0x80 | (rsv1 ? 0x40 : 0) | op);
    size_t wide = length < 126 ? 0 : length <= 0xffff ? 2 : 8;
    out[n++] = (uint8_t)(0x80 | (wide == 0 ? length : wide == 2 ? 126 : 127));
    for (size_t i = wide; i > 0; i--)
        out[n++] = (uint8_t)(length >> (8 * (i - 1)));
    memcpy(out + n, key, 4);
    return n + 4;
}

void frame_mask(uint8_t *out, const uint8_t *in, size_t n, const uint8_t key[4])
{
    for (size_t i = 0; i < n; i++)
        out[i] = in[i] ^ key[i & 3];
}

int frame_close_code(const uint8_t *payload, size_t n)
{
    if (n == 0)
        return FRAME_CLOSE_NO_CODE;
    if (n == 1)
        return -1;
    int code = payload[0] << 8 | payload[1];
    bool reserved = code == 1004 || code == 1005 || code == 1006 || (code > 1014 && code < 3000);
    return code < 1000 || code > 4999 || reserved ? -1 : code;
}
