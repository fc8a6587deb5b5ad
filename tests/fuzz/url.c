/*
 * Addresses: what parses is written back to one that parses to the same; where a redirect leads; what
 * is a proxy's address, and which hosts go without one.
 *
 * Input: lines: an address, a Location, an address of a proxy, a no_proxy list.
 */
#include "wire/url.h"
#include "client/proxy.h"
#include "client/redirect.h"
#include "fuzz.h"

static bool within(struct wire_text part, const char *text, size_t len)
{
    return part.len == 0 || (part.at >= text && part.at + part.len <= text + len);
}

static bool same(struct wire_text a, struct wire_text b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.at, b.at, a.len) == 0);
}

typedef size_t writer(const struct wire_url *url, char *out, size_t cap);

/* Writes into a block of exactly the right size, and into one that is too small. */
static char *write_part(writer *write, const struct wire_url *url, size_t *len)
{
    char *out;

    *len = write(url, NULL, 0);
    out = malloc(*len + 1);
    FUZZ_CHECK(out != NULL && write(url, out, *len) == *len);
    if (*len > 1) {
        char *less = malloc(*len / 2);

        FUZZ_CHECK(write(url, less, *len / 2) == *len && memcmp(less, out, *len / 2) == 0);
        free(less);
    }
    out[*len] = 0;
    return out;
}

static void check_decoded(struct wire_text text, bool controls)
{
    size_t n = wire_url_decode(text, NULL, 0);
    char *out = malloc(n + 1);

    FUZZ_CHECK(out != NULL && n <= text.len && wire_url_decode(text, out, n) == n);
    FUZZ_CHECK(controls || (memchr(out, 13, n) == NULL && memchr(out, 10, n) == NULL));
    free(out);
}

/* scheme, host and target put together again. */
static void check_again(const struct wire_url *url)
{
    size_t target_len, host_len;
    char *target = write_part(wire_url_target, url, &target_len);
    char *host = write_part(wire_url_host, url, &host_len);
    char *text = malloc(target_len + host_len + 16);
    struct wire_url again;

    FUZZ_CHECK(target[0] == '/' && strchr(target, ' ') == NULL && strchr(host, '/') == NULL);
    FUZZ_CHECK(text != NULL);
    if (!url->is_unix) {
        size_t len = (size_t)sprintf(text, "%s://%s%s", url->tls ? "wss" : "ws", host, target);

        FUZZ_CHECK(wire_url_parse(&again, (struct wire_text){text, len}) ==
                   (len > WIRE_URL_MAX ? WIRE_URL_TOO_LONG : WIRE_URL_OK));
        FUZZ_CHECK(len > WIRE_URL_MAX ||
                   (again.tls == url->tls && again.host.port == url->host.port &&
                    again.host.ipv6 == url->host.ipv6 && same(again.host.name, url->host.name) &&
                    same(again.query, url->query) && !again.has_userinfo));
    }
    free(text);
    free(host);
    free(target);
}

static bool check_url(struct wire_url *url, const char *text, size_t len)
{
    enum wire_url_error error = wire_url_parse(url, (struct wire_text){text, len});
    size_t n;

    FUZZ_CHECK(wire_url_error_text(error) != NULL);
    if (error)
        return false;
    FUZZ_CHECK(len <= WIRE_URL_MAX && within(url->host.name, text, len));
    FUZZ_CHECK(within(url->user, text, len) && within(url->password, text, len));
    FUZZ_CHECK(within(url->path, text, len) && within(url->query, text, len));
    FUZZ_CHECK(url->is_unix == (url->host.name.len == 0) && url->is_unix == (url->host.port == 0));
    FUZZ_CHECK(url->is_unix == (url->unix_path.len > 0));
    FUZZ_CHECK(url->host.name.len <= WIRE_URL_HOST_MAX);
    check_decoded(url->user, false);
    check_decoded(url->password, false);
    check_decoded(url->unix_path, true);
    check_again(url);
    if (!url->is_unix)
        free(write_part(wire_url_authority, url, &n));
    return true;
}

static void check_redirect(const struct wire_url *base, size_t base_len, const char *location,
                           size_t len)
{
    struct redirect r = {.cap = REDIRECT_ROOM(base_len, len)};
    enum redirect_fault fault;

    r.text = malloc(r.cap);
    FUZZ_CHECK(r.text != NULL);
    fault = redirect_resolve(&r, base, NULL, (struct wire_text){location, len});
    if (fault) {
        FUZZ_CHECK(redirect_fault_text(&r, fault)[0] != 0);
    } else {
        struct wire_url again;

        FUZZ_CHECK(strlen(r.text) < r.cap);
        FUZZ_CHECK(wire_url_parse(&again, wire_text_of(r.text)) == WIRE_URL_OK);
        FUZZ_CHECK(!base->tls || again.tls); /* never to a plain one */
        FUZZ_CHECK(r.same_host || !again.has_userinfo);
        FUZZ_CHECK(!r.same_host || base->is_unix ||
                   wire_text_equal_nocase(base->host.name, again.host.name));
    }
    free(r.text);
}

static const char *lookup(const char *name, void *arg)
{
    return strcmp(name, "no_proxy") == 0 ? arg : NULL;
}

static void check_proxy(const struct wire_url *url, const char *address, char *bypass)
{
    struct proxy_source source = {
        .option = address, .environment = true, .lookup = lookup, .arg = bypass};
    struct proxy_error err = {.status = 0};
    struct proxy p;
    char name[320];
    int result = proxy_choose(&p, &source, url, &err);

    FUZZ_CHECK(result == 0 || (result == -22 && err.text[0] != 0)); /* -EINVAL */
    if (result < 0)
        return;
    FUZZ_CHECK(p.kind == PROXY_NONE || (p.host.name.len > 0 && p.host.port > 0));
    FUZZ_CHECK(proxy_name(&p, name, sizeof name) < sizeof name);
    FUZZ_CHECK(!p.has_userinfo || p.password.len == 0 || strstr(name, "@") == NULL);
    proxy_release(&p);
    if (!url->is_unix && proxy_bypassed(bypass, &url->host))
        FUZZ_CHECK(p.kind == PROXY_NONE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    size_t len, location_len, proxy_len, bypass_len;
    char *text = fuzz_line(&in, &len), *location = fuzz_line(&in, &location_len);
    char *proxy = fuzz_line(&in, &proxy_len), *bypass = fuzz_line(&in, &bypass_len);
    struct wire_url url;

    if (check_url(&url, text, len)) {
        check_redirect(&url, len, location, location_len);
        check_proxy(&url, proxy, bypass);
    }
    free(bypass);
    free(proxy);
    free(location);
    free(text);
    return 0;
}
