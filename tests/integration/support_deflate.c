#include "support_deflate.h"
#include "support.h"

#include <stdlib.h>
#include <zlib.h>

static const uint8_t tail[4] = {0, 0, 0xff, 0xff};

void peer_deflate_init(struct peer_deflate *p, int level, int bits, bool takeover)
{
    z_stream *out = support_alloc(sizeof *out), *in = support_alloc(sizeof *in);

    memset(out, 0, sizeof *out);
    memset(in, 0, sizeof *in);
    assert_int_equal(deflateInit2(out, level, Z_DEFLATED, -bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(inflateInit2(in, -15), Z_OK);
    *p = (struct peer_deflate){out, in, takeover, takeover};
}

void peer_deflate_end(struct peer_deflate *p)
{
    deflateEnd(p->out);
    inflateEnd(p->in);
    free(p->out);
    free(p->in);
}

size_t peer_deflate(struct peer_deflate *p, uint8_t *out, const void *data, size_t len)
{
    z_stream *z = p->out;
    size_t n;

    if (len == 0) { /* zlib does not flush twice */
        out[0] = 0;
        return 1;
    }
    z->next_in = (void *)(uintptr_t)data;
    z->avail_in = (uInt)len;
    z->next_out = out;
    z->avail_out = (uInt)(len + len / 8 + 64);
    deflate(z, Z_SYNC_FLUSH);
    assert_int_equal(z->avail_in, 0);
    n = (size_t)(z->next_out - out);
    assert_memory_equal(out + n - sizeof tail, tail, sizeof tail);
    if (!p->out_takeover)
        deflateReset(z);
    return n - sizeof tail;
}

long peer_inflate(struct peer_deflate *p, uint8_t *out, size_t room, const void *data, size_t len)
{
    z_stream *z = p->in;
    const void *parts[] = {data, tail};
    size_t lengths[] = {len, sizeof tail};

    z->next_out = out;
    z->avail_out = (uInt)room;
    for (int i = 0; i < 2; i++) {
        int r;

        z->next_in = (void *)(uintptr_t)parts[i];
        z->avail_in = (uInt)lengths[i];
        r = inflate(z, Z_SYNC_FLUSH);
        if ((r != Z_OK && r != Z_BUF_ERROR) || z->avail_in > 0)
            return -1;
    }
    if (!p->in_takeover)
        inflateReset(z);
    return z->next_out - out;
}

void rig_open_deflate(struct rig *r, const tws_deflate_options *deflate)
{
    tws_deflate_options d;
    tws_server_options opt;

    tws_deflate_options_init(&d);
    rig_options(&opt);
    opt.upgrade.deflate = deflate ? deflate : &d;
    rig_open_asking(r, &opt, DEFLATE_OFFER);
    assert_non_null(strstr(r->client.head, "permessage-deflate"));
}

void client_send_deflated(struct client *c, struct peer_deflate *p, unsigned opcode,
                          const void *data, size_t len, size_t frames)
{
    uint8_t *packed = support_alloc(len + len / 8 + 64);
    size_t n = peer_deflate(p, packed, data, len), done = 0;

    for (size_t i = 0; i < frames; i++) {
        size_t part = i + 1 == frames ? n - done : n / frames;
        unsigned first = i == 0 ? opcode | CLIENT_RSV1 : CLIENT_CONT;

        client_send(c, first | (i + 1 == frames ? CLIENT_FIN : 0u), packed + done, part);
        done += part;
    }
    free(packed);
}

size_t client_next_inflated(struct client *c, struct peer_deflate *p, uint8_t *out, size_t room,
                            bool *compressed, unsigned *fragments)
{
    uint8_t *all = support_alloc(room + room / 8 + 64);
    size_t len = 0;
    struct client_frame f;
    long n;

    *fragments = 0;
    do {
        assert_true(client_next(c, &f));
        assert_true(f.opcode < CLIENT_CLOSE);
        assert_true(*fragments == 0 ? f.opcode != CLIENT_CONT && (f.rsv & 3) == 0
                                    : f.opcode == CLIENT_CONT && f.rsv == 0);
        if ((*fragments)++ == 0)
            *compressed = f.rsv != 0;
        assert_in_range(len + f.len, 0, room + room / 8 + 64);
        if (f.len > 0)
            memcpy(all + len, f.data, f.len);
        len += f.len;
    } while (!f.fin);
    if (*compressed) {
        n = peer_inflate(p, out, room, all, len);
        assert_true(n >= 0);
        len = (size_t)n;
    } else {
        assert_in_range(len, 0, room);
        memcpy(out, all, len);
    }
    free(all);
    return len;
}
