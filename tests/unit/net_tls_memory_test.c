/*
 * Handshakes in which OpenSSL finds no memory on one side: whatever fails, nobody is accepted whose
 * certificate was not verified. `make test-fault` plays every allocation of whole sessions.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "tls_pair.h"

/* ---- Memory of the thread that runs the tests ---- */

static _Thread_local bool counting;
static _Thread_local long seen, failing;     /* failing: this one; 0: none */
static _Thread_local size_t name_size;       /* of a copy of the peer's name */
static _Thread_local long named, named_last; /* the first such copy, and the last one */

static bool due(size_t size)
{
    if (!counting)
        return false;
    seen++;
    if (size == name_size)
        named_last = seen;
    if (!named)
        named = named_last;
    return seen == failing;
}

static void *take(size_t size, const char *file, int line)
{
    (void)file;
    (void)line;
    return size == 0 || due(size) ? NULL : malloc(size);
}

static void give(void *block, const char *file, int line)
{
    (void)file;
    (void)line;
    free(block);
}

static void *resize(void *block, size_t size, const char *file, int line)
{
    if (block && size == 0) {
        give(block, file, line);
        return NULL;
    }
    return size == 0 || due(size) ? NULL : realloc(block, size);
}

/* ---- Certificates ---- */

static struct pki ca, stranger, leaf, alice;

static int set_up(void **state)
{
    (void)state;
    pki_make(&ca, &(struct pki_spec){.name = "Test CA", .ca = true});
    pki_make(&stranger, &(struct pki_spec){.name = "Stranger CA", .ca = true});
    pki_make(&leaf, &(struct pki_spec){
                        .name = "server", .alt = "DNS:server.test,IP:127.0.0.1", .issuer = &ca});
    pki_make(&alice, &(struct pki_spec){.name = "alice", .issuer = &ca});
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    pki_free(&ca);
    pki_free(&stranger);
    pki_free(&leaf);
    pki_free(&alice);
    return 0;
}

/* ---- Handshakes ---- */

static struct net_tls_error told; /* of this side */

/* One side on this thread, whose n-th allocation fails; 0: none. What came of that side. */
static int shake(tws_tls *server, tws_tls *client, const char *host, bool serve, long n)
{
    unsigned char address[4];
    struct pair p;
    struct end *mine = serve ? &p.server : &p.client, *other = serve ? &p.client : &p.server;

    pair_sockets(&p);
    p.server.params.tls = server;
    p.client.params.tls = client;
    p.client.params.host = host;
    end_start(other);
    name_size = 1 + (inet_pton(AF_INET, host, address) == 1 ? sizeof address : strlen(host));
    seen = named = named_last = 0;
    failing = n;
    counting = true;
    mine->result = net_tls_wrap(&mine->st, &mine->params, pair_soon(), &mine->error);
    counting = false;
    net_stream_shutdown(&mine->st, SHUT_RDWR);
    end_join(other);
    net_tls_thread_trim();
    told = mine->error;
    pair_close(&p);
    return mine->result;
}

/*
 * Refused whatever fails where OpenSSL goes on without: around the last copy of the name, which is that of
 * whom to verify, and in a server behind the first one, which is what the client asks for.
 */
static void never_accepted(tws_tls *server, tws_tls *client, const char *host, bool serve)
{
    long lacking = 0, at;

    assert_int_equal(shake(server, client, host, serve, 0), -EKEYREJECTED);
    at = serve ? named : named_last;
    assert_true(at > 20);
    for (long n = at - 20; n < at + 40; n++) {
        int r = shake(server, client, host, serve, n);

        if (r >= 0)
            fail_msg("accepted when allocation %ld failed", n);
        lacking += r == -ENOMEM;
    }
    assert_true(lacking > 5);
    assert_int_equal(shake(server, client, host, serve, 0), -EKEYREJECTED);
}

static void another_name_is_never_accepted(void **state)
{
    tws_tls *server = pair_server(&leaf), *client = pair_client(ca.cert);

    (void)state;
    never_accepted(server, client, "other.test", false);
    never_accepted(server, client, "127.0.0.2", false);
    tws_tls_unref(server);
    tws_tls_unref(client);
}

/* Nor by an application's own context, whose callback is asked as before. */
static int asked;

static int ask(int ok, X509_STORE_CTX *store)
{
    (void)store;
    asked++;
    return ok;
}

static void nor_by_a_context_of_the_application(void **state)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    tws_tls *server = pair_server(&leaf), *client;

    (void)state;
    assert_int_equal(X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), ca.x509), 1);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, ask);
    assert_int_equal(tws_tls_from_ctx(&client, ctx, false), TWS_OK);
    never_accepted(server, client, "other.test", false);
    assert_true(asked > 0);
    assert_int_equal(shake(server, client, "server.test", false, 0), 0);
    tws_tls_unref(server);
    tws_tls_unref(client);
    SSL_CTX_free(ctx);
}

/* A server trusts those that the name's context trusts, not those of its first one. */
static tws_tls *choose(const char *name, void *arg)
{
    (void)name;
    return arg;
}

static tws_tls *asking_server(const struct pki *trusted, tws_tls *other)
{
    tws_tls_certificate c = pki_certificate(&leaf);
    tws_tls_server_options o;

    tws_tls_server_options_init(&o);
    o.certificates = &c;
    o.certificate_count = 1;
    o.client_auth = TWS_CLIENT_AUTH_REQUIRE;
    o.client_ca_pem = trusted->cert;
    o.client_ca_pem_len = strlen(trusted->cert);
    o.on_sni = other ? choose : NULL;
    o.sni_arg = other;
    return pair_server_with(&o);
}

static void a_client_of_another_authority_is_never_accepted(void **state)
{
    tws_tls_certificate c = pki_certificate(&alice);
    tws_tls *strict = asking_server(&stranger, NULL), *server = asking_server(&ca, strict), *client;
    tws_tls_client_options o;

    (void)state;
    tws_tls_client_options_init(&o);
    o.ca_pem = ca.cert;
    o.ca_pem_len = strlen(ca.cert);
    o.certificate = &c;
    client = pair_client_with(&o);
    never_accepted(server, client, "server.test", true);
    tws_tls_unref(server);
    tws_tls_unref(strict);
    tws_tls_unref(client);
}

/* ---- What is right ---- */

/* A sound certificate is never blamed where it can be known, and the next handshake succeeds. */
static void a_lack_of_memory_is_told_and_passes(void **state)
{
    tws_tls *server = pair_server(&leaf), *client = pair_client(ca.cert);
    long n = 0, lacking = 0, done = 0;

    (void)state;
    do {
        int r = shake(server, client, "server.test", false, n += 3);

        if (r == -EKEYREJECTED)
            fail_msg("blamed for allocation %ld: %s", n, told.text);
        lacking += r == -ENOMEM;
        done += r == 0;
    } while (seen >= n);
    assert_true(lacking > 20 && done > 20);
    assert_int_equal(shake(server, client, "server.test", false, 0), 0);
    tws_tls_unref(server);
    tws_tls_unref(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_name_is_never_accepted),
        cmocka_unit_test(nor_by_a_context_of_the_application),
        cmocka_unit_test(a_client_of_another_authority_is_never_accepted),
        cmocka_unit_test(a_lack_of_memory_is_told_and_passes),
    };

    if (CRYPTO_set_mem_functions(take, resize, give) != 1)
        return 1;
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
