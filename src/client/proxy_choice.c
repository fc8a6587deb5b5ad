/* Which proxy, if any: the option, the environment, and what no_proxy excepts. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "client/proxy.h"

/* ---- The address of a proxy ---- */

static bool escapes_valid(struct wire_text text)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.at[i];

        if (c <= ' ' || c == 127)
            return false;
        if (c != '%')
            continue;
        if (text.len - i < 3)
            return false;

        int high = wire_hex_value((uint8_t)text.at[i + 1]);
        int low = wire_hex_value((uint8_t)text.at[i + 2]);

        if (high < 0 || low < 0 || high * 16 + low < ' ' || high * 16 + low == 127)
            return false;
    }
    return true;
}

static bool parse_kind(struct proxy *p, struct wire_text scheme)
{
    static const struct {
        const char *scheme;
        enum proxy_kind kind;
    } kinds[] = {{"http", PROXY_HTTP}, {"socks5", PROXY_SOCKS5}, {"socks5h", PROXY_SOCKS5H}};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (wire_text_is(scheme, kinds[i].scheme)) {
            p->kind = kinds[i].kind;
            return true;
        }
    return false;
}

/* Position of the last c, or the length when there is none. */
static size_t find_last(struct wire_text text, char c)
{
    for (size_t i = text.len; i > 0; i--)
        if (text.at[i - 1] == c)
            return i - 1;
    return text.len;
}

static bool parse_userinfo(struct proxy *p, struct wire_text text)
{
    size_t colon = wire_text_find(text, ':');

    p->has_userinfo = true;
    p->user = wire_text_head(text, colon);
    p->password = wire_text_skip(text, colon + 1);
    return escapes_valid(p->user) && escapes_valid(p->password);
}

static bool host_usable(const struct wire_host *host)
{
    if (host->name.len > WIRE_URL_HOST_MAX)
        return false;
    for (size_t i = 0; i < host->name.len; i++)
        if (wire_one_of(host->name.at[i], "%!$&'()*+,;="))
            return false;
    return true;
}

/* [scheme://][user[:password]@]host[:port][/...], where http is the scheme left out. */
static const char *parse(struct proxy *p, struct wire_text text)
{
    size_t n = wire_text_find(text, ':');

    p->kind = PROXY_HTTP;
    if (wire_text_starts(wire_text_skip(text, n), "://")) {
        struct wire_text scheme = wire_text_head(text, n);

        if (wire_text_is(scheme, "https"))
            return "TLS to the proxy itself is not supported, only http:// and socks5://";
        if (!parse_kind(p, scheme))
            return "its scheme is not http, socks5 or socks5h";
        text = wire_text_skip(text, n + 3);
    }
    text = wire_text_head(text, wire_text_find_any(text, "/?#"));

    size_t at = find_last(text, '@');

    if (at < text.len) {
        if (!parse_userinfo(p, wire_text_head(text, at)))
            return "its user or password must be percent-encoded";
        text = wire_text_skip(text, at + 1);
    }
    if (!wire_host_parse(&p->host, text) || !host_usable(&p->host))
        return "its host or port is missing or malformed";
    if (p->host.port == 0)
        p->host.port = PROXY_PORT;
    return NULL;
}

/* ---- no_proxy ---- */

static struct wire_text without_last_dot(struct wire_text name)
{
    return wire_text_head(name,
                          name.len > 0 && name.at[name.len - 1] == '.' ? name.len - 1 : name.len);
}

/* example.com and .example.com name example.com and what ends in .example.com. */
static bool name_listed(struct wire_text item, struct wire_text name)
{
    item = without_last_dot(item);
    if (item.len > 0 && item.at[0] == '.')
        item = wire_text_skip(item, 1);
    if (item.len == 0 || item.len > name.len)
        return false;
    if (item.len < name.len && name.at[name.len - item.len - 1] != '.')
        return false;
    return wire_text_equal_nocase(item, wire_text_skip(name, name.len - item.len));
}

static bool text_to_address(int family, struct wire_text text, unsigned char address[16])
{
    char string[INET6_ADDRSTRLEN];

    if (text.len >= sizeof string)
        return false;
    if (text.len > 0)
        memcpy(string, text.at, text.len);
    string[text.len] = '\0';
    return inet_pton(family, string, address) == 1;
}

/* Decimal digits up to `max`, or -1. */
static int small_number(struct wire_text text, int max)
{
    int value = 0;

    for (size_t i = 0; i < text.len; i++) {
        if (!wire_is_digit((uint8_t)text.at[i]))
            return -1;
        value = value * 10 + (text.at[i] - '0');
        if (value > max)
            return -1;
    }
    return text.len > 0 ? value : -1;
}

static bool same_bits(const unsigned char *a, const unsigned char *b, int bits)
{
    int whole = bits / 8, rest = bits % 8;

    if (memcmp(a, b, (size_t)whole) != 0)
        return false;
    return rest == 0 || ((a[whole] ^ b[whole]) >> (8 - rest)) == 0;
}

/* An address, in brackets if it likes, or address/bits. A prefix of 0 bits is, as in curl, the
 * whole address: who means everything writes an asterisk. */
static bool address_listed(int family, struct wire_text item, const unsigned char *address)
{
    unsigned char network[16];
    int bits = family == AF_INET ? 32 : 128;
    size_t slash = wire_text_find(item, '/');

    if (slash < item.len) {
        int given = small_number(wire_text_skip(item, slash + 1), bits);

        if (given < 0)
            return false;
        bits = given > 0 ? given : bits;
        item = wire_text_head(item, slash);
    }
    if (item.len > 2 && item.at[0] == '[' && item.at[item.len - 1] == ']')
        item = wire_text_skip(wire_text_head(item, item.len - 1), 1);
    return text_to_address(family, item, network) && same_bits(network, address, bits);
}

bool proxy_bypassed(const char *list, const struct wire_host *host)
{
    unsigned char address[16];
    int family = 0;
    struct wire_text rest = wire_text_of(list);

    if (wire_text_equal(rest, wire_text_of("*")))
        return true;
    if (text_to_address(AF_INET, host->name, address))
        family = AF_INET;
    else if (host->ipv6 && text_to_address(AF_INET6, host->name, address))
        family = AF_INET6;
    for (; rest.len > 0; rest = wire_text_skip(rest, 1)) {
        struct wire_text item = wire_text_head(rest, wire_text_find_any(rest, ", \t"));

        if (family != 0 ? address_listed(family, item, address)
                        : name_listed(item, without_last_dot(host->name)))
            return true;
        rest = wire_text_skip(rest, item.len);
    }
    return false;
}

/* ---- The choice ---- */

static const char *from_environment(const char *name, void *arg)
{
    (void)arg;
    return secure_getenv(name);
}

/* The first variable that is set and not empty; *name tells which. */
static const char *first_set(const struct proxy_source *src, const char *const *names,
                             const char **name)
{
    const char *value;

    for (; *names != NULL; names++) {
        value = (src->lookup ? src->lookup : from_environment)(*names, src->arg);
        if (value != NULL && value[0] != '\0') {
            *name = *names;
            return value;
        }
    }
    return NULL;
}

static const char *find(const struct proxy_source *src, const struct wire_url *url,
                        const char **name)
{
    static const char *const plain[] = {"ws_proxy",  "WS_PROXY",  "http_proxy",
                                        "all_proxy", "ALL_PROXY", NULL};
    static const char *const secure[] = {"wss_proxy", "WSS_PROXY", "https_proxy", "HTTPS_PROXY",
                                         "all_proxy", "ALL_PROXY", NULL};
    static const char *const exceptions[] = {"no_proxy", "NO_PROXY", NULL};
    const char *list, *ignored;

    if (src->environment) {
        list = first_set(src, exceptions, &ignored);
        if (list != NULL && proxy_bypassed(list, &url->host))
            return NULL;
    }
    if (src->option != NULL && src->option[0] != '\0') {
        *name = "proxy";
        return src->option;
    }
    return src->environment ? first_set(src, url->tls ? secure : plain, name) : NULL;
}

int proxy_choose(struct proxy *out, const struct proxy_source *src, const struct wire_url *url,
                 struct proxy_error *err)
{
    const char *name = NULL, *fault;
    const char *value = url->is_unix ? NULL : find(src, url, &name);

    *out = (struct proxy){.kind = PROXY_NONE, .allocator = src->allocator};
    if (value == NULL)
        return 0;
    if (strlen(value) > WIRE_URL_MAX)
        return proxy_say(err, -EINVAL, "the address of a proxy in %s is too long", name);
    out->text = base_strdup(src->allocator, value);
    if (out->text == NULL)
        return -ENOMEM;
    out->from = name;
    fault = parse(out, wire_text_of(out->text));
    if (fault == NULL)
        return 0;
    proxy_release(out);
    return proxy_say(err, -EINVAL, "%s does not hold the address of a proxy: %s", name, fault);
}

void proxy_release(struct proxy *p)
{
    base_free(p->allocator, p->text);
    *p = (struct proxy){.kind = PROXY_NONE};
}
