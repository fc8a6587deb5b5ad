/* Through SOCKS5 proxies that follow a script (RFC 1928, RFC 1929). */
#include "support_proxy.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>

#define GREETING "\x05\x01\x00"
#define BOUND "\x05\x00\x00\x01\x7f\x00\x00\x01\x12\x34"

static void test_socks_targets(void **state)
{
    static const struct sockaddr_in in = {.sin_family = AF_INET,
                                          .sin_addr = {.s_addr = 0x0100000a}};
    static const struct sockaddr_in6 in6 = {.sin6_family = AF_INET6,
                                            .sin6_addr = {{{0xfd, [15] = 9}}}};
    static const struct {
        const char *proxy, *url;
        const void *address;
        const char *bytes;
        size_t len;
    } table[] = {
        {"socks5h://p", "ws://h/", NULL, BYTES("\x05\x01\x00\x03\x01h\x00\x50")},
        {"socks5h://p", "wss://example/", NULL,
         BYTES("\x05\x01\x00\x03\x07"
               "example\x01\xbb")},
        {"socks5h://p", "ws://10.0.0.1:9001/", NULL,
         BYTES("\x05\x01\x00\x01\x0a\x00\x00\x01\x23\x29")},
        {"socks5h://p", "ws://[::1]/", NULL,
         BYTES("\x05\x01\x00\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x00\x50")},
        {"socks5://p", "ws://h/", &in, BYTES("\x05\x01\x00\x01\x0a\x00\x00\x01\x00\x50")},
        {"socks5://p", "ws://h/", &in6,
         BYTES("\x05\x01\x00\x04\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x09\x00\x50")},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++)
        for (int drip = 0; drip < 2; drip++) {
            const struct step script[] = {{TAKE, BYTES(GREETING)},
                                          {SEND, BYTES("\x05\x00")},
                                          {TAKE, table[i].bytes, table[i].len},
                                          {drip ? DRIP : SEND, BYTES(BOUND "more")},
                                          {END, NULL, 0}};

            /* What follows the answer is the server's, and left where it is. */
            assert_opens(&(struct attempt){.proxy = table[i].proxy,
                                           .url = table[i].url,
                                           .address = table[i].address,
                                           .leftover = "more"},
                         script);
        }
}

static void test_socks_bound_addresses(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
    } table[] = {
        {BYTES("\x05\x00\x00\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x00\x50"
               "more")},
        {BYTES("\x05\x00\x00\x03\x05proxy\x00\x50"
               "more")},
        {BYTES("\x05\x00\x00\x03\x00\x00\x50"
               "more")},
        {BYTES("\x05\x00\xff\x01\0\0\0\0\0\0more")},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        const struct step script[] = {{TAKE, BYTES(GREETING)},
                                      {SEND, BYTES("\x05\x00")},
                                      {TAKE, BYTES("\x05\x01\x00\x03\x01h\x00\x50")},
                                      {SEND, table[i].bytes, table[i].len},
                                      {END, NULL, 0}};

        assert_opens(
            &(struct attempt){.proxy = "socks5h://p", .url = "ws://h/", .leftover = "more"},
            script);
    }
}

/* RFC 1929 */
static void test_socks_password(void **state)
{
    static const struct step asked[] = {{TAKE, BYTES("\x05\x02\x00\x02")},
                                        {SEND, BYTES("\x05\x02")},
                                        {TAKE, BYTES("\x01\x02us\x05p:@ww")},
                                        {SEND, BYTES("\x01\x00")},
                                        {TAKE, BYTES("\x05\x01\x00\x03\x01h\x00\x50")},
                                        {SEND, BYTES(BOUND)},
                                        {END, NULL, 0}};
    static const struct step not_asked[] = {{TAKE, BYTES("\x05\x02\x00\x02")},
                                            {SEND, BYTES("\x05\x00")},
                                            {TAKE, BYTES("\x05\x01\x00\x03\x01h\x00\x50")},
                                            {SEND, BYTES(BOUND)},
                                            {END, NULL, 0}};
    static const struct step refused[] = {{TAKE, BYTES("\x05\x02\x00\x02")},
                                          {SEND, BYTES("\x05\x02")},
                                          {TAKE, BYTES("\x01\x02us\x00")},
                                          {SEND, BYTES("\x01\x01")},
                                          {SILENCE, NULL, 0},
                                          {END, NULL, 0}};

    (void)state;
    assert_opens(&(struct attempt){.proxy = "socks5h://us:p%3A%40%77w@p", .url = "ws://h/"}, asked);
    assert_opens(&(struct attempt){.proxy = "socks5h://us:p%3A%40%77w@p", .url = "ws://h/"},
                 not_asked);
    assert_refused(&(struct attempt){.proxy = "socks5h://us@p", .url = "ws://h/"}, refused, -EPROTO,
                   "did not accept user and password", 0);
}

static void test_socks_refusals(void **state)
{
    static const struct {
        const char *proxy, *greeting, *bytes;
        size_t len;
        const char *text;
    } table[] = {
        {"socks5h://p", "\x05\x01\x00", BYTES("\x05\xff"), "wants authorisation"},
        {"socks5h://u:p@p", "\x05\x02\x00", BYTES("\x05\xff"), "takes no user and password"},
        {"socks5h://p", "\x05\x01\x00", BYTES("\x05\x02"), "method not offered"},
        {"socks5h://u@p", "\x05\x02\x00", BYTES("\x05\x01"), "method not offered"},
        {"socks5h://p", "\x05\x01\x00", BYTES("HTTP/1.1 400 Bad Request\r\n\r\n"), "0x48"},
        {"socks5h://p", "\x05\x01\x00", BYTES("\x04\x5b"), "0x04"},
        {"socks5h://p", "\x05\x01\x00", BYTES("\x05"), "closed the connection"},
        {"socks5h://p", "\x05\x01\x00", BYTES(""), "closed the connection"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        const struct step script[] = {
            {TAKE, table[i].greeting, 3}, {SEND, table[i].bytes, table[i].len}, {END, NULL, 0}};

        assert_refused(&(struct attempt){.proxy = table[i].proxy, .url = "ws://h/"}, script,
                       -EPROTO, table[i].text, 0);
    }
}

static void test_socks_replies(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
        const char *text;
    } table[] = {
        {BYTES("\x05\x01\x00\x01\0\0\0\0\0\0"), "1: general failure"},
        {BYTES("\x05\x02"), "2: not allowed"},
        {BYTES("\x05\x05\x00\x01\0\0\0\0\0\0"), "5: connection refused"},
        {BYTES("\x05\x08"), "8: address type"},
        {BYTES("\x05\x09"), "9: unknown"},
        {BYTES("\x05\xff"), "255: unknown"},
        {BYTES("\x04\x00"), "0x04"},
        {BYTES("\x05\x00\x00\x02\0\0"), "unknown address type"},
        {BYTES("\x05\x00\x00\x01\0\0\0"), "closed the connection"},
        {BYTES("\x05\x00\x00\x03\x09"
               "ab"),
         "closed the connection"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        const struct step script[] = {{TAKE, BYTES(GREETING)},
                                      {SEND, BYTES("\x05\x00")},
                                      {TAKE, BYTES("\x05\x01\x00\x03\x01h\x00\x50")},
                                      {SEND, table[i].bytes, table[i].len},
                                      {END, NULL, 0}};

        assert_refused(&(struct attempt){.proxy = "socks5h://p", .url = "ws://h/"}, script, -EPROTO,
                       table[i].text, 0);
    }
}

static void test_socks_limits(void **state)
{
    static const struct step greeted[] = {{TAKE, BYTES("\x05\x02\x00\x02")},
                                          {SEND, BYTES("\x05\x02")},
                                          {SILENCE, NULL, 0},
                                          {END, NULL, 0}};
    char proxy[600], long_word[257];

    (void)state;
    memset(long_word, 'a', 256);
    long_word[256] = '\0';
    snprintf(proxy, sizeof proxy, "socks5h://%s:p@p", long_word);
    assert_refused(&(struct attempt){.proxy = proxy, .url = "ws://h/"}, greeted, -EINVAL,
                   "over 255 bytes", 0);
    snprintf(proxy, sizeof proxy, "socks5h://u:%s@p", long_word);
    assert_refused(&(struct attempt){.proxy = proxy, .url = "ws://h/"}, greeted, -EINVAL,
                   "over 255 bytes", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_socks_targets),  cmocka_unit_test(test_socks_bound_addresses),
        cmocka_unit_test(test_socks_password), cmocka_unit_test(test_socks_refusals),
        cmocka_unit_test(test_socks_replies),  cmocka_unit_test(test_socks_limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
