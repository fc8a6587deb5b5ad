/* Compression as a client: what is offered and accepted, and what a server may not send. */
#include "support_dial.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

static void options_with(tws_dial_options *opt, tws_deflate_options *deflate)
{
    tws_dial_options_init(opt);
    tws_deflate_options_init(deflate);
    opt->deflate = deflate;
}

/* Dials, answers with this extension line, and expects that. The server's end, if it is open. */
static int answer_with(struct dialing *d, const tws_dial_options *opt, const char *extensions,
                       tws_err wanted)
{
    struct fake_request r;
    char line[256] = "";
    int fd;

    if (extensions)
        snprintf(line, sizeof line, "Sec-WebSocket-Extensions: %s\r\n", extensions);
    dialing_start_fake(d, &group_fake, "/", opt);
    fd = fake_accept(&group_fake);
    assert_true(fake_read_request(fd, &r));
    assert_non_null(fake_header(r.text, "Sec-WebSocket-Extensions"));
    assert_int_equal(
        strncmp(fake_header(r.text, "Sec-WebSocket-Extensions"), "permessage-deflate", 18), 0);
    fake_upgrade(fd, &r, line, NULL, 0);
    dialing_join(d, wanted);
    return fd;
}

#define AGREED "permessage-deflate; server_no_context_takeover; client_no_context_takeover"

/* B172: windows out of range, without a value, and whatever else was not offered. */
static void test_bad_answers(void **state)
{
    static const char *const bad[] = {
        AGREED "; server_max_window_bits=99",
        AGREED "; server_max_window_bits=7",
        AGREED "; server_max_window_bits",
        AGREED "; server_max_window_bits=16",
        AGREED "; client_max_window_bits=0",
        AGREED "; client_max_window_bits",
        AGREED "; server_max_window_bits=10; server_max_window_bits=10",
        AGREED "; unknown",
        "permessage-deflate, permessage-deflate",
        "x-webkit-deflate-frame",
        "permessage-deflate; server_no_context_takeover=1",
        "permessage-deflate; ;",
    };
    tws_deflate_options deflate;
    tws_dial_options opt;

    (void)state;
    options_with(&opt, &deflate);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct dialing d;
        int fd = answer_with(&d, &opt, bad[i], TWS_ERR_HANDSHAKE);

        /* A compressed frame that is there already does no harm. */
        client_send_bytes(fd, "\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00", 9);
        assert_non_null(strstr(d.error.text, "extension"));
        close(fd);
        dialing_end(&d);
    }
}

static void test_bad_options(void **state)
{
    tws_deflate_options deflate;
    tws_dial_options opt;
    tws_conn *c;
    tws_error e;

    (void)state;
    options_with(&opt, &deflate);
    deflate.level = 10;
    assert_err(tws_dial(&c, "ws://localhost/", &opt, NULL, &e), TWS_ERR_ARGUMENT);
    assert_non_null(strstr(e.text, "level"));
}

/* A server that declines, and one that agrees. */
static void test_agreement(void **state)
{
    tws_deflate_options deflate;
    tws_deflate_info info;
    tws_dial_options opt;
    struct dialing d;
    tws_message m;
    int fd;

    (void)state;
    options_with(&opt, &deflate);
    fd = answer_with(&d, &opt, NULL, TWS_OK);
    assert_false(tws_conn_deflate(d.conn, &info));
    close(fd);
    dialing_end(&d);
    fd = answer_with(&d, &opt, AGREED, TWS_OK);
    assert_true(tws_conn_deflate(d.conn, &info));
    assert_true(client_send_bytes(fd, "\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00", 9));
    assert_ok(tws_read_message(d.conn, &m));
    assert_string_equal(m.data, "Hello");
    close(fd);
    dialing_end(&d);
}

/* One group, connections with different options, all kinds of messages. */
static void test_echo(void **state)
{
    static const size_t sizes[] = {0, 10, 1000, 20000, 300000};
    tws_deflate_options deflate[3], server_deflate;
    tws_dial_options opt[4];
    tws_server_options so;
    struct support_server s;
    struct dialing d[4];
    tws_group *g = dialing_group();
    uint8_t *data = support_alloc(300000);
    char url[256];

    (void)state;
    support_server_options(&so, support_echo, NULL);
    tws_deflate_options_init(&server_deflate);
    server_deflate.server_no_context_takeover = false;
    server_deflate.client_no_context_takeover = false;
    so.upgrade.deflate = &server_deflate;
    support_server_start(&s, &so);
    snprintf(url, sizeof url, "ws://%s/", s.address);
    for (int i = 0; i < 4; i++) {
        options_with(&opt[i], &deflate[i % 3]);
        if (i == 1)
            deflate[1].client_no_context_takeover = deflate[1].server_no_context_takeover = false;
        if (i == 2)
            deflate[2].client_max_window_bits = 9;
        if (i == 3)
            opt[3].deflate = NULL;
        dialing_start_in(&d[i], g, url, &opt[i]);
        dialing_join(&d[i], TWS_OK);
    }
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        for (int i = 0; i < 4; i++) {
            tws_deflate_info info;
            tws_message m;

            support_fill(data, sizes[k], (unsigned)i);
            assert_ok(tws_write_message(d[i].conn, TWS_TEXT, data, sizes[k]));
            assert_ok(tws_read_message(d[i].conn, &m));
            assert_int_equal(m.len, sizes[k]);
            assert_true(support_filled(m.data, m.len, (unsigned)i));
            assert_int_equal(tws_conn_deflate(d[i].conn, &info), i != 3);
            assert_int_equal(info.messages_in > 0, i != 3 && k >= (i == 1 ? 1 : 2));
        }
    }
    for (int i = 0; i < 4; i++) {
        assert_ok(tws_close(d[i].conn, 1000, NULL));
        dialing_end(&d[i]);
    }
    tws_group_free(g);
    tws_server_free(s.server);
    free(data);
}

/* ---- What a server may not send ---- */

static void expect_end(const void *bytes, size_t len, tws_err wanted, unsigned code)
{
    tws_deflate_options deflate;
    tws_dial_options opt;
    struct dialing d;
    struct sender s;
    tws_message m;
    int fd;

    options_with(&opt, &deflate);
    fd = answer_with(&d, &opt, AGREED, TWS_OK);
    sender_start(&s, fd, bytes, len);
    assert_err(tws_read_message(d.conn, &m), wanted);
    assert_int_equal(m.len, 0);
    sender_join(&s);
    assert_int_equal(fake_finish(fd), code);
    dialing_end(&d);
}

/* B180: RSV1 belongs to the first frame alone. */
static void test_reserved_bit_on_continuation(void **state)
{
    (void)state;
    expect_end("\x41\x03\xf2\x48\xcd\xc0\x04\xc9\xc9\x07\x00", 11, TWS_ERR_PROTOCOL, 1002);
    expect_end("\x01\x03"
               "abc"
               "\xc0\x04\xc9\xc9\x07\x00",
               11, TWS_ERR_PROTOCOL, 1002);
}

/* 1 GiB of zeros: a block of 1 MiB of them, which ends on a byte, a thousand times. */
static uint8_t *make_bomb(size_t *len)
{
    const size_t mib = (size_t)1 << 20;
    uint8_t *zeros = calloc(1, mib), *block = support_alloc(65536), *frame;
    z_stream z = {.next_in = zeros, .avail_in = (uInt)mib, .next_out = block, .avail_out = 65536};
    size_t n;

    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, -15, 9, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_SYNC_FLUSH), Z_OK);
    n = 65536 - z.avail_out;
    deflateEnd(&z);
    *len = 10 + 1024 * n;
    frame = support_alloc(*len);
    memcpy(frame, "\xc2\x7f\x00\x00\x00\x00", 6);
    for (int i = 0; i < 4; i++)
        frame[6 + i] = (uint8_t)((*len - 10) >> (8 * (3 - i)));
    for (size_t i = 0; i < 1024; i++)
        memcpy(frame + 10 + i * n, block, n);
    free(zeros);
    free(block);
    return frame;
}

/* B174 */
static void test_bomb(void **state)
{
    size_t len;
    uint8_t *bomb = make_bomb(&len);

    (void)state;
    assert_in_range(len, 1 << 20, 2 << 20);
    expect_end(bomb, len, TWS_ERR_TOO_BIG, 1009);
    free(bomb);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_answers), cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_agreement),   cmocka_unit_test(test_echo),
        cmocka_unit_test(test_bomb),        cmocka_unit_test(test_reserved_bit_on_continuation),
    };

    return cmocka_run_group_tests_name("client_deflate", tests, group_fake_listen,
                                       group_fake_close);
}
