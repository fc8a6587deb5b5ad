/* What the client makes of the server's answer: what comes around it, refusals, hooks. */
#include "support_dial.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* Answers of status 1xx come first; the answer itself comes byte by byte. */
static void test_interim_answers(void **state)
{
    struct fake_request r;
    struct dialing d;
    int fd;

    (void)state;
    dialing_start_fake(&d, &group_fake, "/", NULL);
    fd = fake_accept(&group_fake);
    assert_true(fake_read_request(fd, &r));
    fake_say(fd, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n");
    fake_upgrade(fd, &r, "X-Last: yes\r\n", NULL, 0);
    dialing_join(&d, TWS_OK);
    assert_string_equal(tws_response_header(d.response, "x-last"), "yes");
    assert_null(tws_response_header(d.response, "Link"));
    close(fd);
    dialing_end(&d);

    dialing_start_fake(&d, &group_fake, "/", NULL);
    fd = fake_accept(&group_fake);
    assert_true(fake_read_request(fd, &r));
    for (int i = 0; i < 9; i++)
        fake_say(fd, "HTTP/1.1 103 Early Hints\r\n\r\n");
    dialing_join(&d, TWS_ERR_HANDSHAKE);
    close(fd);
    dialing_end(&d);
}

/* Frames in the same packet as the 101 are the connection's. */
static void test_frames_behind_answer(void **state)
{
    static const char behind[] = "\x81\x05hello\x82\x02\x01\x02\x88\x02\x03\xe9";
    struct fake_request r;
    tws_message m;
    struct dialing d;
    int fd;

    (void)state;
    dialing_start_fake(&d, &group_fake, "/", NULL);
    fd = fake_accept(&group_fake);
    assert_true(fake_read_request(fd, &r));
    fake_upgrade(fd, &r, "", behind, sizeof behind - 1);
    dialing_join(&d, TWS_OK);
    assert_ok(tws_read_message(d.conn, &m));
    assert_string_equal(m.data, "hello");
    assert_ok(tws_read_message(d.conn, &m));
    assert_int_equal(m.len, 2);
    assert_err(tws_read_message(d.conn, &m), TWS_ERR_PEER_CLOSED);
    close(fd);
    dialing_end(&d);
}

/* ---- Refusals ---- */

static void expect_body(const char *answer, int status, const char *body, size_t len)
{
    struct fake_request r;
    struct dialing d;
    size_t got;
    const char *bytes;
    int fd;

    dialing_start_fake(&d, &group_fake, "/x", NULL);
    fd = fake_accept(&group_fake);
    assert_true(fake_read_request(fd, &r));
    fake_say(fd, answer);
    close(fd);
    dialing_join(&d, TWS_ERR_REFUSED);
    assert_int_equal(d.error.http_status, status);
    assert_int_equal(tws_response_status(d.response), status);
    bytes = tws_response_body(d.response, &got);
    assert_int_equal(got, len);
    assert_memory_equal(bytes, body, len);
    assert_int_equal(bytes[len], 0);
    dialing_end(&d);
}

static void test_refusals(void **state)
{
    char *large = support_alloc(6100), *body = support_alloc(6000);
    int n;

    (void)state;
    expect_body("HTTP/1.1 403 No\r\nContent-Length: 5\r\n\r\nhello and more", 403, "hello", 5);
    expect_body("HTTP/1.1 404 No\r\n\r\nuntil the end", 404, "until the end", 13);
    expect_body("HTTP/1.0 503\r\nContent-Length: 0\r\n\r\n", 503, "", 0);
    expect_body("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut", 200, "cut", 3);
    expect_body("HTTP/1.1 426 X\r\nTransfer-Encoding: chunked\r\n\r\n"
                "3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n",
                426, "abcde", 5);
    expect_body("HTTP/1.1 426 X\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcXX2\r\nde\r\n", 426,
                "abc", 3);
    expect_body("HTTP/1.1 426 X\r\nTransfer-Encoding: chunked\r\n\r\nnone", 426, "", 0);
    expect_body("HTTP/1.1 304 X\r\nContent-Length: 5\r\n\r\nhello", 304, "", 0);
    expect_body("HTTP/1.1 302 Found\r\nLocation: /y\r\nContent-Length: 1\r\n\r\nz", 302, "z", 1);
    /* Of a large one the first 4,096 bytes, in whatever form. */
    support_fill(body, 6000, 1);
    n = snprintf(large, 100, "HTTP/1.1 500 X\r\nContent-Length: 5900\r\n\r\n");
    memcpy(large + n, body, 5900);
    large[n + 5900] = 0;
    expect_body(large, 500, body, 4096);
    n = snprintf(large, 100, "HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\n1388\r\n");
    memcpy(large + n, body, 5000);
    large[n + 5000] = 0;
    expect_body(large, 500, body, 4096);
    free(body);
    free(large);
}

static void test_response_headers(void **state)
{
    struct fake_request r;
    struct dialing d;
    const char *name, *value;
    int fd;

    (void)state;
    dialing_start_fake(&d, &group_fake, "/x", NULL);
    fd = fake_accept(&group_fake);
    assert_true(fake_read_request(fd, &r));
    fake_say(fd, "HTTP/1.1 401 No\r\nWWW-Authenticate: Basic\r\nX: 1\r\nx:   2 \r\nY:\r\n"
                 "Content-Length: 0\r\n\r\n");
    dialing_join(&d, TWS_ERR_REFUSED);
    assert_non_null(strstr(d.error.text, "401 Unauthorized"));
    assert_string_equal(tws_response_header(d.response, "www-authenticate"), "Basic");
    assert_string_equal(tws_response_header(d.response, "X"), "1");
    assert_string_equal(tws_response_header(d.response, "y"), "");
    assert_null(tws_response_header(d.response, "Z"));
    assert_true(tws_response_header_at(d.response, 2, &name, &value));
    assert_string_equal(name, "x");
    assert_string_equal(value, "2");
    assert_false(tws_response_header_at(d.response, 5, &name, &value));
    assert_null(name);
    assert_null(value);
    close(fd);
    dialing_end(&d);
}

/* ---- Hooks ---- */

struct seen {
    int heads_sent, heads_received;
    char cookies[512];
};

static void see_head(bool sent, const char *text, size_t len, void *arg)
{
    struct seen *s = arg;

    if (strlen(text) != len)
        return;
    s->heads_sent += sent && strncmp(text, "GET /", 5) == 0;
    s->heads_received +=
        !sent && strncmp(text, "HTTP/1.1 ", 9) == 0 && strcmp(text + len - 4, "\r\n\r\n") == 0;
}

static void see_cookie(const char *url, const char *value, void *arg)
{
    struct seen *s = arg;
    size_t n = strlen(s->cookies);

    snprintf(s->cookies + n, sizeof s->cookies - n, "%s %s;", strrchr(url, '/'), value);
}

static void test_hooks(void **state)
{
    struct seen seen = {.heads_sent = 0};
    tws_dial_options opt;
    struct fake_request r;
    struct dialing d;
    int fd;

    (void)state;
    tws_dial_options_init(&opt);
    opt.on_head = see_head;
    opt.on_set_cookie = see_cookie;
    opt.hook_arg = &seen;
    opt.max_redirects = 1;
    dialing_start_fake(&d, &group_fake, "/first", &opt);
    fd = fake_accept(&group_fake);
    assert_true(fake_read_request(fd, &r));
    fake_say(fd, "HTTP/1.1 307 X\r\nSet-Cookie: a=1; Path=/\r\nLocation: /second\r\n"
                 "set-cookie: b=2\r\n\r\n");
    close(fd);
    fd = fake_accept(&group_fake);
    assert_true(fake_read_request(fd, &r));
    fake_upgrade(fd, &r, "Set-Cookie: c=3\r\n", "\x81", 1);
    dialing_join(&d, TWS_OK);
    assert_int_equal(seen.heads_sent, 2);
    assert_int_equal(seen.heads_received, 2);
    assert_string_equal(seen.cookies, "/first a=1; Path=/;/first b=2;/second c=3;");
    close(fd);
    dialing_end(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_interim_answers), cmocka_unit_test(test_frames_behind_answer),
        cmocka_unit_test(test_refusals),        cmocka_unit_test(test_response_headers),
        cmocka_unit_test(test_hooks),
    };

    return cmocka_run_group_tests_name("client_answer", tests, group_fake_listen, group_fake_close);
}
