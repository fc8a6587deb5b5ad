#include "wire/frame.h"

#include <string.h>

#define BYTE0_FIN 0x80u
#define BYTE1_MASK 0x80u
#define LEN_16 126u
#define LEN_64 127u

/* Everything that the first byte alone can prove wrong. */
static enum wire_fault check_byte0(uint8_t byte0, const struct wire_frame_rules *rules,
                                   bool in_message)
{
    uint8_t opcode = byte0 & 0x0f;
    uint8_t rsv = (byte0 >> 4) & 7;

    switch (opcode) {
    case WIRE_CONT:
        if (rsv)
            return WIRE_FAULT_RSV;
        return in_message ? WIRE_OK : WIRE_FAULT_CONT_WITHOUT_START;
    case WIRE_TEXT:
    case WIRE_BINARY:
        if (rsv & ~rules->rsv_allowed)
            return WIRE_FAULT_RSV;
        return in_message ? WIRE_FAULT_DATA_INSIDE_MESSAGE : WIRE_OK;
    case WIRE_CLOSE:
    case WIRE_PING:
    case WIRE_PONG:
        if (rsv)
            return WIRE_FAULT_RSV;
        return byte0 & BYTE0_FIN ? WIRE_OK : WIRE_FAULT_CONTROL_FIN;
    default:
        return WIRE_FAULT_OPCODE;
    }
}

static enum wire_fault check_byte1(uint8_t byte1, uint8_t opcode, bool expect_masked)
{
    if (((byte1 & BYTE1_MASK) != 0) != expect_masked)
        return WIRE_FAULT_MASK;
    if (wire_opcode_is_control(opcode) && (byte1 & 0x7f) > WIRE_CONTROL_MAX)
        return WIRE_FAULT_CONTROL_LEN;
    return WIRE_OK;
}

static uint64_t get_be(const uint8_t *p, size_t n)
{
    uint64_t v = 0;

    for (size_t i = 0; i < n; i++)
        v = v << 8 | p[i];
    return v;
}

static void put_be(uint8_t *p, uint64_t v, size_t n)
{
    for (size_t i = n; i > 0; i--) {
        p[i - 1] = (uint8_t)v;
        v >>= 8;
    }
}

/*
 * Reads a length of n = 2 or 8 bytes of which avail are there. The leading bytes decide before
 * the rest has come: the top bit is in the first, and a 64-bit length whose upper six bytes are
 * zero would have fitted 16 bits.
 */
static enum wire_fault read_length(const uint8_t *p, size_t n, size_t avail, uint64_t *len)
{
    if (n == 8) {
        if (avail >= 1 && (p[0] & 0x80))
            return WIRE_FAULT_LENGTH_TOP_BIT;
        if (avail >= 6 && get_be(p, 6) == 0)
            return WIRE_FAULT_LENGTH_FORM;
    }
    if (avail < n)
        return WIRE_OK;
    *len = get_be(p, n);
    return *len < LEN_16 ? WIRE_FAULT_LENGTH_FORM : WIRE_OK;
}

int wire_frame_parse(struct wire_frame *f, const uint8_t *buf, size_t len,
                     const struct wire_frame_rules *rules, bool in_message)
{
    enum wire_fault fault;
    size_t ext, hlen;

    if (len < 1)
        return 0;
    fault = check_byte0(buf[0], rules, in_message);
    if (fault)
        return -(int)fault;
    if (len < 2)
        return 0;
    f->opcode = buf[0] & 0x0f;
    fault = check_byte1(buf[1], f->opcode, rules->expect_masked);
    if (fault)
        return -(int)fault;

    f->len = buf[1] & 0x7f;
    ext = f->len < LEN_16 ? 0 : f->len == LEN_16 ? 2 : 8;
    if (ext) {
        fault = read_length(buf + 2, ext, len - 2, &f->len);
        if (fault)
            return -(int)fault;
    }
    f->masked = rules->expect_masked;
    hlen = 2 + ext + (f->masked ? 4 : 0);
    if (len < hlen)
        return 0;

    f->rsv = (buf[0] >> 4) & 7;
    f->fin = (buf[0] & BYTE0_FIN) != 0;
    if (f->masked)
        memcpy(f->key, buf + 2 + ext, 4);
    else
        memset(f->key, 0, 4);
    f->hlen = (uint8_t)hlen;
    return (int)hlen;
}

size_t wire_frame_header_len(uint64_t len, bool masked)
{
    size_t ext = len < LEN_16 ? 0 : len <= UINT16_MAX ? 2 : 8;

    return 2 + ext + (masked ? 4 : 0);
}

size_t wire_frame_write(uint8_t out[WIRE_FRAME_HEADER_MAX], const struct wire_frame *f)
{
    uint8_t mask_bit = f->masked ? BYTE1_MASK : 0;
    size_t n = 2;

    out[0] = (uint8_t)((f->fin ? BYTE0_FIN : 0) | (f->rsv & 7u) << 4 | (f->opcode & 0x0fu));
    if (f->len < LEN_16) {
        out[1] = (uint8_t)(mask_bit | f->len);
    } else if (f->len <= UINT16_MAX) {
        out[1] = (uint8_t)(mask_bit | LEN_16);
        put_be(out + n, f->len, 2);
        n += 2;
    } else {
        out[1] = (uint8_t)(mask_bit | LEN_64);
        put_be(out + n, f->len, 8);
        n += 8;
    }
    if (f->masked) {
        memcpy(out + n, f->key, 4);
        n += 4;
    }
    return n;
}

const char *wire_fault_text(enum wire_fault fault)
{
    switch (fault) {
    case WIRE_OK:
        return "no fault";
    case WIRE_FAULT_RSV:
        return "reserved bit set without an extension";
    case WIRE_FAULT_OPCODE:
        return "reserved opcode";
    case WIRE_FAULT_CONTROL_FIN:
        return "control frame is fragmented";
    case WIRE_FAULT_CONTROL_LEN:
        return "control frame longer than 125 bytes";
    case WIRE_FAULT_LENGTH_FORM:
        return "payload length not in its shortest form";
    case WIRE_FAULT_LENGTH_TOP_BIT:
        return "payload length of 2^63 or more";
    case WIRE_FAULT_MASK:
        return "wrong masking for this direction";
    case WIRE_FAULT_CONT_WITHOUT_START:
        return "continuation frame without a message";
    case WIRE_FAULT_DATA_INSIDE_MESSAGE:
        return "new message inside a fragmented one";
    case WIRE_FAULT_COUNT:
        break;
    }
    return "unknown fault";
}
