/* Whom servers and clients trust: authorities of clients, from memory and from files, and the system's. */
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
static char cert_path[] = "/tmp/tws-trust-XXXXXX";

static int set_up(void **state)
{
    struct pki_spec authority = {.name = "Test CA", .ca = true};
    struct pki_spec server = {.name = "server", .alt = "DNS:server.test", .issuer = &ca};
    int fd = mkstemp(cert_path);

    (void)state;
    pki_make(&ca, &authority);
    pki_make(&leaf, &server);
    return fd < 0 ? -1 : close(fd);
}

static int tear_down(void **state)
{
    (void)state;
    pki_free(&ca);
    pki_free(&leaf);
    return unlink(cert_path);
}

/* ---- Clients' certificates ---- */

static tws_tls *asking_server(tws_client_auth auth)
{
    tws_tls_certificate c = pki_certificate(&leaf);
    tws_tls_server_options o;

    tws_tls_server_options_init(&o);
    o.certificates = &c;
    o.certificate_count = 1;
    o.client_auth = auth;
    o.client_ca_pem = ca.cert;
    o.client_ca_pem_len = strlen(ca.cert);
    return pair_server_with(&o);
}

static tws_tls *client_showing(const struct pki *p)
{
    tws_tls_certificate c;
    tws_tls_client_options o;

    tws_tls_client_options_init(&o);
    o.ca_pem = ca.cert;
    o.ca_pem_len = strlen(ca.cert);
    if (p) {
        c = pki_certificate(p);
        o.certificate = &c;
    }
    return pair_client_with(&o);
}

/* TLS 1.3: the client learns of it when it reads. */
static void expect_server_refuses(tws_tls *server, tws_tls *client, const char *word,
                                  const char *client_word)
{
    struct pair pair;
    struct net_tls_error e;
    char buf[16];

    pair_shake(&pair, server, client, "server.test");
    assert_int_equal(pair.server.result, -EKEYREJECTED);
    assert_in(pair.server.error.text, word);
    assert_int_equal(pair.client.result, 0);
    assert_int_equal(pair_receive(&pair.client.st, buf, sizeof buf), -EKEYREJECTED);
    net_tls_last_error(&pair.client.st, &e);
    assert_in(e.text, client_word);
    pair_close(&pair);
}

static void clients_show_certificates(void **state)
{
    struct pki_spec spec = {.name = "alice", .issuer = &ca};
    struct pki_spec stranger_spec = {.name = "mallory"};
    struct pki alice, mallory;
    tws_tls *request = asking_server(TWS_CLIENT_AUTH_REQUEST);
    tws_tls *require = asking_server(TWS_CLIENT_AUTH_REQUIRE);
    tws_tls *without, *with, *strange;
    struct pair pair;
    tws_tls_info info;

    (void)state;
    pki_make(&alice, &spec);
    pki_make(&mallory, &stranger_spec);
    without = client_showing(NULL);
    with = client_showing(&alice);
    strange = client_showing(&mallory);
    pair_open(&pair, require, with, "server.test");
    net_tls_describe(&pair.server.st, &info);
    assert_true(info.has_certificate && info.verified);
    assert_string_equal(info.peer_subject, "CN=alice");
    pair_close(&pair);
    expect_accepted(request, without, "server.test", true);
    expect_server_refuses(require, without, "showed no certificate", "requires a certificate");
    expect_server_refuses(require, strange, "self-signed", "our certificate");
    expect_server_refuses(request, strange, "self-signed", "our certificate");
    tws_tls_unref(request);
    tws_tls_unref(require);
    tws_tls_unref(without);
    tws_tls_unref(with);
    tws_tls_unref(strange);
    pki_free(&alice);
    pki_free(&mallory);
}

static void authorities_of_clients_come_from_a_file(void **state)
{
    struct pki_spec spec = {.name = "alice", .issuer = &ca};
    struct pki alice;
    tws_tls_certificate c = pki_certificate(&leaf);
    tws_tls_server_options o;
    tws_tls *server, *with, *without = client_showing(NULL);
    tws_error e;

    (void)state;
    pki_make(&alice, &spec);
    with = client_showing(&alice);
    tws_tls_server_options_init(&o);
    o.certificates = &c;
    o.certificate_count = 1;
    o.client_auth = TWS_CLIENT_AUTH_REQUIRE;
    o.client_ca_file = "/nowhere/ca.pem";
    assert_int_equal(tws_tls_server_new(&server, &o, &e), TWS_ERR_CERTIFICATE);
    assert_in(e.text, "ca.pem: No such file");
    pki_write(cert_path, ca.cert);
    o.client_ca_file = cert_path;
    server = pair_server_with(&o);
    expect_accepted(server, with, "server.test", true);
    expect_server_refuses(server, without, "showed no certificate", "requires a certificate");
    tws_tls_unref(server);
    tws_tls_unref(with);
    tws_tls_unref(without);
    pki_free(&alice);
}

/* ---- Whom a client trusts ---- */

/* The system's, here those of SSL_CERT_FILE, count where none are named, and beside others when asked for. */
static void the_systems_authorities_count_when_asked_for(void **state)
{
    struct pki_spec spec = {.name = "Other CA", .ca = true};
    struct pki other;
    tws_tls *server = pair_server(&leaf), *client;
    tws_tls_client_options o;
    struct pair pair;

    (void)state;
    pki_make(&other, &spec);
    pki_write(cert_path, ca.cert);
    setenv("SSL_CERT_FILE", cert_path, 1);
    tws_tls_client_options_init(&o);
    client = pair_client_with(&o);
    expect_accepted(server, client, "server.test", true);
    tws_tls_unref(client);
    o.ca_pem = other.cert;
    o.ca_pem_len = strlen(other.cert);
    client = pair_client_with(&o);
    pair_shake(&pair, server, client, "server.test");
    assert_int_equal(pair.client.result, -EKEYREJECTED);
    pair_close(&pair);
    tws_tls_unref(client);
    o.system_trust_too = true;
    client = pair_client_with(&o);
    expect_accepted(server, client, "server.test", true);
    tws_tls_unref(client);
    unsetenv("SSL_CERT_FILE");
    tws_tls_unref(server);
    pki_free(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clients_show_certificates),
        cmocka_unit_test(authorities_of_clients_come_from_a_file),
        cmocka_unit_test(the_systems_authorities_count_when_asked_for),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
