#include "wire/origin.h"

/* Characters of reg-name besides escapes (RFC 3986 3.2.2). */
static bool reg_name_char(char c)
{
    return wire_is_alpha((uint8_t)c) || wire_is_digit((uint8_t)c) ||
           wire_one_of(c, "-._~!$&'()*+,;=");
}

static bool reg_name_valid(struct wire_text name)
{
    for (size_t i = 0; i < name.len; i++) {
        if (name.at[i] == '%') {
            if (name.len - i < 3 || wire_hex_value((uint8_t)name.at[i + 1]) < 0 ||
                wire_hex_value((uint8_t)name.at[i + 2]) < 0)
                return false;
            i += 2;
        } else if (!reg_name_char(name.at[i])) {
            return false;
        }
    }
    return name.len > 0;
}

/* Four numbers up to 255, without leading zeros, between dots (RFC 3986 3.2.2). */
static bool ipv4_valid(struct wire_text text)
{
    for (int part = 0; part < 4; part++) {
        struct wire_text digits = wire_text_head(text, wire_text_find(text, '.'));
        unsigned number = 0;

        if (digits.len < 1 || digits.len > 3 || (digits.len > 1 && digits.at[0] == '0'))
            return false;
        for (size_t i = 0; i < digits.len; i++) {
            if (!wire_is_digit((uint8_t)digits.at[i]))
                return false;
            number = number * 10 + (unsigned)(digits.at[i] - '0');
        }
        if (number > 255 || (part < 3 && digits.len == text.len))
            return false;
        text = wire_text_skip(text, part < 3 ? digits.len + 1 : digits.len);
    }
    return text.len == 0;
}

bool wire_ipv6_valid(struct wire_text text)
{
    unsigned groups = 0;
    bool gap = false; /* "::" was seen */

    if (wire_text_starts(text, "::")) {
        gap = true;
        text = wire_text_skip(text, 2);
    }
    while (text.len > 0) {
        size_t n = 0;

        while (n < text.len && n < 5 && wire_hex_value((uint8_t)text.at[n]) >= 0)
            n++;
        if (n < text.len && text.at[n] == '.') { /* the last two groups as an IPv4 address */
            groups += 2;
            return ipv4_valid(text) && (gap ? groups < 8 : groups == 8);
        }
        if (n < 1 || n > 4 || ++groups > 8)
            return false;
        text = wire_text_skip(text, n);
        if (text.len == 0)
            break;
        if (wire_text_starts(text, "::") && !gap) {
            gap = true;
            text = wire_text_skip(text, 2);
        } else if (text.at[0] == ':' && text.len > 1) {
            text = wire_text_skip(text, 1);
        } else {
            return false;
        }
    }
    return gap ? groups < 8 : groups == 8;
}

/* Port digits; empty is 0. False for port 0 and for more than 65535. */
static bool parse_port(struct wire_text digits, uint16_t *port)
{
    uint32_t number = 0;

    for (size_t i = 0; i < digits.len; i++) {
        if (!wire_is_digit((uint8_t)digits.at[i]))
            return false;
        number = number * 10 + (uint32_t)(digits.at[i] - '0');
        if (number > 65535)
            return false;
    }
    *port = (uint16_t)number;
    return number > 0 || digits.len == 0;
}

bool wire_host_parse(struct wire_host *host, struct wire_text text)
{
    size_t n;

    *host = (struct wire_host){.ipv6 = text.len > 0 && text.at[0] == '['};
    if (host->ipv6) {
        text = wire_text_skip(text, 1);
        n = wire_text_find(text, ']');
        host->name = wire_text_head(text, n);
        if (n == text.len || !wire_ipv6_valid(host->name))
            return false;
        text = wire_text_skip(text, n + 1);
    } else {
        n = wire_text_find(text, ':');
        host->name = wire_text_head(text, n);
        if (!reg_name_valid(host->name))
            return false;
        text = wire_text_skip(text, n);
    }
    if (text.len == 0)
        return true;
    return text.at[0] == ':' && parse_port(wire_text_skip(text, 1), &host->port);
}

/* 0 when the scheme is not known. */
static uint16_t default_port(struct wire_text scheme)
{
    if (wire_text_is(scheme, "http") || wire_text_is(scheme, "ws"))
        return 80;
    return wire_text_is(scheme, "https") || wire_text_is(scheme, "wss") ? 443 : 0;
}

/* Cuts scheme "://" off the start of `text`. False when there is none, or it is malformed. */
static bool take_scheme(struct wire_text *text, struct wire_text *scheme)
{
    size_t n = wire_text_find(*text, ':');

    *scheme = wire_text_head(*text, n);
    if (!wire_text_starts(wire_text_skip(*text, n), "://"))
        return false;
    for (size_t i = 0; i < n; i++) {
        uint8_t c = (uint8_t)text->at[i];

        if (!wire_is_alpha(c) &&
            (i == 0 || !(wire_is_digit(c) || c == '+' || c == '-' || c == '.')))
            return false;
    }
    *text = wire_text_skip(*text, n + 3);
    return n > 0;
}

bool wire_origin_parse(struct wire_origin *origin, struct wire_text text)
{
    if (!take_scheme(&text, &origin->scheme) || !wire_host_parse(&origin->host, text))
        return false;
    if (origin->host.port == 0)
        origin->host.port = default_port(origin->scheme);
    return true;
}

bool wire_origin_same(struct wire_text origin, struct wire_text host, bool tls)
{
    struct wire_origin page;
    struct wire_host asked;

    if (!wire_origin_parse(&page, origin) || !wire_host_parse(&asked, host))
        return false;
    if (asked.port == 0)
        asked.port = tls ? 443 : 80;
    return wire_text_is(page.scheme, tls ? "https" : "http") && page.host.port == asked.port &&
           page.host.ipv6 == asked.ipv6 && wire_text_equal_nocase(page.host.name, asked.name);
}

struct pattern {
    struct wire_text scheme; /* empty: any */
    struct wire_host host;   /* port 0: the scheme's */
    bool labels;             /* one or more labels stand before the host */
    bool any_port;
};

static bool parse_pattern(struct pattern *p, struct wire_text text)
{
    *p = (struct pattern){.any_port = false};
    if (wire_text_find(text, '/') < text.len && !take_scheme(&text, &p->scheme))
        return false;
    if (wire_text_starts(text, "*.")) {
        p->labels = true;
        text = wire_text_skip(text, 2);
    }
    if (text.len > 2 && wire_text_starts(wire_text_skip(text, text.len - 2), ":*")) {
        p->any_port = true;
        text.len -= 2;
    }
    /* An asterisk is a character of reg-name: a misplaced one would never match, silently. */
    if (wire_text_find(text, '*') < text.len || !wire_host_parse(&p->host, text))
        return false;
    return !(p->labels && p->host.ipv6) && !(p->any_port && p->host.port != 0);
}

bool wire_origin_pattern_valid(struct wire_text pattern)
{
    struct pattern p;

    return wire_text_is(pattern, "*") || wire_text_is(pattern, "null") ||
           parse_pattern(&p, pattern);
}

static bool host_matches(const struct wire_host *host, const struct pattern *p)
{
    struct wire_text end = host->name;

    if (host->ipv6 != p->host.ipv6)
        return false;
    if (p->labels) {
        if (end.len < p->host.name.len + 2)
            return false;
        end = wire_text_skip(end, end.len - p->host.name.len - 1);
        if (end.at[0] != '.')
            return false;
        end = wire_text_skip(end, 1);
    }
    return wire_text_equal_nocase(end, p->host.name);
}

bool wire_origin_matches(struct wire_text origin, struct wire_text pattern)
{
    struct wire_origin page;
    struct pattern p;

    if (wire_text_equal(origin, wire_text_of("null")))
        return wire_text_is(pattern, "*") || wire_text_is(pattern, "null");
    if (!wire_origin_parse(&page, origin))
        return false;
    if (wire_text_is(pattern, "*"))
        return true;
    if (wire_text_is(pattern, "null") || !parse_pattern(&p, pattern))
        return false;

    uint16_t port = p.host.port != 0 ? p.host.port : default_port(page.scheme);

    return (p.scheme.len == 0 || wire_text_equal_nocase(page.scheme, p.scheme)) &&
           host_matches(&page.host, &p) && (p.any_port || page.host.port == port);
}
