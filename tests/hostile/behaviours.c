/* The behaviours: what each sends, how fast, and how it leaves. */
#include "hostile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define BLOCK 65536

static bool script_room(struct script *s, size_t room)
{
    s->data = malloc(room);
    return s->data != NULL;
}

/* Frames of one kind until a block is full. */
static bool frames(struct script *s, unsigned first, unsigned then, size_t payload)
{
    size_t at = 0;

    if (!script_room(s, BLOCK + 256))
        return false;
    if (first) {
        at = wire_frame_head(s->data, first, payload);
        memset(s->data + at, 'x', payload);
        at += payload;
    }
    s->again = at;
    while (at < BLOCK) {
        at += wire_frame_head(s->data + at, then, payload);
        memset(s->data + at, 'x', payload);
        at += payload;
    }
    s->len = at;
    return true;
}

static bool make_pings(struct script *s)
{
    return frames(s, 0, 0x89, 4);
}

static bool make_pongs(struct script *s)
{
    return frames(s, 0, 0x8a, 0);
}

static bool make_closes(struct script *s)
{
    return frames(s, 0, 0x88, 0);
}

static bool make_fragments(struct script *s)
{
    return frames(s, 0x01, 0x00, 1);
}

static bool make_empty_fragments(struct script *s)
{
    return frames(s, 0x02, 0x00, 0);
}

static bool make_messages(struct script *s)
{
    return frames(s, 0, 0x81, 200);
}

static bool once(struct script *s, const void *data, size_t len)
{
    if (!script_room(s, len))
        return false;
    memcpy(s->data, data, len);
    s->len = s->again = len;
    return true;
}

static bool make_announced(struct script *s)
{
    uint8_t wire[32];
    size_t n = wire_frame_head(wire, 0x82, 65000);

    memset(wire + n, 'x', 10);
    return once(s, wire, n + 10);
}

static bool make_endless_length(struct script *s)
{
    uint8_t wire[32];
    size_t n = wire_frame_head(wire, 0x82, UINT64_C(1) << 62);

    return once(s, wire, n);
}

/* A whole frame, of which a byte leaves now and then. */
static bool make_long_frame(struct script *s)
{
    static uint8_t wire[60000];
    size_t n = wire_frame_head(wire, 0x82, sizeof wire - 14);

    return once(s, wire, n + sizeof wire - 14);
}

static bool make_half_message(struct script *s)
{
    static const uint8_t wire[] = {0x81, 0x85, 0, 0, 0, 0, 'h', 'a'};

    return once(s, wire, sizeof wire);
}

static bool make_message(struct script *s)
{
    static const uint8_t wire[] = {0x81, 0x85, 0, 0, 0, 0, 'h', 'e', 'l', 'l', 'o'};

    return once(s, wire, sizeof wire);
}

static bool make_random(struct script *s)
{
    uint32_t x = 2463534242u;

    if (!script_room(s, BLOCK))
        return false;
    for (size_t i = 0; i < BLOCK; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        s->data[i] = (uint8_t)x;
    }
    s->len = BLOCK;
    s->again = 0;
    return true;
}

static bool make_request(struct script *s)
{
    char text[512];

    return once(s, text, wire_request(text, sizeof text, false));
}

static bool make_page(struct script *s)
{
    static const char text[] = "GET /index.html HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";

    return once(s, text, sizeof text - 1);
}

static bool make_headers(struct script *s)
{
    size_t at;

    if (!script_room(s, BLOCK + 256))
        return false;
    at = (size_t)snprintf((char *)s->data, 128, "GET / HTTP/1.1\r\n");
    s->again = at;
    while (at < BLOCK)
        at +=
            (size_t)snprintf((char *)s->data + at, 128, "X-Flood: of header lines without end\r\n");
    s->len = at;
    return true;
}

static bool make_long_line(struct script *s)
{
    if (!script_room(s, BLOCK))
        return false;
    memset(s->data, 'a', BLOCK);
    memcpy(s->data, "GET /", 5);
    s->len = BLOCK;
    s->again = 5;
    return true;
}

/* 32 MiB of zeros in one compressed frame of 32 KiB. */
static bool make_bomb(struct script *s)
{
    static uint8_t zeros[1 << 16];
    z_stream z = {0};
    uint8_t *out = malloc(BLOCK);
    size_t at = 0;

    if (!out || !script_room(s, BLOCK) || deflateInit2(&z, 9, Z_DEFLATED, -15, 9, 0) != Z_OK)
        return false;
    z.next_out = out;
    z.avail_out = BLOCK;
    for (int i = 0; i < 512; i++) {
        z.next_in = zeros;
        z.avail_in = sizeof zeros;
        deflate(&z, i < 511 ? Z_NO_FLUSH : Z_SYNC_FLUSH);
    }
    at = wire_frame_head(s->data, 0xc2, z.total_out - 4);
    memcpy(s->data + at, out, z.total_out - 4);
    s->len = s->again = at + z.total_out - 4;
    deflateEnd(&z);
    free(out);
    return true;
}

/* The first flight of a client's handshake, and rubbish behind it. */
static bool make_half_hello(struct script *s)
{
    static const uint8_t hello[] = {22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9};

    return once(s, hello, sizeof hello);
}

static bool make_tls_rubbish(struct script *s)
{
    if (!make_random(s))
        return false;
    memcpy(s->data, (const uint8_t[]){22, 3, 1, 63, 0, 1, 0, 62, 252, 3, 3}, 11);
    return true;
}

static bool act_key_updates(struct peer *p)
{
    static const uint8_t ping[] = {0x89, 0x80, 0, 0, 0, 0};

    for (int i = 0; i < 20; i++)
        if (SSL_key_update(peer_ssl(p), SSL_KEY_UPDATE_REQUESTED) != 1 ||
            !peer_send(p, ping, sizeof ping))
            return false;
    return true;
}

static bool act_renegotiate(struct peer *p)
{
    SSL_renegotiate(peer_ssl(p));
    SSL_do_handshake(peer_ssl(p));
    return true;
}

const struct behaviour behaviours[] = {
    {"silent", "connects and says nothing", AT_TCP, NULL, 0, 1000, 0, 1000, .deaf = true},
    {"slow-handshake", "a byte of the request now and then", AT_TLS, make_request, 1, 200, 0, 500,
     .leaving = LEAVE_CLOSE},
    {"random-bytes", "rubbish in place of a request", AT_TCP, make_random, 2048, 100, 0, 1000,
     .leaving = LEAVE_CLOSE},
    {"header-flood", "header lines without end", AT_TLS, make_headers, 8192, 50, 0, 1000,
     .leaving = LEAVE_CLOSE},
    {"long-line", "a request line without end", AT_TLS, make_long_line, 8192, 50, 0, 1000,
     .leaving = LEAVE_CLOSE},
    {"pages", "plain requests, one after the other", AT_TLS, make_page, 0, 100, 0, 500,
     .leaving = LEAVE_CLOSE},
    {"pipelined", "rubbish right behind the request", AT_TLS, make_random, 2048, 100, 0, 1000,
     .with_request = true},
    {"churn", "connects, says one thing, leaves", AT_WEBSOCKET, make_message, 0, 50, 150, 100,
     .leaving = LEAVE_CLOSE},
    {"crowd", "the same, all from one address", AT_WEBSOCKET, make_message, 0, 50, 150, 50,
     .one_address = true},
    {"resets", "half a message, then a reset", AT_WEBSOCKET, make_half_message, 0, 50, 100, 200,
     .leaving = LEAVE_RESET},
    {"half-close", "ends its side and stays", AT_WEBSOCKET, make_message, 0, 100, 0, 1000,
     .half_closes = true},
    {"mute", "opens, and then neither reads nor answers", AT_WEBSOCKET, NULL, 0, 1000, 0, 1000,
     .deaf = true},
    {"slow-frame", "a byte of a frame now and then", AT_WEBSOCKET, make_long_frame, 1, 200, 0, 500,
     .leaving = LEAVE_CLOSE},
    {"slow-reader", "much to be echoed, read by the spoon", AT_WEBSOCKET, make_messages, 4096, 100,
     0, 1000, .sips = true},
    {"no-reader", "much to be echoed, read by nobody", AT_WEBSOCKET, make_messages, 16384, 100, 0,
     1000, .deaf = true},
    {"ping-flood", "pings", AT_WEBSOCKET, make_pings, BLOCK, 50, 0, 1000, .leaving = LEAVE_CLOSE},
    {"deaf-pings", "pings whose pongs it does not read", AT_WEBSOCKET, make_pings, BLOCK, 50, 0,
     1000, .deaf = true},
    {"pong-flood", "pongs that nobody asked for", AT_WEBSOCKET, make_pongs, BLOCK, 50, 0, 1000,
     .leaving = LEAVE_CLOSE},
    {"close-flood", "close frames", AT_WEBSOCKET, make_closes, BLOCK, 50, 0, 1000,
     .leaving = LEAVE_CLOSE},
    {"fragments", "a message in fragments of one byte", AT_WEBSOCKET, make_fragments, BLOCK, 50, 0,
     1000, .leaving = LEAVE_CLOSE},
    {"empty-fragments", "a message of nothing, without end", AT_WEBSOCKET, make_empty_fragments,
     BLOCK, 50, 0, 1000, .leaving = LEAVE_CLOSE},
    {"announced", "a length, and then no data", AT_WEBSOCKET, make_announced, 0, 1000, 0, 500,
     .leaving = LEAVE_CLOSE},
    {"endless", "a frame of 2^62 bytes", AT_WEBSOCKET, make_endless_length, 0, 1000, 0, 1000,
     .leaving = LEAVE_CLOSE},
    {"bomb", "32 MiB of zeros, compressed", AT_WEBSOCKET, make_bomb, 0, 100, 0, 2000,
     .compresses = true},
    {"random-frames", "rubbish in place of frames", AT_WEBSOCKET, make_random, 2048, 100, 0, 1000,
     .leaving = LEAVE_CLOSE},
    {"half-hello", "the beginning of a TLS handshake", AT_TCP, make_half_hello, 0, 1000, 0, 1000,
     .only_tls = true},
    {"tls-rubbish", "a TLS handshake of rubbish", AT_TCP, make_tls_rubbish, 8192, 50, 0, 1000,
     .only_tls = true},
    {"key-updates", "TLS key updates", AT_WEBSOCKET, NULL, 0, 50, 0, 1000, .only_tls = true,
     .act = act_key_updates},
    {"renegotiation", "TLS handshakes on top of each other", AT_WEBSOCKET, NULL, 0, 50, 0, 1000,
     .only_tls = true, .only_1_2 = true, .act = act_renegotiate},
};
const size_t behaviour_count = sizeof behaviours / sizeof *behaviours;
