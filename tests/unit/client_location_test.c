/* Where a Location leads: RFC 3986 5.4's examples, schemes, hosts, user information, Unix sockets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "client/redirect.h"

static enum redirect_fault resolve(const char *base, const char *host, const char *location,
                                   struct redirect *r, char *text, size_t cap)
{
    struct wire_url url;

    assert_int_equal(wire_url_parse(&url, wire_text_of(base)), WIRE_URL_OK);
    *r = (struct redirect){.text = text, .cap = cap};
    return redirect_resolve(r, &url, host, wire_text_of(location));
}

static void expect(const char *base, const char *location, const char *result, bool same_host)
{
    char text[512];
    struct redirect r;
    enum redirect_fault fault =
        resolve(base, NULL, location, &r, text, REDIRECT_ROOM(strlen(base), strlen(location)));

    if (fault)
        fail_msg("%s + %s: %s", base, location, redirect_fault_text(&r, fault));
    assert_string_equal(r.text, result);
    assert_int_equal(r.same_host, same_host);
}

static void expect_fault(const char *base, const char *location, enum redirect_fault wanted)
{
    char text[512];
    struct redirect r;
    enum redirect_fault fault = resolve(base, NULL, location, &r, text, sizeof text);

    if (fault != wanted)
        fail_msg("%s + %s: %d instead of %d", base, location, fault, wanted);
    assert_true(redirect_fault_text(&r, fault)[0] != 0);
}

/* RFC 3986 5.4.1 and 5.4.2, as far as a WebSocket address can say them. */
static void test_rfc3986(void **state)
{
    static const struct {
        const char *location, *result;
    } cases[] = {
        {"g", "ws://a/b/c/g"},
        {"./g", "ws://a/b/c/g"},
        {"g/", "ws://a/b/c/g/"},
        {"/g", "ws://a/g"},
        {"//g", "ws://g"},
        {"?y", "ws://a/b/c/d;p?y"},
        {"g?y", "ws://a/b/c/g?y"},
        {"g#s", "ws://a/b/c/g"},
        {"g?y#s", "ws://a/b/c/g?y"},
        {";x", "ws://a/b/c/;x"},
        {"g;x=1/./y", "ws://a/b/c/g;x=1/y"},
        {".", "ws://a/b/c/"},
        {"./", "ws://a/b/c/"},
        {"..", "ws://a/b/"},
        {"../", "ws://a/b/"},
        {"../g", "ws://a/b/g"},
        {"../..", "ws://a/"},
        {"../../", "ws://a/"},
        {"../../g", "ws://a/g"},
        {"../../../g", "ws://a/g"},
        {"/./g", "ws://a/g"},
        {"/../g", "ws://a/g"},
        {"g.", "ws://a/b/c/g."},
        {".g", "ws://a/b/c/.g"},
        {"g..", "ws://a/b/c/g.."},
        {"..g", "ws://a/b/c/..g"},
        {"./../g", "ws://a/b/g"},
        {"./g/.", "ws://a/b/c/g/"},
        {"g/./h", "ws://a/b/c/g/h"},
        {"g/../h", "ws://a/b/c/h"},
        {"g?y/./x", "ws://a/b/c/g?y/./x"},
        {"g?y/../x", "ws://a/b/c/g?y/../x"},
        {"/a//b", "ws://a/a//b"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect("ws://a/b/c/d;p?q", cases[i].location, cases[i].result,
               strcmp(cases[i].location, "//g") != 0);
    expect("ws://a", "x", "ws://a/x", true);
    expect("ws://a?q", "?r", "ws://a?r", true);
    expect("ws://a:81/", "x", "ws://a:81/x", true);
    expect("ws://[::1]:81/", "/x", "ws://[::1]:81/x", true);
}

static void test_schemes(void **state)
{
    (void)state;
    expect("ws://a/", "http://b/c", "ws://b/c", false);
    expect("ws://a/", "HTTPS://b/c", "wss://b/c", false);
    expect("wss://a/", "https://b/c", "wss://b/c", false);
    expect("wss://a/", "//b/c", "wss://b/c", false);
    expect("ws://a/", "wss://a/", "wss://a/", true);
    expect("ws://a/", "  /c ", "ws://a/c", true);
    expect_fault("wss://a/", "http://a/", REDIRECT_DOWNGRADE);
    expect_fault("wss://a/", "ws://a:443/", REDIRECT_DOWNGRADE);
    expect_fault("ws://a/", "ftp://a/", REDIRECT_SCHEME);
    expect_fault("ws://a/", "javascript:alert(1)", REDIRECT_SCHEME);
    expect_fault("ws://a/", "ws:/a", REDIRECT_SCHEME);
    expect_fault("ws://a/", "ws+unix:/etc/x:/", REDIRECT_SCHEME);
    expect_fault("ws://a/", "", REDIRECT_NO_LOCATION);
    expect_fault("ws://a/", "#x", REDIRECT_NO_LOCATION);
    expect_fault("ws://a/", "http://", REDIRECT_BAD_URL);
    expect_fault("ws://a/", "http://b:99999/", REDIRECT_BAD_URL);
    expect_fault("ws://a/", "/b c", REDIRECT_BAD_URL);
    expect_fault("ws://a/", "/b\r\nX: y", REDIRECT_BAD_URL);
    expect_fault("ws://a/", "/\xc3\xa9", REDIRECT_BAD_URL);
}

/* Who is told the user's name and password. */
static void test_user_information(void **state)
{
    (void)state;
    expect("ws://u:p@a/", "/c", "ws://u:p@a/c", true);
    expect("ws://u@a/", "/c", "ws://u:@a/c", true);
    expect("ws://u:p@a/", "ws://A/c", "ws://u:p@A/c", true);
    expect("ws://u:p@a/", "ws://a:80/c", "ws://u:p@a:80/c", true);
    expect("ws://u:p@a/", "https://a/c", "wss://u:p@a/c", true);
    expect("ws://u:p@a:8080/", "https://a/c", "wss://a/c", false);
    expect("ws://u:p@a/", "ws://a:81/c", "ws://a:81/c", false);
    expect("ws://u:p@a/", "ws://b/c", "ws://b/c", false);
    expect("ws://u:p@a/", "//a.b/c", "ws://a.b/c", false);
    expect("ws://u:p@a/", "//x:y@b/c", "ws://b/c", false);
    expect("ws://u:p@a/", "//x:y@a/c", "ws://u:p@a/c", true);
    expect("ws://u:p@a/", "//a@b/c", "ws://b/c", false);
}

static void test_unix_sockets(void **state)
{
    char text[512];
    struct redirect r;

    (void)state;
    expect("ws+unix:/s:/a/b", "c", "ws+unix:/s:/a/c", true);
    expect("ws+unix:/s:/a/b", "/d?e", "ws+unix:/s:/d?e", true);
    expect("ws+unix:/s:/a", "http://localhost/d", "ws+unix:/s:/d", true);
    expect("ws+unix:/s:/a", "http://localhost", "ws+unix:/s:/", true);
    expect("wss+unix:/s:/a", "https://localhost/d", "wss+unix:/s:/d", true);
    expect_fault("wss+unix:/s:/a", "http://localhost/d", REDIRECT_DOWNGRADE);
    expect_fault("ws+unix:/s:/a", "http://example.com/d", REDIRECT_LEAVES_UNIX);
    expect_fault("ws+unix:/s:/a", "//169.254.169.254/", REDIRECT_LEAVES_UNIX);
    assert_int_equal(
        resolve("ws+unix:/s:/a", "inner:81", "http://inner:81/d", &r, text, sizeof text),
        REDIRECT_OK);
    assert_string_equal(r.text, "ws+unix:/s:/d");
    assert_int_equal(resolve("ws+unix:/s:/a", "inner", "http://localhost/d", &r, text, sizeof text),
                     REDIRECT_LEAVES_UNIX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rfc3986),
        cmocka_unit_test(test_schemes),
        cmocka_unit_test(test_user_information),
        cmocka_unit_test(test_unix_sockets),
    };

    return cmocka_run_group_tests_name("client_location", tests, NULL, NULL);
}
