/*
 * Frames into a server's connection that has agreed on compression in its handshake, and their echo
 * back out. What is read has to be what zlib makes of the same payloads, and what is written
 * has to inflate to what was read.
 *
 * Input: three bytes of settings, then frames: first byte as on the wire, a length (above 127 in
 * steps of 8 bytes), payload. They are sent with a mask of zeros, so that the fuzzer sees its bytes again in what is compared.
 */
#include <zlib.h>

#include <tws/deflate.h>
#include <tws/tws.h>

#include "fuzz.h"
#include "lib/memory_stream.h"

#define MAX_MESSAGE 20000
#define INPUT_ROOM 8192
#define MAX_FRAMES 128
#define ROOM (1 << 18)

static const char *const offers[] = {
    "client_max_window_bits",
    "server_no_context_takeover",
    "client_no_context_takeover",
    "server_no_context_takeover; client_no_context_takeover",
    "client_max_window_bits=9; server_max_window_bits=9",
    "client_max_window_bits=8; server_max_window_bits=10; client_no_context_takeover",
};

struct sent_frame {
    uint8_t first;
    size_t len;
    const uint8_t *payload;
};

/* One run. */
struct run {
    uint8_t style, how, wishes; /* reading; writing; options and offer */
    tws_conn *conn;
    struct sent_frame frames[MAX_FRAMES];
    size_t count, next; /* sent, and the next one that the model looks at */
    z_stream in, out;   /* of the model: what the peer has compressed, what the server has */
    bool in_fresh, out_fresh;
    bool boundary; /* between two blocks, after inflate_all() */
    bool unsure;   /* a final block has ended the stream: how it goes on is not laid down */
    uint8_t *model, *got, *wire;
    size_t model_len, got_len;
};

/* ---- What zlib makes of it ---- */

/* Inflates into out[*len..]; false when zlib finds a fault. */
static bool inflate_all(struct run *r, z_stream *z, const uint8_t *data, size_t n, uint8_t *out,
                        size_t *len)
{
    z->next_in = (Bytef *)(uintptr_t)data;
    z->avail_in = (uInt)n;
    if (n == 0)
        return true;
    do {
        z->next_out = out + *len;
        z->avail_out = (uInt)(ROOM - *len);

        int rc = inflate(z, Z_SYNC_FLUSH);

        *len = ROOM - z->avail_out;
        r->boundary = rc == Z_STREAM_END || (z->data_type & 0xff) == 128;
        if (rc == Z_STREAM_END) {
            r->unsure = true;
            inflateReset(z);
        } else if (rc != Z_OK && rc != Z_BUF_ERROR) {
            return false;
        }
    } while (z->avail_in > 0 && z->avail_out > 0);
    return true;
}

/* The end of a compressed message: what was cut off, unless it ended between two blocks. */
static bool inflate_tail(struct run *r, z_stream *z, bool fresh, uint8_t *out, size_t *len)
{
    static const uint8_t tail[4] = {0, 0, 0xff, 0xff};
    bool sound = r->boundary || inflate_all(r, z, tail, sizeof tail, out, len);

    if (fresh)
        inflateReset(z);
    return sound && r->boundary;
}

/* The next message among the frames, whole, as the model has it; false when there is none. */
static bool model_message(struct run *r, tws_opcode *opcode, bool *compressed, bool *sound)
{
    bool begun = false;

    r->model_len = 0;
    r->boundary = true;
    *sound = true;
    while (r->next < r->count) {
        const struct sent_frame *f = &r->frames[r->next++];

        if ((f->first & 15) >= 8)
            continue;
        if (!begun) {
            *opcode = (tws_opcode)(f->first & 15);
            *compressed = (f->first & 0x40) != 0;
            begun = true;
        }
        if (*compressed) {
            *sound = *sound && inflate_all(r, &r->in, f->payload, f->len, r->model, &r->model_len);
        } else {
            memcpy(r->model + r->model_len, f->payload, f->len);
            r->model_len += f->len;
        }
        if (!(f->first & 0x80))
            continue;
        if (*compressed)
            *sound = *sound && inflate_tail(r, &r->in, r->in_fresh, r->model, &r->model_len);
        return true;
    }
    return false;
}

/* ---- The echo, as the peer sees it ---- */

/* What the server has sent since the last time. Later it is overwritten, so that it never fills. */
static size_t drain(struct run *r)
{
    size_t len = memory.out_len;

    FUZZ_CHECK(len <= ROOM);
    memcpy(r->wire, memory.out, len);
    memory.out_len = 0;
    return len;
}

/* Reads one of the server's frames; its length in all. */
static size_t read_frame(const uint8_t *p, size_t left, struct sent_frame *f)
{
    size_t head = 2;

    FUZZ_CHECK(left >= 2 && (p[1] & 0x80) == 0);
    f->first = p[0];
    f->len = p[1];
    if (p[1] == 126) {
        f->len = (size_t)p[2] << 8 | p[3];
        head = 4;
    }
    FUZZ_CHECK(p[1] < 127 && left >= head + f->len);
    f->payload = p + head;
    return head + f->len;
}

/* The one message among the frames of the wire is what was written. */
static void check_echo(struct run *r, tws_opcode opcode)
{
    uint8_t *back = r->model;
    size_t back_len = 0, len = drain(r);
    bool begun = false, ended = false, compressed = false;
    struct sent_frame f;

    r->boundary = true;
    for (size_t at = 0; at < len;) {
        at += read_frame(r->wire + at, len - at, &f);
        if ((f.first & 15) >= 8)
            continue;
        FUZZ_CHECK(!ended && (f.first & 0x30) == 0);
        FUZZ_CHECK((f.first & 15) == (begun ? 0 : (uint8_t)opcode));
        FUZZ_CHECK(!begun || (f.first & 0x40) == 0);
        compressed = compressed || (f.first & 0x40) != 0;
        begun = true;
        ended = (f.first & 0x80) != 0;
        if (compressed) {
            FUZZ_CHECK(inflate_all(r, &r->out, f.payload, f.len, back, &back_len));
        } else {
            memcpy(back + back_len, f.payload, f.len);
            back_len += f.len;
        }
    }
    FUZZ_CHECK(ended);
    if (compressed)
        FUZZ_CHECK(inflate_tail(r, &r->out, r->out_fresh, back, &back_len));
    FUZZ_CHECK(back_len == r->got_len && memcmp(back, r->got, back_len) == 0);
}

static tws_err write_back(struct run *r, tws_opcode opcode)
{
    tws_compression mode = r->how % 3 == 0 ? TWS_COMPRESS_AUTO : TWS_COMPRESS_ALWAYS;
    size_t step = (size_t)1 << (r->how >> 4);
    tws_writer *w;
    tws_err err;

    if ((r->how & 8) == 0)
        return tws_write_message_as(r->conn, opcode, mode, r->got, r->got_len);
    err = tws_next_writer_as(r->conn, opcode, mode, &w);
    if (err != TWS_OK)
        return err;
    for (size_t at = 0; at < r->got_len && err == TWS_OK; at += step)
        err = tws_writer_write(w, r->got + at, at + step < r->got_len ? step : r->got_len - at);

    tws_err closed = tws_writer_close(w);

    return err != TWS_OK ? err : closed;
}

/* ---- The server's side ---- */

/* Reads a message in one of the ways there are; false at the end of the connection. */
static bool read_one(struct run *r, tws_opcode *opcode)
{
    tws_message m;
    size_t n = 1, size = (size_t)1 << (r->style >> 4);

    if (r->style & 1) {
        if (tws_next_reader(r->conn, opcode) != TWS_OK)
            return false;
        for (r->got_len = 0; n > 0; r->got_len += n)
            if (tws_reader_read(r->conn, r->got + r->got_len, size, &n) != TWS_OK)
                return false;
        return true;
    }
    if (tws_read_message(r->conn, &m) != TWS_OK)
        return false;
    if (r->style & 2 && tws_message_take(r->conn, &m) != TWS_OK)
        return false;
    *opcode = m.opcode;
    r->got_len = m.len;
    if (m.len > 0)
        memcpy(r->got, m.data, m.len);
    tws_message_free(&m);
    return true;
}

static void serve(struct run *r)
{
    tws_opcode opcode, expected;
    bool compressed, sound;

    while (read_one(r, &opcode)) {
        FUZZ_CHECK(model_message(r, &expected, &compressed, &sound));
        FUZZ_CHECK(opcode == expected && r->got_len <= MAX_MESSAGE);
        if (!r->unsure) {
            FUZZ_CHECK(sound && r->got_len == r->model_len);
            FUZZ_CHECK(memcmp(r->got, r->model, r->got_len) == 0);
        }
        if (write_back(r, opcode) != TWS_OK)
            break;

        bool was_unsure = r->unsure;

        check_echo(r, opcode);
        FUZZ_CHECK(r->unsure == was_unsure); /* the library ends no stream */
    }
}

/* ---- Setting up ---- */

/* All frames of the input, as they are on the wire; their length. */
static size_t make_frames(struct run *r, struct fuzz_input *in, uint8_t *all)
{
    size_t len = 0;

    while (in->left > 0 && r->count < MAX_FRAMES) {
        struct sent_frame *f = &r->frames[r->count++];
        uint8_t head[8] = {0};
        size_t head_len = 6, wanted;

        f->first = fuzz_byte(in);
        wanted = fuzz_byte(in);
        if ((f->first & 15) < 8 && wanted > 127)
            wanted = 127 + (wanted - 127) * 8;
        f->payload = fuzz_bytes(in, wanted, &f->len);
        head[0] = f->first;
        head[1] = (uint8_t)(0x80 | f->len);
        if (f->len > 125) {
            head[1] = 0x80 | 126;
            head[2] = (uint8_t)(f->len >> 8);
            head[3] = (uint8_t)f->len;
            head_len = 8;
        }
        memcpy(all + len, head, head_len);
        memcpy(all + len + head_len, f->payload, f->len);
        len += head_len + f->len;
    }
    return len;
}

static void upgrade(struct run *r)
{
    tws_deflate_options deflate;
    tws_upgrade_options opt;
    char request[512];
    int len =
        snprintf(request, sizeof request,
                 "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                 "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
                 "Sec-WebSocket-Extensions: permessage-deflate; %s\r\n\r\n",
                 offers[(r->wishes >> 2) % (sizeof offers / sizeof offers[0])]);
    tws_deflate_info info;

    tws_deflate_options_init(&deflate);
    deflate.server_no_context_takeover = (r->wishes & 1) != 0;
    deflate.client_no_context_takeover = (r->wishes & 2) != 0;
    deflate.level = 1 + r->wishes % 9;
    deflate.threshold = r->wishes & 0x80 ? 0 : TWS_DEFLATE_AUTO;
    tws_upgrade_options_init(&opt);
    opt.deflate = &deflate;
    opt.conn.max_message = MAX_MESSAGE;
    FUZZ_CHECK(tws_upgrade(&r->conn, MEMORY_FD, request, (size_t)len, &opt, NULL) == TWS_OK);
    FUZZ_CHECK(tws_conn_deflate(r->conn, &info));
    r->in_fresh = info.client_no_context_takeover;
    r->out_fresh = info.server_no_context_takeover;
    FUZZ_CHECK(inflateInit2(&r->in, -15) == Z_OK);
    FUZZ_CHECK(inflateInit2(&r->out, -(info.server_max_window_bits > 8 ? info.server_max_window_bits
                                                                       : 9)) == Z_OK);
    drain(r); /* the answer to the handshake */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct run r;
    static uint8_t model[ROOM], got[ROOM], wire[ROOM], all[INPUT_ROOM + MAX_FRAMES * 8];
    struct fuzz_input in = {data, size < INPUT_ROOM ? size : INPUT_ROOM};

    memset(&r, 0, sizeof r);
    r.model = model;
    r.got = got;
    r.wire = wire;
    r.style = fuzz_byte(&in);
    r.how = fuzz_byte(&in);
    r.wishes = fuzz_byte(&in);
    memory_begin(all, make_frames(&r, &in, all));
    upgrade(&r);
    serve(&r);
    tws_conn_unref(r.conn);
    inflateEnd(&r.in);
    inflateEnd(&r.out);
    return 0;
}
