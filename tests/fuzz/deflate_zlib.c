/*
 * Compression against zlib itself, both ways. zlib compresses messages, with flushes, levels,
 * strategies and fragments as the input says, and a connection has to read what went in; the
 * connection compresses them, whole or in pieces, and zlib has to inflate the same.
 *
 * Input: six bytes of settings, then the payloads: a length (above 199 in steps of 64 bytes) and bytes,
 * which are repeated where the input ends before them.
 */
#include <zlib.h>

#include "conn/conn.h"
#include "fuzz.h"
#include "lib/connection.h"
#include "lib/memory_stream.h"
#include "lib/reference.h"

#define MESSAGES 24
#define WIRE (1 << 19)

struct message {
    uint8_t *data;
    size_t len;
};

struct run {
    struct fuzz_input in;
    uint32_t random;
    bool server, takeover_in, takeover_out;
    uint8_t level, bits_in, bits_out, how;
    struct message messages[MESSAGES];
    size_t count;
    uint8_t *wire;
    size_t wire_len;
};

static void take_messages(struct run *r)
{
    while (r->in.left > 1 && r->count < MESSAGES) {
        struct message *m = &r->messages[r->count++];
        size_t wanted = fuzz_byte(&r->in), got;
        const uint8_t *bytes;

        if (wanted > 199)
            wanted = 199 + (wanted - 199) * 64;
        bytes = fuzz_bytes(&r->in, wanted, &got);
        m->len = got > 0 ? wanted : 0;
        m->data = malloc(m->len + 1);
        FUZZ_CHECK(m->data != NULL);
        for (size_t i = 0; i < m->len; i++)
            m->data[i] = bytes[i % got];
    }
}

/* ---- From zlib ---- */

static void put_frame(struct run *r, uint8_t first, const uint8_t *data, size_t len)
{
    uint8_t *p = r->wire + r->wire_len;

    FUZZ_CHECK(len < 65536 && r->wire_len + len + 8 <= WIRE);
    *p++ = first;
    *p++ = (uint8_t)((r->server ? 0x80 : 0) | (len > 125 ? 126 : len));
    if (len > 125) {
        *p++ = (uint8_t)(len >> 8);
        *p++ = (uint8_t)len;
    }
    if (r->server) {
        memset(p, 0, 4);
        p += 4;
    }
    if (len > 0)
        memcpy(p, data, len);
    r->wire_len = (size_t)(p + len - r->wire);
}

/* One message's compressed bytes without their last four. */
static size_t compress_one(struct run *r, z_stream *z, const struct message *m, uint8_t *out,
                           size_t room)
{
    static const int flushes[] = {Z_NO_FLUSH, Z_SYNC_FLUSH, Z_FULL_FLUSH, Z_PARTIAL_FLUSH, Z_BLOCK};
    size_t at = 0;

    z->next_out = out;
    z->avail_out = (uInt)room;
    while (at < m->len) {
        size_t n = 1 + fuzz_random(&r->random, (uint32_t)(m->len - at));

        z->next_in = m->data + at;
        z->avail_in = (uInt)n;
        FUZZ_CHECK(deflate(z, flushes[fuzz_random(&r->random, FUZZ_COUNT(flushes))]) == Z_OK);
        FUZZ_CHECK(z->avail_in == 0);
        at += n;
    }
    if (r->how & 1) /* RFC 7692 7.2.1: an empty block behind all others */
        deflate(z, Z_BLOCK);
    deflate(z, Z_FULL_FLUSH);
    at = room - z->avail_out;
    if (at < 4 || memcmp(out + at - 4, "\0\0\xff\xff", 4) != 0)
        return at; /* nothing had to be flushed: it stands between two blocks */
    if (!r->takeover_in)
        deflateReset(z);
    return at - 4;
}

static void put_message(struct run *r, z_stream *z, const struct message *m)
{
    static const int strategies[] = {Z_DEFAULT_STRATEGY, Z_FILTERED, Z_HUFFMAN_ONLY, Z_RLE,
                                     Z_FIXED};
    static uint8_t out[WIRE / 2];
    size_t len, at = 0;
    uint8_t first = 0x42;

    z->next_out = out;
    z->avail_out = 0;
    len = compress_one(r, z, m, out, sizeof out);
    do {
        size_t n = r->how & 2 ? fuzz_random(&r->random, (uint32_t)(len - at) + 1) : len - at;
        bool last = at + n == len && (r->how & 4 || fuzz_random(&r->random, 2));

        n = n < 65535 ? n : 65535;
        put_frame(r, (uint8_t)(first | (last ? 0x80 : 0)), out + at, n);
        at += n;
        first = 0;
        if (last)
            break;
        if (r->how & 8)
            put_frame(r, 0x8a, NULL, 0);
    } while (true);
    /* With a new context what was set before is gone; within one it may change between messages. */
    if (r->how & 16 && r->takeover_in) {
        z->next_out = out;
        z->avail_out = sizeof out;
        z->avail_in = 0;
        deflateParams(z, (int)fuzz_random(&r->random, 10),
                      strategies[fuzz_random(&r->random, FUZZ_COUNT(strategies))]);
    }
}

static void make_wire(struct run *r)
{
    static uint8_t wire[WIRE];
    z_stream z;

    r->wire = wire;
    memset(&z, 0, sizeof z);
    FUZZ_CHECK(deflateInit2(&z, r->level, Z_DEFLATED, -r->bits_in, 1 + r->level % 9,
                            Z_DEFAULT_STRATEGY) == Z_OK);
    for (size_t i = 0; i < r->count; i++)
        put_message(r, &z, &r->messages[i]);
    deflateEnd(&z);
}

/* ---- The connection ---- */

static tws_conn *open_connection(struct run *r, uint8_t cuts)
{
    tws_deflate_options deflate;
    tws_conn_options options;
    struct fuzz_connection f = {.server = r->server, .options = &options, .deflate = &deflate};

    f.agreed = (struct deflate_params){
        .server_bits = r->server ? r->bits_out : r->bits_in,
        .client_bits = r->server ? r->bits_in : r->bits_out,
        .server_no_takeover = r->server ? !r->takeover_out : !r->takeover_in,
        .client_no_takeover = r->server ? !r->takeover_in : !r->takeover_out,
    };
    tws_deflate_options_init(&deflate);
    deflate.level = 1 + r->level % 9;
    deflate.memory_level = 9 - r->level % 9;
    memory_begin(r->wire, r->wire_len);
    memory.receives = fuzz_cuts_of(cuts);
    conn_options_init(&options);
    options.max_control_rate = 0;
    return fuzz_connect(&f);
}

static void write_back(struct run *r, tws_conn *c, const struct message *m)
{
    size_t step = (size_t)1 << (r->how >> 5) * 2;
    tws_writer *w;

    if (step == 1) {
        FUZZ_CHECK(tws_write_message_as(c, TWS_BINARY, TWS_COMPRESS_ALWAYS, m->data, m->len) ==
                   TWS_OK);
        return;
    }
    FUZZ_CHECK(tws_next_writer_as(c, TWS_BINARY, TWS_COMPRESS_ALWAYS, &w) == TWS_OK);
    for (size_t at = 0; at < m->len; at += step)
        FUZZ_CHECK(tws_writer_write(w, m->data + at, step < m->len - at ? step : m->len - at) ==
                   TWS_OK);
    FUZZ_CHECK(tws_writer_close(w) == TWS_OK);
}

/* ---- To zlib ---- */

static void check_written(struct run *r)
{
    static struct reference out;

    if (memory.out_len > MEMORY_OUT)
        return;
    memset(&out, 0, sizeof out);
    out.masked = !r->server;
    out.deflate = true;
    out.fresh = !r->takeover_out;
    reference_read(&out, memory.out, memory.out_len);
    FUZZ_CHECK(out.end == REFERENCE_CUT && !out.unsure && out.count == r->count);
    for (size_t i = 0; i < out.count; i++) {
        const struct reference_message *m = &out.messages[i];

        FUZZ_CHECK(m->len == r->messages[i].len && m->compressed == (m->len > 0));
        FUZZ_CHECK(memcmp(out.room + m->at, r->messages[i].data, m->len) == 0);
    }
    reference_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct run r;
    uint8_t cuts, windows;
    tws_message m;
    tws_conn *c;

    memset(&r, 0, sizeof r);
    r.in = (struct fuzz_input){data, size};
    r.how = fuzz_byte(&r.in);
    r.level = fuzz_byte(&r.in) % 10;
    windows = fuzz_byte(&r.in);
    r.bits_in = (uint8_t)(9 + windows % 7);
    r.bits_out = (uint8_t)(9 + (windows >> 3) % 7);
    r.takeover_in = (windows & 64) != 0;
    r.takeover_out = (windows & 128) != 0;
    cuts = fuzz_byte(&r.in);
    r.random = 1 + fuzz_byte(&r.in);
    r.server = fuzz_byte(&r.in) & 1;
    take_messages(&r);
    make_wire(&r);
    c = open_connection(&r, cuts);
    for (size_t i = 0; i < r.count; i++) {
        FUZZ_CHECK(tws_read_message(c, &m) == TWS_OK);
        FUZZ_CHECK(m.len == r.messages[i].len && memcmp(m.data, r.messages[i].data, m.len) == 0);
        write_back(&r, c, &r.messages[i]);
    }
    FUZZ_CHECK(tws_read_message(c, &m) == TWS_ERR_EOF);
    tws_conn_unref(c);
    check_written(&r);
    for (size_t i = 0; i < r.count; i++)
        free(r.messages[i].data);
    return 0;
}
