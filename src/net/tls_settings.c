/* Options of TLS: copies. */
#include "net/tls_context.h"

#include "base/alloc.h"

#include <string.h>

/* Copies a string if there is one; *ok becomes false when there is no memory. */
static char *copy_text(const tws_allocator *a, const char *text, bool *ok)
{
    char *copy = text ? base_strdup(a, text) : NULL;

    if (text && !copy)
        *ok = false;
    return copy;
}

static void *copy_bytes(const tws_allocator *a, const void *data, size_t len, bool *ok)
{
    void *copy;

    if (!data || len == 0)
        return NULL;
    copy = base_alloc(a, len);
    if (copy)
        memcpy(copy, data, len);
    else
        *ok = false;
    return copy;
}

static void copy_certificate(const tws_allocator *a, tws_tls_certificate *to,
                             const tws_tls_certificate *from, bool *ok)
{
    to->cert_file = copy_text(a, from->cert_file, ok);
    to->key_file = copy_text(a, from->key_file, ok);
    to->password = copy_text(a, from->password, ok);
    to->cert_pem = copy_bytes(a, from->cert_pem, from->cert_pem_len, ok);
    to->cert_pem_len = to->cert_pem ? from->cert_pem_len : 0;
    to->key_pem = copy_bytes(a, from->key_pem, from->key_pem_len, ok);
    to->key_pem_len = to->key_pem ? from->key_pem_len : 0;
}

static void copy_certificates(struct tls_settings *s, const tws_tls_certificate *list, size_t count,
                              bool *ok)
{
    if (count == 0)
        return;
    s->certificates = base_calloc(s->allocator, count * sizeof *s->certificates);
    if (!s->certificates) {
        *ok = false;
        return;
    }
    s->certificate_count = count;
    for (size_t i = 0; i < count; i++)
        copy_certificate(s->allocator, &s->certificates[i], &list[i], ok);
}

bool tls_settings_server(struct tls_settings *s, const tws_tls_server_options *o)
{
    bool ok = true;

    memset(s, 0, sizeof *s);
    s->allocator = o->allocator;
    s->server = true;
    copy_certificates(s, o->certificates, o->certificate_count, &ok);
    s->on_sni = o->on_sni;
    s->sni_arg = o->sni_arg;
    s->client_auth = o->client_auth;
    s->ca_file = copy_text(o->allocator, o->client_ca_file, &ok);
    s->ca_pem = copy_bytes(o->allocator, o->client_ca_pem, o->client_ca_pem_len, &ok);
    s->ca_pem_len = s->ca_pem ? o->client_ca_pem_len : 0;
    s->min_version = o->min_version;
    s->ciphers = copy_text(o->allocator, o->ciphers, &ok);
    s->ciphersuites = copy_text(o->allocator, o->ciphersuites, &ok);
    s->keep_sessions = !o->no_tickets;
    return ok;
}

bool tls_settings_client(struct tls_settings *s, const tws_tls_client_options *o)
{
    bool ok = true;
    bool own_trust = o->ca_file || o->ca_dir || (o->ca_pem && o->ca_pem_len > 0);

    memset(s, 0, sizeof *s);
    s->allocator = o->allocator;
    copy_certificates(s, o->certificate, o->certificate ? 1 : 0, &ok);
    s->ca_file = copy_text(o->allocator, o->ca_file, &ok);
    s->ca_dir = copy_text(o->allocator, o->ca_dir, &ok);
    s->ca_pem = copy_bytes(o->allocator, o->ca_pem, o->ca_pem_len, &ok);
    s->ca_pem_len = s->ca_pem ? o->ca_pem_len : 0;
    s->system_trust = !own_trust || o->system_trust_too;
    s->skip_verify = o->insecure_skip_verify;
    s->server_name = copy_text(o->allocator, o->server_name, &ok);
    s->min_version = o->min_version;
    s->ciphers = copy_text(o->allocator, o->ciphers, &ok);
    s->ciphersuites = copy_text(o->allocator, o->ciphersuites, &ok);
    s->keep_sessions = !o->no_sessions;
    return ok;
}

static void free_constant(const tws_allocator *a, const void *data)
{
    base_free(a, (void *)(uintptr_t)data);
}

/* Keys and passwords do not stay behind in freed memory. */
static void free_secret(const tws_allocator *a, const void *data, size_t len)
{
    if (data)
        OPENSSL_cleanse((void *)(uintptr_t)data, len);
    free_constant(a, data);
}

void tls_settings_clear(struct tls_settings *s)
{
    const tws_allocator *a = s->allocator;

    for (size_t i = 0; i < s->certificate_count; i++) {
        tws_tls_certificate *c = &s->certificates[i];

        free_constant(a, c->cert_file);
        free_constant(a, c->key_file);
        free_secret(a, c->password, c->password ? strlen(c->password) : 0);
        free_secret(a, c->cert_pem, c->cert_pem_len); /* the key may be in it */
        free_secret(a, c->key_pem, c->key_pem_len);
    }
    base_free(a, s->certificates);
    base_free(a, s->ca_file);
    base_free(a, s->ca_dir);
    base_free(a, s->ca_pem);
    base_free(a, s->server_name);
    base_free(a, s->ciphers);
    base_free(a, s->ciphersuites);
    memset(s, 0, sizeof *s);
}
