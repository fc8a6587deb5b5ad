/*
 * Origins against hosts and the patterns of an allow-list. Input: lines: an origin, a Host, a
 * pattern.
 */
#include "wire/origin.h"
#include "fuzz.h"

/* What an origin may look like at all: scheme, "://", host, port, and nothing behind it. */
static bool plain_origin(const char *text, size_t len)
{
    const char *colon = memchr(text, ':', len);

    if (!colon || len - (size_t)(colon - text) < 4 || memcmp(colon, "://", 3) != 0)
        return false;
    for (const char *p = colon + 3; p < text + len; p++)
        if (*p <= ' ' || *p > '~' || strchr("/?#@\\", *p))
            return false;
    return true;
}

static void check_parsed(const char *text, size_t len)
{
    struct wire_text t = {text, len};
    struct wire_origin origin;

    if (!wire_origin_parse(&origin, t))
        return;
    FUZZ_CHECK(plain_origin(text, len));
    FUZZ_CHECK(origin.scheme.len > 0 && origin.host.name.len > 0);
    FUZZ_CHECK(origin.scheme.at == text &&
               origin.host.name.at + origin.host.name.len <= text + len);
    FUZZ_CHECK(wire_origin_matches(t, wire_text_of("*")));
    FUZZ_CHECK(wire_origin_pattern_valid(t) ? wire_origin_matches(t, t) || origin.host.port == 0
                                            : true);
}

static void check_same(struct wire_text origin, struct wire_text host)
{
    struct wire_origin o;
    struct wire_host h;

    for (int tls = 0; tls < 2; tls++) {
        if (!wire_origin_same(origin, host, tls))
            continue;
        FUZZ_CHECK(wire_origin_parse(&o, origin) && wire_host_parse(&h, host));
        FUZZ_CHECK(wire_text_is(o.scheme, tls ? "https" : "http"));
        FUZZ_CHECK(wire_text_equal_nocase(o.host.name, h.name) && o.host.ipv6 == h.ipv6);
        FUZZ_CHECK(o.host.port == (h.port ? h.port : tls ? 443 : 80));
    }
}

static void check_match(struct wire_text origin, struct wire_text pattern)
{
    struct wire_origin o;
    bool matches = wire_origin_matches(origin, pattern);

    if (!matches)
        return;
    FUZZ_CHECK(wire_origin_pattern_valid(pattern));
    if (!wire_origin_parse(&o, origin)) {
        FUZZ_CHECK(wire_text_is(origin, "null"));
        return;
    }
    if (pattern.len > 2 && memcmp(pattern.at, "*.", 2) == 0 &&
        wire_text_find(wire_text_skip(pattern, 2), ':') == pattern.len - 2) {
        struct wire_text tail = wire_text_skip(pattern, 1);

        FUZZ_CHECK(o.host.name.len > tail.len);
        FUZZ_CHECK(
            wire_text_equal_nocase(wire_text_skip(o.host.name, o.host.name.len - tail.len), tail));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    size_t origin_len, host_len, pattern_len;
    char *origin = fuzz_line(&in, &origin_len), *host = fuzz_line(&in, &host_len);
    char *pattern = fuzz_line(&in, &pattern_len);
    struct wire_text o = {origin, origin_len}, h = {host, host_len}, p = {pattern, pattern_len};
    struct wire_host parsed;

    check_parsed(origin, origin_len);
    check_same(o, h);
    check_match(o, p);
    wire_ipv6_valid(h);
    if (wire_host_parse(&parsed, h))
        FUZZ_CHECK(parsed.name.len > 0 && (!parsed.ipv6 || wire_ipv6_valid(parsed.name)));
    free(pattern);
    free(host);
    free(origin);
    return 0;
}
