#include "deflate.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

enum { INFLATE_CHUNK = 32 * 1024 };

/* What deflate_message strips and inflater_end puts back: an empty stored block after its first byte. */
static const uint8_t flush_tail[4] = {0x00, 0x00, 0xff, 0xff};

size_t deflate_room(size_t size)
{
    return DEFLATE_STAMP_OFFSET + compressBound((uLong)size) + 64;
}

/* One message part with zlib; the four bytes of the flush are taken off. 0 when it failed. */
static size_t squeeze(uint8_t *out, size_t room, const uint8_t *in, size_t n, int window_bits,
                      int level)
{
    z_stream z;
    memset(&z, 0, sizeof z);
    /* zlib cannot make raw deflate for a window of 256 bytes; without matches any window will do. */
    int bits = window_bits > 8 ? window_bits : 9;
    int strategy = window_bits > 8 ? Z_DEFAULT_STRATEGY : Z_HUFFMAN_ONLY;
    if (deflateInit2(&z, level, Z_DEFLATED, -bits, 8, strategy) != Z_OK)
        return 0;
    z.next_in = (Bytef *)(uintptr_t)in;
    z.avail_in = (uInt)n;
    z.next_out = out;
    z.avail_out = (uInt)room;
    int rc = deflate(&z, Z_SYNC_FLUSH);
    size_t len = room - z.avail_out;
    deflateEnd(&z);
    if (rc != Z_OK || z.avail_in != 0 || len < sizeof flush_tail + 1)
        return 0;
    return len - sizeof flush_tail;
}

size_t deflate_message(uint8_t *out, size_t room, const uint8_t *body, size_t size, unsigned stamp,
                       int window_bits, int level)
{
    size_t n = 0;
    if (stamp != 0) {
        out[n++] = 0; /* stored block, not the last */
        out[n++] = (uint8_t)stamp;
        out[n++] = 0;
        out[n++] = (uint8_t)~stamp;
        out[n++] = 0xff;
        memcpy(out + n, body, stamp);
        n += stamp;
    }
    if (size == stamp) {
        out[n++] = 0; /* the empty block whose rest is implied */
        return n;
    }
    size_t len = squeeze(out + n, room - n, body + stamp, size - stamp, window_bits, level);
    return len != 0 ? n + len : 0;
}

struct param {
    const char *name;
    size_t name_len;
    const char *value;
    size_t value_len;
    bool has_value;
};

static const char *skip_blank(const char *s)
{
    while (*s == ' ' || *s == '\t')
        s++;
    return s;
}

static bool token_char(char c)
{
    return c > ' ' && c < 0x7f && strchr("()<>@,;:\\\"/[]?={}", c) == NULL;
}

static size_t token_length(const char *s)
{
    size_t n = 0;
    while (s[n] != '\0' && token_char(s[n]))
        n++;
    return n;
}

/* Next parameter of "a; b=1; c"; 1 one was read, 0 the end, -1 not of that form. */
static int next_param(const char **at, struct param *p)
{
    const char *s = skip_blank(*at);
    *p = (struct param){.name = s};
    if (*s == '\0')
        return 0;
    p->name_len = token_length(s);
    s = skip_blank(s + p->name_len);
    if (*s == '=') {
        s = skip_blank(s + 1);
        bool quoted = *s == '"';
        s += quoted;
        p->has_value = true;
        p->value = s;
        p->value_len = token_length(s);
        s += p->value_len;
        if (quoted && *s++ != '"')
            return -1;
        s = skip_blank(s);
        if (p->value_len == 0)
            return -1;
    }
    if (*s != ';' && *s != '\0')
        return -1;
    *at = *s == ';' ? s + 1 : s;
    return p->name_len != 0 ? 1 : -1;
}

static bool is(const struct param *p, const char *name)
{
    return strlen(name) == p->name_len && strncasecmp(name, p->name, p->name_len) == 0;
}

/* 8 to 15 without leading zero, or 0. */
static int window_bits(const struct param *p)
{
    if (!p->has_value)
        return 0;
    if (p->value_len == 1)
        return p->value[0] == '8' || p->value[0] == '9' ? p->value[0] - '0' : 0;
    if (p->value_len == 2 && p->value[0] == '1' && p->value[1] >= '0' && p->value[1] <= '5')
        return 10 + p->value[1] - '0';
    return 0;
}

static bool offered_param(const char *offered, const char *name, struct param *p)
{
    while (next_param(&offered, p) > 0)
        if (is(p, name))
            return true;
    return false;
}

bool deflate_offer_valid(const char *params)
{
    struct param p;
    unsigned seen = 0;
    int rc;
    while ((rc = next_param(&params, &p)) > 0) {
        unsigned bit;
        if (is(&p, "server_no_context_takeover") && !p.has_value)
            bit = 1;
        else if (is(&p, "client_no_context_takeover") && !p.has_value)
            bit = 2;
        else if (is(&p, "server_max_window_bits") && window_bits(&p) != 0)
            bit = 4;
        else if (is(&p, "client_max_window_bits") && (!p.has_value || window_bits(&p) != 0))
            bit = 8;
        else
            return false;
        if ((seen & bit) != 0)
            return false;
        seen |= bit;
    }
    return rc == 0;
}

static bool read_bits(const struct param *p, const char *offered, const char *name, bool must_offer,
                      int *bits)
{
    struct param mine;
    bool asked = offered_param(offered, name, &mine);
    int limit = asked && mine.has_value ? window_bits(&mine) : DEFLATE_WINDOW_MAX;
    *bits = window_bits(p);
    return *bits != 0 && *bits <= limit && (asked || !must_offer);
}

static bool read_param(const struct param *p, const char *offered, unsigned *seen,
                       struct deflate_terms *t)
{
    unsigned bit;
    bool ok;
    if (is(p, "server_no_context_takeover")) {
        bit = 1;
        ok = !p->has_value;
        t->server_no_context_takeover = true;
    } else if (is(p, "client_no_context_takeover")) {
        bit = 2;
        ok = !p->has_value;
    } else if (is(p, "server_max_window_bits")) {
        bit = 4;
        ok = read_bits(p, offered, "server_max_window_bits", false, &t->server_bits);
    } else if (is(p, "client_max_window_bits")) {
        bit = 8;
        ok = read_bits(p, offered, "client_max_window_bits", true, &t->client_bits);
    } else {
        return false;
    }
    ok = ok && (*seen & bit) == 0;
    *seen |= bit;
    return ok;
}

bool deflate_read_answer(const char *answer, const char *offered, struct deflate_terms *t)
{
    struct param p;
    unsigned seen = 0;
    *t = (struct deflate_terms){
        .agreed = true, .server_bits = DEFLATE_WINDOW_MAX, .client_bits = DEFLATE_WINDOW_MAX};
    int rc = next_param(&answer, &p);
    if (rc <= 0 || !is(&p, "permessage-deflate") || p.has_value)
        return false;
    while ((rc = next_param(&answer, &p)) > 0)
        if (!read_param(&p, offered, &seen, t))
            return false;
    /* What the offer demanded of the server must be in the answer. */
    if (offered_param(offered, "server_no_context_takeover", &p) && (seen & 1) == 0)
        return false;
    if (offered_param(offered, "server_max_window_bits", &p) && (seen & 4) == 0)
        return false;
    return rc == 0;
}

struct inflater {
    z_stream z;
    int bits;
    bool reset_each;
};

struct inflater *inflater_new(const struct deflate_terms *t)
{
    struct inflater *f = calloc(1, sizeof *f);
    if (f == NULL)
        return NULL;
    /* zlib refuses 8 for raw streams in some versions; a larger window reads the same. */
    f->bits = t->server_bits > 8 ? t->server_bits : 9;
    f->reset_each = t->server_no_context_takeover;
    if (inflateInit2(&f->z, -f->bits) != Z_OK) {
        free(f);
        return NULL;
    }
    return f;
}

void inflater_free(struct inflater *f)
{
    if (f == NULL)
        return;
    inflateEnd(&f->z);
    free(f);
}

/* A peer may end a deflate stream inside a message; the next one still refers to its window. */
static bool restart(struct inflater *f)
{
    Bytef window[1 << DEFLATE_WINDOW_MAX];
    uInt n = 0;
    if (inflateGetDictionary(&f->z, window, &n) != Z_OK || inflateReset(&f->z) != Z_OK)
        return false;
    return n == 0 || inflateSetDictionary(&f->z, window, n) == Z_OK;
}

bool inflater_feed(struct inflater *f, const uint8_t *p, size_t n, inflate_sink *sink, void *arg)
{
    static _Thread_local uint8_t chunk[INFLATE_CHUNK];
    f->z.next_in = (Bytef *)(uintptr_t)p;
    f->z.avail_in = (uInt)n;
    do {
        f->z.next_out = chunk;
        f->z.avail_out = sizeof chunk;
        int rc = inflate(&f->z, Z_SYNC_FLUSH);
        size_t made = sizeof chunk - f->z.avail_out;
        if (made != 0)
            sink(arg, chunk, made);
        if (rc == Z_STREAM_END) {
            if (!restart(f))
                return false;
        } else if (rc == Z_BUF_ERROR) {
            break; /* all input used, nothing left to give out */
        } else if (rc != Z_OK) {
            return false;
        }
    } while (f->z.avail_in != 0 || f->z.avail_out == 0);
    return true;
}

bool inflater_end(struct inflater *f, inflate_sink *sink, void *arg)
{
    if (!inflater_feed(f, flush_tail, sizeof flush_tail, sink, arg))
        return false;
    return !f->reset_each || inflateReset(&f->z) == Z_OK;
}
