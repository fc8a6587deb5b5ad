/* Contexts: made from settings, made again from the same files, and chosen by name. */
#include "net/tls_context.h"

#include "base/alloc.h"
#include "base/sized.h"
#include "net/tls.h"

#include <openssl/err.h>

#include <stdio.h>
#include <string.h>

#include <tws/openssl.h>

/* TLS 1.2: authenticated encryption and forward secrecy only. */
#define DEFAULT_CIPHERS "ECDHE+AESGCM:ECDHE+CHACHA20"
#define SESSION_CONTEXT "tws"

/* ---- One context ---- */

static tws_err set_rules(SSL_CTX *ctx, const struct tls_settings *s, struct tls_fault *f)
{
    uint64_t options = SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION;

    if (s->server)
        options |= SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA;
    if (!s->keep_sessions)
        options |= SSL_OP_NO_TICKET;
    SSL_CTX_set_options(ctx, options);
    ERR_clear_error();
    if (SSL_CTX_set_min_proto_version(ctx, (int)s->min_version) != 1)
        return tls_fault_set(f, TWS_ERR_ARGUMENT, true, "min_version");
    if (SSL_CTX_set_cipher_list(ctx, s->ciphers ? s->ciphers : DEFAULT_CIPHERS) != 1)
        return tls_fault_set(f, TWS_ERR_ARGUMENT, true, "ciphers");
    if (s->ciphersuites && SSL_CTX_set_ciphersuites(ctx, s->ciphersuites) != 1)
        return tls_fault_set(f, TWS_ERR_ARGUMENT, true, "ciphersuites");
    return TWS_OK;
}

static tws_err set_server(SSL_CTX *ctx, const struct tls_settings *s, struct tls_fault *f)
{
    int mode = SSL_VERIFY_NONE;

    if (s->client_auth != TWS_CLIENT_AUTH_NONE)
        mode = SSL_VERIFY_PEER;
    if (s->client_auth == TWS_CLIENT_AUTH_REQUIRE)
        mode |= SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
    SSL_CTX_set_verify(ctx, mode, tls_on_verify);
    /* Tickets hold all that is needed; a cache would only grow. */
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    if (!s->keep_sessions)
        SSL_CTX_set_num_tickets(ctx, 0);
    SSL_CTX_set_session_id_context(ctx, (const unsigned char *)SESSION_CONTEXT,
                                   sizeof SESSION_CONTEXT - 1);
    SSL_CTX_set_tlsext_servername_callback(ctx, tls_on_name);
    SSL_CTX_set_alpn_select_cb(ctx, tls_on_alpn, NULL);
    return tls_load_authorities(ctx, s, true, f);
}

static tws_err set_client(SSL_CTX *ctx, const struct tls_settings *s, struct tls_fault *f)
{
    static const unsigned char protocols[] = "\x08http/1.1";

    SSL_CTX_set_verify(ctx, s->skip_verify ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, tls_on_verify);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    if (s->keep_sessions) {
        SSL_CTX_set_session_cache_mode(ctx,
                                       SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL_STORE);
        SSL_CTX_sess_set_new_cb(ctx, tls_on_session);
    }
    if (SSL_CTX_set_alpn_protos(ctx, protocols, sizeof protocols - 1) != 0)
        return tls_fault_set(f, TWS_ERR_MEMORY, false, "out of memory");
    return s->skip_verify ? TWS_OK : tls_load_authorities(ctx, s, false, f);
}

/* `certificate` may be NULL in a client. */
static SSL_CTX *new_context(const struct tls_settings *s, const tws_tls_certificate *certificate,
                            struct tls_fault *f)
{
    SSL_CTX *ctx = SSL_CTX_new(s->server ? TLS_server_method() : TLS_client_method());
    tws_err err;

    if (!ctx) {
        tls_fault_set(f, TWS_ERR_MEMORY, true, "no TLS context");
        return NULL;
    }
    err = set_rules(ctx, s, f);
    if (!err)
        err = s->server ? set_server(ctx, s, f) : set_client(ctx, s, f);
    if (!err && certificate)
        err = tls_load_certificate(ctx, certificate, f);
    if (!err)
        return ctx;
    SSL_CTX_free(ctx);
    return NULL;
}

/* ---- Sets ---- */

void tls_set_unref(struct tls_set *set)
{
    if (!set || !base_ref_put(&set->refs))
        return;
    for (size_t i = 0; i < set->count; i++)
        SSL_CTX_free(set->ctx[i]);
    if (set->sessions)
        tls_sessions_clear(set->sessions, set->allocator);
    base_free(set->allocator, set->sessions);
    base_free(set->allocator, set);
}

/* Room for contexts that are not there yet. */
static struct tls_set *set_new(const tws_allocator *a, size_t contexts, bool sessions,
                               struct tls_fault *f)
{
    struct tls_set *set = base_calloc(a, sizeof *set + contexts * sizeof(SSL_CTX *));

    if (set && sessions) {
        set->sessions = base_alloc(a, sizeof *set->sessions);
        if (set->sessions) {
            tls_sessions_init(set->sessions);
        } else {
            base_free(a, set);
            set = NULL;
        }
    }
    if (!set) {
        tls_fault_set(f, TWS_ERR_MEMORY, false, "out of memory");
        return NULL;
    }
    base_ref_init(&set->refs);
    set->allocator = a;
    return set;
}

static struct tls_set *set_load(const struct tls_settings *s, struct tls_fault *f)
{
    size_t count = s->certificate_count > 0 ? s->certificate_count : 1;
    struct tls_set *set = set_new(s->allocator, count, !s->server && s->keep_sessions, f);

    while (set && set->count < count) {
        const tws_tls_certificate *c =
            s->certificate_count > 0 ? &s->certificates[set->count] : NULL;
        SSL_CTX *ctx = new_context(s, c, f);

        if (!ctx) {
            tls_set_unref(set);
            return NULL;
        }
        set->ctx[set->count++] = ctx;
    }
    return set;
}

struct tls_set *tls_set_get(struct tws_tls *tls)
{
    struct tls_set *set;

    pthread_mutex_lock(&tls->mu);
    set = tls->set;
    if (set)
        base_ref_get(&set->refs);
    pthread_mutex_unlock(&tls->mu);
    return set;
}

SSL_CTX *tls_set_choose(const struct tls_set *set, const char *name)
{
    SSL_CTX *best = set->ctx[0];
    enum tls_fit best_fit = TLS_FIT_NONE;

    for (size_t i = 0; name && set->count > 1 && i < set->count; i++) {
        X509 *cert = SSL_CTX_get0_certificate(set->ctx[i]);
        enum tls_fit fit = cert ? tls_certificate_fit(cert, name) : TLS_FIT_NONE;

        if (fit > best_fit) {
            best = set->ctx[i];
            best_fit = fit;
        }
    }
    return best;
}

/* ---- tws_tls ---- */

static tws_err failed(tws_error *e, const struct tls_fault *f)
{
    if (!e)
        return f->code;
    memset(e, 0, sizeof *e);
    e->code = f->code;
    e->phase = TWS_PHASE_TLS;
    e->cause = TWS_CAUSE_LOCAL;
    e->sys_errno = f->sys_errno;
    e->tls_error = f->tls;
    snprintf(e->text, sizeof e->text, "%s", f->text);
    return f->code;
}

static tws_err failed_with(tws_error *e, tws_err code, const char *text)
{
    struct tls_fault f = {.code = code};

    snprintf(f.text, sizeof f.text, "%s: %s", tws_err_text(code), text);
    return failed(e, &f);
}

struct tws_tls *tls_new_bare(const tws_allocator *a)
{
    struct tws_tls *tls = base_calloc(a, sizeof *tls);

    if (!tls)
        return NULL;
    tls->method = tls_bio_method();
    if (!tls->method) {
        base_free(a, tls);
        return NULL;
    }
    base_ref_init(&tls->refs);
    tls->settings.allocator = a;
    base_pool_init(&tls->buffers, a, TLS_BUFFER, 16);
    pthread_mutex_init(&tls->mu, NULL);
    tls->foreign = true;
    return tls;
}

/* Takes the settings over. */
static tws_err make(tws_tls **out, struct tls_settings *s, bool complete, tws_error *error)
{
    struct tls_fault f = {.code = TWS_OK};
    struct tws_tls *tls = complete ? tls_new_bare(s->allocator) : NULL;

    if (!tls) {
        tls_settings_clear(s);
        return failed_with(error, TWS_ERR_MEMORY, "TLS");
    }
    tls->settings = *s;
    tls->foreign = false;
    tls->set = set_load(&tls->settings, &f);
    if (!tls->set) {
        tws_tls_unref(tls);
        return failed(error, &f);
    }
    *out = tls;
    return TWS_OK;
}

static bool version_known(tws_tls_version v)
{
    return v == TWS_TLS_1_2 || v == TWS_TLS_1_3;
}

static const char *check_server(const tws_tls_server_options *o)
{
    if (o->certificate_count == 0 || !o->certificates)
        return "a server needs a certificate";
    if (!version_known(o->min_version))
        return "min_version is neither TLS 1.2 nor 1.3";
    if (o->client_auth < TWS_CLIENT_AUTH_NONE || o->client_auth > TWS_CLIENT_AUTH_REQUIRE)
        return "client_auth has no such value";
    if (o->client_auth != TWS_CLIENT_AUTH_NONE && !o->client_ca_file && !o->client_ca_pem)
        return "client_auth needs client_ca_file or client_ca_pem: whom to trust";
    return NULL;
}

#define NO_KTLS "kernel TLS is not built in; leave ktls off"

tws_err tws_tls_server_new(tws_tls **out, const tws_tls_server_options *opt, tws_error *error)
{
    tws_tls_server_options o;
    struct tls_settings s;
    const char *what;
    bool complete;

    *out = NULL;
    tws_tls_server_options_init(&o);
    if (!opt || opt->size < sizeof opt->size + sizeof opt->certificates)
        return failed_with(error, TWS_ERR_ARGUMENT, "options were not initialised");
    base_sized_take(&o, sizeof o, opt, opt->size);
    what = check_server(&o);
    if (what)
        return failed_with(error, TWS_ERR_ARGUMENT, what);
    if (o.ktls)
        return failed_with(error, TWS_ERR_UNSUPPORTED, NO_KTLS);
    complete = tls_settings_server(&s, &o);
    return make(out, &s, complete, error);
}

tws_err tws_tls_client_new(tws_tls **out, const tws_tls_client_options *opt, tws_error *error)
{
    tws_tls_client_options o;
    struct tls_settings s;
    bool complete;

    *out = NULL;
    tws_tls_client_options_init(&o);
    if (opt && opt->size < sizeof opt->size + sizeof opt->ca_file)
        return failed_with(error, TWS_ERR_ARGUMENT, "options were not initialised");
    if (opt)
        base_sized_take(&o, sizeof o, opt, opt->size);
    if (!version_known(o.min_version))
        return failed_with(error, TWS_ERR_ARGUMENT, "min_version is neither TLS 1.2 nor 1.3");
    if (o.ktls)
        return failed_with(error, TWS_ERR_UNSUPPORTED, NO_KTLS);
    complete = tls_settings_client(&s, &o);
    return make(out, &s, complete, error);
}

tws_err tws_tls_from_ctx(tws_tls **out, SSL_CTX *ctx, bool server)
{
    struct tls_fault f;
    struct tws_tls *tls;

    *out = NULL;
    if (!ctx)
        return TWS_ERR_ARGUMENT;
    tls = tls_new_bare(NULL);
    if (!tls)
        return TWS_ERR_MEMORY;
    tls->settings.server = server;
    tls->set = set_new(NULL, 1, false, &f);
    if (!tls->set) {
        tws_tls_unref(tls);
        return TWS_ERR_MEMORY;
    }
    SSL_CTX_up_ref(ctx);
    tls->set->ctx[tls->set->count++] = ctx;
    *out = tls;
    return TWS_OK;
}

tws_err tws_tls_reload(tws_tls *tls, tws_error *error)
{
    struct tls_fault f = {.code = TWS_OK};
    struct tls_set *fresh, *old;

    if (tls->foreign)
        return failed_with(error, TWS_ERR_STATE, "it was made of an SSL_CTX");
    fresh = set_load(&tls->settings, &f);
    if (!fresh)
        return failed(error, &f);
    pthread_mutex_lock(&tls->mu);
    old = tls->set;
    tls->set = fresh;
    pthread_mutex_unlock(&tls->mu);
    tls_set_unref(old);
    return TWS_OK;
}

tws_tls *tws_tls_ref(tws_tls *tls)
{
    base_ref_get(&tls->refs);
    return tls;
}

void tws_tls_unref(tws_tls *tls)
{
    const tws_allocator *a;

    if (!tls || !base_ref_put(&tls->refs))
        return;
    a = tls->settings.allocator;
    tls_set_unref(tls->set);
    tls_settings_clear(&tls->settings);
    base_pool_destroy(&tls->buffers);
    BIO_meth_free(tls->method);
    pthread_mutex_destroy(&tls->mu);
    base_free(a, tls);
}
