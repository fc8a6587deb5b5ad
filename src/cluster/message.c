#include "cluster/message.h"

#include "wire/sha1.h"

#include <string.h>

static const char magic[4] = {'T', 'W', 'S', 'C'};

#define VERSION 1

/* Where things stand in the head; numbers have the most significant byte first. */
enum {
    AT_VERSION = 4,
    AT_KIND = 5,
    AT_WHAT = 6,
    AT_ZERO = 7,
    AT_ORIGIN = 8,
    AT_STREAM = 24,
    AT_SEQ = 32,
    AT_MEMBERS = 40,
    AT_BEAT = 48,
    AT_NAME_LEN = 52,
    AT_END = 54 /* two zeros */
};

static void put(uint8_t *out, uint64_t n, size_t bytes)
{
    while (bytes > 0) {
        out[--bytes] = (uint8_t)n;
        n >>= 8;
    }
}

static uint64_t get(const uint8_t *in, size_t bytes)
{
    uint64_t n = 0;

    for (size_t i = 0; i < bytes; i++)
        n = n << 8 | in[i];
    return n;
}

void cluster_message_write(uint8_t *out, const struct cluster_message *m)
{
    memset(out, 0, CLUSTER_HEAD);
    memcpy(out, magic, sizeof magic);
    out[AT_VERSION] = VERSION;
    out[AT_KIND] = (uint8_t)m->kind;
    out[AT_WHAT] = m->what;
    memcpy(out + AT_ORIGIN, m->origin, CLUSTER_ORIGIN);
    cluster_message_number(out, m->stream, m->seq);
    put(out + AT_MEMBERS, m->members, 8);
    put(out + AT_BEAT, m->beat_ms, 4);
    put(out + AT_NAME_LEN, m->name_len, 2);
    if (m->name_len > 0)
        memcpy(out + CLUSTER_HEAD, m->name, m->name_len);
    if (m->len > 0)
        memcpy(out + CLUSTER_HEAD + m->name_len, m->data, m->len);
}

void cluster_message_number(uint8_t *out, uint64_t stream, uint64_t seq)
{
    put(out + AT_STREAM, stream, 8);
    put(out + AT_SEQ, seq, 8);
}

static bool is_sound(const struct cluster_message *m)
{
    if (m->stream == 0 || memchr(m->name, 0, m->name_len))
        return false;
    if (m->kind == CLUSTER_DATA)
        return (m->what == 1 || m->what == 2) && m->seq > 0;
    return m->kind == CLUSTER_BEAT && m->what <= (CLUSTER_ASK | CLUSTER_GONE) && m->len == 0 &&
           m->beat_ms > 0 && m->beat_ms <= CLUSTER_BEAT_MS_MAX;
}

bool cluster_message_read(struct cluster_message *m, const void *data, size_t len)
{
    const uint8_t *in = data;

    if (len < CLUSTER_HEAD || memcmp(in, magic, sizeof magic) != 0 || in[AT_VERSION] != VERSION ||
        in[AT_ZERO] != 0 || get(in + AT_END, 2) != 0)
        return false;
    m->kind = (enum cluster_kind)in[AT_KIND];
    m->what = in[AT_WHAT];
    memcpy(m->origin, in + AT_ORIGIN, CLUSTER_ORIGIN);
    m->stream = get(in + AT_STREAM, 8);
    m->seq = get(in + AT_SEQ, 8);
    m->members = get(in + AT_MEMBERS, 8);
    m->beat_ms = (uint32_t)get(in + AT_BEAT, 4);
    m->name_len = (size_t)get(in + AT_NAME_LEN, 2);
    if (m->name_len > len - CLUSTER_HEAD)
        return false;
    m->name = (const char *)in + CLUSTER_HEAD;
    m->data = in + CLUSTER_HEAD + m->name_len;
    m->len = len - CLUSTER_HEAD - m->name_len;
    return is_sound(m);
}

/* ---- Subjects ---- */

static bool is_plain(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_';
}

bool cluster_prefix_valid(const char *prefix)
{
    size_t len = strlen(prefix);
    bool dot = true; /* at the beginning, behind another, or at the end it makes an empty token */

    for (size_t i = 0; i < len; i++) {
        if (!is_plain(prefix[i]) && (prefix[i] != '.' || dot))
            return false;
        dot = prefix[i] == '.';
    }
    return len > 0 && len <= CLUSTER_PREFIX_MAX && !dot;
}

static const char hex[] = "0123456789abcdef";

/* 0: it would be too long. */
static size_t escape(char *out, const char *name, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        if (n + 3 > CLUSTER_TOKEN_MAX)
            return 0;
        if (is_plain(name[i])) {
            out[n++] = name[i];
            continue;
        }
        out[n++] = '=';
        out[n++] = hex[(uint8_t)name[i] >> 4];
        out[n++] = hex[(uint8_t)name[i] & 15];
    }
    if (n == 0)
        out[n++] = '='; /* the room "": no other escape is this short */
    return n;
}

static size_t hash(char *out, const char *name, size_t len, size_t digits)
{
    uint8_t digest[WIRE_SHA1_LEN];

    wire_sha1(name, len, digest);
    out[0] = '~';
    for (size_t i = 0; i < digits; i++)
        out[1 + i] = hex[digest[i / 2] >> (i % 2 ? 0 : 4) & 15];
    return 1 + digits;
}

size_t cluster_subject(char out[CLUSTER_SUBJECT_MAX], const char *prefix, const char *name,
                       size_t name_len, size_t hash_digits)
{
    size_t n = strlen(prefix), token;

    memcpy(out, prefix, n);
    memcpy(out + n, name ? ".r." : ".all", name ? 3 : 4);
    n += name ? 3 : 4;
    if (name) {
        token = escape(out + n, name, name_len);
        n += token > 0 ? token : hash(out + n, name, name_len, hash_digits);
    }
    out[n] = 0;
    return n;
}
