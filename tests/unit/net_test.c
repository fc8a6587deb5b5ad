/*
 * Addresses as text and as keys, and what may be listened on.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "net/address.h"
#include "net/listen.h"

static union net_peer peer_of(const char *ip, uint16_t port)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    union net_peer peer;

    if (inet_pton(AF_INET, ip, &in.sin_addr) == 1) {
        net_peer_save(&peer, (struct sockaddr *)&in);
    } else {
        assert_int_equal(inet_pton(AF_INET6, ip, &in6.sin6_addr), 1);
        net_peer_save(&peer, (struct sockaddr *)&in6);
    }
    return peer;
}

static void check_text(const char *ip, uint16_t port, const char *wanted)
{
    union net_peer peer = peer_of(ip, port);
    char text[64], small[6];

    assert_int_equal(net_peer_text(&peer, text, sizeof text), strlen(wanted));
    assert_string_equal(text, wanted);
    assert_int_equal(net_peer_text(&peer, small, sizeof small), strlen(wanted));
    assert_memory_equal(small, wanted, 5);
    assert_int_equal(small[5], 0);
    assert_int_equal(net_peer_text(&peer, NULL, 0), strlen(wanted));
}

static void test_peer_text(void **state)
{
    union net_peer unknown;
    struct sockaddr_un un = {.sun_family = AF_UNIX, .sun_path = "/somewhere"};
    char text[64] = "x";

    (void)state;
    check_text("127.0.0.1", 80, "127.0.0.1:80");
    check_text("255.255.255.255", 65535, "255.255.255.255:65535");
    check_text("::1", 1, "[::1]:1");
    check_text("2001:db8:1111:2222:3333:4444:5555:6666", 65535,
               "[2001:db8:1111:2222:3333:4444:5555:6666]:65535");
    net_peer_save(&unknown, (struct sockaddr *)&un); /* a peer's path is not kept */
    assert_int_equal(net_peer_text(&unknown, text, sizeof text), 4);
    assert_string_equal(text, "unix");
    net_peer_of(&unknown, -1);
    assert_int_equal(net_peer_text(&unknown, text, sizeof text), 0);
    assert_string_equal(text, "");
    assert_int_equal(net_local_text(-1, text, sizeof text), 0);
}

static void test_unix_text(void **state)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    char text[128], wanted[128] = "unix:";
    socklen_t base = offsetof(struct sockaddr_un, sun_path);

    (void)state;
    strcpy(un.sun_path, "/run/x");
    net_address_text((struct sockaddr *)&un, base + 7, text, sizeof text);
    assert_string_equal(text, "unix:/run/x");
    memcpy(un.sun_path, "\0abc", 4);
    net_address_text((struct sockaddr *)&un, base + 4, text, sizeof text);
    assert_string_equal(text, "unix:@abc");
    net_address_text((struct sockaddr *)&un, base, text, sizeof text);
    assert_string_equal(text, "unix");
    memset(un.sun_path, 'p', sizeof un.sun_path); /* the longest, without a zero behind it */
    memset(wanted + 5, 'p', sizeof un.sun_path);
    assert_int_equal(net_address_text((struct sockaddr *)&un, sizeof un, text, sizeof text),
                     5 + sizeof un.sun_path);
    assert_string_equal(text, wanted);
}

static bool same_key(const char *a, const char *b)
{
    union net_peer pa = peer_of(a, 1), pb = peer_of(b, 2);
    struct net_peer_key ka, kb;

    assert_true(net_peer_key(&pa, &ka));
    assert_true(net_peer_key(&pb, &kb));
    return memcmp(&ka, &kb, sizeof ka) == 0;
}

/* What counts as one peer: an IPv4 address in either form, a /64 of IPv6. */
static void test_peer_key(void **state)
{
    struct net_peer_key key;
    union net_peer unix_peer = {.family = AF_UNIX};

    (void)state;
    assert_true(same_key("10.0.0.1", "10.0.0.1"));
    assert_false(same_key("10.0.0.1", "10.0.0.2"));
    assert_true(same_key("::ffff:10.0.0.1", "10.0.0.1"));
    assert_false(same_key("::ffff:10.0.0.1", "::ffff:10.0.0.2"));
    assert_true(same_key("2001:db8:0:1::1", "2001:db8:0:1:ffff::2"));
    assert_false(same_key("2001:db8:0:1::1", "2001:db8:0:2::1"));
    assert_false(same_key("::1", "10.0.0.1"));
    assert_false(net_peer_key(&unix_peer, &key));
}

static void test_listen_syntax(void **state)
{
    static const char *const wrong[] = {"",
                                        ":",
                                        "80",
                                        "host",
                                        "127.0.0.1:",
                                        "127.0.0.1:-1",
                                        "127.0.0.1:+1",
                                        "127.0.0.1: 1",
                                        "127.0.0.1:65536",
                                        "127.0.0.1:000080",
                                        "127.0.0.1:0x50",
                                        "::1:80",
                                        "[::1]",
                                        "[::1:80",
                                        "unix:"};
    struct net_listener l;
    char text[160], path[200] = "unix:";

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(net_listen(&l, wrong[i], 1, false), -EINVAL);
        assert_int_equal(l.fd, -1);
        net_listener_close(&l);
    }
    memset(path + 5, 'a', 108); /* one byte too long for a socket's path */
    assert_int_equal(net_listen(&l, path, 1, false), -EINVAL);
    assert_int_equal(net_listen(&l, "no.such.host.invalid:1", 1, false), -EADDRNOTAVAIL);
    assert_int_equal(net_listen(&l, ":0", 1, false), 0);
    assert_true(net_local_text(l.fd, text, sizeof text) > 5);
    net_listener_close(&l);
    assert_int_equal(l.fd, -1);
}

static void test_accept_nothing(void **state)
{
    struct sockaddr_storage addr;
    struct net_listener l;
    socklen_t len;

    (void)state;
    assert_int_equal(net_listen(&l, "127.0.0.1:0", 1, false), 0);
    assert_int_equal(net_accept(&l, &addr, &len), -EAGAIN);
    net_listener_close(&l);
    assert_int_equal(net_accept(&l, &addr, &len), -EBADF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peer_text),      cmocka_unit_test(test_unix_text),
        cmocka_unit_test(test_peer_key),       cmocka_unit_test(test_listen_syntax),
        cmocka_unit_test(test_accept_nothing),
    };

    return cmocka_run_group_tests_name("net", tests, NULL, NULL);
}
