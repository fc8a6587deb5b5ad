/* B182: redirects, followed when asked, with a limit, and with what may go along. */
#include "support_dial.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static struct fake first, second;

static int listen_both(void **state)
{
    (void)state;
    fake_listen(&first, AF_INET);
    fake_listen(&second, AF_INET);
    return 0;
}

static int close_both(void **state)
{
    (void)state;
    fake_close(&first);
    fake_close(&second);
    return 0;
}

/* Takes one request at f and redirects it. */
static void redirect(struct fake *f, struct fake_request *r, int status, const char *location)
{
    char text[1024];
    int fd = fake_accept(f);

    assert_true(fake_read_request(fd, r));
    snprintf(text, sizeof text, "HTTP/1.1 %d X\r\n%s%s%sContent-Length: 4\r\n\r\nbody", status,
             location ? "Location: " : "", location ? location : "", location ? "\r\n" : "");
    fake_say(fd, text);
    close(fd);
}

static void accept_at(struct fake *f, struct fake_request *r, struct dialing *d)
{
    int fd = fake_accept(f);

    assert_true(fake_read_request(fd, r));
    fake_upgrade(fd, r, "", NULL, 0);
    dialing_join(d, TWS_OK);
    close(fd);
}

static const tws_header headers[] = {{"Authorization", "Bearer secret"},
                                     {"Proxy-Authorization", "Basic eDp5"},
                                     {"cookie", "own=1"},
                                     {"X-Plain", "yes"}};
static const char *const protocols[] = {"chat"};

static void all_options(tws_dial_options *opt)
{
    tws_dial_options_init(opt);
    opt->max_redirects = 5;
    opt->headers = headers;
    opt->header_count = 4;
    opt->subprotocols = protocols;
    opt->subprotocol_count = 1;
    opt->origin = "http://page.example";
}

static void expect_credentials(const struct fake_request *r, bool there)
{
    assert_int_equal(fake_header(r->text, "Authorization") != NULL, there);
    assert_int_equal(fake_header(r->text, "Cookie") != NULL, there);
    if (!there)
        assert_null(fake_header(r->text, "Proxy-Authorization"));
    /* Nothing else is lost. */
    assert_string_equal(fake_header(r->text, "X-Plain"), "yes");
    assert_string_equal(fake_header(r->text, "Sec-WebSocket-Protocol"), "chat");
    assert_string_equal(fake_header(r->text, "Origin"), "http://page.example");
}

static void test_same_host(void **state)
{
    static const int statuses[] = {301, 302, 303, 307, 308};
    tws_dial_options opt;

    (void)state;
    all_options(&opt);
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        struct fake_request r;
        struct dialing d;
        char absolute[256], url[256];

        dialing_start_fake(&d, &first, "/a/b?c", &opt);
        redirect(&first, &r, statuses[i], "../d?e");
        assert_string_equal(r.target, "/a/b?c");
        snprintf(absolute, sizeof absolute, "http://%s/f", first.host);
        redirect(&first, &r, statuses[i], absolute);
        assert_string_equal(r.target, "/d?e");
        expect_credentials(&r, true);
        accept_at(&first, &r, &d);
        assert_string_equal(r.target, "/f");
        expect_credentials(&r, true);
        snprintf(url, sizeof url, "ws://%s/f", first.host);
        assert_string_equal(tws_response_url(d.response), url);
        dialing_end(&d);
    }
}

/* Credentials stay with the host that the caller named, also when the way leads back there. */
static void test_other_host(void **state)
{
    struct fake_request r;
    struct dialing d;
    tws_dial_options opt;
    char url[256];

    (void)state;
    all_options(&opt);
    opt.host = "inner.example";
    snprintf(url, sizeof url, "ws://user:pass@%s/", first.host);
    opt.headers = headers + 3;
    opt.header_count = 1;
    opt.cookie = "a=b";
    dialing_start(&d, url, &opt);
    snprintf(url, sizeof url, "ws://%s/x", second.host);
    redirect(&first, &r, 302, url);
    expect_credentials(&r, true);
    assert_string_equal(r.host, "inner.example");
    snprintf(url, sizeof url, "//%s/y", first.host);
    redirect(&second, &r, 302, url);
    expect_credentials(&r, false);
    assert_string_equal(r.host, second.host);
    accept_at(&first, &r, &d);
    expect_credentials(&r, false);
    assert_string_equal(r.host, first.host);
    dialing_end(&d);

    opt.cookie = NULL;
    opt.headers = headers;
    opt.header_count = 4;
    dialing_start_fake(&d, &first, "/", &opt);
    snprintf(url, sizeof url, "ws://%s/x", second.host);
    redirect(&first, &r, 302, url);
    expect_credentials(&r, true);
    accept_at(&second, &r, &d);
    expect_credentials(&r, false);
    dialing_end(&d);
}

static void expect_failure(struct dialing *d, int status, const char *word)
{
    dialing_join(d, TWS_ERR_REDIRECT);
    assert_int_equal(d->error.http_status, status);
    assert_int_equal(tws_response_status(d->response), status);
    if (!strstr(d->error.text, word))
        fail_msg("'%s' is not in: %s", word, d->error.text);
    dialing_end(d);
}

static void test_limit(void **state)
{
    struct fake_request r;
    struct dialing d;
    tws_dial_options opt;

    (void)state;
    all_options(&opt);
    dialing_start_fake(&d, &first, "/", &opt);
    for (int i = 0; i < 6; i++)
        redirect(&first, &r, 302, "/loop");
    expect_failure(&d, 302, "too many");
    assert_false(fake_has_caller(&first));
    /* Not asked for: a refusal as any other, with its body. */
    dialing_start_fake(&d, &first, "/", NULL);
    redirect(&first, &r, 307, "/elsewhere");
    dialing_join(&d, TWS_ERR_REFUSED);
    assert_int_equal(d.error.http_status, 307);
    assert_string_equal(tws_response_header(d.response, "Location"), "/elsewhere");
    assert_string_equal(tws_response_body(d.response, NULL), "body");
    dialing_end(&d);
    /* 300 and 304 are none. */
    dialing_start_fake(&d, &first, "/", &opt);
    redirect(&first, &r, 300, "/elsewhere");
    dialing_join(&d, TWS_ERR_REFUSED);
    dialing_end(&d);
}

static void test_unusable(void **state)
{
    static const struct {
        const char *location, *word;
    } cases[] = {
        {NULL, "no Location"},          {"", "no Location"},
        {"ftp://x/", "none of ws"},     {"http://bad host/", "character"},
        {"http://x:0/", "port"},        {"mailto:a@b", "none of ws"},
        {"ws+unix:/x:/", "none of ws"},
    };
    tws_dial_options opt;

    (void)state;
    all_options(&opt);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fake_request r;
        struct dialing d;

        dialing_start_fake(&d, &first, "/", &opt);
        redirect(&first, &r, 301, cases[i].location);
        expect_failure(&d, 301, cases[i].word);
    }
}

static void test_descriptor(void **state)
{
    struct fake_request r;
    struct dialing d;
    tws_dial_options opt;
    int pair[2];

    (void)state;
    all_options(&opt);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    opt.fd = pair[0];
    dialing_start(&d, "ws://x/", &opt);
    assert_true(fake_read_request(pair[1], &r));
    fake_say(pair[1], "HTTP/1.1 302 X\r\nLocation: /y\r\n\r\n");
    expect_failure(&d, 302, "descriptor");
    assert_int_equal(fcntl(pair[0], F_GETFD), -1);
    close(pair[1]);
}

/* The total time holds for all hops together. */
static void test_time(void **state)
{
    struct fake_request r;
    struct dialing d;
    tws_dial_options opt;

    (void)state;
    all_options(&opt);
    opt.max_redirects = UINT32_MAX;
    opt.timeout = 200;
    dialing_start_fake(&d, &first, "/", &opt);
    while (!atomic_load(&d.done))
        if (fake_has_caller(&first)) {
            int fd = fake_accept(&first);

            if (fake_read_request(fd, &r))
                fake_say(fd, "HTTP/1.1 302 X\r\nLocation: /y\r\n\r\n");
            close(fd);
        }
    dialing_join(&d, TWS_ERR_HANDSHAKE_TIMEOUT);
    dialing_end(&d);
    while (fake_has_caller(&first))
        close(fake_accept(&first));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_host),  cmocka_unit_test(test_other_host),
        cmocka_unit_test(test_limit),      cmocka_unit_test(test_unusable),
        cmocka_unit_test(test_descriptor), cmocka_unit_test(test_time),
    };

    return cmocka_run_group_tests_name("client_redirect", tests, listen_both, close_both);
}
