/* What goes over the wire, both ways. */
#include "hostile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const uint16_t met_statuses[STATUSES] = {101, 200, 400, 403, 405, 408, 414, 426, 429, 431, 503, 0};
const uint16_t met_closes[CLOSES] = {1000, 1001, 1002, 1003, 1007, 1008,
                                     1009, 1010, 1011, 1013, 1005, 0};

size_t wire_request(char *out, size_t size, bool compresses)
{
    return (size_t)snprintf(out, size,
                            "GET /hostile HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
                            "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n%s\r\n",
                            compresses ? "Sec-WebSocket-Extensions: permessage-deflate\r\n" : "");
}

size_t wire_frame_head(uint8_t *out, unsigned first, uint64_t len)
{
    size_t at = 2;
    int bytes = len > 65535 ? 8 : len > 125 ? 2 : 0;

    out[0] = (uint8_t)first;
    out[1] = (uint8_t)(0x80 | (bytes == 8 ? 127 : bytes == 2 ? 126 : len));
    for (int i = bytes - 1; i >= 0; i--)
        out[at++] = (uint8_t)(len >> (8 * i));
    memset(out + at, 0, 4); /* the mask: payloads stand as they are */
    return at + 4;
}

static size_t follow_head(struct follower *f, const uint8_t *data, size_t len)
{
    static const char blank[] = "\r\n\r\n";
    size_t i = 0;

    while (i < len && !f->in_frames) {
        char c = (char)data[i++];

        if (f->head_len < sizeof f->head - 1)
            f->head[f->head_len] = c;
        f->head_len++;
        f->matched = c == blank[f->matched] ? (uint8_t)(f->matched + 1) : c == '\r';
        if (f->matched == 4) {
            f->in_frames = true;
            if (strncmp(f->head, "HTTP/1.1 ", 9) == 0)
                f->status = (unsigned)strtoul(f->head + 9, NULL, 10);
        }
    }
    return i;
}

/* One byte of a frame's header, or of the two behind it. */
static void follow_frame(struct follower *f, uint8_t byte)
{
    unsigned need = 2;
    uint64_t len;

    f->frame[f->frame_len++] = byte;
    if (f->frame_len < 2)
        return;
    len = f->frame[1] & 127;
    if (len == 126)
        need = 4;
    else if (len == 127)
        need = 10;
    if (f->frame_len < need)
        return;
    if (need > 2) {
        len = 0;
        for (unsigned i = 2; i < need; i++)
            len = len << 8 | f->frame[i];
    }
    if ((f->frame[0] & 15) == 8) {
        if (len >= 2 && f->frame_len < need + 2)
            return;
        f->close_code = len >= 2 ? (unsigned)f->frame[need] << 8 | f->frame[need + 1] : 1005;
        len -= len >= 2 ? 2 : 0;
    }
    f->skip = len;
    f->frame_len = 0;
}

void follow(struct follower *f, const uint8_t *data, size_t len)
{
    size_t i = f->in_frames ? 0 : follow_head(f, data, len);

    if (f->status != 101)
        return;
    while (i < len) {
        if (f->skip > 0) {
            size_t n = f->skip < len - i ? (size_t)f->skip : len - i;

            f->skip -= n;
            i += n;
        } else {
            follow_frame(f, data[i++]);
        }
    }
}
