/*
 * TLS. OpenSSL's memory fails too, in contexts and in handshakes of both sides. What it swallows it may
 * take for a bad certificate: an X509_V_ERR_* with nothing in its queue of errors. So a call may blame
 * the certificate when OpenSSL itself was refused memory in this session, since nobody can know better
 * (see blames() in scene.c). But it must fail: what is wrong is never accepted, whatever fails.
 */
#include "scene_dial.h"

#include "support/pki.h"

#include <stdio.h>

static struct pki authority, stranger, leaf, elsewhere;

void scene_tls_prepare(void)
{
    pki_make(&authority, &(struct pki_spec){.name = "test CA", .ca = true});
    pki_make(&stranger, &(struct pki_spec){.name = "another CA", .ca = true});
    pki_make(&leaf,
             &(struct pki_spec){.name = "localhost", .alt = "DNS:localhost", .issuer = &authority});
    pki_make(&elsewhere,
             &(struct pki_spec){.name = "localhost", .alt = "DNS:elsewhere", .issuer = &authority});
}

static bool server_side(tws_tls **out, const struct pki *p)
{
    tws_tls_certificate cert = {.cert_pem = p->cert,
                                .cert_pem_len = strlen(p->cert),
                                .key_pem = p->key,
                                .key_pem_len = strlen(p->key)};
    tws_tls_server_options o;
    tws_error e;

    tws_tls_server_options_init(&o);
    o.certificates = &cert;
    o.certificate_count = 1;
    o.allocator = fault_allocator();
    return !note_error(tws_tls_server_new(out, &o, &e), &e);
}

/* name: whom it expects; NULL: whom it dials. */
static bool client_side(tws_tls **out, const struct pki *trusted, const char *name)
{
    tws_tls_client_options o;
    tws_error e;

    tws_tls_client_options_init(&o);
    o.ca_pem = trusted->cert;
    o.ca_pem_len = strlen(trusted->cert);
    o.server_name = name;
    o.allocator = fault_allocator();
    return !note_error(tws_tls_client_new(out, &o, &e), &e);
}

/* Without memory SSL_CTX_new() of OpenSSL 3.0 makes contexts that lack algorithms; nothing tells. */
static bool contexts_may_lack(void)
{
    return fault_struck() && fault_in_openssl();
}

static void talk(bool light, tws_tls *server, tws_tls *client)
{
    bool lacking = contexts_may_lack();
    tws_server_options opt;
    unsigned before;
    struct stand s;
    struct talk t;

    stand_options(&opt, light);
    opt.tls = server;
    if (!stand_open(&s, &opt, false))
        return;
    talk_options(&t, &s, "wss");
    t.opt.tls = client;
    on_thread(light, dial_and_talk, &t);
    before = notes();
    fault_pause(true);
    on_thread(light, dial_and_talk, &t);
    if (notes() != before && !lacking)
        die("a new client is not served when the fault is over");
    stand_close(&s);
}

void scene_tls(bool light)
{
    tws_tls *server = NULL, *client = NULL;

    if (server_side(&server, &leaf) && client_side(&client, &authority, NULL))
        talk(light, server, client);
    tws_tls_unref(server);
    tws_tls_unref(client);
}

/* ---- What must not be accepted ---- */

static void dial_in_vain(void *arg)
{
    struct talk *t = arg;
    tws_conn *c;
    tws_error e;
    tws_err err = tws_dial(&c, t->url, &t->opt, NULL, &e);

    if (!err || c)
        die("a wrong certificate was accepted: %s", t->url);
    if (err != TWS_ERR_CERTIFICATE)
        note_error(err, &e);
}

/* A name and an address that the certificate is not for, and an authority that is not trusted. */
static void try_all(bool light, tws_tls *server, tws_tls *client, tws_tls *other)
{
    tws_server_options opt;
    struct stand s;
    struct talk t;

    stand_options(&opt, light);
    opt.tls = server;
    if (!stand_open(&s, &opt, true))
        die("a server does not start");
    talk_options(&t, &s, "wss");
    t.opt.tls = client;
    on_thread(light, dial_in_vain, &t);
    snprintf(t.url, sizeof t.url, "wss://127.0.0.1%s/", strrchr(s.address, ':'));
    on_thread(light, dial_in_vain, &t);
    t.opt.tls = other;
    on_thread(light, dial_in_vain, &t);
    stand_close(&s);
}

void scene_tls_wrong(bool light)
{
    tws_tls *server = NULL, *client = NULL, *other = NULL;

    fault_pause(true);
    if (!server_side(&server, &elsewhere) || !client_side(&client, &authority, NULL) ||
        !client_side(&other, &stranger, "elsewhere"))
        die("no contexts");
    try_all(light, server, client, other);
    tws_tls_unref(server);
    tws_tls_unref(client);
    tws_tls_unref(other);
}
