/* Certificates: what is read, what is accepted, and in which words the rest is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tls_pair.h"

static struct pki ca, leaf;
static char dir[] = "/tmp/tws-tls-XXXXXX";
static char cert_path[64], key_path[64];

static int set_up(void **state)
{
    struct pki_spec authority = {.name = "Test CA", .ca = true};
    struct pki_spec server = {
        .name = "server", .alt = "DNS:server.test,IP:127.0.0.1", .issuer = &ca};

    (void)state;
    pki_make(&ca, &authority);
    pki_make(&leaf, &server);
    if (!mkdtemp(dir))
        return -1;
    snprintf(cert_path, sizeof cert_path, "%s/cert.pem", dir);
    snprintf(key_path, sizeof key_path, "%s/key.pem", dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    pki_free(&ca);
    pki_free(&leaf);
    unlink(cert_path);
    unlink(key_path);
    return rmdir(dir);
}

/* ---- What a client accepts ---- */

/* A server that shows `chain` with leaf's key, a client that trusts `trust`. */
static void expect_refusal(const char *chain, const struct pki *p, const char *trust,
                           const char *host, const char *word, const char *other_word)
{
    tws_tls_certificate c = {.cert_pem = chain,
                             .cert_pem_len = strlen(chain),
                             .key_pem = p->key,
                             .key_pem_len = strlen(p->key)};
    tws_tls_server_options o;
    tws_tls *server, *client = pair_client(trust);
    struct pair pair;

    tws_tls_server_options_init(&o);
    o.certificates = &c;
    o.certificate_count = 1;
    server = pair_server_with(&o);
    pair_shake(&pair, server, client, host);
    assert_int_equal(pair.client.result, -EKEYREJECTED);
    assert_in(pair.client.error.text, word);
    assert_in(pair.client.error.text, other_word);
    assert_int_not_equal(pair.client.error.verify, 0);
    assert_int_not_equal(pair.client.error.code, 0);
    /* The server is told by an alert, and has words for it too. */
    assert_true(pair.server.result < 0);
    assert_in(pair.server.error.text, "our certificate");
    pair_close(&pair);
    tws_tls_unref(server);
    tws_tls_unref(client);
}

static void an_expired_certificate_is_refused(void **state)
{
    struct pki_spec spec = {
        .name = "old", .alt = "DNS:server.test", .issuer = &ca, .begin = -86400 * 3, .end = -86400};
    struct pki old;

    (void)state;
    pki_make(&old, &spec);
    expect_refusal(old.cert, &old, ca.cert, "server.test", "\"old\" expired on 20", "UTC");
    pki_free(&old);
}

static void one_of_the_future_is_refused(void **state)
{
    struct pki_spec spec = {
        .name = "new", .alt = "DNS:server.test", .issuer = &ca, .begin = 86400, .end = 86400 * 2};
    struct pki new;

    (void)state;
    pki_make(&new, &spec);
    expect_refusal(new.cert, &new, ca.cert, "server.test", "not valid before", "clock");
    pki_free(&new);
}

static void a_self_signed_one_is_refused(void **state)
{
    struct pki_spec spec = {.name = "selfie", .alt = "DNS:server.test"};
    struct pki self;

    (void)state;
    pki_make(&self, &spec);
    expect_refusal(self.cert, &self, ca.cert, "server.test", "\"selfie\" is self-signed",
                   "ca_file");
    pki_free(&self);
}

static void another_name_is_refused(void **state)
{
    (void)state;
    expect_refusal(leaf.cert, &leaf, ca.cert, "other.test", "not for the name \"other.test\"",
                   "server.test, 127.0.0.1");
    /* A name in the subject only is none. */
    struct pki_spec spec = {.name = "server.test", .issuer = &ca};
    struct pki bare;

    pki_make(&bare, &spec);
    expect_refusal(bare.cert, &bare, ca.cert, "server.test", "not for the name", "subjectAltName");
    pki_free(&bare);
}

static void another_address_is_refused(void **state)
{
    (void)state;
    expect_refusal(leaf.cert, &leaf, ca.cert, "127.0.0.2", "not for the address 127.0.0.2",
                   "127.0.0.1");
    expect_refusal(leaf.cert, &leaf, ca.cert, "::1", "not for the address ::1", "127.0.0.1");
}

static void a_missing_authority_and_a_cut_chain_are_told_apart(void **state)
{
    struct pki_spec between_spec = {.name = "Between", .ca = true, .issuer = &ca};
    struct pki_spec spec = {.name = "deep", .alt = "DNS:server.test"};
    struct pki_spec stranger_spec = {.name = "Stranger CA", .ca = true};
    struct pki between, deep, stranger;
    char *chain, *whole;

    (void)state;
    pki_make(&between, &between_spec);
    pki_make(&stranger, &stranger_spec);
    spec.issuer = &between;
    pki_make(&deep, &spec);
    chain = pki_join(deep.cert, between.cert);
    whole = pki_join(chain, ca.cert);
    expect_refusal(deep.cert, &deep, ca.cert, "server.test", "issued by \"Between\"",
                   "chain is incomplete");
    expect_refusal(chain, &deep, stranger.cert, "server.test", "issued by \"Test CA\"",
                   "an authority that is not trusted here");
    expect_refusal(whole, &deep, stranger.cert, "server.test", "ends at the authority \"Test CA\"",
                   "not trusted");
    free(chain);
    free(whole);
    pki_free(&between);
    pki_free(&deep);
    pki_free(&stranger);
}

static void the_right_name_and_address_are_accepted(void **state)
{
    tws_tls *server = pair_server(&leaf), *client = pair_client(ca.cert);

    (void)state;
    expect_accepted(server, client, "server.test", true);
    expect_accepted(server, client, "SERVER.test", true);
    expect_accepted(server, client, "server.test.", true);
    expect_accepted(server, client, "127.0.0.1", true);
    tws_tls_unref(server);
    tws_tls_unref(client);
}

static void only_the_plainly_named_option_skips_verification(void **state)
{
    struct pki_spec spec = {.name = "selfie"};
    struct pki self;
    tws_tls_client_options o;
    tws_tls *server, *client;

    (void)state;
    pki_make(&self, &spec);
    server = pair_server(&self);
    tws_tls_client_options_init(&o);
    assert_false(o.insecure_skip_verify);
    o.insecure_skip_verify = true;
    client = pair_client_with(&o);
    expect_accepted(server, client, "any.test", false);
    expect_accepted(server, client, NULL, false);
    tws_tls_unref(client);
    /* The system's authorities are the default, and know nothing of this one. */
    client = pair_client(NULL);
    struct pair pair;
    pair_shake(&pair, server, client, "server.test");
    assert_int_equal(pair.client.result, -EKEYREJECTED);
    pair_close(&pair);
    tws_tls_unref(client);
    tws_tls_unref(server);
    pki_free(&self);
}

static void without_a_name_nothing_is_verified_so_it_fails(void **state)
{
    tws_tls *server = pair_server(&leaf), *client = pair_client(ca.cert);
    struct pair pair;

    (void)state;
    pair_shake(&pair, server, client, "");
    assert_int_equal(pair.client.result, -EINVAL);
    assert_in(pair.client.error.text, "server_name");
    pair_close(&pair);
    tws_tls_unref(server);
    tws_tls_unref(client);
}

static void server_name_stands_in_for_the_host(void **state)
{
    tws_tls *server = pair_server(&leaf), *client;
    tws_tls_client_options o;
    struct pair pair;
    tws_tls_info info;

    (void)state;
    tws_tls_client_options_init(&o);
    o.ca_pem = ca.cert;
    o.ca_pem_len = strlen(ca.cert);
    o.server_name = "server.test";
    client = pair_client_with(&o);
    pair_open(&pair, server, client, "somewhere.else");
    net_tls_describe(&pair.server.st, &info);
    assert_string_equal(info.server_name, "server.test");
    pair_close(&pair);
    tws_tls_unref(server);
    tws_tls_unref(client);
}

/* B158: a server must not be asked for an address by name. */
static void an_address_is_not_sent_as_a_name(void **state)
{
    tws_tls *server = pair_server(&leaf), *client = pair_client(ca.cert);
    struct pair pair;
    tws_tls_info info;

    (void)state;
    pair_open(&pair, server, client, "127.0.0.1");
    net_tls_describe(&pair.server.st, &info);
    assert_string_equal(info.server_name, "");
    pair_close(&pair);
    tws_tls_unref(server);
    tws_tls_unref(client);
}

/* ---- What a server is made of ---- */

static void expect_fault(const tws_tls_certificate *c, tws_err code, const char *word)
{
    tws_tls_server_options o;
    tws_tls *tls = (tws_tls *)&o;
    tws_error e;

    tws_tls_server_options_init(&o);
    o.certificates = c;
    o.certificate_count = 1;
    assert_int_equal(tws_tls_server_new(&tls, &o, &e), code);
    assert_null(tls);
    assert_int_equal(e.code, code);
    assert_in(e.text, word);
}

static void what_is_wrong_with_a_file_is_said(void **state)
{
    struct pki_spec spec = {.name = "other", .issuer = &ca, .password = "secret"};
    struct pki other;
    tws_tls_certificate c = {.cert_file = "/nowhere/none.pem"};

    (void)state;
    pki_make(&other, &spec);
    expect_fault(&c, TWS_ERR_CERTIFICATE, "none.pem: No such file");
    c = (tws_tls_certificate){0};
    expect_fault(&c, TWS_ERR_ARGUMENT, "neither cert_file nor cert_pem");
    pki_write(cert_path, "nothing in here\n");
    c = (tws_tls_certificate){.cert_file = cert_path};
    expect_fault(&c, TWS_ERR_CERTIFICATE, "holds no certificate");
    pki_write(cert_path, leaf.cert);
    expect_fault(&c, TWS_ERR_CERTIFICATE, "holds no private key");
    c.key_file = key_path;
    expect_fault(&c, TWS_ERR_CERTIFICATE, "key.pem: No such file");
    pki_write(key_path, other.key);
    expect_fault(&c, TWS_ERR_CERTIFICATE, "encrypted and no password");
    c.password = "guess";
    expect_fault(&c, TWS_ERR_CERTIFICATE, "wrong password");
    c.password = "secret";
    expect_fault(&c, TWS_ERR_CERTIFICATE, "does not belong to the certificate");
    pki_write(cert_path, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    expect_fault(&c, TWS_ERR_CERTIFICATE, "damaged");
    pki_write(cert_path, other.cert);
    tws_tls_server_options o;
    tws_tls_server_options_init(&o);
    o.certificates = &c;
    o.certificate_count = 1;
    tws_tls_unref(pair_server_with(&o));
    pki_free(&other);
}

static void options_are_checked(void **state)
{
    tws_tls_certificate c = pki_certificate(&leaf);
    tws_tls_server_options o;
    tws_tls_client_options co;
    tws_tls *tls;
    tws_error e;

    (void)state;
    tws_tls_server_options_init(&o);
    assert_int_equal(tws_tls_server_new(&tls, &o, &e), TWS_ERR_ARGUMENT);
    o.certificates = &c;
    o.certificate_count = 1;
    o.client_auth = TWS_CLIENT_AUTH_REQUIRE;
    assert_int_equal(tws_tls_server_new(&tls, &o, &e), TWS_ERR_ARGUMENT);
    assert_in(e.text, "client_ca_file");
    o.client_auth = TWS_CLIENT_AUTH_NONE;
    o.ciphers = "no-such-cipher";
    assert_int_equal(tws_tls_server_new(&tls, &o, &e), TWS_ERR_ARGUMENT);
    assert_in(e.text, "ciphers");
    o.ciphers = NULL;
    o.ktls = true;
    assert_int_equal(tws_tls_server_new(&tls, &o, NULL), TWS_ERR_UNSUPPORTED);
    tws_tls_client_options_init(&co);
    co.ca_file = "/nowhere/none.pem";
    assert_int_equal(tws_tls_client_new(&tls, &co, &e), TWS_ERR_CERTIFICATE);
    assert_in(e.text, "none.pem");
    co.ca_file = NULL;
    co.ca_dir = "/nowhere";
    assert_int_equal(tws_tls_client_new(&tls, &co, &e), TWS_ERR_CERTIFICATE);
    co.ca_dir = NULL;
    co.ktls = true;
    assert_int_equal(tws_tls_client_new(&tls, &co, &e), TWS_ERR_UNSUPPORTED);
}

/* Whose certificate a client sees that asks for a name. */
static void expect_subject(tws_tls *server, tws_tls *client, const char *host, const char *subject)
{
    struct pair pair;
    tws_tls_info info;

    pair_open(&pair, server, client, host);
    net_tls_describe(&pair.client.st, &info);
    assert_string_equal(info.peer_subject, subject);
    pair_close(&pair);
}

static void reload_takes_new_files_and_keeps_old_connections(void **state)
{
    struct pki_spec spec = {.name = "second", .alt = "DNS:server.test", .issuer = &ca};
    struct pki second;
    tws_tls_certificate c = {.cert_file = cert_path, .key_file = key_path};
    tws_tls_server_options o;
    tws_tls *server, *client = pair_client(ca.cert);
    struct pair open;
    tws_error e;

    (void)state;
    pki_make(&second, &spec);
    pki_write(cert_path, leaf.cert);
    pki_write(key_path, leaf.key);
    tws_tls_server_options_init(&o);
    o.certificates = &c;
    o.certificate_count = 1;
    server = pair_server_with(&o);
    pair_open(&open, server, client, "server.test");
    pki_write(cert_path, second.cert);
    assert_int_equal(tws_tls_reload(server, &e), TWS_ERR_CERTIFICATE);
    assert_in(e.text, "does not belong");
    expect_subject(server, client, "server.test", "CN=server");
    pki_write(key_path, second.key);
    assert_int_equal(tws_tls_reload(server, &e), TWS_OK);
    expect_subject(server, client, "server.test", "CN=second");
    assert_int_equal(pair_send(&open.client.st, "still", 5), 0);
    pair_expect(&open.server.st, "still");
    pair_close(&open);
    tws_tls_unref(server);
    tws_tls_unref(client);
    pki_free(&second);
}

/* ---- Which certificate ---- */

static tws_tls *chosen;

static tws_tls *choose(const char *name, void *arg)
{
    *(int *)arg += 1;
    return name && strcmp(name, "special.test") == 0 ? chosen : NULL;
}

static void the_name_chooses_the_certificate(void **state)
{
    struct pki_spec star_spec = {.name = "star", .alt = "DNS:*.wild.test", .issuer = &ca};
    struct pki_spec exact_spec = {
        .name = "exact", .alt = "DNS:one.wild.test,DNS:special.test", .issuer = &ca};
    struct pki star, exact;
    tws_tls_server_options o;
    tws_tls *server, *client = pair_client(ca.cert);
    int asked = 0;

    (void)state;
    pki_make(&star, &star_spec);
    pki_make(&exact, &exact_spec);
    tws_tls_certificate list[] = {pki_certificate(&leaf), pki_certificate(&star),
                                  pki_certificate(&exact)};
    chosen = pair_server(&exact);
    tws_tls_server_options_init(&o);
    o.certificates = list;
    o.certificate_count = 3;
    o.on_sni = choose;
    o.sni_arg = &asked;
    server = pair_server_with(&o);
    expect_subject(server, client, "server.test", "CN=server");
    expect_subject(server, client, "two.WILD.test", "CN=star");
    expect_subject(server, client, "one.wild.test", "CN=exact");
    expect_subject(server, client, "special.test", "CN=exact");
    expect_subject(server, client, "127.0.0.1", "CN=server");
    assert_int_equal(asked, 5);
    tws_tls_unref(server);
    tws_tls_unref(chosen);
    tws_tls_unref(client);
    pki_free(&star);
    pki_free(&exact);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_expired_certificate_is_refused),
        cmocka_unit_test(one_of_the_future_is_refused),
        cmocka_unit_test(a_self_signed_one_is_refused),
        cmocka_unit_test(another_name_is_refused),
        cmocka_unit_test(another_address_is_refused),
        cmocka_unit_test(a_missing_authority_and_a_cut_chain_are_told_apart),
        cmocka_unit_test(the_right_name_and_address_are_accepted),
        cmocka_unit_test(only_the_plainly_named_option_skips_verification),
        cmocka_unit_test(without_a_name_nothing_is_verified_so_it_fails),
        cmocka_unit_test(server_name_stands_in_for_the_host),
        cmocka_unit_test(an_address_is_not_sent_as_a_name),
        cmocka_unit_test(what_is_wrong_with_a_file_is_said),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(reload_takes_new_files_and_keeps_old_connections),
        cmocka_unit_test(the_name_chooses_the_certificate),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
