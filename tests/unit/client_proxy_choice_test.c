/*
 * Which proxy a dial goes through: the option, the environment and no_proxy, as curl reads them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/proxy.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* An environment: "name=value" words, separated by bars; "name=" is set and empty. */
static const char *lookup(const char *name, void *arg)
{
    static char value[512];
    size_t n = strlen(name);

    for (const char *at = arg; at != NULL && *at != '\0';) {
        size_t len = strcspn(at, "|");

        if (len > n && strncmp(at, name, n) == 0 && at[n] == '=') {
            snprintf(value, sizeof value, "%.*s", (int)(len - n - 1), at + n + 1);
            return value;
        }
        at += len + (at[len] == '|');
    }
    return NULL;
}

static struct wire_url url_of(const char *text)
{
    struct wire_url url;

    assert_int_equal(wire_url_parse(&url, wire_text_of(text)), WIRE_URL_OK);
    return url;
}

static int choose(struct proxy *p, const char *option, const char *environment, const char *url,
                  struct proxy_error *err)
{
    struct wire_url parsed = url_of(url);
    struct proxy_source src = {
        .option = option,
        .environment = environment != NULL,
        .lookup = lookup,
        .arg = (void *)(uintptr_t)environment,
    };

    return proxy_choose(p, &src, &parsed, err);
}

/* ---- Addresses of proxies ---- */

static void assert_text(struct wire_text text, const char *expected)
{
    assert_int_equal(text.len, strlen(expected));
    if (text.len > 0)
        assert_memory_equal(text.at, expected, text.len);
}

static void test_address(void **state)
{
    static const struct {
        const char *text;
        const char *name; /* without user information, port filled in */
        const char *user, *password;
    } table[] = {
        {"http://10.0.0.1:3128", "http://10.0.0.1:3128", NULL, NULL},
        {"10.0.0.1:3128", "http://10.0.0.1:3128", NULL, NULL},
        {"proxy", "http://proxy:1080", NULL, NULL},
        {"http://proxy", "http://proxy:1080", NULL, NULL},
        {"HTTP://proxy:1/", "http://proxy:1", NULL, NULL},
        {"http://proxy:8080/path?query#fragment", "http://proxy:8080", NULL, NULL},
        {"socks5://localhost", "socks5://localhost:1080", NULL, NULL},
        {"socks5h://[::1]:9050", "socks5h://[::1]:9050", NULL, NULL},
        {"http://user:secret@proxy:80", "http://proxy:80", "user", "secret"},
        {"user:secret@proxy", "http://proxy:1080", "user", "secret"},
        {"socks5h://user@proxy", "socks5h://proxy:1080", "user", ""},
        {"http://:secret@proxy", "http://proxy:1080", "", "secret"},
        {"http://a:b:c@proxy", "http://proxy:1080", "a", "b:c"},
        {"http://a:p@ss@proxy", "http://proxy:1080", "a", "p@ss"},
        {"http://a%3ab:%40%20@proxy", "http://proxy:1080", "a%3ab", "%40%20"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct proxy p;
        struct proxy_error err = {0};
        char name[64];

        if (choose(&p, table[i].text, NULL, "ws://h/", &err) != 0)
            fail_msg("%s: %s", table[i].text, err.text);
        assert_int_equal(proxy_name(&p, name, sizeof name), strlen(table[i].name));
        assert_string_equal(name, table[i].name);
        assert_string_equal(p.from, "proxy");
        assert_int_equal(p.has_userinfo, table[i].user != NULL);
        if (p.has_userinfo) {
            assert_text(p.user, table[i].user);
            assert_text(p.password, table[i].password);
        }
        proxy_release(&p);
        assert_int_equal(p.kind, PROXY_NONE);
    }
}

static void test_no_address(void **state)
{
    static const struct {
        const char *text;
        const char *why; /* a piece of the sentence */
    } table[] = {
        {"https://proxy:443", "TLS to the proxy"},
        {"ftp://proxy", "scheme"},
        {"socks4://proxy", "scheme"},
        {"socks://proxy", "scheme"},
        {"://proxy", "scheme"},
        {"http://", "host"},
        {"http:///path", "host"},
        {"http://proxy:0", "host or port"},
        {"http://proxy:65536", "host or port"},
        {"http://proxy:x", "host or port"},
        {"http://[::1", "host"},
        {"http://::1", "host"},
        {"http://a b/", "host"},
        {"http://pro%20xy", "host"},
        {"http://pro\r\nxy", "host"},
        {"http://user:%zz@proxy", "percent-encoded"},
        {"http://user:%4@proxy", "percent-encoded"},
        {"http://us%0d%0aer@proxy", "percent-encoded"},
        {"http://us er@proxy", "percent-encoded"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct proxy p;
        struct proxy_error err = {0};

        if (choose(&p, table[i].text, NULL, "ws://h/", &err) != -EINVAL)
            fail_msg("%s was taken", table[i].text);
        if (strstr(err.text, table[i].why) == NULL || strncmp(err.text, "proxy ", 6) != 0)
            fail_msg("%s: %s", table[i].text, err.text);
        assert_null(p.text);
    }
}

static void test_too_long(void **state)
{
    static char text[WIRE_URL_MAX + 2];
    struct proxy p;
    struct proxy_error err = {0};

    (void)state;
    memset(text, 'a', WIRE_URL_MAX + 1);
    assert_int_equal(choose(&p, text, NULL, "ws://h/", &err), -EINVAL);
    assert_non_null(strstr(err.text, "too long"));
}

/* ---- The environment ---- */

static void test_environment(void **state)
{
    static const struct {
        const char *option, *environment, *url;
        const char *name, *from; /* NULL: no proxy */
    } table[] = {
        {NULL, "", "ws://h/", NULL, NULL},
        {NULL, NULL, "ws://h/", NULL, NULL},
        {"", NULL, "ws://h/", NULL, NULL},
        /* The scheme decides, and all_proxy serves what has none of its own. */
        {NULL, "http_proxy=a|https_proxy=b", "ws://h/", "http://a:1080", "http_proxy"},
        {NULL, "http_proxy=a|https_proxy=b", "wss://h/", "http://b:1080", "https_proxy"},
        {NULL, "http_proxy=a", "wss://h/", NULL, NULL},
        {NULL, "https_proxy=b", "ws://h/", NULL, NULL},
        {NULL, "all_proxy=socks5h://c", "ws://h/", "socks5h://c:1080", "all_proxy"},
        {NULL, "all_proxy=socks5h://c", "wss://h/", "socks5h://c:1080", "all_proxy"},
        {NULL, "all_proxy=c|http_proxy=a", "ws://h/", "http://a:1080", "http_proxy"},
        {NULL, "ws_proxy=w|http_proxy=a", "ws://h/", "http://w:1080", "ws_proxy"},
        {NULL, "WSS_PROXY=w|https_proxy=a", "wss://h/", "http://w:1080", "WSS_PROXY"},
        /* Upper case serves too, save HTTP_PROXY, which a request's "Proxy:" header sets in CGI. */
        {NULL, "HTTP_PROXY=a", "ws://h/", NULL, NULL},
        {NULL, "HTTP_PROXY=a|ALL_PROXY=c", "ws://h/", "http://c:1080", "ALL_PROXY"},
        {NULL, "HTTPS_PROXY=b", "wss://h/", "http://b:1080", "HTTPS_PROXY"},
        {NULL, "https_proxy=a|HTTPS_PROXY=b", "wss://h/", "http://a:1080", "https_proxy"},
        /* Set but empty is not set. */
        {NULL, "http_proxy=|all_proxy=c", "ws://h/", "http://c:1080", "all_proxy"},
        {NULL, "http_proxy=a|no_proxy=|NO_PROXY=h", "ws://h/", NULL, NULL},
        /* Exceptions. */
        {NULL, "http_proxy=a|no_proxy=h", "ws://h/", NULL, NULL},
        {NULL, "http_proxy=a|no_proxy=h", "ws://i/", "http://a:1080", "http_proxy"},
        {NULL, "http_proxy=a|NO_PROXY=h", "ws://h/", NULL, NULL},
        {NULL, "http_proxy=a|no_proxy=i|NO_PROXY=h", "ws://h/", "http://a:1080", "http_proxy"},
        {NULL, "http_proxy=a|no_proxy=*", "ws://h/", NULL, NULL},
        /* The option. */
        {"b", "http_proxy=a", "ws://h/", "http://b:1080", "proxy"},
        {"b", "no_proxy=h", "ws://h/", NULL, NULL},
        {"b", NULL, "ws://h/", "http://b:1080", "proxy"},
        {"", "http_proxy=a", "ws://h/", "http://a:1080", "http_proxy"},
        /* Unix sockets. */
        {NULL, "http_proxy=a", "ws+unix:/s", NULL, NULL},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct proxy p;
        struct proxy_error err = {0};
        char name[64] = "none";

        if (choose(&p, table[i].option, table[i].environment, table[i].url, &err) != 0)
            fail_msg("%zu: %s", i, err.text);
        if (p.kind != PROXY_NONE)
            proxy_name(&p, name, sizeof name);
        if (strcmp(name, table[i].name ? table[i].name : "none") != 0)
            fail_msg("%zu: %s", i, name);
        if (table[i].from)
            assert_string_equal(p.from, table[i].from);
        proxy_release(&p);
    }
}

static void test_environment_fault(void **state)
{
    struct proxy p;
    struct proxy_error err = {0};

    (void)state;
    assert_int_equal(choose(&p, NULL, "all_proxy=ftp://c", "ws://h/", &err), -EINVAL);
    assert_int_equal(strncmp(err.text, "all_proxy ", 10), 0);
}

/* The real one: this process's. */
static void test_getenv(void **state)
{
    struct wire_url url = url_of("wss://h/");
    struct proxy_source src = {.environment = true};
    struct proxy_error err = {0};
    struct proxy p;

    (void)state;
    unsetenv("wss_proxy");
    unsetenv("WSS_PROXY");
    unsetenv("no_proxy");
    unsetenv("NO_PROXY");
    setenv("https_proxy", "http://proxy.example:3128", 1);
    assert_int_equal(proxy_choose(&p, &src, &url, &err), 0);
    assert_int_equal(p.kind, PROXY_HTTP);
    assert_int_equal(p.host.port, 3128);
    /* The choice outlives the variable. */
    setenv("https_proxy", "xxxxxxxxxxxxxxxxxxxxxxxxx", 1);
    unsetenv("https_proxy");
    assert_text(p.host.name, "proxy.example");
    proxy_release(&p);
}

/* ---- no_proxy ---- */

static const struct {
    const char *list;
    const char *url;
    bool bypassed;
} bypasses[] = {
    {"*", "ws://h/", true},
    {"*", "ws://10.0.0.1/", true},
    {"*,other", "ws://h/", false},
    {"* ", "ws://h/", false},
    {"other,*", "ws://h/", false},
    {"", "ws://h/", false},
    {",,, ,", "ws://h/", false},
    /* Names: itself, and every name below it. */
    {"example.com", "ws://example.com/", true},
    {"example.com", "ws://www.example.com/", true},
    {"example.com", "ws://a.b.example.com/", true},
    {"example.com", "ws://nonexample.com/", false},
    {"example.com", "ws://example.com.org/", false},
    {"example.com", "ws://com/", false},
    {".example.com", "ws://example.com/", true},
    {".example.com", "ws://www.example.com/", true},
    {".example.com", "ws://nonexample.com/", false},
    {"*.example.com", "ws://www.example.com/", false},
    {"EXAMPLE.com", "ws://Example.COM/", true},
    {"example.com.", "ws://example.com/", true},
    {"example.com", "ws://example.com./", true},
    {".", "ws://example.com/", false},
    {"..", "ws://example.com/", false},
    {"example.com:8080", "ws://example.com:8080/", false},
    /* Lists. */
    {"a,b,c", "ws://b/", true},
    {"a, b ,\tc", "ws://c/", true},
    {" a", "ws://a/", true},
    {"a,,b", "ws://b/", true},
    {",a", "ws://a/", true},
    {"a b", "ws://a/", true},
    {"a b", "ws://b/", true},
    /* Addresses. */
    {"127.0.0.1", "ws://127.0.0.1:99/", true},
    {"127.0.0.1", "ws://127.0.0.2/", false},
    {"127.0.0.1", "ws://1.127.0.0.1.example/", false},
    {"10.0.0.0/8", "ws://10.255.0.1/", true},
    {"10.0.0.0/8", "ws://11.0.0.1/", false},
    {"192.168.1.0/25", "ws://192.168.1.127/", true},
    {"192.168.1.0/25", "ws://192.168.1.128/", false},
    {"192.168.1.77/25", "ws://192.168.1.1/", true},
    {"192.168.1.1/32", "ws://192.168.1.1/", true},
    {"192.168.1.1/33", "ws://192.168.1.1/", false},
    {"192.168.1.1/", "ws://192.168.1.1/", false},
    {"192.168.1.1/x", "ws://192.168.1.1/", false},
    {"192.168.1.1/-1", "ws://192.168.1.1/", false},
    {"0.0.0.0/0", "ws://192.168.1.1/", false},
    {"192.168.1", "ws://192.168.1.1/", false},
    {".0.0.1", "ws://127.0.0.1/", false},
    {"::1", "ws://[::1]/", true},
    {"[::1]", "ws://[::1]:9001/", true},
    {"0:0::1", "ws://[::1]/", true},
    {"::2", "ws://[::1]/", false},
    {"2001:db8::/32", "ws://[2001:db8:ffff::1]/", true},
    {"2001:db8::/32", "ws://[2001:db9::1]/", false},
    {"2001:db8::/31", "ws://[2001:db9::1]/", true},
    {"2001:db8::1/128", "ws://[2001:db8::1]/", true},
    {"2001:db8::1/129", "ws://[2001:db8::1]/", false},
    {"127.0.0.1", "ws://[::ffff:127.0.0.1]/", false},
    {"localhost", "ws://127.0.0.1/", false},
};

static void test_bypass(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(bypasses); i++) {
        struct wire_url url = url_of(bypasses[i].url);

        if (proxy_bypassed(bypasses[i].list, &url.host) != bypasses[i].bypassed)
            fail_msg("'%s' and %s", bypasses[i].list, bypasses[i].url);
    }
}

/* ---- Whose name resolution ---- */

static void test_wants_address(void **state)
{
    static const struct {
        const char *proxy, *url;
        bool wants;
    } table[] = {
        {"socks5://p", "ws://h/", true},          {"socks5h://p", "ws://h/", false},
        {"http://p", "ws://h/", false},           {"socks5://p", "ws://127.0.0.1/", false},
        {"socks5://p", "ws://[::1]/", false},     {"socks5://p", "ws://1.2.3.4.example/", true},
        {"socks5://p", "ws://127.0.0.1./", true},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct wire_url url = url_of(table[i].url);
        struct proxy p;
        struct proxy_error err = {0};

        assert_int_equal(choose(&p, table[i].proxy, NULL, table[i].url, &err), 0);
        if (proxy_wants_address(&p, &url) != table[i].wants)
            fail_msg("%s to %s", table[i].proxy, table[i].url);
        proxy_release(&p);
    }
}

/* ---- Without memory ---- */

static void *no_memory(size_t size, void *arg)
{
    (void)size;
    (void)arg;
    return NULL;
}

static void *no_resize(void *block, size_t size, void *arg)
{
    (void)block;
    return no_memory(size, arg);
}

static void release(void *block, void *arg)
{
    (void)arg;
    free(block);
}

static void test_no_memory(void **state)
{
    static const tws_allocator none = {no_memory, no_resize, release, NULL};
    struct wire_url url = url_of("ws://h/");
    struct proxy_source src = {.option = "p", .allocator = &none};
    struct proxy_error err = {0};
    struct proxy p;

    (void)state;
    assert_int_equal(proxy_choose(&p, &src, &url, &err), -ENOMEM);
    assert_int_equal(p.kind, PROXY_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_address),
        cmocka_unit_test(test_no_address),
        cmocka_unit_test(test_too_long),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_environment_fault),
        cmocka_unit_test(test_getenv),
        cmocka_unit_test(test_bypass),
        cmocka_unit_test(test_wants_address),
        cmocka_unit_test(test_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
