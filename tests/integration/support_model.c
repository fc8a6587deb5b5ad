#include "support_model.h"

#include "conn/conn.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#define ROOM ((size_t)4 << 20)

bool model_wrong(struct model *m, const char *what)
{
    if (!m->fault)
        m->fault = what;
    return false;
}

uint32_t model_random(struct model *m, uint32_t below)
{
    m->random = m->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((m->random >> 33) % below);
}

/* Around what the library decides by. */
size_t model_length(struct model *m)
{
    static const size_t around[] = {0,    1,    5,     20,    125,   126,   500,
                                    2000, 4090, 16360, 16383, 16384, 33000, 65536};
    size_t len = around[model_random(m, sizeof around / sizeof *around)];

    return len < 2 ? len : len + model_random(m, 8);
}

void model_open(struct model *m, uint64_t seed, bool server, int deflate)
{
    const int room = 40000; /* so that it is full at times */
    tws_deflate_options d;
    tws_pair_options opt;

    memset(m, 0, sizeof *m);
    m->random = seed;
    m->beside_last = -1;
    tws_pair_options_init(&opt);
    opt.server.max_message = opt.client.max_message = MODEL_LEN_MAX;
    opt.server.close_timeout = opt.client.close_timeout = 1;
    if (deflate) {
        tws_deflate_options_init(&d);
        d.server_no_context_takeover = d.client_no_context_takeover = deflate < 2;
        d.server_max_window_bits = d.client_max_window_bits = 12;
        opt.deflate = &d;
        m->deflate = true;
        peer_deflate_init(&m->z, 1, 12, deflate >= 2);
    }
    couple_open(&m->pair, &opt);
    m->c = server ? m->pair.server : m->pair.client;
    m->fd = (server ? m->pair.client : m->pair.server)->stream.sock.fd;
    assert_int_equal(setsockopt(m->c->stream.sock.fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room),
                     0);
    m->wire = support_alloc(ROOM);
    m->in = support_alloc(ROOM);
    m->message = support_alloc(ROOM);
    m->expected = support_alloc(MODEL_LEN_MAX + 1);
}

void model_close(struct model *m)
{
    couple_close(&m->pair);
    if (m->deflate)
        peer_deflate_end(&m->z);
    free(m->wire);
    free(m->in);
    free(m->message);
    free(m->expected);
}

/* Text in characters of one to three bytes, or bytes of all values; both compress. */
const uint8_t *model_payload(struct model *m, const struct model_message *one)
{
    uint32_t x = one->seed;
    size_t n = 0;

    while (n < one->len) {
        x = x * 1103515245 + 12345;
        if (one->opcode == TWS_TEXT && one->len - n >= 3 && (x >> 16 & 7) == 0) {
            memcpy(m->expected + n, "\xe2\x82\xac", 3);
            n += 3;
        } else if (one->opcode == TWS_TEXT) {
            m->expected[n++] = (uint8_t)('a' + (x >> 18 & 15));
        } else {
            m->expected[n++] = (uint8_t)(x >> 16 & (one->seed & 1 ? 0xff : 0x11));
        }
    }
    m->expected[one->len] = 0;
    return m->expected;
}

/* ---- What the peer sends ---- */

static void put_frame(struct model *m, unsigned first, const uint8_t *data, size_t len)
{
    uint8_t *at = m->wire + m->wire_len;
    bool masked = m->c->server;
    uint8_t key[4] = {0};
    size_t n = 2;

    at[0] = (uint8_t)first;
    at[1] = masked ? 0x80 : 0;
    if (len < 126) {
        at[1] |= (uint8_t)len;
    } else {
        n = len < 65536 ? 4 : 10;
        at[1] |= len < 65536 ? 126 : 127;
        for (size_t i = 2, left = len; i < n; i++, left >>= 8)
            at[n + 1 - i] = (uint8_t)left;
    }
    for (int i = 0; masked && i < 4; i++)
        at[n++] = key[i] = (uint8_t)model_random(m, 256);
    for (size_t i = 0; i < len; i++)
        at[n + i] = data[i] ^ key[i % 4];
    m->wire_len += n + len;
}

static void put_control(struct model *m)
{
    static const uint8_t text[125] = "control";

    if (model_random(m, 4) == 0)
        put_frame(m, CLIENT_FIN | (model_random(m, 2) ? CLIENT_PING : CLIENT_PONG), text,
                  model_random(m, 126));
}

static void put_message(struct model *m)
{
    struct model_message *one = &m->sent[m->sent_count++];
    uint8_t *packed = support_alloc(2 * MODEL_LEN_MAX);
    const uint8_t *data;
    unsigned frames = model_random(m, 2) ? 1 : 1 + model_random(m, 5), first;
    size_t n, done = 0;

    *one = (struct model_message){.len = model_length(m),
                                  .seed = model_random(m, 1u << 30),
                                  .opcode = (uint8_t)(1 + model_random(m, 2))};
    data = model_payload(m, one);
    n = one->len;
    first = one->opcode;
    if (m->deflate && model_random(m, 3)) {
        n = peer_deflate(&m->z, packed, data, n);
        data = packed;
        first |= CLIENT_RSV1;
    }
    for (unsigned i = 0; i < frames; i++) {
        size_t part = i + 1 == frames ? n - done : model_random(m, (uint32_t)(n - done) + 1);

        put_frame(m, (i == 0 ? first : CLIENT_CONT) | (i + 1 == frames ? CLIENT_FIN : 0u),
                  data + done, part);
        done += part;
        put_control(m);
    }
    free(packed);
}

void model_control(struct model *m, unsigned opcode, const uint8_t *data, size_t len)
{
    put_frame(m, CLIENT_FIN | opcode, data, len);
}

static bool feed(struct model *m, size_t len)
{
    size_t left = m->wire_len - m->wire_at;
    ssize_t n =
        send(m->fd, m->wire + m->wire_at, len < left ? len : left, MSG_DONTWAIT | MSG_NOSIGNAL);

    if (n > 0)
        m->wire_at += (size_t)n;
    if (m->wire_at == m->wire_len)
        m->wire_at = m->wire_len = 0;
    return n >= 0;
}

void model_feed(struct model *m)
{
    static const size_t pieces[] = {1, 2, 3, 7, 60, 1000, 5000, 17000, 100000};

    while (m->sent_count < MODEL_MESSAGES && m->wire_len - m->wire_at < 20000 &&
           m->wire_len < ROOM / 2 && (m->wire_len == 0 || model_random(m, 2)))
        put_message(m);
    if (m->wire_len > 0)
        feed(m, pieces[model_random(m, sizeof pieces / sizeof *pieces)]);
}

bool model_feed_rest(struct model *m)
{
    return m->wire_len == 0 || (feed(m, SIZE_MAX) && m->wire_len == 0);
}

/* ---- What the peer receives ---- */

struct model_message *model_writes(struct model *m, size_t len, unsigned opcode)
{
    struct model_message *one = &m->written[m->written_count++];

    memset(one, 0, sizeof *one);
    one->len = len;
    one->opcode = (uint8_t)opcode;
    one->seed = model_random(m, 1u << 30);
    return one;
}

void model_unwrites(struct model *m)
{
    m->written_count--;
}

/* The next of those that were written; some may have been dropped. */
static void match(struct model *m, unsigned opcode, const uint8_t *data, size_t len)
{
    if (model_is_beside(m, opcode, data, len))
        return;
    while (m->written_at < m->written_count) {
        struct model_message *one = &m->written[m->written_at++];

        if (!one->lost && one->opcode == opcode && one->len == len &&
            memcmp(model_payload(m, one), data, len) == 0) {
            one->seen = true;
            return;
        }
        if (!one->may_miss && !one->lost)
            break;
    }
    model_wrong(m, "the peer received what was not written, or in another order");
}

static void take_message(struct model *m)
{
    unsigned opcode = m->message_first & 15;
    long n;

    if (m->message_first & CLIENT_RSV1) {
        uint8_t *out = support_alloc(MODEL_LEN_MAX + 64);

        n = peer_inflate(&m->z, out, MODEL_LEN_MAX + 64, m->message, m->message_len);
        if (n < 0)
            model_wrong(m, "the peer received what does not inflate");
        else
            match(m, opcode, out, (size_t)n);
        free(out);
    } else {
        match(m, opcode, m->message, m->message_len);
    }
    m->message_first = 0;
    m->message_len = 0;
}

static void take_frame(struct model *m, unsigned first, uint8_t *data, size_t len)
{
    unsigned opcode = first & 15;

    if (m->closed)
        model_wrong(m, "a frame behind the close frame");
    if (opcode >= CLIENT_CLOSE) {
        m->closed = opcode == CLIENT_CLOSE;
        return;
    }
    if ((opcode == CLIENT_CONT) != (m->message_first != 0)) {
        model_wrong(m, "a message inside another");
        return;
    }
    if (opcode != CLIENT_CONT)
        m->message_first = first & (15 | CLIENT_RSV1);
    memcpy(m->message + m->message_len, data, len);
    m->message_len += len;
    if (first & CLIENT_FIN)
        take_message(m);
}

/* The length of the frame at `at`, 0 when it has not come whole. */
static size_t take_one(struct model *m, uint8_t *at, size_t have)
{
    bool masked = !m->c->server;
    size_t n = 2, len, key;

    if (have < 2)
        return 0;
    if ((at[1] >> 7) != masked)
        model_wrong(m, "a frame masked that should not be, or the reverse");
    len = at[1] & 127;
    n += len == 126 ? 2 : len == 127 ? 8 : 0;
    if (have < n)
        return 0;
    if (len >= 126) {
        len = 0;
        for (size_t i = 2; i < n; i++)
            len = len << 8 | at[i];
    }
    key = n;
    n += masked ? 4 : 0;
    if (len > MODEL_LEN_MAX * 2)
        return model_wrong(m, "a frame larger than any message"), 0;
    if (have < n || have - n < len)
        return 0;
    for (size_t i = 0; masked && i < len; i++)
        at[n + i] ^= at[key + i % 4];
    take_frame(m, at[0], at + n, len);
    return n + len;
}

void model_drain(struct model *m)
{
    ssize_t got = recv(m->fd, m->in + m->in_len, ROOM - m->in_len, MSG_DONTWAIT);
    size_t at = 0, n;

    if (got == 0 || (got < 0 && errno != EAGAIN))
        m->ended = true;
    if (got <= 0)
        return;
    m->in_len += (size_t)got;
    while (!m->fault && (n = take_one(m, m->in + at, m->in_len - at)) > 0)
        at += n;
    memmove(m->in, m->in + at, m->in_len - at);
    m->in_len -= at;
}
