/*
 * wss as a client: whom it believes, what it asks for, and what it tells when it does not. The server
 * is OpenSSL in the test's own hands.
 */
#include "support_dial.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

static struct fake fake;
static tws_tls *trusting; /* the tests' CA */

static const char *cert_path(const char *name, const char *end)
{
    static char path[2][512];
    static int turn;
    const char *dir = getenv("TWS_CERTS");

    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s%s", dir ? dir : "build/certs", name, end);
    return path[turn];
}

static tws_tls *make_tls(const char *ca, bool insecure)
{
    tws_tls_client_options o;
    tws_tls *tls;
    tws_error e;

    tws_tls_client_options_init(&o);
    o.ca_file = ca ? cert_path(ca, ".pem") : NULL;
    o.insecure_skip_verify = insecure;
    if (tws_tls_client_new(&tls, &o, &e) != TWS_OK)
        fail_msg("%s", e.text);
    return tls;
}

static int open_all(void **state)
{
    (void)state;
    fake_listen(&fake, AF_INET);
    trusting = make_tls("ca", false);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    fake_close(&fake);
    tws_tls_unref(trusting);
    return 0;
}

/* ---- A TLS server ---- */

struct tls_fake {
    SSL_CTX *ctx;
    SSL *ssl;
    int fd;
    bool done;           /* the handshake succeeded on this side */
    char asked_for[256]; /* the name in the ClientHello; "" for none */
};

static int note_name(SSL *ssl, int *alert, void *arg)
{
    struct tls_fake *t = arg;
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);

    (void)alert;
    snprintf(t->asked_for, sizeof t->asked_for, "%s", name ? name : "");
    return SSL_TLSEXT_ERR_OK;
}

static void tls_accept(struct tls_fake *t, struct fake *f, const char *cert, const char *key)
{
    memset(t, 0, sizeof *t);
    t->ctx = SSL_CTX_new(TLS_server_method());
    assert_int_equal(SSL_CTX_use_certificate_chain_file(t->ctx, cert_path(cert, ".pem")), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey_file(t->ctx, cert_path(key, ".key"), SSL_FILETYPE_PEM),
                     1);
    SSL_CTX_set_tlsext_servername_callback(t->ctx, note_name);
    SSL_CTX_set_tlsext_servername_arg(t->ctx, t);
    t->fd = fake_accept(f);
    t->ssl = SSL_new(t->ctx);
    SSL_set_fd(t->ssl, t->fd);
    t->done = SSL_accept(t->ssl) == 1;
}

static void tls_end(struct tls_fake *t)
{
    SSL_free(t->ssl);
    SSL_CTX_free(t->ctx);
    close(t->fd);
    ERR_clear_error();
}

/* A request's head by way of TLS. */
static void tls_read_request(struct tls_fake *t, char *text, size_t size)
{
    size_t n = 0;

    memset(text, 0, size);
    while (n + 1 < size && !strstr(text, "\r\n\r\n")) {
        int got = SSL_read(t->ssl, text + n, 1);

        assert_int_equal(got, 1);
        n++;
    }
}

static void tls_say(struct tls_fake *t, const char *text)
{
    assert_int_equal(SSL_write(t->ssl, text, (int)strlen(text)), (int)strlen(text));
}

/* ---- Whom it believes ---- */

static void expect_certificate(const char *cert, const char *key, const char *host, tws_tls *tls,
                               tws_err wanted, const char *word, char *told)
{
    struct tls_fake t;
    struct dialing d;
    tws_dial_options opt;
    char url[256], byte;

    tws_dial_options_init(&opt);
    opt.tls = tls;
    snprintf(url, sizeof url, "wss://%s:%u/", host, fake.port);
    dialing_start(&d, url, &opt);
    tls_accept(&t, &fake, cert, key);
    if (wanted == TWS_OK) {
        char request[2048];

        assert_true(t.done);
        tls_read_request(&t, request, sizeof request);
        tls_say(&t, "HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n");
        dialing_join(&d, TWS_ERR_REFUSED);
    } else {
        /* With TLS 1.3 the server is done first; what it gets then is an alert, not a request. */
        assert_true(!t.done || SSL_read(t.ssl, &byte, 1) <= 0);
        dialing_join(&d, wanted);
        assert_int_equal(d.error.phase, TWS_PHASE_TLS);
        if (!strstr(d.error.text, word))
            fail_msg("'%s' is not in: %s", word, d.error.text);
        snprintf(told, 256, "%s", d.error.text);
    }
    tls_end(&t);
    dialing_end(&d);
}

/* B156: nothing is sent to who is not the one that was asked for. Each fault has its own text. */
static void test_refused_certificates(void **state)
{
    static const struct {
        const char *cert, *key, *host, *word;
    } cases[] = {
        {"expired", "expired", "localhost", "expired"},
        {"future", "future", "localhost", "not valid"},
        {"self-signed", "self-signed", "localhost", "self-signed"},
        {"untrusted", "untrusted", "localhost", "issued by"},
        {"truncated", "chain", "localhost", "incomplete"},
        {"wrong-name", "wrong-name", "localhost", "not for"},
        {"wrong-ip", "wrong-ip", "127.0.0.1", "not for"},
    };
    char told[sizeof cases / sizeof *cases][256];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect_certificate(cases[i].cert, cases[i].key, cases[i].host, trusting,
                           TWS_ERR_CERTIFICATE, cases[i].word, told[i]);
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(told[i], told[j]);
    }
    /* By default the tests' CA is nobody. */
    expect_certificate("server", "server", "localhost", NULL, TWS_ERR_CERTIFICATE, "issued by",
                       told[0]);
}

static void test_accepted_certificates(void **state)
{
    tws_tls *careless = make_tls(NULL, true);

    (void)state;
    expect_certificate("server", "server", "localhost", trusting, TWS_OK, NULL, NULL);
    expect_certificate("server", "server", "127.0.0.1", trusting, TWS_OK, NULL, NULL);
    expect_certificate("chain", "chain", "localhost", trusting, TWS_OK, NULL, NULL);
    expect_certificate("wrong-name", "wrong-name", "localhost", careless, TWS_OK, NULL, NULL);
    expect_certificate("self-signed", "self-signed", "127.0.0.1", careless, TWS_OK, NULL, NULL);
    tws_tls_unref(careless);
}

/* B158: the name is sent, an address is not. Host does not change whom TLS looks for. */
static void test_server_name(void **state)
{
    static const char *const hosts[] = {"localhost", "127.0.0.1", "[::1]"};
    static const char *const names[] = {"localhost", "", ""};

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct fake six, *f = &fake;
        struct tls_fake t;
        struct dialing d;
        tws_dial_options opt;
        char url[256], request[2048];

        if (i == 2) {
            fake_listen(&six, AF_INET6);
            f = &six;
        }
        tws_dial_options_init(&opt);
        opt.tls = trusting;
        opt.host = "inner.example";
        snprintf(url, sizeof url, "wss://%s:%u/", hosts[i], f->port);
        dialing_start(&d, url, &opt);
        tls_accept(&t, f, "server", "server");
        assert_true(t.done);
        assert_string_equal(t.asked_for, names[i]);
        tls_read_request(&t, request, sizeof request);
        assert_string_equal(fake_header(request, "Host"), "inner.example");
        tls_say(&t, "HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n");
        dialing_join(&d, TWS_ERR_REFUSED);
        tls_end(&t);
        dialing_end(&d);
        if (i == 2)
            fake_close(&six);
    }
}

/* ---- What else can go wrong ---- */

/* A peer that speaks something else, and one that hangs up. */
static void test_no_tls(void **state)
{
    static const char *const said[] = {"HTTP/1.1 400 Bad Request\r\n\r\n", ""};
    tws_dial_options opt;

    (void)state;
    tws_dial_options_init(&opt);
    opt.tls = trusting;
    for (int i = 0; i < 2; i++) {
        struct dialing d;
        char url[256], hello[512];
        int fd;

        snprintf(url, sizeof url, "wss://%s/", fake.host);
        dialing_start(&d, url, &opt);
        fd = fake_accept(&fake);
        assert_true(recv(fd, hello, sizeof hello, 0) > 0);
        fake_say(fd, said[i]);
        shutdown(fd, SHUT_WR);
        dialing_join(&d, TWS_ERR_TLS);
        assert_int_equal(d.error.phase, TWS_PHASE_TLS);
        close(fd);
        dialing_end(&d);
    }
}

/* The end of TCP inside the answer: with TLS it is told from a clean one. */
static void test_cut_answer(void **state)
{
    tws_dial_options opt;

    (void)state;
    tws_dial_options_init(&opt);
    opt.tls = trusting;
    for (int clean = 0; clean < 2; clean++) {
        struct tls_fake t;
        struct dialing d;
        char url[256], request[2048];

        snprintf(url, sizeof url, "wss://%s/", fake.host);
        dialing_start(&d, url, &opt);
        tls_accept(&t, &fake, "server", "server");
        tls_read_request(&t, request, sizeof request);
        tls_say(&t, "HTTP/1.1 101 Swi");
        if (clean)
            SSL_shutdown(t.ssl);
        shutdown(t.fd, SHUT_WR);
        dialing_join(&d, clean ? TWS_ERR_EOF : TWS_ERR_TRUNCATED);
        tls_end(&t);
        dialing_end(&d);
    }
}

/* From ws to wss a redirect is followed, back it is not. */
static void test_redirects(void **state)
{
    struct fake secure;
    struct fake_request r;
    struct tls_fake t;
    struct dialing d;
    tws_dial_options opt;
    char text[512], request[2048];
    int fd;

    (void)state;
    fake_listen(&secure, AF_INET);
    tws_dial_options_init(&opt);
    opt.tls = trusting;
    opt.max_redirects = 3;
    dialing_start_fake(&d, &fake, "/", &opt);
    fd = fake_accept(&fake);
    assert_true(fake_read_request(fd, &r));
    snprintf(text, sizeof text, "HTTP/1.1 301 X\r\nLocation: https://%s/up\r\n\r\n", secure.host);
    fake_say(fd, text);
    close(fd);
    tls_accept(&t, &secure, "server", "server");
    assert_true(t.done);
    tls_read_request(&t, request, sizeof request);
    assert_int_equal(strncmp(request, "GET /up ", 8), 0);
    snprintf(text, sizeof text, "HTTP/1.1 301 X\r\nLocation: http://%s/down\r\n\r\n", fake.host);
    tls_say(&t, text);
    dialing_join(&d, TWS_ERR_REDIRECT);
    assert_non_null(strstr(d.error.text, "from wss to ws"));
    assert_false(fake_has_caller(&fake));
    tls_end(&t);
    dialing_end(&d);
    fake_close(&secure);
}

/* With the library's own server: messages both ways, and a proper end. */
static void test_echo(void **state)
{
    struct support_census before = support_census();
    tws_tls_certificate cert = {.cert_file = cert_path("server", ".pem"),
                                .key_file = cert_path("server", ".key")};
    tws_tls_server_options to;
    tws_server_options so;
    struct support_server s;
    struct dialing d;
    tws_dial_options opt;
    tws_tls_info info;
    uint8_t *data = support_alloc(1 << 20);
    char url[256];
    tws_message m;

    (void)state;
    tws_tls_server_options_init(&to);
    to.certificates = &cert;
    to.certificate_count = 1;
    support_server_options(&so, support_echo, NULL);
    assert_ok(tws_tls_server_new(&so.tls, &to, NULL));
    support_server_start(&s, &so);
    tws_dial_options_init(&opt);
    opt.tls = trusting;
    snprintf(url, sizeof url, "wss://%s/", s.address);
    dialing_start(&d, url, &opt);
    dialing_join(&d, TWS_OK);
    assert_true(tws_conn_tls(d.conn, &info));
    assert_true(info.verified);
    for (size_t len = 1; len <= 1 << 20; len *= 32) {
        support_fill(data, len, (unsigned)len);
        assert_ok(tws_write_message(d.conn, TWS_BINARY, data, len));
        assert_ok(tws_read_message(d.conn, &m));
        assert_int_equal(m.len, len);
        assert_true(support_filled(m.data, len, (unsigned)len));
    }
    assert_ok(tws_close(d.conn, 1000, NULL));
    dialing_end(&d);
    tws_server_free(s.server);
    tws_tls_unref(so.tls);
    free(data);
    support_assert_census(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_certificates),
        cmocka_unit_test(test_accepted_certificates),
        cmocka_unit_test(test_server_name),
        cmocka_unit_test(test_no_tls),
        cmocka_unit_test(test_cut_answer),
        cmocka_unit_test(test_redirects),
        cmocka_unit_test(test_echo),
    };

    return cmocka_run_group_tests_name("client_tls", tests, open_all, close_all);
}
