/*
 * Connections come and go, and nothing of them stays: neither in the library's memory, nor in OpenSSL's, which the
 * library's allocator does not see. Ten times as many must leave no more than the first ones left.
 */
#include "support.h"
#include "support_counter.h"
#include "support_tls.h"

#include "tls_pair.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include <openssl/crypto.h>

enum {
    FIRST = 20,
    MORE = 10 * FIRST,
    SLACK = MORE / 10, /* pools; one block in ten connections is a leak */
    ROUNDS = 6,        /* in one of which no thread more has got a memory of its own from OpenSSL */
};

/* ---- OpenSSL's blocks ---- */

static _Atomic long openssl_live;

static void *openssl_alloc(size_t size, const char *file, int line)
{
    void *p = malloc(size);

    (void)file;
    (void)line;
    if (p)
        atomic_fetch_add(&openssl_live, 1);
    return p;
}

static void openssl_free(void *block, const char *file, int line)
{
    (void)file;
    (void)line;
    if (block)
        atomic_fetch_sub(&openssl_live, 1);
    free(block);
}

static void *openssl_resize(void *block, size_t size, const char *file, int line)
{
    if (!block)
        return openssl_alloc(size, file, line);
    if (size > 0)
        return realloc(block, size);
    openssl_free(block, file, line);
    return NULL;
}

/* ---- A server and its clients in one process ---- */

struct coming {
    struct counter library;
    tws_allocator allocator;
    tws_deflate_options deflate;
    tws_tls *server_tls, *client_tls;
    struct support_server s;
    bool tls, compressed;
    bool distrusted; /* the client does not know the CA: the handshake fails on both sides */
};

static void make_tls(struct coming *w)
{
    tws_tls_server_options so;
    tws_tls_client_options co;
    tws_tls_certificate cert = pki_certificate(support_tls_leaf());

    tws_tls_server_options_init(&so);
    so.certificates = &cert;
    so.certificate_count = 1;
    so.allocator = &w->allocator;
    tws_tls_client_options_init(&co);
    if (!w->distrusted) {
        co.ca_pem = support_tls_ca()->cert;
        co.ca_pem_len = strlen(support_tls_ca()->cert);
    }
    co.allocator = &w->allocator;
    assert_ok(tws_tls_server_new(&w->server_tls, &so, NULL));
    assert_ok(tws_tls_client_new(&w->client_tls, &co, NULL));
}

static void open_server(struct coming *w)
{
    tws_server_options o;

    w->allocator = counter_allocator(&w->library);
    w->library.fail_from = LONG_MAX;
    tws_deflate_options_init(&w->deflate);
    w->deflate.server_no_context_takeover = w->deflate.client_no_context_takeover = false;
    support_server_options(&o, support_echo, NULL);
    if (w->tls)
        make_tls(w);
    o.tls = w->server_tls;
    o.upgrade.allocator = &w->allocator;
    o.upgrade.deflate = w->compressed ? &w->deflate : NULL;
    support_server_start(&w->s, &o);
}

static void close_server(struct coming *w)
{
    tws_server_free(w->s.server);
    tws_tls_unref(w->server_tls);
    tws_tls_unref(w->client_tls);
    assert_int_equal(w->library.live, 0);
}

static void echo_once(tws_conn *c, bool orderly)
{
    char text[300];
    tws_message m;

    support_fill(text, sizeof text, 1);
    assert_ok(tws_write_message(c, TWS_TEXT, text, sizeof text));
    assert_ok(tws_read_message(c, &m));
    assert_int_equal(m.len, sizeof text);
    if (orderly)
        assert_ok(tws_close(c, TWS_CLOSE_NORMAL, "enough"));
    else
        tws_abort(c);
}

static void come_and_go(struct coming *w, int times)
{
    for (int i = 0; i < times; i++) {
        tws_dial_options o;
        char url[200];
        tws_conn *c;

        tws_dial_options_init(&o);
        o.tls = w->client_tls;
        o.allocator = &w->allocator;
        o.deflate = w->compressed ? &w->deflate : NULL;
        snprintf(url, sizeof url, "%s://%s/", w->tls ? "wss" : "ws", w->s.address);
        if (w->distrusted) {
            assert_err(tws_dial(&c, url, &o, NULL, NULL), TWS_ERR_CERTIFICATE);
            continue;
        }
        assert_ok(tws_dial(&c, url, &o, NULL, NULL));
        echo_once(c, i % 4 != 0);
        tws_conn_unref(c);
    }
}

/* A leak is there in every round; that light threads have got one more driver is not. */
static bool nothing_stays(struct coming *w, struct support_census over)
{
    long library = w->library.live, openssl = openssl_live;
    bool gone = false;

    come_and_go(w, MORE);
    support_assert_census(over);
    for (int i = 0; i < 100 && !gone; i++) { /* the last threads may still be leaving */
        gone = w->library.live <= library + SLACK && openssl_live <= openssl + SLACK;
        if (!gone)
            support_pause_ms(5);
    }
    return gone;
}

static void expect_nothing_stays(struct coming w)
{
    struct support_census over = {.threads = UINT_MAX}; /* no connection holds a descriptor */
    int round = 0;

    open_server(&w);
    over.descriptors = support_census().descriptors;
    come_and_go(&w, FIRST);
    support_assert_census(over);
    while (!nothing_stays(&w, over))
        if (++round == ROUNDS)
            fail_msg(
                "every %d connections leave more behind: now %ld blocks of the library's, %ld of "
                "OpenSSL's",
                MORE, w.library.live, openssl_live);
    close_server(&w);
}

static void test_plain(void **state)
{
    (void)state;
    expect_nothing_stays((struct coming){.compressed = false});
}

static void test_deflate(void **state)
{
    (void)state;
    expect_nothing_stays((struct coming){.compressed = true});
}

static void test_tls(void **state)
{
    (void)state;
    expect_nothing_stays((struct coming){.tls = true, .compressed = true});
}

static void test_handshakes_that_fail(void **state)
{
    (void)state;
    expect_nothing_stays((struct coming){.tls = true, .distrusted = true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_deflate),
        cmocka_unit_test(test_tls),
        cmocka_unit_test(test_handshakes_that_fail),
    };

    /* Before OpenSSL has allocated anything. */
    if (CRYPTO_set_mem_functions(openssl_alloc, openssl_resize, openssl_free) != 1)
        return 1;
    return cmocka_run_group_tests_name("client memory", tests, NULL, NULL);
}
